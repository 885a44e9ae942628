"""What becoming a follower asks of the fetchers: begin at this leader, epoch and offset; stop.

Kafka: ``BrokerEndPoint``, ``InitialFetchState``, and what ``ReplicaManager`` uses of
``ReplicaFetcherManager``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol
from uuid import UUID

from minikafka.network.addresses import format_address
from minikafka.types import BrokerId, LeaderEpoch, Offset, TopicPartition


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
