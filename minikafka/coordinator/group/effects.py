"""What a shard of the group coordinator wants done. ``server.group_service`` does it.

Every request, expired delay and outcome of an append is one call of ``GroupShard``; it changes the groups and
returns effects, in the order in which they are to be carried out.

- ``Answer``: a request, this one or one that was parked, gets its answer.
- ``Append``: write records to the shard's partition of ``__consumer_offsets`` with acks=-1, then tell the
  append what became of it: ``written`` when it is in the leader's log, ``committed`` when the high watermark
  has passed it, ``failed`` at whichever of the two did not happen. State that must equal the log changes in
  ``written``, never before: an append that is refused has changed nothing. What clients may see before it is
  safe changes in ``committed`` (KAFKA_BEHAVIOUR: a committed offset).
- ``Park`` and ``Complete``: a delayed operation (a join, a sync, a heartbeat, a revocation) waits in a
  purgatory until it is completed or its time is up; then ``GroupShard.expired`` hears of it. Parking under
  the name of one that waits lets its time begin anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_records import GroupRecord


class Ticket(Protocol):
    """Stands for a request that waits for its answer. Compared by identity."""


class Answer(NamedTuple):
    """``result`` is a struct of ``messages``, or why there is none."""

    ticket: Ticket
    result: Any | KafkaError


class Append:
    """Records to be written together, in one batch. Subclasses say what follows; each is called once, and
    ``committed`` or ``failed`` is the last. Only when a bug has ended one of these, and with it the shard,
    ``failed`` is called once more, and of what it wants done only the answers are given."""

    __slots__ = ("records",)

    def __init__(self, records: Sequence[GroupRecord]) -> None:
        self.records = tuple(records)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.records!r})"

    def written(self, now_ms: int) -> list[Effect]:
        return []

    def committed(self, now_ms: int) -> list[Effect]:
        return []

    def failed(self, error: KafkaError, now_ms: int) -> list[Effect]:
        """``error`` is what the log said; see ``coordinator_error`` for what clients are told."""
        return []


class OperationKind(Enum):
    """What waits. JOIN, SYNC and NEW_MEMBER are Kafka's DelayedRebalance, SESSION its DelayedHeartbeat."""

    JOIN = "join"
    """A group prepares a rebalance until all members have joined again; ``member_id`` is empty."""
    SYNC = "sync"
    """A group waits until all members have synced (KIP-394's pending syncs); ``member_id`` is empty."""
    NEW_MEMBER = "new-member"
    """An id was given out that has not joined yet (KIP-394)."""
    SESSION = "session"
    """A member must be heard of."""
    REVOCATION = "revocation"
    """A member of a KIP-848 group must give partitions back within its rebalance timeout."""


class GroupOperation(NamedTuple):
    """The name of a delayed operation."""

    kind: OperationKind
    group_id: str
    member_id: str = ""


class Park(NamedTuple):
    operation: GroupOperation
    timeout_ms: int


class Complete(NamedTuple):
    """What ``operation`` waited for has happened. Nothing, if it does not wait."""

    operation: GroupOperation


Effect = Answer | Append | Park | Complete
Effects = list[Effect]


def coordinator_error(error: KafkaError) -> KafkaError:
    """What a client is told when an append to ``__consumer_offsets`` failed with ``error``
    (``CoordinatorOperationExceptionHelper``): errors of a log become errors of a coordinator."""
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
