"""What all requests to KIP-848 groups have in common: a member moves on, members go, a change is carried out.

``ConsumerGroups`` serves members that speak KIP-848, ``ClassicMembers`` those of the classic protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

import msgspec

from minikafka.coordinator.group.classic_groups import ClassicGroups
from minikafka.coordinator.group.consumer.consumer_group import (
    NO_METADATA,
    ConsumerGroup,
    ConsumerGroupMember,
    GroupDraft,
    MemberState,
)
from minikafka.coordinator.group.consumer.membership import (
    reconcile,
    refresh_regexes,
    remove_members,
    resolve_new_regexes,
    update_subscription,
)
from minikafka.coordinator.group.consumer.migration import downgrade_if_due
from minikafka.coordinator.group.consumer.target import (
    bump_epoch,
    target_question,
    topics_have_changed,
    write_target,
)
from minikafka.coordinator.group.environment import GroupCounts, GroupEventKind, GroupSettings, TopicImage
from minikafka.coordinator.group.group import GroupMap
from minikafka.coordinator.group.messages import (
    Answer,
    Effect,
    Effects,
    GroupOperation,
    MayDescribe,
    OperationKind,
    Park,
)
from minikafka.coordinator.group.modern_group import (
    carry_out,
    check_memory,
    compute_assignment,
    find_group,
    forget_timers,
    group_of_record,
    is_computed_beside,
    may_assign,
    revocation_timer,
    session_timer,
)
from minikafka.errors import ErrorCode
from minikafka.protocol.internal.group_records import (
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    TopicPartitions,
)


class GroupUpdater:
    """Updates KIP-848 groups. See the module header."""

    def __init__(
        self,
        groups: GroupMap,
        *,
        classic: ClassicGroups,
        settings: GroupSettings,
        topics: TopicImage,
        new_uuid: Callable[[], UUID],
        counts: GroupCounts,
    ) -> None:
        """``groups`` is shared with the shard's other parts; ``classic`` is where groups come from that are
        upgraded, and go that are downgraded."""
        self.groups = groups
        self.classic = classic
        self.settings = settings
        self.topics = topics
        self.new_uuid = new_uuid
        self.counts = counts

    def find(self, group_id: str) -> ConsumerGroup | None:
        return find_group(self.groups, group_id, ConsumerGroup)

    def advance(
        self,
        draft: GroupDraft,
        before: ConsumerGroupMember,
        metadata: ConsumerGroupMemberMetadataValue,
        *,
        owned: TopicPartitions | None,
        now_ms: int,
        may_describe: MayDescribe | None = None,
    ) -> ConsumerGroupMember:
        """The three steps of ``consumer_groups``'s module header, for a member that was ``before``, tells
        ``metadata`` and says that it owns ``owned``; what it is then.

        Raises:
            KafkaError: INVALID_REGULAR_EXPRESSION, FENCED_MEMBER_EPOCH.
        """
        topics = self.topics
        noted = draft.group
        wants_others = update_subscription(draft, before, metadata, topics, now_ms, may_describe)
        interval_ms = self.settings.group_consumer_regex_refresh_interval_ms
        others_match = refresh_regexes(draft, noted, topics, now_ms, interval_ms, may_describe)
        if not wants_others:
            others_match |= resolve_new_regexes(draft, topics, now_ms, may_describe)
        if wants_others or others_match or draft.group.epoch == 0 or topics_have_changed(draft.group, topics):
            bump_epoch(draft, topics)
            self.counts.consumer_group_rebalances += 1
            self._note_rebalance(draft, before, is_of_member=wants_others, now_ms=now_ms)
        if draft.group.epoch > draft.group.assignment_epoch and self._may_assign(draft.group, now_ms):
            self._assign(draft)
        reconcile(draft, before.member_id, topics, owned=owned, subscription_changed=wants_others)
        return draft.group.members[before.member_id]

    def _note_rebalance(
        self, draft: GroupDraft, before: ConsumerGroupMember, *, is_of_member: bool, now_ms: int
    ) -> None:
        if not is_of_member:
            why = "the topics that its members want have changed"
        elif before.metadata is NO_METADATA:
            why = f"member {before.member_id} has joined"
        else:
            why = f"member {before.member_id} wants other topics"
        group = draft.group
        self.counts.history.note(
            group.group_id, GroupEventKind.REBALANCE, f"{why} (epoch {group.epoch})", now_ms=now_ms
        )
        self._rebalance_begins(group, group.epoch - 1, why)

    def _rebalance_begins(self, group: ConsumerGroup, epoch: int, cause: str) -> None:
        """``epoch`` ends."""
        self.counts.rebalance_begins(
            group.group_id, generation=epoch, members=len(group.members), cause=cause
        )

    def note_gone(self, group: ConsumerGroup, member_id: str, removed: str | None, now_ms: int) -> None:
        """``removed``: why it was fenced; None: it leaves."""
        member = group.members.get(member_id)
        self.counts.history.note(
            group.group_id,
            GroupEventKind.LEFT if removed is None else GroupEventKind.REMOVED,
            removed or "",
            now_ms=now_ms,
            member_id=member_id,
            client_id="" if member is None else member.metadata.client_id,
        )

    def _may_assign(self, group: ConsumerGroup, now_ms: int) -> bool:
        """Whether the last assignment is old enough for another one (``canComputeNextTargetAssignment``,
        KIP-1263). Until it is, a member that joins has nothing; its heartbeats ask again."""
        interval_ms = self.settings.consumer_group(group.group_id).assignment_interval_ms
        return may_assign(group.assigned_ms or 0, interval_ms, now_ms)

    def _assign(self, draft: GroupDraft) -> None:
        """A target for the group's epoch: now, or when it is worked out, if that takes long. The member has
        the last one until then, as in Kafka (KIP-1263)."""
        group = draft.group
        if group.computing_epoch >= 0:
            return
        assignor, spec = target_question(group, self.topics, self.settings.group_consumer_assignors[0])
        settings = self.settings.consumer_group(group.group_id)
        if not is_computed_beside(group, spec.cost, enabled=settings.assignor_offload_enable):
            write_target(draft, assignor(spec), group.epoch)
            return
        group_id, epoch = group.group_id, group.epoch

        def write(group: ConsumerGroup, targets: Mapping[str, TopicPartitions], now_ms: int) -> Effects:
            draft = GroupDraft(group)
            write_target(draft, targets, epoch)
            return self.carry_out(draft, [])

        draft.begins.append(
            lambda: compute_assignment(
                group_id, epoch, lambda: assignor(spec), find=lambda: self.find(group_id), write=write
            )
        )

    def check_memory(self, before: ConsumerGroupMember, metadata: ConsumerGroupMemberMetadataValue) -> None:
        """Whether the member may tell ``metadata``.

        Raises:
            KafkaError: INVALID_REQUEST, GROUP_MAX_SIZE_REACHED.
        """
        if metadata != before.metadata:
            after = msgspec.structs.replace(before, metadata=metadata)
            is_new = before.metadata is NO_METADATA
            check_memory(self.groups.memory, before, after, is_new=is_new)

    def remove(
        self, draft: GroupDraft, member_ids: Iterable[str], now_ms: int, *, removed: str | None = None
    ) -> Effects:
        """Members leave, or are fenced and why; the timers that end with that."""
        member_ids = list(member_ids)
        for each in member_ids:
            self.note_gone(draft.group, each, removed, now_ms)
        cause = f"member {', '.join(member_ids)} {'leaves' if removed is None else f'is fenced: {removed}'}"
        self._rebalance_begins(draft.group, draft.group.epoch, cause)
        remove_members(draft, member_ids, self.topics)
        downgrade_if_due(draft, self.settings, self.topics, now_ms)
        return [timer for each in member_ids for timer in forget_member(draft.group.group_id, each)]

    def carry_out(
        self,
        draft: GroupDraft,
        timers: Effects,
        answer: Answer | None = None,
        *,
        retry: GroupOperation | None = None,
    ) -> Effects:
        """See ``modern_group.carry_out``."""
        group_id = draft.group.group_id
        return carry_out(
            draft,
            timers,
            answer,
            find=lambda: self.find(group_id),
            replay=self.replay,
            before=lambda now_ms: self._end_classic(draft, now_ms),
            after=lambda now_ms: self._begin_classic(draft, now_ms),
            retry=retry,
        )

    def _end_classic(self, draft: GroupDraft, now_ms: int) -> Effects:
        """Who waits in the group that becomes this one joins again, and finds this one."""
        if draft.replaces is None:
            return []
        effects = self.classic.forget(draft.replaces, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        return effects + [self.session(draft.group, member) for member in draft.group.members.values()]

    def _begin_classic(self, draft: GroupDraft, now_ms: int) -> Effects:
        """The members of the group that this one becomes have sessions there, and rebalance if anything is to
        be assigned again."""
        if draft.becomes is None:
            return []
        effects: Effects = []
        for member_id in draft.becomes.members:
            effects += forget_member(draft.becomes.group_id, member_id)
        effects += self.classic.adopt(draft.becomes, now_ms)
        if draft.group.epoch > draft.origin.epoch:
            effects += self.classic.prepare_rebalance(draft.becomes, "downgraded from KIP-848", now_ms)
        return effects

    def session(self, group: ConsumerGroup, member: ConsumerGroupMember) -> Park[GroupOperation]:
        classic = member.metadata.classic_member_metadata
        timeout_ms = (
            self.settings.consumer_group(group.group_id).session_timeout_ms
            if classic is None
            else classic.session_timeout_ms
        )
        return session_timer(group.group_id, member.member_id, timeout_ms)

    def replay(self, record: GroupRecord, now_ms: int) -> None:
        """Any record of KIP-848, and those of classic groups that end or begin with a change."""
        key, value = record.key, record.value
        if isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self.classic.replay(key, value, now_ms)
            return
        group = group_of_record(self.groups, record, ConsumerGroup)
        if group is None:
            return
        group.apply(record)
        if isinstance(key, ConsumerGroupTargetAssignmentMetadataKey) and value is not None:
            group.assigned_ms = now_ms


def revocation(group_id: str, member: ConsumerGroupMember) -> Effect:
    """Begin or end the time in which the member must have given back what is taken from it."""
    is_due = member.state is MemberState.UNREVOKED_PARTITIONS
    return revocation_timer(group_id, member.member_id, member.metadata.rebalance_timeout_ms, is_due=is_due)


def forget_member(group_id: str, member_id: str) -> Effects:
    """The timers of a member that is gone, whichever protocol it spoke."""
    return forget_timers(group_id, member_id, OperationKind.JOIN, OperationKind.SYNC)
