"""What the clock does to transactional ids, and what an operator sees of them."""

from __future__ import annotations

import pytest

from minikafka.coordinator.transaction.messages import (
    DescribedTransaction,
    EndTxnResult,
    InitProducerIdResult,
    ListTransactions,
)
from minikafka.coordinator.transaction.shard import unknown_states
from minikafka.errors import ErrorCode, KafkaError
from tests.unit.coordinator.transaction.driver import ID, NOT_IN_TIME, P0, P1, TIMEOUT_MS, TOO_FEW, Driver

DAY_MS = 24 * 3_600_000

# Time-outs


@pytest.mark.parametrize("transaction_version", [0, 2])
def test_a_transaction_that_takes_too_long_is_aborted_with_a_higher_epoch(transaction_version: int) -> None:
    driver = Driver(transaction_version=transaction_version)
    driver.begun(P0, P1)
    driver.clock.advance(TIMEOUT_MS)
    driver.abort_timed_out()
    assert driver.state() == "Ongoing", "its time is not up before it is over"
    driver.clock.advance(1)
    driver.abort_timed_out()
    assert driver.states == [0, 1, 3, 5]
    (markers,) = driver.sent
    assert (markers.producer_epoch, markers.is_commit, markers.partitions) == (1, False, (P0, P1))
    assert driver.end(1000, 0, is_v2=False).answer is ErrorCode.PRODUCER_FENCED
    assert driver.add(1000, 0, P0).answer is ErrorCode.PRODUCER_FENCED


def test_the_time_counts_from_the_first_partition() -> None:
    driver = Driver()
    driver.init()
    driver.clock.advance(TIMEOUT_MS * 2)
    driver.add(1000, 0, P0)
    driver.clock.advance(TIMEOUT_MS - 1)
    driver.add(1000, 0, P1)
    driver.clock.advance(2)
    driver.abort_timed_out()
    assert driver.state() == "CompleteAbort"


def test_a_producer_that_was_too_slow_may_go_on() -> None:
    """Second version: it asks with what it has, and gets the epoch that fenced it."""
    driver = Driver()
    driver.begun(P0)
    driver.clock.advance(TIMEOUT_MS + 1)
    driver.abort_timed_out()
    assert driver.init(producer_id=1000, epoch=0).answer == InitProducerIdResult(1000, 1)


def test_a_time_out_that_cannot_be_written_is_tried_at_the_next_sweep() -> None:
    driver = Driver()
    driver.begun(P0)
    driver.clock.advance(TIMEOUT_MS + 1)
    driver.refuse = TOO_FEW
    driver.abort_timed_out()
    assert (driver.state(), driver.sent) == ("Ongoing", [])
    assert driver.end(1000, 0, commit=True).answer is ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.refuse = None
    driver.abort_timed_out()
    assert (driver.state(), driver.last.producer_epoch) == ("CompleteAbort", 1)


def test_nothing_times_out_but_what_goes_on() -> None:
    driver = Driver(transaction_max_timeout_ms=0x7FFF_FFFF)
    driver.init(name="empty")
    driver.begun(name="committed")
    driver.end(1001, 0, name="committed")
    driver.init(name="two-phase", timeout_ms=0x7FFF_FFFF)
    driver.add(1002, 0, P0, name="two-phase")
    driver.clock.advance(365 * DAY_MS)
    appends = len(driver.appends)
    driver.abort_timed_out()
    assert len(driver.appends) == appends


def test_a_transaction_that_is_being_ended_is_not_aborted() -> None:
    driver = Driver()
    driver.begun(P0)
    driver.clock.advance(TIMEOUT_MS + 1)
    driver.hold = True
    ending = driver.end(1000, 0)
    driver.abort_timed_out()
    driver.commit()
    assert ending.answer == EndTxnResult(1000, 1)
    assert [markers.is_commit for markers in driver.sent] == [True]


# Expiry


def test_an_unused_id_is_removed_with_a_tombstone() -> None:
    driver = Driver()
    driver.begun(P0)
    driver.end(1000, 0)
    driver.clock.advance(7 * DAY_MS - 1)
    driver.remove_expired()
    assert driver.state() == "CompleteCommit"
    driver.clock.advance(1)
    driver.remove_expired()
    assert driver.states == [0, 1, 2, 4, 6]
    assert driver.add(1000, 1, P0).answer is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    driver.reload()
    assert driver.init().answer == InitProducerIdResult(1001, 0)


def test_what_goes_on_does_not_expire() -> None:
    driver = Driver()
    driver.hold_markers = True
    driver.begun(P0)
    driver.begun(P0, name="decided")
    driver.end(1001, 0, name="decided")
    driver.clock.advance(30 * DAY_MS)
    appends = len(driver.appends)
    driver.remove_expired()
    assert len(driver.appends) == appends


def test_an_id_that_expires_is_not_used_meanwhile_and_stays_if_that_fails() -> None:
    driver = Driver()
    driver.init()
    driver.clock.advance(8 * DAY_MS)
    driver.hold = True
    driver.remove_expired()
    assert driver.init().answer is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.add(1000, 0, P0).answer is ErrorCode.CONCURRENT_TRANSACTIONS
    driver.fail(NOT_IN_TIME)
    driver.hold = False
    assert driver.init().answer == InitProducerIdResult(1000, 1)
    driver.remove_expired()
    assert driver.state() == "Empty", "it was used"


def test_many_expire_in_several_batches() -> None:
    driver = Driver()
    for number in range(2_001):
        driver.init(name=f"id-{number}")
    driver.clock.advance(8 * DAY_MS)
    before = len(driver.appends)
    driver.remove_expired()
    assert [len(append.records) for append in driver.appends[before:]] == [1_000, 1_000, 1]
    assert driver.shard.list_transactions(ListTransactions(), driver.now_ms) == []


# Describe and list


def test_a_transaction_is_described() -> None:
    driver = Driver()
    driver.begun(P1, P0)
    assert driver.shard.describe_transaction(ID) == DescribedTransaction(
        transactional_id=ID,
        state="Ongoing",
        timeout_ms=TIMEOUT_MS,
        start_time_ms=driver.now_ms,
        producer_id=1000,
        producer_epoch=0,
        partitions=(P0, P1),
    )


@pytest.mark.parametrize(
    ("name", "code"), [("", ErrorCode.INVALID_REQUEST), ("nobody", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)]
)
def test_who_is_not_there_is_not_described(name: str, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as raised:
        Driver().shard.describe_transaction(name)
    assert raised.value.code is code


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        (ListTransactions(), ["old", "new", "done"]),
        (ListTransactions(states=("Ongoing",)), ["old", "new"]),
        (ListTransactions(states=("CompleteCommit", "Nonsense")), ["done"]),
        (ListTransactions(states=("Nonsense",)), []),
        (ListTransactions(producer_ids=(1001, 1002, 77)), ["new", "done"]),
        (ListTransactions(states=("Ongoing",), producer_ids=(1001,)), ["new"]),
        (ListTransactions(duration_ms=5_000), ["old"]),
        (ListTransactions(duration_ms=4_999), ["old"]),
        (ListTransactions(duration_ms=0, states=("Ongoing",)), ["old", "new"]),
        (ListTransactions(transactional_id_pattern="o.*|new"), ["old", "new"]),
        (ListTransactions(transactional_id_pattern="ol"), []),
    ],
)
def test_transactions_are_listed_by_state_producer_id_duration_and_name(
    request_: ListTransactions, names: list[str]
) -> None:
    driver = Driver()
    driver.begun(name="old")
    driver.clock.advance(5_000)
    driver.begun(name="new")
    driver.begun(name="done")
    driver.end(1002, 0, name="done")
    driver.clock.advance(4_999)
    listed = driver.shard.list_transactions(request_, driver.now_ms)
    assert [each.transactional_id for each in listed] == names
    if listed and listed[0].transactional_id == "old":
        assert (listed[0].producer_id, listed[0].state) == (1000, "Ongoing")


def test_a_bad_pattern_is_refused_and_unknown_states_are_named() -> None:
    with pytest.raises(KafkaError, match="TransactionalIdPattern") as raised:
        Driver().shard.list_transactions(ListTransactions(transactional_id_pattern="(("), 0)
    assert raised.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert unknown_states(("Ongoing", "Nonsense", "ongoing")) == ("Nonsense", "ongoing")
