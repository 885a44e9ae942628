"""A produce that begins a transaction in a partition waits for what its coordinator says (KIP-890)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from minikafka.errors import ErrorCode
from minikafka.log.unified_log import UnifiedLog
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.types import TopicPartition
from tests.unit.server.apis.transactional import EPOCH, FakeCoordinator, batch, produce, write_marker
from tests.unit.server.conftest import AdminBroker

NOT_ENOUGH_REPLICAS, INVALID_TXN_STATE = ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.INVALID_TXN_STATE
FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
DEADLINE_MS = 30_000


@pytest.fixture
async def broker(admin_broker: AdminBroker) -> AsyncIterator[AdminBroker]:
    """With the topic orders, of two partitions, and a topic for transactions that is not looked into."""
    await admin_broker.topics.create_topic("orders", partitions=2, replication_factor=1)
    await admin_broker.services.transactions.topic.create()
    yield admin_broker


@pytest.fixture
def coordinator(broker: AdminBroker) -> FakeCoordinator:
    return FakeCoordinator(broker)


@pytest.fixture
def patient(broker: AdminBroker, coordinator: FakeCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is told to ask again does so for longer than a slow machine takes for a test."""
    config = msgspec.structs.replace(
        broker.services.config, add_partitions_to_txn_retry_backoff_max_ms=DEADLINE_MS
    )
    monkeypatch.setattr(broker.services.transaction_verification, "_config", lambda: config)


def log_of(broker: AdminBroker, at: TopicPartition = FIRST) -> UnifiedLog:
    return broker.replica_manager.partition(at).log


async def test_only_the_first_batch_of_a_transaction_in_a_partition_is_asked_about(
    broker: AdminBroker, coordinator: FakeCoordinator
) -> None:
    assert await produce(broker, batch(0)) == [(0, 0)]
    assert coordinator.asked == [("t1", False, [("orders", (0,))])], "added, for a client that expects it"
    assert await produce(broker, batch(1)) == [(0, 1)]
    assert len(coordinator.requests) == 1
    assert await produce(broker, batch(2), batch(0)) == [(0, 2), (0, 0)]
    assert coordinator.asked[1:] == [("t1", False, [("orders", (1,))])]
    assert await write_marker(broker, FIRST, epoch=3) == [0]
    assert await produce(broker, batch(0, epoch=3)) == [(0, 4)]
    assert len(coordinator.requests) == 3


@pytest.mark.parametrize(("version", "verify_only"), [(3, True), (11, True), (12, False)])
async def test_older_clients_have_added_the_partition_themselves(
    broker: AdminBroker, coordinator: FakeCoordinator, version: int, verify_only: bool
) -> None:
    assert await produce(broker, batch(0), version=version) == [(0, 0)]
    assert coordinator.asked == [("t1", verify_only, [("orders", (0,))])]


@pytest.mark.parametrize(
    ("version", "told", "code"),
    [
        (12, ErrorCode.INVALID_TXN_STATE, INVALID_TXN_STATE),
        (12, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (11, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (10, ErrorCode.TRANSACTION_ABORTABLE, INVALID_TXN_STATE),
        (12, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (12, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (12, ErrorCode.NOT_COORDINATOR, NOT_ENOUGH_REPLICAS),
        (12, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, NOT_ENOUGH_REPLICAS),
        (12, ErrorCode.COORDINATOR_NOT_AVAILABLE, NOT_ENOUGH_REPLICAS),
        (12, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (11, ErrorCode.CONCURRENT_TRANSACTIONS, NOT_ENOUGH_REPLICAS),
    ],
)
async def test_what_the_coordinator_says_becomes_what_a_producer_expects_of_a_write(
    broker: AdminBroker, coordinator: FakeCoordinator, version: int, told: ErrorCode, code: ErrorCode
) -> None:
    coordinator.code = told
    assert await produce(broker, batch(0), version=version) == [(code, -1)]
    assert log_of(broker).log_end_offset == 0
    coordinator.code = ErrorCode.NONE
    assert await produce(broker, batch(0), version=version) == [(0, 0)]


async def test_a_coordinator_that_cannot_be_reached_is_no_reason_to_give_up(
    broker: AdminBroker, coordinator: FakeCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    for times, sequence in ((1, 0), (2, 1)):
        coordinator.failure = BrokerUnavailable("the connection broke")
        for _ in range(3):
            assert await produce(broker, batch(0, epoch=sequence)) == [(NOT_ENOUGH_REPLICAS, -1)]
        assert caplog.text.count("no answer from a transaction coordinator") == times, (
            "once, however many try again"
        )
        coordinator.failure = None
        assert await produce(broker, batch(0, epoch=sequence)) == [(0, sequence)]


async def test_how_long_coordinators_take_and_how_often_they_refuse_is_counted(
    broker: AdminBroker, coordinator: FakeCoordinator
) -> None:
    verification = broker.services.transaction_verification
    coordinator.code = ErrorCode.INVALID_TXN_STATE
    await produce(broker, batch(0))
    assert (verification.times.count, verification.failures) == (1, 1)
    coordinator.code = ErrorCode.NONE
    for sequence in range(2):
        await produce(broker, batch(sequence))
    assert (verification.times.count, verification.failures) == (2, 1), "only the first batch is asked about"


async def test_a_bug_in_asking_is_answered_and_does_not_keep_the_next_one_waiting(
    broker: AdminBroker, coordinator: FakeCoordinator
) -> None:
    coordinator.failure = RuntimeError("a bug")
    assert await produce(broker, batch(0)) == [(ErrorCode.UNKNOWN_SERVER_ERROR, -1)]
    coordinator.failure = None
    assert await produce(broker, batch(0)) == [(0, 0)]


@pytest.mark.usefixtures("patient")
async def test_a_transaction_that_is_still_being_ended_is_waited_for_by_those_who_bump_epochs(
    broker: AdminBroker, coordinator: FakeCoordinator
) -> None:
    coordinator.codes = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS]
    assert await produce(broker, batch(0)) == [(0, 0)]
    assert len(coordinator.requests) == 3


async def test_batches_of_a_partition_keep_their_order_while_they_wait(
    broker: AdminBroker, coordinator: FakeCoordinator
) -> None:
    coordinator.gate.clear()
    waiting = [asyncio.ensure_future(produce(broker, batch(sequence))) for sequence in range(3)]
    await coordinator.heard(1)
    assert not any(each.done() for each in waiting) and log_of(broker).log_end_offset == 0
    coordinator.gate.set()
    assert await asyncio.gather(*waiting) == [[(0, 0)], [(0, 1)], [(0, 2)]]
    assert len(coordinator.requests) == 1, "one question for all of them"


async def test_what_need_not_wait_is_appended_meanwhile(
    broker: AdminBroker, coordinator: FakeCoordinator
) -> None:
    """Or the next request would come to the first partition before this one."""
    await produce(broker, batch(0))
    coordinator.gate.clear()
    waiting = asyncio.ensure_future(produce(broker, batch(1), batch(0)))
    await coordinator.heard(2)
    assert (log_of(broker).log_end_offset, log_of(broker, SECOND).log_end_offset) == (2, 0)
    assert await produce(broker, batch(2)) == [(0, 2)]
    coordinator.gate.set()
    assert await waiting == [(0, 1), (0, 0)]


async def test_questions_that_come_up_while_one_is_out_go_together(
    broker: AdminBroker, coordinator: FakeCoordinator
) -> None:
    coordinator.gate.clear()
    first = asyncio.ensure_future(produce(broker, batch(0)))
    await coordinator.heard(1)
    second = asyncio.ensure_future(produce(broker, b"", batch(0)))
    other = asyncio.ensure_future(produce(broker, batch(0, producer_id=8), version=11, transactional_id="t2"))
    await asyncio.sleep(0)
    coordinator.gate.set()
    assert await asyncio.gather(first, second, other) == [[(0, 0)], [(0, 0)], [(0, 1)]]
    assert [len(request) for request in coordinator.requests] == [1, 2]
    assert coordinator.asked[1:] == [("t1", False, [("orders", (1,))]), ("t2", True, [("orders", (0,))])]


@pytest.mark.parametrize(
    ("version", "marker_epoch", "code"),
    [(11, EPOCH, INVALID_TXN_STATE), (12, EPOCH + 1, ErrorCode.INVALID_PRODUCER_EPOCH)],
)
async def test_a_marker_that_comes_while_the_coordinator_is_asked_ends_what_would_have_begun(
    broker: AdminBroker, coordinator: FakeCoordinator, version: int, marker_epoch: int, code: ErrorCode
) -> None:
    coordinator.gate.clear()
    waiting = asyncio.ensure_future(produce(broker, batch(0), version=version))
    await coordinator.heard(1)
    assert await write_marker(broker, FIRST, is_commit=False, epoch=marker_epoch) == [0]
    coordinator.gate.set()
    assert await waiting == [(code, -1)]
    assert log_of(broker).producers.first_undecided_offset is None, "nothing hangs"


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("told", [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE])
async def test_the_marker_of_the_transaction_before_lets_the_next_one_begin(
    broker: AdminBroker, coordinator: FakeCoordinator, told: ErrorCode
) -> None:
    """From protocol 2 on a marker has the epoch of the transaction that follows. It takes away the guard with
    which the coordinator is being asked, whether the coordinator then consents or wants to be asked again."""
    await produce(broker, batch(0, epoch=EPOCH - 1))
    coordinator.gate.clear()
    coordinator.codes = [told]
    first = asyncio.ensure_future(produce(broker, batch(0)))
    await coordinator.heard(2)
    assert await write_marker(broker, FIRST) == [0]
    second = asyncio.ensure_future(produce(broker, batch(1)))
    await asyncio.sleep(0)
    coordinator.gate.set()
    assert await asyncio.gather(first, second) == [[(0, 2)], [(0, 3)]], "in the order in which they came"
    assert len(coordinator.requests) == 3


async def test_a_newer_epoch_that_appears_during_the_retries_ends_them(
    broker: AdminBroker, coordinator: FakeCoordinator
) -> None:
    coordinator.gate.clear()
    coordinator.code = ErrorCode.CONCURRENT_TRANSACTIONS
    waiting = asyncio.ensure_future(produce(broker, batch(0)))
    await coordinator.heard(1)
    assert await write_marker(broker, FIRST, epoch=EPOCH + 1) == [0]
    coordinator.gate.set()
    assert await waiting == [(ErrorCode.INVALID_PRODUCER_EPOCH, -1)]
    assert len(coordinator.requests) == 1


async def test_a_transaction_found_open_during_the_retries_needs_no_consent(
    broker: AdminBroker, coordinator: FakeCoordinator
) -> None:
    """A batch under another transactional id has begun it meanwhile."""
    coordinator.codes = [ErrorCode.CONCURRENT_TRANSACTIONS]
    coordinator.gate.clear()
    waiting = asyncio.ensure_future(produce(broker, batch(1)))
    await coordinator.heard(1)
    other = asyncio.ensure_future(produce(broker, batch(0), transactional_id="t2"))
    await asyncio.sleep(0)
    coordinator.gate.set()
    assert await asyncio.gather(waiting, other) == [[(0, 1)], [(0, 0)]]
    assert len(coordinator.requests) == 2


async def test_a_stale_epoch_is_not_asked_about(broker: AdminBroker, coordinator: FakeCoordinator) -> None:
    await produce(broker, batch(0, epoch=3))
    assert await produce(broker, batch(0, epoch=2)) == [(ErrorCode.INVALID_PRODUCER_EPOCH, -1)]
    assert len(coordinator.requests) == 1


async def test_a_newer_epoch_asks_for_itself(broker: AdminBroker, coordinator: FakeCoordinator) -> None:
    coordinator.codes = [ErrorCode.PRODUCER_FENCED]
    coordinator.gate.clear()
    old = asyncio.ensure_future(produce(broker, batch(0, epoch=2)))
    await coordinator.heard(1)
    new = asyncio.ensure_future(produce(broker, batch(0, epoch=3)))
    await asyncio.sleep(0)
    coordinator.gate.set()
    assert await asyncio.gather(old, new) == [[(ErrorCode.INVALID_PRODUCER_EPOCH, -1)], [(0, 0)]]
    assert [each["producer_epoch"] for request in coordinator.requests for each in request] == [2, 3]


async def test_without_a_transactional_id_there_is_no_coordinator_to_ask(
    broker: AdminBroker, coordinator: FakeCoordinator
) -> None:
    assert await produce(broker, batch(0), transactional_id=None) == [(INVALID_TXN_STATE, -1)]
    assert coordinator.requests == []


async def test_batches_of_two_producers_are_no_transaction(
    broker: AdminBroker, coordinator: FakeCoordinator
) -> None:
    mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await produce(broker, batch(0), batch(0, producer_id=8)) == [(mapping, -1)] * 2
    unknown = batch(-1, producer_id=-1, epoch=-1)
    assert await produce(broker, unknown) == [(INVALID_TXN_STATE, -1)]
    assert coordinator.requests == [] and log_of(broker).log_end_offset == 0


@pytest.mark.parametrize("version", [11, 12])
async def test_where_the_verification_is_off_only_who_wants_the_partition_added_asks(
    broker: AdminBroker, coordinator: FakeCoordinator, version: int
) -> None:
    await broker.stop()
    off = await broker.restarted(**{"transaction.partition.verification.enable": "false"})
    try:
        coordinator = FakeCoordinator(off)
        await off.topics.led("orders", 2)
        assert await produce(off, batch(0), version=version) == [(0, 0)]
        assert len(coordinator.requests) == (1 if version == 12 else 0)
    finally:
        await off.stop()


async def test_the_partition_of_the_transactional_id_has_no_leader(admin_broker: AdminBroker) -> None:
    await admin_broker.topics.create_topic("orders", partitions=1, replication_factor=1)
    coordinator = FakeCoordinator(admin_broker)
    assert await produce(admin_broker, batch(0)) == [(NOT_ENOUGH_REPLICAS, -1)]
    assert coordinator.requests == []
