"""The states of partitions and replicas as the controller sees them, and from which each may be reached.

Kafka: ``PartitionState`` and ``ReplicaState`` with their ``validPreviousStates``. They are called status
here, because ``PartitionState`` is what the store has about a partition: its leader, epoch and ISR.

A partition's status::

    NON_EXISTENT   never created, or its deletion has begun
    NEW            it has an assignment, but has had no leader yet
    ONLINE         it has a leader
    OFFLINE        its leader is gone, and no other could be elected so far

A replica's status::

    NEW                   part of a partition that is being created, or that is being reassigned to it
    ONLINE                on a live broker, which knows what the partition's leader is
    OFFLINE               its broker is dead, shuts down or has lost the log; or it is about to be deleted
    DELETION_STARTED      its broker was told to delete it, with its topic or because it was reassigned away
    DELETION_SUCCESSFUL   its broker has deleted it
    DELETION_INELIGIBLE   it cannot be deleted at the moment: the broker is dead, or could not do it
    NON_EXISTENT          before NEW, and after its deletion
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from enum import Enum
from types import MappingProxyType

import msgspec

_log = logging.getLogger(__name__)

FAILURES_LOGGED_MAX = 5
"""Of one change. A broker that dies may take thousands of leaders with it."""


class PartitionStatus(Enum):
    """See the module header."""

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


class ReplicaStatus(Enum):
    """See the module header."""

    NON_EXISTENT = "NonExistentReplica"
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"


PARTITION_PREDECESSORS: Mapping[PartitionStatus, frozenset[PartitionStatus]] = MappingProxyType(
    {
        PartitionStatus.NON_EXISTENT: frozenset({PartitionStatus.OFFLINE}),
        PartitionStatus.NEW: frozenset({PartitionStatus.NON_EXISTENT}),
        PartitionStatus.ONLINE: frozenset(
            {PartitionStatus.NEW, PartitionStatus.ONLINE, PartitionStatus.OFFLINE}
        ),
        PartitionStatus.OFFLINE: frozenset(
            {PartitionStatus.NEW, PartitionStatus.ONLINE, PartitionStatus.OFFLINE}
        ),
    }
)

_MOVABLE = frozenset(
    {
        ReplicaStatus.NEW,
        ReplicaStatus.ONLINE,
        ReplicaStatus.OFFLINE,
        ReplicaStatus.DELETION_INELIGIBLE,
    }
)

REPLICA_PREDECESSORS: Mapping[ReplicaStatus, frozenset[ReplicaStatus]] = MappingProxyType(
    {
        ReplicaStatus.NON_EXISTENT: frozenset({ReplicaStatus.DELETION_SUCCESSFUL}),
        ReplicaStatus.NEW: frozenset({ReplicaStatus.NON_EXISTENT}),
        ReplicaStatus.ONLINE: _MOVABLE,
        ReplicaStatus.OFFLINE: _MOVABLE,
        ReplicaStatus.DELETION_STARTED: frozenset({ReplicaStatus.OFFLINE}),
        ReplicaStatus.DELETION_SUCCESSFUL: frozenset({ReplicaStatus.DELETION_STARTED}),
        ReplicaStatus.DELETION_INELIGIBLE: frozenset({ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_STARTED}),
    }
)


class StateChangeFailed(msgspec.Struct, frozen=True):
    """A partition or replica that stays what it was (``StateChangeFailedException``): the others go on."""

    what: str
    target: PartitionStatus | ReplicaStatus
    why: str

    def __str__(self) -> str:
        return f"{self.what} does not become {self.target.value}: {self.why}"


def log_failures(failures: Sequence[StateChangeFailed], *, controller_epoch: int) -> None:
    """One line for all failures of one change: they often have the same cause."""
    if not failures:
        return
    first = "; ".join(str(failure) for failure in failures[:FAILURES_LOGGED_MAX])
    more = len(failures) - FAILURES_LOGGED_MAX
    _log.warning("controller of epoch %d: %s%s", controller_epoch, first, f"; and {more} more" * (more > 0))
