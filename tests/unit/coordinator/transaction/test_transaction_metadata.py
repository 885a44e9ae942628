"""The table of states is Kafka's, and nothing but what it has can happen to a transactional id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from minikafka.coordinator.transaction.metadata import (
    EPOCH_MAX,
    STATE_OF_NAME,
    VALID_PREVIOUS_STATES,
    TransactionMetadata,
    TransactionState,
    TxnTransitMetadata,
    metadata_of,
    record_of,
)
from minikafka.errors import ErrorCode, InvariantError, KafkaError
from tests.unit.coordinator.transaction.driver import P0, P1

S = TransactionState
NOW_MS = 1_000_000

PREPARES: dict[str, tuple[TransactionState, Callable[[TransactionMetadata], TxnTransitMetadata]]] = {
    "increment": (
        S.EMPTY,
        lambda id: id.prepare_increment_producer_epoch(timeout_ms=5, expected_epoch=None, now_ms=NOW_MS),
    ),
    "rotate": (
        S.EMPTY,
        lambda id: id.prepare_producer_id_rotation(8, timeout_ms=5, records_last_epoch=False, now_ms=NOW_MS),
    ),
    "add": (
        S.ONGOING,
        lambda id: id.prepare_add_partitions(frozenset({P1}), client_transaction_version=2, now_ms=NOW_MS),
    ),
    "commit": (
        S.PREPARE_COMMIT,
        lambda id: id.prepare_abort_or_commit(is_commit=True, client_transaction_version=2, now_ms=NOW_MS),
    ),
    "abort": (
        S.PREPARE_ABORT,
        lambda id: id.prepare_abort_or_commit(is_commit=False, client_transaction_version=2, now_ms=NOW_MS),
    ),
    "dead": (S.DEAD, lambda id: id.prepare_dead()),
}


def an_id(state: TransactionState, **fields: Any) -> TransactionMetadata:
    current = TxnTransitMetadata(
        state=state,
        producer_id=7,
        producer_epoch=3,
        timeout_ms=60_000,
        partitions=frozenset() if state.is_idle else frozenset({P0}),
        start_timestamp_ms=900,
        last_update_timestamp_ms=1000,
    )
    return TransactionMetadata("pay", msgspec.structs.replace(current, **fields))


def test_the_table_is_kafkas() -> None:
    names = {
        to.kafka_name: sorted(state.kafka_name for state in VALID_PREVIOUS_STATES[to])
        for to in TransactionState
    }
    idle = ["CompleteAbort", "CompleteCommit", "Empty"]
    assert names == {
        "Empty": idle,
        "Ongoing": [*idle, "Ongoing"],
        "PrepareCommit": ["Ongoing"],
        "PrepareAbort": [*idle, "Ongoing", "PrepareEpochFence"],
        "CompleteCommit": ["PrepareCommit"],
        "CompleteAbort": ["PrepareAbort"],
        "Dead": idle,
        "PrepareEpochFence": ["Ongoing"],
    }
    assert [state.value for state in TransactionState] == list(range(8))
    assert STATE_OF_NAME["PrepareEpochFence"] is S.PREPARE_EPOCH_FENCE


@pytest.mark.parametrize("state", TransactionState)
@pytest.mark.parametrize("prepare", PREPARES)
def test_a_pair_that_is_not_in_the_table_is_refused(state: TransactionState, prepare: str) -> None:
    to, call = PREPARES[prepare]
    metadata = an_id(state)
    if state in VALID_PREVIOUS_STATES[to]:
        assert call(metadata).state is to
        assert metadata.state is state, "it is only pending"
    else:
        with pytest.raises(InvariantError, match=f"{to} cannot follow {state}"):
            call(metadata)
        assert metadata.pending is None


@pytest.mark.parametrize("state", TransactionState)
def test_only_what_goes_on_is_fenced_and_only_what_is_prepared_completes(state: TransactionState) -> None:
    metadata = an_id(state)
    if state is S.ONGOING:
        assert metadata.prepare_fence(transaction_version=2, now_ms=NOW_MS).producer_epoch == 4
        return
    with pytest.raises(InvariantError):
        metadata.prepare_fence(transaction_version=2, now_ms=NOW_MS)
    if not state.is_prepared:
        with pytest.raises(InvariantError):
            metadata.prepare_complete(NOW_MS)


def test_one_transition_at_a_time() -> None:
    metadata = an_id(S.ONGOING)
    metadata.prepare_fence(transaction_version=2, now_ms=NOW_MS)
    with pytest.raises(InvariantError, match="meanwhile"):
        metadata.prepare_add_partitions(frozenset({P1}), client_transaction_version=2, now_ms=NOW_MS)
    metadata.complete_transition()
    assert metadata.state is S.PREPARE_ABORT
    for transition in (metadata.complete_transition, metadata.drop_transition):
        with pytest.raises(InvariantError, match="has no transition"):
            transition()


def test_a_dropped_transition_has_changed_nothing() -> None:
    metadata = an_id(S.ONGOING)
    before = metadata.current
    metadata.prepare_add_partitions(frozenset({P1}), client_transaction_version=2, now_ms=NOW_MS)
    metadata.drop_transition()
    assert (metadata.current, metadata.pending) == (before, None)


def test_no_epoch_is_above_the_highest() -> None:
    with pytest.raises(InvariantError):
        an_id(S.ONGOING, producer_epoch=EPOCH_MAX).prepare_fence(transaction_version=2, now_ms=NOW_MS)
    with pytest.raises(InvariantError, match="cannot follow"):
        an_id(S.EMPTY, producer_epoch=EPOCH_MAX).prepare_increment_producer_epoch(
            timeout_ms=5, expected_epoch=None, now_ms=NOW_MS
        )


def test_a_rotation_begins_at_0() -> None:
    """Of the transaction that used up the last epoch, and of InitProducerId."""
    metadata = an_id(S.PREPARE_COMMIT, producer_epoch=EPOCH_MAX, next_producer_id=8)
    completed = metadata.prepare_complete(NOW_MS)
    assert (completed.producer_id, completed.producer_epoch, completed.previous_producer_id) == (8, 0, 7)
    assert completed.next_producer_id == -1


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_state_is_what_its_record_says(version: int) -> None:
    current = an_id(S.ONGOING, client_transaction_version=2, previous_producer_id=6).current
    value = record_of("pay", current, transaction_version=version).value
    assert value is not None
    if version == 0:
        current = msgspec.structs.replace(current, client_transaction_version=0, previous_producer_id=-1)
    assert metadata_of(value) == current
    assert value.version == min(version, 1)


@pytest.mark.parametrize("status", [6, 7, 8, -1])
def test_a_log_does_not_say_what_cannot_be(status: int) -> None:
    value = record_of("pay", an_id(S.EMPTY).current, transaction_version=2).value
    assert value is not None
    with pytest.raises(KafkaError) as raised:
        metadata_of(msgspec.structs.replace(value, transaction_status=status))
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE


def test_nothing_is_written_before_the_first_epoch() -> None:
    metadata = TransactionMetadata.created("pay", producer_id=7, timeout_ms=60_000, now_ms=NOW_MS)
    with pytest.raises(InvariantError, match="cannot follow"):
        metadata.prepare_add_partitions(frozenset({P1}), client_transaction_version=2, now_ms=NOW_MS)
    assert metadata.prepare_dead().producer_epoch == -1, "but its tombstone"
