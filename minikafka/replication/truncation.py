"""Where a follower cuts its log so that it is a prefix of its leader's (I8). Pure: numbers in, a place out.

Kafka: ``AbstractFetcherThread.getOffsetTruncationState`` and ``fetchOffsetAndTruncate``,
``OffsetTruncationState``; KIP-101 (epochs instead of the high watermark), KIP-279 (more than one unclean
election), KIP-595 (the leader says in its Fetch answer that the logs part).

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
from typing import NamedTuple

from minikafka.types import NO_OFFSET, LeaderEpoch, Offset


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
