"""What a step works with: the context, and the machines that change it.

Kafka: the fields of ``KafkaController``.
"""

from __future__ import annotations

from collections.abc import Iterable

from minikafka.controller.context import ControllerContext
from minikafka.controller.effects import Step
from minikafka.controller.partition_state_machine import PartitionStateMachine
from minikafka.controller.replica_state_machine import ReplicaStateMachine
from minikafka.controller.request_batch import update_metadata
from minikafka.controller.topic_deletion import TopicDeletionManager
from minikafka.named_tuple import NamedTuple
from minikafka.types import BrokerId, TopicPartition


class Machines(NamedTuple):
    """All of one controller, from its election to its end."""

    context: ControllerContext
    partitions: PartitionStateMachine
    replicas: ReplicaStateMachine
    deletions: TopicDeletionManager

    @classmethod
    def of_epoch(cls, controller_epoch: int, *, delete_topic_enable: bool) -> Machines:
        context = ControllerContext(controller_epoch)
        partitions, replicas = PartitionStateMachine(context), ReplicaStateMachine(context)
        deletions = TopicDeletionManager(context, partitions, replicas, is_enabled=delete_topic_enable)
        return cls(context, partitions, replicas, deletions)

    def send_update_metadata(
        self,
        brokers: Iterable[BrokerId],
        partitions: Iterable[TopicPartition] = (),
        *,
        is_full: bool = False,
    ) -> Step[None]:
        """Tell ``brokers``, if there are any, who is alive and what became of ``partitions``."""
        if to := tuple(brokers):
            yield update_metadata(self.context, to, partitions, is_full=is_full)

    def partitions_to_show(self) -> list[TopicPartition]:
        """``partitionsWithLeaders``: all that clients may know of."""
        deleted = self.context.topics_to_be_deleted
        return [each for each in self.context.leadership if each.topic not in deleted]
