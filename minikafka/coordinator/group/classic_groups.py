"""Groups of the classic protocol: join, sync, heartbeat, leave.

The entry for a shard. ``JoinHandler`` admits members, ``sync``, ``heartbeat`` and ``leave`` are what they do
then, ``Rebalancer`` leads the group from generation to generation, ``classic_group`` is the group. Kafka: the
``classicGroup…`` half of ``GroupMetadataManager``.

Every answer is a result of its kind with an error code in it; only the checks of a group raise KafkaError.

**Rebalances**: from one generation to the next.
    prepare ──all have joined, or their time is up──> complete ──the leader's assignment is stored──> STABLE

Kafka: ``GroupMetadataManager.prepareRebalance``, ``completeClassicGroupJoin``,
``tryCompleteInitialRebalanceElseSchedule``, ``expirePendingSync`` and what they call.

Different from Kafka: the delayed operations are named by the group, so a timer of an older rebalance cannot
fire into a newer one; and a leader that syncs twice while its assignment is on the way to the log does not
write it again, so the log and the members never say different things.

**JoinGroup.** Kafka: ``GroupMetadataManager.classicGroupJoin…``. An unknown member with an instance id is a
static member (KIP-345): new, or that of the instance come back, which takes the old one's place. An unknown
member without one gets an id first, if its version knows that (KIP-394).

Different from Kafka: a refused join makes no group; and a static member's new id takes effect when its record
is in the log, so a refused append has nothing to revert.

**SyncGroup, Heartbeat, LeaveGroup**, and members whose session expires. Kafka: ``classicGroupSync``,
``classicGroupHeartbeat``, ``classicGroupLeave``, ``expireClassicGroupMemberHeartbeat``.

Different from Kafka: LeaveGroup is answered at once, also when it leaves the group empty; as in Kafka 3, the
answer does not wait for the record of that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, assert_never
from uuid import UUID

from minikafka.coordinator.group.classic_group import (
    ClassicGroup,
    ClassicGroupState,
    ClassicMember,
    check_session_timeout,
    choose_protocol,
    current_record,
    described,
    empty_record,
    group_from_record,
    group_record,
    new_member_id,
    refused,
    validate,
    why,
)
from minikafka.coordinator.group.environment import GroupCounts, GroupEventKind, GroupHistory, GroupSettings
from minikafka.coordinator.group.group import Group, GroupMap, member_bytes
from minikafka.coordinator.group.messages import (
    Answer,
    Append,
    Complete,
    DescribedGroup,
    Effects,
    GroupOperation,
    Heartbeat,
    HeartbeatResult,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    LeavingMember,
    OperationKind,
    Park,
    SyncGroup,
    SyncGroupResult,
    Ticket,
    coordinator_error,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_records import GroupMetadataKey, GroupMetadataValue

_log = logging.getLogger(__name__)

STATIC_MEMBER_RECHECK_MS = 1_000
"""The least time between two looks whether a static member has joined again. Members choose their rebalance
timeout; with 0 the group would look again at once and for ever, and no other work would have a turn (Kafka's
does, on a thread of its own)."""

_EMPTY = ClassicGroupState.EMPTY
_PREPARING = ClassicGroupState.PREPARING_REBALANCE
_COMPLETING = ClassicGroupState.COMPLETING_REBALANCE
_STABLE = ClassicGroupState.STABLE

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""Kafka's ``CLASSIC_GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS``: so long may a new member wait for its first answer.
It does not send heartbeats yet, and if its client gives up and asks again, it comes as another member."""

HEARTBEAT_ACCEPTED: Final = HeartbeatResult()
HEARTBEAT_REBALANCE: Final = HeartbeatResult(ErrorCode.REBALANCE_IN_PROGRESS)
"""Shared by all answers: 2,000 idle members send a heartbeat every three seconds each."""

_UNKNOWN: Final = ErrorCode.UNKNOWN_MEMBER_ID


class StoreAssignment(Append):
    """The leader's assignment. When it is committed, all members learn theirs and the group is STABLE."""

    __slots__ = ("_assignments", "_generation", "_group", "_rebalancer")

    def __init__(self, rebalancer: Rebalancer, group: ClassicGroup, assignments: Mapping[str, bytes]) -> None:
        super().__init__(
            [
                group_record(
                    group, members=group.members.values(), leader=group.leader, assignments=assignments
                )
            ]
        )
        self._rebalancer = rebalancer
        self._group = group
        self._generation = group.generation
        self._assignments = assignments

    def committed(self, now_ms: int) -> Effects:
        group = self._group
        if not self._is_current():
            return []
        group.storing_generation = None
        for member in group.members.values():
            group.assign(member, self._assignments.get(member.member_id, b""))
        group.transition(_STABLE, now_ms)
        self._rebalancer.counts.completed_rebalances += 1
        effects: Effects = []
        for member in group.members.values():
            if member.awaiting_sync is not None:
                effects += group.answer_sync(member, group.synced(member))
                effects.append(member.session)
        return effects

    def failed(self, error: KafkaError, now_ms: int) -> Effects:
        if not self._is_current():
            return []
        code = coordinator_error(error).code
        effects = reset_assignment(self._group, code)
        return effects + self._rebalancer.prepare(
            self._group, f"{code.name} when its assignment was stored", now_ms
        )

    def _is_current(self) -> bool:
        """Others may have joined or left meanwhile, and begun another rebalance."""
        return self._group.state is _COMPLETING and self._group.generation == self._generation


class Rebalancer:
    """Prepares and completes rebalances."""

    def __init__(self, settings: GroupSettings, counts: GroupCounts) -> None:
        self._settings = settings
        self.counts = counts

    def prepare_or_complete(self, group: ClassicGroup, reason: str, now_ms: int) -> Effects:
        """A member has come, changed or gone. ``reason`` is for the log."""
        if group.can_rebalance:
            return self.prepare(group, reason, now_ms)
        return self.complete_if_all_joined(group, now_ms)

    def prepare(self, group: ClassicGroup, reason: str, now_ms: int) -> Effects:
        """Begin: all members have to join again, within the rebalance timeout. The first members of an EMPTY
        group wait a little for others instead (KIP-134)."""
        effects: Effects = []
        if group.state is _COMPLETING:
            effects += reset_assignment(group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_syncs.clear()
        effects.append(Complete(group.sync_operation))
        initial = group.state is _EMPTY
        group.transition(_PREPARING, now_ms)
        self.counts.history.note(group.group_id, GroupEventKind.REBALANCE, reason, now_ms=now_ms)
        _log.info(
            "Preparing to rebalance group %s of generation %d: %s", group.group_id, group.generation, reason
        )
        self.counts.rebalance_begins(
            group.group_id, generation=group.generation, members=len(group.members), cause=reason
        )
        if initial:
            group.new_member_added = False
            group.initial_delay_ms = self._settings.group_initial_rebalance_delay_ms
            group.initial_remaining_ms = max(group.rebalance_timeout_ms - group.initial_delay_ms, 0)
            effects.append(Park(group.join_operation, group.initial_delay_ms))
        elif group.all_joined:
            effects += self._complete(group, now_ms)
        else:
            effects.append(Park(group.join_operation, group.rebalance_timeout_ms))
        return effects

    def complete_if_all_joined(self, group: ClassicGroup, now_ms: int) -> Effects:
        """A first rebalance always takes its time."""
        if group.state is not _PREPARING or group.previous_state is _EMPTY or not group.all_joined:
            return []
        return self._complete(group, now_ms)

    def join_expired(self, group: ClassicGroup, now_ms: int) -> Effects:
        """The rebalance timeout is over, or the delay of a first rebalance."""
        if group.state is not _PREPARING:
            return []
        if group.previous_state is _EMPTY and group.new_member_added and group.initial_remaining_ms:
            group.new_member_added = False
            delay_ms = min(self._settings.group_initial_rebalance_delay_ms, group.initial_remaining_ms)
            group.initial_remaining_ms = max(group.initial_remaining_ms - group.initial_delay_ms, 0)
            group.initial_delay_ms = delay_ms
            return [Park(group.join_operation, delay_ms)]
        return self._complete(group, now_ms)

    def sync_expired(self, group: ClassicGroup, now_ms: int) -> Effects:
        """Members that have joined but not synced in time are taken for dead."""
        if group.state not in (_COMPLETING, _STABLE) or not group.pending_syncs:
            return []
        late = [member for member in group.members.values() if member.member_id in group.pending_syncs]
        effects: Effects = []
        for member in late:
            self.note_removed(group, member, "it joined, but did not sync in time", now_ms)
            effects += group.remove(member)
        return effects + self.prepare(group, f"{len(late)} members have not synced in time", now_ms)

    def _complete(self, group: ClassicGroup, now_ms: int) -> Effects:
        """All who are going to have joined: the next generation begins. Static members stay until their
        session ends, whether they have joined or not."""
        effects: Effects = [Complete(group.join_operation)]
        for member in list(group.members.values()):
            if member.awaiting_join is None and not member.is_static:
                _log.info("Group %s loses %s, which has not joined again", group.group_id, member.member_id)
                self.note_removed(group, member, "it did not join again within the rebalance timeout", now_ms)
                effects += group.remove(member)
        if group.members and not group.elect_joined_leader():
            # Only static members, and none is back: wait until they are, or their sessions end.
            pause_ms = max(group.rebalance_timeout_ms, STATIC_MEMBER_RECHECK_MS)
            effects.append(Park(group.join_operation, pause_ms))
            return effects
        group.next_generation(now_ms)
        if group.state is _EMPTY:
            _log.info("Group %s of generation %d is empty", group.group_id, group.generation)
            effects.append(Append([current_record(group)]))
            return effects
        _log.info(
            "Group %s has %d members in generation %d", group.group_id, len(group.members), group.generation
        )
        self.counts.history.note(
            group.group_id,
            GroupEventKind.COMPLETED,
            f"{len(group.members)} members in generation {group.generation}",
            now_ms=now_ms,
        )
        for member in group.members.values():
            effects += group.answer_join(member, group.joined(member))
            effects.append(member.session)
            member.is_new = False
            group.pending_syncs.add(member.member_id)
        effects.append(Park(group.sync_operation, group.rebalance_timeout_ms))
        return effects

    def note_removed(self, group: ClassicGroup, member: ClassicMember, why: str, now_ms: int) -> None:
        self.counts.history.note(
            group.group_id,
            GroupEventKind.REMOVED,
            why,
            now_ms=now_ms,
            member_id=member.member_id,
            client_id=member.client_id,
        )


def reset_assignment(group: ClassicGroup, error: ErrorCode) -> Effects:
    """No member owns anything of this generation; those that wait for their assignment get ``error``."""
    effects: Effects = []
    group.storing_generation = None
    for member in group.members.values():
        group.assign(member, b"")
        if member.awaiting_sync is not None:
            effects += group.answer_sync(member, SyncGroupResult(error=error))
            effects.append(member.session)
    return effects


class NewGroup(Append):
    """A group that has begun; the record makes its existence outlive this broker. If the log refuses it there
    is no group, and members that have joined meanwhile hear why."""

    __slots__ = ("_forget", "_group", "_is_written")

    def __init__(
        self, group: ClassicGroup, forget: Callable[[ClassicGroup, ErrorCode, int], Effects]
    ) -> None:
        super().__init__([empty_record(group)])
        self._group = group
        self._forget = forget
        self._is_written = False

    def written(self, now_ms: int) -> Effects:
        self._is_written = True
        return []

    def failed(self, error: KafkaError, now_ms: int) -> Effects:
        if self._is_written:
            return []
        return self._forget(self._group, coordinator_error(error).code, now_ms)


class NewStaticMemberId(Append):
    """A static member of a STABLE group has come back, and nothing else changes: no rebalance."""

    __slots__ = (
        "_generation",
        "_group",
        "_is_written",
        "_new",
        "_old",
        "_skip_assignment",
        "_ticket",
        "_told_leader",
    )

    def __init__(
        self,
        group: ClassicGroup,
        old: ClassicMember,
        new: ClassicMember,
        *,
        skip_assignment: bool,
        ticket: Ticket,
    ) -> None:
        leader = new.member_id if group.leader == old.member_id else group.leader
        members = [new if member is old else member for member in group.members.values()]
        assignments = {member.member_id: member.assignment for member in members}
        super().__init__([group_record(group, members=members, leader=leader, assignments=assignments)])
        self._group = group
        self._old = old
        self._new = new
        self._skip_assignment = skip_assignment
        self._ticket = ticket
        self._generation = group.generation
        self._is_written = False
        # A client that cannot skip the assignment must not take itself for the leader: it would assign
        # without a rebalance. So it is told the leader of before, even if that was itself.
        self._told_leader = group.leader

    def written(self, now_ms: int) -> Effects:
        group = self._group
        self._is_written = True
        if group.members.get(self._old.member_id) is not self._old:
            return [Answer(self._ticket, refused(ErrorCode.UNKNOWN_MEMBER_ID))]
        effects = group.replace_static_member(self._old, self._new, self._ticket)
        group.resolve_subscription()
        return effects

    def committed(self, now_ms: int) -> Effects:
        if not self._waits():
            return []
        group, new = self._group, self._new
        if self._skip_assignment:
            result = group.joined(new, skip_assignment=True)
        else:
            result = JoinGroupResult(
                generation=group.generation,
                protocol_type=group.protocol_type,
                protocol_name=group.protocol,
                leader=self._told_leader or "",
                member_id=new.member_id,
            )
        return [*group.answer_join(new, result), new.session]

    def failed(self, error: KafkaError, now_ms: int) -> Effects:
        result = refused(coordinator_error(error).code)
        if not self._is_written:
            return [Answer(self._ticket, result)]
        if not self._waits():
            return []
        return [*self._group.answer_join(self._new, result), self._new.session]

    def _waits(self) -> bool:
        """Otherwise a rebalance has begun meanwhile, and answers the member; or the member was replaced."""
        group = self._group
        return (
            group.state is _STABLE
            and group.generation == self._generation
            and self._new.awaiting_join is self._ticket
        )


class JoinHandler:
    """Takes in JoinGroup requests, for one shard."""

    def __init__(
        self,
        groups: GroupMap,
        *,
        settings: GroupSettings,
        rebalancer: Rebalancer,
        new_uuid: Callable[[], UUID],
        forget: Callable[[ClassicGroup, ErrorCode, int], Effects],
    ) -> None:
        """``forget(group, error, now_ms)`` drops a group, and answers all who wait there."""
        self._groups = groups
        self._settings = settings
        self._rebalancer = rebalancer
        self._new_uuid = new_uuid
        self._forget = forget

    def join(self, request: JoinGroup, ticket: Ticket, now_ms: int) -> Effects:
        group = self._groups.get(request.group_id)
        try:
            check_session_timeout(request, self._settings)
            self._check_memory(group, request)
        except KafkaError as error:
            _log.warning("Group %s: a join is refused: %s", request.group_id, error)
            return _refuse(ticket, error.code, request.member_id)
        if group is None:
            if request.member_id:
                return _refuse(ticket, ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            return self._join_new_group(request, ticket, now_ms)
        if not isinstance(group, ClassicGroup):
            return _refuse(ticket, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        if not self._has_room(group, request.member_id):
            return self._reject_join(group, request.member_id, ticket, now_ms)
        if not group.supports_protocols(request.protocol_type, request.protocols):
            return _refuse(ticket, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        if request.member_id:
            return self._join_known(group, request, ticket, now_ms)
        return self._join_unknown_member(group, request, ticket, now_ms)

    def _check_memory(self, group: Group | None, request: JoinGroup) -> None:
        """Raises KafkaError INVALID_REQUEST, GROUP_MAX_SIZE_REACHED."""
        member = None
        if isinstance(group, ClassicGroup):
            member_id = group.static_members.get(request.group_instance_id or "", request.member_id)
            member = group.members.get(member_id)
        about = (request.member_id, request.group_instance_id, request.client_id, request.client_host)
        self._groups.memory.check_member(
            member_bytes(about, request.protocols), before_bytes=0 if member is None else member.size_bytes
        )

    def _join_new_group(self, request: JoinGroup, ticket: Ticket, now_ms: int) -> Effects:
        group = ClassicGroup(request.group_id, state_timestamp_ms=now_ms)
        if not group.supports_protocols(request.protocol_type, request.protocols):
            return _refuse(ticket, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        self._groups[request.group_id] = group
        new_group = NewGroup(group, self._forget)
        return [*self._join_unknown_member(group, request, ticket, now_ms), new_group]

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """Kafka: ``acceptJoiningMember``. While a rebalance is prepared those count who have joined: a group
        that is too large, since the limit was lowered, so loses those who come last."""
        if group.state is _EMPTY:
            return True
        member = group.members.get(member_id)
        if group.state is _PREPARING:
            if member is not None and member.awaiting_join is not None:
                return True
            return group.awaiting_join_count < self._settings.group_max_size
        return member is not None or len(group.members) < self._settings.group_max_size

    def _reject_join(self, group: ClassicGroup, member_id: str, ticket: Ticket, now_ms: int) -> Effects:
        effects = _refuse(ticket, ErrorCode.GROUP_MAX_SIZE_REACHED)
        member = group.members.get(member_id)
        if member is not None:
            effects += group.remove(member)
        elif member_id in group.pending_joins:
            group.expect_no_join(member_id)
            effects.append(Complete(GroupOperation(OperationKind.NEW_MEMBER, group.group_id, member_id)))
        return effects + self._rebalancer.complete_if_all_joined(group, now_ms)

    def _join_unknown_member(
        self, group: ClassicGroup, request: JoinGroup, ticket: Ticket, now_ms: int
    ) -> Effects:
        instance_id = request.group_instance_id
        prefix = request.client_id if instance_id is None else instance_id
        member_id = new_member_id(prefix, self._new_uuid())
        if instance_id is not None:
            current = group.static_members.get(instance_id)
            if current is not None:
                return self._replace_static(group, group.members[current], member_id, request, ticket, now_ms)
        elif request.requires_known_member_id:
            group.expect_join(member_id)
            operation = GroupOperation(OperationKind.NEW_MEMBER, group.group_id, member_id)
            return [
                *_refuse(ticket, ErrorCode.MEMBER_ID_REQUIRED, member_id),
                Park(operation, request.session_timeout_ms),
            ]
        return self._add(group, member_id, request, ticket, now_ms)

    def _join_known(self, group: ClassicGroup, request: JoinGroup, ticket: Ticket, now_ms: int) -> Effects:
        member_id = request.member_id
        if member_id in group.pending_joins:
            if request.group_instance_id is not None:  # only members without one are given such ids
                return _refuse(ticket, ErrorCode.UNKNOWN_SERVER_ERROR, member_id)
            operation = GroupOperation(OperationKind.NEW_MEMBER, group.group_id, member_id)
            return [Complete(operation), *self._add(group, member_id, request, ticket, now_ms)]
        error = group.member_error(member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            return _refuse(ticket, error, member_id)
        member = group.members[member_id]
        if _answers_at_once(group, member, request):
            return [Answer(ticket, group.joined(member))]
        effects = group.update_member(
            member,
            protocols=request.protocols,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            ticket=ticket,
        )
        reason = f"member {member_id} joins again{why(request.reason)}"
        return effects + self._rebalancer.prepare_or_complete(group, reason, now_ms)

    def _add(
        self, group: ClassicGroup, member_id: str, request: JoinGroup, ticket: Ticket, now_ms: int
    ) -> Effects:
        member = _member(member_id, request)
        member.is_new = True
        if group.state is _PREPARING and group.previous_state is _EMPTY:
            group.new_member_added = True
        group.add_member(member, ticket)
        reason = f"member {member_id} joins{why(request.reason)}"
        return [
            Park(member.session.operation, NEW_MEMBER_JOIN_TIMEOUT_MS),
            *self._rebalancer.prepare_or_complete(group, reason, now_ms),
        ]

    def _replace_static(
        self,
        group: ClassicGroup,
        old: ClassicMember,
        member_id: str,
        request: JoinGroup,
        ticket: Ticket,
        now_ms: int,
    ) -> Effects:
        new = _member(member_id, request)
        new.assignment = old.assignment
        _log.info("Group %s: %s is now %s", group.group_id, old.member_id, member_id)
        if group.state is _STABLE:
            ballots = [(new if member is old else member).protocols for member in group.members.values()]
            if choose_protocol(ballots) == group.protocol:
                skip_assignment = request.supports_skipping_assignment
                return [NewStaticMemberId(group, old, new, skip_assignment=skip_assignment, ticket=ticket)]
        effects = group.replace_static_member(old, new, ticket)
        # In COMPLETING_REBALANCE the leader may be assigning to the old id at this moment.
        reason = f"static member {member_id} joins{why(request.reason)}"
        return effects + self._rebalancer.prepare_or_complete(group, reason, now_ms)


def _answers_at_once(group: ClassicGroup, member: ClassicMember, request: JoinGroup) -> bool:
    """Whether a member that joins again only needs to hear of the current generation, because it has missed
    the answer. When the leader does so in a STABLE group, it wants to assign again."""
    if member.protocols != request.protocols:
        return False
    if group.state is _COMPLETING:
        return True
    return group.state is _STABLE and member.member_id != group.leader


def _member(member_id: str, request: JoinGroup) -> ClassicMember:
    return ClassicMember(
        member_id,
        group_id=request.group_id,
        group_instance_id=request.group_instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=request.protocols,
    )


def _refuse(ticket: Ticket, error: ErrorCode, member_id: str = "") -> Effects:
    return [Answer(ticket, refused(error, member_id))]


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


def sync(group: ClassicGroup, request: SyncGroup, ticket: Ticket, rebalancer: Rebalancer) -> Effects:
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
        effects.append(StoreAssignment(rebalancer, group, request.assignments))
    return effects


def leave(
    group: ClassicGroup, request: LeaveGroup, ticket: Ticket, rebalancer: Rebalancer, now_ms: int
) -> Effects:
    effects: Effects = []
    results: list[tuple[LeavingMember, ErrorCode]] = []
    for leaving in request.members:
        error, gone = _leave(group, leaving, rebalancer.counts.history, now_ms)
        results.append((leaving, error))
        effects += gone
    left = sum(error is ErrorCode.NONE for _, error in results)
    if left:
        if group.state is _PREPARING:
            effects += rebalancer.complete_if_all_joined(group, now_ms)
        elif group.state in (_STABLE, _COMPLETING):
            effects += rebalancer.prepare(group, f"{left} members have left", now_ms)
    return [*effects, Answer(ticket, LeaveGroupResult(tuple(results)))]


def session_expired(group: ClassicGroup, member_id: str, rebalancer: Rebalancer, now_ms: int) -> Effects:
    member = group.members.get(member_id)
    if member is None or member.satisfies_heartbeat:
        return []
    effects = group.remove(member)
    _log.info("Group %s: the session of member %s has expired", group.group_id, member_id)
    silent = f"no heartbeat for session.timeout.ms = {member.session_timeout_ms}"
    rebalancer.note_removed(group, member, silent, now_ms)
    return effects + rebalancer.prepare_or_complete(group, f"member {member_id} has failed", now_ms)


def new_member_expired(group: ClassicGroup, member_id: str, rebalancer: Rebalancer, now_ms: int) -> Effects:
    """An id was given out and no member has joined with it."""
    group.expect_no_join(member_id)
    return rebalancer.complete_if_all_joined(group, now_ms)


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


def _leave(
    group: ClassicGroup, leaving: LeavingMember, history: GroupHistory, now_ms: int
) -> tuple[ErrorCode, Effects]:
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
    member = group.members[member_id]
    history.note(
        group.group_id,
        GroupEventKind.LEFT,
        leaving.reason or "",
        now_ms=now_ms,
        member_id=member_id,
        client_id=member.client_id,
    )
    return ErrorCode.NONE, group.remove(member)


class ClassicGroups:
    """Works on the groups of a shard; ``groups`` is shared with the shard's other parts."""

    def __init__(
        self,
        groups: GroupMap,
        *,
        settings: GroupSettings,
        new_uuid: Callable[[], UUID],
        counts: GroupCounts,
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._rebalancer = Rebalancer(settings, counts)
        self.join = JoinHandler(
            groups,
            settings=settings,
            rebalancer=self._rebalancer,
            new_uuid=new_uuid,
            forget=self.forget,
        ).join
        """Answered with a JoinGroupResult."""

    def __repr__(self) -> str:
        return f"ClassicGroups({sum(1 for _ in self._all())} groups)"

    def sync(self, request: SyncGroup, ticket: Ticket, now_ms: int) -> Effects:
        """Answered with a SyncGroupResult."""
        group = self._groups.get(request.group_id)
        if not isinstance(group, ClassicGroup):
            return [Answer(ticket, SyncGroupResult(error=_UNKNOWN))]
        try:
            self._groups.memory.check_assignment(sum(map(len, request.assignments.values())))
        except KafkaError as error:
            _log.warning("Group %s: an assignment is refused: %s", group.group_id, error)
            return [Answer(ticket, SyncGroupResult(error=error.code))]
        return sync(group, request, ticket, self._rebalancer)

    def heartbeat(self, request: Heartbeat, ticket: Ticket, now_ms: int) -> Effects:
        """Answered with a HeartbeatResult."""
        group = self._groups.get(request.group_id)
        if not isinstance(group, ClassicGroup):
            return [Answer(ticket, HeartbeatResult(_UNKNOWN))]
        return heartbeat(group, request, ticket)

    def leave(self, request: LeaveGroup, ticket: Ticket, now_ms: int) -> Effects:
        """Answered with a LeaveGroupResult."""
        group = self._groups.get(request.group_id)
        if not isinstance(group, ClassicGroup):
            return [Answer(ticket, LeaveGroupResult(tuple((member, _UNKNOWN) for member in request.members)))]
        return leave(group, request, ticket, self._rebalancer, now_ms)

    def describe(self, group_id: str) -> DescribedGroup:
        """A group that is not there is Dead and has the error GROUP_ID_NOT_FOUND, which answers of
        DescribeGroups have since version 6; earlier ones say Dead without an error."""
        group = self._groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return described(group)
        message = (
            f"Group {group_id} not found." if group is None else f"Group {group_id} is not a classic group."
        )
        return DescribedGroup(group_id=group_id, error=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message)

    def make_simple(self, group_id: str, now_ms: int) -> Group:
        """An empty group that only holds offsets (made by a commit without a generation)."""
        group = ClassicGroup(group_id, state_timestamp_ms=now_ms)
        self._groups[group_id] = group
        return group

    def expired(self, operation: GroupOperation, now_ms: int) -> Effects:
        group = self._groups.get(operation.group_id)
        if not isinstance(group, ClassicGroup):
            return []
        match operation.kind:
            case OperationKind.JOIN:
                return self._rebalancer.join_expired(group, now_ms)
            case OperationKind.SYNC:
                return self._rebalancer.sync_expired(group, now_ms)
            case OperationKind.SESSION:
                return session_expired(group, operation.member_id, self._rebalancer, now_ms)
            case OperationKind.NEW_MEMBER:
                return new_member_expired(group, operation.member_id, self._rebalancer, now_ms)
            case OperationKind.REVOCATION | OperationKind.FIRST_ASSIGNMENT:
                return []
            case _:
                assert_never(operation.kind)

    # Groups that come from elsewhere, and go there

    def adopt(self, group: ClassicGroup, now_ms: int) -> Effects:
        """Put a group that was made elsewhere (a KIP-848 group that is downgraded) in the place of what has
        its id; the sessions of its members begin."""
        self._groups[group.group_id] = group
        return [member.session for member in group.members.values()]

    def prepare_rebalance(self, group: ClassicGroup, reason: str, now_ms: int) -> Effects:
        """All members have to join again; nothing if they are doing so. ``reason`` is for the log."""
        return self._rebalancer.prepare_or_complete(group, reason, now_ms)

    def forget(self, group: ClassicGroup, error: ErrorCode, now_ms: int) -> Effects:
        """The group is none of this protocol any more: who waits hears ``error``, nothing stays parked, and
        it has no members. The group's own record is the caller's business."""
        effects: Effects = [Complete(group.join_operation), Complete(group.sync_operation)]
        for member_id in sorted(group.pending_joins):
            effects.append(Complete(GroupOperation(OperationKind.NEW_MEMBER, group.group_id, member_id)))
            group.expect_no_join(member_id)
        for member in list(group.members.values()):
            effects += group.answer_join(member, refused(error, member.member_id))
            effects += group.answer_sync(member, SyncGroupResult(error=error))
            effects += group.remove(member)
        group.transition(ClassicGroupState.DEAD, now_ms)
        if self._groups.get(group.group_id) is group:
            del self._groups[group.group_id]
        return effects

    # The log

    def replay(self, key: GroupMetadataKey, value: GroupMetadataValue | None, now_ms: int) -> None:
        """A tombstone also ends a group that is there: only one without members gets one, or one that becomes
        a KIP-848 group, for which see ``forget``."""
        current = self._groups.get(key.group_id)
        if value is not None:
            self._groups[key.group_id] = group_from_record(key.group_id, value)
        elif isinstance(current, ClassicGroup):
            del self._groups[key.group_id]
            current.transition(ClassicGroupState.DEAD, now_ms)

    def loaded(self, now_ms: int) -> Effects:
        """All is replayed: sessions begin; a group that is larger than is allowed by now must rebalance."""
        effects: Effects = []
        for group in list(self._all()):
            effects += [member.session for member in group.members.values()]
            if len(group.members) > self._settings.group_max_size:
                effects += self._rebalancer.prepare(group, "it is larger than group.max.size", now_ms)
        return effects

    def waiting(self) -> list[Ticket]:
        """All parked requests, for a shard that is unloaded."""
        return [ticket for group in self._all() for ticket in group.waiting()]

    def validate(self) -> None:
        """Check the invariants of all groups. For tests. Raises InvariantError."""
        for group in self._all():
            validate(group)

    def _all(self) -> list[ClassicGroup]:
        return [group for group in self._groups.values() if isinstance(group, ClassicGroup)]
