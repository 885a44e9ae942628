"""Which producer id and epoch a transactional id continues with (KIP-98, KIP-360)."""

from __future__ import annotations

import pytest

from minikafka.coordinator.transaction.messages import InitProducerIdResult
from minikafka.coordinator.transaction.metadata import EPOCH_MAX
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.transaction_record_codec import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionRecord,
)
from tests.unit.coordinator.transaction.driver import ID, NOT_IN_TIME, P0, P1, TOO_FEW, Driver


def at_epoch(epoch: int, *, status: int = 0, **settings: int) -> Driver:
    """An id that has come so far, as read from the log."""
    driver = Driver(**settings)
    value = TransactionLogValue(
        producer_id=7,
        producer_epoch=epoch,
        transaction_timeout_ms=60_000,
        transaction_status=status,
        transaction_partitions=frozenset({P0} if status == 1 else ()),
        transaction_last_update_timestamp_ms=driver.now_ms,
        transaction_start_timestamp_ms=driver.now_ms if status else -1,
    )
    driver.log.append(TransactionRecord(TransactionLogKey(ID), value))
    driver.reload()
    return driver


def test_a_new_id_gets_a_new_producer_id_and_epoch_0() -> None:
    driver = Driver()
    asked = driver.init()
    assert asked.answer == InitProducerIdResult(1000, 0)
    assert (driver.last.producer_id, driver.last.producer_epoch, driver.last.transaction_status) == (
        1000,
        0,
        0,
    )
    assert driver.init(name="other").answer == InitProducerIdResult(1001, 0)


def test_who_comes_next_gets_the_next_epoch_and_fences_the_one_before() -> None:
    driver = Driver()
    driver.init()
    assert driver.init(timeout_ms=5_000).answer == InitProducerIdResult(1000, 1)
    assert driver.last.transaction_timeout_ms == 5_000
    before = list(driver.log)
    assert driver.add(1000, 0, P0).answer is ErrorCode.PRODUCER_FENCED
    assert driver.end(1000, 0).answer is ErrorCode.PRODUCER_FENCED
    assert driver.end(1000, 0, is_v2=False).answer is ErrorCode.PRODUCER_FENCED
    assert driver.log == before


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"name": ""}, ErrorCode.INVALID_REQUEST),
        ({"name": "ü" * 16_384}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 5}, ErrorCode.INVALID_REQUEST),
        ({"timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": -1}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_a_bad_request_changes_nothing(fields: dict[str, int], code: ErrorCode) -> None:
    driver = Driver()
    assert driver.init(**fields).answer is code  # type: ignore[arg-type]
    assert (driver.appends, driver.allocations) == ([], [])
    with pytest.raises(KafkaError, match="TRANSACTIONAL_ID_NOT_FOUND"):
        driver.state()


def test_the_longest_timeout_is_allowed() -> None:
    assert Driver().init(timeout_ms=900_000).answer == InitProducerIdResult(1000, 0)


# A transaction is going on


@pytest.mark.parametrize("transaction_version", [0, 2])
def test_an_ongoing_transaction_is_aborted_first_and_the_producer_asks_again(
    transaction_version: int,
) -> None:
    """The epoch rises twice: with the one between no producer can write."""
    driver = Driver(transaction_version=transaction_version)
    driver.hold_markers = True
    driver.begun(P0, P1)
    assert driver.init().answer is ErrorCode.CONCURRENT_TRANSACTIONS
    (markers,) = driver.sent
    assert (markers.producer_id, markers.producer_epoch, markers.is_commit) == (1000, 1, False)
    assert markers.partitions == (P0, P1)
    assert driver.init().answer is ErrorCode.CONCURRENT_TRANSACTIONS, "the markers are being written"
    driver.answer_markers()
    assert driver.states == [0, 1, 3, 5]
    assert driver.init().answer == InitProducerIdResult(1000, 2)


def test_who_is_fenced_cannot_write_any_more() -> None:
    driver = Driver()
    producer_id, epoch = driver.begun()
    driver.init()
    assert driver.add(producer_id, epoch, P1).answer is ErrorCode.PRODUCER_FENCED
    assert driver.end(producer_id, epoch).answer is ErrorCode.INVALID_TXN_STATE, "it was aborted"


def test_only_one_transition_at_a_time() -> None:
    """While an append is under way, others are to wait, and whatever they ask changes nothing."""
    driver = Driver()
    producer_id, epoch = driver.begun()
    driver.hold = True
    adding = driver.add(producer_id, epoch, P1)
    appends = len(driver.appends)
    for asked in (
        driver.init(),
        driver.add(producer_id, epoch, P0),
        driver.end(producer_id, epoch),
        driver.end(producer_id, epoch, is_v2=False),
    ):
        assert asked.answer is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.abort_timed_out()
    assert len(driver.appends) == appends
    assert adding.waits
    driver.commit()
    assert adding.answer.errors == (ErrorCode.NONE,)


# The log fails


def test_r20_retried_while_the_log_has_too_few_replicas_the_epoch_rises_once() -> None:
    """KAFKA-9666. Refused before it is written, and given up after it was."""
    driver = Driver()
    driver.init()
    driver.refuse = TOO_FEW
    for _ in range(3):
        assert driver.init().answer is ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.refuse, driver.hold = None, True
    for _ in range(3):
        asked = driver.init()
        assert asked.waits
        driver.fail(NOT_IN_TIME)
        assert asked.answer is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert driver.last.producer_epoch == 1
    driver.hold = False
    assert driver.init().answer == InitProducerIdResult(1000, 1)


def test_a_fence_that_fails_is_made_again_with_the_same_epoch() -> None:
    driver = Driver()
    driver.begun()
    driver.hold = True
    for _ in range(3):
        asked = driver.init()
        driver.fail(NOT_IN_TIME)
        assert asked.answer is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (driver.state(), driver.last.producer_epoch) == ("Ongoing", 1)
    assert driver.sent == []
    driver.hold = False
    assert driver.init().answer is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.init().answer == InitProducerIdResult(1000, 2)


def test_a_new_id_whose_append_fails_keeps_its_producer_id() -> None:
    driver = Driver()
    driver.refuse = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert driver.init().answer is ErrorCode.NOT_COORDINATOR
    driver.refuse = KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
    assert driver.init().answer is ErrorCode.UNKNOWN_SERVER_ERROR
    driver.refuse = None
    assert driver.init().answer == InitProducerIdResult(1000, 0)


# Producer ids


def test_there_may_be_no_producer_id() -> None:
    driver = Driver()
    driver.hold_ids = True
    asked = driver.init()
    assert driver.shard.waiting() == [asked]
    driver.give_ids(KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    assert asked.answer is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert driver.shard.waiting() == []
    assert driver.appends == []


def test_two_who_wait_for_a_producer_id_do_not_get_two() -> None:
    driver = Driver()
    driver.hold_ids = driver.hold = True
    first, second = driver.init(), driver.init()
    driver.give_ids()
    assert second.answer is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.commit()
    assert first.answer == InitProducerIdResult(1000, 0)
    driver.hold = False
    assert driver.init().answer == InitProducerIdResult(1000, 1)


def test_who_waits_for_a_producer_id_hears_of_the_end() -> None:
    driver = Driver()
    driver.hold_ids = True
    asked = driver.init()
    driver.reload()
    assert asked.answer is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(("epoch", "given"), [(EPOCH_MAX - 3, EPOCH_MAX - 2), (EPOCH_MAX - 2, EPOCH_MAX - 1)])
def test_the_last_epoch_but_one_is_given_out(epoch: int, given: int) -> None:
    assert at_epoch(epoch).init().answer == InitProducerIdResult(7, given)


@pytest.mark.parametrize("epoch", [EPOCH_MAX - 1, EPOCH_MAX])
def test_when_the_epochs_are_used_up_a_new_producer_id_comes(epoch: int) -> None:
    driver = at_epoch(epoch, status=5)
    assert driver.init().answer == InitProducerIdResult(1000, 0)
    assert driver.last.previous_producer_id == 7
    assert driver.add(7, epoch, P0).answer is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_there_is_always_an_epoch_left_to_fence_with() -> None:
    driver = at_epoch(EPOCH_MAX - 1, status=1)
    assert driver.init().answer is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.sent[-1].producer_epoch == EPOCH_MAX
    assert driver.init().answer == InitProducerIdResult(1000, 0)


@pytest.mark.parametrize("commit", [True, False])
def test_no_producer_is_told_the_last_epoch(commit: bool) -> None:
    """A producer that was fenced with it: not by a retry, and not by saying it."""
    driver = at_epoch(EPOCH_MAX - 1, status=1)
    driver.init()
    assert (driver.last.producer_epoch, driver.state()) == (EPOCH_MAX, "CompleteAbort")
    before = list(driver.log)
    for epoch in (EPOCH_MAX - 1, EPOCH_MAX):
        for is_v2 in (True, False):
            asked = driver.end(7, epoch, commit=commit, is_v2=is_v2)
            assert asked.answer is ErrorCode.PRODUCER_FENCED
        assert driver.add(7, epoch, P0).answer is ErrorCode.PRODUCER_FENCED
    assert driver.log == before
    assert driver.init(producer_id=7, epoch=EPOCH_MAX - 1).answer == InitProducerIdResult(1000, 0)


def test_no_producer_has_an_epoch_before_the_first() -> None:
    driver = Driver()
    driver.refuse = TOO_FEW
    driver.init()
    driver.refuse = None
    for is_v2 in (True, False):
        assert driver.add(1000, -1, P0, is_v2=is_v2).answer is ErrorCode.PRODUCER_FENCED
        assert driver.end(1000, -1, commit=False, is_v2=is_v2).answer is ErrorCode.PRODUCER_FENCED
    driver.begun(P0, is_v2=False)
    driver.end(1000, 0, is_v2=False)
    assert driver.end(1000, -1).answer is ErrorCode.PRODUCER_FENCED
    assert driver.init().answer == InitProducerIdResult(1000, 1)


# KIP-360: a producer continues after an error


def test_a_producer_that_says_what_it_has_raises_its_own_epoch() -> None:
    driver = Driver()
    driver.init()
    assert driver.init(producer_id=1000, epoch=0).answer == InitProducerIdResult(1000, 1)


def test_it_may_ask_again_when_it_missed_the_answer() -> None:
    driver = Driver()
    driver.init()
    for _ in range(3):
        assert driver.init(producer_id=1000, epoch=0).answer == InitProducerIdResult(1000, 1)


def test_it_is_fenced_when_another_producer_came() -> None:
    driver = Driver()
    driver.init()
    driver.init(producer_id=1000, epoch=0)
    driver.init()
    before = list(driver.log)
    assert driver.init(producer_id=1000, epoch=0).answer is ErrorCode.PRODUCER_FENCED
    assert driver.init(producer_id=1000, epoch=1).answer is ErrorCode.PRODUCER_FENCED
    assert driver.init(producer_id=5, epoch=2).answer is ErrorCode.PRODUCER_FENCED
    assert driver.log == before


def test_an_id_that_has_expired_gives_it_a_new_producer_id() -> None:
    assert Driver().init(producer_id=5, epoch=9).answer == InitProducerIdResult(1000, 0)


def test_its_epochs_may_be_used_up() -> None:
    """And it may ask again then, with the producer id that it still has."""
    driver = at_epoch(EPOCH_MAX - 1)
    for _ in range(2):
        asked = driver.init(producer_id=7, epoch=EPOCH_MAX - 1)
        assert asked.answer == InitProducerIdResult(1000, 0)
    assert driver.init(producer_id=7, epoch=EPOCH_MAX - 2).answer is ErrorCode.PRODUCER_FENCED


def test_an_old_epoch_is_fenced_when_the_epochs_are_used_up() -> None:
    """Kafka fails here."""
    driver = at_epoch(EPOCH_MAX - 1)
    assert driver.init(producer_id=7, epoch=3).answer is ErrorCode.PRODUCER_FENCED
    assert driver.appends == []


def test_a_zombie_does_not_abort_the_transaction_of_its_successor() -> None:
    driver = Driver()
    driver.begun()
    assert driver.init(producer_id=999, epoch=0).answer is ErrorCode.PRODUCER_FENCED
    assert (driver.state(), driver.sent) == ("Ongoing", [])
