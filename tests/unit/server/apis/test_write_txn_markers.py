"""WriteTxnMarkers and TxnOffsetCommit: what ends a transaction, and the offsets that end with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey
from minikafka.server.coordinator.hosted_shard import ShardState
from minikafka.types import TopicPartition
from tests.unit.server.apis.transactional import (
    EPOCH,
    PRODUCER_ID,
    FakeCoordinator,
    batch,
    produce,
    write_marker,
)
from tests.unit.server.conftest import AdminBroker

ORDERS, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
async def broker(admin_broker: AdminBroker) -> AsyncIterator[AdminBroker]:
    await admin_broker.topics.create_topic("orders", partitions=2, replication_factor=1)
    await admin_broker.services.transactions.topic.create()
    await admin_broker.services.groups.topic.create()
    yield admin_broker


@pytest.fixture
def coordinator(broker: AdminBroker) -> FakeCoordinator:
    return FakeCoordinator(broker)


def of_group(broker: AdminBroker, group_id: str = "g") -> TopicPartition:
    topic = broker.services.groups.topic
    return TopicPartition(topic.name, topic.partition_for(group_id))


def offsets(broker: AdminBroker, at: TopicPartition = ORDERS) -> tuple[int, int, int]:
    """Last stable offset, high watermark, log end."""
    log = broker.replica_manager.partition(at).log
    return log.last_stable_offset, log.high_watermark, log.log_end_offset


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_marker_makes_what_was_open_stable(
    broker: AdminBroker, coordinator: FakeCoordinator, version: int, is_commit: bool
) -> None:
    await produce(broker, batch(0), batch(0))
    assert offsets(broker) == (0, 1, 1)
    answered = await write_marker(
        broker, ORDERS, OTHER, is_commit=is_commit, epoch=EPOCH + 1, version=version
    )
    assert answered == [0, 0]
    assert offsets(broker) == (2, 2, 2) and offsets(broker, OTHER) == (2, 2, 2)
    log = broker.replica_manager.partition(ORDERS).log
    assert log.segments.active.has_aborted_transactions is not is_commit


async def test_each_refusal_has_its_code_and_changes_nothing(
    broker: AdminBroker, coordinator: FakeCoordinator
) -> None:
    await produce(broker, batch(0))
    await write_marker(broker, ORDERS, epoch=EPOCH, coordinator_epoch=5)
    await produce(broker, batch(1))
    before = offsets(broker)
    for code, options in (
        (ErrorCode.INVALID_PRODUCER_EPOCH, {"epoch": EPOCH - 1, "coordinator_epoch": 5}),
        (ErrorCode.TRANSACTION_COORDINATOR_FENCED, {"epoch": EPOCH, "coordinator_epoch": 4}),
        (ErrorCode.INVALID_PRODUCER_EPOCH, {"epoch": EPOCH, "coordinator_epoch": 5, "version": 2}),
    ):
        options_: dict[str, Any] = dict(options)
        assert await write_marker(broker, ORDERS, **options_) == [code]
        assert offsets(broker) == before
    unknown = [TopicPartition("orders", 7), TopicPartition("nowhere", 0)]
    assert await write_marker(broker, *unknown) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2


async def test_one_partitions_failure_is_not_anothers(
    broker: AdminBroker, coordinator: FakeCoordinator
) -> None:
    await produce(broker, batch(0))
    unknown = TopicPartition("orders", 7)
    assert await write_marker(broker, unknown, ORDERS, of_group(broker)) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    assert offsets(broker) == (2, 2, 2)


async def test_no_markers_are_answered_with_none(broker: AdminBroker) -> None:
    assert (await broker.ask(ApiKey.WRITE_TXN_MARKERS, 1, {"markers": []})).markers == ()


async def test_the_first_version_of_the_protocol_repeats_the_epoch(
    broker: AdminBroker, coordinator: FakeCoordinator
) -> None:
    await produce(broker, batch(0))
    answered = await write_marker(broker, ORDERS, epoch=EPOCH, version=2, transaction_version=1)
    assert answered == [0] and offsets(broker) == (2, 2, 2)


# Offsets


async def commit(
    broker: AdminBroker,
    offset: int,
    *,
    version: int = 5,
    topic: str = "orders",
    group_id: str = "g",
    **fields: Any,
) -> int:
    partition = {
        "partition_index": 0,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": None,
    }
    body = {
        "transactional_id": "t1",
        "group_id": group_id,
        "producer_id": PRODUCER_ID,
        "producer_epoch": EPOCH,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": topic, "partitions": [partition]}],
        **fields,
    }
    if version >= 6:
        known = broker.metadata.topic(topic)
        body["topics"] = [{"topic_id": known.topic_id if known else uuid4(), "partitions": [partition]}]
    answer = await broker.ask(ApiKey.TXN_OFFSET_COMMIT, version, body)
    return int(answer.topics[0].partitions[0].error_code)


async def fetched(broker: AdminBroker, *, require_stable: bool = True) -> tuple[int, int]:
    """Code and offset."""
    body = {
        "groups": [
            {
                "group_id": "g",
                "member_id": None,
                "member_epoch": -1,
                "topics": [{"name": "orders", "partition_indexes": [0]}],
            }
        ],
        "require_stable": require_stable,
    }
    answer = await broker.ask(ApiKey.OFFSET_FETCH, 9, body)
    found = answer.groups[0].topics[0].partitions[0]
    return found.error_code, found.committed_offset


@pytest.mark.parametrize("version", range(SUPPORTED[ApiKey.TXN_OFFSET_COMMIT].max + 1))
async def test_offsets_of_a_transaction_are_seen_with_its_marker(
    broker: AdminBroker, coordinator: FakeCoordinator, version: int
) -> None:
    at = of_group(broker)
    assert await commit(broker, 42, version=version) == 0
    assert coordinator.asked == [("t1", version < 5, [(at.topic, (at.partition,))])]
    assert await commit(broker, 43, version=version) == 0
    assert len(coordinator.requests) == 1, "the transaction has begun there"
    assert await fetched(broker) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert await fetched(broker, require_stable=False) == (0, -1)
    assert await write_marker(broker, at) == [0]
    assert await fetched(broker) == (0, 43)
    assert offsets(broker, at) == (3, 3, 3)


async def test_offsets_of_an_aborted_transaction_are_never_seen(
    broker: AdminBroker, coordinator: FakeCoordinator
) -> None:
    await commit(broker, 42)
    await write_marker(broker, of_group(broker), is_commit=False)
    assert await fetched(broker) == (0, -1)


async def test_offsets_that_wait_for_their_marker_survive_a_restart(
    broker: AdminBroker, coordinator: FakeCoordinator
) -> None:
    await commit(broker, 42)
    await broker.stop()
    again = await broker.restarted()
    try:
        at = of_group(again)
        await again.topics.led(at.topic, at.partition + 1)
        await loaded(again)
        assert await fetched(again) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        assert await write_marker(again, at) == [0]
        assert await fetched(again) == (0, 42)
    finally:
        await again.stop()


async def loaded(broker: AdminBroker) -> None:
    """The groups of a broker that has just begun are there."""
    services = broker.services
    while any(each.state is ShardState.LOADING for each in services.groups.hosted_shards()):
        await services.log_io.run(lambda: None)


@pytest.mark.parametrize(
    ("version", "told", "code"),
    [
        (5, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (3, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (5, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (4, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (5, ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (1, ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (5, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
async def test_what_the_transactions_coordinator_says_is_told(
    broker: AdminBroker, coordinator: FakeCoordinator, version: int, told: ErrorCode, code: ErrorCode
) -> None:
    coordinator.code = told
    assert await commit(broker, 42, version=version) == code
    assert offsets(broker, of_group(broker)) == (0, 0, 0)


async def test_what_is_wrong_with_a_commit_is_told_without_asking(
    broker: AdminBroker, coordinator: FakeCoordinator
) -> None:
    assert await commit(broker, 42, topic="nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await commit(broker, 42, group_id="") == ErrorCode.INVALID_GROUP_ID
    assert coordinator.requests == []
    illegal = await commit(broker, 42, generation_id_or_member_epoch=3, member_id="m")
    assert illegal == ErrorCode.ILLEGAL_GENERATION
    of_no_group = await commit(broker, 42, version=6, generation_id_or_member_epoch=3, member_id="m")
    assert of_no_group == ErrorCode.GROUP_ID_NOT_FOUND
    assert await commit(broker, 42, version=6, topic="nowhere") == ErrorCode.UNKNOWN_TOPIC_ID
    await commit(broker, 42)
    stale = await commit(broker, 43, producer_epoch=EPOCH - 1)
    assert stale == ErrorCode.INVALID_PRODUCER_EPOCH


async def test_without_its_topic_no_group_has_a_coordinator(admin_broker: AdminBroker) -> None:
    await admin_broker.topics.create_topic("orders", partitions=1, replication_factor=1)
    assert await commit(admin_broker, 42) == ErrorCode.COORDINATOR_NOT_AVAILABLE
