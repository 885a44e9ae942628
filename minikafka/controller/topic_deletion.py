"""Deleting topics: all replicas first, then the topic's nodes.

Kafka: ``TopicDeletionManager``.

A request to delete a topic is a node that a client has left. From then on the topic's partitions have no
leader, and clients are told that it is gone (``LEADER_DURING_DELETE``). Its replicas, by status::

    ONLINE, OFFLINE --> OFFLINE --StopReplica, delete--> DELETION_STARTED --answer--> DELETION_SUCCESSFUL
                           |                                   |
                           | broker dead                       | error, or broker dead
                           +------> DELETION_INELIGIBLE <------+ --next try--> OFFLINE

When all are DELETION_SUCCESSFUL, the nodes are deleted and the topic is forgotten; one of the same name may
come at once, it has another id. A topic with a replica that cannot be deleted is ineligible, until a broker
that has one of its replicas comes (back).

Invariants:
- The topic's nodes go last: a controller that dies earlier leaves enough for the next one to go on.
- A replica counts as deleted only when its broker has answered a request that said so.
- One topic's deletion does not wait for another's.

A topic of which a partition is being reassigned waits with its deletion until that is done. Until then it is
a topic like any other: it has leaders, elections and clients, because without them the reassignment could
not end. Who wants it gone and cannot wait cancels the reassignment.

Where it differs from Kafka:
- There such a topic is queued for deletion and ineligible, and no leader is elected for it: when its leader
  dies, neither the reassignment nor the deletion comes to an end.
- Replicas that were ONLINE when their broker died, before the deletion could begin, go OFFLINE first; Kafka
  tries to make them ineligible at once, which its own table forbids.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from minikafka.controller.context import ControllerContext, PartitionStatus, Replicas, ReplicaStatus
from minikafka.controller.effects import Step, delete_topic_nodes, drop_topic_deletions
from minikafka.controller.partition_state_machine import PartitionStateMachine
from minikafka.controller.replica_state_machine import ReplicaStateMachine
from minikafka.controller.request_batch import update_metadata
from minikafka.types import BrokerId, TopicPartition

_log = logging.getLogger(__name__)


class TopicDeletionManager:
    """See the module header. ``is_enabled`` is ``delete.topic.enable``."""

    def __init__(
        self,
        context: ControllerContext,
        partitions: PartitionStateMachine,
        replicas: ReplicaStateMachine,
        *,
        is_enabled: bool,
    ) -> None:
        self._context = context
        self._partitions = partitions
        self._replicas = replicas
        self._is_enabled = is_enabled

    def __repr__(self) -> str:
        return (
            f"TopicDeletionManager(to be deleted {list(self._context.topics_to_be_deleted)}, "
            f"started {sorted(self._context.topics_with_deletion_started)}, "
            f"ineligible {sorted(self._context.topics_ineligible_for_deletion)})"
        )

    def enqueue(self, wanted: Iterable[str]) -> Step[None]:
        """These topics are to be deleted. Requests that cannot be granted are dropped, those that cannot
        be granted yet are kept."""
        context = self._context
        moving = context.topics_being_reassigned()
        dropped: list[str] = []
        for topic in wanted:
            if not self._is_enabled or topic not in context.topics:
                dropped.append(topic)
            elif topic in moving:
                _log.info("deletion of topic %s waits until it is reassigned", topic)
                context.topics_waiting_for_deletion[topic] = None
            else:
                context.topics_waiting_for_deletion.pop(topic, None)
                context.topics_to_be_deleted[topic] = None
        yield from drop_topic_deletions(dropped)

    def resume_after_reassignment(self) -> Step[None]:
        """Partitions are not being reassigned any more: their topics may have waited for that."""
        moving = self._context.topics_being_reassigned()
        ready = [topic for topic in self._context.topics_waiting_for_deletion if topic not in moving]
        if ready:
            yield from self.enqueue(ready)
            yield from self.resume()

    def mark_ineligible(self, topics: Iterable[str]) -> None:
        """Halt the deletion of those of ``topics`` that are to be deleted."""
        context = self._context
        halted = [topic for topic in topics if context.is_to_be_deleted(topic)]
        context.topics_ineligible_for_deletion.update(halted)
        if halted:
            _log.info("deletion of topics %s is halted", ", ".join(halted))

    def resume_for(self, topics: Iterable[str]) -> Step[None]:
        """What halted the deletion of ``topics`` may be over."""
        self._context.topics_ineligible_for_deletion.difference_update(topics)
        yield from self.resume()

    def fail(self, replicas: Replicas) -> Step[None]:
        """Replicas of topics to be deleted cannot be deleted at the moment."""
        yield from self._halt(replicas)
        yield from self.resume()

    def _halt(self, replicas: Replicas) -> Step[None]:
        """What is deleted already stays so."""
        online = self._with_status(replicas, ReplicaStatus.ONLINE)
        yield from self._replicas.change(online, ReplicaStatus.OFFLINE)
        undeleted = self._with_status(replicas, ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_STARTED)
        yield from self._replicas.change(undeleted, ReplicaStatus.DELETION_INELIGIBLE)
        self.mark_ineligible(
            dict.fromkeys(each.topic for partitions in undeleted.values() for each in partitions)
        )

    def complete(self, replicas: Replicas) -> Step[None]:
        """Replicas have been deleted."""
        yield from self._replicas.change(replicas, ReplicaStatus.DELETION_SUCCESSFUL)
        yield from self.resume()

    def resume(self) -> Step[None]:
        """Begin, try again or finish the deletion of each topic for which it is time."""
        context = self._context
        retried, begun = [], []
        for topic in list(context.topics_to_be_deleted):
            statuses = {status for _, _, status in context.statuses_of_topic(topic)}
            if statuses <= {ReplicaStatus.DELETION_SUCCESSFUL}:
                yield from self._finish(topic)
            elif ReplicaStatus.DELETION_STARTED not in statuses:
                if ReplicaStatus.DELETION_INELIGIBLE in statuses:
                    retried.append(topic)
                if topic not in context.topics_ineligible_for_deletion:
                    begun.append(topic)
        failed = self._with_status(
            context.replicas_of(each for topic in retried for each in context.topics[topic].partitions),
            ReplicaStatus.DELETION_INELIGIBLE,
        )
        yield from self._replicas.change(failed, ReplicaStatus.OFFLINE)
        if begun:
            yield from self._begin(begun)

    def _begin(self, topics: list[str]) -> Step[None]:
        """The topics have no leaders any more, and their replicas are deleted where they are alive."""
        context = self._context
        partitions = [each for topic in topics for each in context.topics[topic].partitions]
        unseen = [each for each in partitions if each.topic not in context.topics_with_deletion_started]
        self._partitions.change(unseen, PartitionStatus.OFFLINE)
        self._partitions.change(unseen, PartitionStatus.NON_EXISTENT)
        context.topics_with_deletion_started.update(topics)
        _log.info("deletion of topics %s has (re)started", ", ".join(topics))
        if context.brokers:
            yield update_metadata(context, context.brokers, partitions)
        alive, dead = context.split_by_online(context.replicas_of(partitions))
        yield from self._halt(dead)
        deleted = self._with_status(
            alive, ReplicaStatus.ONLINE, ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_INELIGIBLE
        )
        yield from self._replicas.change(deleted, ReplicaStatus.OFFLINE)
        yield from self._replicas.change(deleted, ReplicaStatus.DELETION_STARTED)

    def _finish(self, topic: str) -> Step[None]:
        deleted = self._context.replicas_of(self._context.topics[topic].partitions)
        yield from self._replicas.change(deleted, ReplicaStatus.NON_EXISTENT)
        yield from delete_topic_nodes(topic)
        self._context.remove_topic(topic)
        _log.info("topic %s is deleted", topic)

    def _with_status(
        self, replicas: Replicas, *wanted: ReplicaStatus
    ) -> dict[BrokerId, list[TopicPartition]]:
        statuses = self._context.replica_status
        return {
            broker: [each for each in partitions if statuses[broker][each] in wanted]
            for broker, partitions in replicas.items()
        }
