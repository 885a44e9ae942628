"""A group changes between the classic protocol and KIP-848, while its members go on reading.

Kafka: ``convertToConsumerGroup``, ``convertToClassicGroup``, ``ConsumerGroup.fromClassicGroup``,
``ClassicGroup.fromConsumerGroup``. The first heartbeat of KIP-848 that joins a classic group of consumers
makes it a group of KIP-848, whose old members keep what they own and go on speaking the classic protocol
(``consumer_groups``). When the last member that speaks KIP-848 goes, it becomes a classic group again. One
append holds the end of the one and the beginning of the other.

Different from Kafka: of a partition that a client has assigned to two members, the first one has it.
"""

from __future__ import annotations

from minikafka.coordinator.group.classic_group import (
    ClassicGroup,
    ClassicGroupState,
    ClassicMember,
    choose_protocol,
    current_record,
)
from minikafka.coordinator.group.consumer.consumer_group import (
    PROTOCOL_TYPE,
    ConsumerGroup,
    ConsumerGroupMember,
    GroupDraft,
    MemberState,
)
from minikafka.coordinator.group.consumer.membership import write_current, write_metadata
from minikafka.coordinator.group.consumer.target import metadata_hash
from minikafka.coordinator.group.environment import GroupSettings, TopicImage
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.consumer_protocol import (
    MalformedSubscription,
    Partitions,
    read_assignment,
    read_subscription,
    write_assignment,
)
from minikafka.protocol.internal.group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartitions,
)


def draft_in_place_of(classic: ClassicGroup, settings: GroupSettings, topics: TopicImage) -> GroupDraft:
    """The KIP-848 group that ``classic`` becomes.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND if it may not, or cannot.
    """
    draft = GroupDraft(ConsumerGroup(classic.group_id), replaces=classic)
    if classic.is_empty:
        return draft
    if settings.group_consumer_migration_policy not in ("upgrade", "bidirectional"):
        raise _refused(classic, "online upgrade is disabled")
    if classic.protocol_type != PROTOCOL_TYPE:
        raise _refused(classic, "the group does not use the consumer embedded protocol")
    if len(classic.members) > settings.group_consumer_max_size:
        raise _refused(classic, "the group size exceeds the consumer group maximum size")
    try:
        members = _converted(classic, topics)
    except MalformedSubscription as error:
        raise _refused(classic, "the embedded consumer protocol is malformed") from error
    group_id = classic.group_id
    for member in members:
        write_metadata(draft, member)
    value = ConsumerGroupMetadataValue(
        epoch=classic.generation, metadata_hash=metadata_hash(draft.group.subscribed_topics(), topics)
    )
    draft.write(ConsumerGroupMetadataKey(group_id), value)
    for member in members:
        key = ConsumerGroupTargetAssignmentMemberKey(group_id, member.member_id)
        draft.write(key, ConsumerGroupTargetAssignmentMemberValue(member.assigned))
    draft.write(
        ConsumerGroupTargetAssignmentMetadataKey(group_id),
        ConsumerGroupTargetAssignmentMetadataValue(classic.generation),
    )
    for member in members:
        write_current(draft, member)
    return draft


def _converted(classic: ClassicGroup, topics: TopicImage) -> list[ConsumerGroupMember]:
    taken: TopicPartitions = {}
    members = []
    for member in classic.members.values():
        assignment = read_assignment(member.assignment)
        if assignment.user_data:
            raise _refused(classic, "an unsupported custom assignor is in use")
        owned: TopicPartitions = {}
        for topic_id, numbers in by_topic_id(assignment.partitions, topics).items():
            if free := numbers - taken.get(topic_id, frozenset()):
                owned[topic_id] = free
                taken[topic_id] = taken.get(topic_id, frozenset()) | free
        current = ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=classic.generation,
            previous_member_epoch=classic.generation,
            state=int(MemberState.STABLE),
            assigned_partitions=owned,
            partitions_pending_revocation={},
        )
        metadata = metadata_of_protocols(
            member.protocols,
            instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            session_timeout_ms=member.session_timeout_ms,
        )
        members.append(ConsumerGroupMember(member.member_id, metadata, current))
    return members


def metadata_of_protocols(
    protocols: tuple[tuple[str, bytes], ...],
    *,
    instance_id: str | None,
    client_id: str,
    client_host: str,
    rebalance_timeout_ms: int,
    session_timeout_ms: int,
) -> ConsumerGroupMemberMetadataValue:
    """What a member of the classic protocol tells about itself. Every assignor has the same subscription.

    Raises:
        MalformedSubscription: it is not a consumer's.
    """
    subscription = read_subscription(protocols[0][1])
    return ConsumerGroupMemberMetadataValue(
        instance_id=instance_id,
        rack_id=subscription.rack_id,
        client_id=client_id,
        client_host=client_host,
        subscribed_topic_names=tuple(sorted({*subscription.topics})),
        rebalance_timeout_ms=rebalance_timeout_ms,
        classic_member_metadata=ClassicMemberMetadata(
            session_timeout_ms,
            tuple(ClassicProtocol(name, metadata) for name, metadata in protocols),
        ),
    )


def downgrade_if_due(draft: GroupDraft, settings: GroupSettings, topics: TopicImage, now_ms: int) -> None:
    """If only members of the classic protocol are left, the group becomes one of it again, and none of the
    draft's records are needed."""
    group = draft.group
    if (
        not group.members
        or group.classic_member_count < len(group.members)
        or settings.group_consumer_migration_policy not in ("downgrade", "bidirectional")
        or len(group.members) > settings.group_max_size
    ):
        return
    classic = ClassicGroup(
        group.group_id,
        state_timestamp_ms=now_ms,
        state=ClassicGroupState.STABLE,
        generation=draft.origin.epoch,  # its members need not notice
        protocol_type=PROTOCOL_TYPE,
    )
    for member in group.members.values():
        classic.add_member(_classic_member(group.group_id, member))
    classic.protocol = choose_protocol([member.protocols for member in classic.members.values()])
    for classic_member in classic.members.values():
        target = group.targets.get(classic_member.member_id, {})
        version = read_subscription(classic_member.metadata(classic.protocol)).version
        classic.assign(classic_member, write_assignment(by_name(target, topics), version=version))
    classic.resolve_subscription()
    draft.becomes = classic
    draft.records = [*draft.origin.tombstones(), current_record(classic)]


def _classic_member(group_id: str, member: ConsumerGroupMember) -> ClassicMember:
    metadata, classic = member.metadata, member.metadata.classic_member_metadata
    assert classic is not None
    return ClassicMember(
        member.member_id,
        group_id=group_id,
        group_instance_id=metadata.instance_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        rebalance_timeout_ms=metadata.rebalance_timeout_ms,
        session_timeout_ms=classic.session_timeout_ms,
        protocol_type=PROTOCOL_TYPE,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in classic.supported_protocols),
    )


def by_topic_id(partitions: Partitions, topics: TopicImage) -> TopicPartitions:
    """Without topics that are gone."""
    return {
        topic.topic_id: frozenset(numbers)
        for name, numbers in partitions.items()
        if numbers and (topic := topics.topic(name)) is not None
    }


def by_name(partitions: TopicPartitions, topics: TopicImage) -> Partitions:
    """Without topics that are gone, in alphabetical order."""
    names = {
        topic.name: tuple(sorted(numbers))
        for topic_id, numbers in partitions.items()
        if (topic := topics.topic_by_id(topic_id)) is not None
    }
    return dict(sorted(names.items()))


def _refused(classic: ClassicGroup, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}.",
    )
