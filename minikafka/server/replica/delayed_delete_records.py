"""A deletion of records that waits until all live replicas have deleted.

Kafka: ``DelayedDeleteRecords`` (KIP-107). The leader has raised its log start; the followers hear of it with
their next fetches and tell their own with the ones after. Each partition stands at REQUEST_TIMED_OUT until
the low watermark (the smallest log start of the live replicas) has reached what was asked, or until the
partition is not led here any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from minikafka.errors import ErrorCode, KafkaError
from minikafka.purgatory.purgatory import DelayedOperation
from minikafka.server.replica.replica_manager import ReplicaManager
from minikafka.types import NO_OFFSET, Offset, TopicPartition


class PartitionDeletion:
    """One partition of the request."""

    __slots__ = ("error", "is_pending", "low_watermark", "required_offset", "topic_partition")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.required_offset = NO_OFFSET
        self.low_watermark = NO_OFFSET
        self.error = ErrorCode.REQUEST_TIMED_OUT
        self.is_pending = True

    def __repr__(self) -> str:
        return (
            f"PartitionDeletion({self.topic_partition} below {self.required_offset}, "
            f"low_watermark={self.low_watermark}, {self.error.name})"
        )

    def begin(self, replicas: ReplicaManager, offset: Offset) -> None:
        """Delete on this replica what lies below ``offset`` (-1: the high watermark)."""
        try:
            self.required_offset = replicas.delete_records(self.topic_partition, offset)
        except KafkaError as error:
            self.settle(error.code)

    def try_settle(self, replicas: ReplicaManager) -> bool:
        """Whether it is settled, now or before."""
        if self.is_pending:
            try:
                low_watermark = replicas.hosted(self.topic_partition).low_watermark()
            except KafkaError as error:
                self.settle(error.code)
            else:
                if low_watermark < self.required_offset:
                    return False
                self.low_watermark = low_watermark
                self.settle(ErrorCode.NONE)
        return True

    def settle(self, error: ErrorCode) -> None:
        """There is nothing more to wait for."""
        self.error = error
        self.is_pending = False


class DelayedDeleteRecords(DelayedOperation):
    """A parked deletion; ``done`` is resolved when it is settled or its time is up."""

    __slots__ = ("_deletions", "_replicas", "done")

    def __init__(
        self, replicas: ReplicaManager, deletions: Sequence[PartitionDeletion], *, timeout_ms: int
    ) -> None:
        super().__init__(timeout_ms)
        self._replicas = replicas
        self._deletions = deletions
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def park(self) -> None:
        """Wait for the replicas."""
        keys = [deletion.topic_partition for deletion in self._deletions]
        self._replicas.parked.delete_records.try_complete_else_watch(self, keys)

    def try_complete(self) -> bool:
        replicas = self._replicas
        is_settled = True
        for deletion in self._deletions:
            is_settled = deletion.try_settle(replicas) and is_settled
        return is_settled and self.force_complete()

    def on_complete(self) -> None:
        if not self.done.done():  # cancelled: the broker stops
            self.done.set_result(None)

    def on_failure(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)
