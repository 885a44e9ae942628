"""How far a leader's records are committed.

Kafka: ``Partition.maybeIncrementLeaderHW``; KIP-497 (maximal ISR), KIP-966 (frozen below
``min.insync.replicas``).

The high watermark is the smallest log end of

- the leader,
- the members of the maximal ISR: any of them may be elected,
- followers that are caught up and may join: without waiting for them a leader that is alone in the ISR would
  run ahead of a follower that is always one batch behind, and never let it in.

Invariants: within a leader epoch it never falls (I3): a follower whose log end is below it, because it just
joined or lost its log, holds it where it is. It does not move while the committed ISR is smaller than the
effective ``min.insync.replicas``: what was committed by too few could be lost with them (R12). Nor does it
while somebody outside of the ISR is eligible: it may be elected, and has to hold all that is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from minikafka.replication.isr import IsrState
from minikafka.replication.replica_progress import ReplicaProgress
from minikafka.types import Offset


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
