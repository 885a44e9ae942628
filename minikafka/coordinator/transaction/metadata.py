"""A transactional id: the state it is in, and the one that is being written. Kafka: ``TransactionMetadata``.

``TransactionMetadata`` has a current ``TxnTransitMetadata`` and, while one is under way, a pending one. A
``prepare_...`` makes the next of the current one, checks it against the table of states and makes it pending;
``complete_transition`` takes it over when its record is committed; ``drop_transition`` forgets it when its
record is not.

Invariants (``_check``): every change is in the table; a producer id's epoch never falls, and rises by at
most one; another producer id begins at epoch 0; partitions only come while a transaction is going on, and go
when it is over; the timeout changes in InitProducerId alone.

Where it differs: Kafka fences in two steps, and with the first version of the protocol the epoch rises in
memory before it is in the log, with a flag to not raise it again if that fails (``hasFailedEpochFence``).
Here, as in Kafka with the second version, fencing is one transition to PrepareAbort with the next epoch: one
that fails leaves everything as it was, and the next makes the same.

**The states.** Kafka: ``TransactionState``, whose numbers are in the log.

=====================  =====================================================================
to                     from
=====================  =====================================================================
Empty                  Empty, CompleteCommit, CompleteAbort      InitProducerId
Ongoing                Ongoing, Empty, CompleteCommit,
                       CompleteAbort                             partitions are added
PrepareCommit          Ongoing                                   EndTxn
PrepareAbort           Ongoing, PrepareEpochFence, and of the
                       second protocol Empty, CompleteCommit,
                       CompleteAbort                             EndTxn, or a fence
CompleteCommit         PrepareCommit                             all markers are written
CompleteAbort          PrepareAbort                              all markers are written
Dead                   Empty, CompleteCommit, CompleteAbort      the id expires
PrepareEpochFence      Ongoing                                   InitProducerId, time-out
=====================  =====================================================================

PrepareEpochFence and Dead are never anybody's state: an id passes through the one on its way to PrepareAbort,
and ends with the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

import msgspec

from minikafka.coordinator.transaction.messages import TRANSACTION_VERSION_1, TRANSACTION_VERSION_2
from minikafka.errors import ErrorCode, InvariantError, KafkaError
from minikafka.protocol.internal.transaction_record_codec import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionRecord,
)
from minikafka.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition

EPOCH_MAX: Final = 0x7FFF
"""A short's. No producer gets it, so that there is always one left to fence with."""

NEVER_TIMES_OUT_MS: Final = 0x7FFF_FFFF
"""The timeout of a distributed two-phase commit (KIP-939)."""


class TransactionState(Enum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def kafka_name(self) -> str:
        """As DescribeTransactions and ListTransactions spell it."""
        return _NAMES[self]

    @property
    def is_prepared(self) -> bool:
        """The end is decided; its markers are being written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """No transaction is going on: one may begin, or the id expire."""
        return self in _IDLE


_NAMES: Final = {state: state.name.title().replace("_", "") for state in TransactionState}
_IDLE: Final = frozenset(
    {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
)


VALID_PREVIOUS_STATES: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    TransactionState.EMPTY: _IDLE,
    TransactionState.ONGOING: _IDLE | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    TransactionState.PREPARE_ABORT: (
        _IDLE | {TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE}
    ),
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
    TransactionState.DEAD: _IDLE,
    TransactionState.PREPARE_EPOCH_FENCE: frozenset({TransactionState.ONGOING}),
}


STATE_OF_NAME: Final[Mapping[str, TransactionState]] = {name: state for state, name in _NAMES.items()}


State = TransactionState


class TxnTransitMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """A state of a transactional id, as in the log but for ``last_producer_epoch``."""

    state: TransactionState
    producer_id: int
    previous_producer_id: int = NO_PRODUCER_ID
    """That of the state before; which may be the same."""
    next_producer_id: int = NO_PRODUCER_ID
    """With which the producer continues, when this transaction has used up the last epoch (KIP-890)."""
    producer_epoch: int
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The one before, of a producer that has raised it itself: it may have missed the answer (KIP-360)."""
    timeout_ms: int
    partitions: frozenset[TopicPartition] = frozenset()
    start_timestamp_ms: int = NO_TIMESTAMP
    last_update_timestamp_ms: int
    client_transaction_version: int = TRANSACTION_VERSION_1


def is_epoch_exhausted(producer_epoch: int) -> bool:
    return producer_epoch >= EPOCH_MAX - 1


class TransactionMetadata:
    """See the module header."""

    __slots__ = ("current", "pending", "transactional_id")

    def __init__(self, transactional_id: str, current: TxnTransitMetadata) -> None:
        self.transactional_id = transactional_id
        self.current = current
        self.pending: TxnTransitMetadata | None = None

    def __repr__(self) -> str:
        pending = f", pending={self.pending}" if self.pending else ""
        return f"TransactionMetadata({self.transactional_id!r}, {self.current}{pending})"

    @classmethod
    def created(
        cls, transactional_id: str, *, producer_id: int, timeout_ms: int, now_ms: int
    ) -> TransactionMetadata:
        """An id that was never used: its first epoch is still to come."""
        return cls(
            transactional_id,
            TxnTransitMetadata(
                state=State.EMPTY,
                producer_id=producer_id,
                producer_epoch=NO_PRODUCER_EPOCH,
                timeout_ms=timeout_ms,
                last_update_timestamp_ms=now_ms,
            ),
        )

    @property
    def state(self) -> TransactionState:
        return self.current.state

    @property
    def is_producer_epoch_exhausted(self) -> bool:
        return is_epoch_exhausted(self.current.producer_epoch)

    # InitProducerId

    def prepare_increment_producer_epoch(
        self, *, timeout_ms: int, expected_epoch: int | None, now_ms: int
    ) -> TxnTransitMetadata:
        """To Empty; ``expected_epoch`` is the producer's (KIP-360).

        Raises:
            KafkaError: PRODUCER_FENCED.
        """
        current = self.current
        epoch: int = current.producer_epoch + 1
        last_epoch: int = NO_PRODUCER_EPOCH
        if expected_epoch is not None:
            if expected_epoch == current.producer_epoch or current.producer_epoch == NO_PRODUCER_EPOCH:
                last_epoch = current.producer_epoch
            elif expected_epoch == current.last_producer_epoch:  # it has missed the answer
                epoch, last_epoch = current.producer_epoch, expected_epoch
            else:
                raise KafkaError(ErrorCode.PRODUCER_FENCED)
        return self._prepare_empty(
            current.producer_id, epoch, last_epoch, timeout_ms=timeout_ms, now_ms=now_ms
        )

    def prepare_producer_id_rotation(
        self, producer_id: int, *, timeout_ms: int, records_last_epoch: bool, now_ms: int
    ) -> TxnTransitMetadata:
        """To Empty, with a new producer id; ``records_last_epoch`` when the producer has said its epoch."""
        last_epoch = self.current.producer_epoch if records_last_epoch else NO_PRODUCER_EPOCH
        return self._prepare_empty(producer_id, 0, last_epoch, timeout_ms=timeout_ms, now_ms=now_ms)

    def _prepare_empty(
        self, producer_id: int, epoch: int, last_epoch: int, *, timeout_ms: int, now_ms: int
    ) -> TxnTransitMetadata:
        return self._prepare(
            State.EMPTY,
            producer_id=producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_timestamp_ms=NO_TIMESTAMP,
            last_update_timestamp_ms=now_ms,
        )

    # Transactions

    def prepare_add_partitions(
        self, partitions: frozenset[TopicPartition], *, client_transaction_version: int, now_ms: int
    ) -> TxnTransitMetadata:
        """To Ongoing."""
        current = self.current
        return self._prepare(
            State.ONGOING,
            partitions=current.partitions | partitions,
            start_timestamp_ms=now_ms if current.state.is_idle else current.start_timestamp_ms,
            last_update_timestamp_ms=now_ms,
            client_transaction_version=client_transaction_version,
        )

    def prepare_abort_or_commit(
        self,
        *,
        is_commit: bool,
        client_transaction_version: int,
        next_producer_id: int = NO_PRODUCER_ID,
        now_ms: int,
    ) -> TxnTransitMetadata:
        """To PrepareCommit or PrepareAbort; with the second version of the protocol the epoch rises. An idle
        id may be aborted then: a producer does not always know whether partitions were added."""
        current = self.current
        raised: dict[str, Any] = {}
        if client_transaction_version >= TRANSACTION_VERSION_2:
            raised = {
                "producer_epoch": current.producer_epoch + 1,
                "last_producer_epoch": current.producer_epoch,
            }
        return self._prepare(
            State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT,
            next_producer_id=next_producer_id,
            start_timestamp_ms=now_ms if current.state.is_idle else current.start_timestamp_ms,
            last_update_timestamp_ms=now_ms,
            client_transaction_version=client_transaction_version,
            **raised,
        )

    def prepare_fence(self, *, transaction_version: int, now_ms: int) -> TxnTransitMetadata:
        """To PrepareAbort by way of PrepareEpochFence, with the next epoch, which no producer has. With the
        second version of the protocol a producer that was too slow may go on with it."""
        current = self.current
        _check_table(current.state, State.PREPARE_EPOCH_FENCE)
        _check_table(State.PREPARE_EPOCH_FENCE, State.PREPARE_ABORT)
        if current.producer_epoch == EPOCH_MAX:
            raise InvariantError(f"{self!r} has no epoch left to fence with")
        is_version_2 = transaction_version >= TRANSACTION_VERSION_2
        return self._prepare(
            State.PREPARE_ABORT,
            producer_epoch=current.producer_epoch + 1,
            last_producer_epoch=current.producer_epoch if is_version_2 else NO_PRODUCER_EPOCH,
            last_update_timestamp_ms=now_ms,
            client_transaction_version=TRANSACTION_VERSION_2 if is_version_2 else TRANSACTION_VERSION_1,
        )

    def prepare_complete(self, now_ms: int) -> TxnTransitMetadata:
        """To CompleteCommit or CompleteAbort."""
        current = self.current
        is_commit = current.state is State.PREPARE_COMMIT
        rotated: dict[str, Any] = {}
        if current.next_producer_id != NO_PRODUCER_ID:
            rotated = {
                "producer_id": current.next_producer_id,
                "producer_epoch": 0,
                "next_producer_id": NO_PRODUCER_ID,
            }
        return self._prepare(
            State.COMPLETE_COMMIT if is_commit else State.COMPLETE_ABORT,
            partitions=frozenset(),
            last_update_timestamp_ms=now_ms,
            **rotated,
        )

    def prepare_dead(self) -> TxnTransitMetadata:
        """To Dead: a tombstone, after which there is nothing to complete."""
        return self._prepare(State.DEAD)

    # Transitions

    def complete_transition(self) -> None:
        """The pending transition is committed."""
        if self.pending is None or self.pending.state is State.DEAD:
            raise InvariantError(f"{self!r} has no transition to complete")
        self.current, self.pending = self.pending, None

    def drop_transition(self) -> None:
        """The pending transition is not committed, as far as one knows."""
        if self.pending is None:
            raise InvariantError(f"{self!r} has no transition to drop")
        self.pending = None

    def _prepare(self, state: TransactionState, **changes: Any) -> TxnTransitMetadata:
        if self.pending is not None:
            raise InvariantError(f"{self!r} cannot go to {state} meanwhile")
        following: TxnTransitMetadata = msgspec.structs.replace(
            self.current, state=state, previous_producer_id=self.current.producer_id, **changes
        )
        _check(self.current, following)
        self.pending = following
        return following


def _check_table(current: TransactionState, following: TransactionState) -> None:
    if current not in VALID_PREVIOUS_STATES[following]:
        raise InvariantError(f"{following} cannot follow {current}")


def _check(current: TxnTransitMetadata, following: TxnTransitMetadata) -> None:
    """The invariants of the module header."""
    _check_table(current.state, following.state)
    rise = following.producer_epoch - current.producer_epoch
    is_same_producer = following.producer_id == current.producer_id
    is_valid = (
        (rise in (0, 1) and following.producer_epoch <= EPOCH_MAX)
        if is_same_producer
        else following.producer_epoch == 0
    )
    match following.state:
        case State.ONGOING:
            is_valid &= rise == 0 and is_same_producer and current.partitions <= following.partitions
        case State.PREPARE_COMMIT | State.PREPARE_ABORT:
            is_valid &= is_same_producer and current.partitions == following.partitions
        case State.EMPTY | State.COMPLETE_COMMIT | State.COMPLETE_ABORT:
            is_valid &= not following.partitions
    if following.state is not State.EMPTY:
        is_valid &= following.timeout_ms == current.timeout_ms
    if following.state is not State.DEAD:
        is_valid &= following.producer_epoch >= 0
    if not is_valid:
        raise InvariantError(f"{following} cannot follow {current}")


# The log
def record_of(
    transactional_id: str, metadata: TxnTransitMetadata, *, transaction_version: int
) -> TransactionRecord:
    """``transaction_version`` is the cluster's: its level 0 has no tagged fields."""
    is_flexible = transaction_version >= 1
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id if is_flexible else NO_PRODUCER_ID,
        next_producer_id=metadata.next_producer_id if is_flexible else NO_PRODUCER_ID,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state.value,
        transaction_partitions=metadata.partitions,
        transaction_last_update_timestamp_ms=metadata.last_update_timestamp_ms,
        transaction_start_timestamp_ms=metadata.start_timestamp_ms,
        client_transaction_version=metadata.client_transaction_version if is_flexible else 0,
        version=1 if is_flexible else 0,
    )
    return TransactionRecord(TransactionLogKey(transactional_id), value)


def tombstone(transactional_id: str) -> TransactionRecord:
    return TransactionRecord(TransactionLogKey(transactional_id), None)


def metadata_of(value: TransactionLogValue) -> TxnTransitMetadata:
    """Raises KafkaError CORRUPT_MESSAGE: a state that does not exist."""
    try:
        state = State(value.transaction_status)
    except ValueError:
        state = State.DEAD
    if state in (State.DEAD, State.PREPARE_EPOCH_FENCE):
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"Transaction status {value.transaction_status} cannot be in a log."
        )
    return TxnTransitMetadata(
        state=state,
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        partitions=value.transaction_partitions,
        start_timestamp_ms=value.transaction_start_timestamp_ms,
        last_update_timestamp_ms=value.transaction_last_update_timestamp_ms,
        client_transaction_version=value.client_transaction_version,
    )
