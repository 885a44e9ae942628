"""Members of a KIP-848 group come, are found, and go. Kafka: ``GroupMetadataManager``, its checks of
members."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from minikafka.coordinator.group.consumer.change import GroupDraft
from minikafka.coordinator.group.consumer.consumer_group import ConsumerGroup
from minikafka.coordinator.group.consumer.member import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroupMember,
    MemberState,
    is_subset,
)
from minikafka.coordinator.group.consumer.reconciliation import Reconciliation
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


def check_room(group: ConsumerGroup, member_id: str, members_max: int) -> None:
    """Raises KafkaError GROUP_MAX_SIZE_REACHED for somebody new."""
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

    Raises:
        KafkaError: UNRELEASED_INSTANCE_ID while the one before has not left. Where one of the two speaks the
            classic protocol it need not: there, who comes last has the name (KIP-345).
    """
    old = draft.group.static_member(instance_id)
    if old is None:
        return draft.group.members.get(member_id) or ConsumerGroupMember(member_id)
    if old.epoch != LEAVE_STATIC_EPOCH and not is_classic and not old.is_classic:
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
    """What nobody subscribes with any more goes."""
    for regex in list(draft.group.regexes):
        if not draft.group.regex_member_count(regex):
            draft.write(ConsumerGroupRegularExpressionKey(draft.group.group_id, regex), None)


def leave_for_a_while(draft: GroupDraft, member: ConsumerGroupMember) -> None:
    """A static member goes and keeps its partitions; what it had to give back it has given back by going."""
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
