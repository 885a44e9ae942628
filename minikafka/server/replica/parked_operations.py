"""The operations that wait for something to happen to a partition, and what they are told.

Kafka: ``DelayedOperations`` and the purgatories of ``ReplicaManager``. All are watched under their
partitions.

============================  =========================  ==========================================
event                         wakes                      because
============================  =========================  ==========================================
records were appended         fetches                    followers and tools read to the log end
the high watermark moved      produces, fetches          acks=all is fulfilled; consumers read on
a log start offset moved      deletions of records       all live replicas have deleted
the leadership changed, or    all                        each answers with what is true now
the partition went away
============================  =========================  ==========================================
"""

from __future__ import annotations

from typing import Final

from minikafka.purgatory.delayed_operation import DelayedOperation
from minikafka.purgatory.purgatory import PURGE_INTERVAL, DelayedOperationPurgatory
from minikafka.purgatory.timer import Timer
from minikafka.types import TopicPartition

DELETE_RECORDS_PURGE_INTERVAL: Final = 1
"""Kafka's ``delete.records.purgatory.purge.interval.requests``: deletions are few and wait for minutes."""


class ParkedOperations:
    """The purgatories of a broker's partitions, on one timer."""

    def __init__(
        self,
        timer: Timer,
        *,
        produce_purge_interval: int = PURGE_INTERVAL,
        fetch_purge_interval: int = PURGE_INTERVAL,
    ) -> None:
        self.produce: DelayedOperationPurgatory[DelayedOperation] = DelayedOperationPurgatory(
            "Produce", timer, produce_purge_interval
        )
        self.fetch: DelayedOperationPurgatory[DelayedOperation] = DelayedOperationPurgatory(
            "Fetch", timer, fetch_purge_interval
        )
        self.delete_records: DelayedOperationPurgatory[DelayedOperation] = DelayedOperationPurgatory(
            "DeleteRecords", timer, DELETE_RECORDS_PURGE_INTERVAL
        )

    def __repr__(self) -> str:
        return f"ParkedOperations({self.produce!r}, {self.fetch!r}, {self.delete_records!r})"

    def appended(self, topic_partition: TopicPartition) -> None:
        """The log has grown."""
        if self.fetch.watched:
            self.fetch.check_and_complete(topic_partition)

    def high_watermark_moved(self, topic_partition: TopicPartition) -> None:
        """The high watermark has moved."""
        if self.produce.watched:
            self.produce.check_and_complete(topic_partition)
        if self.fetch.watched:
            self.fetch.check_and_complete(topic_partition)

    def log_start_moved(self, topic_partition: TopicPartition) -> None:
        """Records were deleted on this replica or another, or may have been."""
        if self.delete_records.watched:
            self.delete_records.check_and_complete(topic_partition)

    def leadership_changed(self, topic_partition: TopicPartition) -> None:
        """Somebody else leads, or in another epoch, or the partition is not here any more."""
        self.high_watermark_moved(topic_partition)
        self.log_start_moved(topic_partition)
