"""Dead letter queues of a whole broker (KIP-1191): what is in them, and what becomes of a group without."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from minikafka.config.resource import ConfigResource, ConfigResourceType
from minikafka.errors import ErrorCode
from minikafka.log.segment.fetch_data import FetchIsolation
from minikafka.metrics import coordinator_names as names
from minikafka.protocol.records.batch import iterate_headers
from minikafka.protocol.records.compression import CompressionType
from minikafka.protocol.records.records import Record, build_batch, iterate_records
from minikafka.server.cluster.features import DEFAULT_LEVELS, SHARE_VERSION
from minikafka.server.http.coordinator_metrics import share_groups
from minikafka.types import Offset, TopicPartition
from tests.unit.server.running import eventually, topics_of
from tests.unit.server.share.test_share_fetch import ACCEPT, AT, REJECT, RELEASE, Shared, shared

QUEUE = "dlq.t"
OF_GROUP = "errors.deadletterqueue.topic.name"
WITH_RECORDS = "errors.deadletterqueue.copy.record.enable"
AUTO_CREATE = {"errors_deadletterqueue_auto_create_topics_enable": True}


async def use_queue(
    found: Shared, name: str = QUEUE, *, with_records: bool = False, delivery_count_limit: int = 5
) -> None:
    await found.broker.services.configs.alter(
        ConfigResource(ConfigResourceType.GROUP, "g"),
        {
            OF_GROUP: name,
            WITH_RECORDS: str(with_records).lower(),
            "share.delivery.count.limit": str(delivery_count_limit),
        },
    )


def queued(found: Shared, name: str = QUEUE) -> list[Record]:
    """What is in the queue's only partition."""
    log = found.broker.services.replica_manager.partition(TopicPartition(name, 0)).log
    records = log.read(
        Offset(0), max_bytes=1 << 24, min_one_message=True, isolation=FetchIsolation.LOG_END
    ).records
    view = memoryview(records)
    return [
        record
        for position, header in iterate_headers(records)
        for record in iterate_records(view[position : position + header.size])
    ]


def of(records: list[Record], header: str) -> list[str]:
    return [(dict(record.headers)[f"__dlq.errors.{header}"] or b"").decode() for record in records]


def counted(found: Shared, series: object) -> dict[tuple[str, ...], float]:
    samples = [sample for sample in share_groups(found.broker.services) if sample is not None]
    return {sample.labels: sample.value for sample in samples if sample.series is series}


async def moved_to(found: Shared, start_offset: int) -> None:
    async def is_moved() -> bool:
        return await found.start_offset() == start_offset

    await eventually(is_moved, f"the group's start offset is {start_offset}")


async def test_what_is_rejected_is_in_the_queue_with_where_it_comes_from(tmp_path: Path) -> None:
    async with shared(tmp_path, **AUTO_CREATE) as broker:
        await use_queue(broker)
        member = await broker.member("a")
        broker.produce(10)
        await member.gets()
        assert await member.acknowledge((0, 1, REJECT), (2, 8, ACCEPT), (9, 9, REJECT)) is ErrorCode.NONE
        await moved_to(broker, 10)
        records = queued(broker)
        assert [(record.key, record.value) for record in records] == [(None, None)] * 3
        assert records[0].headers == (
            ("__dlq.errors.topic", b"t"),
            ("__dlq.errors.partition", b"0"),
            ("__dlq.errors.offset", b"0"),
            ("__dlq.errors.group", b"g"),
            ("__dlq.errors.delivery.count", b"1"),
            ("__dlq.errors.message", b"Offset rejected by client."),
        )
        assert of(records, "offset") == ["0", "1", "9"]
        described = broker.broker.services.configs.topic_config(QUEUE)
        assert described.errors_deadletterqueue_group_enable
        assert counted(broker, names.DEAD_LETTERS) == {("g",): 3}
        assert counted(broker, names.DEAD_LETTER_REQUESTS)[("g",)] >= 1
        assert counted(broker, names.DEAD_LETTER_FAILURES) == {}


async def test_what_is_delivered_too_often_is_in_the_queue(tmp_path: Path) -> None:
    async with shared(tmp_path, **AUTO_CREATE) as broker:
        await use_queue(broker, delivery_count_limit=2)
        member = await broker.member("a")
        broker.produce(2)
        for count in (1, 2):
            assert await member.gets() == [(0, 1, count)]
            assert await member.acknowledge((0, 1, RELEASE)) is ErrorCode.NONE
        await moved_to(broker, 2)
        records = queued(broker)
        assert of(records, "delivery.count") == ["2", "2"]
        assert set(of(records, "message")) == {"Offset delivery count exceeded the threshold."}


async def test_keys_and_values_are_copied_where_the_group_wants_it(tmp_path: Path) -> None:
    async with shared(tmp_path, **AUTO_CREATE) as broker:
        await use_queue(broker, with_records=True)
        member = await broker.member("a")
        replicas = broker.broker.services.replica_manager
        for first, compression in ((0, CompressionType.NONE), (3, CompressionType.GZIP)):
            records = [
                Record(at, 1_000, b"key" if at else None, f"{first + at}".encode(), (("h", b"x"),))
                for at in range(3)
            ]
            replicas.append(AT, build_batch(records, compression=compression), required_acks=1)
        await member.fetch()
        assert await member.acknowledge((0, 0, ACCEPT), (1, 5, REJECT)) is ErrorCode.NONE
        await moved_to(broker, 6)
        assert [(record.key, record.value) for record in queued(broker)] == [
            (b"key", b"1"),
            (b"key", b"2"),
            (None, b"3"),
            (b"key", b"4"),
            (b"key", b"5"),
        ]


async def test_what_does_not_fit_into_one_batch_of_the_queue_goes_into_several(tmp_path: Path) -> None:
    async with shared(tmp_path) as broker:
        await topics_of(broker.broker).create_topic(
            QUEUE,
            partitions=1,
            configs={"errors.deadletterqueue.group.enable": "true", "max.message.bytes": "2000"},
        )
        await use_queue(broker, with_records=True)
        member = await broker.member("a")
        sizes = [1_000, 5_000, 1_000]
        records = [Record(at, 1_000, None, b"v" * size, ()) for at, size in enumerate(sizes)]
        broker.broker.services.replica_manager.append(AT, build_batch(records), required_acks=1)
        await member.gets()
        assert await member.acknowledge((0, 2, REJECT)) is ErrorCode.NONE
        await moved_to(broker, 3)
        found = queued(broker)
        assert of(found, "offset") == ["0", "1", "2"]
        assert [None if record.value is None else len(record.value) for record in found][1] is None


@pytest.mark.parametrize(
    ("name", "creates", "reason"),
    [
        (QUEUE, False, "auto create is disabled"),
        ("other.t", True, "does not comply with the DLQ topic prefix"),
        ("t", True, "DLQ is not enabled on configured DLQ topic"),
    ],
)
async def test_a_queue_that_must_not_be_used_holds_nothing_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, creates: bool, reason: str
) -> None:
    properties = AUTO_CREATE if creates else {}
    async with shared(tmp_path, **properties) as broker:
        await use_queue(broker, name)
        member = await broker.member("a")
        broker.produce(2)
        await member.gets()
        with caplog.at_level(logging.ERROR):
            assert await member.acknowledge((0, 1, REJECT)) is ErrorCode.NONE
            await moved_to(broker, 2)
        assert reason in caplog.text and "share group: g, topic: " + name in caplog.text


async def test_a_cluster_at_level_1_of_share_version_has_no_queues(tmp_path: Path) -> None:
    async with shared(tmp_path, **AUTO_CREATE) as broker:
        features = broker.broker.services.features
        features.replace({**DEFAULT_LEVELS, SHARE_VERSION: 1}, epoch=features.epoch + 1)
        await use_queue(broker)
        member = await broker.member("a")
        broker.produce(2)
        await member.gets()
        assert await member.acknowledge((0, 1, REJECT)) is ErrorCode.NONE
        assert await member.gets(max_wait_ms=0) == []
        assert broker.broker.services.metadata.topic(QUEUE) is None


async def test_what_a_queue_refuses_is_counted_and_archived(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with shared(tmp_path) as broker:
        await topics_of(broker.broker).create_topic(
            QUEUE,
            partitions=1,
            configs={"errors.deadletterqueue.group.enable": "true", "cleanup.policy": "compact"},
        )
        await use_queue(broker)
        member = await broker.member("a")
        broker.produce(2)
        await member.gets()
        with caplog.at_level(logging.ERROR):
            assert await member.acknowledge((0, 1, REJECT)) is ErrorCode.NONE
            await moved_to(broker, 2)
        assert "2 dead letters of g in t-0 are archived, and not in its queue" in caplog.text
        assert queued(broker) == []
        assert counted(broker, names.DEAD_LETTER_FAILURES) == {("g",): 1}
