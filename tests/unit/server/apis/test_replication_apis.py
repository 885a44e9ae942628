"""Produce, Fetch, ListOffsets and DeleteRecords with replicas, over real connections to a real broker; the
test plays the followers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from minikafka.errors import ErrorCode
from minikafka.network.broker_client import BrokerClient
from minikafka.protocol.control import (
    LeaderAndIsrRequest,
    ListenerEndpoint,
    LiveBroker,
    UpdateMetadataRequest,
)
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey
from minikafka.replication.partition_replicas import IsrWritten
from minikafka.server import cluster_membership
from minikafka.server.apis.shared.current_leader import LEADER_HINT_SUPPRESS_MS
from minikafka.server.broker import Broker
from minikafka.server.cluster.metadata_cache import PartitionMetadata, TopicMetadata
from minikafka.system_clock import SystemClock
from minikafka.types import BrokerId, LeaderEpoch, TopicPartition
from tests.unit.server.replicas import ALL, ONE, TWO, IsrStore, batch, state_of
from tests.unit.server.running import running, until

DEADLINE_MS = 20_000
TP = TopicPartition("t", 0)
LATEST = -1


def versions(key: ApiKey) -> range:
    return range(SUPPORTED[key].min, SUPPORTED[key].max + 1)


class Cluster(NamedTuple):
    """One broker, of three."""

    broker: Broker
    client: BrokerClient
    follower: BrokerClient
    endpoints: list[Any]
    """Those of the last fetch's answer."""

    async def lead(
        self, *, epoch: int = 1, leader: int = ONE, isr: tuple[int, ...] = ALL, configs: Any = None
    ) -> None:
        """Topic ``t`` has one partition with three replicas."""
        services = self.broker.services
        if services.metadata.topic("t") is None:
            await services.topics.create_topic("t", configs=configs or {})
            await services.topics.wait_for_leaders("t", partitions=1, timeout_ms=DEADLINE_MS)
            ours = services.metadata.live_broker(BrokerId(ONE))
            assert ours is not None
            others = (
                LiveBroker(other, 1, (ListenerEndpoint("PLAINTEXT", f"broker-{other}", 9092),), f"r{other}")
                for other in ALL[1:]
            )
            services.metadata.update(UpdateMetadataRequest(BrokerId(ONE), 1, ours.epoch, (), (ours, *others)))
        topic_id = services.replica_manager.hosted(TP).topic_id
        state = state_of(TP, epoch=epoch, leader=leader, isr=isr, topic_id=topic_id)
        request = LeaderAndIsrRequest(ONE, 1, 1, (state,), ())
        response = await services.replica_manager.become_leader_or_follower(request)
        assert response.partitions[0].error_code == 0
        shown = PartitionMetadata(
            partition=0, leader=BrokerId(leader), leader_epoch=LeaderEpoch(epoch), replicas=ALL, isr=ALL
        )
        services.metadata.put_topic(TopicMetadata(name="t", topic_id=topic_id, partitions=(shown,)))

    def produce(
        self,
        version: int,
        *,
        partition: int = 0,
        acks: int = -1,
        timeout_ms: int = DEADLINE_MS,
        by: BrokerClient | None = None,
    ) -> asyncio.Task[Any]:
        """One record; the partition's answer, later."""
        topic_id = self.broker.services.replica_manager.hosted(TP).topic_id
        data = [{"index": partition, "records": batch()}]
        body = {
            "transactional_id": None,
            "acks": acks,
            "timeout": timeout_ms,
            "topic_data": [{"name": "t", "topic_id": topic_id, "partition_data": data}],
        }
        client = by or self.client
        return asyncio.create_task(
            client.request(ApiKey.PRODUCE, body, version=version, deadline_ms=DEADLINE_MS)
        )

    async def fetch(
        self, version: int, offset: int, *, by: int = TWO, max_wait_ms: int = 0, **fields: Any
    ) -> Any:
        """The partition's answer to a follower, or to a consumer (-1)."""
        topic_id = self.broker.services.replica_manager.hosted(TP).topic_id
        partition = {
            "partition": 0,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": 0,
            "partition_max_bytes": 1 << 20,
        } | fields
        body = {
            "replica_id": by,
            "replica_state": {"replica_id": by, "replica_epoch": -1},
            "max_wait": max_wait_ms,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": "t", "topic_id": topic_id, "partitions": [partition]}],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        answer = await self.follower.request(ApiKey.FETCH, body, version=version, deadline_ms=DEADLINE_MS)
        self.endpoints[:] = getattr(answer, "node_endpoints", ())
        return answer.responses[0].partitions[0]

    async def catch_up(self, offset: int) -> None:
        for follower in ALL[1:]:
            assert (await self.fetch(12, offset, by=follower)).error_code == ErrorCode.NONE

    async def parked(self, count: int) -> None:
        purgatory = self.broker.services.replica_manager.parked.produce
        await until(self.broker, lambda: purgatory.delayed == count, f"{count} parked")


def answer_of(produced: asyncio.Task[Any]) -> Any:
    return produced.result().responses[0].partition_responses[0]


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    # The other brokers are only played, so none takes what this one leads when it stops.
    monkeypatch.setattr(cluster_membership, "MOVED_TIMEOUT_MS", 1)
    async with running(tmp_path) as broker:
        broker.services.replica_manager.isr_manager = IsrStore()
        clients = [
            await BrokerClient.connect("127.0.0.1", broker.port, client_id=name, deadline_ms=DEADLINE_MS)
            for name in ("producer", "follower")
        ]
        yield Cluster(broker, *clients, [])
        for client in clients:
            await client.close()


# Produce


@pytest.mark.parametrize("version", versions(ApiKey.PRODUCE))
async def test_acks_all_is_answered_in_order_when_the_replicas_have_it(
    cluster: Cluster, version: int
) -> None:
    """The first is read at length, those after it are recognised: all park, and none waits to be appended."""
    await cluster.lead()
    produced = [cluster.produce(version) for _ in range(3)]
    await cluster.parked(3)
    quick = cluster.produce(version, acks=1)  # appended, but its answer keeps its place
    log = cluster.broker.services.replica_manager.hosted(TP).log
    await until(cluster.broker, lambda: log.log_end_offset == 4, "appended")
    assert not any(task.done() for task in (*produced, quick))
    await cluster.catch_up(2)
    await asyncio.wait(produced, return_when=asyncio.FIRST_COMPLETED)
    await cluster.parked(1)
    assert not produced[2].done()
    await cluster.catch_up(4)
    await asyncio.gather(*produced, quick)
    answers = [answer_of(task) for task in (*produced, quick)]
    assert [(each.error_code, each.base_offset) for each in answers] == [(0, offset) for offset in range(4)]


async def test_with_the_leader_alone_nothing_parks(cluster: Cluster) -> None:
    await cluster.lead(isr=(1,))
    for version in (3, 9, 9, 13):
        await cluster.produce(version)
    assert cluster.broker.services.replica_manager.parked.produce.watched == 0


@pytest.mark.parametrize("version", [9, 13])
async def test_a_timeout_is_answered_on_both_paths(cluster: Cluster, version: int) -> None:
    await cluster.lead()
    for _ in range(2):
        produced = cluster.produce(version, timeout_ms=1)
        await produced
        assert answer_of(produced).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert cluster.broker.services.replica_manager.hosted(TP).log.log_end_offset == 2


@pytest.mark.parametrize("version", [9, 10, 13])
async def test_a_deposed_leader_says_who_leads_on_both_paths(cluster: Cluster, version: int) -> None:
    await cluster.lead()
    produced = [cluster.produce(version, timeout_ms=DEADLINE_MS) for _ in range(2)]
    await cluster.parked(2)
    await cluster.lead(epoch=2, leader=2)
    late = cluster.produce(version)
    for task in await asyncio.gather(*produced, late):
        answer = task.responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        if version >= 10:
            assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 2)
            assert [(each.node_id, each.host, each.rack) for each in task.node_endpoints] == [
                (2, "broker-2", "r2")
            ]


async def test_a_producer_that_was_told_of_one_moved_leader_asks_for_the_others_itself(
    cluster: Cluster,
) -> None:
    """Partition 0 has moved to broker 2 and partition 1 to broker 3."""
    await cluster.lead()
    await cluster.lead(epoch=2, leader=2)
    services = cluster.broker.services
    shown = services.metadata.topic("t")
    assert shown is not None
    other = PartitionMetadata(
        partition=1, leader=BrokerId(3), leader_epoch=LeaderEpoch(7), replicas=ALL, isr=ALL
    )
    services.metadata.put_topic(msgspec.structs.replace(shown, partitions=(*shown.partitions, other)))

    async def sent_to(partition: int, *, by: BrokerClient = cluster.client) -> tuple[int, list[int]]:
        """The leader that the producer is told, and the brokers whose addresses come with it."""
        answer = await cluster.produce(12, partition=partition, by=by)
        told = answer.responses[0].partition_responses[0]
        assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        return told.current_leader.leader_id, [each.node_id for each in answer.node_endpoints]

    assert await sent_to(0) == (2, [2])
    assert await sent_to(1) == (-1, [])
    assert await sent_to(0) == (2, [2])  # the same one again: so it has not looked
    assert await sent_to(1, by=cluster.follower) == (3, [3])  # another connection
    services.clock = Later()
    assert await sent_to(1) == (3, [3])
    assert await sent_to(0) == (-1, [])


class Later(SystemClock):
    """When what clients were told is forgotten."""

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + LEADER_HINT_SUPPRESS_MS


async def test_with_flush_messages_the_answer_waits_for_the_replicas_and_the_disk(cluster: Cluster) -> None:
    await cluster.lead(configs={"flush.messages": "1"})
    produced = cluster.produce(9)
    await cluster.parked(1)
    await cluster.catch_up(1)
    await produced
    log = cluster.broker.services.replica_manager.hosted(TP).log
    assert answer_of(produced).error_code == ErrorCode.NONE and log.recovery_point == 1


async def test_a_producer_that_leaves_takes_its_parked_requests_along(cluster: Cluster) -> None:
    await cluster.lead()
    produced = [cluster.produce(9) for _ in range(3)]
    await cluster.parked(3)
    await cluster.client.close()
    await cluster.parked(0)
    await asyncio.gather(*produced, return_exceptions=True)


# Fetch


@pytest.mark.parametrize("version", versions(ApiKey.FETCH))
async def test_a_follower_reads_to_the_log_end_and_commits_what_it_has(
    cluster: Cluster, version: int
) -> None:
    await cluster.lead(isr=(1, 2))
    await cluster.produce(9, acks=1)
    first = await cluster.fetch(version, 0)
    assert first.error_code == ErrorCode.NONE and len(first.records) > 0 and first.high_watermark == 0
    assert len((await cluster.fetch(version, 0, by=-1)).records) == 0, "a consumer sees nothing of it"
    await cluster.fetch(version, 1)
    assert len((await cluster.fetch(version, 0, by=-1)).records) > 0


async def test_a_waiting_follower_is_answered_by_the_next_append(cluster: Cluster) -> None:
    await cluster.lead(isr=(1, 2))
    waiting = asyncio.create_task(cluster.fetch(17, 0, max_wait_ms=DEADLINE_MS))
    purgatory = cluster.broker.services.replica_manager.parked.fetch
    await until(cluster.broker, lambda: purgatory.delayed == 1, "the follower waits")
    produced = cluster.produce(13)
    assert len((await waiting).records) > 0
    await cluster.fetch(17, 1)
    await produced


@pytest.mark.parametrize("version", [12, 16, 18])
async def test_a_follower_at_the_wrong_broker_is_told_the_right_one(cluster: Cluster, version: int) -> None:
    await cluster.lead(epoch=1)
    await cluster.lead(epoch=2, leader=2)
    for epoch, error in ((-1, ErrorCode.NOT_LEADER_OR_FOLLOWER), (1, ErrorCode.FENCED_LEADER_EPOCH)):
        answer = await cluster.fetch(version, 0, by=3, current_leader_epoch=epoch)
        assert answer.error_code == error
        leader = (answer.current_leader.leader_id, answer.current_leader.leader_epoch)
        assert leader == ((2, 2) if version >= 16 else (-1, -1))
        endpoints = [(each.node_id, each.host, each.port, each.rack) for each in cluster.endpoints]
        assert endpoints == ([(2, "broker-2", 9092, "r2")] if version >= 16 else [])


async def test_a_follower_joins_the_isr_through_its_fetches(cluster: Cluster) -> None:
    await cluster.lead(isr=(1,))
    store = cluster.broker.services.replica_manager.isr_manager
    assert isinstance(store, IsrStore)
    await cluster.fetch(17, 0)
    assert store.change.isr == (1, 2)
    store.finish(IsrWritten(11, (ONE, TWO)))
    assert cluster.broker.services.replica_manager.hosted(TP).isr == (1, 2)


# ListOffsets


@pytest.mark.parametrize("version", versions(ApiKey.LIST_OFFSETS))
async def test_r15_the_end_of_a_new_leader_is_not_available_to_consumers(
    cluster: Cluster, version: int
) -> None:
    await cluster.lead(epoch=1)
    await cluster.produce(9, acks=1)
    await cluster.lead(epoch=2)

    async def latest(replica_id: int) -> Any:
        partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": LATEST}
        body = {
            "replica_id": replica_id,
            "isolation_level": 0,
            "timeout": 1000,
            "topics": [{"name": "t", "partitions": [partition]}],
        }
        answer = await cluster.client.request(
            ApiKey.LIST_OFFSETS, body, version=version, deadline_ms=DEADLINE_MS
        )
        return answer.topics[0].partitions[0]

    expected = ErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE
    assert (await latest(-1)).error_code == expected
    assert (await latest(2)).offset == 1, "a broker sees the log end"
    assert (await latest(-2)).offset == 1, "and so does a debugging tool"
    await cluster.catch_up(1)
    assert (await latest(-1)).offset == 1
    await cluster.lead(epoch=3, leader=2)
    assert (await latest(-1)).error_code == (await latest(2)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await latest(-2)).offset == 1


# DeleteRecords


async def test_records_are_deleted_when_all_live_replicas_have_deleted_them(cluster: Cluster) -> None:
    await cluster.lead()
    await asyncio.gather(*(cluster.produce(9, acks=1) for _ in range(4)))
    await cluster.catch_up(4)

    async def delete(offset: int, timeout_ms: int) -> Any:
        partition = {"partition_index": 0, "offset": offset}
        body = {"timeout": timeout_ms, "topics": [{"name": "t", "partitions": [partition]}]}
        answer = await cluster.client.request(ApiKey.DELETE_RECORDS, body, version=2, deadline_ms=DEADLINE_MS)
        only = answer.topics[0].partitions[0]
        return only.error_code, only.low_watermark

    assert await delete(9, 1) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert await delete(2, 1) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    waiting = asyncio.create_task(delete(3, DEADLINE_MS))
    purgatory = cluster.broker.services.replica_manager.parked.delete_records
    await until(cluster.broker, lambda: purgatory.delayed == 1, "the deletion waits")
    await cluster.fetch(12, 4, by=2, log_start_offset=3)
    assert not waiting.done()
    metadata = cluster.broker.services.metadata
    alive = tuple(each for node in (1, 2) if (each := metadata.live_broker(BrokerId(node))) is not None)
    metadata.update(UpdateMetadataRequest(ONE, 1, alive[0].epoch, (), alive))  # a dead one is not waited for
    await cluster.fetch(12, 4, by=2, log_start_offset=3)
    assert await waiting == (ErrorCode.NONE, 3)
    waiting = asyncio.create_task(delete(-1, DEADLINE_MS))
    await until(cluster.broker, lambda: purgatory.delayed == 1, "the deletion waits")
    await cluster.lead(epoch=2, leader=2)
    assert await waiting == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
