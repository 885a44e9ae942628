"""From the controller to each broker: one ordered channel of requests, tried until they are answered.

Kafka: ``ControllerChannelManager`` and ``RequestSendThread``. A request leaves when the one before it was
answered, so a broker sees the controller's decisions in their order. A broker that cannot be reached is tried
again every 100 ms, with the same request, for as long as it is registered: when it is not, the controller
closes the channel.

A broker that answers COORDINATOR_NOT_AVAILABLE could not reach the store, from which it reads the
configurations of new topics. It is asked again, at first after 100 ms and then less often, until it has taken
the request. What a later request says again is left out meanwhile (``without_superseded``). Kafka's brokers
keep such a request until the store answers. Every other error is an answer: a later controller has spoken, or
the request was for an earlier incarnation of the broker.

The controller's own broker is called directly, in the same order and one request at a time.

**What is left of a refused request** when later ones wait behind it. Kafka has no counterpart: its brokers
keep a request until the store answers, and the later ones wait.

A partition is left out where a later request says it again: a LeaderAndIsr where one names it, or a
StopReplica deletes it; an UpdateMetadata where one names it. What is left out of a LeaderAndIsr as new is new
in the later one, because the broker has not seen it yet. A request that is full means what it does not name,
too, so only another full one takes its place.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from minikafka.controller.events import Event, LeaderAndIsrAnswered, StopReplicaAnswered
from minikafka.deferred import deferred
from minikafka.errors import ErrorCode, KafkaError, PeerProtocolError
from minikafka.network.broker_client import BrokerClient, BrokerUnavailable
from minikafka.protocol.control import (
    ControlRequest,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LiveBroker,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from minikafka.protocol.wire.api_versions import BETWEEN_BROKERS, ApiKey
from minikafka.server.cluster.broker_connection import BrokerConnection, Connect
from minikafka.types import TopicPartition

if TYPE_CHECKING:
    from minikafka.protocol.wire import control_bodies
else:
    control_bodies = deferred("minikafka.protocol.wire.control_bodies")

logger = logging.getLogger(__name__)

RETRY_PAUSE_MS = 100
"""``RequestSendThread``'s backoff."""

RETRY_PAUSE_MS_MAX = 1_000
"""The longest pause while a broker has no store: each try makes it ask the store for its new topics."""

QUEUED_MAX = 10_000
"""Requests that wait for a broker which does not answer. Its session ends long before there are so many."""


def without_superseded(queue: deque[ControlRequest]) -> None:
    """Leave out of the first request of ``queue`` what later ones say again, all of it if nothing is left."""
    first = queue[0]
    match first:
        case LeaderAndIsrRequest() | UpdateMetadataRequest():
            pass
        case _:
            return
    later = [each for each in list(queue)[1:] if type(each) is type(first)]
    if any(each.is_full for each in later if isinstance(each, LeaderAndIsrRequest | UpdateMetadataRequest)):
        left: tuple[LeaderAndIsrPartition, ...] = ()
    elif first.is_full:
        return
    else:
        said_again = _said_again(queue, first)
        left = tuple(each for each in first.partitions if each.topic_partition not in said_again)
    if len(left) == len(first.partitions):
        return
    _carry_over_new(queue, [each for each in first.partitions if each.is_new and each not in left])
    if left:
        queue[0] = msgspec.structs.replace(first, partitions=left)
    else:
        queue.popleft()


def _said_again(queue: deque[ControlRequest], first: ControlRequest) -> set[TopicPartition]:
    found: set[TopicPartition] = set()
    for request in list(queue)[1:]:
        match request:
            case LeaderAndIsrRequest() | UpdateMetadataRequest() if type(request) is type(first):
                found.update(each.topic_partition for each in request.partitions)
            case StopReplicaRequest() if isinstance(first, LeaderAndIsrRequest):
                found.update(
                    TopicPartition(each.topic, each.partition) for each in request.partitions if each.delete
                )
    return found


def _carry_over_new(queue: deque[ControlRequest], dropped: list[LeaderAndIsrPartition]) -> None:
    """The first of the later requests that names such a partition is the first that the broker hears of."""
    new = {(each.topic_partition, each.topic_id) for each in dropped}
    for index in range(1, len(queue)):
        request = queue[index]
        if isinstance(request, LeaderAndIsrRequest):
            partitions = tuple(
                msgspec.structs.replace(each, is_new=True)
                if (each.topic_partition, each.topic_id) in new
                else each
                for each in request.partitions
            )
            new.difference_update((each.topic_partition, each.topic_id) for each in partitions)
            queue[index] = msgspec.structs.replace(request, partitions=partitions)


class Send(Protocol):
    """Deliver one request to a broker and wait for its response.

    Raises BrokerUnavailable or PeerProtocolError when it has to be tried again.
    """

    async def __call__(self, request: ControlRequest) -> Any: ...


class RemoteBroker:
    """Sends over a connection, in the newest versions of Kafka 3.9."""

    def __init__(
        self,
        address: tuple[str, int] | None,
        *,
        name: str,
        client_id: str,
        timeout_ms: int,
        connect: Connect = BrokerClient.connect,
        listener_name: str,
        is_of_0_2: bool = False,
    ) -> None:
        """``address`` is None for a broker without ``listener_name``, the listener that brokers use."""
        self._address = address
        self._listener_name = listener_name
        self._is_of_0_2 = is_of_0_2
        self._connection = BrokerConnection(
            name=name, client_id=client_id, timeout_ms=timeout_ms, connect=connect
        )

    def __repr__(self) -> str:
        return f"RemoteBroker({self._address}, {self._connection})"

    async def __call__(self, request: ControlRequest) -> Any:
        api_key = api_key_of(request)
        if self._is_of_0_2:
            version = control_bodies.VERSION_OF_0_2
            return await self._connection.request(self._address, api_key, request, version=version)
        version = BETWEEN_BROKERS[api_key].max
        if isinstance(request, LeaderAndIsrRequest):
            request = control_bodies.with_addresses(request, self._listener_name)
        response = await self._connection.request(self._address, api_key, request, version=version)
        if isinstance(request, LeaderAndIsrRequest):
            return control_bodies.with_names(response, request)
        return response

    async def close(self) -> None:
        await self._connection.close()


def api_key_of(request: ControlRequest) -> ApiKey:
    """Which API a request is of."""
    match request:
        case LeaderAndIsrRequest():
            return ApiKey.LEADER_AND_ISR
        case StopReplicaRequest():
            return ApiKey.STOP_REPLICA
        case UpdateMetadataRequest():
            return ApiKey.UPDATE_METADATA
        case _:
            return ApiKey.CONTROLLED_SHUTDOWN


class ControllerChannel:
    """The requests for one incarnation of a broker. ``run`` is its task; answers go to ``notify``."""

    def __init__(self, broker: LiveBroker, send: Send, notify: Callable[[Event], object]) -> None:
        self.broker = broker
        self._send = send
        self._notify = notify
        self._queue: deque[ControlRequest] = deque()
        self._filled = asyncio.Event()
        self._failing = False
        self._pause_ms = 0
        """Before the next try, while the broker has no store."""

    def __repr__(self) -> str:
        state = "failing" if self._failing else "without a store" if self._pause_ms else "fine"
        return f"ControllerChannel(broker {self.broker.node_id}, {len(self._queue)} waiting, {state})"

    def enqueue(self, request: ControlRequest) -> None:
        """``request`` leaves after all that were enqueued before it.

        Raises:
            KafkaError: the broker has not answered for so long that too many wait.
        """
        if len(self._queue) >= QUEUED_MAX:
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"{QUEUED_MAX} requests wait for broker {self.broker.node_id}"
            )
        self._queue.append(request)
        self._filled.set()

    def waiting(self) -> tuple[ControlRequest, ...]:
        """The requests without an answer, in order. The first may be under way."""
        return tuple(self._queue)

    async def run(self) -> None:
        """Deliver until cancelled."""
        while True:
            while not self._queue:
                self._filled.clear()
                await self._filled.wait()
            response = await self._deliver(self._queue[0])
            if response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
                await self._wait_for_the_brokers_store()
            else:
                self._pause_ms = 0
                self._answered(self._queue.popleft(), response)

    async def _wait_for_the_brokers_store(self) -> None:
        """The first request was refused for want of the store. Afterwards it is what is left of it."""
        if not self._pause_ms:
            logger.warning(
                "broker %d cannot reach the coordination store and refuses %s; it is asked again",
                self.broker.node_id,
                api_key_of(self._queue[0]).name,
            )
        self._pause_ms = min(max(RETRY_PAUSE_MS, 2 * self._pause_ms), RETRY_PAUSE_MS_MAX)
        await asyncio.sleep(self._pause_ms / 1000)
        without_superseded(self._queue)

    async def _deliver(self, request: ControlRequest) -> Any:
        while True:
            try:
                response = await self._send(request)
            except (BrokerUnavailable, PeerProtocolError) as error:
                if not self._failing:
                    self._failing = True
                    logger.warning(
                        "broker %d does not take the controller's requests: %s", self.broker.node_id, error
                    )
                await asyncio.sleep(RETRY_PAUSE_MS / 1000)
            else:
                if self._failing:
                    self._failing = False
                    logger.info("broker %d takes the controller's requests again", self.broker.node_id)
                return response

    def _answered(self, request: ControlRequest, response: Any) -> None:
        node_id, epoch = self.broker.node_id, self.broker.epoch
        if response.error_code:
            logger.warning(
                "broker %d answers %s to %s",
                node_id,
                ErrorCode(response.error_code).name,
                api_key_of(request).name,
            )
        match response:
            case LeaderAndIsrResponse():
                self._notify(LeaderAndIsrAnswered(node_id, epoch, response))
            case StopReplicaResponse():
                assert isinstance(request, StopReplicaRequest)
                self._notify(StopReplicaAnswered(node_id, epoch, request.partitions, response))
            case UpdateMetadataResponse():
                pass  # nothing depends on it


class ControllerChannels:
    """A channel for each registered broker."""

    def __init__(
        self,
        *,
        open_sender: Callable[[LiveBroker], Send],
        notify: Callable[[Event], object],
        start: Callable[[str, Callable[[], Coroutine[Any, Any, None]]], asyncio.Task[None]],
    ) -> None:
        self._open_sender = open_sender
        self._notify = notify
        self._start = start
        self._channels: dict[int, tuple[ControllerChannel, Send, asyncio.Task[None]]] = {}

    def __repr__(self) -> str:
        return f"ControllerChannels({[channel for channel, _, _ in self._channels.values()]})"

    def get(self, node_id: int) -> ControllerChannel | None:
        found = self._channels.get(node_id)
        return None if found is None else found[0]

    async def update(self, brokers: dict[Any, LiveBroker]) -> None:
        """Close channels to brokers that went, came back or moved; open those to new ones.

        What waits for a broker that only moved goes to its new address.
        """
        waiting = {
            node_id: channel.waiting()
            for node_id, (channel, _, _) in self._channels.items()
            if node_id in brokers and brokers[node_id].epoch == channel.broker.epoch
        }
        await self._close(
            [
                node_id
                for node_id, (channel, _, _) in self._channels.items()
                if brokers.get(channel.broker.node_id) != channel.broker
            ]
        )
        for broker in brokers.values():
            if broker.node_id not in self._channels:
                send = self._open_sender(broker)
                channel = ControllerChannel(broker, send, self._notify)
                for request in waiting.get(broker.node_id, ()):
                    channel.enqueue(request)
                task = self._start(f"controller-to-broker-{broker.node_id}", channel.run)
                self._channels[broker.node_id] = (channel, send, task)

    async def close(self) -> None:
        await self._close(list(self._channels))

    async def _close(self, node_ids: list[int]) -> None:
        """None of them sends anything from the first await on, even if this is cancelled."""
        closed = [self._channels.pop(node_id) for node_id in node_ids]
        for _, _, task in closed:
            task.cancel()
        await asyncio.gather(*(task for _, _, task in closed), return_exceptions=True)
        for _, send, _ in closed:
            if isinstance(send, RemoteBroker):
                await send.close()
