"""Topics and partitions come and go, and leaders write new ISRs.

Kafka: ``KafkaController.processTopicChange``, ``processPartitionModifications``, ``onNewPartitionCreation``,
``processTopicDeletion``, ``processIsrChangeNotification``. A topic's node says too what is to be reassigned
(``reassignment_wishes``).

Where it differs from Kafka:
- Replicas of a new partition on brokers that are away are OFFLINE; Kafka calls them online.
- A wish to delete a topic may be seen before the topic is: it is looked for before the wish is dropped.
- A topic that was deleted by hand and made anew is known by its id; and clients are not shown what was
  deleted by hand, where Kafka's brokers do until they restart. Its logs stay.
- A topic's node that was written is read once, for new partitions and for new assignments of the others; for
  those Kafka's controller is asked by the API, and ignores the node.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from minikafka.controller.effects import Step
from minikafka.controller.machines import Machines
from minikafka.controller.partition_state_machine import ElectionStrategy
from minikafka.controller.reassignment import finish_together, leave_admin_node, resume
from minikafka.controller.reassignment_wishes import Wishes, follow_topic_node, wishes_of_record
from minikafka.controller.states import PartitionStatus, ReplicaStatus
from minikafka.controller.store_access import (
    drop_topic_deletions,
    read_states,
    read_topic_deletions,
    read_topic_records,
    read_topics,
    take_isr_changes,
)
from minikafka.types import TopicPartition

_log = logging.getLogger(__name__)


def topic_change(machines: Machines) -> Step[None]:
    """Topics that are new get leaders; those that somebody has removed from the store are forgotten."""
    context = machines.context
    names = dict.fromkeys((yield from read_topics()))
    yield from _forget(machines, [topic for topic in context.topics if topic not in names])
    new = [topic for topic in names if topic not in context.topics]
    records = yield from read_topic_records(new)
    context.unreadable_topics = frozenset(topic for topic in new if topic not in records)
    created = [each for topic, record in records.items() for each in context.add_topic(topic, record)]
    yield from _new_partition_creation(machines, created)


def _forget(machines: Machines, vanished: Collection[str]) -> Step[None]:
    """Topics are gone from the store, and it was not the controller who deleted them."""
    context = machines.context
    if not vanished:
        return
    _log.warning("topics %s have vanished from the store", ", ".join(vanished))
    yield from drop_topic_deletions(
        topic
        for topic in vanished
        if context.is_to_be_deleted(topic) or topic in context.topics_waiting_for_deletion
    )
    yield from leave_admin_node(lambda each, _: each.topic in vanished)
    context.topics_to_be_deleted.update(dict.fromkeys(vanished))
    partitions = [each for topic in vanished for each in context.topics[topic].partitions]
    yield from machines.send_update_metadata(context.brokers, partitions)
    for topic in vanished:
        context.remove_topic(topic)


def partitions_change(machines: Machines, topic: str) -> Step[None]:
    """A topic's node was written. Partitions that it has more than before get leaders, those that have other
    replicas than before are reassigned."""
    context = machines.context
    if topic not in context.topics:
        return  # ``topic_change`` will see it
    record = (yield from read_topic_records([topic])).get(topic)
    created: Collection[TopicPartition] = ()
    wishes: Wishes = {}
    if record is None:
        yield from topic_change(machines)  # it has vanished, or its node cannot be read
    elif record.topic_id != context.topics[topic].topic_id:
        yield from _forget(machines, [topic])
        created = context.add_topic(topic, record)
    elif not context.is_to_be_deleted(topic):
        wishes = wishes_of_record(context, topic, record)
        created = context.add_partitions(topic, record)
    yield from _new_partition_creation(machines, created)
    yield from follow_topic_node(machines, wishes)


def _new_partition_creation(machines: Machines, created: Collection[TopicPartition]) -> Step[None]:
    if not created:
        return
    replicas = machines.context.replicas_of(created)
    machines.partitions.change(created, PartitionStatus.NEW)
    yield from machines.replicas.change(replicas, ReplicaStatus.NEW)
    yield from machines.partitions.elect(created, ElectionStrategy.OFFLINE)
    online, offline = machines.context.split_by_online(replicas)
    yield from machines.replicas.change(online, ReplicaStatus.ONLINE)
    yield from machines.replicas.change(offline, ReplicaStatus.OFFLINE, just_elected=set(created))
    yield from resume(machines, [each for each in created if each in machines.context.being_reassigned])


def topic_deletions_change(machines: Machines) -> Step[None]:
    """Somebody wants topics deleted."""
    wanted = yield from read_topic_deletions()
    if any(topic not in machines.context.topics for topic in wanted):
        yield from topic_change(machines)
    yield from machines.deletions.enqueue(wanted)
    yield from machines.deletions.resume()


def isr_change_notification(machines: Machines) -> Step[None]:
    """Leaders have written new ISRs: clients have to know them."""
    context = machines.context
    announced = yield from take_isr_changes()
    states = yield from read_states(each for each in announced if each in context.assignments)
    for topic_partition, current in states.items():
        if current.state.controller_epoch <= context.epoch:
            context.leadership[topic_partition] = current
    if states:
        yield from machines.send_update_metadata(context.brokers, states)
    yield from finish_together(machines, states)
