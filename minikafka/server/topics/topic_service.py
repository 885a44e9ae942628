"""Creating, growing and deleting topics: checked here, written to the store, done by the controller.

Kafka: ``ZkAdminManager`` and ``ReplicationControlManager`` (what may be done), ``AutoTopicCreationManager``,
``DelayedCreatePartitions``, ``DelayedDeleteTopics``. Any broker serves these requests. It writes what is
wanted (``/brokers/topics/T`` and ``/config/topics/T`` in one ``multi``, or ``/admin/delete_topics/T``), the
store decides between two who want the same, and the controller, which watches those nodes, chooses leaders
and tells the brokers. The answer waits until this broker has heard of it, so a client that is told of a topic
finds it.

Where it differs from Kafka: there every such request goes to the controller, and other brokers answer
NOT_CONTROLLER or forward it.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from uuid import UUID

import msgspec

from minikafka.config.resolution import ConfigEntry
from minikafka.controller.assignment import BrokerMetadata, assign_replicas
from minikafka.coordination.store import CoordinationStore
from minikafka.errors import ErrorCode, KafkaError
from minikafka.log.manager.log_directories import random_uuid
from minikafka.server.cluster.metadata_cache import MetadataCache, TopicMetadata
from minikafka.server.cluster.topic_validation import (
    CLUSTER_METADATA_TOPIC,
    is_internal,
    validate_added_assignment,
    validate_new_assignment,
    validate_no_collision,
    validate_partition_count,
    validate_replication_factor,
    validate_request_total,
    validate_topic_name,
)
from minikafka.server.configs.service import ConfigService
from minikafka.server.topics.topic_store import StoredTopic, TopicStore
from minikafka.types import NO_LEADER, BrokerId, ReplicaAssignment

logger = logging.getLogger(__name__)

AUTO_CREATE_TIMEOUT_MS = 5_000
"""How long a Metadata request waits for a topic that it has had created."""


class CreatedTopic(msgspec.Struct, frozen=True, kw_only=True):
    """What CreateTopics answers. ``topic_id`` is None when it was only validated."""

    name: str
    topic_id: UUID | None
    partitions: int
    replication_factor: int
    configs: list[ConfigEntry]


Spend = Callable[[int], None]
"""Told how many partitions are about to come or go; raises KafkaError when they must not."""


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

        One that somebody else created meanwhile is no failure. Internal topics are not made this way: their
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
