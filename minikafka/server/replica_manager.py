"""The partitions that this broker hosts: a registry that finds the right one and routes to it.

Kafka's ``ReplicaManager``, without what the partition, the fetch and the log manager do for themselves. An
operation on several partitions answers each on its own: the failure of one is a value beside the successes
of the others.

After an append the produce road comes back here, and only here are the parked fetches of that partition
woken.

With ``flush.messages`` an answer waits for its flush (``flushed``), as in Kafka; the loop does not wait, and
goes on with other requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from uuid import UUID

from minikafka.config.topic import TopicConfig
from minikafka.errors import ErrorCode, KafkaError
from minikafka.log.log_manager import LogManager
from minikafka.log.unified_log import AppendInfo
from minikafka.purgatory.delayed_operation import DelayedOperation
from minikafka.purgatory.purgatory import DelayedOperationPurgatory
from minikafka.server.disk_chores import DiskChores
from minikafka.server.partition import Partition
from minikafka.types import BrokerId, Buffer, LeaderEpoch, Offset, TopicPartition


class ReplicaManager:
    """Registry of hosted partitions, keyed by name."""

    def __init__(
        self,
        *,
        node_id: BrokerId,
        log_manager: LogManager,
        fetch_purgatory: DelayedOperationPurgatory[DelayedOperation],
        chores: DiskChores,
    ) -> None:
        self.node_id = node_id
        self.log_manager = log_manager
        self.fetch_purgatory = fetch_purgatory
        self._chores = chores
        self.partitions: dict[TopicPartition, Partition] = {}
        self._by_topic: dict[str, dict[int, Partition]] = {}

    def __repr__(self) -> str:
        return f"ReplicaManager(node {self.node_id}, {len(self.partitions)} partitions)"

    def partition(self, topic_partition: TopicPartition) -> Partition:
        """The partition, if this broker leads it.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, or KAFKA_STORAGE_ERROR when the
                log directory is offline.
        """
        partition = self.partitions.get(topic_partition)
        if partition is None:
            if self.log_manager.is_offline(topic_partition):
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {topic_partition} is offline"
                )
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"this broker does not host {topic_partition}"
            )
        if partition.leader_id != self.node_id:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {topic_partition}")
        return partition

    def partitions_of(self, topic: str) -> Iterator[Partition]:
        return iter(self._by_topic.get(topic, {}).values())

    def _host(self, partition: Partition) -> None:
        topic, number = partition.topic_partition
        self.partitions[partition.topic_partition] = partition
        self._by_topic.setdefault(topic, {})[number] = partition

    def _forget(self, topic_partition: TopicPartition) -> None:
        if self.partitions.pop(topic_partition, None) is not None:
            siblings = self._by_topic[topic_partition.topic]
            del siblings[topic_partition.partition]
            if not siblings:
                del self._by_topic[topic_partition.topic]

    def append(self, topic_partition: TopicPartition, records: Buffer, *, required_acks: int) -> AppendInfo:
        """Append a producer's batch and wake the fetches that wait for it.

        Raises:
            KafkaError: see ``partition`` and ``Partition.append_as_leader``.
        """
        partition = self.partition(topic_partition)
        try:
            info = partition.append_as_leader(records, required_acks=required_acks)
        except KafkaError as error:
            self.note_failure(partition, error)
            raise
        log = partition.log
        if info.rolled or log.log_end_offset - log.recovery_point >= log.config.flush_messages:
            self._chores.flush(log)
        if self.fetch_purgatory.watched:
            self.fetch_purgatory.check_and_complete(topic_partition)
        return info

    def flushed(self, topic_partition: TopicPartition) -> asyncio.Future[None] | None:
        """For an append's answer: what it waits for, when ``flush.messages`` says that a flush is due."""
        partition = self.partitions.get(topic_partition)
        if partition is None:
            return None
        log = partition.log
        if log.log_end_offset - log.recovery_point < log.config.flush_messages:
            return None
        return self._chores.flushed(log)

    def note_failure(self, partition: Partition, error: KafkaError) -> None:
        """When ``error`` is the disk's, the log directory of ``partition`` goes offline, soon."""
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
            self._chores.directory_failed(self.log_manager.directory_of(partition.log), str(error))

    def become_leader(
        self,
        topic_partition: TopicPartition,
        *,
        topic_id: UUID,
        leader_epoch: LeaderEpoch,
        replicas: Sequence[BrokerId],
        isr: Sequence[BrokerId],
        is_new: bool,
    ) -> Partition:
        """Lead a partition: create its log where there is none. Waits for no disk: the disk thread makes the
        log and its leader epoch durable soon after.

        Args:
            is_new: the topic was just created, so a directory of its name on a failed disk cannot be its log.

        Raises:
            KafkaError: INCONSISTENT_TOPIC_ID, or KAFKA_STORAGE_ERROR when no log directory can take the log.
        """
        partition = self.partitions.get(topic_partition)
        if partition is None:
            log = self.log_manager.get_or_create(topic_partition, topic_id=topic_id, is_new=is_new)
            partition = Partition(topic_partition, topic_id=topic_id, node_id=self.node_id, log=log)
            self._host(partition)
            self._chores.logs_changed()
        elif partition.topic_id != topic_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{topic_partition} has topic id {partition.topic_id} here, not {topic_id}",
            )
        if partition.make_leader(leader_epoch=leader_epoch, replicas=tuple(replicas), isr=tuple(isr)):
            self._chores.flush(partition.log)
        return partition

    def delete_partition(self, topic_partition: TopicPartition) -> None:
        """Stop hosting a partition; its directory is renamed now and removed in the background."""
        self._forget(topic_partition)
        self.log_manager.delete(topic_partition)
        self._chores.logs_changed()
        self.fetch_purgatory.check_and_complete(topic_partition)

    def update_topic_config(self, topic: str, config: TopicConfig) -> None:
        """Apply a topic's new configuration to its logs."""
        for partition in self.partitions_of(topic):
            partition.log.update_config(config)

    def delete_records(self, topic_partition: TopicPartition, offset: Offset) -> Offset:
        """Forget what lies below ``offset`` (-1: the high watermark); returns the new log start offset.

        Raises:
            KafkaError: POLICY_VIOLATION for a compacted-only topic, OFFSET_OUT_OF_RANGE above the high
                watermark.
        """
        log = self.partition(topic_partition).log
        if "delete" not in log.config.cleanup_policy:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"records of {topic_partition} are not deleted: its cleanup.policy is "
                f"{','.join(log.config.cleanup_policy)}",
            )
        target = log.high_watermark if offset == -1 else offset
        if target < 0 or target > log.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"cannot delete records of {topic_partition} below {target}: "
                f"its high watermark is {log.high_watermark}",
            )
        log.increment_log_start_offset(target)
        return log.log_start_offset

    def take_directory_offline(self, directory: str, *, reason: str) -> list[TopicPartition]:
        """A log directory failed: stop hosting what lay in it, and answer what waits for it."""
        lost = self.log_manager.take_offline(directory, reason)
        for topic_partition in lost:
            self._forget(topic_partition)
            self.fetch_purgatory.check_and_complete(topic_partition)
        return lost
