"""Members join, and a generation begins."""

from __future__ import annotations

import pytest

from minikafka.coordinator.group.classic_groups import NEW_MEMBER_JOIN_TIMEOUT_MS
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_records import GroupMetadataValue
from tests.unit.coordinator.group.classic.driver import (
    DELAY_MS,
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    Members,
    subscription,
)


def test_the_first_member_waits_for_others_and_leads_when_the_delay_is_over() -> None:
    members = Members()
    first = members.join()
    members.advance(DELAY_MS - 1)
    assert first.waits and members.state == "PreparingRebalance"
    members.advance(1)
    result = first.answer
    assert (result.error, result.generation, result.leader) == (ErrorCode.NONE, 1, result.member_id)
    assert (result.protocol_type, result.protocol_name) == ("consumer", "range")
    assert [member.member_id for member in result.members] == [result.member_id]
    assert result.member_id == "client-00000000-0000-0000-0000-000000000001"
    assert members.state == "CompletingRebalance"


def test_each_new_member_extends_the_delay_up_to_the_rebalance_timeout() -> None:
    members = Members()
    first = members.join(rebalance_timeout_ms=2 * DELAY_MS)
    members.advance(DELAY_MS - 1)
    second = members.join()
    members.advance(DELAY_MS)
    assert first.waits
    members.join()
    members.advance(1)
    assert first.answer.generation == second.answer.generation == 1
    assert len(first.answer.members) == 3 and not second.answer.members
    assert second.answer.leader == first.answer.member_id


def test_an_unknown_member_gets_an_id_first_and_joins_with_it() -> None:
    members = Members()
    asked = members.join(id_first=True)
    assert asked.answer.error == ErrorCode.MEMBER_ID_REQUIRED
    assert members.state == "Empty" and asked.answer.member_id.startswith("client-")
    joined = members.join(asked.answer.member_id, id_first=True)
    members.advance(DELAY_MS)
    assert joined.answer.member_id == asked.answer.member_id and joined.answer.generation == 1


def test_an_id_that_is_not_used_within_its_session_is_forgotten() -> None:
    members = Members()
    member_id = members.join(id_first=True).answer.member_id
    members.advance(SESSION_MS)
    assert members.join(member_id, id_first=True).answer.error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_those_who_were_given_an_id() -> None:
    members = Members()
    (leader,) = members.stable(None)
    pending = members.join(id_first=True).answer.member_id
    again = members.join(leader)
    assert again.waits
    members.join(pending)
    assert again.answer.generation == 2 and len(again.answer.members) == 2


@pytest.mark.parametrize("how", ["session", "leave"])
def test_a_rebalance_goes_on_when_a_pending_member_is_gone(how: str) -> None:
    members = Members()
    (leader,) = members.stable(None)
    pending = members.join(id_first=True).answer.member_id
    again = members.join(leader)
    if how == "session":
        members.advance(SESSION_MS)
    else:
        assert members.leave((pending, None)) == [ErrorCode.NONE]
    assert again.answer.generation == 2


def test_an_id_that_was_given_to_a_dynamic_member_does_not_join_as_a_static_one() -> None:
    members = Members()
    (static,) = members.stable("i")
    pending = members.join(id_first=True).answer.member_id
    assert members.join(pending, instance="i").answer.error == ErrorCode.UNKNOWN_SERVER_ERROR
    assert list(members.group.members) == [static]


@pytest.mark.parametrize("timeout_ms", [5_999, 1_800_001])
def test_a_session_timeout_out_of_range_is_refused(timeout_ms: int) -> None:
    members = Members()
    refused = members.join("somebody", session_timeout_ms=timeout_ms).answer
    assert (refused.error, refused.member_id) == (ErrorCode.INVALID_SESSION_TIMEOUT, "somebody")
    assert not members.groups


def test_an_unknown_member_joins_neither_a_missing_group_nor_one_that_is_there() -> None:
    members = Members()
    assert members.join("nobody").answer.error == ErrorCode.UNKNOWN_MEMBER_ID
    assert not members.groups
    members.stable(None)
    assert members.join("nobody").answer.error == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("connect", RANGE), ("consumer", (("roundrobin", b""),)), ("", RANGE), ("consumer", ())],
)
def test_a_member_that_has_no_protocol_in_common_with_the_others_is_refused(
    protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    members = Members()
    members.stable(None)
    asked = members.join(protocol_type=protocol_type, protocols=protocols)
    assert asked.answer.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert members.state == "Stable"


def test_a_join_without_protocols_makes_no_group() -> None:
    members = Members()
    assert members.join(protocols=()).answer.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert not members.groups and not members.shell.log


def test_the_protocol_that_most_members_prefer_is_chosen_among_those_that_all_support() -> None:
    members = Members()
    a, b, c = (("a", b"1"), ("b", b"2"), ("c", b"3"))
    joins = [members.join(protocols=protocols) for protocols in [(c, a, b), (b, a), (b, a)]]
    members.advance(2 * DELAY_MS)
    assert {join.answer.protocol_name for join in joins} == {"b"}
    assert [member.metadata for member in joins[0].answer.members] == [b"2"] * 3


def test_a_full_group_takes_no_more_members() -> None:
    members = Members(group_max_size=2)
    leader, _ = members.stable(None, None)
    refused = members.join().answer
    assert (refused.error, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert members.state == "Stable"
    assert members.join(leader).waits  # a member is never too many


def test_a_group_that_is_too_large_loses_those_who_join_last() -> None:
    members = Members()
    first, second, third = members.stable(None, None, None)
    members.settings.group_max_size = 2
    again = [members.join(first), members.join(second), members.join(third)]
    assert again[2].answer.error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [join.answer.generation for join in again[:2]] == [2, 2]
    assert list(members.group.members) == [first, second]


def test_a_follower_that_joins_again_unchanged_hears_of_the_generation_that_is() -> None:
    members = Members()
    leader, follower = members.stable(None, None)
    again = members.join(follower).answer
    assert (again.generation, again.leader, again.members) == (1, leader, ())
    assert members.state == "Stable"


def test_a_follower_that_joins_with_another_subscription_begins_a_rebalance() -> None:
    members = Members()
    leader, follower = members.stable(None, None)
    again = members.join(follower, protocols=(("range", subscription("t", "u")),))
    assert again.waits and members.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    told = members.join(leader).answer
    assert told.generation == again.answer.generation == 2
    assert [member.metadata for member in told.members] == [subscription("t"), subscription("t", "u")]


def test_a_leader_that_joins_again_begins_a_rebalance() -> None:
    members = Members()
    leader, _ = members.stable(None, None)
    assert members.join(leader).waits and members.state == "PreparingRebalance"


def test_who_missed_the_answer_to_its_join_hears_it_again_before_the_assignment() -> None:
    members = Members()
    leader = members.join()
    follower = members.join()
    members.advance(2 * DELAY_MS)
    for first in (leader, follower):
        again = members.join(first.answer.member_id)
        assert again.answer == first.answer
    assert members.state == "CompletingRebalance"


def test_who_changes_its_subscription_before_the_assignment_begins_a_rebalance() -> None:
    members = Members()
    leader, follower = members.join(), members.join()
    members.advance(2 * DELAY_MS)
    waiting = members.sync(follower.answer.member_id, 1)
    assert members.join(leader.answer.member_id, protocols=(("range", b"new"),)).waits
    assert waiting.answer.error == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_join_that_repeats_one_which_waits_takes_its_place() -> None:
    members = Members()
    leader, follower = members.stable(None, None)
    first = members.join(leader)
    second = members.join(leader)
    assert first.answer.error == ErrorCode.REBALANCE_IN_PROGRESS and second.waits
    members.join(follower)
    assert second.answer.generation == 2


def test_who_has_not_joined_within_the_rebalance_timeout_is_removed() -> None:
    members = Members()
    leader, follower = members.stable(None, None)
    again = members.join(follower, protocols=(("range", b"new"),))
    for _ in range(REBALANCE_MS // 5_000 - 1):
        members.advance(5_000)
        assert members.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert again.waits
    members.advance(5_000)
    assert again.answer.leader == follower and again.answer.generation == 2
    assert members.heartbeat(leader, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_member_whose_client_gave_up_does_not_stay_for_ever() -> None:
    members = Members()
    first = members.join(rebalance_timeout_ms=2 * NEW_MEMBER_JOIN_TIMEOUT_MS)
    members.advance(DELAY_MS)
    leader = first.answer.member_id
    members.sync(leader, 1)
    new = members.join()
    for _ in range(NEW_MEMBER_JOIN_TIMEOUT_MS // 5_000):  # the leader is alive, but does not come
        assert new.waits
        assert members.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
        members.advance(5_000)
    assert new.answer.error == ErrorCode.UNKNOWN_MEMBER_ID
    assert list(members.group.members) == [leader]


def test_a_new_group_is_written_and_one_that_the_log_refuses_is_none() -> None:
    members = Members()
    members.shell.refuse = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    asked = members.join()
    assert asked.answer.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not members.groups and not members.shell.parked
    members.shell.refuse = None
    members.join()
    (record,) = members.shell.log
    value = record.value
    assert isinstance(value, GroupMetadataValue)
    assert (value.generation, value.protocol_type, value.members) == (0, "", ())
