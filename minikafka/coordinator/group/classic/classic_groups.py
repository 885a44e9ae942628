"""Groups of the classic protocol: join, sync, heartbeat, leave.

The entry for a shard. ``join`` takes in members, ``membership`` is what they do then,
``rebalance`` leads the group from generation to generation, ``classic_group`` is the group.
Kafka: the ``classicGroup…`` half of ``GroupMetadataManager``.

Every answer is a result of its kind with an error code in it; only the checks of a group raise KafkaError.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, assert_never
from uuid import UUID

from minikafka.coordinator.group.classic.classic_group import ClassicGroup, refused
from minikafka.coordinator.group.classic.invariants import validate
from minikafka.coordinator.group.classic.join import Joins
from minikafka.coordinator.group.classic.membership import (
    heartbeat,
    leave,
    new_member_expired,
    session_expired,
    sync,
)
from minikafka.coordinator.group.classic.rebalance import Rebalances
from minikafka.coordinator.group.classic.records import described, group_from_record
from minikafka.coordinator.group.classic.state import ClassicGroupState
from minikafka.coordinator.group.counts import GroupCounts
from minikafka.coordinator.group.effects import (
    Answer,
    Complete,
    Effects,
    GroupOperation,
    OperationKind,
    Ticket,
)
from minikafka.coordinator.group.group import Group
from minikafka.coordinator.group.memory import GroupMap
from minikafka.coordinator.group.messages import (
    DescribedGroup,
    Heartbeat,
    HeartbeatResult,
    JoinGroup,
    LeaveGroup,
    LeaveGroupResult,
    SyncGroup,
    SyncGroupResult,
)
from minikafka.coordinator.group.settings import GroupSettings
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_records import GroupMetadataKey, GroupMetadataValue

_log = logging.getLogger(__name__)

_UNKNOWN: Final = ErrorCode.UNKNOWN_MEMBER_ID


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
        self._rebalances = Rebalances(settings, counts)
        self._joins = Joins(
            groups,
            settings=settings,
            rebalances=self._rebalances,
            new_uuid=new_uuid,
            forget=self.forget,
        )

    def __repr__(self) -> str:
        return f"ClassicGroups({sum(1 for _ in self._all())} groups)"

    def join(self, request: JoinGroup, ticket: Ticket, now_ms: int) -> Effects:
        """Answered with a JoinGroupResult."""
        return self._joins.join(request, ticket, now_ms)

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
        return sync(group, request, ticket, self._rebalances)

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
        return leave(group, request, ticket, self._rebalances, now_ms)

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
                return self._rebalances.join_expired(group, now_ms)
            case OperationKind.SYNC:
                return self._rebalances.sync_expired(group, now_ms)
            case OperationKind.SESSION:
                return session_expired(group, operation.member_id, self._rebalances, now_ms)
            case OperationKind.NEW_MEMBER:
                return new_member_expired(group, operation.member_id, self._rebalances, now_ms)
            case OperationKind.REVOCATION:
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
        return self._rebalances.prepare_or_complete(group, reason, now_ms)

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
                effects += self._rebalances.prepare(group, "it is larger than group.max.size", now_ms)
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
