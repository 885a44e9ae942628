"""Topics are created, grown, deleted and moved: checked here, written to the store, done by the controller.

Any broker serves these requests. It writes what is wanted, the store decides between two who want the same,
and the controller, which watches those nodes, chooses leaders and tells the brokers.

**Creating, growing, deleting** (``TopicService``): ``/brokers/topics/T`` and ``/config/topics/T`` in one
``multi``, or ``/admin/delete_topics/T``. The answer waits until this broker has heard of it, so a client that
is told of a topic finds it. Kafka: ``ZkAdminManager`` and ``ReplicationControlManager`` (what may be done),
``AutoTopicCreationManager``, ``DelayedCreatePartitions``, ``DelayedDeleteTopics``.

**Moving partitions to other brokers** (``ReassignmentService``): the request goes into the topic's node, on
condition that it is what was read, so it never undoes what the controller or another broker has written.
Kafka: the first step of ``KafkaController.processPartitionReassignments`` (what may be done, and U1) and
``ReplicationControlManager.alterPartitionReassignments``; KIP-455, KIP-860. Invariants: each partition has
its own outcome, and a bad one does not keep back the others; the good ones of a topic are written together; a
node says of a partition where it comes from for as long as it is being moved.

**Internal topics of streams applications** (``InternalTopics``, KIP-1071), which a heartbeat finds missing.
No answer waits for them: later heartbeats find the topics, or hear why they could not be created. A topic is
created by one task at a time, however many members ask for it. Kafka:
``AutoTopicCreationManager.createStreamsInternalTopics`` and ``getStreamsInternalTopicCreationErrors``.

Where it differs from Kafka: there every such request goes to the controller, and other brokers answer
NOT_CONTROLLER or forward it. A reassignment is answered there when the controller has begun; here when the
request is written, which survives whatever becomes of the controller; ``ongoing`` shows it from then on.
"""

from __future__ import annotations

import logging
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol
from uuid import UUID

import msgspec

from minikafka.clock import Clock
from minikafka.config.resolution import ConfigEntry
from minikafka.controller.assignment import BrokerMetadata, assign_replicas
from minikafka.coordination.store import CoordinationStore
from minikafka.errors import ErrorCode, KafkaError
from minikafka.log.log_directories import random_uuid
from minikafka.server.cluster.coordination_store import gather_some, mapped_store_failures
from minikafka.server.cluster.metadata_cache import MetadataCache, TopicMetadata
from minikafka.server.cluster.topic_validation import (
    CLUSTER_METADATA_TOPIC,
    is_internal,
    validate_added_assignment,
    validate_new_assignment,
    validate_no_collision,
    validate_partition_count,
    validate_reassignment,
    validate_replication_factor,
    validate_request_total,
    validate_topic_name,
)
from minikafka.server.config_service import ConfigService
from minikafka.server.runtime.event_loop import Supervisor
from minikafka.server.runtime.work_scheduler import TimeSlice
from minikafka.server.topic_store import ATTEMPTS_MAX, StoredTopic, TopicStore, contended
from minikafka.types import NO_LEADER, BrokerId, ReplicaAssignment, TopicPartition, joined

logger = logging.getLogger(__name__)

Targets = Mapping[TopicPartition, Sequence[int] | None]
"""Where each partition is to be, the preferred leader first; None: where it was before it was being moved."""

AUTO_CREATE_TIMEOUT_MS = 5_000
"""How long a Metadata request waits for a topic that it has had created."""

Spend = Callable[[int], None]
"""Told how many partitions are about to come or go; raises KafkaError when they must not."""

FAILURE_KEPT_MS = 10_000
"""Twice Kafka's default heartbeat interval: so every member hears of it once at least."""
FAILURES_KEPT_MAX = 1_000


class CreatedTopic(msgspec.Struct, frozen=True, kw_only=True):
    """What CreateTopics answers. ``topic_id`` is None when it was only validated."""

    name: str
    topic_id: UUID | None
    partitions: int
    replication_factor: int
    configs: list[ConfigEntry]


def free(partitions: int) -> None:
    """For what no quota holds for."""


class TopicService:
    """What clients ask to be done with topics. See the module header."""

    def __init__(
        self,
        *,
        store: CoordinationStore,
        metadata: MetadataCache,
        configs: ConfigService,
        rng: random.Random,
    ) -> None:
        self._store = TopicStore(store)
        self._metadata = metadata
        self._configs = configs
        self._rng = rng

    def __repr__(self) -> str:
        return f"TopicService({len(self._metadata.topics())} topics)"

    # Creating

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        assignments: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str | None] | None = None,
        validate_only: bool = False,
        spend: Spend = free,
    ) -> CreatedTopic:
        """Write a new topic; None stands for the broker's default, ``assignments`` replaces both numbers.

        ``spend`` is asked before it is written. ``wait_for_leaders`` afterwards.

        Raises:
            KafkaError: TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS,
                INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, POLICY_VIOLATION,
                INVALID_REQUEST; REQUEST_TIMED_OUT while the store cannot be reached.
        """
        validate_topic_name(name)
        if name == CLUSTER_METADATA_TOPIC:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
        async with self._configs.changes:  # two names that collide must see each other
            existing = await self._store.names()
            if name in existing:
                raise already_exists(name)
            validate_no_collision(name, existing)
            replicas = self._new_assignment(partitions, replication_factor, assignments)
            overrides = self._configs.check_topic(configs or {})
            topic_id = None
            if not validate_only:
                spend(len(replicas))
                topic_id = random_uuid(self._rng)
                topic = StoredTopic(
                    name=name,
                    topic_id=topic_id,
                    assignment={number: ReplicaAssignment(each) for number, each in enumerate(replicas)},
                )
                await self._store.create(topic, overrides)
                logger.info("created topic %s (%s) with %d partitions", name, topic_id, len(replicas))
        return CreatedTopic(
            name=name,
            topic_id=topic_id,
            partitions=len(replicas),
            replication_factor=len(replicas[0]),
            configs=self._configs.describe_topic(overrides),
        )

    async def wait_for_leaders(self, name: str, *, partitions: int, timeout_ms: int) -> None:
        """Until this broker knows leaders for the topic's first ``partitions`` partitions.

        Raises:
            KafkaError: REQUEST_TIMED_OUT; the topic is there all the same, and may get its leaders later.
        """

        def led() -> bool:
            topic = self._metadata.topic(name)
            return (
                topic is not None
                and len(topic.partitions) >= partitions
                and all(each.leader != NO_LEADER for each in topic.partitions[:partitions])
            )

        if not await self._metadata.wait_for(led, timeout_ms=max(timeout_ms, 0)):
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"Partitions of the topic '{name}' have no leader within {timeout_ms} ms.",
            )

    async def auto_create(self, names: Iterable[str], *, spend: Spend = free) -> dict[str, KafkaError]:
        """Create the topics that a client asked about. Returns why one could not be created.

        One that another client created meanwhile is no failure. Internal topics are not made this way: their
        coordinators make them, with configurations of their own.
        """
        errors: dict[str, KafkaError] = {}
        created: dict[str, int] = {}
        total = 0
        for name in names:
            try:
                if is_internal(name):
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} is an internal topic.")
                total += self._configs.broker_config.num_partitions
                validate_request_total(total)
                created[name] = (await self.create_topic(name, spend=spend)).partitions
            except KafkaError as error:
                if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                    created[name] = 1
                else:
                    errors[name] = error
        for name, partitions in created.items():
            try:
                await self.wait_for_leaders(name, partitions=partitions, timeout_ms=AUTO_CREATE_TIMEOUT_MS)
            except KafkaError:
                continue  # the answer says LEADER_NOT_AVAILABLE, and the client asks again
        return errors

    async def create_partitions(
        self,
        name: str,
        *,
        total: int,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
        spend: Spend = free,
    ) -> None:
        """Give a topic more partitions, ``total`` in all; ``assignments`` are those of the added ones.

        ``spend`` is asked before they are written.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT,
                INVALID_REPLICATION_FACTOR, POLICY_VIOLATION; REASSIGNMENT_IN_PROGRESS while one of its
                partitions is being moved (``ZkAdminManager.createPartitions``).
        """
        stored = await self._store.read(name)
        if stored is None or self._metadata.topic(name) is None:
            raise unknown_topic(name)
        if any(each.is_being_reassigned for each in stored.assignment.values()):
            raise KafkaError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
                f"A partition reassignment is in progress for the topic '{name}'.",
            )
        added = self._added_assignment(stored, total=total, assignments=assignments)
        if not validate_only:
            spend(len(added))
            first = len(stored.assignment)
            await self._store.add_partitions(
                stored, {first + number: ReplicaAssignment(each) for number, each in enumerate(added)}
            )
            logger.info("topic %s has %d partitions now", name, total)

    def _new_assignment(
        self,
        partitions: int | None,
        replication_factor: int | None,
        assignments: Mapping[int, Sequence[int]] | None,
    ) -> list[tuple[BrokerId, ...]]:
        brokers = self._brokers()
        if assignments:
            return validate_new_assignment(assignments, brokers=[each.node_id for each in brokers])
        config = self._configs.broker_config
        if replication_factor is None:
            replication_factor = config.default_replication_factor
        if partitions is None:
            partitions = config.num_partitions
        validate_partition_count(partitions)
        validate_replication_factor(replication_factor, brokers=len(brokers))
        return assign_replicas(
            brokers, partitions=partitions, replication_factor=replication_factor, rng=self._rng
        )

    def _added_assignment(
        self, topic: StoredTopic, *, total: int, assignments: Sequence[Sequence[int]] | None
    ) -> list[tuple[BrokerId, ...]]:
        first = len(topic.assignment)
        if total == first:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {first} partition(s).")
        if total < first:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {topic.name} currently has {first} partition(s); "
                f"{total} would not be an increase.",
            )
        additional = total - first
        validate_request_total(additional)
        replication_factor = len(topic.replicas(0))
        brokers = self._brokers()
        if assignments is not None:
            return validate_added_assignment(
                assignments,
                additional=additional,
                replication_factor=replication_factor,
                brokers=[each.node_id for each in brokers],
            )
        validate_replication_factor(replication_factor, brokers=len(brokers))
        return assign_replicas(
            brokers,
            partitions=additional,
            replication_factor=replication_factor,
            first_partition=first,
            rng=self._rng,
        )

    def _brokers(self) -> list[BrokerMetadata]:
        return [BrokerMetadata(broker.node_id, broker.rack) for broker in self._metadata.brokers()]

    # Deleting

    async def delete_topic(
        self, name: str, *, topic_id: UUID | None = None, spend: Spend = free
    ) -> TopicMetadata:
        """Ask the controller to delete a topic; with ``topic_id`` only the one with that id. Returns which.

        ``spend`` is asked before. ``wait_until_deleted`` afterwards.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID; REQUEST_TIMED_OUT while the store cannot
                be reached.
        """
        topic = self._metadata.topic(name)
        if topic_id is not None and (topic is None or topic.topic_id != topic_id):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        if topic is None:
            raise unknown_topic(name)
        spend(len(topic.partitions))
        await self._store.request_deletion(name)
        logger.info("topic %s (%s) is to be deleted", name, topic.topic_id)
        return topic

    async def wait_until_deleted(self, topic: TopicMetadata, *, timeout_ms: int) -> None:
        """Until nothing is left of the topic in the store, and this broker shows it no more.

        Raises:
            KafkaError: REQUEST_TIMED_OUT; it goes when the brokers that hold it are there.
        """

        def hidden() -> bool:
            known = self._metadata.topic(topic.name)
            return known is None or known.topic_id != topic.topic_id

        gone = await self._store.wait_until_gone(topic.name, timeout_ms=max(timeout_ms, 0))
        if not gone or not await self._metadata.wait_for(hidden, timeout_ms=max(timeout_ms, 0)):
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"The topic '{topic.name}' is marked for deletion, and not gone after {timeout_ms} ms.",
            )


def already_exists(name: str) -> KafkaError:
    return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def unknown_topic(name: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


class ReassignmentService:
    """See the module header."""

    def __init__(self, *, store: CoordinationStore, metadata: MetadataCache) -> None:
        self._store = TopicStore(store)
        self._metadata = metadata

    def __repr__(self) -> str:
        return f"ReassignmentService({self._store!r})"

    # Asking

    async def alter(
        self, targets: Targets, *, allow_replication_factor_change: bool = True
    ) -> dict[TopicPartition, KafkaError | None]:
        """Request reassignments, or cancel them. What became of each request: None when it is written, or
        when its target is reached already.

        Errors are UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR,
        NO_REASSIGNMENT_IN_PROGRESS, and REQUEST_TIMED_OUT while the store cannot be reached.
        """
        by_topic: dict[str, dict[int, Sequence[int] | None]] = defaultdict(dict)
        time_slice = TimeSlice()
        for (topic, partition), target in targets.items():
            await time_slice.give_way()
            by_topic[topic][partition] = target
        outcomes = await gather_some(
            self._alter_topic(name, wanted, allow_replication_factor_change=allow_replication_factor_change)
            for name, wanted in by_topic.items()
        )
        found = dict(zip(by_topic, outcomes, strict=True))
        answers: dict[TopicPartition, KafkaError | None] = {}
        for each in targets:
            await time_slice.give_way()
            answers[each] = found[each.topic][each.partition]
        return answers

    async def _alter_topic(
        self,
        name: str,
        targets: Mapping[int, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool,
    ) -> Mapping[int, KafkaError | None]:
        try:
            for _ in range(ATTEMPTS_MAX):
                topic = await self._read(name)
                errors: dict[int, KafkaError | None] = dict.fromkeys(targets)
                changed: dict[int, ReplicaAssignment] = {}
                time_slice = TimeSlice()
                for partition, target in targets.items():
                    await time_slice.give_way()
                    try:
                        wanted = self._reassigned(
                            topic,
                            partition,
                            target,
                            allow_replication_factor_change=allow_replication_factor_change,
                        )
                    except KafkaError as error:
                        errors[partition] = error
                        continue
                    if wanted != topic.assignment[partition]:
                        changed[partition] = wanted
                if not changed or await self._store.replace_assignments(topic, changed):
                    _log(name, changed)
                    return errors
            raise contended(name)
        except KafkaError as error:
            return dict.fromkeys(targets, error)

    async def _read(self, name: str) -> StoredTopic:
        topic = await self._store.read(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
        if await self._store.is_to_be_deleted(name):
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic {name} is currently being deleted."
            )
        return topic

    def _reassigned(
        self,
        topic: StoredTopic,
        partition: int,
        target: Sequence[int] | None,
        *,
        allow_replication_factor_change: bool,
    ) -> ReplicaAssignment:
        current = topic.assignment.get(partition)
        if current is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {topic.name}:{partition}."
            )
        if target is None:
            if not current.is_being_reassigned:
                raise KafkaError(
                    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."
                )
            return current.reassign_to(current.origin)
        replicas = validate_reassignment(
            target,
            current=current,
            brokers=[broker.node_id for broker in self._metadata.brokers()],
            allow_replication_factor_change=allow_replication_factor_change,
        )
        return current.reassign_to(replicas)

    # Looking

    async def ongoing(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, ReplicaAssignment]:
        """Those that are being reassigned, of ``partitions`` or of all; by topic and partition.

        Raises:
            KafkaError: REQUEST_TIMED_OUT while the store cannot be reached.
        """
        wanted = None if partitions is None else dict.fromkeys(partitions)
        names = None if wanted is None else sorted({each.topic for each in wanted})
        with mapped_store_failures("listing reassignments"):
            topics, _ = await self._store.read_all(names)
        found: dict[TopicPartition, ReplicaAssignment] = {}
        for topic in topics.values():
            for number, assignment in sorted(topic.assignment.items()):
                each = TopicPartition(topic.name, number)
                if assignment.is_being_reassigned and (wanted is None or each in wanted):
                    found[each] = assignment
        return found


def _log(topic: str, changed: Mapping[int, ReplicaAssignment]) -> None:
    for partition, assignment in changed.items():
        logger.info(
            "%s-%d is to move from %s to %s",
            topic,
            partition,
            joined(assignment.origin),
            joined(assignment.target),
        )


class WantedTopic(Protocol):
    """0 replicas, or -1 as Java asks for: the broker's default."""

    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> int: ...

    @property
    def replication_factor(self) -> int: ...

    @property
    def topic_configs(self) -> tuple[tuple[str, str], ...]: ...


class _Failure(msgspec.Struct, frozen=True):
    reason: str
    until_ms: int


class InternalTopics:
    """See the module header."""

    def __init__(self, topics: TopicService, *, supervisor: Supervisor, clock: Clock) -> None:
        self._topics = topics
        self._supervisor = supervisor
        self._clock = clock
        self._creating: set[str] = set()
        self._failures: dict[str, _Failure] = {}

    def __repr__(self) -> str:
        return f"InternalTopics({len(self._creating)} being created)"

    def create(self, topics: Iterable[WantedTopic], *, spend: Spend) -> None:
        """Begin to create those that are not being created."""
        wanted = [topic for topic in topics if topic.name not in self._creating]
        if wanted:
            self._creating.update(topic.name for topic in wanted)
            self._supervisor.start("streams-internal-topics", lambda: self._create(wanted, spend))

    def failures(self, names: Iterable[str]) -> dict[str, str]:
        """Why those of ``names`` could not be created that were tried lately."""
        now_ms = self._clock.monotonic_ms()
        return {
            name: failure.reason
            for name in names
            if (failure := self._failures.get(name)) and now_ms < failure.until_ms
        }

    async def _create(self, wanted: list[WantedTopic], spend: Spend) -> None:
        try:
            for topic in wanted:
                try:
                    await self._topics.create_topic(
                        topic.name,
                        partitions=topic.partitions,
                        replication_factor=topic.replication_factor if topic.replication_factor > 0 else None,
                        configs=dict(topic.topic_configs),
                        spend=spend,
                    )
                except KafkaError as error:
                    if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                        logger.warning("internal topic %s could not be created: %s", topic.name, error)
                        self._note(topic.name, error)
                        continue
                self._failures.pop(topic.name, None)
        finally:
            self._creating.difference_update(topic.name for topic in wanted)

    def _note(self, name: str, error: KafkaError) -> None:
        if len(self._failures) >= FAILURES_KEPT_MAX:
            self._failures.pop(next(iter(self._failures)))
        until_ms = self._clock.monotonic_ms() + FAILURE_KEPT_MS
        self._failures[name] = _Failure(error.message or error.code.name, until_ms)
