"""A KIP-848 group as ConsumerGroupDescribe shows it. Kafka: ``ConsumerGroup.asDescribedGroup``."""

from __future__ import annotations

from minikafka.coordinator.group.consumer.consumer_group import ConsumerGroup
from minikafka.coordinator.group.messages import DescribedConsumerGroup, DescribedConsumerMember
from minikafka.coordinator.group.topic_image import TopicImage
from minikafka.protocol.internal.group_records import TopicPartitions

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


def describe_group(group: ConsumerGroup, topics: TopicImage, default_assignor: str) -> DescribedConsumerGroup:
    """Topics that are gone are left out: they have no name any more."""

    def existing(partitions: TopicPartitions) -> TopicPartitions:
        return {
            topic_id: numbers
            for topic_id, numbers in partitions.items()
            if topics.topic_by_id(topic_id) is not None
        }

    members = tuple(
        DescribedConsumerMember(
            member_id=member.member_id,
            instance_id=member.metadata.instance_id,
            rack_id=member.metadata.rack_id,
            member_epoch=member.epoch,
            client_id=member.metadata.client_id,
            client_host=member.metadata.client_host,
            subscribed_topic_names=member.metadata.subscribed_topic_names,
            subscribed_topic_regex=member.regex,
            assignment=existing(member.assigned),
            target_assignment=existing(group.targets.get(member.member_id, {})),
            member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
        )
        for member in group.members.values()
    )
    return DescribedConsumerGroup(
        group_id=group.group_id,
        state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor() or default_assignor,
        members=members,
    )
