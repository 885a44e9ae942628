"""Members sync, send heartbeats, leave, and fall silent."""

from __future__ import annotations

import pytest

from minikafka.coordinator.group.classic_groups import StoreAssignment
from minikafka.errors import ErrorCode, KafkaError
from tests.unit.coordinator.group.classic.driver import DELAY_MS, REBALANCE_MS, SESSION_MS, Members
from tests.unit.coordinator.group.shell import Asked


def joined(members: Members, count: int) -> list[str]:
    """A group of generation 1 that waits for its leader's assignment; the first id is the leader's."""
    joins = [members.join() for _ in range(count)]
    members.advance(count * DELAY_MS)
    return [join.answer.member_id for join in joins]


def all_sync(members: Members, ids: list[str]) -> list[Asked]:
    return [members.sync(member_id, 1, {id: id.encode() for id in ids}) for member_id in ids]


# SyncGroup


def test_followers_wait_for_the_leaders_assignment_and_get_their_own_share() -> None:
    members = Members()
    leader, follower = joined(members, 2)
    waiting = members.sync(follower, 1, protocol_name="range")
    assert waiting.waits
    done = members.sync(leader, 1, {leader: b"L", follower: b"F"})
    assert (done.answer.assignment, waiting.answer.assignment) == (b"L", b"F")
    assert (waiting.answer.protocol_type, waiting.answer.protocol_name) == ("consumer", "range")
    assert members.state == "Stable"


def test_a_follower_that_comes_late_gets_its_share_at_once() -> None:
    members = Members()
    leader, follower = joined(members, 2)
    members.sync(leader, 1, {follower: b"F"})
    assert members.sync(follower, 1).answer.assignment == b"F"
    assert members.sync(follower, 1).answer.assignment == b"F"


def test_whom_the_leader_forgets_gets_an_empty_assignment() -> None:
    members = Members()
    leader, follower = joined(members, 2)
    waiting = members.sync(follower, 1)
    members.sync(leader, 1, {leader: b"L", "nobody": b"N"})
    assert (waiting.answer.error, waiting.answer.assignment) == (ErrorCode.NONE, b"")


def test_no_member_gets_an_assignment_before_it_is_committed() -> None:
    members = Members()
    ids = joined(members, 2)
    members.shell.hold = True
    syncs = all_sync(members, ids)
    assert all(sync.waits for sync in syncs) and members.state == "CompletingRebalance"
    members.shell.commit()
    assert [sync.answer.assignment for sync in syncs] == [id.encode() for id in ids]


@pytest.mark.parametrize(
    ("of_the_log", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_assignment_that_cannot_be_stored_begins_a_rebalance(
    of_the_log: ErrorCode, told: ErrorCode
) -> None:
    members = Members()
    ids = joined(members, 2)
    members.shell.refuse = KafkaError(of_the_log)
    syncs = all_sync(members, list(reversed(ids)))
    assert [sync.answer.error for sync in syncs] == [told, told]
    assert members.state == "PreparingRebalance"
    members.shell.refuse = None
    again = [members.join(id) for id in ids]
    assert [join.answer.generation for join in again] == [2, 2]


def test_the_commit_of_an_assignment_that_a_rebalance_has_overtaken_changes_nothing() -> None:
    members = Members()
    leader, follower = joined(members, 2)
    members.shell.hold = True
    waiting = members.sync(leader, 1, {leader: b"L"})
    new = members.join()
    assert waiting.answer.error == ErrorCode.REBALANCE_IN_PROGRESS
    again = [members.join(leader), members.join(follower)]
    assert new.answer.generation == 2 == again[0].answer.generation
    members.shell.commit()
    assert members.state == "CompletingRebalance"
    members.shell.hold = False
    assert members.sync(leader, 2, {leader: b"L2"}).answer.assignment == b"L2"


def test_a_leader_that_syncs_twice_is_answered_twice_and_its_first_word_counts() -> None:
    members = Members()
    leader, _ = joined(members, 2)
    members.shell.hold = True
    first = members.sync(leader, 1, {leader: b"1"})
    second = members.sync(leader, 1, {leader: b"2"})
    assert first.answer.error == ErrorCode.REBALANCE_IN_PROGRESS
    members.shell.commit()
    assert second.answer.assignment == b"1" == members.group.members[leader].assignment
    stored = [append for append in members.shell.appends if isinstance(append, StoreAssignment)]
    assert len(stored) == 1  # or the log would say something else than the members


def test_a_sync_says_of_which_generation_and_protocol_it_is() -> None:
    members = Members()
    _leader, follower = joined(members, 2)
    assert members.sync("nobody", 1).answer.error == ErrorCode.UNKNOWN_MEMBER_ID
    assert members.sync(follower, 0).answer.error == ErrorCode.ILLEGAL_GENERATION
    assert members.sync(follower, 1, protocol_type="connect").answer.error == (
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    assert members.sync(follower, 1, protocol_name="sticky").answer.error == (
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    assert members.sync(follower, 1, protocol_type=None).waits  # versions before 5 say nothing


def test_a_sync_while_a_rebalance_is_prepared_is_refused() -> None:
    members = Members()
    leader, follower = members.stable(None, None)
    members.join(leader)
    assert members.sync(follower, 1).answer.error == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_sync_without_a_group_is_of_an_unknown_member() -> None:
    assert Members().sync("m", 1).answer.error == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("leader_syncs", [True, False])
def test_who_does_not_sync_within_the_rebalance_timeout_is_removed(leader_syncs: bool) -> None:
    members = Members()
    leader, follower = joined(members, 2)
    synced, silent = (leader, follower) if leader_syncs else (follower, leader)
    waiting = members.sync(synced, 1)
    for _ in range(REBALANCE_MS // 5_000):
        assert members.state == ("Stable" if leader_syncs else "CompletingRebalance")
        members.heartbeat(synced, 1)
        members.heartbeat(silent, 1)
        members.advance(5_000)
    assert list(members.group.members) == [synced] and members.state == "PreparingRebalance"
    assert waiting.answer.error == (ErrorCode.NONE if leader_syncs else ErrorCode.REBALANCE_IN_PROGRESS)
    assert members.join(synced).answer.leader == synced


# Heartbeat


def test_heartbeats_in_every_state() -> None:
    members = Members()
    assert members.heartbeat("m", 0) == ErrorCode.UNKNOWN_MEMBER_ID
    leader, follower = joined(members, 2)
    assert members.heartbeat(follower, 1) == ErrorCode.NONE
    all_sync(members, [leader, follower])
    assert members.heartbeat(follower, 1) == ErrorCode.NONE
    assert members.heartbeat(follower, 0) == ErrorCode.ILLEGAL_GENERATION
    assert members.heartbeat("nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    members.join(leader)
    assert members.heartbeat(follower, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    members.leave((leader, None), (follower, None))
    assert members.state == "Empty"
    assert members.heartbeat(follower, 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_who_sends_heartbeats_stays_and_who_does_not_is_removed() -> None:
    members = Members()
    leader, follower = members.stable(None, None)
    for _ in range(3):
        members.advance(SESSION_MS - 1)
        assert members.group.members.keys() == {leader, follower}
        members.heartbeat(leader, 1)
        members.heartbeat(follower, 1)
    members.advance(1)
    members.heartbeat(follower, 1)
    members.advance(SESSION_MS - 1)
    assert list(members.group.members) == [follower] and members.state == "PreparingRebalance"
    assert members.join(follower).answer.leader == follower


def test_a_member_that_waits_for_others_does_not_expire() -> None:
    members = Members()
    leader, follower = members.stable(None, None)
    waiting = members.join(leader)
    for _ in range(5):
        members.heartbeat(follower, 1)
        members.advance(SESSION_MS - 1)
    assert waiting.waits
    members.join(follower)
    assert waiting.answer.generation == 2
    waiting = members.sync(follower, 2)
    for _ in range(4):
        members.heartbeat(leader, 2)
        members.advance(SESSION_MS - 1)
    members.sync(leader, 2)
    assert waiting.answer.error == ErrorCode.NONE
    members.advance(SESSION_MS - 1)
    assert len(members.group.members) == 2
    members.advance(1)
    assert members.state == "Empty"


def test_a_commit_is_as_good_as_a_heartbeat() -> None:
    members = Members()
    (leader,) = members.stable(None)
    members.advance(SESSION_MS - 1)
    members.shell.carry_out(members.group.heard_of(leader))
    members.advance(SESSION_MS - 1)
    assert members.state == "Stable"


# LeaveGroup


def test_when_a_member_leaves_the_others_join_again() -> None:
    members = Members()
    leader, follower = members.stable(None, None)
    assert members.leave((leader, None)) == [ErrorCode.NONE]
    assert members.heartbeat(follower, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert members.join(follower).answer.leader == follower


def test_when_the_last_member_leaves_the_group_is_empty_in_its_next_generation() -> None:
    members = Members()
    (leader,) = members.stable(None)
    assert members.leave((leader, None)) == [ErrorCode.NONE]
    assert members.state == "Empty" and members.group.generation == 2
    again = members.join()
    members.advance(DELAY_MS)
    assert again.answer.generation == 3


def test_several_leave_at_once_and_each_hears_its_own_error() -> None:
    members = Members()
    leader, follower, _static = members.stable(None, None, "i")
    pending = members.join(id_first=True).answer.member_id
    answers = members.leave(
        (follower, None), ("nobody", None), (pending, None), ("", "i"), ("", "j"), (leader, "i"), ("", None)
    )
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert answers == [ErrorCode.NONE, unknown, ErrorCode.NONE, ErrorCode.NONE, unknown, unknown, unknown]
    assert list(members.group.members) == [leader]


def test_who_leaves_in_the_middle_of_a_rebalance_lets_the_others_go_on() -> None:
    members = Members()
    leader, follower = members.stable(None, None)
    waiting = members.join(leader)
    assert waiting.waits
    members.leave((follower, None))
    assert waiting.answer.generation == 2


def test_requests_of_a_member_that_an_administrator_removes_are_answered() -> None:
    members = Members()
    leader, static = members.stable(None, "i")
    waiting = members.join(static, instance="i", protocols=(("range", b"other"),))
    assert members.leave(("", "i")) == [ErrorCode.NONE]
    assert waiting.answer.error == ErrorCode.UNKNOWN_MEMBER_ID
    members.join(leader)
    members.sync(leader, 2)
    again = members.join(instance="i")
    members.join(leader)
    waiting = members.sync(again.answer.member_id, 3, instance="i")
    assert waiting.waits
    assert members.leave(("", "i")) == [ErrorCode.NONE]
    assert waiting.answer.error == ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_a_group_that_is_not_there() -> None:
    assert Members().leave(("m", None)) == [ErrorCode.UNKNOWN_MEMBER_ID]


# All of it


def test_cooperative_members_give_back_first_and_take_over_in_the_next_generation() -> None:
    members = Members()
    (old,) = members.stable(None)
    new = members.join()
    assert members.heartbeat(old, 1) == ErrorCode.REBALANCE_IN_PROGRESS  # it continues to consume
    members.join(old)
    # generation 2: the old one shall give back partition 1, so no member gets it yet
    newer = new.answer.member_id
    waiting = members.sync(newer, 2)
    assert members.sync(old, 2, {old: b"0", newer: b""}).answer.assignment == b"0"
    assert waiting.answer.assignment == b""
    # it has given it back, and says so by joining again, although it is the leader of a STABLE group
    assert members.state == "Stable"
    again = members.join(old)
    assert members.heartbeat(newer, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    assert members.join(newer).answer.generation == again.answer.generation == 3
    members.sync(old, 3, {old: b"0", newer: b"1"})
    assert members.sync(newer, 3).answer.assignment == b"1"


def test_a_hundred_members_join_again_within_one_generation() -> None:
    members = Members()
    ids = members.stable(*[None] * 100)
    again = [members.join(ids[0])] + [members.join(id) for id in ids[1:]]
    assert {join.answer.generation for join in again} == {2}
    assert [len(join.answer.members) for join in again] == [100] + [0] * 99
