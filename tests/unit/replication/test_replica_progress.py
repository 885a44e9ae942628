"""Whether a follower keeps up is a question of time, and a busy leader must not make it look slow."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from minikafka.replication.partition_replicas import NEVER_MS, NO_BROKER_EPOCH, ReplicaProgress
from minikafka.types import BrokerId, Offset

LAG_MS = 1000


def fetched(progress: ReplicaProgress, offset: int, *, leader_end: int, now_ms: int) -> None:
    progress.fetched(
        fetch_offset=Offset(offset),
        log_start_offset=Offset(0),
        leader_end_offset=Offset(leader_end),
        now_ms=now_ms,
        broker_epoch=7,
    )


def caught_up(progress: ReplicaProgress, *, leader_end: int, now_ms: int) -> bool:
    return progress.is_caught_up(leader_end_offset=Offset(leader_end), now_ms=now_ms, lag_time_max_ms=LAG_MS)


def leading(progress: ReplicaProgress, **fields: Any) -> None:
    usual = {"leader_end_offset": Offset(10), "now_ms": 5000, "was_leading": False, "is_in_sync": True}
    progress.leader_epoch_began(**usual | fields)


def test_a_follower_at_the_log_end_is_caught_up_now() -> None:
    progress = ReplicaProgress(BrokerId(2))
    fetched(progress, 10, leader_end=10, now_ms=500)
    assert progress.last_caught_up_ms == 500
    assert caught_up(progress, leader_end=10, now_ms=99_999), "an idle partition has no follower behind"
    assert caught_up(progress, leader_end=11, now_ms=1500)
    assert not caught_up(progress, leader_end=11, now_ms=1501)


def test_a_follower_one_batch_behind_a_busy_leader_was_caught_up_at_its_fetch_before() -> None:
    progress = ReplicaProgress(BrokerId(2))
    fetched(progress, 0, leader_end=10, now_ms=100)
    assert progress.last_caught_up_ms == NEVER_MS
    fetched(progress, 10, leader_end=20, now_ms=200)
    assert progress.last_caught_up_ms == 100, "at 100 the log ended at 10, and 10 it has"
    fetched(progress, 15, leader_end=30, now_ms=300)
    assert progress.last_caught_up_ms == 100, "at 200 the log ended at 20"
    fetched(progress, 30, leader_end=40, now_ms=400)
    assert progress.last_caught_up_ms == 300


def test_a_new_leader_knows_nothing_and_gives_the_isr_the_whole_lag_time() -> None:
    member, other = ReplicaProgress(BrokerId(2)), ReplicaProgress(BrokerId(3))
    for progress in (member, other):
        fetched(progress, 10, leader_end=10, now_ms=100)
    leading(member)
    leading(other, is_in_sync=False)
    assert (member.log_end_offset, member.log_start_offset, member.broker_epoch) == (-1, -1, NO_BROKER_EPOCH)
    assert caught_up(member, leader_end=10, now_ms=6000)
    assert not caught_up(other, leader_end=10, now_ms=5000), "the high watermark does not wait for it"
    fetched(other, 9, leader_end=10, now_ms=5001)
    assert not caught_up(other, leader_end=10, now_ms=5001), "its first fetch says nothing of the time before"


def test_a_leader_that_is_elected_again_keeps_what_it_knows() -> None:
    progress = ReplicaProgress(BrokerId(2))
    fetched(progress, 10, leader_end=10, now_ms=100)
    leading(progress, was_leading=True)
    assert (progress.log_end_offset, progress.broker_epoch, progress.last_caught_up_ms) == (10, 7, 5000)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5), st.integers(0, 300)), max_size=30))
def test_the_caught_up_time_is_the_last_moment_whose_log_end_the_follower_has_reached(
    steps: list[tuple[int, int, int]],
) -> None:
    """Against a model that remembers every fetch."""
    progress = ReplicaProgress(BrokerId(2))
    offset = leader_end = now_ms = 0
    ends: list[tuple[int, int]] = []
    caught_up_ms = NEVER_MS
    for appended, copied, waited_ms in steps:
        now_ms += waited_ms
        leader_end += appended
        offset = min(offset + copied, leader_end)
        fetched(progress, offset, leader_end=leader_end, now_ms=now_ms)
        reached = [at_ms for at_ms, end in [*ends[-1:], (now_ms, leader_end)] if offset >= end]
        caught_up_ms = max([caught_up_ms, *reached])
        ends.append((now_ms, leader_end))
        assert progress.last_caught_up_ms == caught_up_ms
