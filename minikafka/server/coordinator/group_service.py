"""The group coordinator of this broker: a ``CoordinatorService`` over ``__consumer_offsets``.

Kafka: ``GroupCoordinatorService``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from minikafka.config.broker import BrokerConfig
from minikafka.coordinator.group.environment import GroupCounts
from minikafka.coordinator.share.messages import SharePartitionError
from minikafka.deferred import deferred
from minikafka.errors import ErrorCode, InvariantError, KafkaError
from minikafka.metrics.sensors import Sensor
from minikafka.protocol.records.compression import CompressionType
from minikafka.purgatory import DelayedOperationPurgatory, Timer
from minikafka.server.coordinator.service import CoordinatorLog, CoordinatorService, CoordinatorTopic
from minikafka.server.replica.replica_manager import ReplicaManager
from minikafka.server.runtime.event_loop import Restart, Supervisor
from minikafka.server.runtime.log_io import LogIo

if TYPE_CHECKING:
    from minikafka.coordinator.group import messages
    from minikafka.coordinator.group.messages import (
        ComputeAssignment,
        DeleteShareStates,
        GroupOperation,
        InitializeShareStates,
    )
    from minikafka.coordinator.group.shard import GroupShard
    from minikafka.coordinator.share.messages import SharePersister
    from minikafka.protocol.internal import group_record_codec
    from minikafka.server.coordinator.hosted_shard import HostedShard, Purgatory
else:
    group_record_codec = deferred("minikafka.protocol.internal.group_record_codec")
    messages = deferred("minikafka.coordinator.group.messages")


logger = logging.getLogger(__name__)

_FAILED = KafkaError(
    ErrorCode.UNKNOWN_SERVER_ERROR, "The share coordinator failed; the broker's log says why."
)


class GroupReplay:
    """What a load reads, as calls of a ``GroupShard``."""

    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard

    def record(self, key: bytes, value: bytes | None, now_ms: int, *, offset: int, producer_id: int) -> None:
        try:
            record = group_record_codec.decode_record(key, value)
        except group_record_codec.UnreadableRecord as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        self._shard.replay(record, now_ms, producer_id=producer_id)

    def marker(self, producer_id: int, *, committed: bool) -> None:
        self._shard.replay_marker(producer_id, committed=committed)


class GroupPurgatories:
    """Where the operations of all groups of a broker wait."""

    def __init__(self, timer: Timer) -> None:
        self.rebalance: Purgatory = DelayedOperationPurgatory("Rebalance", timer)
        self.heartbeat: Purgatory = DelayedOperationPurgatory("Heartbeat", timer)

    def __repr__(self) -> str:
        return f"GroupPurgatories({self.rebalance!r}, {self.heartbeat!r})"

    def of(self, operation: GroupOperation) -> Purgatory:
        return self.heartbeat if operation.kind is messages.OperationKind.SESSION else self.rebalance


class GroupService(CoordinatorService["GroupShard"]):
    """See the module header."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        replicas: ReplicaManager,
        topic: CoordinatorTopic,
        new_shard: Callable[[GroupCounts, Callable[[], int]], GroupShard],
        timer: Timer,
        log_io: LogIo,
        supervisor: Supervisor,
        load_time: Sensor,
    ) -> None:
        self.parked = GroupPurgatories(timer)
        self.counts = GroupCounts()
        self.persister: SharePersister | None = None
        """Where the state of share groups' partitions is kept; set when the broker is put together."""
        self._config = config
        self._computing = asyncio.Lock()
        super().__init__(
            contents="groups",
            replicas=replicas,
            topic=topic,
            new_shard=lambda: new_shard(self.counts, self.memory_bytes),
            replay=GroupReplay,
            new_log=lambda topic_partition: CoordinatorLog(
                replicas,
                topic_partition,
                encode=group_record_codec.encode_record,
                compression=CompressionType(config.offsets_topic_compression_codec),
                timeout_ms=config.offsets_commit_timeout_ms,
            ),
            purgatory_of=self.parked.of,
            load_buffer_bytes=config.offsets_load_buffer_size,
            log_io=log_io,
            supervisor=supervisor,
            load_time=load_time,
        )

    def start(self) -> None:
        """Follow leadership from now on, and look for expired offsets now and then."""
        self._replicas.add_leadership_listener(self.leadership_changed)
        self._supervisor.start("offsets-retention", self._expire_offsets, restart=Restart.ALWAYS)

    def memory_bytes(self) -> int:
        """What all groups that are coordinated here take."""
        used_bytes = 0
        for hosted in self._shards.values():
            used_bytes += hosted.shard.memory_bytes
        return used_bytes

    def regexes_due(self, group_id: str, *, has_rules: bool) -> list[str]:
        """The expressions that a group's next heartbeat looks at; none where it is not coordinated here."""
        try:
            shard = self.shard_of(group_id)
        except KafkaError:
            return []
        return shard.regexes_due(group_id, self._clock.now_ms(), has_rules=has_rules)

    def topics_deleted(self, topics: Mapping[str, UUID]) -> None:
        """Forget the offsets of topics that are gone, name → id."""
        for shard in self.hosted_shards():
            shard.tell(lambda groups, now_ms: groups.topics_deleted(topics, now_ms))

    def _do_other(self, shard: HostedShard[GroupShard], effect: Any) -> None:
        match effect:
            case messages.InitializeShareStates() | messages.DeleteShareStates():
                self._supervisor.start("share-state", lambda: self._ask_persister(shard, effect))
            case messages.ComputeAssignment():
                self._supervisor.start("assignment", lambda: self._compute(shard, effect))
            case _:
                raise InvariantError(f"{shard!r} wants {effect!r}")

    async def _compute(self, shard: HostedShard[GroupShard], wanted: ComputeAssignment) -> None:
        """One assignment after the other, in a thread; what comes of it is the next call of the shard."""
        targets = None
        try:
            async with self._computing:
                targets = await asyncio.to_thread(wanted.compute)
        except Exception:
            logger.exception("the assignment of group %s has failed", wanted.group_id)
        shard.tell(lambda groups, now_ms: wanted.done(targets, now_ms))

    async def _ask_persister(
        self, shard: HostedShard[GroupShard], wanted: InitializeShareStates | DeleteShareStates
    ) -> None:
        """What the persister says is the next call of the shard; that it fails, too."""
        results: list[SharePartitionError]
        try:
            if self.persister is None:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "There is no share coordinator yet.")
            if isinstance(wanted, messages.InitializeShareStates):
                results = await self.persister.initialize_state(wanted.group_id, wanted.partitions)
            else:
                results = await self.persister.delete_state(wanted.group_id, wanted.partitions)
        except Exception as error:
            reason = error if isinstance(error, KafkaError) else _FAILED
            if reason is _FAILED:
                logger.exception("the share coordinator could not be asked for group %s", wanted.group_id)
            results = [
                SharePartitionError(each.topic_id, each.partition, reason) for each in wanted.partitions
            ]
        shard.tell(lambda groups, now_ms: wanted.done(results, now_ms))

    async def _expire_offsets(self) -> None:
        while True:
            await asyncio.sleep(self._config.offsets_retention_check_interval_ms / 1000)
            for shard in self.hosted_shards():
                shard.tell(lambda groups, now_ms: groups.clean_up(now_ms))
                await asyncio.sleep(0)
