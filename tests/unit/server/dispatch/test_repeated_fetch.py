"""A fetch that is served by the fast path has the answer of the slow one, and is counted as there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from minikafka.clock import ManualClock
from minikafka.config.client_quotas import DEFAULT, QuotaEntity, QuotaType
from minikafka.files import OsFile
from minikafka.log.producers.append import BY_COORDINATOR
from minikafka.log.unified_log import UnifiedLog
from minikafka.network.connection import Connection, PendingResponse
from minikafka.protocol.records.records import (
    ControlRecordType,
    EndTransactionMarker,
    Record,
    build_batch,
    marker_batch,
)
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey
from minikafka.protocol.wire.codec import RequestHeader, encode_request
from minikafka.replication.partition_replicas import select_in_rack
from minikafka.security.acl import ANONYMOUS
from minikafka.server.apis import HANDLERS
from minikafka.server.broker import Broker
from minikafka.server.dispatch import dispatcher
from minikafka.server.dispatch.dispatcher import Dispatcher
from minikafka.server.dispatch.repeated_fetch import RepeatedFetch
from minikafka.server.runtime.work_scheduler import WorkScheduler
from minikafka.types import Offset, TopicPartition
from tests.unit.server.running import running, topics_of

VERSIONS = range(13, SUPPORTED[ApiKey.FETCH].max + 1)
TOPICS = {"orders": 3, "bills": 2}
UNKNOWN = UUID(int=5)
NOW_MS = 1_700_000_000_000
DEFAULT_CLIENT = QuotaEntity(None, DEFAULT)


class StubConnection:
    listener_name = "PLAINTEXT"
    principal = ANONYMOUS
    received_ns = 0
    answer_bytes_max = 1 << 30

    def __init__(self) -> None:
        self.memory: Any = None
        self.is_follower = False

    def has_room(self, *, for_records: bool) -> bool:
        return True


class Fetcher:
    """Sends the same requests on both paths of one broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.services = broker.services
        broker.services.scheduler = WorkScheduler(ManualClock())  # a busy machine cuts no request in pieces
        self.dispatch = Dispatcher(broker.services, HANDLERS)
        self.ids = {
            name: self.services.replica_manager.partition(TopicPartition(name, 0)).topic_id for name in TOPICS
        }
        self.ids["unknown"] = UNKNOWN

    def frame(self, places: Any, *, version: int = 16, **fields: Any) -> bytes:
        """``places``: topic, and of each partition number, offset, and what else is not as usual."""
        usual = {"current_leader_epoch": -1, "last_fetched_epoch": -1, "log_start_offset": -1}
        usual |= {"partition_max_bytes": 1 << 20}
        body = {
            "replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0,
            "session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": "",
        }  # fmt: skip
        topics = [
            {
                "topic_id": self.ids[name],
                "partitions": [
                    usual | {"partition": index, "fetch_offset": offset} | other
                    for index, offset, other in partitions
                ],
            }
            for name, partitions in places
        ]
        frame = encode_request(
            api_key=1,
            api_version=version,
            correlation_id=9,
            client_id="test",
            body=body | {"topics": topics} | fields,
        )
        return frame[4:]

    def remembering(self, **fields: Any) -> StubConnection:
        """A connection on which such a request was just served, by the slow path."""
        connection = StubConnection()
        self.dispatch(cast(Connection, connection), self.frame([("orders", [(0, 0, {})])], **fields))
        return connection

    def remembering_nothing(self) -> bool:
        connection = StubConnection()
        self.dispatch(cast(Connection, connection), self.frame(ALL))
        return connection.memory is None

    def by_slow_path(self, frame: bytes) -> bytes:
        result = self.dispatch(cast(Connection, StubConnection()), frame)
        if isinstance(result, PendingResponse):
            assert not result.is_waiting
            result = result.buffers
        assert result is not None
        return b"".join(result)

    def by_fast_path(self, connection: StubConnection, frame: bytes) -> bytes | None:
        """As the dispatcher asks it."""
        assert isinstance(connection.memory, RepeatedFetch)
        if connection.memory.epoch != self.services.fast_paths.epoch:
            return None
        result = connection.memory.serve(memoryview(frame))
        if isinstance(result, PendingResponse):  # its time is taken
            result = result.buffers
        return None if result is None else b"".join(result)

    def counts(self) -> list[int]:
        """All that a fetch is counted in."""
        total = self.services.replica_manager.stats.total()
        metrics = self.services.request_metrics
        client = self.services.client_quotas.client("ANONYMOUS", "test")
        found = [total.bytes_out, total.fetch_requests, total.failed_fetch_requests, client.fetched_bytes]
        return [*found, metrics.fetch_consumer.count, metrics.of(ApiKey.FETCH).count]


def batch(count: int, size: int, **producer: Any) -> bytes:
    records = [Record(index, NOW_MS, None, b"x" * size, ()) for index in range(count)]
    return build_batch(records, transactional=bool(producer), **producer)


def fill(broker: Broker) -> None:
    """orders: 8 records in small batches; 3 in large ones; none. bills: a transaction that was aborted, and
    one that is open; 5 records, of which two are deleted."""
    replicas = broker.services.replica_manager

    def append(topic: str, index: int, records: bytes, **terms: Any) -> None:
        replicas.append(TopicPartition(topic, index), records, required_acks=1, **terms)

    for _ in range(4):
        append("orders", 0, batch(2, 100))
    for _ in range(3):
        append("orders", 1, batch(1, 5000))
    append("bills", 0, batch(1, 100, producer_id=7, producer_epoch=0, base_sequence=0))
    marker = EndTransactionMarker(ControlRecordType.ABORT, 0)
    ended = marker_batch(marker, producer_id=7, producer_epoch=0, timestamp_ms=NOW_MS)
    append("bills", 0, ended, terms=BY_COORDINATOR)
    append("bills", 0, batch(1, 100))
    append("bills", 0, batch(2, 100, producer_id=8, producer_epoch=0, base_sequence=0))
    for _ in range(5):
        append("bills", 1, batch(1, 100))
    replicas.partition(TopicPartition("bills", 1)).delete_records(Offset(2))


@pytest.fixture
async def fetcher(tmp_path: Path) -> AsyncIterator[Fetcher]:
    properties = {
        "log_message_timestamp_before_max_ms": 2**62,
        "transaction_partition_verification_enable": False,
    }
    async with running(tmp_path / "data", **properties) as broker:
        for name, partitions in TOPICS.items():
            await topics_of(broker).create_topic(name, partitions=partitions)
        fill(broker)
        yield Fetcher(broker)


OFFSETS = {
    ("orders", 0): range(9), ("orders", 1): range(4), ("orders", 2): range(1),
    ("bills", 0): range(6), ("bills", 1): range(2, 6),
}  # fmt: skip
"""Where each partition may be read."""
PARTITION_LIMITS = st.fixed_dictionaries({"partition_max_bytes": st.sampled_from([0, 150, 6000, 1 << 20])})
USUAL = st.permutations(list(OFFSETS)).flatmap(
    lambda order: st.tuples(
        *(
            st.tuples(
                st.just(topic),
                st.tuples(st.just(index), st.sampled_from(OFFSETS[topic, index]), PARTITION_LIMITS).map(
                    lambda wanted: [wanted]
                ),
            )
            for topic, index in order
        )
    )
)
"""All partitions, topics in an order that goes round."""
ODD = st.tuples(
    st.sampled_from(["orders", "bills", "unknown"]),
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(-1, 9),
            st.fixed_dictionaries(
                {},
                optional={
                    "current_leader_epoch": st.integers(0, 1),
                    "last_fetched_epoch": st.integers(0, 1),
                    "log_start_offset": st.integers(0, 3),
                },
            ),
        ),
        min_size=1,
        max_size=2,
    ),
)


def joined(places: Any) -> list[Any]:
    """Neighbours of one topic as one topic, as clients write them."""
    topics: list[Any] = []
    for name, wanted in places:
        if topics and topics[-1][0] == name:
            topics[-1][1].extend(wanted)
        else:
            topics.append((name, list(wanted)))
    return topics


PLACES = USUAL.map(joined) | USUAL.map(joined) | st.tuples(USUAL, ODD).map(lambda both: [*both[0], both[1]])
LIMITS = st.fixed_dictionaries(
    {
        "version": st.sampled_from(VERSIONS),
        "isolation_level": st.integers(0, 1),
        "max_bytes": st.sampled_from([0, 1, 200, 400, 6000, 1 << 20]),
        "min_bytes": st.sampled_from([0, 1, 1, 300]),
        "max_wait": st.just(0),
        "rack_id": st.sampled_from(["", "r1"]),
    }
)


async def test_what_the_fast_path_answers_the_slow_path_answers_too(fetcher: Fetcher) -> None:
    taken = 0

    @settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(places=PLACES, limits=LIMITS)
    def both(places: Any, limits: dict[str, Any]) -> None:
        nonlocal taken
        connection = fetcher.remembering(**limits)
        frame = fetcher.frame(places, **limits)
        before = fetcher.counts()
        short = fetcher.by_fast_path(connection, frame)
        between = fetcher.counts()
        if short is None:
            assert between == before, "nothing was changed"
            return
        taken += 1
        assert fetcher.by_slow_path(frame) == short
        after = fetcher.counts()
        counted = [one - other for one, other in zip(between, before, strict=True)]
        assert counted == [one - other for one, other in zip(after, between, strict=True)]

    both()
    assert taken > 100, "most requests that nothing is wrong with"


ALL = [("orders", [(0, 0, {}), (1, 0, {}), (2, 0, {})]), ("bills", [(0, 0, {}), (1, 2, {})])]


async def test_the_second_fetch_of_a_consumer_takes_the_fast_path(
    fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = StubConnection()
    usual = fetcher.by_slow_path(fetcher.frame(ALL))
    read: list[int] = []
    decode = dispatcher.decode_request

    def noted(header: RequestHeader, frame: Any) -> Any:
        read.append(header.correlation_id)
        return decode(header, frame)

    monkeypatch.setattr(dispatcher, "decode_request", noted)
    for _ in range(3):
        result = fetcher.dispatch(cast(Connection, connection), fetcher.frame(ALL))
        if isinstance(result, PendingResponse):  # its time is taken
            result = result.buffers
        assert result is not None and b"".join(result) == usual
    assert len(read) == 1, "only the first"


async def test_in_a_full_answer_most_partitions_only_tell_how_they_stand(
    fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = fetcher.remembering(max_bytes=200)
    read_of: list[TopicPartition] = []
    read = UnifiedLog.read

    def noted(log: UnifiedLog, *arguments: Any, **fields: Any) -> Any:
        read_of.append(log.topic_partition)
        return read(log, *arguments, **fields)

    monkeypatch.setattr(UnifiedLog, "read", noted)
    assert fetcher.by_fast_path(connection, fetcher.frame(ALL, max_bytes=200)) is not None
    assert read_of == [TopicPartition("orders", 0)]


async def test_a_fetch_that_has_to_wait_takes_the_slow_path(
    fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = fetcher.remembering()
    at_end = [("orders", [(0, 8, {}), (1, 3, {})])]
    assert fetcher.by_fast_path(connection, fetcher.frame(at_end)) is None, "for records"
    monkeypatch.setattr(OsFile, "read_cached", lambda *_: None)
    assert fetcher.by_fast_path(connection, fetcher.frame(ALL)) is None, "for the disk"


@pytest.mark.parametrize(
    ("offset", "fields"),
    [
        (9, {}),
        (-1, {}),
        (8, {"current_leader_epoch": 7}),
        (0, {"current_leader_epoch": 7}),
        (0, {"last_fetched_epoch": 7}),
    ],
)
async def test_what_is_wrong_with_a_partition_the_slow_path_says(
    fetcher: Fetcher, offset: int, fields: dict[str, int]
) -> None:
    connection = fetcher.remembering()
    places = [("bills", [(1, 2, {})]), ("orders", [(0, offset, fields)])]
    assert fetcher.by_fast_path(connection, fetcher.frame(places)) is None
    places[1] = ("orders", [(0, 8, {})])
    assert fetcher.by_fast_path(connection, fetcher.frame(places)) is not None


async def test_a_consumer_that_may_be_sent_elsewhere_takes_the_slow_path(
    fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher.services.replica_manager, "replica_selector", select_in_rack)
    assert fetcher.remembering_nothing()


async def test_of_a_follower_nothing_is_expected(fetcher: Fetcher) -> None:
    for fields in ({"version": 14, "replica_id": 1}, {"version": 14, "replica_id": -2}):
        assert fetcher.remembering(**fields).memory is None


async def test_a_client_with_a_quota_takes_the_slow_path(fetcher: Fetcher) -> None:
    connection = fetcher.remembering()
    assert fetcher.by_fast_path(connection, fetcher.frame(ALL)) is not None
    quotas = fetcher.services.client_quotas
    quotas.update(DEFAULT_CLIENT, {QuotaType.FETCH: 1e9})
    assert fetcher.by_fast_path(connection, fetcher.frame(ALL)) is None
    assert fetcher.remembering_nothing(), "nor is it expected to take the short one"
    quotas.update(DEFAULT_CLIENT, {})
    assert fetcher.by_fast_path(connection, fetcher.frame(ALL)) is None, "what it remembered was dropped"
    connection = fetcher.remembering()
    assert fetcher.by_fast_path(connection, fetcher.frame(ALL)) is not None
    quotas.update(QuotaEntity(None, "another"), {QuotaType.REQUEST: 50.0})
    connection = fetcher.remembering()
    assert fetcher.by_fast_path(connection, fetcher.frame(ALL)) is not None, "its own time is not counted"


async def test_what_was_deleted_and_created_again_is_another_topic(fetcher: Fetcher) -> None:
    connection = fetcher.remembering()
    frame = fetcher.frame(ALL)
    topics = topics_of(fetcher.broker)
    await topics.delete_topic("bills")
    replicas = fetcher.services.replica_manager
    by_id = [each for siblings in replicas.by_topic_id.values() for each in siblings.values()]
    assert set(by_id) == set(replicas.partitions.values())
    assert fetcher.ids["orders"].bytes in replicas.by_topic_id
    assert fetcher.ids["bills"].bytes not in replicas.by_topic_id
    assert fetcher.by_fast_path(connection, frame) is None
    await topics.create_topic("bills", partitions=2)
    assert fetcher.by_fast_path(connection, frame) is None
    only_orders = fetcher.frame(ALL[:1])
    connection = fetcher.remembering()
    assert fetcher.by_fast_path(connection, only_orders) == fetcher.by_slow_path(only_orders)
