"""Members of a KIP-848 group come, are found, and go. Kafka: ``GroupMetadataManager``, its checks of
members.

One step of a member towards its target assignment. Kafka: ``CurrentAssignmentBuilder``.

=====================  ============================================  ===============================
state                  the step                                      next state
=====================  ============================================  ===============================
STABLE                 its epoch is behind the target's              one of the three below
STABLE                 the target takes partitions away, and it      UNREVOKED_PARTITIONS, in its
                       may still own them                            old epoch
UNREVOKED_PARTITIONS   it says what it owns, and that is none of     STABLE or UNRELEASED_PARTITIONS
                       the revoked                                   in the target's epoch
UNRELEASED_PARTITIONS  others have given partitions back             STABLE, or itself with more
UNKNOWN                it says that it owns nothing                  as STABLE
=====================  ============================================  ===============================

Invariant: a partition goes to a member only while it is among no member's assigned or pending partitions.
So a partition has one owner, whatever the members do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from uuid import UUID

import msgspec

from minikafka.coordinator.group.consumer.consumer_group import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroup,
    ConsumerGroupMember,
    GroupDraft,
    MemberState,
    is_subset,
)
from minikafka.coordinator.group.consumer.target import bump_epoch, subscribed_topic_ids
from minikafka.coordinator.group.topic_image import TopicImage
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    TopicPartitions,
)

Owner = Callable[[UUID, int], str | None]
"""Who owns a partition, or must give it back: a member id."""
_NONE: frozenset[int] = frozenset()


class Reconciliation(msgspec.Struct, frozen=True, kw_only=True):
    """What a step depends on. ``owned`` is what the member says that it owns, None if it did not say."""

    target_epoch: int
    target: TopicPartitions
    subscribed_topic_ids: Collection[UUID]
    subscription_changed: bool
    owner: Owner
    owned: TopicPartitions | None

    def step(self, member: ConsumerGroupMember) -> ConsumerGroupMember:
        """The member after the step, ``member`` itself if it must wait.

        Raises:
            KafkaError: FENCED_MEMBER_EPOCH if the member's state is unknown and it owns something.
        """
        match member.state:
            case MemberState.STABLE:
                if member.epoch != self.target_epoch:
                    return self._next(member, member.epoch)
                return self._without_unsubscribed(member) if self.subscription_changed else member
            case MemberState.UNREVOKED_PARTITIONS:
                if not self._may_own(member.pending_revocation):
                    return self._next(member, member.epoch)
                return self._without_unsubscribed(member) if self.subscription_changed else member
            case MemberState.UNRELEASED_PARTITIONS:
                return self._next(member, member.epoch)
            case MemberState.UNKNOWN:
                if self.owned is None or self.owned:
                    raise KafkaError(
                        ErrorCode.FENCED_MEMBER_EPOCH,
                        "The consumer group member is in a unknown state. "
                        "The member must abandon all its partitions and rejoin.",
                    )
                return self._next(member, self.target_epoch)

    def _may_own(self, partitions: TopicPartitions) -> bool:
        if self.owned is None:
            return True
        return any(self.owned.get(topic_id, _NONE) & numbers for topic_id, numbers in partitions.items())

    def _without_unsubscribed(self, member: ConsumerGroupMember) -> ConsumerGroupMember:
        """The topics that the member does not want any more are revoked at once, in its epoch."""
        kept: TopicPartitions = {}
        revoked = dict(member.pending_revocation)
        for topic_id, numbers in member.assigned.items():
            if topic_id in self.subscribed_topic_ids:
                kept[topic_id] = numbers
            else:
                revoked[topic_id] = revoked.get(topic_id, _NONE) | numbers
        if len(kept) == len(member.assigned):
            return member
        if self._may_own(revoked):
            return _moved(member, MemberState.UNREVOKED_PARTITIONS, member.epoch, kept, revoked)
        return _moved(member, member.state, member.epoch, kept, member.pending_revocation)

    def _next(self, member: ConsumerGroupMember, epoch: int) -> ConsumerGroupMember:
        assigned: TopicPartitions = {}
        revoked: TopicPartitions = {}
        gained: TopicPartitions = {}
        waits = False
        for topic_id in {**self.target, **member.assigned}:
            target = self.target.get(topic_id, _NONE) if topic_id in self.subscribed_topic_ids else _NONE
            current = member.assigned.get(topic_id, _NONE)
            if kept := current & target:
                assigned[topic_id] = kept
            if lost := current - target:
                revoked[topic_id] = lost
            if wanted := target - kept:
                free = frozenset(
                    number
                    for number in wanted  # any order
                    if self.owner(topic_id, number) in (None, member.member_id)
                )
                if free:
                    gained[topic_id] = free
                waits = waits or len(free) < len(wanted)
        if revoked and self._may_own(revoked):
            return _moved(member, MemberState.UNREVOKED_PARTITIONS, epoch, assigned, revoked)
        assigned = {
            topic_id: assigned.get(topic_id, _NONE) | gained.get(topic_id, _NONE)
            for topic_id in self.target  # its order is what the member is told
            if topic_id in assigned or topic_id in gained
        }
        state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
        return _moved(member, state, self.target_epoch, assigned, {})


def _moved(
    member: ConsumerGroupMember,
    state: MemberState,
    epoch: int,
    assigned: TopicPartitions,
    pending_revocation: TopicPartitions,
) -> ConsumerGroupMember:
    """``member`` itself if nothing has changed. The epoch that it comes from becomes its previous one."""
    current = member.current
    if (current.state, current.member_epoch, current.assigned_partitions) == (state, epoch, assigned) and (
        current.partitions_pending_revocation == pending_revocation
    ):
        return member
    return msgspec.structs.replace(
        member,
        current=msgspec.structs.replace(
            current,
            member_epoch=epoch,
            previous_member_epoch=current.member_epoch,
            state=int(state),
            assigned_partitions=assigned,
            partitions_pending_revocation=pending_revocation,
        ),
    )


def check_room(group: ConsumerGroup, member_id: str, members_max: int) -> None:
    """Raises KafkaError GROUP_MAX_SIZE_REACHED for a new member."""
    if len(group.members) >= members_max and member_id not in group.members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {members_max} members.",
        )


def check_epoch(member: ConsumerGroupMember, epoch: int, owned: TopicPartitions | None) -> None:
    """Raises KafkaError FENCED_MEMBER_EPOCH.

    The epoch before is good too, if the member owns no more than it has: the answer with the new epoch may
    have been lost.
    """
    if epoch == member.epoch:
        return
    if epoch > member.epoch:
        comparison = "greater"
    elif (
        epoch == member.current.previous_member_epoch
        and owned is not None
        and is_subset(owned, member.assigned)
    ):
        return
    else:
        comparison = "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {comparison} member epoch ({epoch}) than the one known by the "
        f"group coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def known_static_member(group: ConsumerGroup, instance_id: str, member_id: str) -> ConsumerGroupMember:
    """Raises KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    member = group.static_member(instance_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{member.member_id}.",
        )
    return member


def join_static_member(
    draft: GroupDraft, instance_id: str, member_id: str, *, is_classic: bool
) -> ConsumerGroupMember:
    """A static member that is new, or takes the place of the one before, with its partitions.

    One that has missed the answer to its join, or was fenced by its epoch, joins with the member id that it
    has, and gets its state back as a dynamic member does. Kafka 4.4 refuses it with UNRELEASED_INSTANCE_ID
    until its session has expired, which ends Java's consumer.

    Raises:
        KafkaError: UNRELEASED_INSTANCE_ID while the one before has not left. Where one of the two speaks the
            classic protocol it need not: there, who comes last has the name (KIP-345).
    """
    old = draft.group.static_member(instance_id)
    if old is None:
        return draft.group.members.get(member_id) or ConsumerGroupMember(member_id)
    if old.epoch != LEAVE_STATIC_EPOCH and not is_classic and not old.is_classic:
        if old.member_id == member_id:
            return old
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
            f"instance id is owned by {old.member_id} member.",
        )
    target = draft.group.targets.get(old.member_id, {})
    current = msgspec.structs.replace(old.current, member_epoch=JOIN_EPOCH, previous_member_epoch=JOIN_EPOCH)
    new = ConsumerGroupMember(member_id, old.metadata, current)
    remove_member(draft, old.member_id)
    write_metadata(draft, new)
    key = ConsumerGroupTargetAssignmentMemberKey(draft.group.group_id, member_id)
    draft.write(key, ConsumerGroupTargetAssignmentMemberValue(target))
    write_current(draft, new)
    return new


def write_metadata(draft: GroupDraft, member: ConsumerGroupMember) -> None:
    draft.write(ConsumerGroupMemberMetadataKey(draft.group.group_id, member.member_id), member.metadata)


def write_current(draft: GroupDraft, member: ConsumerGroupMember) -> None:
    draft.write(
        ConsumerGroupCurrentMemberAssignmentKey(draft.group.group_id, member.member_id), member.current
    )


def remove_member(draft: GroupDraft, member_id: str) -> None:
    group_id = draft.group.group_id
    draft.write(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None)
    draft.write(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None)
    draft.write(ConsumerGroupMemberMetadataKey(group_id, member_id), None)


def remove_members(draft: GroupDraft, member_ids: Iterable[str], topics: TopicImage) -> None:
    """They leave or are fenced. What they had is free at once; the next heartbeat of any other assigns it."""
    for member_id in member_ids:
        remove_member(draft, member_id)
    forget_regexes(draft)
    bump_epoch(draft, topics)


def forget_regexes(draft: GroupDraft) -> None:
    """Forget the expressions that no member subscribes with any more."""
    for regex in list(draft.group.regexes):
        if not draft.group.regex_member_count(regex):
            draft.write(ConsumerGroupRegularExpressionKey(draft.group.group_id, regex), None)


def static_member_leave(draft: GroupDraft, member: ConsumerGroupMember) -> None:
    """A static member leaves and keeps its partitions; what it had to revoke it has revoked by leaving."""
    current = msgspec.structs.replace(
        member.current,
        member_epoch=LEAVE_STATIC_EPOCH,
        state=int(MemberState.STABLE),
        partitions_pending_revocation={},
    )
    write_current(draft, msgspec.structs.replace(member, current=current))


def reconcile(
    draft: GroupDraft,
    member_id: str,
    topics: TopicImage,
    *,
    owned: TopicPartitions | None,
    subscription_changed: bool,
) -> None:
    """One step of the member towards its target, if it is not there."""
    group = draft.group
    member = group.members[member_id]
    if member.is_reconciled_to(group.assignment_epoch) and not subscription_changed:
        return
    step = Reconciliation(
        target_epoch=group.assignment_epoch,
        target=group.targets.get(member_id, {}),
        subscribed_topic_ids=subscribed_topic_ids(group, member, topics),
        subscription_changed=subscription_changed,
        owner=group.owner,
        owned=owned,
    )
    updated = step.step(member)
    if updated is not member:
        write_current(draft, updated)
