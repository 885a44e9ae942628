"""The first step of a new controller: read everything, tell everybody, put everything in order.

Kafka: ``KafkaController.onControllerFailover``, ``initializeControllerContext``. The order, as in Kafka: old
announcements are dropped, since everything is read now; brokers, topics and states; wishes to delete topics;
UpdateMetadata, so that all brokers know who is alive before anybody is told to follow somebody; replicas;
partitions, where the elections are; reassignments; deletions; preferred leaders.

Where it differs from Kafka:
- The first UpdateMetadata is full: what no topic is any more, brokers forget. Kafka's names no partitions.
- A broker may have died and come back while there was no controller to see it (always so when it is the only
  one). Where its registration is newer than the state that has it in the ISR, there is an election before
  anybody hears of the old epoch: what a crash took from a log must not share an epoch with what is written in
  its place (KIP-101). Kafka leaves such a partition in its old epoch.
- The wish to delete a topic that does not exist is dropped; Kafka deletes the nodes once more.
"""

from __future__ import annotations

from minikafka.controller.context import ControllerContext
from minikafka.controller.effects import Step
from minikafka.controller.elections import preferred_elections
from minikafka.controller.machines import Machines
from minikafka.controller.partition_state_machine import ElectionStrategy
from minikafka.controller.reassignment_wishes import resume_reassignments
from minikafka.controller.store_access import (
    read_brokers,
    read_states,
    read_topic_deletions,
    read_topic_records,
    read_topics,
    take_isr_changes,
    take_log_dir_events,
)
from minikafka.controller.unclean_returns import distrust_unclean_returns
from minikafka.types import NO_LEADER, BrokerId, TopicPartition


def controller_failover(machines: Machines) -> Step[None]:
    """``machines`` know nothing yet."""
    context = machines.context
    yield from take_log_dir_events()
    yield from take_isr_changes()
    yield from _initialize_context(context)
    machines.partitions.initialize()
    yield from machines.deletions.enqueue((yield from read_topic_deletions()))
    machines.deletions.mark_ineligible(_topics_with_offline_replicas(context))
    returned = _returned_unseen(context)
    yield from distrust_unclean_returns(machines, _brokers_of(returned))
    unclean = {
        each: [member for member in members if not context.brokers[member].clean_start]
        for each, members in returned.items()
    }
    yield from machines.partitions.elect(
        [each for each in returned if context.leadership[each].state.leader != NO_LEADER],
        ElectionStrategy.AFTER_ABSENCE,
        returned=unclean,
        announce=False,
    )
    yield from machines.send_update_metadata(
        context.brokers, machines.partitions_to_show(), is_full=context.is_complete
    )
    yield from machines.replicas.startup()
    yield from machines.partitions.trigger_online_state_change()
    yield from resume_reassignments(machines)
    yield from machines.deletions.resume()
    yield from preferred_elections(machines)


def _initialize_context(context: ControllerContext) -> Step[None]:
    context.brokers.update((yield from read_brokers()))
    names = yield from read_topics()
    records = yield from read_topic_records(names)
    context.unreadable_topics = frozenset(name for name in names if name not in records)
    for name, record in records.items():
        context.add_topic(name, record)
    context.leadership.update((yield from read_states(context.assignments)))


def _topics_with_offline_replicas(context: ControllerContext) -> list[str]:
    return [
        topic
        for topic in context.topics_to_be_deleted
        if any(
            not context.is_online(replica, topic_partition)
            for replica, topic_partition, _ in context.statuses_of_topic(topic)
        )
    ]


def _brokers_of(returned: dict[TopicPartition, list[BrokerId]]) -> list[BrokerId]:
    return list(dict.fromkeys(member for members in returned.values() for member in members))


def _returned_unseen(context: ControllerContext) -> dict[TopicPartition, list[BrokerId]]:
    """Members of ISRs, and eligible replicas, that have registered since the state that names them was
    written."""
    returned = {}
    for topic_partition, current in context.leadership.items():
        members = [
            member
            for member in (*current.state.isr, *current.state.eligible)
            if context.is_online(member, topic_partition)
            and context.brokers[member].epoch > current.written_at
        ]
        if members and not context.is_to_be_deleted(topic_partition.topic):
            returned[topic_partition] = members
    return returned
