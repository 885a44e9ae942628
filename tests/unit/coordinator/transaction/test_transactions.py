"""Transactions from their first partition to their end, in both versions of the protocol."""

from __future__ import annotations

import pytest

from minikafka.coordinator.transaction.messages import (
    Answer,
    EndTxnResult,
    InitProducerIdResult,
    WriteMarkers,
)
from minikafka.coordinator.transaction.metadata import EPOCH_MAX
from minikafka.errors import ErrorCode, KafkaError
from minikafka.types import TopicPartition
from tests.unit.coordinator.transaction.driver import ID, NOT_IN_TIME, P0, P1, P2, TOO_FEW, Driver
from tests.unit.coordinator.transaction.test_init_producer_id import at_epoch

NONE = ErrorCode.NONE
OFFSETS = TopicPartition("__consumer_offsets", 7)


def after(state: str, *, is_v2: bool = True) -> tuple[Driver, int]:
    """An id in ``state``, with producer id 1000; and its epoch."""
    driver = Driver()
    _, epoch = driver.begun(is_v2=is_v2) if state != "Empty" else (0, driver.init().answer.producer_epoch)
    if state.startswith("Complete"):
        driver.end(1000, epoch, commit=state == "CompleteCommit", is_v2=is_v2)
        epoch += is_v2
    assert driver.state() == state
    return driver, epoch


def remembered(producer_id: int, epoch: int) -> EndTxnResult:
    """The answer to a retry."""
    return EndTxnResult(producer_id, epoch, is_remembered=True)


# Partitions are added


def test_a_transaction_begins_with_its_first_partition() -> None:
    driver = Driver()
    driver.init()
    driver.clock.advance(10)
    begun_ms = driver.now_ms
    assert driver.add(1000, 0, P0, OFFSETS).answer.errors == (NONE, NONE)
    driver.clock.advance(10)
    assert driver.add(1000, 0, P1).answer.errors == (NONE,)
    value = driver.last
    assert value.transaction_partitions == {P0, P1, OFFSETS}
    assert (value.transaction_start_timestamp_ms, value.transaction_last_update_timestamp_ms) == (
        begun_ms,
        begun_ms + 10,
    )
    assert value.client_transaction_version == 2


def test_partitions_that_are_in_it_already_are_not_written_again() -> None:
    driver = Driver()
    driver.begun(P0, P1)
    appends = len(driver.appends)
    assert driver.add(1000, 0, P1).answer.errors == (NONE,)
    assert len(driver.appends) == appends
    assert driver.add(1000, 0, P1, P2).answer.errors == (NONE, NONE)
    assert len(driver.appends) == appends + 1


BAD_PRODUCERS = [
    ("", 1000, 0, ErrorCode.INVALID_REQUEST),
    ("nobody", 1000, 0, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    (ID, 1001, 0, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    (ID, 1000, 1, ErrorCode.PRODUCER_FENCED),
    (ID, 1000, -1, ErrorCode.PRODUCER_FENCED),
]
"""Of requests that name ``ID``, its producer id or its epoch wrongly, and what they are answered."""


@pytest.mark.parametrize("verify_only", [False, True])
@pytest.mark.parametrize(("name", "producer_id", "epoch", "code"), BAD_PRODUCERS)
def test_bad_requests_add_nothing(
    verify_only: bool, name: str, producer_id: int, epoch: int, code: ErrorCode
) -> None:
    driver = Driver()
    driver.begun(P0)
    before = driver.shard.describe_transaction(ID)
    asked = driver.add(producer_id, epoch, P1, name=name, verify_only=verify_only)
    assert asked.answer is code
    assert (driver.shard.describe_transaction(ID), len(driver.log)) == (before, 2)


def test_nothing_is_added_while_the_end_is_written() -> None:
    driver = Driver()
    driver.hold_markers = True
    driver.begun(P0)
    driver.end(1000, 0)
    for verify_only in (False, True):
        asked = driver.add(1000, 1, P0, verify_only=verify_only)
        assert asked.answer is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.answer_markers()
    assert driver.add(1000, 1, P0).answer.errors == (NONE,)


@pytest.mark.parametrize(
    ("knows_abortable", "not_added"),
    [(True, ErrorCode.TRANSACTION_ABORTABLE), (False, ErrorCode.INVALID_TXN_STATE)],
)
def test_verifying_says_which_are_in_it_and_adds_nothing(knows_abortable: bool, not_added: ErrorCode) -> None:
    driver = Driver()
    driver.begun(P0, P2)
    asked = driver.add(1000, 0, P0, P1, P2, verify_only=True, knows_abortable=knows_abortable)
    assert asked.answer.errors == (NONE, not_added, NONE)
    driver.end(1000, 0)
    asked = driver.add(1000, 1, P0, verify_only=True, knows_abortable=knows_abortable)
    assert asked.answer.errors == (not_added,), "the transaction is over"
    assert driver.states == [0, 1, 2, 4]


def test_what_is_not_committed_is_not_in_the_transaction() -> None:
    driver = Driver()
    driver.begun(P0)
    driver.hold = True
    adding = driver.add(1000, 0, P1)
    verified = driver.add(1000, 0, P0, P1, verify_only=True)
    assert verified.answer.errors == (NONE, ErrorCode.TRANSACTION_ABORTABLE)
    driver.fail(NOT_IN_TIME)
    assert adding.answer is ErrorCode.COORDINATOR_NOT_AVAILABLE
    verified = driver.add(1000, 0, P1, verify_only=True)
    assert verified.answer.errors == (ErrorCode.TRANSACTION_ABORTABLE,)


# The end, first version


@pytest.mark.parametrize("commit", [True, False])
def test_first_version_the_epoch_stays(commit: bool) -> None:
    driver = Driver()
    driver.begun(P0, P1, is_v2=False)
    assert driver.end(1000, 0, commit=commit, is_v2=False).answer == EndTxnResult(-1, -1)
    (markers,) = driver.sent
    assert (markers.producer_id, markers.producer_epoch) == (1000, 0)
    assert (markers.is_commit, markers.partitions, markers.transaction_version) == (commit, (P0, P1), 0)
    assert driver.states == ([0, 1, 2, 4] if commit else [0, 1, 3, 5])
    assert (driver.last.producer_epoch, driver.last.transaction_partitions) == (0, frozenset())
    assert driver.add(1000, 0, P0, is_v2=False).answer.errors == (NONE,)


@pytest.mark.parametrize(
    ("state", "abort", "commit"),
    [
        ("Empty", ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        ("CompleteAbort", remembered(-1, -1), ErrorCode.INVALID_TXN_STATE),
        ("CompleteCommit", ErrorCode.INVALID_TXN_STATE, remembered(-1, -1)),
    ],
)
def test_first_version_a_retry_is_told_by_the_state(state: str, abort: object, commit: object) -> None:
    driver, epoch = after(state, is_v2=False)
    before = len(driver.appends)
    assert driver.end(1000, epoch, commit=False, is_v2=False).answer == abort
    assert driver.end(1000, epoch, commit=True, is_v2=False).answer == commit
    assert len(driver.appends) == before


@pytest.mark.parametrize("is_v2", [False, True])
@pytest.mark.parametrize(("name", "producer_id", "epoch", "code"), BAD_PRODUCERS)
def test_bad_requests_end_nothing(
    is_v2: bool, name: str, producer_id: int, epoch: int, code: ErrorCode
) -> None:
    driver = Driver()
    driver.begun(P0)
    before = driver.shard.describe_transaction(ID)
    for commit in (True, False):
        assert driver.end(producer_id, epoch, commit=commit, name=name, is_v2=is_v2).answer is code
    assert (driver.shard.describe_transaction(ID), len(driver.log)) == (before, 2)


# The end, second version


@pytest.mark.parametrize("commit", [True, False])
def test_second_version_every_end_raises_the_epoch(commit: bool) -> None:
    driver = Driver()
    driver.begun(P0)
    assert driver.end(1000, 0, commit=commit).answer == EndTxnResult(1000, 1)
    (markers,) = driver.sent
    assert (markers.producer_epoch, markers.is_commit, markers.transaction_version) == (1, commit, 2)
    driver.add(1000, 1, P1)
    assert driver.end(1000, 1).answer == EndTxnResult(1000, 2)
    assert driver.sent[-1].producer_epoch == 2


FENCED, STATE = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(
    ("state", "retried_abort", "abort", "retried_commit", "commit"),
    [
        ("Ongoing", FENCED, "ended", FENCED, "ended"),
        ("Empty", FENCED, "ended", FENCED, STATE),
        ("CompleteAbort", "answered", "ended", STATE, STATE),
        ("CompleteCommit", STATE, "ended", "answered", STATE),
    ],
)
def test_second_version_a_retry_is_told_by_the_epoch(
    state: str, retried_abort: object, abort: object, retried_commit: object, commit: object
) -> None:
    for is_retried, is_commit, expected in (
        (True, False, retried_abort),
        (False, False, abort),
        (True, True, retried_commit),
        (False, True, commit),
    ):
        driver, epoch = after(state)
        appends = len(driver.appends)
        answer = driver.end(1000, epoch - is_retried, commit=is_commit).answer
        is_ended = expected == "ended"
        assert len(driver.appends) - appends == (2 if is_ended else 0)
        results = {"ended": EndTxnResult(1000, epoch + 1), "answered": remembered(1000, epoch)}
        assert answer == results.get(expected, expected)


def test_a_producer_that_missed_the_answer_of_its_end_goes_on_with_the_epoch_it_was_given() -> None:
    driver = Driver()
    driver.begun(P0)
    driver.end(1000, 0)
    assert driver.init(producer_id=1000, epoch=0).answer == InitProducerIdResult(1000, 1)


def test_the_answer_does_not_wait_for_the_markers() -> None:
    driver = Driver()
    driver.begun(P0)
    driver.hold = True
    driver.end(1000, 0)
    ((append, _),) = driver.uncommitted
    answer, markers = append.committed(driver.now_ms)
    assert isinstance(answer, Answer) and isinstance(markers, WriteMarkers)


def test_an_abort_where_nothing_was_begun_has_no_markers() -> None:
    driver = Driver()
    driver.init()
    assert driver.end(1000, 0, commit=False).answer == EndTxnResult(1000, 1)
    assert (driver.sent, driver.states) == ([], [0, 3, 5])
    assert driver.last.transaction_start_timestamp_ms == driver.now_ms


def test_r19_a_delayed_end_does_not_end_the_next_transaction() -> None:
    driver = Driver()
    driver.begun(P0)
    driver.end(1000, 0)
    driver.add(1000, 1, P1)
    before = list(driver.log)
    for commit in (True, False):
        assert driver.end(1000, 0, commit=commit).answer is ErrorCode.PRODUCER_FENCED
    assert (driver.state(), driver.log) == ("Ongoing", before)


def test_a_retry_while_the_end_is_written_is_to_wait() -> None:
    driver = Driver()
    driver.hold = driver.hold_markers = True
    driver.init(), driver.commit()
    driver.add(1000, 0, P0), driver.commit()
    first = driver.end(1000, 0)
    assert driver.end(1000, 0).answer is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.commit()
    assert first.answer == EndTxnResult(1000, 1), "the decision is safe, the markers follow"
    assert driver.end(1000, 0).answer is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.end(1000, 0, commit=False).answer is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.answer_markers(), driver.commit()
    assert driver.end(1000, 0).answer == remembered(1000, 1)


def test_the_last_epoch_ends_with_a_new_producer_id() -> None:
    """The producer never sees the epoch that the markers have."""
    driver = at_epoch(EPOCH_MAX - 1, status=1)
    driver.hold_markers = True
    assert driver.end(7, EPOCH_MAX - 1).answer == EndTxnResult(1000, 0)
    assert (driver.sent[0].producer_id, driver.sent[0].producer_epoch) == (7, EPOCH_MAX)
    assert (driver.last.producer_id, driver.last.next_producer_id) == (7, 1000)
    assert driver.add(1000, 0, P0).answer is ErrorCode.CONCURRENT_TRANSACTIONS, "not a wrong producer id"
    driver.answer_markers()
    assert (driver.last.producer_id, driver.last.producer_epoch, driver.last.previous_producer_id) == (
        1000,
        0,
        7,
    )
    assert driver.end(7, EPOCH_MAX - 1).answer == remembered(1000, 0), "a retry"
    assert driver.end(7, EPOCH_MAX - 1, commit=False).answer is ErrorCode.INVALID_TXN_STATE
    assert driver.add(1000, 0, P0).answer.errors == (NONE,)
    assert driver.end(7, EPOCH_MAX - 1).answer is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_the_next_producer_id_is_known_after_a_reload() -> None:
    driver = at_epoch(EPOCH_MAX - 1, status=1)
    driver.hold_markers = True
    driver.end(7, EPOCH_MAX - 1)
    driver.reload()
    driver.answer_markers()
    assert driver.end(7, EPOCH_MAX - 1).answer == remembered(1000, 0)


def test_there_may_be_no_producer_id_to_end_with() -> None:
    driver = at_epoch(EPOCH_MAX - 1, status=1)
    driver.hold_ids = True
    asked = driver.end(7, EPOCH_MAX - 1)
    driver.give_ids(KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    assert asked.answer is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (driver.state(), driver.appends) == ("Ongoing", [])


def test_what_an_end_asks_for_may_be_over_when_its_producer_id_comes() -> None:
    driver = at_epoch(EPOCH_MAX - 1, status=1)
    driver.hold_ids = True
    asked = driver.end(7, EPOCH_MAX - 1)
    driver.clock.advance(60_001)
    driver.abort_timed_out()
    driver.give_ids()
    assert asked.answer is ErrorCode.PRODUCER_FENCED
    assert driver.states == [1, 3, 5]


def test_the_versions_may_change_between_transactions() -> None:
    """A producer that is replaced by a newer one, and the other way round."""
    driver = Driver()
    driver.begun(P0, is_v2=False)
    driver.end(1000, 0, is_v2=False)
    assert driver.init().answer == InitProducerIdResult(1000, 1)
    driver.add(1000, 1, P0)
    assert driver.end(1000, 1).answer == EndTxnResult(1000, 2)
    assert driver.init().answer == InitProducerIdResult(1000, 3)
    driver.add(1000, 3, P0, is_v2=False)
    assert driver.end(1000, 3, is_v2=False).answer == EndTxnResult(-1, -1)
    assert driver.last.producer_epoch == 3


# The log fails


@pytest.mark.parametrize("is_v2", [False, True])
def test_an_end_that_is_not_written_has_ended_nothing(is_v2: bool) -> None:
    driver = Driver()
    driver.begun(P0, is_v2=is_v2)
    driver.refuse = TOO_FEW
    assert driver.end(1000, 0, is_v2=is_v2).answer is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (driver.sent, driver.state()) == ([], "Ongoing")
    driver.refuse = None
    assert isinstance(driver.end(1000, 0, is_v2=is_v2).answer, EndTxnResult)
    assert driver.last.producer_epoch == is_v2


def test_no_marker_leaves_before_the_decision_is_committed() -> None:
    driver = Driver()
    driver.begun(P0)
    driver.hold = True
    committing = driver.end(1000, 0)
    assert driver.sent == []
    driver.fail(NOT_IN_TIME)
    assert committing.answer is ErrorCode.COORDINATOR_NOT_AVAILABLE
    aborting = driver.end(1000, 0, commit=False)
    driver.commit()
    assert aborting.answer == EndTxnResult(1000, 1)
    assert [markers.is_commit for markers in driver.sent] == [False]


def test_a_decision_that_came_through_after_all_is_carried_out_by_the_next_coordinator() -> None:
    """Given up here, committed by the high watermark there."""
    driver = Driver()
    driver.begun(P0)
    driver.hold = True
    driver.end(1000, 0)
    driver.fail(NOT_IN_TIME)
    driver.hold = False
    driver.reload()
    assert [markers.is_commit for markers in driver.sent] == [True]
    assert driver.end(1000, 0).answer == remembered(1000, 1), "a retry"


def test_the_append_may_take_as_long_as_the_transaction() -> None:
    """As Kafka's; tombstones and the others take what the shell allows."""
    driver = Driver()
    driver.init(timeout_ms=5_000)
    assert [append.timeout_ms for append in driver.appends] == [5_000]
