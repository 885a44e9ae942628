"""Markers find the leaders of their partitions, whichever broker that is by then, and shards hear what became
of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from minikafka.coordinator.transaction.messages import WriteMarkers
from minikafka.errors import ErrorCode
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.server.cluster.metadata_cache import (
    BrokerEndpoints,
    Endpoint,
    MetadataCache,
    PartitionMetadata,
    TopicMetadata,
)
from minikafka.server.coordinator.hosted_shard import ShardState
from minikafka.server.coordinator.transaction_service import (
    CoordinatorMarkers,
    TransactionMarkerChannels,
    WrittenMarkers,
    _answered,
    request_body,
)
from minikafka.server.runtime.event_loop import Supervisor
from minikafka.types import BrokerId, LeaderEpoch, TopicPartition
from tests.unit.server.running import eventually

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
P0, P1, P2 = (TopicPartition("orders", number) for number in range(3))
GONE = TopicPartition("gone", 0)


class FakeShard:
    """In place of a hosted shard: notes what it is told."""

    def __init__(self, leader_epoch: int = 5) -> None:
        self.state = ShardState.ACTIVE
        self.leader_epoch = leader_epoch
        self.heard: dict[TopicPartition, ErrorCode] = {}

    def tell(self, call: Callable[[Any, int], object]) -> None:
        call(SimpleNamespace(markers_written=self._written), 0)

    def _written(self, markers: WriteMarkers, errors: Any, now_ms: int) -> None:
        assert set(errors) <= set(markers.partitions)
        self.heard |= errors


class Cluster:
    """Brokers that note the markers they get. ``held`` keeps the answers of some back."""

    def __init__(self) -> None:
        self.metadata = MetadataCache()
        self.asked: list[tuple[int, list[tuple[int, list[TopicPartition]]]]] = []
        self.errors: dict[TopicPartition, ErrorCode] = {}
        self.unreachable: set[int] = set()
        self.held: dict[int, asyncio.Event] = {}
        self.alive(ONE, TWO, THREE)
        self.leaders(ONE, TWO, THREE)

    def alive(self, *brokers: BrokerId) -> None:
        self.metadata._brokers = {
            each: BrokerEndpoints(node_id=each, endpoints={"B": Endpoint("b", 9000 + each)})
            for each in brokers
        }

    def leaders(self, *leaders: BrokerId) -> None:
        partitions = tuple(
            PartitionMetadata(
                partition=number,
                leader=leader,
                leader_epoch=LeaderEpoch(0),
                replicas=(leader,),
                isr=(leader,),
            )
            for number, leader in enumerate(leaders)
        )
        self.metadata.put_topic(TopicMetadata(name="orders", topic_id=UUID(int=1), partitions=partitions))

    async def connect(self, host: str, port: int, **fields: Any) -> Any:
        node_id = port - 9000
        if node_id in self.unreachable:
            raise BrokerUnavailable(f"broker {node_id} is not reachable")

        async def request(api_key: int, body: Any, **fields: Any) -> Any:
            return await self.write(node_id, body)

        async def close() -> None: ...

        return SimpleNamespace(is_connected=True, request=request, close=close)

    async def write(self, node_id: int, body: Any) -> Any:
        markers = body["markers"]
        self.asked.append((node_id, [(each["producer_id"], _partitions(each)) for each in markers]))
        if node_id in self.held:
            await self.held[node_id].wait()
        if node_id in self.unreachable:
            raise BrokerUnavailable(f"broker {node_id} has gone")
        return SimpleNamespace(markers=[self._written(each) for each in markers])

    async def write_here(self, markers: CoordinatorMarkers) -> WrittenMarkers:
        return _answered(await self.write(ONE, request_body(markers)))

    def _written(self, marker: Any) -> Any:
        topics = [
            SimpleNamespace(
                name=topic["name"],
                partitions=[
                    SimpleNamespace(partition_index=each, error_code=self.error(topic["name"], each))
                    for each in topic["partition_indexes"]
                ],
            )
            for topic in marker["topics"]
        ]
        return SimpleNamespace(producer_id=marker["producer_id"], topics=topics)

    def error(self, topic: str, partition: int) -> ErrorCode:
        return self.errors.get(TopicPartition(topic, partition), ErrorCode.NONE)

    @property
    def brokers_asked(self) -> list[int]:
        return [node_id for node_id, _ in self.asked]


def _partitions(marker: Any) -> list[TopicPartition]:
    return [
        TopicPartition(topic["name"], number)
        for topic in marker["topics"]
        for number in topic["partition_indexes"]
    ]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
async def channels(cluster: Cluster) -> Any:
    """Those of broker 1."""
    supervisor = Supervisor()
    yield TransactionMarkerChannels(
        node_id=ONE,
        metadata=cluster.metadata,
        supervisor=supervisor,
        listener_name="B",
        timeout_ms=1000,
        connect=cast(Any, cluster.connect),
        write_here=cluster.write_here,
    )
    await supervisor.stop()


def markers(*partitions: TopicPartition, producer_id: int = 7, attempt: int = 0) -> WriteMarkers:
    return WriteMarkers("t", producer_id, 3, True, partitions, 0, attempt)


async def heard(shard: FakeShard, *partitions: TopicPartition) -> dict[TopicPartition, ErrorCode]:
    """What the shard has been told, when it has been told of all these."""

    async def all_heard() -> bool:
        return set(partitions) <= set(shard.heard)

    await eventually(all_heard, f"news of {partitions}")
    return shard.heard


async def test_each_leader_gets_the_markers_of_its_partitions(channels: Any, cluster: Cluster) -> None:
    cluster.leaders(ONE, TWO, TWO)
    shard = FakeShard()
    channels.write(shard, markers(P2, P0, P1))
    assert await heard(shard, P0, P1, P2) == dict.fromkeys((P0, P1, P2), ErrorCode.NONE)
    assert sorted(cluster.asked) == [(1, [(7, [P0])]), (2, [(7, [P1, P2])])]


async def test_a_marker_has_the_epoch_of_its_coordinator(
    channels: Any, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies: list[Any] = []

    async def write(node_id: int, body: Any) -> Any:
        bodies.append(body)
        return await Cluster.write(cluster, node_id, body)

    monkeypatch.setattr(cluster, "write", write)
    shard = FakeShard(leader_epoch=12)
    channels.write(shard, markers(P1))
    await heard(shard, P1)
    ((marker,),) = [each["markers"] for each in bodies]
    assert (marker["coordinator_epoch"], marker["producer_epoch"]) == (12, 3)
    assert marker["transaction_result"] is True


async def test_what_comes_while_a_request_is_under_way_leaves_together(
    channels: Any, cluster: Cluster
) -> None:
    cluster.held[2] = asyncio.Event()
    shard, other = FakeShard(), FakeShard()
    channels.write(shard, markers(P1))

    async def under_way() -> bool:
        return cluster.brokers_asked == [2]

    await eventually(under_way, "the first request")
    channels.write(shard, markers(P1, producer_id=8))
    channels.write(other, markers(P1, producer_id=9))
    cluster.held[2].set()
    await heard(other, P1)
    assert cluster.asked == [(2, [(7, [P1])]), (2, [(8, [P1]), (9, [P1])])]


async def test_errors_are_those_of_each_partition(channels: Any, cluster: Cluster) -> None:
    cluster.leaders(TWO, TWO)
    cluster.errors = {P1: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    shard = FakeShard()
    channels.write(shard, markers(P0, P1))
    assert await heard(shard, P0, P1) == {P0: ErrorCode.NONE, P1: ErrorCode.NOT_LEADER_OR_FOLLOWER}


async def test_what_is_sent_again_goes_to_who_leads_by_then(
    channels: Any, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.unreachable = {2}
    shard = FakeShard()
    channels.write(shard, markers(P1))
    assert await heard(shard, P1) == {P1: ErrorCode.REQUEST_TIMED_OUT}
    shard.heard.clear()
    channels.write(shard, markers(P1, attempt=1))
    cluster.leaders(ONE, THREE, THREE)
    assert await heard(shard, P1) == {P1: ErrorCode.NONE}
    assert cluster.brokers_asked == [3]
    assert caplog.text.count("broker 2 does not take markers") == 1


async def test_a_broker_that_goes_in_the_middle_is_not_waited_for(channels: Any, cluster: Cluster) -> None:
    cluster.held[2] = asyncio.Event()
    shard = FakeShard()
    channels.write(shard, markers(P0, P1))
    assert await heard(shard, P0) == {P0: ErrorCode.NONE}
    cluster.unreachable = {2}
    cluster.held[2].set()
    assert (await heard(shard, P1))[P1] is ErrorCode.REQUEST_TIMED_OUT
    cluster.unreachable, cluster.held = set(), {}
    shard.heard.clear()
    channels.write(shard, markers(P1, attempt=1))
    assert await heard(shard, P1) == {P1: ErrorCode.NONE}, "over a new connection, or the old one"


async def test_a_partition_without_a_leader_waits_for_one(channels: Any, cluster: Cluster) -> None:
    cluster.alive(ONE, THREE)
    shard = FakeShard()
    channels.write(shard, markers(P0, P1))
    assert await heard(shard, P0) == {P0: ErrorCode.NONE}
    assert channels.without_leader == 1
    cluster.leaders(ONE, THREE, THREE)
    assert (await heard(shard, P1))[P1] is ErrorCode.NONE
    assert (channels.without_leader, cluster.brokers_asked) == (0, [1, 3])


async def test_a_partition_that_was_deleted_needs_no_marker(channels: Any, cluster: Cluster) -> None:
    shard = FakeShard()
    channels.write(shard, markers(GONE, P1))
    assert await heard(shard, P1, GONE) == {GONE: ErrorCode.NONE, P1: ErrorCode.NONE}
    assert cluster.asked == [(2, [(7, [P1])])]


async def test_a_closed_shard_has_no_markers_written(channels: Any, cluster: Cluster) -> None:
    cluster.held[2] = asyncio.Event()
    closed, other = FakeShard(), FakeShard()
    channels.write(other, markers(P1))
    channels.write(closed, markers(P1, producer_id=8))
    channels.write(closed, markers(P1, producer_id=9, attempt=1))
    closed.state = ShardState.CLOSED
    cluster.held[2].set()
    await heard(other, P1)
    other.heard.clear()
    channels.write(other, markers(P1, producer_id=10, attempt=1))
    await heard(other, P1)
    assert [producer for _, asked in cluster.asked for producer, _ in asked] == [7, 10]
    assert closed.heard == {}
