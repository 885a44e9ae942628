"""What a classic group says of itself, allows, writes down, and is read back from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.coordinator.group.classic_group import (
    VALID_PREVIOUS_STATES,
    ClassicGroup,
    ClassicGroupState,
    ClassicMember,
    choose_protocol,
    current_record,
    group_from_record,
)
from minikafka.coordinator.group.classic_groups import HEARTBEAT_ACCEPTED
from minikafka.coordinator.group.group import Group
from minikafka.coordinator.group.messages import Answer, Effects, Heartbeat, ListedGroup
from minikafka.errors import ErrorCode, InvariantError, KafkaError
from minikafka.protocol.internal.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    MemberMetadata,
)
from tests.unit.coordinator.group.classic.driver import (
    DELAY_MS,
    RANGE,
    SESSION_MS,
    Members,
    subscription,
)
from tests.unit.coordinator.group.shell import Asked


def commit_error(group: Group, member_id: str, generation: int, instance: str | None = None) -> ErrorCode:
    try:
        group.check_offset_commit(
            member_id=member_id, group_instance_id=instance, generation_or_member_epoch=generation, version=9
        )
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def restarted(members: Members) -> tuple[Members, Effects]:
    """Another coordinator, which has replayed what the first one wrote, and its first effects."""
    other = Members()
    for record in members.shell.log:
        assert isinstance(record.key, GroupMetadataKey)
        assert record.value is None or isinstance(record.value, GroupMetadataValue)
        other.classic.replay(record.key, record.value, other.shell.now_ms)
    effects = other.classic.loaded(other.shell.now_ms)
    other.shell.carry_out(effects)
    other.uuids = 1000
    other.validate()
    return other, effects


# Described


def test_a_stable_group_is_described_with_what_its_members_want_and_have() -> None:
    members = Members()
    leader, static = members.stable(None, "i")
    described = members.classic.describe("g")
    assert (described.state, described.protocol_type, described.protocol) == ("Stable", "consumer", "range")
    assert [(m.member_id, m.group_instance_id) for m in described.members] == [(leader, None), (static, "i")]
    assert [m.metadata for m in described.members] == [subscription("t")] * 2
    assert [m.assignment for m in described.members] == [leader.encode(), static.encode()]
    assert members.group.listed() == ListedGroup("g", "consumer", "Stable", "classic")
    assert members.counts.completed_rebalances == 1


def test_a_group_that_rebalances_is_described_without_a_protocol() -> None:
    members = Members()
    (leader,) = members.stable(None)
    members.join()
    described = members.classic.describe("g")
    assert (described.state, described.protocol) == ("PreparingRebalance", "")
    assert [m.metadata for m in described.members] == [b"", b""]
    members.join(leader)
    assert members.classic.describe("g").state == "CompletingRebalance"


def test_a_group_that_is_not_there_is_dead() -> None:
    described = Members().classic.describe("g")
    assert (described.state, described.error) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
    assert described.error_message == "Group g not found."


# Checked


def test_a_commit_is_taken_from_members_of_this_generation_only() -> None:
    members = Members()
    leader, follower = members.stable(None, None)
    group = members.group
    assert commit_error(group, follower, 1) == ErrorCode.NONE
    assert commit_error(group, follower, 0) == ErrorCode.ILLEGAL_GENERATION
    assert commit_error(group, "nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_error(group, "", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    members.join(leader)
    assert commit_error(group, follower, 1) == ErrorCode.NONE  # what it has read until now
    members.join(follower)
    assert commit_error(group, follower, 1) == ErrorCode.ILLEGAL_GENERATION
    assert commit_error(group, follower, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    members.sync(leader, 2)
    assert commit_error(group, follower, 2) == ErrorCode.NONE


def test_without_members_anybody_commits_without_a_generation() -> None:
    members = Members()
    group = members.classic.make_simple("g", 7)
    assert members.groups == {"g": group}
    assert commit_error(group, "", -1) == ErrorCode.NONE
    assert commit_error(group, "somebody", 3) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_with_members_is_not_deleted_and_keeps_the_offsets_that_consumers_use() -> None:
    members = Members()
    (leader,) = members.stable(None)
    group = members.group
    with pytest.raises(KafkaError, match="NON_EMPTY_GROUP"):
        group.check_delete()
    group.check_offset_delete()  # of consumers: decided by topic
    assert group.is_subscribed_to("t") and not group.is_subscribed_to("u")
    members.leave((leader, None))
    group.check_delete()
    assert not group.is_subscribed_to("t")
    assert group.tombstones() == [GroupRecord(GroupMetadataKey("g"), None)]


def test_offsets_of_a_group_of_another_kind_are_in_use_while_it_has_members() -> None:
    members = Members()
    join = members.join(protocol_type="connect")
    with pytest.raises(KafkaError, match="NON_EMPTY_GROUP"):
        members.group.check_offset_delete()
    members.advance(DELAY_MS)
    members.leave((join.answer.member_id, None))
    members.group.check_offset_delete()


def test_a_consumer_whose_subscription_cannot_be_read_may_use_any_topic() -> None:
    members = Members()
    members.join(protocols=(("range", b"nonsense"),))
    members.advance(DELAY_MS)
    assert members.group.is_subscribed_to("any")


def test_the_retention_of_offsets_counts_from_when_they_are_not_needed() -> None:
    members = Members()
    simple = members.classic.make_simple("simple", 5)
    assert simple.offsets_expire_after(commit_timestamp_ms=9) == 9
    del members.groups["simple"]
    (leader,) = members.stable(None)
    assert members.group.offsets_expire_after(commit_timestamp_ms=9) == 9
    members.join()
    assert members.group.offsets_expire_after(commit_timestamp_ms=9) is None
    members.leave((leader, None))
    members.advance(10 * 60_000)
    assert members.state == "Empty"
    since = members.group.offsets_expire_after(commit_timestamp_ms=9)
    assert since is not None and 9 < since < members.shell.now_ms


def test_what_is_read_from_a_record_of_an_old_version_is_kept_from_its_commit_on() -> None:
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=3,
        protocol=None,
        leader=None,
        current_state_timestamp_ms=-1,
        members=(),
    )
    assert group_from_record("g", value).offsets_expire_after(commit_timestamp_ms=9) == 9


# Written and read back


def test_a_stable_group_goes_on_where_another_coordinator_left_it() -> None:
    members = Members()
    leader, static = members.stable(None, "i")
    other, _ = restarted(members)
    assert current_record(other.group).value == members.shell.log[-1].value
    assert other.heartbeat(leader, 1) == ErrorCode.NONE
    assert other.sync(static, 1, instance="i").answer.assignment == static.encode()
    assert other.join(static, instance="i").answer.generation == 1
    assert other.group.is_subscribed_to("t") and not other.group.is_subscribed_to("u")
    other.advance(SESSION_MS)
    assert other.state == "PreparingRebalance" or not other.group.members


def test_a_group_that_was_rebalancing_is_read_back_as_it_was_before() -> None:
    members = Members()
    leader, follower = members.stable(None, None)
    members.join(leader)
    members.join(follower)
    other, _ = restarted(members)
    assert (other.state, other.group.generation) == ("Stable", 1)
    assert other.heartbeat(leader, 2) == ErrorCode.ILLEGAL_GENERATION


def test_a_group_that_is_larger_than_is_allowed_by_now_rebalances_when_it_is_read() -> None:
    members = Members()
    members.stable(None, None, None)
    other = Members(group_max_size=2)
    record = members.shell.log[-1]
    assert isinstance(record.value, GroupMetadataValue)
    other.classic.replay(GroupMetadataKey("g"), record.value, 0)
    other.shell.carry_out(other.classic.loaded(other.shell.now_ms))
    assert other.state == "PreparingRebalance"


def test_a_tombstone_ends_a_group() -> None:
    members = Members()
    (leader,) = members.stable(None)
    members.leave((leader, None))
    group = members.group
    members.classic.replay(GroupMetadataKey("g"), None, 1)
    assert not members.groups and group.state is ClassicGroupState.DEAD
    assert commit_error(group, "", -1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND"):
        group.check_offset_fetch(member_id=None, member_epoch=-1)


def test_a_record_that_contradicts_itself_makes_a_group_all_the_same() -> None:
    member = MemberMetadata(
        member_id="m",
        group_instance_id="i",
        client_id="c",
        client_host="h",
        rebalance_timeout_ms=-1,
        session_timeout_ms=SESSION_MS,
        subscription=b"s",
        assignment=b"a",
    )
    value = GroupMetadataValue(
        protocol_type="",
        generation=1,
        protocol=None,
        leader="nobody",
        current_state_timestamp_ms=1,
        members=(member, member),
    )
    members = Members()
    members.classic.replay(GroupMetadataKey("g"), value, 1)
    members.shell.carry_out(members.classic.loaded(1))
    assert (members.group.leader, members.group.rebalance_timeout_ms) == ("m", SESSION_MS)
    assert members.leave(("m", "i")) == [ErrorCode.NONE]


# Unloaded, converted


def test_all_who_wait_are_known_when_a_shard_is_unloaded() -> None:
    members = Members()
    leader, follower = members.stable(None, None)
    join = members.join(leader)
    assert members.classic.waiting() == [join]
    members.join(follower)
    sync = members.sync(follower, 2)
    assert members.classic.waiting() == [sync]


def test_a_group_that_is_forgotten_leaves_nothing_behind() -> None:
    members = Members()
    leader, _ = members.stable(None, None)
    members.join(id_first=True)
    join = members.join(leader)
    group = members.group
    error = ErrorCode.REBALANCE_IN_PROGRESS
    members.shell.carry_out(members.classic.forget(group, error, members.shell.now_ms))
    assert (join.answer.error, join.answer.member_id) == (error, leader)
    assert not members.groups and not members.shell.parked and group.state is ClassicGroupState.DEAD


def test_a_group_that_was_made_elsewhere_is_adopted_and_rebalances_on_demand() -> None:
    members = Members()
    group = ClassicGroup(
        "g", state=ClassicGroupState.STABLE, state_timestamp_ms=1, generation=7, protocol_type="consumer"
    )
    member = ClassicMember(
        "m",
        group_id="g",
        group_instance_id=None,
        client_id="c",
        client_host="h",
        rebalance_timeout_ms=5_000,
        session_timeout_ms=SESSION_MS,
        protocol_type="consumer",
        protocols=RANGE,
        assignment=b"a",
    )
    group.add_member(member)
    group.protocol = "range"
    group.resolve_subscription()
    members.shell.carry_out(members.classic.adopt(group, 1))
    members.validate()
    assert members.heartbeat("m", 7) == ErrorCode.NONE
    assert members.sync("m", 7).answer.assignment == b"a"
    members.shell.carry_out(members.classic.prepare_rebalance(group, "it was downgraded", 2))
    assert members.heartbeat("m", 7) == ErrorCode.REBALANCE_IN_PROGRESS
    assert members.join("m").answer.generation == 8


# What they agree on


@given(st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=6), min_size=1, max_size=6))
def test_the_chosen_protocol_is_one_that_all_support_and_most_of_them_prefer(
    ballots: list[list[str]],
) -> None:
    everywhere = set.intersection(*map(set, ballots))
    protocols = [tuple((name, b"") for name in ballot) for ballot in ballots]
    if not everywhere:
        with pytest.raises(InvariantError):
            choose_protocol(protocols)
        return
    votes = [next(name for name in ballot if name in everywhere) for ballot in ballots]
    chosen = choose_protocol(protocols)
    assert chosen in everywhere and votes.count(chosen) == max(map(votes.count, votes))


# The table of states


@pytest.mark.parametrize("state", list(ClassicGroupState))
@pytest.mark.parametrize("following", list(ClassicGroupState))
def test_a_group_changes_its_state_only_as_the_table_says(
    state: ClassicGroupState, following: ClassicGroupState
) -> None:
    group = ClassicGroup("g", state=state, state_timestamp_ms=1)
    if state in VALID_PREVIOUS_STATES[following]:
        group.transition(following, 2)
        assert (group.previous_state, group.state, group.state_timestamp_ms) == (state, following, 2)
    else:
        with pytest.raises(InvariantError):
            group.transition(following, 2)


def test_an_idle_heartbeat_makes_one_answer_and_parks_what_is_there() -> None:
    members = Members()
    (leader,) = members.stable(None)
    session = members.group.members[leader].session
    request = Heartbeat(group_id="g", generation=1, member_id=leader)
    answer, parked = members.classic.heartbeat(request, Asked(request), members.shell.now_ms)
    assert isinstance(answer, Answer) and answer.result is HEARTBEAT_ACCEPTED
    assert parked is session
