"""What the replica manager and the fetchers know of each other.

Becoming a follower asks the fetchers to begin at this leader, epoch and offset, or to stop; a fetcher asks
for the partitions that are followed here. Kafka: ``BrokerEndPoint``, ``InitialFetchState``, what
``ReplicaManager`` uses of ``ReplicaFetcherManager``, and the follower's methods of ``Partition`` and
``ReplicaManager``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar
from uuid import UUID

from minikafka.errors import KafkaError
from minikafka.named_tuple import NamedTuple
from minikafka.network.addresses import format_address
from minikafka.types import BrokerId, Buffer, LeaderEpoch, Offset, TopicPartition

if TYPE_CHECKING:
    from minikafka.log.unified_log import AppendInfo, UnifiedLog


class LeaderEndpoint(NamedTuple):
    """Where a leader is reached by other brokers."""

    node_id: BrokerId
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.node_id} ({format_address(self.host, self.port)})"


class InitialFetchState(NamedTuple):
    """Where the fetching of one partition begins."""

    topic_id: UUID
    leader: LeaderEndpoint
    current_leader_epoch: LeaderEpoch
    init_offset: Offset
    """The follower's log end; its high watermark where the log knows no leader epoch at all."""


class FetcherStats(NamedTuple):
    """What one fetcher has done since it began (Kafka's ``FetcherStats``)."""

    client_id: str
    """The name of Kafka's thread."""
    leader: LeaderEndpoint
    requests: int
    requests_per_s: float
    """Over the last minute."""
    bytes: int
    """Of records that were appended."""
    is_dead: bool
    """Its loop has ended, and it was not told to."""


class ReplicaFetchers(Protocol):
    """The fetchers of a broker."""

    failed_partitions: set[TopicPartition]

    def add(self, partitions: Mapping[TopicPartition, InitialFetchState]) -> None: ...

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """At once: an answer that is under way for one of them is ignored."""
        ...

    def lags(self) -> Iterator[tuple[str, TopicPartition, int]]:
        """Fetcher, partition, and by how many records it lags behind as of the last answer."""
        ...

    def stats(self) -> Iterator[FetcherStats]: ...

    def end_idle(self) -> None:
        """Fetchers without partitions end."""
        ...

    async def close(self) -> None: ...


class FollowerPartition(Protocol):
    """A partition of which this broker is a follower. Calls that change the log raise KafkaError."""

    @property
    def log(self) -> UnifiedLog: ...

    def append_as_follower(self, records: Buffer, *, current_leader_epoch: LeaderEpoch) -> AppendInfo | None:
        """None when no batch was to be taken."""
        ...

    def truncate_to(self, offset: Offset, *, cause: str) -> None: ...

    def truncate_fully_and_start_at(self, offset: Offset, *, cause: str) -> None: ...

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
