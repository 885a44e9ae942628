"""How a group of the classic protocol gets from one generation to the next.

    prepare ──all have joined, or their time is up──> complete ──the leader's assignment is stored──> STABLE

Kafka: ``GroupMetadataManager.prepareRebalance``, ``completeClassicGroupJoin``,
``tryCompleteInitialRebalanceElseSchedule``, ``expirePendingSync`` and what they call.

Different from Kafka: the delayed operations are named by the group, so a timer of an older rebalance cannot
fire into a newer one; and a leader that syncs twice while its assignment is on the way to the log does not
write it again, so the log and the members never say different things.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from minikafka.coordinator.group.classic.classic_group import ClassicGroup
from minikafka.coordinator.group.classic.records import current_record, group_record
from minikafka.coordinator.group.classic.state import ClassicGroupState
from minikafka.coordinator.group.counts import GroupCounts
from minikafka.coordinator.group.effects import Append, Complete, Effects, Park, coordinator_error
from minikafka.coordinator.group.messages import SyncGroupResult
from minikafka.coordinator.group.settings import GroupSettings
from minikafka.errors import ErrorCode, KafkaError

_log = logging.getLogger(__name__)

NOBODY_BACK_PAUSE_MS = 1_000
"""The least time between two looks whether a static member has joined again. Members choose their rebalance
timeout; with 0 the group would look again at once and for ever, and nobody else would have a turn (Kafka's
does, on a thread of its own)."""

_EMPTY = ClassicGroupState.EMPTY
_PREPARING = ClassicGroupState.PREPARING_REBALANCE
_COMPLETING = ClassicGroupState.COMPLETING_REBALANCE
_STABLE = ClassicGroupState.STABLE


class StoreAssignment(Append):
    """The leader's assignment. When it is committed, all members learn theirs and the group is STABLE."""

    __slots__ = ("_assignments", "_generation", "_group", "_rebalances")

    def __init__(self, rebalances: Rebalances, group: ClassicGroup, assignments: Mapping[str, bytes]) -> None:
        super().__init__(
            [
                group_record(
                    group, members=group.members.values(), leader=group.leader, assignments=assignments
                )
            ]
        )
        self._rebalances = rebalances
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
        self._rebalances.counts.completed_rebalances += 1
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
        return effects + self._rebalances.prepare(
            self._group, f"{code.name} when its assignment was stored", now_ms
        )

    def _is_current(self) -> bool:
        """Others may have joined or left meanwhile, and begun another rebalance."""
        return self._group.state is _COMPLETING and self._group.generation == self._generation


class Rebalances:
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
        _log.info(
            "Preparing to rebalance group %s of generation %d: %s", group.group_id, group.generation, reason
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
            effects += group.remove(member)
        return effects + self.prepare(group, f"{len(late)} members have not synced in time", now_ms)

    def _complete(self, group: ClassicGroup, now_ms: int) -> Effects:
        """All who are going to have joined: the next generation begins. Static members stay until their
        session ends, whether they have joined or not."""
        effects: Effects = [Complete(group.join_operation)]
        for member in list(group.members.values()):
            if member.awaiting_join is None and not member.is_static:
                _log.info("Group %s loses %s, which has not joined again", group.group_id, member.member_id)
                effects += group.remove(member)
        if group.members and not group.elect_joined_leader():
            # Only static members, and none is back: wait until they are, or their sessions end.
            pause_ms = max(group.rebalance_timeout_ms, NOBODY_BACK_PAUSE_MS)
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
        for member in group.members.values():
            effects += group.answer_join(member, group.joined(member))
            effects.append(member.session)
            member.is_new = False
            group.pending_syncs.add(member.member_id)
        effects.append(Park(group.sync_operation, group.rebalance_timeout_ms))
        return effects


def reset_assignment(group: ClassicGroup, error: ErrorCode) -> Effects:
    """Nobody owns anything of this generation; who waits for its assignment hears ``error``."""
    effects: Effects = []
    group.storing_generation = None
    for member in group.members.values():
        group.assign(member, b"")
        if member.awaiting_sync is not None:
            effects += group.answer_sync(member, SyncGroupResult(error=error))
            effects.append(member.session)
    return effects
