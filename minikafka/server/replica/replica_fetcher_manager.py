"""Which fetcher follows which partition. One loop per source broker and fetcher id.

Kafka: ``ReplicaFetcherManager``, ``AbstractFetcherManager``. The fetcher of a partition is
|31 · hash(topic) + partition| mod ``num.replica.fetchers``, with Java's string hash.

Invariants:
- A partition is fetched by at most one fetcher.
- Nothing waits: adding and removing act at once, and a fetcher that ended takes nothing more. Its loop may
  still be closing its connection; ``close`` waits for all of them.

Differs from Kafka: a leader that is reached at another address takes all its partitions along; Kafka keeps
those only that the call names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Generic

from minikafka.clock import Clock
from minikafka.config.broker import BrokerConfig
from minikafka.deferred import deferred
from minikafka.named_tuple import NamedTuple
from minikafka.network.broker_client import BrokerClient
from minikafka.server.replica.replica_fetchers import (
    FetcherStats,
    InitialFetchState,
    LeaderEndpoint,
    PartitionT,
    Replicas,
)
from minikafka.server.replica.replication_quotas import ReplicationQuotaManager
from minikafka.server.runtime.event_loop import Restart, Supervisor
from minikafka.server.runtime.java_hash import java_abs, string_hash, to_int
from minikafka.types import BrokerId, TopicPartition

if TYPE_CHECKING:
    from minikafka.server.replica import replica_fetcher
    from minikafka.server.replica.replica_fetcher import Connect, ReplicaFetcher
else:
    replica_fetcher = deferred("minikafka.server.replica.replica_fetcher")

__all__ = ["InitialFetchState", "LeaderEndpoint", "ReplicaFetcherManager", "fetcher_id"]


class FetcherKey(NamedTuple):
    """A source broker, and one of the fetchers for it."""

    leader_id: BrokerId
    fetcher_id: int

    @property
    def thread_name(self) -> str:
        """That of Kafka's thread, by which its metrics are known."""
        return f"ReplicaFetcherThread-{self.fetcher_id}-{self.leader_id}"


class ReplicaFetcherManager(Generic[PartitionT]):
    """All fetchers of a broker. The loops are tasks of the supervisor."""

    def __init__(
        self,
        *,
        node_id: BrokerId,
        replicas: Replicas[PartitionT],
        clock: Clock,
        supervisor: Supervisor,
        config: Callable[[], BrokerConfig],
        broker_epoch: Callable[[], int],
        quota: ReplicationQuotaManager,
        connect: Connect = BrokerClient.connect,
    ) -> None:
        self.failed_partitions: set[TopicPartition] = set()
        """Fetched no more, until they are added again or removed."""
        self._node_id = node_id
        self._replicas = replicas
        self._clock = clock
        self._supervisor = supervisor
        self._config = config
        self._broker_epoch = broker_epoch
        self._quota = quota
        self._connect = connect
        self._fetchers: dict[FetcherKey, ReplicaFetcher[PartitionT]] = {}
        self._keys: dict[TopicPartition, FetcherKey] = {}
        self._loops: dict[ReplicaFetcher[PartitionT], asyncio.Task[None]] = {}
        self._is_closed = False

    def __repr__(self) -> str:
        return (
            f"ReplicaFetcherManager({len(self._fetchers)} fetchers, {len(self._keys)} partitions, "
            f"{len(self.failed_partitions)} failed)"
        )

    def add(self, partitions: Mapping[TopicPartition, InitialFetchState]) -> None:
        """Follow these leaderships from now on. A partition that failed gets another chance; one that
        another fetcher has is taken from it; one that follows the very leadership already is kept."""
        if self._is_closed:
            return
        fetchers_count = self._config().num_replica_fetchers
        for topic_partition, initial in partitions.items():
            key = FetcherKey(initial.leader.node_id, fetcher_id(topic_partition, fetchers_count))
            if self._keys.get(topic_partition, key) != key:
                self._release(topic_partition)
            self.failed_partitions.discard(topic_partition)
            self._keys[topic_partition] = key
            fetcher = self._fetcher(key, initial.leader)
            fetcher.partitions.add(
                topic_partition,
                topic_id=initial.topic_id,
                current_leader_epoch=initial.current_leader_epoch,
                fetch_offset=initial.init_offset,
            )
            fetcher.wake()

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch these no more; what is under way for them is ignored. Unknown ones are fine."""
        for topic_partition in partitions:
            self.failed_partitions.discard(topic_partition)
            self._release(topic_partition)

    def lags(self) -> Iterator[tuple[str, TopicPartition, int]]:
        """See ``ReplicaFetchers``."""
        for key, fetcher in self._fetchers.items():
            for topic_partition, lag in fetcher.partitions.lags():
                yield key.thread_name, topic_partition, lag

    def stats(self) -> Iterator[FetcherStats]:
        """See ``ReplicaFetchers``."""
        for key, fetcher in self._fetchers.items():
            yield FetcherStats(
                key.thread_name,
                fetcher.leader.endpoint,
                requests=fetcher.requests,
                requests_per_s=fetcher.request_rate.per_second(),
                bytes=fetcher.partitions.fetched_bytes,
                is_dead=fetcher not in self._loops,
            )

    def end_idle(self) -> None:
        """End the fetchers that have no partitions."""
        for key, fetcher in list(self._fetchers.items()):
            if not fetcher.partitions:
                self._end(key)

    async def close(self) -> None:
        """End all fetchers and wait until their loops are over. Nothing can be added afterwards."""
        self._is_closed = True
        for key in list(self._fetchers):
            self._end(key)
        self._keys.clear()
        await asyncio.gather(*self._loops.values(), return_exceptions=True)

    def _release(self, topic_partition: TopicPartition) -> None:
        key = self._keys.pop(topic_partition, None)
        fetcher = None if key is None else self._fetchers.get(key)
        if fetcher is not None:
            fetcher.partitions.remove(topic_partition)

    def _fetcher(self, key: FetcherKey, leader: LeaderEndpoint) -> ReplicaFetcher[PartitionT]:
        """The fetcher of this key, connected to this address."""
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            return self._start(key, leader)
        if fetcher.leader.endpoint == leader:
            return fetcher
        states = fetcher.partitions.take_all()
        self._end(key)
        moved = self._start(key, leader)
        moved.partitions.adopt(states)
        return moved

    def _start(self, key: FetcherKey, leader: LeaderEndpoint) -> ReplicaFetcher[PartitionT]:
        remote = replica_fetcher.RemoteLeader(
            leader,
            client_id=f"broker-{self._node_id}-fetcher-{key.fetcher_id}",
            node_id=self._node_id,
            config=self._config,
            broker_epoch=self._broker_epoch,
            connect=self._connect,
        )
        fetcher = self._fetchers[key] = replica_fetcher.ReplicaFetcher(
            remote,
            replicas=self._replicas,
            clock=self._clock,
            config=self._config,
            failed_partitions=self.failed_partitions,
            quota=self._quota,
        )
        name = f"replica-fetcher-{key.leader_id}-{key.fetcher_id}"
        loop = self._supervisor.start(name, fetcher.run, restart=Restart.ALWAYS)
        if loop is not None:
            self._loops[fetcher] = loop
            loop.add_done_callback(lambda _: self._loops.pop(fetcher))
        return fetcher

    def _end(self, key: FetcherKey) -> None:
        fetcher = self._fetchers.pop(key)
        fetcher.partitions.take_all()
        if (loop := self._loops.get(fetcher)) is not None:
            loop.cancel()


def fetcher_id(topic_partition: TopicPartition, fetchers_count: int) -> int:
    """Which of the fetchers for a leader follows a partition (``AbstractFetcherManager.getFetcherId``)."""
    number = to_int(31 * string_hash(topic_partition.topic) + topic_partition.partition)
    return java_abs(number) % fetchers_count
