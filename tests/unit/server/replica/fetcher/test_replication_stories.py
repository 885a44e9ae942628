"""The stories of logs that part and meet again, each by the name that it has in Kafka's history.

eN is leader epoch N. The other story of each pair, the leader's, is told where leaders are tested.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.server.replica.replica_fetcher_manager import InitialFetchState
from minikafka.types import LeaderEpoch
from tests.unit.server.replication_support import (
    BACKOFF_MS,
    LEADER,
    SOON_MS,
    T0,
    T1,
    WAIT_MS,
    assert_same,
    content,
    epochs,
    story,
    write,
)
from tests.unit.server.virtual_time import in_virtual_time, passing


@in_virtual_time
async def test_r1_a_restarted_follower_keeps_what_it_has_above_its_high_watermark(tmp_path: Path) -> None:
    """KIP-101 (1). B leads [m0, m1]; A has m1 too, but knows of a high watermark of 1. A restarts."""
    async with story(tmp_path) as told:
        leader, follower = told.leads("m0", "m1"), told.hosts("m0", "m1")
        follower.update_high_watermark(1)
        before = content(follower)
        told.leader.go_down()
        told.follows()
        await passing(SOON_MS)
        assert content(follower) == before, "nothing is cut before the leader has said a word"
        told.leader.is_up = True
        await passing(2 * BACKOFF_MS)
        assert_same(leader, follower)
        assert follower.log_end_offset == follower.high_watermark == 2


@in_virtual_time
async def test_r2_a_follower_drops_the_record_that_its_leader_lost(tmp_path: Path) -> None:
    """KIP-101 (2). B lost m1 with its power, leads e1 and has written m2 in its place. A returns with m1."""
    async with story(tmp_path) as told:
        leader = told.leads("m0")
        told.leader.lead(leader, epoch=1)
        told.leader.write(T0, "m2")
        follower = told.hosts("m0", "m1")
        follower.update_high_watermark(2)
        told.follows(epoch=1)
        await passing(SOON_MS)
        assert_same(leader, follower)
        assert epochs(follower) == [(0, 0), (1, 1)]


@in_virtual_time
async def test_r3_two_unclean_elections_leave_one_history(tmp_path: Path) -> None:
    """KIP-279, KAFKA-6361. A has e0 from 0 to 19, B from 0 to 9; B leads e1 and writes 10 to 14; A leads e2
    and appends from 20 on."""
    async with story(tmp_path) as told:
        leader = told.leads(*[f"e0 {number}" for number in range(20)])
        follower = told.hosts(*[f"e0 {number}" for number in range(10)])
        assert content(leader).startswith(content(follower))
        follower.assign_epoch_start(1, 10)
        write(follower, *[f"e1 {number}" for number in range(10, 15)], epoch=1)
        told.leader.lead(leader, epoch=2)
        told.leader.write(T0, "e2 20", "e2 21")
        cuts: list[int] = []
        partition = told.replicas.partitions[T0]
        truncate_to, partition.truncate_to = (
            partition.truncate_to,
            lambda offset, *, cause: (  # type: ignore[method-assign]
                cuts.append(offset),
                truncate_to(offset, cause=cause),
            )[1],
        )
        told.follows(epoch=2)
        await passing(SOON_MS)
        assert cuts == [10]
        assert_same(leader, follower)


@in_virtual_time
async def test_r4_elections_without_a_record_leave_no_epoch_behind_that_never_was(tmp_path: Path) -> None:
    """KAFKA-7415, KAFKA-10706. A leads e1 and writes nothing; B leads e2, then e3, and writes nothing either.
    A drops its e1 although it has no record to drop."""
    async with story(tmp_path) as told:
        leader, follower = told.leads("m0", "m1"), told.hosts("m0", "m1")
        follower.assign_epoch_start(1, 2)
        told.leader.lead(leader, epoch=2)
        told.leader.lead(leader, epoch=3)
        told.follows(epoch=3)
        await passing(WAIT_MS + SOON_MS)
        assert epochs(follower) == [(0, 0)]
        assert follower.log_end_offset == 2
        told.leader.write(T0, "m2")
        await passing(SOON_MS)
        assert_same(leader, follower)
        assert epochs(follower) == [(0, 0), (3, 2)]


@in_virtual_time
async def test_r5_a_follower_that_missed_an_epoch_of_its_leader_still_compares(tmp_path: Path) -> None:
    """KAFKA-7164. It follows e2 of a leader, misses e3 and hears of e4, of the same leader."""
    async with story(tmp_path) as told:
        leader, follower = told.leads("m0", epoch=2), told.hosts()
        told.follows(epoch=2)
        await passing(2 * WAIT_MS)
        # The follower led e3 meanwhile, uncleanly; no other has what it wrote.
        follower.assign_epoch_start(3, 1)
        write(follower, "only here", epoch=3)
        told.leader.lead(leader, epoch=4)
        told.leader.write(T0, "m1")
        told.follows(epoch=4)
        await passing(WAIT_MS + SOON_MS)
        assert_same(leader, follower)
        assert epochs(follower) == [(2, 0), (4, 1)]


@in_virtual_time
async def test_r8_an_answer_to_an_older_epoch_is_ignored(tmp_path: Path) -> None:
    """KAFKA-7786. While the question is under way there is an election, of the same leader. What the answer
    says would cut a record that the new epoch has."""
    async with story(tmp_path) as told:
        leader, follower = told.leads("m0"), told.hosts("m0", "m1")
        told.leader.lead(leader, epoch=1)
        bumped = False

        async def bump(key: int, request: Any) -> None:
            nonlocal bumped
            if not bumped:
                bumped = True
                answer_epochs.append(request.topics[0].partitions[0].current_leader_epoch)
                told.follows(epoch=2)

        answer_epochs: list[int] = []
        told.leader.meanwhile = bump
        told.follows(epoch=1)
        await passing(SOON_MS)
        assert answer_epochs == [1]
        assert follower.log_end_offset == 2, "the diverging epoch in the answer was not followed"
        assert told.state().current_leader_epoch == 2
        told.leader.lead(leader, epoch=2)
        told.leader.write(T0, "m1, again")
        await passing(2 * BACKOFF_MS)
        assert_same(leader, follower)
        assert not told.fetchers.failed_partitions


@in_virtual_time
async def test_r8_bounds_that_were_asked_for_at_an_older_epoch_are_ignored(tmp_path: Path) -> None:
    async with story(tmp_path) as told:
        told.leads("m0", epoch=1)
        follower = told.hosts()
        follower.truncate_fully_and_start_at(9)

        async def bump(key: int, request: Any) -> None:
            if key == ApiKey.LIST_OFFSETS:
                told.follows(epoch=2)

        told.leader.meanwhile = bump
        told.follows(epoch=1)
        await passing(SOON_MS)
        assert [key for key, _ in told.leader.asked][:3] == [
            ApiKey.FETCH,
            ApiKey.LIST_OFFSETS,
            ApiKey.LIST_OFFSETS,
        ]
        assert follower.log_end_offset == 9
        assert told.state().current_leader_epoch == 2


@in_virtual_time
async def test_r9_an_ex_leader_cuts_its_tail_before_it_believes_a_higher_high_watermark(
    tmp_path: Path,
) -> None:
    """KAFKA-14704. An ex-leader of e0 has offsets 1 to 4 that no other got; the leader of e1 is at 3 and
    says that 3 is its high watermark."""
    async with story(tmp_path) as told:
        leader = told.leads("m0")
        told.leader.lead(leader, epoch=1)
        told.leader.write(T0, "m1", "m2")
        leader.update_high_watermark(3)
        follower = told.hosts("m0", "lost 1", "lost 2", "lost 3", "lost 4")
        follower.update_high_watermark(1)
        marks: list[tuple[int, int]] = []
        partition = told.replicas.partitions[T0]
        update = partition.update_follower_high_watermark

        def noted(high_watermark: Any) -> bool:
            marks.append((follower.log_end_offset, high_watermark))
            return update(high_watermark)

        partition.update_follower_high_watermark = noted  # type: ignore[method-assign]
        told.follows(epoch=1)
        await passing(SOON_MS)
        assert marks[0] == (3, 3), "first the cut, then the records, then the high watermark"
        assert_same(leader, follower)
        assert follower.high_watermark == 3


@in_virtual_time
async def test_r9_the_high_watermark_of_the_answer_that_cut_is_told_once_more(tmp_path: Path) -> None:
    """The follower is level with its leader after the cut, so that no news would carry it."""
    async with story(tmp_path) as told:
        leader = told.leads("m0", "m1")
        leader.update_high_watermark(2)
        told.leader.lead(leader, epoch=1)
        follower = told.hosts("m0", "m1", "lost")
        told.follows(epoch=1)
        await passing(2 * WAIT_MS)
        assert follower.log_end_offset == 2
        assert follower.high_watermark == 2


@in_virtual_time
async def test_r14_a_leadership_that_is_told_twice_changes_nothing_the_second_time(tmp_path: Path) -> None:
    """KAFKA-9307: a broker that registered again is told everything again, also what it does already."""
    async with story(tmp_path) as told:
        leader, follower = told.leads("m0"), told.hosts()
        told.follows()
        await passing(2 * WAIT_MS)
        state, rounds = told.state(), len(told.leader.fetches)
        told.follows()
        told.follows()
        assert told.state() is state
        await passing(2 * WAIT_MS)
        assert all(not request.topics for request in told.leader.fetches[rounds:])
        assert_same(leader, follower)


@in_virtual_time
async def test_a_partition_that_was_removed_takes_nothing_of_the_answer_that_is_under_way(
    tmp_path: Path,
) -> None:
    async with story(tmp_path) as told:
        for each in (T0, T1):
            told.leads("a", at=each)
            told.hosts(at=each)

        async def remove(key: int, request: Any) -> None:
            told.fetchers.remove([T0])

        told.leader.meanwhile = remove
        told.follows(T0, T1)
        await passing(SOON_MS)
        assert told.replicas.partitions[T0].log.log_end_offset == 0
        assert told.replicas.partitions[T1].log.log_end_offset == 1


@in_virtual_time
async def test_what_an_ignored_answer_said_is_said_again(tmp_path: Path) -> None:
    """A partition is removed while an answer is under way and comes back, with nothing changed, before the
    leader heard of either. The session has told the high watermark and would not repeat it."""
    async with story(tmp_path) as told:
        leader, follower = told.leads("a"), told.hosts("a")
        leader.update_high_watermark(1)
        told.leads("x", at=T1)
        told.hosts(at=T1)

        async def leave(key: int, request: Any) -> None:
            if len(told.leader.fetches) == 1:
                told.fetchers.remove([T0])

        def come_back(partition: Any, info: Any) -> None:
            assert told.state() is None and follower.high_watermark == 0
            told.replicas.follower_appended = lambda partition, info: None  # type: ignore[method-assign]
            told.follows(T0)

        told.leader.meanwhile = leave
        told.replicas.follower_appended = come_back  # type: ignore[method-assign]
        told.follows(T0, T1)
        await passing(2 * WAIT_MS)
        assert follower.high_watermark == 1


@in_virtual_time
async def test_a_topic_that_was_created_again_is_another(tmp_path: Path) -> None:
    async with story(tmp_path) as told:
        leader, follower = told.leads("a"), told.hosts()
        told.follows()
        await passing(2 * WAIT_MS)
        other_id = UUID(int=0xDEF)
        leader.topic_id = other_id
        told.fetchers.add({T0: InitialFetchState(other_id, LEADER, LeaderEpoch(0), follower.log_end_offset)})
        told.leader.write(T0, "b")
        await passing(2 * WAIT_MS)
        assert told.leader.fetches[-1].session_id > 0
        named = [topic.topic_id for request in told.leader.fetches for topic in request.topics]
        assert named[-1] == other_id
        assert_same(leader, follower)
