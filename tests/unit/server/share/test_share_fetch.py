"""ShareFetch and ShareAcknowledge of a whole broker: what members get, and what is safe."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from minikafka.config.resource import ConfigResource, ConfigResourceType
from minikafka.coordination.paths import uuid_to_text
from minikafka.coordinator.share.messages import InitializeShareState, ReadShareState
from minikafka.errors import ErrorCode, KafkaError
from minikafka.log.producers.append import BY_COORDINATOR
from minikafka.network.broker_client import BrokerClient
from minikafka.protocol.records.records import (
    ControlRecordType,
    EndTransactionMarker,
    Record,
    build_batch,
    iterate_records,
    marker_batch,
)
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.server.broker import Broker
from minikafka.server.http import coordinator_metrics, metrics
from minikafka.server.http.coordinator_metrics import share_groups, share_partitions_left_out
from minikafka.server.share.share_partitions import SharePartitionFigures
from minikafka.server.tracing.tracer import SessionOptions
from minikafka.types import TopicPartition
from tests.unit.server.running import eventually, running, topics_of, until

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
AT = TopicPartition("t", 0)
DEADLINE_MS = 20_000
PROPERTIES = {
    "share_coordinator_state_topic_num_partitions": 2,
    "group_share_min_record_lock_duration_ms": 1_000,
}


class Member:
    """A member of group "g" with a connection of its own, which counts the epochs of its session."""

    def __init__(self, client: BrokerClient, member_id: str, topic_id: UUID) -> None:
        self.client = client
        self.member_id = member_id
        self.topic_id = topic_id
        self.epoch = 0

    async def fetch(
        self,
        *acknowledged: tuple[int, int, int],
        epoch: int | None = None,
        max_wait_ms: int = DEADLINE_MS,
        min_bytes: int = 1,
        max_records: int = 500,
        mode: int = 0,
    ) -> Any:
        body = {
            "group_id": "g",
            "member_id": self.member_id,
            "share_session_epoch": self.epoch if epoch is None else epoch,
            "max_wait": max_wait_ms,
            "min_bytes": min_bytes,
            "max_bytes": 1 << 20,
            "max_records": max_records,
            "batch_size": 500,
            "share_acquire_mode": mode,
            "is_renew_ack": False,
            "topics": self._topics(acknowledged),
            "forgotten_topics_data": [],
        }
        self.epoch += 1
        return await self.client.request(ApiKey.SHARE_FETCH, body, deadline_ms=DEADLINE_MS)

    async def gets(self, *acknowledged: tuple[int, int, int], **arguments: Any) -> list[tuple[int, int, int]]:
        """First and last offset and delivery count of what it is given."""
        answer = await self.fetch(*acknowledged, **arguments)
        assert answer.error_code is ErrorCode.NONE, answer
        found = []
        for topic in answer.responses:
            for partition in topic.partitions:
                assert partition.error_code is ErrorCode.NONE, partition
                assert partition.acknowledge_error_code is ErrorCode.NONE, partition
                if not partition.acquired_records:
                    continue
                offsets = {record.offset for record in iterate_records(partition.records)}
                for each in partition.acquired_records:
                    assert {each.first_offset, each.last_offset} <= offsets
                    found.append(tuple(each))
        return found

    async def acknowledge(self, *acknowledged: tuple[int, int, int], epoch: int | None = None) -> ErrorCode:
        body = {
            "group_id": "g",
            "member_id": self.member_id,
            "share_session_epoch": self.epoch if epoch is None else epoch,
            "is_renew_ack": any(kind == RENEW for _, _, kind in acknowledged),
            "topics": self._topics(acknowledged),
        }
        self.epoch += 1
        answer = await self.client.request(ApiKey.SHARE_ACKNOWLEDGE, body, deadline_ms=DEADLINE_MS)
        if answer.error_code:
            return ErrorCode(answer.error_code)
        codes = [partition.error_code for topic in answer.responses for partition in topic.partitions]
        return ErrorCode(codes[0]) if codes else ErrorCode.NONE

    def _topics(self, acknowledged: Sequence[tuple[int, int, int]]) -> list[dict[str, Any]]:
        batches = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": [kind]}
            for first, last, kind in acknowledged
        ]
        partition = {"partition_index": 0, "acknowledgement_batches": batches}
        return [{"topic_id": self.topic_id, "partitions": [partition]}]


class Shared:
    """A broker with a topic of one partition that group "g" shares from its start."""

    def __init__(self, broker: Broker, topic_id: UUID) -> None:
        self.broker = broker
        self.topic_id = topic_id
        self._clients: list[BrokerClient] = []

    def produce(self, count: int, *, producer_id: int = -1, timestamp_ms: int = 1_000) -> None:
        records = [Record(index, timestamp_ms, None, b"value", ()) for index in range(count)]
        batch = build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=-1 if producer_id < 0 else 0,
            transactional=producer_id >= 0,
        )
        self.broker.services.replica_manager.append(AT, batch, required_acks=1)

    async def member(self, member_id: str) -> Member:
        client = await BrokerClient.connect(
            "127.0.0.1", self.broker.port, client_id=member_id, deadline_ms=DEADLINE_MS
        )
        self._clients.append(client)
        return Member(client, member_id, self.topic_id)

    async def set_group(self, **overrides: str) -> None:
        await self.broker.services.configs.alter(
            ConfigResource(ConfigResourceType.GROUP, "g"),
            {"share." + name: text for name, text in overrides.items()},
        )

    async def start_offset(self) -> int:
        (summary,) = await self.broker.services.share_persister.read_summary(
            "g", [ReadShareState(self.topic_id, 0, -1)]
        )
        assert summary.error is None
        return summary.start_offset

    async def is_begun(self) -> bool:
        return await self.start_offset() >= 0

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


@asynccontextmanager
async def shared(
    directory: Path, *, is_new: bool = True, start_offset: int = 0, **properties: object
) -> AsyncIterator[Shared]:
    async with running(directory, **PROPERTIES | properties) as broker:
        topics = topics_of(broker)
        if is_new:
            await topics.create_topic("t", partitions=1)
        else:
            await topics.led("t")
        topic = broker.services.metadata.topic("t")
        assert topic is not None
        if is_new:
            (begun,) = await broker.services.share_persister.initialize_state(
                "g", [InitializeShareState(topic.topic_id, 0, 0, start_offset)]
            )
            assert begun.error is None
        found = Shared(broker, topic.topic_id)
        try:
            yield found
        finally:
            await found.close()


async def test_each_record_goes_to_one_member_and_what_is_released_to_another(tmp_path: Path) -> None:
    async with shared(tmp_path) as broker:
        a, b = await broker.member("a"), await broker.member("b")
        broker.produce(10)
        assert await a.gets() == [(0, 9, 1)]
        assert await b.gets(max_wait_ms=0) == []
        assert await a.acknowledge((0, 4, ACCEPT), (5, 9, RELEASE)) is ErrorCode.NONE
        assert await b.gets() == [(5, 9, 2)]
        assert await a.acknowledge((5, 5, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE
        assert await b.gets((5, 7, ACCEPT), (8, 9, REJECT), max_wait_ms=0) == []
        broker.produce(1)
        assert await a.gets() == [(10, 10, 1)]


async def test_a_record_that_is_followed_is_seen_by_the_member_that_gets_it(tmp_path: Path) -> None:
    async with shared(tmp_path) as broker:
        tracer = broker.broker.services.replica_manager.tracer
        tracer.start("s", SessionOptions(one_in=1))
        record = build_batch([Record(0, 1_000, None, b"value", ())])
        trace = tracer.begin(AT, broker.topic_id, record, first_offset=0, received_ns=0)
        member = await broker.member("a")
        broker.produce(1)
        assert await member.gets() == [(0, 0, 1)]
        assert trace is not None
        assert [step.name for step in trace.steps] == [
            "received", "appended", "high_watermark_moved", "consumed",
        ]  # fmt: skip
        assert trace.steps[-1].detail.items() >= {"client": "a", "share_group": "g"}.items()


async def test_what_was_acknowledged_never_comes_again_and_all_else_does(tmp_path: Path) -> None:
    async with shared(tmp_path) as broker:
        member = await broker.member("a")
        broker.produce(10)
        await member.gets()
        assert await member.acknowledge((0, 2, ACCEPT), (5, 5, ACCEPT), (7, 7, RELEASE)) is ErrorCode.NONE
    async with shared(tmp_path, is_new=False) as broker:
        member = await broker.member("b")
        assert await member.gets() == [(3, 4, 1), (6, 6, 1), (7, 7, 2), (8, 9, 1)]
        assert await broker.start_offset() in (0, 3)


async def test_a_fetch_waits_for_records_and_one_of_many_gets_them(tmp_path: Path) -> None:
    async with shared(tmp_path) as broker:
        members = [await broker.member(name) for name in "abc"]
        fetches = [asyncio.ensure_future(member.gets()) for member in members]
        parked = broker.broker.services.replica_manager.parked.share_fetch
        await until(broker.broker, lambda: parked.delayed == len(members), "the fetches wait")
        broker.produce(3)
        done, waiting = await asyncio.wait(fetches, return_when=asyncio.FIRST_COMPLETED)
        assert [fetch.result() for fetch in done] == [[(0, 2, 1)]]
        assert len(waiting) == 2
        broker.produce(1)
        (third,), waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        broker.produce(1)
        (fourth,) = waiting
        assert third.result() == [(3, 3, 1)]
        assert await fourth == [(4, 4, 1)]


@pytest.mark.parametrize("ends", ["by a last request", "by a last acknowledgement", "with its connection"])
async def test_when_a_session_ends_what_it_held_goes_to_another(tmp_path: Path, ends: str) -> None:
    async with shared(tmp_path) as broker:
        a, b = await broker.member("a"), await broker.member("b")
        broker.produce(4)
        assert await a.gets() == [(0, 3, 1)]
        assert await b.gets(max_wait_ms=0) == []
        waiting = asyncio.ensure_future(b.gets())
        if ends == "by a last request":
            answer = await a.fetch((0, 1, ACCEPT), epoch=-1)
            assert answer.error_code is ErrorCode.NONE
        elif ends == "by a last acknowledgement":
            assert await a.acknowledge((0, 1, ACCEPT), epoch=-1) is ErrorCode.NONE
        else:
            assert await a.acknowledge((0, 1, ACCEPT)) is ErrorCode.NONE
            await a.client.close()
        assert await waiting == [(2, 3, 1)]


async def test_requests_that_do_not_fit_the_session_are_refused(tmp_path: Path) -> None:
    async with shared(tmp_path) as broker:
        member = await broker.member("a")
        broker.produce(4)
        refused: list[tuple[Callable[[], Awaitable[Any]], ErrorCode]] = [
            (lambda: member.fetch(epoch=7), ErrorCode.SHARE_SESSION_NOT_FOUND),
            (lambda: member.fetch((0, 0, ACCEPT), epoch=0), ErrorCode.INVALID_REQUEST),
            (lambda: member.fetch(epoch=-1), ErrorCode.INVALID_REQUEST),
            (lambda: member.fetch(epoch=0, mode=5), ErrorCode.INVALID_REQUEST),
        ]
        for request, code in refused:
            assert (await request()).error_code is code
        await member.gets(epoch=0)
        assert (await member.fetch(epoch=9)).error_code is ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert await member.acknowledge(epoch=0) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert await member.acknowledge((2, 1, ACCEPT), epoch=1) is ErrorCode.INVALID_REQUEST
        assert await member.acknowledge((0, 1, 9), epoch=2) is ErrorCode.INVALID_REQUEST
        assert await member.acknowledge((0, 1, ACCEPT), (1, 2, ACCEPT), epoch=3) is ErrorCode.INVALID_REQUEST
        assert await member.acknowledge((0, 3, ACCEPT), epoch=4) is ErrorCode.NONE


async def test_the_record_limit_is_strict_when_a_member_wants_it_so(tmp_path: Path) -> None:
    async with shared(tmp_path) as broker:
        member = await broker.member("a")
        broker.produce(10)
        assert await member.gets(max_records=4, mode=1) == [(0, 3, 1)]
        assert await member.gets(max_records=4, mode=1) == [(4, 7, 1)]
        assert await member.gets(max_records=4) == [(8, 9, 1)]


async def test_without_members_the_state_is_read_again(tmp_path: Path) -> None:
    async with shared(tmp_path) as broker:
        member = await broker.member("a")
        broker.produce(4)
        await member.gets()
        assert await member.acknowledge((0, 3, ACCEPT), epoch=-1) is ErrorCode.NONE
        services = broker.broker.services
        assert len(services.share_partitions) == 0
        (begun,) = await services.share_persister.initialize_state(
            "g", [InitializeShareState(broker.topic_id, 0, 1, 2)]
        )
        assert begun.error is None
        member.epoch = 0
        assert await member.gets() == [(2, 3, 1)]


async def test_markers_and_aborted_records_are_not_given_to_a_group_that_reads_what_is_committed(
    tmp_path: Path,
) -> None:
    async with shared(tmp_path, transaction_partition_verification_enable=False) as broker:
        await broker.set_group(**{"isolation.level": "read_committed"})
        member = await broker.member("a")
        broker.produce(2)
        broker.produce(3, producer_id=5)
        assert await member.gets() == [(0, 1, 1)]
        abort = EndTransactionMarker(ControlRecordType.ABORT, 0)
        batch = marker_batch(abort, producer_id=5, producer_epoch=0, timestamp_ms=1_000)
        broker.broker.services.replica_manager.append(AT, batch, required_acks=1, terms=BY_COORDINATOR)
        broker.produce(1)
        assert await member.gets((0, 1, ACCEPT)) == [(6, 6, 1)]
        assert await member.acknowledge((6, 6, ACCEPT)) is ErrorCode.NONE


async def test_a_lock_that_is_over_gives_its_records_to_another(tmp_path: Path) -> None:
    async with shared(tmp_path) as broker:
        await broker.set_group(**{"record.lock.duration.ms": "1000"})
        a, b = await broker.member("a"), await broker.member("b")
        broker.produce(4)
        assert await a.gets() == [(0, 3, 1)]
        waiting = asyncio.ensure_future(b.gets())
        assert await a.acknowledge((0, 3, RENEW)) is ErrorCode.NONE
        assert await waiting == [(0, 3, 2)]
        assert await a.acknowledge((2, 3, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE
        assert await b.acknowledge((0, 3, ACCEPT)) is ErrorCode.NONE


def summary_of(broker: Shared, name: str) -> dict[str, float]:
    """Its count and its median; empty while it is not shown."""
    found = {}
    for sample in share_groups(broker.broker.services):
        if sample is not None and sample.series.name.endswith(name):
            found[sample.suffix or sample.labels[-1]] = sample.value
    return {key: found[key] for key in ("_count", "0.50") if key in found}


def value_of(broker: Shared, name: str) -> list[float]:
    return [
        sample.value
        for sample in share_groups(broker.broker.services)
        if sample is not None and sample.series.sample.endswith(name)
    ]


async def test_a_fetch_that_asks_for_no_record_is_answered_at_once(tmp_path: Path) -> None:
    async with shared(tmp_path) as broker:
        member = await broker.member("a")
        broker.produce(4)
        # What there is would be found again and again until max wait, and nobody else would have a turn.
        assert await member.gets(max_records=0, max_wait_ms=500) == []
        assert value_of(broker, "delayedsharefetchmetrics_expires_total") == [0]
        assert await member.gets() == [(0, 3, 1)]
        counts = broker.broker.services.replica_manager.stats.of("t")
        assert counts.share_fetch_requests == 1


async def test_requests_are_counted_by_topic_and_those_that_fail(tmp_path: Path) -> None:
    async with shared(tmp_path) as broker:
        stats = broker.broker.services.replica_manager.stats

        def counts() -> tuple[int, ...]:
            assert stats.total().share_fetch_requests == stats.of("t").share_fetch_requests
            of_topic = stats.of("t")
            return (
                of_topic.share_fetch_requests,
                of_topic.failed_share_fetch_requests,
                of_topic.share_acknowledgement_requests,
                of_topic.failed_share_acknowledgement_requests,
            )

        a = await broker.member("a")
        broker.produce(4)
        assert await a.gets() == [(0, 3, 1)]
        assert counts() == (1, 0, 0, 0)
        assert await a.acknowledge((0, 0, ACCEPT)) is ErrorCode.NONE
        assert counts() == (1, 0, 1, 0)
        assert await a.acknowledge((0, 0, ACCEPT), (1, 1, ACCEPT)) is ErrorCode.NONE  # again: passed over
        assert await a.gets((2, 2, ACCEPT), max_wait_ms=0) == []  # both at once
        assert counts() == (2, 0, 3, 0)
        assert await a.acknowledge((2, 2, ACCEPT), (9, 9, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE
        assert counts() == (2, 0, 4, 1)
        parked = broker.broker.services.replica_manager.parked.share_fetch
        end = asyncio.ensure_future(a.fetch())
        await until(broker.broker, lambda: parked.delayed == 1, "the fetch waits")
        (hosted,) = broker.broker.services.share_partitions.hosted()
        hosted.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "it moved"))
        answer = await end
        assert answer.responses[0].partitions[0].error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert counts() == (3, 1, 4, 1)
        await topics_of(broker.broker).create_topic("not-shared", partitions=1)
        shown = [
            (sample.series.sample, *sample.labels, sample.value)
            for sample in metrics._traffic(broker.broker.services)
            if "share" in sample.series.name
        ]
        assert shown == [
            (f"kafka_server_brokertopicmetrics_{name}_total", *topic, count)
            for name, count in (
                ("totalsharefetchrequests", 3),
                ("failedsharefetchrequests", 1),
                ("totalshareacknowledgementrequests", 4),
                ("failedshareacknowledgementrequests", 1),
            )
            for topic in ((), ("t",))
        ]


async def test_fetches_whose_max_wait_is_over_are_counted(tmp_path: Path) -> None:
    async with shared(tmp_path) as broker:
        a = await broker.member("a")
        expired = "delayedsharefetchmetrics_expires_total"
        assert value_of(broker, expired) == [0]
        assert await a.gets(max_wait_ms=0) == []
        assert await a.gets(max_wait_ms=20) == []
        assert value_of(broker, expired) == [2]
        broker.produce(2)
        assert await a.gets() == [(0, 1, 1)]
        assert value_of(broker, expired) == [2]
        broker.produce(1)
        assert await a.gets(max_wait_ms=20, min_bytes=1 << 16) == [(2, 2, 1)]  # too little, but it is over
        assert value_of(broker, expired) == [3]


async def test_metrics_tell_how_long_fetches_kept_others_away_and_how_large_batches_are(
    tmp_path: Path,
) -> None:
    async with shared(tmp_path) as broker:
        a = await broker.member("a")
        assert await a.gets(max_wait_ms=0) == []
        await until(
            broker.broker, lambda: summary_of(broker, "inflightbatchmessagecount") != {}, "it is hosted"
        )
        assert summary_of(broker, "fetchlocktimems") == {"_count": 0, "0.50": 0}
        broker.produce(4)
        assert await a.gets() == [(0, 3, 1)]
        assert summary_of(broker, "inflightbatchmessagecount") == {"_count": 1, "0.50": 4}
        assert summary_of(broker, "fetchlocktimems")["_count"] == 1
        assert summary_of(broker, "fetchlockratio") == {"_count": 1, "0.50": 100}  # none was before it
        assert await a.acknowledge((0, 3, RELEASE)) is ErrorCode.NONE
        assert await a.gets() == [(0, 3, 2)]  # the same batch once more
        assert summary_of(broker, "inflightbatchmessagecount")["_count"] == 1
        assert summary_of(broker, "fetchlocktimems")["_count"] == 2
    async with shared(tmp_path, is_new=False) as broker:
        a = await broker.member("a")
        assert await a.gets() == [(0, 3, 2)]
        assert summary_of(broker, "inflightbatchmessagecount") == {"_count": 1, "0.50": 4}  # as it was loaded


async def test_share_partitions_beyond_a_limit_have_no_series_and_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shared(tmp_path) as broker:
        services = broker.broker.services
        a = await broker.member("a")
        assert await a.gets(max_wait_ms=0) == []
        assert len(value_of(broker, "inflightmessagecount")) == 1
        assert [count for _, count in share_partitions_left_out(services)] == [0, 0]
        monkeypatch.setattr(coordinator_metrics, "SHARE_SUMMARIES_MAX", 0)
        assert len(value_of(broker, "inflightmessagecount")) == 1
        assert summary_of(broker, "fetchlocktimems") == {}
        assert [count for _, count in share_partitions_left_out(services)] == [0, 1]
        monkeypatch.setattr(coordinator_metrics, "SHARE_PARTITIONS_MAX", 0)
        assert value_of(broker, "inflightmessagecount") == []
        assert [count for _, count in share_partitions_left_out(services)] == [1, 1]


def test_the_share_of_its_time_that_a_fetch_holds_a_share_partition() -> None:
    def percent_after_one(began_ms: int, ended_ms: int) -> float:
        """Of a fetch behind one that ended at 1,010 and had all of its time."""
        figures = SharePartitionFigures()
        figures.fetch_began(1_000)
        figures.fetch_ended(1_010)
        assert figures.fetch_lock_percents.quantiles([0.0]) == [100]
        figures.fetch_began(began_ms)
        figures.fetch_ended(ended_ms)
        return figures.fetch_lock_percents.quantiles([0.0])[0]

    assert percent_after_one(1_040, 1_050) == 25
    assert percent_after_one(1_030, 1_030) == 5  # as if it had taken a millisecond
    assert percent_after_one(1_010, 1_010) == 100


async def test_metrics_tell_of_each_share_partition(tmp_path: Path) -> None:
    async with shared(tmp_path) as broker:
        await broker.set_group(**{"record.lock.duration.ms": "1000"})

        def numbers() -> dict[str, float]:
            found = {}
            for sample in share_groups(broker.broker.services):
                if sample is not None and sample.labels == ("g", "t", "0") and not sample.suffix:
                    found[sample.series.name.rsplit("_", 1)[1]] = sample.value
            return found

        a = await broker.member("a")
        broker.produce(4)
        assert await a.gets() == [(0, 3, 1)]
        assert numbers() == {"acquisitionlocktimeout": 0, "inflightmessagecount": 4, "inflightbatchcount": 1}
        assert await a.acknowledge((1, 1, ACCEPT)) is ErrorCode.NONE
        assert numbers() == {"acquisitionlocktimeout": 0, "inflightmessagecount": 4, "inflightbatchcount": 3}
        assert await a.gets() == [(0, 0, 2), (2, 3, 2)]  # when the locks are over
        assert await a.acknowledge((0, 0, ACCEPT)) is ErrorCode.NONE
        assert numbers() == {"acquisitionlocktimeout": 3, "inflightmessagecount": 2, "inflightbatchcount": 1}
        assert await a.acknowledge(epoch=-1) is ErrorCode.NONE
        assert numbers() == {}


async def test_metrics_tell_how_the_fetches_of_a_group_go_while_it_has_members(tmp_path: Path) -> None:
    async with shared(tmp_path) as broker:

        def numbers(name: str) -> dict[str, float]:
            return summary_of(broker, name)

        ratio, acquire_time = "requesttopicpartitionsfetchratio", "topicpartitionsacquiretimems"
        assert numbers("partitionloadtimems")["_count"] == 0
        a, b = await broker.member("a"), await broker.member("b")
        assert await a.gets(max_wait_ms=100) == []
        await until(broker.broker, lambda: numbers("partitionloadtimems")["_count"] == 1, "it is loaded")
        assert numbers(ratio) == {"_count": 1, "0.50": 0}
        assert numbers(acquire_time)["0.50"] >= 100
        broker.produce(1)
        assert await b.gets() == [(0, 0, 1)]
        assert numbers(ratio) == {"_count": 2, "0.50": 50}  # none of one partition, then all
        assert numbers(acquire_time)["_count"] == 2
        assert await b.acknowledge((0, 0, ACCEPT), epoch=-1) is ErrorCode.NONE
        assert numbers(ratio)["_count"] == 2
        assert await a.acknowledge(epoch=-1) is ErrorCode.NONE
        assert numbers(ratio) == numbers(acquire_time) == {}
        assert numbers("partitionloadtimems")["_count"] == 1


async def test_a_group_that_begins_at_the_end_keeps_that_when_its_leader_restarts(tmp_path: Path) -> None:
    async with shared(tmp_path, start_offset=-1) as broker:
        member = await broker.member("a")
        broker.produce(3)
        assert await member.gets(max_wait_ms=0) == []
        await eventually(lambda: broker.is_begun(), "it is decided where the group begins")
        broker.produce(2)
        assert await member.gets() == [(3, 4, 1)]
    async with shared(tmp_path, is_new=False) as broker:
        member = await broker.member("b")
        assert await member.gets() == [(3, 4, 1)]


async def test_a_group_begins_with_the_first_record_that_is_as_young_as_its_duration(tmp_path: Path) -> None:
    async with shared(tmp_path, start_offset=-1) as broker:
        await broker.set_group(**{"auto.offset.reset": "by_duration:PT1H"})
        now_ms = broker.broker.services.clock.now_ms()
        broker.produce(3)
        member = await broker.member("a")
        assert await member.gets(max_wait_ms=100) == []
        broker.produce(2)
        assert await member.gets(max_wait_ms=100) == []
        assert await broker.start_offset() == -1
        broker.produce(1, timestamp_ms=now_ms)
        assert await member.gets() == [(5, 5, 1)]
        assert await broker.start_offset() == 5
        broker.produce(1)  # what comes after it may be as old as it likes
        assert await member.gets() == [(6, 6, 1)]


async def test_a_group_without_a_record_to_begin_with_waits_no_longer_than_its_members_and_its_duration(
    tmp_path: Path,
) -> None:
    async with shared(tmp_path, start_offset=-1) as broker:
        await broker.set_group(**{"auto.offset.reset": "by_duration:PT1H"})
        broker.produce(3)
        member, manager = await broker.member("a"), broker.broker.services.share_partitions
        assert await member.gets(max_wait_ms=0) == []
        await until(broker.broker, lambda: len(manager) == 1, "it is being loaded")
        assert await member.acknowledge(epoch=-1) is ErrorCode.NONE
        await until(broker.broker, lambda: len(manager) == 0, "no fetch waits for a record")
        member.epoch = 0
        assert await member.gets(max_wait_ms=0) == []
        await broker.set_group(**{"auto.offset.reset": "earliest"})
        assert await member.gets() == [(0, 2, 1)]


async def test_the_coordinator_of_a_share_partition_is_found(tmp_path: Path) -> None:
    async with shared(tmp_path) as broker:
        member = await broker.member("a")
        keys = [f"g:{uuid_to_text(broker.topic_id)}:0", "g:0", ":AAAAAAAAAAAAAAAAAAAAAA:0"]
        answer = await member.client.request(
            ApiKey.FIND_COORDINATOR, {"coordinator_keys": keys, "key_type": 2}, deadline_ms=DEADLINE_MS
        )
        found, *refused = answer.coordinators
        assert (found.error_code, found.node_id) == (ErrorCode.NONE, broker.broker.services.node_id)
        assert [each.error_code for each in refused] == [ErrorCode.INVALID_REQUEST] * 2


async def test_states_that_later_snapshots_have_made_redundant_are_deleted(tmp_path: Path) -> None:
    properties = {
        "share_coordinator_state_topic_prune_interval_ms": 10,
        "share_coordinator_snapshot_update_records_per_snapshot": 0,
        "share_coordinator_state_topic_num_partitions": 1,
    }
    async with shared(tmp_path, **properties) as broker:
        member = await broker.member("a")
        broker.produce(3)
        assert await member.gets() == [(0, 2, 1)]
        assert await member.acknowledge((0, 0, ACCEPT)) is ErrorCode.NONE
        assert await member.acknowledge((1, 1, ACCEPT)) is ErrorCode.NONE
        replicas = broker.broker.services.replica_manager
        log = replicas.partition(TopicPartition("__share_group_state", 0)).log
        await until(broker.broker, lambda: log.log_start_offset == log.log_end_offset - 1, "it is pruned")
        assert value_of(broker, "last_pruned_offset") == [log.log_start_offset]
        (longest,) = value_of(broker, "write_latency_max")
        assert longest >= value_of(broker, "write_latency_avg")[0] >= 0
    async with shared(tmp_path, is_new=False) as broker:
        member = await broker.member("b")
        assert await member.gets() == [(2, 2, 1)]
