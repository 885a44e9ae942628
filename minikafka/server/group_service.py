"""The group coordinator of this broker: the partitions of ``__consumer_offsets`` that it leads, as shards.

Kafka: ``GroupCoordinatorService``, ``CoordinatorRuntime``. Which shards are here follows leadership: a
partition that this broker leads is loaded, and is loaded anew in every leader epoch; one that it does not
lead is unloaded, and whoever waits for it is told NOT_COORDINATOR. A partition that cannot be loaded stays
so, and answers NOT_COORDINATOR, until its leadership changes.

A request goes to the shard of its group (``ask``); what may be read at once is read by way of ``shard_of``.
Nothing in here awaits but the loads and the chore that removes expired offsets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator
from functools import partial

from minikafka.config.broker import BrokerConfig
from minikafka.coordinator.group.shard import GroupShard
from minikafka.errors import KafkaError
from minikafka.purgatory.timer import Timer
from minikafka.server.group_loading import GroupLoad
from minikafka.server.group_log import GroupLog
from minikafka.server.group_operations import GroupPurgatories
from minikafka.server.hosted_shard import HostedShard, RequestTicket, ShardState, TicketCall, not_coordinator
from minikafka.server.log_io import LogIo
from minikafka.server.offsets_topic import OffsetsTopic
from minikafka.server.partition import Partition
from minikafka.server.replica_manager import ReplicaManager
from minikafka.server.supervisor import Restart, Supervisor
from minikafka.server.topic_validation import GROUP_METADATA_TOPIC
from minikafka.types import TopicPartition

logger = logging.getLogger(__name__)

RELOAD_PAUSE_MS = 1_000
"""Before a shard in which something went wrong is loaded anew: a bug that comes back at once must not take
all of the broker's time. Its clients hear COORDINATOR_LOAD_IN_PROGRESS, and ask again."""


class GroupService:
    """See the module header."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        replicas: ReplicaManager,
        topic: OffsetsTopic,
        new_shard: Callable[[], GroupShard],
        timer: Timer,
        log_io: LogIo,
        supervisor: Supervisor,
    ) -> None:
        self.topic = topic
        self.parked = GroupPurgatories(timer)
        self._config = config
        self._replicas = replicas
        self._new_shard = new_shard
        self._clock = replicas.clock
        self._log_io = log_io
        self._supervisor = supervisor
        self._shards: dict[int, HostedShard] = {}

    def __repr__(self) -> str:
        return f"GroupService({len(self._shards)} shards, {self.parked!r})"

    def start(self) -> None:
        """Follow leadership from now on, and look for expired offsets now and then."""
        self._replicas.leadership_changed = self.leadership_changed
        self._supervisor.start("offsets-retention", self._expire_offsets, restart=Restart.ALWAYS)

    # Requests

    def ask(self, group_id: str, call: TicketCall, ticket: RequestTicket) -> None:
        """Have the shard of a group do ``call``, which answers ``ticket`` now or later. An error is an
        answer: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, or what ``call`` raises."""
        shard = self._shards.get(self.topic.partition_for(group_id))
        if shard is None:
            ticket.answer(not_coordinator())
        else:
            shard.ask(call, ticket)

    def shard_of(self, group_id: str) -> GroupShard:
        """The groups among which ``group_id`` is, for what needs no waiting.

        Raises:
            KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        shard = self._shards.get(self.topic.partition_for(group_id))
        if shard is None:
            raise not_coordinator()
        return shard.check_active()

    def shards(self) -> Iterator[GroupShard]:
        """All that are served here; those that could not be loaded are not.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS: one is not there yet.
        """
        for _, shard in sorted(self._shards.items()):
            if shard.state is not ShardState.FAILED:
                yield shard.check_active()

    def hosted_shards(self) -> list[HostedShard]:
        """All, in whatever state."""
        return list(self._shards.values())

    # What happens around

    def leadership_changed(self, topic_partition: TopicPartition) -> None:
        """Somebody else leads the partition, or in another epoch, or it is not here any more, or nothing of
        this."""
        if topic_partition.topic != GROUP_METADATA_TOPIC:
            return
        number = topic_partition.partition
        partition = self._replicas.partitions.get(topic_partition)
        if partition is not None and not partition.is_leader:
            partition = None
        shard = self._shards.get(number)
        if shard is not None and (partition is None or partition.leader_epoch != shard.leader_epoch):
            del self._shards[number]
            logger.debug("unloading the groups of %s in leader epoch %d", topic_partition, shard.leader_epoch)
            shard.close()
            shard = None
        if shard is None and partition is not None:
            self._begin(partition)

    def _begin(self, partition: Partition, *, pause_ms: int = 0) -> None:
        topic_partition = partition.topic_partition
        shard = HostedShard(
            self._new_shard(),
            GroupLog(self._replicas, topic_partition, config=self._config),
            leader_epoch=partition.leader_epoch,
            purgatories=self.parked,
            clock=self._clock,
            broken=lambda: self._begin(partition, pause_ms=RELOAD_PAUSE_MS),
        )
        self._shards[topic_partition.partition] = shard
        load = partial(self._load, partition, shard, pause_ms)
        self._supervisor.start(f"load-{topic_partition}", load)

    async def _load(self, partition: Partition, shard: HostedShard, pause_ms: int) -> None:
        await asyncio.sleep(pause_ms / 1000)
        started_ms = self._clock.monotonic_ms()
        load = GroupLoad(
            partition,
            shard.shard,
            log_io=self._log_io,
            clock=self._clock,
            buffer_bytes=self._config.offsets_load_buffer_size,
            is_wanted=lambda: shard.state is ShardState.LOADING,
        )
        try:
            loaded = await load.run()
        except KafkaError as error:
            if shard.state is ShardState.LOADING:
                logger.error("the groups of %s cannot be loaded: %s", partition.topic_partition, error)
                shard.fail()
            return
        except Exception:  # our bug, which the supervisor logs; else clients were told to wait for ever
            if shard.state is ShardState.LOADING:
                shard.fail()
            raise
        if loaded is None:
            return
        shard.activate()
        logger.log(
            logging.INFO if loaded.records or loaded.damaged else logging.DEBUG,
            "loaded the groups of %s up to offset %d in leader epoch %d: %d records in %d ms, %d damaged",
            partition.topic_partition,
            loaded.end_offset,
            shard.leader_epoch,
            loaded.records,
            self._clock.monotonic_ms() - started_ms,
            loaded.damaged,
        )

    def topics_deleted(self, topics: Collection[str]) -> None:
        """Forget the offsets of topics that are gone."""
        for shard in list(self._shards.values()):
            shard.tell(lambda groups, now_ms: groups.topics_deleted(topics))

    async def _expire_offsets(self) -> None:
        while True:
            await asyncio.sleep(self._config.offsets_retention_check_interval_ms / 1000)
            for shard in list(self._shards.values()):
                shard.tell(lambda groups, now_ms: groups.clean_up(now_ms))
                await asyncio.sleep(0)
