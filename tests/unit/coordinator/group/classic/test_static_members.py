"""Static members (KIP-345) come back under new ids."""

from __future__ import annotations

import pytest

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


def test_a_static_member_that_restarts_takes_its_place_without_a_rebalance() -> None:
    members = Members()
    leader, old = members.stable(None, "i")
    back = members.join(instance="i").answer
    assert (back.error, back.generation, back.leader) == (ErrorCode.NONE, 1, leader)
    assert back.member_id.startswith("i-") and back.member_id != old
    assert members.state == "Stable" and members.heartbeat(leader, 1) == ErrorCode.NONE
    assert members.sync(back.member_id, 1, instance="i").answer.assignment == old.encode()


def test_the_one_whose_place_was_taken_is_fenced_everywhere() -> None:
    members = Members()
    _, old = members.stable(None, "i")
    members.join(instance="i")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert members.heartbeat(old, 1, instance="i") == fenced
    assert members.heartbeat(old, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert members.heartbeat(old, 1, instance="other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert members.sync(old, 1, instance="i").answer.error == fenced
    assert members.join(old, instance="i").answer.error == fenced
    assert members.leave((old, "i")) == [fenced]
    with pytest.raises(KafkaError) as error:
        members.group.check_offset_commit(
            member_id=old, group_instance_id="i", generation_or_member_epoch=1, version=9
        )
    assert error.value.code == fenced


def test_parked_requests_of_the_one_whose_place_is_taken_are_fenced() -> None:
    members = Members()
    leader, old = members.stable(None, "i")
    waiting = members.join(old, instance="i", protocols=(("range", b"other"),))
    back = members.join(instance="i")
    assert (waiting.answer.error, waiting.answer.member_id) == (ErrorCode.FENCED_INSTANCE_ID, old)
    members.join(leader)
    assert back.answer.generation == 2
    waiting = members.sync(back.answer.member_id, 2, instance="i")
    newest = members.join(instance="i")  # before the assignment: the leader has assigned to the old id
    assert waiting.answer.error == ErrorCode.FENCED_INSTANCE_ID
    assert newest.waits and members.state == "PreparingRebalance"


def test_a_returning_leader_that_knows_how_to_is_told_to_skip_the_assignment() -> None:
    members = Members()
    _old, _ = members.stable("i", None)
    back = members.join(instance="i", skips=True).answer
    assert back.skip_assignment and back.leader == back.member_id and len(back.members) == 2


def test_a_returning_leader_of_an_older_version_does_not_hear_that_it_leads() -> None:
    members = Members()
    old, _ = members.stable("i", None)
    back = members.join(instance="i", skips=False).answer
    assert not back.skip_assignment and back.leader == old and not back.members
    assert members.group.leader == back.member_id


def test_a_returning_static_member_with_another_choice_of_protocols_begins_a_rebalance() -> None:
    members = Members()
    sticky = ("sticky", b"s")
    both = (*RANGE, sticky)
    joins = [members.join(instance=name, protocols=both) for name in ("i", "j")]
    members.advance(2 * DELAY_MS)
    first, _second = (join.answer.member_id for join in joins)
    members.sync(first, 1)
    assert members.join(instance="j", protocols=(sticky,)).waits
    assert members.join(first, instance="i", protocols=both).answer.protocol_name == "sticky"


def test_a_static_member_that_is_away_keeps_its_place_until_its_session_ends() -> None:
    members = Members()
    joins = [
        members.join(instance="i", session_timeout_ms=2 * REBALANCE_MS, rebalance_timeout_ms=SESSION_MS // 2),
        members.join(rebalance_timeout_ms=SESSION_MS // 2),
    ]
    members.advance(2 * DELAY_MS)
    static, dynamic = (join.answer.member_id for join in joins)
    members.sync(static, 1, {static: b"S", dynamic: b"D"})
    members.sync(dynamic, 1)
    again = members.join(dynamic, protocols=(("range", b"new"),), rebalance_timeout_ms=SESSION_MS // 2)
    members.advance(SESSION_MS // 2)
    assert again.answer.leader == dynamic  # the static one was not there to lead
    assert [member.member_id for member in again.answer.members] == [static, dynamic]


def test_static_members_that_are_all_away_hold_the_rebalance_until_one_comes() -> None:
    members = Members()
    joins = [
        members.join(instance="i", session_timeout_ms=60_000, rebalance_timeout_ms=5_000),
        members.join(rebalance_timeout_ms=5_000),
    ]
    members.advance(2 * DELAY_MS)
    static, dynamic = (join.answer.member_id for join in joins)
    members.sync(static, 1)
    members.sync(dynamic, 1)
    members.leave((dynamic, None))
    members.advance(20_000)
    assert members.state == "PreparingRebalance" and members.group.generation == 1
    assert members.join(static, instance="i").answer.generation == 2


def test_a_rebalance_that_waits_for_static_members_without_patience_does_not_look_again_at_once() -> None:
    members = Members()
    joins = [members.join(instance="i", rebalance_timeout_ms=0), members.join()]
    members.advance(2 * DELAY_MS)
    static, dynamic = (join.answer.member_id for join in joins)
    members.sync(dynamic, 1)
    members.sync(static, 1)
    members.leave((dynamic, None))
    operation = members.group.join_operation
    assert members.shell.parked[operation] == members.shell.now_ms  # its rebalance timeout
    members.shell.expire(operation)  # and no member is back
    assert members.shell.parked[operation] > members.shell.now_ms
    assert members.join(static, instance="i").answer.generation == 2


def test_the_new_id_is_in_the_log_before_it_is_told() -> None:
    members = Members()
    leader, old = members.stable(None, "i")
    members.shell.hold = True
    back = members.join(instance="i", protocols=(("range", subscription("u")),))
    assert back.waits
    value = members.shell.log[-1].value
    assert isinstance(value, GroupMetadataValue)
    new = members.group.static_members["i"]
    assert [(member.member_id, member.assignment) for member in value.members] == [
        (leader, leader.encode()),
        (new, old.encode()),
    ]
    members.shell.commit()
    assert back.answer.member_id == new
    assert members.group.is_subscribed_to("t") and members.group.is_subscribed_to("u")


@pytest.mark.parametrize("fails", [True, False])
def test_the_session_of_a_new_id_restarts_when_its_append_took_longer(fails: bool) -> None:
    members = Members()
    leader, _ = members.stable(None, "i")
    members.shell.hold = True
    back = members.join(instance="i")
    for _ in range(3):
        members.heartbeat(leader, 1)
        members.advance(SESSION_MS // 2)
    if fails:
        members.shell.fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    else:
        members.shell.commit()
    members.validate()
    assert not back.waits and len(members.group.members) == 2
    members.heartbeat(leader, 1)
    members.advance(SESSION_MS - 1)
    assert members.state == "Stable"
    members.heartbeat(leader, 1)
    members.advance(1)
    assert list(members.group.members) == [leader]


def test_a_new_id_that_the_log_refuses_leaves_the_old_one_in_its_place() -> None:
    members = Members()
    _leader, old = members.stable(None, "i")
    members.shell.refuse = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    back = members.join(instance="i").answer
    assert (back.error, back.member_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    assert members.heartbeat(old, 1, instance="i") == ErrorCode.NONE


def test_a_new_id_that_is_not_committed_in_time_is_not_told_but_counts() -> None:
    members = Members()
    _leader, old = members.stable(None, "i")
    members.shell.hold = True
    back = members.join(instance="i")
    members.shell.fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    assert back.answer.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert members.heartbeat(old, 1, instance="i") == ErrorCode.FENCED_INSTANCE_ID
    members.shell.hold = False
    assert members.join(instance="i").answer.error == ErrorCode.NONE


@pytest.mark.parametrize("fails", [True, False])
def test_a_rebalance_that_begins_before_the_new_id_is_committed_answers_it(fails: bool) -> None:
    members = Members()
    leader, _old = members.stable(None, "i")
    members.shell.hold = True
    back = members.join(instance="i")
    again = members.join(leader)
    assert back.answer.generation == again.answer.generation == 2
    if fails:
        members.shell.fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    else:
        members.shell.commit()
    members.validate()
    assert members.state == "CompletingRebalance"


def test_of_two_that_claim_one_instance_at_once_the_later_one_stays() -> None:
    members = Members()
    members.stable(None, "i")
    members.shell.hold = True
    first, second = members.join(instance="i"), members.join(instance="i")
    assert first.answer.error == ErrorCode.FENCED_INSTANCE_ID and second.waits
    members.shell.commit()
    assert second.answer.member_id == members.group.static_members["i"]
