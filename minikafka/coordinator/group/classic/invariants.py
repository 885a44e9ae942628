"""What is always true of a group of the classic protocol between two calls. For tests."""

from __future__ import annotations

from collections import Counter

from minikafka.coordinator.group.classic.classic_group import ClassicGroup
from minikafka.coordinator.group.classic.protocols import names
from minikafka.coordinator.group.classic.state import ClassicGroupState
from minikafka.coordinator.group.footprint import GROUP_BYTES, PENDING_JOIN_BYTES
from minikafka.errors import InvariantError

_EMPTY = ClassicGroupState.EMPTY
_PREPARING = ClassicGroupState.PREPARING_REBALANCE
_COMPLETING = ClassicGroupState.COMPLETING_REBALANCE
_STABLE = ClassicGroupState.STABLE
_DEAD = ClassicGroupState.DEAD


def validate(group: ClassicGroup) -> None:
    """Check ``group``. Raises InvariantError."""
    broken = [name for name, holds in {**_of_members(group), **_of_state(group)}.items() if not holds]
    if broken:
        raise InvariantError(f"{', '.join(broken)}: {group!r}")


def _of_members(group: ClassicGroup) -> dict[str, bool]:
    members = group.members
    static = {member.group_instance_id: key for key, member in members.items() if member.is_static}
    supported = Counter(name for member in members.values() for name in names(member.protocols))
    return {
        "members are filed under their ids": all(key == member.member_id for key, member in members.items()),
        "instance ids are filed": static == group.static_members,
        "who waits to join is no member": not group.pending_joins & members.keys(),
        "who waits to sync is a member": group.pending_syncs <= members.keys(),
        "those who wait for a generation are counted": group.awaiting_join_count
        == sum(member.awaiting_join is not None for member in members.values()),
        "what it takes in memory is counted": group.footprint.size_bytes
        == GROUP_BYTES
        + len(group.group_id)
        + sum(member.size_bytes for member in members.values())
        + sum(PENDING_JOIN_BYTES + len(member_id) for member_id in group.pending_joins),
        "supported protocols are counted": supported == +group.supported,
        "a group with members has one that leads": (group.leader in members) if members else not group.leader,
        "members are of the group's kind": all(
            member.protocol_type == group.protocol_type for member in members.values()
        ),
    }


def _of_state(group: ClassicGroup) -> dict[str, bool]:
    state, members = group.state, group.members.values()
    return {
        "an empty group has no members": not members if state in (_EMPTY, _DEAD) else True,
        "a generation has members that agree": bool(members)
        and all(group.protocol in names(member.protocols) for member in members)
        if state in (_COMPLETING, _STABLE)
        else True,
        "joins wait for a rebalance, or for the log": state is _PREPARING
        or all(member.awaiting_join is None or (state is _STABLE and member.is_static) for member in members),
        "syncs wait for the leader": state is _COMPLETING
        or all(member.awaiting_sync is None for member in members),
        "who syncs is not waited for": all(
            member.awaiting_sync is None or member.member_id not in group.pending_syncs for member in members
        ),
        "syncs are due in a generation": not group.pending_syncs or state in (_COMPLETING, _STABLE),
        "new members wait for their first generation": all(
            state is _PREPARING for member in members if member.is_new
        ),
        "an assignment is stored for this generation": group.storing_generation is None
        or (state is _COMPLETING and group.storing_generation == group.generation),
    }
