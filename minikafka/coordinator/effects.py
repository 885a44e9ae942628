"""What a shard of a coordinator wants done, of groups and of transactions alike. ``server`` does it.

Every request, expired delay and outcome of something the shard wanted is one call of the shard; it changes
its state and returns effects, in the order in which they are to be carried out.

- ``Answer``: a request, this one or one that was parked, gets its answer.
- ``Append``: write records to the shard's partition of its topic with acks=-1, then tell the append what
  became of it: ``written`` when it is in the leader's log, ``committed`` when the high watermark has passed
  it, ``failed`` at whichever of the two did not happen.
- ``Park`` and ``Complete``: a delayed operation waits in a purgatory until it is completed or its time is
  up; then the shard's ``expired`` hears of it. Parking under the name of one that waits restarts its
  time.

A coordinator's own ``effects`` says which it has besides these, and what its operations are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from minikafka.errors import ErrorCode, KafkaError
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.records.records import EndTransactionMarker
from minikafka.types import NO_OFFSET

Record = TypeVar("Record")
Operation = TypeVar("Operation")
AnyEffect = TypeVar("AnyEffect")


class Ticket(Protocol):
    """Stands for a request that waits for its answer. Compared by identity."""


class Answer(NamedTuple):
    """``result`` is a struct of the coordinator's ``messages``, or why there is none."""

    ticket: Ticket
    result: Any | KafkaError


class BatchOfTransaction(NamedTuple):
    """What makes a batch part of a producer's transaction, or its end."""

    producer_id: int
    producer_epoch: int
    verification_guard: object = None
    """Of the check that lets the transaction begin in this partition (KIP-890)."""
    marker: EndTransactionMarker | None = None
    """The batch is this, and no records."""
    transaction_version: int = -1
    """Of a marker; -1: its coordinator has not told."""


class Append(Generic[Record, AnyEffect]):
    """Records to be written together, in one batch. Subclasses say what follows; each is called once, and
    ``committed`` or ``failed`` is the last. Only when a bug has ended one of these, and with it the shard,
    ``failed`` is called once more, and of what it wants done only the answers are given."""

    __slots__ = ("end_offset", "records", "timeout_ms", "transaction")

    def __init__(
        self,
        records: Sequence[Record],
        *,
        timeout_ms: int | None = None,
        transaction: BatchOfTransaction | None = None,
    ) -> None:
        """``timeout_ms``: how long the high watermark may take to pass it; None: as long as the shell
        allows."""
        self.records = tuple(records)
        self.timeout_ms = timeout_ms
        self.transaction = transaction
        self.end_offset = NO_OFFSET
        """Behind the last record; known when ``written`` is called."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.records!r})"

    def written(self, now_ms: int) -> list[AnyEffect]:
        return []

    def committed(self, now_ms: int) -> list[AnyEffect]:
        return []

    def failed(self, error: KafkaError, now_ms: int) -> list[AnyEffect]:
        """``error`` is what the log said; see ``coordinator_error`` for what clients are told."""
        return []


class Park(NamedTuple, Generic[Operation]):
    operation: Operation
    timeout_ms: int


class Complete(NamedTuple, Generic[Operation]):
    """What ``operation`` waited for has happened. Nothing, if it does not wait."""

    operation: Operation


def coordinator_error(error: KafkaError) -> KafkaError:
    """What a client is told when an append failed with ``error`` (``CoordinatorOperationExceptionHelper``,
    ``TransactionStateManager.appendTransactionToLog``): errors of a log become errors of a coordinator."""
    match error.code:
        case (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode.NOT_ENOUGH_REPLICAS
            | ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            | ErrorCode.REQUEST_TIMED_OUT
        ):
            return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR:
            return KafkaError(ErrorCode.NOT_COORDINATOR, error.message)
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE | ErrorCode.INVALID_FETCH_SIZE:
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, error.message)
        case _:
            return error
