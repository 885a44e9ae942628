"""Committed is what every replica has that may be elected, and some that may soon be."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from minikafka.replication.partition_replicas import (
    NEVER_MS,
    IsrChange,
    IsrState,
    ReplicaProgress,
    leader_high_watermark,
)
from minikafka.types import BrokerId, LeaderEpoch, Offset, TopicPartition

LAG_MS = 1000
NOW_MS = 10_000


def follower(broker_id: int, log_end: int, *, caught_up_ms: int = NEVER_MS) -> ReplicaProgress:
    progress = ReplicaProgress(BrokerId(broker_id))
    progress.log_end_offset = Offset(log_end)
    progress.last_caught_up_ms = caught_up_ms
    return progress


def isr_of(*members: int, proposed: tuple[int, ...] = ()) -> IsrState:
    state = IsrState()
    state.begin(map(BrokerId, members), 1)
    if proposed:
        wanted = tuple(map(BrokerId, proposed))
        state.propose(IsrChange(TopicPartition("t", 0), UUID(int=1), LeaderEpoch(0), wanted, 1, 1, 1))
    return state


def high_watermark(
    isr: IsrState,
    *followers: ReplicaProgress,
    current: int = 0,
    log_end: int = 100,
    min_isr: int = 1,
    may_join: bool = True,
) -> int:
    return leader_high_watermark(
        Offset(current),
        log_end_offset=Offset(log_end),
        followers=followers,
        isr=isr,
        effective_min_isr=min_isr,
        may_join=lambda _: may_join,
        now_ms=NOW_MS,
        lag_time_max_ms=LAG_MS,
    )


def test_it_is_the_smallest_log_end_in_the_isr() -> None:
    followers = follower(2, 80), follower(3, 30)
    assert high_watermark(isr_of(1, 2, 3), *followers) == 30
    assert high_watermark(isr_of(1, 2), *followers) == 80
    assert high_watermark(isr_of(1), *followers) == 100


def test_it_waits_for_members_that_are_being_added_or_removed() -> None:
    followers = follower(2, 80), follower(3, 30)
    assert high_watermark(isr_of(1, 2, proposed=(1, 2, 3)), *followers) == 30
    assert high_watermark(isr_of(1, 2, 3, proposed=(1, 2)), *followers) == 30


def test_it_waits_for_a_follower_that_is_about_to_join() -> None:
    near, far = follower(2, 90, caught_up_ms=9_500), follower(2, 90, caught_up_ms=8_999)
    assert high_watermark(isr_of(1), near) == 90
    assert high_watermark(isr_of(1), near, may_join=False) == 100, "its broker is dead or another by now"
    assert high_watermark(isr_of(1), far) == 100


def test_it_never_falls() -> None:
    assert high_watermark(isr_of(1, 2), follower(2, 10), current=50) == 50
    assert high_watermark(isr_of(1, 2), follower(2, -1), current=50) == 50


def test_it_is_frozen_while_the_committed_isr_is_too_small() -> None:
    assert high_watermark(isr_of(1), current=50, min_isr=2) == 50
    growing = isr_of(1, proposed=(1, 2))
    assert high_watermark(growing, follower(2, 100), current=50, min_isr=2) == 50


@given(
    st.integers(0, 100),
    st.integers(0, 100),
    st.lists(st.tuples(st.integers(-1, 100), st.booleans(), st.booleans()), max_size=4),
    st.integers(1, 4),
)
def test_whatever_the_followers_are_it_is_safe(
    current: int, log_end: int, replicas: list[tuple[int, bool, bool]], min_isr: int
) -> None:
    followers = [
        follower(number, min(end, log_end), caught_up_ms=NOW_MS if is_near else NEVER_MS)
        for number, (end, _, is_near) in enumerate(replicas, start=2)
    ]
    members = [1] + [number for number, (_, is_in, _) in enumerate(replicas, start=2) if is_in]
    moved = high_watermark(
        isr_of(*members), *followers, current=min(current, log_end), log_end=log_end, min_isr=min_isr
    )
    assert min(current, log_end) <= moved <= log_end
    if moved > min(current, log_end):
        assert len(members) >= min_isr
        assert all(each.log_end_offset >= moved for each in followers if each.broker_id in members)
