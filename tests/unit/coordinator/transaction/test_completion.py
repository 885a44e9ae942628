"""The markers of a transaction, and the record that they are written."""

from __future__ import annotations

import pytest

from minikafka.coordinator.transaction.messages import EndTxnResult, InitProducerIdResult
from minikafka.coordinator.transaction.shard import RETRY_MS
from minikafka.errors import ErrorCode, KafkaError
from tests.unit.coordinator.transaction.driver import ID, NOT_IN_TIME, P0, P1, P2, TOO_FEW, Driver


def ended(*, commit: bool = True) -> Driver:
    """The end of a transaction is decided, its markers are under way."""
    driver = Driver()
    driver.hold_markers = True
    driver.begun(P0, P1, P2)
    assert driver.end(1000, 0, commit=commit).answer == EndTxnResult(1000, 1)
    return driver


def test_a_transaction_is_complete_when_all_markers_are_written() -> None:
    driver = ended()
    (markers,) = driver.sent
    for partition, left in ((P1, (P0, P2)), (P0, (P2,))):
        driver.carry_out(driver.shard.markers_written(markers, {partition: ErrorCode.NONE}, driver.now_ms))
        assert driver.shard.describe_transaction(ID).partitions == left
        assert driver.state() == "PrepareCommit"
    driver.carry_out(driver.shard.markers_written(markers, {P2: ErrorCode.NONE}, driver.now_ms))
    assert driver.state() == "CompleteCommit"
    assert len(driver.sent) == 1
    driver.add(1000, 1, P1)
    assert driver.shard.describe_transaction(ID).partitions == (P1,)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
    ],
)
def test_markers_that_fail_for_a_time_are_wanted_again(error: ErrorCode) -> None:
    driver = ended()
    (markers,) = driver.sent
    answer = {P0: ErrorCode.NONE, P1: error, P2: error}
    driver.carry_out(driver.shard.markers_written(markers, answer, driver.now_ms))
    again = driver.sent[-1]
    assert again == markers._replace(partitions=(P1, P2), attempt=1)
    driver.carry_out(driver.shard.markers_written(again, {P1: error, P2: ErrorCode.NONE}, driver.now_ms))
    assert driver.sent[-1] == markers._replace(partitions=(P1,), attempt=2)
    driver.carry_out(driver.shard.markers_written(driver.sent[-1], {P1: ErrorCode.NONE}, driver.now_ms))
    assert driver.state() == "CompleteCommit"


@pytest.mark.parametrize("error", [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION])
def test_where_markers_cannot_be_they_need_not_be(error: ErrorCode) -> None:
    driver = ended()
    driver.answer_markers(error)
    assert driver.state() == "CompleteCommit"


@pytest.mark.parametrize(
    "error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED]
)
def test_a_coordinator_that_is_not_one_any_more_stops(error: ErrorCode) -> None:
    """What is left is the next one's, who reads it in the log."""
    driver = ended()
    (markers,) = driver.sent
    answer = {P0: ErrorCode.REQUEST_TIMED_OUT, P1: error, P2: ErrorCode.NONE}
    driver.carry_out(driver.shard.markers_written(markers, answer, driver.now_ms))
    driver.answer_markers()
    assert (len(driver.sent), driver.state()) == (1, "PrepareCommit")
    assert driver.init().answer is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.reload()
    assert driver.sent[1] == markers
    driver.answer_markers()
    assert driver.state() == "CompleteCommit"


def test_late_answers_of_an_earlier_transaction_count_for_nothing() -> None:
    driver = ended(commit=False)
    (late,) = driver.sent
    driver.answer_markers()
    driver.add(1000, 1, P0)
    everything = {P0: ErrorCode.NONE, P1: ErrorCode.NONE, P2: ErrorCode.REQUEST_TIMED_OUT}
    assert driver.shard.markers_written(late, everything, driver.now_ms) == []
    driver.end(1000, 1)
    assert driver.shard.markers_written(late, everything, driver.now_ms) == []
    assert driver.shard.markers_written(late._replace(transactional_id="x"), everything, 0) == []
    assert driver.state() == "PrepareCommit"


def test_an_answer_that_comes_twice_counts_once() -> None:
    driver = ended()
    driver.answer_markers()
    driver.unanswered_markers = list(driver.sent)
    driver.answer_markers()
    driver.unanswered_markers = list(driver.sent)
    driver.answer_markers(ErrorCode.REQUEST_TIMED_OUT)
    assert (driver.states, len(driver.sent)) == ([0, 1, 2, 4], 1)


@pytest.mark.parametrize("error", [TOO_FEW, NOT_IN_TIME, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)])
def test_the_last_record_is_written_again_until_it_is_committed(error: KafkaError) -> None:
    driver = ended()
    driver.refuse = error
    driver.answer_markers()
    for _ in range(3):
        assert driver.state() == "PrepareCommit"
        assert driver.init().answer is ErrorCode.CONCURRENT_TRANSACTIONS
        driver.advance(RETRY_MS)
    driver.refuse = None
    driver.advance(RETRY_MS)
    assert (driver.state(), driver.parked, len(driver.sent)) == ("CompleteCommit", {}, 1)
    assert driver.init().answer == InitProducerIdResult(1000, 2)


def test_a_reload_goes_on_with_what_was_decided() -> None:
    """Each id by itself; what was only ongoing stays so."""
    driver = ended()
    driver.begun(P1, name="ongoing")
    driver.begun(P0, name="aborted")
    driver.end(1002, 0, commit=False, name="aborted")
    decided = list(driver.sent)
    assert [(markers.producer_id, markers.is_commit) for markers in decided] == [(1000, True), (1002, False)]
    driver.reload()
    assert driver.sent[2:] == decided
    driver.answer_markers()
    assert [driver.state(name) for name in (ID, "ongoing", "aborted")] == [
        "CompleteCommit",
        "Ongoing",
        "CompleteAbort",
    ]
    driver.reload()
    assert len(driver.sent) == 4


def test_a_decision_without_partitions_is_completed_after_a_reload() -> None:
    driver = Driver()
    driver.init()
    driver.hold = True
    driver.end(1000, 0, commit=False)
    driver.hold = False
    driver.reload()
    assert (driver.states, driver.sent) == ([0, 3, 5], [])
