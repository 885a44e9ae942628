"""SyncGroup, Heartbeat and LeaveGroup, and members that are not heard of. Kafka: ``classicGroupSync``,
``classicGroupHeartbeat``, ``classicGroupLeave``, ``expireClassicGroupMemberHeartbeat``.

Different from Kafka: LeaveGroup is answered at once, also when it leaves the group empty; as in Kafka 3, the
answer does not wait for the record of that.
"""

from __future__ import annotations

import logging
from typing import Final

from minikafka.coordinator.group.classic.classic_group import ClassicGroup
from minikafka.coordinator.group.classic.protocols import why
from minikafka.coordinator.group.classic.rebalance import Rebalances, StoreAssignment
from minikafka.coordinator.group.classic.state import ClassicGroupState
from minikafka.coordinator.group.effects import (
    Answer,
    Complete,
    Effects,
    GroupOperation,
    OperationKind,
    Ticket,
)
from minikafka.coordinator.group.messages import (
    Heartbeat,
    HeartbeatResult,
    LeaveGroup,
    LeaveGroupResult,
    LeavingMember,
    SyncGroup,
    SyncGroupResult,
)
from minikafka.errors import ErrorCode

_log = logging.getLogger(__name__)

_PREPARING = ClassicGroupState.PREPARING_REBALANCE
_COMPLETING = ClassicGroupState.COMPLETING_REBALANCE
_STABLE = ClassicGroupState.STABLE

HEARTBEAT_ACCEPTED: Final = HeartbeatResult()
HEARTBEAT_REBALANCE: Final = HeartbeatResult(ErrorCode.REBALANCE_IN_PROGRESS)
"""Shared by all answers: 2,000 idle members send a heartbeat every three seconds each."""


def heartbeat(group: ClassicGroup, request: Heartbeat, ticket: Ticket) -> Effects:
    member = group.members.get(request.member_id)
    if member is None or request.group_instance_id is not None:
        error = group.member_error(request.member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            return [Answer(ticket, HeartbeatResult(error))]
        member = group.members[request.member_id]
    if request.generation != group.generation:
        return [Answer(ticket, HeartbeatResult(ErrorCode.ILLEGAL_GENERATION))]
    result = HEARTBEAT_REBALANCE if group.state is _PREPARING else HEARTBEAT_ACCEPTED
    return [Answer(ticket, result), member.session]


def sync(group: ClassicGroup, request: SyncGroup, ticket: Ticket, rebalances: Rebalances) -> Effects:
    error = _sync_error(group, request)
    if error is not ErrorCode.NONE:
        return [Answer(ticket, SyncGroupResult(error=error))]
    member = group.members[request.member_id]
    effects: Effects = []
    if request.member_id in group.pending_syncs:
        group.pending_syncs.remove(request.member_id)
        if not group.pending_syncs:
            effects.append(Complete(group.sync_operation))
    if group.state is _STABLE:
        return [*effects, Answer(ticket, group.synced(member)), member.session]
    effects += group.answer_sync(member, SyncGroupResult(error=ErrorCode.REBALANCE_IN_PROGRESS))
    member.awaiting_sync = ticket
    if request.member_id == group.leader and group.storing_generation != group.generation:
        missing = len(group.members.keys() - request.assignments.keys())
        if missing:
            _log.warning("The leader of group %s assigns nothing to %d members", group.group_id, missing)
        group.storing_generation = group.generation
        effects.append(StoreAssignment(rebalances, group, request.assignments))
    return effects


def leave(
    group: ClassicGroup, request: LeaveGroup, ticket: Ticket, rebalances: Rebalances, now_ms: int
) -> Effects:
    effects: Effects = []
    results: list[tuple[LeavingMember, ErrorCode]] = []
    for leaving in request.members:
        error, gone = _leave(group, leaving)
        results.append((leaving, error))
        effects += gone
    left = sum(error is ErrorCode.NONE for _, error in results)
    if left:
        if group.state is _PREPARING:
            effects += rebalances.complete_if_all_joined(group, now_ms)
        elif group.state in (_STABLE, _COMPLETING):
            effects += rebalances.prepare(group, f"{left} members have left", now_ms)
    return [*effects, Answer(ticket, LeaveGroupResult(tuple(results)))]


def session_expired(group: ClassicGroup, member_id: str, rebalances: Rebalances, now_ms: int) -> Effects:
    member = group.members.get(member_id)
    if member is None or member.satisfies_heartbeat:
        return []
    effects = group.remove(member)
    _log.info("Group %s has not heard of member %s in time", group.group_id, member_id)
    return effects + rebalances.prepare_or_complete(group, f"member {member_id} has failed", now_ms)


def new_member_expired(group: ClassicGroup, member_id: str, rebalances: Rebalances, now_ms: int) -> Effects:
    """An id was given out and nobody has come with it."""
    group.expect_no_join(member_id)
    return rebalances.complete_if_all_joined(group, now_ms)


def _sync_error(group: ClassicGroup, request: SyncGroup) -> ErrorCode:
    error = group.member_error(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type not in (None, group.protocol_type) or (
        request.protocol_name not in (None, group.protocol)
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is _PREPARING else ErrorCode.NONE


def _leave(group: ClassicGroup, leaving: LeavingMember) -> tuple[ErrorCode, Effects]:
    member_id, instance_id = leaving.member_id, leaving.group_instance_id
    if not member_id:  # an administrator, who knows static members by their instance
        member_id = "" if instance_id is None else group.static_members.get(instance_id, "")
    elif member_id in group.pending_joins:
        group.expect_no_join(member_id)
        return ErrorCode.NONE, [Complete(GroupOperation(OperationKind.NEW_MEMBER, group.group_id, member_id))]
    error = group.member_error(member_id, instance_id)
    if error is not ErrorCode.NONE:
        return error, []
    _log.info("Group %s: member %s leaves%s", group.group_id, member_id, why(leaving.reason))
    return ErrorCode.NONE, group.remove(group.members[member_id])
