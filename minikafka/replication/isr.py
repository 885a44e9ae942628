"""The in-sync replicas of a partition as its leader knows them, and the one change of them under way.

Kafka: ``PartitionState`` with ``CommittedPartitionState``, ``PendingExpandIsr`` and ``PendingShrinkIsr``;
KIP-497 (what to assume while a change is in flight), KIP-903 (broker epochs).

The ISR belongs to the cluster's store. A leader proposes a change of it as a write that expects the version
it knows, and until it has learned what became of the write it must be right either way:

- an added member may be in the ISR already, so the *maximal* ISR has it: the high watermark waits for it;
- a removed member may still be in the ISR, so the maximal ISR has it too.

=================  ========================================================  ==================
phase              ends with                                                 to
=================  ========================================================  ==================
COMMITTED          ``propose`` one member more                               PENDING_EXPAND
COMMITTED          ``propose`` fewer members                                 PENDING_SHRINK
COMMITTED          ``propose`` the same members, none eligible               PENDING_CLEAR
PENDING_…          written, or read again (``resolve``)                      COMMITTED
PENDING_…          refused (``resolve``)                                     stays: the leader is deposed
PENDING_…          a LeaderAndIsr with a newer version (``adopt``)           COMMITTED
any                a new leader epoch (``begin``)                            COMMITTED
=================  ========================================================  ==================

**Eligible leader replicas** (KIP-966) are out of the ISR and may be elected all the same, because nothing was
committed without them while the ISR was smaller than min.insync.replicas. The leader keeps that promise: once
its ISR is large enough, because the minimum was lowered or its own configuration says less than the
controller's, it commits nothing (``may_commit``) until the store says that no replica is eligible any more.
So whatever is eligible in the store holds all that is committed, whichever configuration came in between, and
whether or not a controller has seen it.

Invariants: at most one change is in flight; the ISR is a part of the maximal ISR; the version never goes back
within a leader epoch.

Differs from Kafka: a LeaderAndIsr of the same leader epoch that knows no newer version than the leader does
leaves the change in flight alone. It may have been written already, and the high watermark must not forget
the member that it adds (KAFKA-8836).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final
from uuid import UUID

from minikafka.errors import InvariantError
from minikafka.named_tuple import NamedTuple
from minikafka.types import BrokerId, LeaderEpoch, TopicPartition

NO_VERSION: Final = -1
"""Before the first LeaderAndIsr."""


class IsrChange(NamedTuple):
    """A wanted ISR: what the leader asks to be written into the partition's state node."""

    topic_partition: TopicPartition
    topic_id: UUID
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    """In the order of the assignment."""
    expected_version: int
    """Of the state node, the partition epoch: the write must fail at any other."""
    controller_epoch: int
    """What the partition was told last; goes into the node unchanged."""
    min_isr: int
    """The effective ``min.insync.replicas``: below it those who leave stay eligible (KIP-966)."""
    broker_epochs: tuple[int, ...] = ()
    """For each of ``isr`` the broker epoch with which it fetched, -1 where that is not known. A broker that
    is registered with another epoch has restarted since and may have lost its log: such a change must not
    be written (KIP-903)."""
    cause: str = ""
    """Why it is wanted, for people. Written nowhere but to the flight recorder."""


class IsrWritten(NamedTuple):
    """The change is in the store, now or since a try whose answer was lost."""

    version: int
    isr: tuple[BrokerId, ...]
    eligible: tuple[BrokerId, ...] = ()


class IsrRefused(NamedTuple):
    """Never: a newer leader epoch is in the store, or the topic is gone. The controller will tell."""

    reason: str


class IsrReread(NamedTuple):
    """The change was not written and never will be; this is what the store has for the same leader epoch.

    Either its version is newer than the change expected, or the writer declined the change itself: a broker
    that it adds has restarted.
    """

    isr: tuple[BrokerId, ...]
    version: int
    eligible: tuple[BrokerId, ...] = ()


IsrOutcome = IsrWritten | IsrRefused | IsrReread


class IsrPhase(Enum):
    """See the module header."""

    COMMITTED = "committed"
    PENDING_EXPAND = "pending expand"
    PENDING_SHRINK = "pending shrink"
    PENDING_CLEAR = "pending clear"


_TRANSITIONS: Final = {
    IsrPhase.COMMITTED: tuple(IsrPhase),
    IsrPhase.PENDING_EXPAND: (IsrPhase.COMMITTED,),
    IsrPhase.PENDING_SHRINK: (IsrPhase.COMMITTED,),
    IsrPhase.PENDING_CLEAR: (IsrPhase.COMMITTED,),
}


class IsrState:
    """The ISR of one partition. ``committed`` and ``maximal`` are read for every append."""

    __slots__ = ("committed", "eligible", "in_flight", "maximal", "phase", "version")

    def __init__(self) -> None:
        self.phase = IsrPhase.COMMITTED
        self.committed: tuple[BrokerId, ...] = ()
        self.maximal: tuple[BrokerId, ...] = ()
        """``committed`` and what the change in flight adds."""
        self.eligible: tuple[BrokerId, ...] = ()
        """Who may be elected although it is not in ``committed``."""
        self.version = NO_VERSION
        """The partition epoch: the state node's version when it said ``committed``."""
        self.in_flight: IsrChange | None = None

    def __repr__(self) -> str:
        pending = "" if self.in_flight is None else f", {self.phase.value} to {list(self.in_flight.isr)}"
        eligible = f", eligible={list(self.eligible)}" if self.eligible else ""
        return f"IsrState({list(self.committed)}{eligible}, version={self.version}{pending})"

    def begin(self, isr: Iterable[BrokerId], version: int, eligible: Iterable[BrokerId] = ()) -> None:
        """A new leader epoch. No change of an earlier one can be written any more."""
        self._commit(tuple(isr), version, tuple(eligible))

    def adopt(self, isr: Iterable[BrokerId], version: int, eligible: Iterable[BrokerId] = ()) -> None:
        """A LeaderAndIsr of the same leader epoch whose version is not older; news if it is newer."""
        if version > self.version or self.in_flight is None:
            self._commit(tuple(isr), version, tuple(eligible))

    def may_commit(self, effective_min_isr: int) -> bool:
        """Whether the high watermark may move: enough replicas are in sync, no other may be elected."""
        return len(self.committed) >= effective_min_isr and not self.eligible

    def has_outdated_eligible(self, effective_min_isr: int) -> bool:
        """Whether a replica is eligible and should not be, with this ``min.insync.replicas``."""
        return bool(self.eligible) and len(self.committed) >= effective_min_isr

    def propose(self, change: IsrChange) -> IsrChange:
        """``change`` is being written from now on.

        Raises:
            InvariantError: another is in flight, or it changes nothing, or adds and removes members.
        """
        added = [member for member in change.isr if member not in self.committed]
        removed = [member for member in self.committed if member not in change.isr]
        match bool(added), bool(removed):
            case True, False:
                phase = IsrPhase.PENDING_EXPAND
            case False, True:
                phase = IsrPhase.PENDING_SHRINK
            case False, False if self.has_outdated_eligible(change.min_isr):
                phase = IsrPhase.PENDING_CLEAR
            case _:
                raise InvariantError(f"{self!r} cannot become {change}")
        if change.expected_version != self.version:
            raise InvariantError(f"{self!r} cannot become {change}")
        self._transition(phase)
        self.in_flight = change
        self.maximal = (*self.committed, *added)
        return change

    def resolve(self, change: IsrChange, outcome: IsrOutcome) -> bool:
        """What became of ``change``. Returns whether ``committed`` is news from the store.

        Nothing happens when LeaderAndIsr was faster than the answer, or when the change was refused: then the
        maximal ISR must stay what it is.
        """
        if change != self.in_flight or isinstance(outcome, IsrRefused) or outcome.version < self.version:
            return False
        self._commit(outcome.isr, outcome.version, outcome.eligible)
        return True

    def _commit(self, isr: tuple[BrokerId, ...], version: int, eligible: tuple[BrokerId, ...]) -> None:
        self._transition(IsrPhase.COMMITTED)
        self.in_flight = None
        self.committed = self.maximal = isr
        self.eligible = eligible
        self.version = version

    def _transition(self, phase: IsrPhase) -> None:
        if phase not in _TRANSITIONS[self.phase]:
            raise InvariantError(f"{self!r} cannot become {phase.value}")
        self.phase = phase

    def validate(self) -> None:
        """Check the invariants. For tests. Raises InvariantError."""
        is_pending = self.phase is not IsrPhase.COMMITTED
        if is_pending != (self.in_flight is not None):
            raise InvariantError(f"{self!r}: in flight is {self.in_flight}")
        if not set(self.committed) <= set(self.maximal):
            raise InvariantError(f"{self!r}: the maximal ISR is {self.maximal}")
        if not is_pending and self.committed != self.maximal:
            raise InvariantError(f"{self!r}: nothing is in flight, but the maximal ISR is {self.maximal}")
        if len(set(self.maximal)) < len(self.maximal):
            raise InvariantError(f"{self!r}: a member twice in {self.maximal}")
