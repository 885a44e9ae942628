"""The replicas of one partition as its leader sees them: who they are, how far each is, who is in sync.

The deciding half of Kafka's ``Partition``: numbers in, decisions out. It knows neither the log nor the topic;
those are the caller's, who also gets a decided change of the ISR written.

Invariants:
- the ISR is a part of the assignment (I12);
- a follower that joins holds everything up to the high watermark and up to the start of the leader's epoch:
  below that start lies what earlier leaders may have committed (R6);
- a follower whose broker has restarted since it fetched does not join (KIP-903): what it told is not true
  any more.

**How far the leader's records are committed.** Kafka: ``Partition.maybeIncrementLeaderHW``; KIP-497 (maximal
ISR), KIP-966 (frozen below ``min.insync.replicas``).

The high watermark is the smallest log end of

- the leader,
- the members of the maximal ISR: any of them may be elected,
- followers that are caught up and may join: without waiting for them a leader that is alone in the ISR would
  run ahead of a follower that is always one batch behind, and never let it in.

Invariants: within a leader epoch it never falls (I3): a follower whose log end is below it, because it just
joined or lost its log, holds it where it is. It does not move while the committed ISR is smaller than the
effective ``min.insync.replicas``: what was committed by too few could be lost with them (R12). Nor does it
while a replica outside of the ISR is eligible: it may be elected, and has to hold all that is committed.

**One follower**: how far it has fetched, and since when it keeps up. Kafka: ``Replica`` and ``ReplicaState``;
KIP-16 (lag is a time, not a number of records).

A fetch at an offset says that the follower holds everything below. It is caught up at the time t when it
has fetched up to where the leader's log ended at t:

====================================================  ==================================
a fetch at an offset                                  makes the last caught-up time
====================================================  ==================================
not below the leader's log end now                    the time of this fetch
not below the leader's log end at the fetch before    the time of the fetch before
below both                                            stay as it was
====================================================  ==================================

The second row is for a busy partition: its log end is always ahead of a follower that keeps up perfectly.

Times are monotonic milliseconds, where Kafka takes the wall clock: setting a clock must not shrink an ISR.

**Which replica a consumer should read from** (KIP-392), asked by the leader for each of its fetches. Kafka:
``ReplicaSelector`` with ``RackAwareReplicaSelector`` and ``LeaderSelector``; the comparator of
``ReplicaView``.

**The ISR** (``IsrState``) as the leader knows it, and the one change of it under way. Kafka:
``PartitionState`` with ``CommittedPartitionState``, ``PendingExpandIsr`` and ``PendingShrinkIsr``; KIP-497
(what to assume while a change is in flight), KIP-903 (broker epochs).

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

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final
from uuid import UUID

from minikafka.errors import ConfigError, InvariantError
from minikafka.named_tuple import NamedTuple
from minikafka.types import NO_OFFSET, BrokerId, LeaderEpoch, Offset, TopicPartition

NEVER_MS: Final = -(2**62)
"""Before any time: the follower was not caught up since this leader leads."""

NO_BROKER_EPOCH: Final = -1
"""The follower did not say which incarnation of its broker it is (Fetch before version 15)."""

LiveBrokerEpoch = Callable[[BrokerId], int | None]
"""The registration epoch of a live broker, -1 when that is not known; None: it is not alive."""

NO_VERSION: Final = -1
"""Before the first LeaderAndIsr."""


def leader_high_watermark(
    current: Offset,
    *,
    log_end_offset: Offset,
    followers: Iterable[ReplicaProgress],
    isr: IsrState,
    effective_min_isr: int,
    may_join: Callable[[ReplicaProgress], bool],
    now_ms: int,
    lag_time_max_ms: int,
) -> Offset:
    """Where the high watermark is now, having been at ``current``; never below that.

    Args:
        followers: all replicas but the leader.
        may_join: whether the ISR could take the follower in: its broker is alive and the one that fetched.
    """
    if not isr.may_commit(effective_min_isr):
        return current
    committed = log_end_offset
    for follower in followers:
        if follower.log_end_offset < committed and is_waited_for(
            follower,
            leader_end_offset=log_end_offset,
            isr=isr,
            may_join=may_join,
            now_ms=now_ms,
            lag_time_max_ms=lag_time_max_ms,
        ):
            committed = follower.log_end_offset
    return max(current, committed)


def is_waited_for(
    follower: ReplicaProgress,
    *,
    leader_end_offset: Offset,
    isr: IsrState,
    may_join: Callable[[ReplicaProgress], bool],
    now_ms: int,
    lag_time_max_ms: int,
) -> bool:
    """Whether what ``follower`` has not got is not committed. It need not be in the ISR, see above."""
    return follower.broker_id in isr.maximal or (
        follower.is_caught_up(
            leader_end_offset=leader_end_offset, now_ms=now_ms, lag_time_max_ms=lag_time_max_ms
        )
        and may_join(follower)
    )


class ReplicaProgress:
    """One follower of one partition. Invariant: the last caught-up time never goes back between resets."""

    __slots__ = (
        "broker_epoch", "broker_id", "last_caught_up_ms", "last_fetch_leader_end_offset", "last_fetch_ms",
        "log_end_offset", "log_start_offset",
    )  # fmt: skip

    def __init__(self, broker_id: BrokerId) -> None:
        self.broker_id = broker_id
        self.log_end_offset = NO_OFFSET
        """-1 until it has fetched from this leader."""
        self.log_start_offset = NO_OFFSET
        self.last_caught_up_ms = NEVER_MS
        self.last_fetch_ms = NEVER_MS
        self.last_fetch_leader_end_offset = NO_OFFSET
        self.broker_epoch = NO_BROKER_EPOCH

    def __repr__(self) -> str:
        return (
            f"ReplicaProgress(broker {self.broker_id}, log_start={self.log_start_offset}, "
            f"log_end={self.log_end_offset}, last_caught_up_ms={self.last_caught_up_ms}, "
            f"last_fetch_ms={self.last_fetch_ms}, broker_epoch={self.broker_epoch})"
        )

    def fetched(
        self,
        *,
        fetch_offset: Offset,
        log_start_offset: Offset,
        leader_end_offset: Offset,
        now_ms: int,
        broker_epoch: int = NO_BROKER_EPOCH,
    ) -> None:
        """The follower fetched at ``fetch_offset`` when the leader's log ended at ``leader_end_offset``."""
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif fetch_offset >= self.last_fetch_leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.last_fetch_leader_end_offset = max(leader_end_offset, self.last_fetch_leader_end_offset)
        self.last_fetch_ms = now_ms
        self.broker_epoch = broker_epoch

    def leader_epoch_began(
        self, *, leader_end_offset: Offset, now_ms: int, was_leading: bool, is_in_sync: bool
    ) -> None:
        """This broker leads in a new epoch, and did or did not lead in the one before.

        A member of the ISR counts as caught up now, so that it has the whole lag time to fetch. Any other
        was never caught up, so that the high watermark does not wait for it.
        """
        self.last_caught_up_ms = now_ms if is_in_sync else NEVER_MS
        if was_leading:
            self.last_fetch_leader_end_offset = leader_end_offset
            self.last_fetch_ms = self.last_caught_up_ms
        else:
            self.log_end_offset = self.log_start_offset = NO_OFFSET
            self.last_fetch_leader_end_offset = NO_OFFSET
            self.last_fetch_ms = NEVER_MS
            self.broker_epoch = NO_BROKER_EPOCH

    def lag_text(self, leader_end_offset: Offset, now_ms: int) -> str:
        """How far it is behind, for people."""
        if self.last_caught_up_ms == NEVER_MS:
            since = "has not been caught up since this broker leads"
        else:
            since = f"was caught up {now_ms - self.last_caught_up_ms} ms ago"
        if self.log_end_offset == NO_OFFSET:
            return f"broker {self.broker_id} {since}, and has not fetched in this leader epoch"
        return f"broker {self.broker_id} {since}: at {self.log_end_offset} of {leader_end_offset}"

    def is_caught_up(self, *, leader_end_offset: Offset, now_ms: int, lag_time_max_ms: int) -> bool:
        """Whether it holds all that the leader has, or did so within the lag time."""
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_time_max_ms


class PartitionReplicas:
    """Assignment, follower progress and ISR. On a follower there is only the assignment."""

    __slots__ = ("_lag_time_max_ms", "_live_broker_epoch", "_node_id", "assignment", "followers", "isr")

    def __init__(
        self, node_id: BrokerId, *, live_broker_epoch: LiveBrokerEpoch, lag_time_max_ms: int
    ) -> None:
        self._node_id = node_id
        self._live_broker_epoch = live_broker_epoch
        self._lag_time_max_ms = lag_time_max_ms
        self.assignment: tuple[BrokerId, ...] = ()
        self.followers: dict[BrokerId, ReplicaProgress] = {}
        """All replicas but the leader, in the order of the assignment."""
        self.isr = IsrState()

    def __repr__(self) -> str:
        return f"PartitionReplicas({list(self.assignment)}, {self.isr!r}, {list(self.followers.values())})"

    # Leadership

    def begin_epoch(
        self,
        assignment: tuple[BrokerId, ...],
        isr: tuple[BrokerId, ...],
        version: int,
        *,
        eligible: tuple[BrokerId, ...] = (),
        log_end_offset: Offset,
        now_ms: int,
        was_leading: bool,
    ) -> None:
        """This broker leads in a new epoch, which begins at ``log_end_offset``."""
        self._assign(assignment)
        self.isr.begin(isr, version, eligible)
        for follower in self.followers.values():
            follower.leader_epoch_began(
                leader_end_offset=log_end_offset,
                now_ms=now_ms,
                was_leading=was_leading,
                is_in_sync=follower.broker_id in isr,
            )

    def update(
        self,
        assignment: tuple[BrokerId, ...],
        isr: tuple[BrokerId, ...],
        version: int,
        *,
        eligible: tuple[BrokerId, ...] = (),
    ) -> None:
        """This broker leads on in the same epoch. Progress stays."""
        self._assign(assignment)
        self.isr.adopt(isr, version, eligible)

    def follow(self, assignment: tuple[BrokerId, ...], version: int) -> None:
        """Another broker leads, or none: who is in sync is not known here."""
        self.assignment = assignment
        self.followers = {}
        self.isr.begin((), version)

    def _assign(self, assignment: tuple[BrokerId, ...]) -> None:
        known = self.followers
        self.assignment = assignment
        self.followers = {
            broker_id: known.get(broker_id) or ReplicaProgress(broker_id)
            for broker_id in assignment
            if broker_id != self._node_id
        }

    # Followers

    def is_of_earlier_broker(self, replica_id: BrokerId, broker_epoch: int) -> bool:
        """Whether a fetch with ``broker_epoch`` was sent by a broker that has restarted since."""
        live_epoch = self._live_broker_epoch(replica_id)
        return broker_epoch != NO_BROKER_EPOCH and live_epoch is not None and broker_epoch < live_epoch

    def may_join(self, follower: ReplicaProgress) -> bool:
        """Whether its broker is alive, and the one that fetched."""
        live_epoch = self._live_broker_epoch(follower.broker_id)
        return live_epoch is not None and (
            follower.broker_epoch in (live_epoch, NO_BROKER_EPOCH) or live_epoch == NO_BROKER_EPOCH
        )

    def isr_with(
        self, follower: ReplicaProgress, *, high_watermark: Offset, epoch_start_offset: Offset
    ) -> tuple[BrokerId, ...] | None:
        """The ISR with ``follower`` in it; None when it is in, may not join, or a change is in flight."""
        isr = self.isr
        if (
            isr.in_flight is not None
            or follower.broker_id in isr.committed
            or follower.log_end_offset < max(high_watermark, epoch_start_offset)
            or not self.may_join(follower)
        ):
            return None
        wanted = (*isr.committed, follower.broker_id)
        return tuple(member for member in self.assignment if member in wanted)

    def lagging(self, *, log_end_offset: Offset, now_ms: int) -> list[ReplicaProgress]:
        """The members of the ISR that were not caught up for the lag time; none while a change is in
        flight."""
        isr = self.isr
        if isr.in_flight is not None:
            return []
        return [
            follower
            for follower in self.followers.values()
            if follower.broker_id in isr.committed
            and not follower.is_caught_up(
                leader_end_offset=log_end_offset, now_ms=now_ms, lag_time_max_ms=self._lag_time_max_ms
            )
        ]

    def held_back_by(self, required_offset: Offset, *, now_ms: int) -> str:
        """For people: who of the ISR does not have all below ``required_offset``; else who had it last."""
        members = [each for each in self.followers.values() if each.broker_id in self.isr.maximal]
        lagging = [
            each.lag_text(required_offset, now_ms)
            for each in members
            if each.log_end_offset < required_offset
        ]
        if lagging:
            return "; ".join(lagging)
        last = max(members, key=lambda each: each.last_fetch_ms, default=None)
        return (
            "no follower is in the ISR any more" if last is None else f"broker {last.broker_id} had it last"
        )

    def broker_epochs(self, members: tuple[BrokerId, ...]) -> tuple[int, ...]:
        """With which broker epoch each of ``members`` fetched last."""
        followers = self.followers
        return tuple(
            followers[member].broker_epoch if member in followers else NO_BROKER_EPOCH for member in members
        )

    # Watermarks

    def high_watermark(
        self, current: Offset, *, log_end_offset: Offset, effective_min_isr: int, now_ms: int
    ) -> Offset:
        """See ``leader_high_watermark``."""
        return leader_high_watermark(
            current,
            log_end_offset=log_end_offset,
            followers=self.followers.values(),
            isr=self.isr,
            effective_min_isr=effective_min_isr,
            may_join=self.may_join,
            now_ms=now_ms,
            lag_time_max_ms=self._lag_time_max_ms,
        )

    def is_waited_for(self, broker_id: BrokerId, *, log_end_offset: Offset, now_ms: int) -> bool:
        """Whether the high watermark is not above what this follower has; False for who is none."""
        follower = self.followers.get(broker_id)
        return follower is not None and is_waited_for(
            follower,
            leader_end_offset=log_end_offset,
            isr=self.isr,
            may_join=self.may_join,
            now_ms=now_ms,
            lag_time_max_ms=self._lag_time_max_ms,
        )

    def low_watermark(self, log_start_offset: Offset) -> Offset:
        """The smallest log start of all live replicas, the leader's being ``log_start_offset``; -1 while one
        of them has not fetched yet."""
        return min(
            [log_start_offset]
            + [
                follower.log_start_offset
                for follower in self.followers.values()
                if self._live_broker_epoch(follower.broker_id) is not None
            ]
        )

    def validate(self) -> None:
        """Check the invariants. For tests. Raises InvariantError."""
        self.isr.validate()


class ReplicaView(NamedTuple):
    """A replica that has the record which the consumer wants."""

    broker_id: BrokerId
    rack: str | None
    log_end_offset: Offset
    lag_ms: int
    """How long ago it was last caught up; 0 for the leader."""


ReplicaSelector = Callable[[str, ReplicaView, Sequence[ReplicaView]], ReplicaView]
"""Rack of the consumer (empty when it did not say), the leader, the followers → one of them."""


def select_in_rack(rack: str, leader: ReplicaView, followers: Sequence[ReplicaView]) -> ReplicaView:
    """The leader if it is in the rack, else the follower there that is closest behind it, else the leader."""
    if not rack or leader.rack == rack:
        return leader
    near = [follower for follower in followers if follower.rack == rack]
    return max(near, key=_most_caught_up) if near else leader


def select_leader(rack: str, leader: ReplicaView, followers: Sequence[ReplicaView]) -> ReplicaView:
    """Always the leader."""
    return leader


def _most_caught_up(replica: ReplicaView) -> tuple[int, int, int]:
    return replica.log_end_offset, -replica.lag_ms, replica.broker_id


_SELECTORS: Final[dict[str, ReplicaSelector]] = {
    "org.apache.kafka.common.replica.RackAwareReplicaSelector": select_in_rack,
    "org.apache.kafka.common.replica.LeaderSelector": select_leader,
}


def replica_selector(class_name: str | None) -> ReplicaSelector | None:
    """The selector that ``replica.selector.class`` names; None: consumers are not sent elsewhere.

    Raises:
        ConfigError: there is no such selector.
    """
    if class_name is None:
        return None
    try:
        return _SELECTORS[class_name]
    except KeyError:
        raise ConfigError(
            f"replica.selector.class = {class_name}: this broker has {', '.join(_SELECTORS)}"
        ) from None


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
