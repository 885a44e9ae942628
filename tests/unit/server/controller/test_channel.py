"""The controller's requests reach each broker in order, each until it is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from minikafka.controller.events import Event, LeaderAndIsrAnswered, StopReplicaAnswered
from minikafka.errors import ErrorCode, KafkaError, PeerProtocolError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.control import (
    ControlRequest,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    ListenerEndpoint,
    LiveBroker,
    StopReplicaPartition,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.server.controller import channel as controller_channel
from minikafka.server.controller.channel import ControllerChannel, ControllerChannels, RemoteBroker
from minikafka.types import BrokerId, LeaderEpoch
from tests.unit.server.virtual_time import LoopClock, in_virtual_time, passing

ONE = BrokerId(1)
ENDPOINT = (ListenerEndpoint("PLAINTEXT", "localhost", 9092),)
STOPPED = (StopReplicaPartition("t", 0, delete=True),)


def broker(node_id: int = 1, epoch: int = 70) -> LiveBroker:
    return LiveBroker(BrokerId(node_id), epoch, ENDPOINT)


def lead(controller_epoch: int = 1) -> LeaderAndIsrRequest:
    return LeaderAndIsrRequest(ONE, controller_epoch, 70, (), ())


def led(topic: str, *, leader_epoch: int = 0, is_new: bool = True) -> LeaderAndIsrPartition:
    return LeaderAndIsrPartition(
        topic=topic,
        topic_id=UUID(int=ord(topic)),
        partition=0,
        controller_epoch=1,
        leader=ONE,
        leader_epoch=LeaderEpoch(leader_epoch),
        isr=(ONE,),
        partition_epoch=leader_epoch,
        replicas=(ONE,),
        is_new=is_new,
    )


def stop() -> StopReplicaRequest:
    return StopReplicaRequest(ONE, 1, 70, STOPPED)


def tell(controller_epoch: int = 1) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(ONE, controller_epoch, 70, (), ())


class Peer:
    """A broker as its channel sees it."""

    def __init__(self) -> None:
        self.received: list[ControlRequest] = []
        self.failures: list[Exception] = []
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.under_way = 0
        self.error_code = 0
        self.times_ms: list[int] = []

    async def __call__(self, request: ControlRequest) -> Any:
        self.received.append(request)
        self.times_ms.append(LoopClock().monotonic_ms())
        self.under_way += 1
        assert self.under_way == 1, "one request at a time"
        try:
            await self.is_open.wait()
            if self.failures:
                raise self.failures.pop(0)
        finally:
            self.under_way -= 1
        match request:
            case LeaderAndIsrRequest():
                return LeaderAndIsrResponse(self.error_code)
            case StopReplicaRequest():
                return StopReplicaResponse(self.error_code)
            case _:
                return UpdateMetadataResponse(self.error_code)


class Tasks:
    """What starts the channels' tasks."""

    def __init__(self) -> None:
        self.started: list[asyncio.Task[None]] = []

    def __call__(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        task = asyncio.create_task(work(), name=name)
        self.started.append(task)
        return task


@in_virtual_time
async def test_requests_arrive_in_order_and_each_after_the_one_before_was_answered() -> None:
    peer, events = Peer(), list[Event]()
    channel = ControllerChannel(broker(), peer, events.append)
    task = asyncio.create_task(channel.run())
    peer.is_open.clear()
    wanted: list[ControlRequest] = [lead(), tell(), stop(), lead(2)]
    for request in wanted:
        channel.enqueue(request)
    await passing(1000)
    assert peer.received == wanted[:1]
    peer.is_open.set()
    await passing(0)
    await passing(0)
    await passing(1)
    assert peer.received == wanted
    assert events == [
        LeaderAndIsrAnswered(ONE, 70, LeaderAndIsrResponse(0)),
        StopReplicaAnswered(ONE, 70, STOPPED, StopReplicaResponse(0)),
        LeaderAndIsrAnswered(ONE, 70, LeaderAndIsrResponse(0)),
    ]
    channel.enqueue(tell(3))  # also after it was idle
    await passing(1)
    assert peer.received[-1] == tell(3)
    task.cancel()


@in_virtual_time
async def test_a_request_is_tried_until_it_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    peer, events = Peer(), list[Event]()
    peer.failures = [BrokerUnavailable("refused")] * 30 + [PeerProtocolError("gibberish")]
    channel = ControllerChannel(broker(), peer, events.append)
    task = asyncio.create_task(channel.run())
    channel.enqueue(lead())
    channel.enqueue(stop())
    await passing(3000)
    assert set(peer.received) == {lead()} and events == []
    await passing(300)
    assert peer.received == [lead()] * 32 + [stop()]
    assert len(events) == 2
    assert len([each for each in caplog.messages if "does not take" in each]) == 1  # once, not each time
    task.cancel()


@in_virtual_time
async def test_an_error_is_an_answer_too(caplog: pytest.LogCaptureFixture) -> None:
    peer, events = Peer(), list[Event]()
    peer.error_code = ErrorCode.STALE_CONTROLLER_EPOCH
    channel = ControllerChannel(broker(), peer, events.append)
    task = asyncio.create_task(channel.run())
    for request in (lead(), tell(), stop()):
        channel.enqueue(request)
    await passing(1)
    assert peer.received == [lead(), tell(), stop()]
    assert [type(each) for each in events] == [LeaderAndIsrAnswered, StopReplicaAnswered]
    assert "STALE_CONTROLLER_EPOCH" in caplog.text
    task.cancel()


@in_virtual_time
async def test_a_broker_without_a_store_is_asked_again_less_and_less_often_until_it_has_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    peer, events = Peer(), list[Event]()
    peer.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    channel = ControllerChannel(broker(), peer, events.append)
    task = asyncio.create_task(channel.run())
    channel.enqueue(lead())
    channel.enqueue(stop())
    await passing(4_000)
    assert set(peer.received) == {lead()} and events == []
    pauses = [after - before for before, after in pairwise(peer.times_ms)]
    assert pauses == [100, 200, 400, 800, 1000, 1000]
    assert len([each for each in caplog.messages if "cannot reach the coordination store" in each]) == 1
    peer.error_code = 0
    await passing(1_000)
    assert peer.received[-2:] == [lead(), stop()]
    assert [type(each) for each in events] == [LeaderAndIsrAnswered, StopReplicaAnswered]
    task.cancel()


@in_virtual_time
async def test_what_a_later_request_says_again_is_not_tried_any_more() -> None:
    peer = Peer()
    peer.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    channel = ControllerChannel(broker(), peer, lambda event: None)
    task = asyncio.create_task(channel.run())
    first = LeaderAndIsrRequest(ONE, 1, 70, (led("a"), led("b"), led("c")), ())
    second = LeaderAndIsrRequest(ONE, 1, 70, (led("b", leader_epoch=1, is_new=False),), ())
    deleted = StopReplicaRequest(ONE, 1, 70, (StopReplicaPartition("c", 0, delete=True),))
    channel.enqueue(first)
    await passing(50)
    channel.enqueue(second)
    channel.enqueue(deleted)
    await passing(100)
    assert peer.received == [first, LeaderAndIsrRequest(ONE, 1, 70, (led("a"),), ())]
    third = LeaderAndIsrRequest(ONE, 1, 70, (led("a", leader_epoch=1, is_new=False),), ())
    channel.enqueue(third)
    await passing(400)
    peer.error_code = 0
    await passing(1000)
    new = LeaderAndIsrRequest(ONE, 1, 70, (led("b", leader_epoch=1),), ())
    assert new in peer.received, "the broker has not heard of it before: it is still new"
    assert peer.received[-1] == LeaderAndIsrRequest(ONE, 1, 70, (led("a", leader_epoch=1),), ())
    assert channel.waiting() == ()
    task.cancel()


@in_virtual_time
async def test_a_request_that_is_full_gives_way_to_another_full_one_only() -> None:
    peer = Peer()
    peer.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    channel = ControllerChannel(broker(), peer, lambda event: None)
    task = asyncio.create_task(channel.run())
    everything = UpdateMetadataRequest(ONE, 1, 70, (led("a"), led("b")), (), is_full=True)
    channel.enqueue(everything)
    later = UpdateMetadataRequest(ONE, 1, 70, (led("a", leader_epoch=1),), ())
    channel.enqueue(later)
    await passing(350)
    assert peer.received == [everything] * 3
    newer = UpdateMetadataRequest(ONE, 1, 70, (led("b"),), (), is_full=True)
    channel.enqueue(newer)
    peer.error_code = 0
    await passing(1000)
    assert peer.received[3:] == [later, newer]
    task.cancel()


@in_virtual_time
async def test_asking_again_ends_with_the_brokers_registration_and_with_the_controller() -> None:
    peers: dict[int, Peer] = {}

    def open_sender(live: LiveBroker) -> Peer:
        peer = peers.setdefault(live.epoch, Peer())
        peer.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return peer

    channels = ControllerChannels(open_sender=open_sender, notify=lambda event: None, start=Tasks())
    for epoch, end in ((70, channels.update({ONE: broker(epoch=71)})), (71, channels.close())):
        await channels.update({ONE: broker(epoch=epoch)})
        channel = channels.get(ONE)
        assert channel is not None
        channel.enqueue(lead())
        await passing(500)
        assert len(peers[epoch].received) == 3
        await end
        await passing(5_000)
        assert len(peers[epoch].received) == 3


@in_virtual_time
async def test_what_waits_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_channel, "QUEUED_MAX", 3)
    channel = ControllerChannel(broker(), Peer(), lambda event: None)
    for _ in range(3):
        channel.enqueue(tell())
    with pytest.raises(KafkaError) as caught:
        channel.enqueue(tell())
    assert caught.value.code is ErrorCode.BROKER_NOT_AVAILABLE


@in_virtual_time
async def test_there_is_a_channel_for_each_incarnation_of_each_broker() -> None:
    peers: dict[tuple[int, int], Peer] = {}
    tasks = Tasks()

    def open_sender(live: LiveBroker) -> Peer:
        return peers.setdefault((live.node_id, live.epoch), Peer())

    channels = ControllerChannels(open_sender=open_sender, notify=lambda event: None, start=tasks)
    await channels.update({ONE: broker(1), BrokerId(2): broker(2)})
    one, two = channels.get(1), channels.get(2)
    assert one is not None and two is not None and channels.get(3) is None
    for peer in peers.values():
        peer.is_open.clear()
    one.enqueue(lead())
    two.enqueue(lead())
    await passing(1)
    # Broker 1 came back, broker 2 is as it was, broker 3 is new.
    await channels.update({ONE: broker(1, epoch=71), BrokerId(2): broker(2), BrokerId(3): broker(3)})
    again = channels.get(1)
    assert again is not None and again is not one and again.broker.epoch == 71
    assert channels.get(2) is two and channels.get(3) is not None
    assert [task.done() for task in tasks.started] == [True, False, False, False]
    peers[1, 70].is_open.set()
    await passing(1000)
    assert peers[1, 71].received == []  # what was meant for the dead one is not sent
    await channels.close()
    assert all(task.cancelled() for task in tasks.started)
    assert channels.get(2) is None


@in_virtual_time
async def test_nothing_is_sent_by_a_channel_that_was_being_closed_when_the_closing_was_cancelled() -> None:
    tasks = Tasks()
    channels = ControllerChannels(open_sender=lambda live: Peer(), notify=lambda event: None, start=tasks)
    await channels.update({BrokerId(number): broker(number) for number in range(3)})
    closing = asyncio.create_task(channels.close())
    await asyncio.sleep(0)
    closing.cancel()
    await passing(10)
    assert all(task.cancelled() for task in tasks.started)


class Client:
    """Stands for ``BrokerClient``."""

    def __init__(self) -> None:
        self.is_connected = True
        self.requests: list[tuple[ApiKey, int]] = []

    async def request(self, key: ApiKey, body: Any, *, deadline_ms: int, version: int) -> Any:
        self.requests.append((key, deadline_ms))
        return LeaderAndIsrResponse(0) if key is ApiKey.LEADER_AND_ISR else UpdateMetadataResponse(0)

    async def close(self) -> None:
        self.is_connected = False


async def test_a_connection_is_made_when_it_is_needed_and_again_when_it_was_lost() -> None:
    made: list[Client] = []
    addresses = []

    async def connect(host: str, port: int, **options: Any) -> Any:
        addresses.append((host, port, options))
        made.append(Client())
        return made[-1]

    remote = RemoteBroker(
        ("localhost", 9092),
        name="broker 1",
        client_id="controller",
        timeout_ms=5000,
        connect=connect,
        listener_name="PLAINTEXT",
    )
    assert made == []
    await remote(tell())
    await remote(lead())
    assert [len(client.requests) for client in made] == [2]
    assert made[0].requests == [(ApiKey.UPDATE_METADATA, 5000), (ApiKey.LEADER_AND_ISR, 5000)]
    made[0].is_connected = False
    await remote(stop())
    assert made[1].requests == [(ApiKey.STOP_REPLICA, 5000)]
    assert addresses == [("localhost", 9092, {"client_id": "controller", "deadline_ms": 5000})] * 2
    await remote.close()
    assert not made[1].is_connected


async def test_a_broker_without_the_listener_cannot_be_reached() -> None:
    remote = RemoteBroker(None, name="broker 7", client_id="controller", timeout_ms=5000, listener_name="A")
    with pytest.raises(BrokerUnavailable, match="broker 7"):
        await remote(tell())
