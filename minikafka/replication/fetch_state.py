"""How far a follower is, and where it cuts its log.

**How far it is** with each of its partitions, and which of them it may fetch now. Pure. Kafka:
``PartitionFetchState``, ``ReplicaState``, ``PartitionStates`` and the bookkeeping of
``AbstractFetcherThread``; KIP-595 (truncation on fetch).

States of a partition:

=============  =============  ============  ========================================================
state          event          next state    when
=============  =============  ============  ========================================================
none           added          FETCHING      its log knows a leader epoch: the leader's answer to the
                                            first fetch says where the two logs part, if they do
none           added          TRUNCATING    its log knows no epoch, so nothing is sure: what lies above
                                            the high watermark goes first
TRUNCATING     TRUNCATED      FETCHING      cut back to the high watermark
FETCHING       TRUNCATED      FETCHING      it diverged from the leader, or was out of its range
FETCHING       FETCHED        FETCHING      the leader's answer was taken
=============  =============  ============  ========================================================

Beside that a partition may be *delayed* after an error: it is paused until a time and then resumes where it
was. A partition that failed is removed; only a new leadership adds it again.

Invariants:
- A state is a value. To know whether a partition was touched during a wait, compare states with
  ``is``.
- Nothing here is looked through as a whole: a round costs what has changed, not what there is.

Differs from Kafka: the time at which a delay ends is looked at in one place (``take_changed``), so a
partition counts as delayed until the fetcher has seen that it is over.

**Where it cuts its log** so that it is a prefix of its leader's (I8). Pure: numbers in, a place out. Kafka:
``AbstractFetcherThread.getOffsetTruncationState`` and ``fetchOffsetAndTruncate``, ``OffsetTruncationState``;
KIP-101 (epochs instead of the high watermark), KIP-279 (more than one unclean election), KIP-595 (the leader
says in its Fetch answer that the logs part).

The dialogue. A fetch names the latest epoch of the follower's log. The leader looks up the largest epoch it
knows up to that one, and where it ended. When that epoch is smaller or ended before the fetch offset, the
logs part, and it answers both numbers instead of records. The follower cuts (``truncation_point``) and
fetches again. When it does not know the leader's epoch it has cut only the epochs above, and the next answer
names a smaller one; so the dialogue ends after at most as many rounds as the follower has epochs.

Invariants:
- The cut is never above the log end and never below what both logs have in common.
- The high watermark plays no part unless the leader knows nothing of the epoch: a cut to it would lose
  records that are committed, but not yet known to be so (KIP-101).

Left out: the answer of protocol versions without an epoch, which no supported version gives.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from heapq import heappop, heappush
from uuid import UUID

from minikafka.errors import InvariantError
from minikafka.named_tuple import NamedTuple
from minikafka.types import NO_EPOCH, NO_OFFSET, LeaderEpoch, Offset, TopicPartition


class ReplicaState(Enum):
    """What has to be done with a follower's log next."""

    TRUNCATING = auto()
    FETCHING = auto()


class FetchEvent(Enum):
    """What can happen to it."""

    TRUNCATED = auto()
    FETCHED = auto()


TRANSITIONS = {
    (ReplicaState.TRUNCATING, FetchEvent.TRUNCATED): ReplicaState.FETCHING,
    (ReplicaState.FETCHING, FetchEvent.TRUNCATED): ReplicaState.FETCHING,
    (ReplicaState.FETCHING, FetchEvent.FETCHED): ReplicaState.FETCHING,
}


class PartitionFetchState(NamedTuple):
    """How far one partition is. Made by ``initial``, replaced by what its methods return."""

    topic_id: UUID
    fetch_offset: Offset
    """The follower's log end: what it fetches next."""
    current_leader_epoch: LeaderEpoch
    """Of the leadership that it follows."""
    last_fetched_epoch: LeaderEpoch
    """The latest epoch in its log; -1 when there is none."""
    state: ReplicaState
    lag: int | None = None
    """Offsets between the leader's high watermark and the log end; None before the first answer."""
    delayed_until_ms: int | None = None
    """On the monotonic clock; None while it is not delayed."""

    @classmethod
    def initial(
        cls,
        topic_id: UUID,
        *,
        fetch_offset: Offset,
        current_leader_epoch: LeaderEpoch,
        latest_epoch: LeaderEpoch,
    ) -> PartitionFetchState:
        """A partition that begins to follow a leader at ``current_leader_epoch``."""
        state = ReplicaState.TRUNCATING if latest_epoch == NO_EPOCH else ReplicaState.FETCHING
        return cls(topic_id, fetch_offset, current_leader_epoch, latest_epoch, state)

    @property
    def is_ready_for_fetch(self) -> bool:
        return self.state is ReplicaState.FETCHING and self.delayed_until_ms is None

    @property
    def is_truncating(self) -> bool:
        return self.state is ReplicaState.TRUNCATING and self.delayed_until_ms is None

    @property
    def is_in_sync(self) -> bool:
        """Whether it holds all that was committed on the leader, as of the last answer
        (``isReplicaInSync``)."""
        return self.lag is not None and self.lag <= 0

    def truncated(self, *, fetch_offset: Offset, last_fetched_epoch: LeaderEpoch) -> PartitionFetchState:
        """The log was cut and ends at ``fetch_offset`` now."""
        return self._after(FetchEvent.TRUNCATED, fetch_offset, last_fetched_epoch, self.lag)

    def fetched(
        self, *, fetch_offset: Offset, last_fetched_epoch: LeaderEpoch, lag: int
    ) -> PartitionFetchState:
        """An answer of the leader was taken, with records or without; the log ends at ``fetch_offset``."""
        return self._after(FetchEvent.FETCHED, fetch_offset, last_fetched_epoch, lag)

    def _after(
        self, event: FetchEvent, fetch_offset: Offset, last_fetched_epoch: LeaderEpoch, lag: int | None
    ) -> PartitionFetchState:
        state = TRANSITIONS.get((self.state, event))
        if state is None or self.delayed_until_ms is not None:
            raise InvariantError(f"{self} cannot be {event.name}")
        return PartitionFetchState(
            self.topic_id, fetch_offset, self.current_leader_epoch, last_fetched_epoch, state, lag
        )


class FetchStates:
    """The partitions of one fetcher."""

    def __init__(self) -> None:
        self._states: dict[TopicPartition, PartitionFetchState] = {}
        self._changed: dict[TopicPartition, None] = {}
        self._due: list[tuple[int, TopicPartition]] = []
        """A heap of when delays end; with those that are over already, or were replaced."""

    def __repr__(self) -> str:
        return f"FetchStates({len(self._states)} partitions, up to {len(self._due)} delayed)"

    def __len__(self) -> int:
        return len(self._states)

    def get(self, topic_partition: TopicPartition) -> PartitionFetchState | None:
        return self._states.get(topic_partition)

    def items(self) -> list[tuple[TopicPartition, PartitionFetchState]]:
        return list(self._states.items())

    @property
    def next_due_ms(self) -> int | None:
        """When the first delay ends; None when nothing is delayed."""
        while self._due:
            due_ms, topic_partition = self._due[0]
            state = self._states.get(topic_partition)
            if state is not None and state.delayed_until_ms == due_ms:
                return due_ms
            heappop(self._due)
        return None

    def put(self, topic_partition: TopicPartition, state: PartitionFetchState) -> None:
        """Add a partition or replace its state."""
        if state.delayed_until_ms is not None:
            heappush(self._due, (state.delayed_until_ms, topic_partition))
        self._states[topic_partition] = state
        self._changed[topic_partition] = None

    def remove(self, topic_partition: TopicPartition) -> PartitionFetchState | None:
        """Forget a partition; an unknown one is fine."""
        self._changed.pop(topic_partition, None)
        return self._states.pop(topic_partition, None)

    def delay(self, topic_partition: TopicPartition, until_ms: int) -> None:
        """Pause a partition. One that is gone, or is paused already, stays as it is."""
        state = self._states.get(topic_partition)
        if state is not None and state.delayed_until_ms is None:
            self.put(topic_partition, state._replace(delayed_until_ms=until_ms))

    def touch(self, topic_partition: TopicPartition) -> None:
        """Look at a partition again although its state is as it was; an unknown one is fine."""
        if topic_partition in self._states:
            self._changed[topic_partition] = None

    def take_changed(self, now_ms: int) -> list[tuple[TopicPartition, PartitionFetchState]]:
        """End the delays that are over; what is new, changed or was touched since the last call, with its
        state."""
        while (due_ms := self.next_due_ms) is not None and due_ms <= now_ms:
            _, topic_partition = heappop(self._due)
            self.put(topic_partition, self._states[topic_partition]._replace(delayed_until_ms=None))
        changed, self._changed = self._changed, {}
        return [(topic_partition, self._states[topic_partition]) for topic_partition in changed]

    def validate(self) -> None:
        """For tests. Raises InvariantError when the parts do not agree."""
        due = set(self._due)
        for each, state in self._states.items():
            if state.delayed_until_ms is not None and (state.delayed_until_ms, each) not in due:
                raise InvariantError(f"{self!r} never ends the delay of {each}: {state}")
        if not self._changed.keys() <= self._states.keys():
            raise InvariantError(f"{self!r} knows changes of partitions that are gone")


class OffsetTruncationState(NamedTuple):
    """Where to cut, and whether the logs agree up to there."""

    offset: Offset
    is_complete: bool
    """False: the leader has to be asked again, for an epoch that the follower knows."""


def truncation_point(
    *,
    leader_epoch: LeaderEpoch,
    leader_end_offset: Offset,
    log_end_offset: Offset,
    high_watermark: Offset,
    end_offset_for_epoch: Callable[[LeaderEpoch], tuple[LeaderEpoch, Offset]],
) -> OffsetTruncationState:
    """Where to cut after the leader answered that ``leader_epoch`` ends at ``leader_end_offset`` in its log.

    Args:
        leader_end_offset: -1 when the leader knows no such epoch.
        log_end_offset, high_watermark: the follower's.
        end_offset_for_epoch: the follower's largest epoch up to the given one, and its end; -1 and -1 when
            there is none.
    """
    if leader_end_offset == NO_OFFSET:
        return OffsetTruncationState(min(high_watermark, log_end_offset), True)
    epoch, end_offset = end_offset_for_epoch(leader_epoch)
    if end_offset == NO_OFFSET:
        # The follower has no epoch as early as that, the leader has none between it and the follower's first.
        return OffsetTruncationState(min(leader_end_offset, log_end_offset), True)
    if epoch != leader_epoch:
        return OffsetTruncationState(min(end_offset, log_end_offset), False)
    return OffsetTruncationState(min(leader_end_offset, end_offset, log_end_offset), True)


class ResetAction(Enum):
    """What a follower does whose log end lies outside of its leader's log."""

    TRUNCATE = auto()
    """Cut to the leader's end: it was elected uncleanly and has less."""
    START_OVER = auto()
    """Drop everything and begin at the leader's start: the leader has deleted what the follower needs."""
    KEEP = auto()
    """The leader's log has moved meanwhile, the follower's end lies within it; fetch again."""


class OffsetReset(NamedTuple):
    """An action, and where the log ends after it."""

    action: ResetAction
    offset: Offset


def reset_out_of_range(
    *, leader_start_offset: Offset, leader_end_offset: Offset, log_end_offset: Offset
) -> OffsetReset:
    """What to do after OFFSET_OUT_OF_RANGE, given the leader's bounds and the follower's log end."""
    if leader_end_offset < log_end_offset:
        return OffsetReset(ResetAction.TRUNCATE, leader_end_offset)
    if leader_start_offset > log_end_offset:
        return OffsetReset(ResetAction.START_OVER, leader_start_offset)
    return OffsetReset(ResetAction.KEEP, log_end_offset)
