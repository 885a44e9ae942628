"""What a shard of the group coordinator wants done, see ``coordinator.effects``; ``server`` does it.

State that must equal the log changes in an append's ``written``, never before: an append that is refused has
changed nothing. What clients may see before it is safe changes in ``committed`` (KAFKA_BEHAVIOUR: a committed
offset). What waits is a join, a sync, a heartbeat or a revocation.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from minikafka.coordinator import effects
from minikafka.coordinator.effects import Answer as Answer
from minikafka.coordinator.effects import Complete as Complete
from minikafka.coordinator.effects import Park as Park
from minikafka.coordinator.effects import Ticket as Ticket
from minikafka.coordinator.effects import coordinator_error as coordinator_error
from minikafka.protocol.internal.group_records import GroupRecord


class Append(effects.Append[GroupRecord, "Effect"]):
    """Records of groups; see there."""

    __slots__ = ()


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


Effect = Answer | Append | Park[GroupOperation] | Complete[GroupOperation]
Effects = list[Effect]
