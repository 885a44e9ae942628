"""What a fetcher needs of the partitions that this broker follows, and of the registry that has them.

Kafka: the follower's methods of ``Partition`` and ``ReplicaManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from minikafka.errors import KafkaError
from minikafka.types import Buffer, LeaderEpoch, Offset, TopicPartition

if TYPE_CHECKING:
    from minikafka.log.unified_log import AppendInfo, UnifiedLog


class FollowerPartition(Protocol):
    """A partition of which this broker is a follower. Calls that change the log raise KafkaError."""

    @property
    def log(self) -> UnifiedLog: ...

    def append_as_follower(self, records: Buffer, *, current_leader_epoch: LeaderEpoch) -> AppendInfo | None:
        """None when no batch was to be taken."""
        ...

    def truncate_to(self, offset: Offset) -> None: ...

    def truncate_fully_and_start_at(self, offset: Offset) -> None: ...

    def update_follower_high_watermark(self, leader_high_watermark: Offset) -> bool:
        """The leader's, or the log end if that is lower; returns whether it moved."""
        ...

    def maybe_increment_log_start_offset(self, leader_log_start_offset: Offset) -> None:
        """Never above the high watermark."""
        ...


PartitionT = TypeVar("PartitionT", bound=FollowerPartition)


class Replicas(Protocol[PartitionT]):
    """The ``ReplicaManager``, as far as fetchers know it."""

    def hosted(self, topic_partition: TopicPartition) -> PartitionT:
        """Raises KafkaError when the partition is not here, or on a failed disk."""
        ...

    def follower_appended(self, partition: PartitionT, info: AppendInfo | None) -> None:
        """Records came (``info``), or the high watermark moved."""
        ...

    def note_failure(self, partition: PartitionT, error: KafkaError) -> None:
        """When ``error`` is the disk's, its log directory is looked after."""
        ...
