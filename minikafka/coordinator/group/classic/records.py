"""A group of the classic protocol as a record, and back. Kafka: ``newGroupMetadataRecord``, ``replay``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from minikafka.coordinator.group.classic.classic_group import ClassicGroup, ClassicGroupState, ClassicMember
from minikafka.coordinator.group.messages import DescribedGroup, DescribedMember
from minikafka.protocol.internal.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    MemberMetadata,
)


def group_record(
    group: ClassicGroup,
    *,
    members: Iterable[ClassicMember],
    leader: str | None,
    assignments: Mapping[str, bytes],
) -> GroupRecord:
    """What the log is to say of the group. ``assignments`` by member id; who is not in it gets nothing."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=leader,
        current_state_timestamp_ms=-1 if group.state_timestamp_ms is None else group.state_timestamp_ms,
        members=tuple(
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.session_timeout_ms,
                subscription=member.metadata(group.protocol or ""),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in members
        ),
    )
    return GroupRecord(GroupMetadataKey(group.group_id), value)


def current_record(group: ClassicGroup) -> GroupRecord:
    """The group as it is."""
    assignments = {member.member_id: member.assignment for member in group.members.values()}
    return group_record(group, members=group.members.values(), leader=group.leader, assignments=assignments)


def empty_record(group: ClassicGroup) -> GroupRecord:
    """A group that no member has joined yet, not even its type is known (``newEmptyGroupMetadataRecord``)."""
    value = GroupMetadataValue(
        protocol_type="",
        generation=0,
        protocol=None,
        leader=None,
        current_state_timestamp_ms=-1 if group.state_timestamp_ms is None else group.state_timestamp_ms,
        members=(),
    )
    return GroupRecord(GroupMetadataKey(group.group_id), value)


def group_from_record(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """STABLE, or EMPTY without members: what was going on when the record was written is over.

    A record may come from another broker or an older version, so it is taken as it is: a member that is named
    twice counts once, a leader that is no member is replaced.
    """
    group = ClassicGroup(
        group_id,
        state=ClassicGroupState.STABLE if value.members else ClassicGroupState.EMPTY,
        state_timestamp_ms=None if value.current_state_timestamp_ms < 0 else value.current_state_timestamp_ms,
        generation=value.generation,
        protocol_type=value.protocol_type or None,
        protocol=(value.protocol or "") if value.members else value.protocol,
    )
    for member in value.members:
        if member.member_id in group.members or member.group_instance_id in group.static_members:
            continue
        group.add_member(_member(group, value, member))
    if value.leader in group.members:
        group.leader = value.leader
    group.resolve_subscription()
    return group


def described(group: ClassicGroup) -> DescribedGroup:
    """Metadata and protocol only of a STABLE group: otherwise members do not agree on one."""
    protocol = group.protocol if group.state is ClassicGroupState.STABLE else None
    return DescribedGroup(
        group_id=group.group_id,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol=protocol or "",
        members=tuple(
            DescribedMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=b"" if protocol is None else member.metadata(protocol),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ),
    )


def _member(group: ClassicGroup, value: GroupMetadataValue, member: MemberMetadata) -> ClassicMember:
    rebalance_timeout_ms = member.rebalance_timeout_ms
    if rebalance_timeout_ms < 0:  # records of version 0 have none
        rebalance_timeout_ms = member.session_timeout_ms
    return ClassicMember(
        member.member_id,
        group_id=group.group_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=rebalance_timeout_ms,
        session_timeout_ms=member.session_timeout_ms,
        protocol_type=value.protocol_type,
        protocols=((value.protocol or "", member.subscription),),
        assignment=member.assignment,
    )
