"""Creating, changing and deleting topics, and taking their partitions up when the broker starts.

Kafka: ``ReplicationControlManager`` and ``ZkAdminManager`` (what may be done), ``TopicDeletionManager``,
``PartitionStateMachine`` (first leaders), ``AutoTopicCreationManager``. Today's cluster is this one broker,
so the service also acts as its controller: it writes the store, then makes its own broker follow.

**Store first.** A change is one ``multi`` over Kafka's nodes (``/config/topics/T``, ``/brokers/topics/T``
with all of its partition and state nodes), so a topic is in the store as a whole or not at all, and the
store decides between two who create the same one. Only then the logs are made, and last the metadata cache
shows the topic. A crash in between is repaired by ``load``: the store names what must exist. Deletion goes
the same way: store, cache, logs; what a crash leaves on the disk is a stray, which ``is_stray`` tells the
log manager, and which is set aside, never removed.

Invariants:
- changes happen one after another (``ConfigService.changes``), like those in the event queue of Kafka's
  controller;
- a topic in the metadata cache is in the store, with the same id, partitions and leader epochs;
- every start takes each partition to a new leader epoch before it is served, as an election in Kafka would:
  records that a crash lost and those written in their place never share an epoch.

Where it differs from Kafka: a topic is complete when the answer leaves, so nothing waits for ``timeout``; a
log directory that fails does not move a partition's leader, for there is nobody to move it to.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

import msgspec

from minikafka.config.resolution import ConfigEntry
from minikafka.coordination.store import CoordinationStore
from minikafka.errors import ErrorCode, InvariantError, KafkaError
from minikafka.log.log_directories import random_uuid
from minikafka.server.adoption import adopted_config
from minikafka.server.assignment import assign_replicas
from minikafka.server.config_service import ConfigService
from minikafka.server.first_leaders import first_state, next_state
from minikafka.server.metadata_cache import MetadataCache, TopicMetadata
from minikafka.server.replica_manager import ReplicaManager
from minikafka.server.topic_hosting import TopicHosting
from minikafka.server.topic_store import NO_TOPIC_ID, StoredTopic, TopicStore
from minikafka.server.topic_validation import (
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
from minikafka.server.turns import Turns
from minikafka.types import BrokerId, LeaderEpoch, PartitionState, ReplicaAssignment, TopicPartition

logger = logging.getLogger(__name__)


class CreatedTopic(msgspec.Struct, frozen=True, kw_only=True):
    """What CreateTopics answers. ``topic_id`` is None when it was only validated."""

    name: str
    topic_id: UUID | None
    partitions: int
    replication_factor: int
    configs: list[ConfigEntry]


class TopicService:
    """The topics of the cluster, as this broker's own controller. See the module header."""

    def __init__(
        self,
        *,
        node_id: BrokerId,
        store: CoordinationStore,
        metadata: MetadataCache,
        configs: ConfigService,
        replica_manager: ReplicaManager,
        rng: random.Random,
    ) -> None:
        self._node_id = node_id
        self._store = TopicStore(store)
        self._metadata = metadata
        self._configs = configs
        self._log_manager = replica_manager.log_manager
        self._hosting = TopicHosting(node_id=node_id, metadata=metadata, replica_manager=replica_manager)
        self._rng = rng
        self._stored: dict[str, StoredTopic] | None = None

    def __repr__(self) -> str:
        return f"TopicService(node {self._node_id}, {len(self._metadata.topics())} topics)"

    # Starting

    async def read(self) -> None:
        """Read all topics from the store, so that ``is_stray`` can tell. Call it before logs are loaded."""
        self._stored = await self._store.read_all()

    @property
    def knows_none(self) -> bool:
        """Whether ``read`` found no topic: what lies in the log directories is adopted then."""
        return not self._stored

    def expect(self, topics: Iterable[StoredTopic]) -> None:
        """``topics`` are being adopted: their logs are no strays. ``adopt`` them when they are loaded."""
        self._stored = {topic.name: topic for topic in topics}
        for topic in self._stored:
            self._configs.topic_created(topic, adopted_config(topic))

    async def adopt(self) -> None:
        """Put what was expected into the store. Raises StoreError."""
        topics = (self._stored or {}).values()
        await self._store.create_all((topic, adopted_config(topic.name)) for topic in topics)
        await self.read()

    def is_stray(self, topic_partition: TopicPartition, topic_id: UUID | None) -> bool:
        """Whether a log that was found on the disk belongs to no partition of this broker (any more).

        ``topic_id`` is None for a log without ``partition.metadata``: its name has to do then.
        """
        if self._stored is None:
            raise InvariantError("is_stray before read: every log would be taken for a stray")
        topic = self._stored.get(topic_partition.topic)
        if topic is None or topic_partition.partition not in topic.assignment:
            return True
        if topic_id is not None and topic.topic_id not in (topic_id, NO_TOPIC_ID):
            return True
        return self._node_id not in topic.replicas(topic_partition.partition)

    async def load(self) -> None:
        """Lead every partition that this broker can lead, at a new leader epoch, and show all topics.

        Makes the logs and the state nodes that a crash left out. Call it once, after the logs were loaded.

        Raises:
            StoreError: the store failed, or somebody else changed a topic since it was read.
        """
        async with self._configs.changes:
            if self._stored is None:
                await self.read()
            stored, self._stored = self._stored or {}, None
            elections = []
            for topic in stored.values():
                if topic.topic_id == NO_TOPIC_ID:
                    topic = await self._store.assign_id(topic, random_uuid(self._rng))
                elected = {partition: self._elect(topic, partition) for partition in topic.assignment}
                elections.append((topic, elected))
            await self._store.write_states(elections)
            turns = Turns()
            for topic, elected in elections:
                await self._hosting.take_up(topic, elected, new=topic.assignment.keys() - topic.states.keys())
                await turns.give_way()

    def _elect(self, topic: StoredTopic, partition: int) -> PartitionState:
        """The state in which a stored partition starts: at an epoch above all that its log has seen."""
        replicas, state = topic.replicas(partition), topic.states.get(partition)
        if state is None:  # adopted, or Kafka's controller died while it created the topic
            elected = first_state(replicas, self._is_alive)
        else:
            unclean = self._configs.topic_config(topic.name).unclean_leader_election_enable
            elected = next_state(state, replicas, self._is_alive, unclean=unclean)
        log = self._log_manager.get(TopicPartition(topic.name, partition))
        if log is not None and log.leader_epoch >= elected.leader_epoch:
            elected = msgspec.structs.replace(elected, leader_epoch=LeaderEpoch(log.leader_epoch + 1))
        return elected

    def _is_alive(self, node_id: BrokerId) -> bool:
        return node_id == self._node_id or self._metadata.is_alive(node_id)

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
    ) -> CreatedTopic:
        """Create a topic; None stands for the broker's default, ``assignments`` replaces both numbers.

        Raises:
            KafkaError: TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS,
                INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, POLICY_VIOLATION,
                INVALID_REQUEST; REQUEST_TIMED_OUT while the store cannot be reached.
        """
        validate_topic_name(name)
        if name == CLUSTER_METADATA_TOPIC:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
        async with self._configs.changes:
            if self._metadata.topic(name) is not None:
                raise already_exists(name)
            validate_no_collision(name, (topic.name for topic in self._metadata.topics()))
            replicas = self._new_assignment(partitions, replication_factor, assignments)
            overrides = self._configs.check_topic(configs or {})
            topic_id = None
            if not validate_only:
                topic_id = await self._create(name, replicas, overrides)
            return CreatedTopic(
                name=name,
                topic_id=topic_id,
                partitions=len(replicas),
                replication_factor=len(replicas[0]),
                configs=self._configs.describe_topic(overrides),
            )

    async def auto_create(self, names: Iterable[str]) -> dict[str, KafkaError]:
        """Create the topics that a client asked about. Returns why one could not be created.

        One that somebody else created meanwhile is no failure. Internal topics are not made this way: their
        coordinators make them, with configurations of their own.
        """
        errors: dict[str, KafkaError] = {}
        total = 0
        for name in names:
            try:
                if is_internal(name):
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} is an internal topic.")
                total += self._configs.broker_config.num_partitions
                validate_request_total(total)
                await self.create_topic(name)
            except KafkaError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    errors[name] = error
        return errors

    async def create_partitions(
        self,
        name: str,
        *,
        total: int,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Give a topic more partitions, ``total`` in all; ``assignments`` are those of the added ones.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT,
                INVALID_REPLICATION_FACTOR, POLICY_VIOLATION.
        """
        async with self._configs.changes:
            topic = self._metadata.topic(name)
            if topic is None:
                raise unknown_topic(name)
            first = len(topic.partitions)
            added = self._added_assignment(topic, total=total, assignments=assignments)
            if validate_only:
                return
            stored = await self._store.read(name)
            if stored is None or stored.topic_id != topic.topic_id or len(stored.assignment) != first:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"The topic '{name}' is being changed.")
            states = {
                partition: first_state(replicas, self._is_alive)
                for partition, replicas in enumerate(added, start=first)
            }
            grown = await self._store.add_partitions(stored, dict(enumerate(added, start=first)), states)
            await self._hosting.take_up(grown, states, new=states.keys())

    def _new_assignment(
        self,
        partitions: int | None,
        replication_factor: int | None,
        assignments: Mapping[int, Sequence[int]] | None,
    ) -> list[tuple[BrokerId, ...]]:
        brokers = self._brokers()
        if assignments:
            return validate_new_assignment(assignments, brokers=brokers)
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
        self, topic: TopicMetadata, *, total: int, assignments: Sequence[Sequence[int]] | None
    ) -> list[tuple[BrokerId, ...]]:
        first = len(topic.partitions)
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
        replication_factor = len(topic.partitions[0].replicas)
        brokers = self._brokers()
        if assignments is not None:
            return validate_added_assignment(
                assignments, additional=additional, replication_factor=replication_factor, brokers=brokers
            )
        validate_replication_factor(replication_factor, brokers=len(brokers))
        return assign_replicas(
            brokers,
            partitions=additional,
            replication_factor=replication_factor,
            first_partition=first,
            rng=self._rng,
        )

    def _brokers(self) -> list[BrokerId]:
        return sorted({self._node_id, *(broker.node_id for broker in self._metadata.brokers())})

    async def _create(
        self, name: str, replicas: Sequence[tuple[BrokerId, ...]], overrides: Mapping[str, str]
    ) -> UUID:
        states = {partition: first_state(each, self._is_alive) for partition, each in enumerate(replicas)}
        topic_id = random_uuid(self._rng)
        topic = StoredTopic(
            name=name,
            topic_id=topic_id,
            assignment={partition: ReplicaAssignment(each) for partition, each in enumerate(replicas)},
            states=states,
        )
        try:
            await self._store.create(topic, overrides)
        except KafkaError as error:
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                await self._adopt(name)
            raise
        self._configs.topic_created(name, overrides)
        await self._hosting.take_up(topic, states, new=states.keys())
        logger.info("created topic %s (%s) with %d partitions", name, topic_id, len(replicas))
        return topic_id

    async def _adopt(self, name: str) -> None:
        """Take up a topic that only the store knows: the outcome of its creation got lost."""
        stored = await self._store.read(name)
        if stored is not None and stored.topic_id != NO_TOPIC_ID:
            await self._configs.load_topic(name)
            await self._hosting.take_up(stored, stored.states, new=stored.states.keys())

    # Deleting

    async def delete_topic(self, name: str, *, topic_id: UUID | None = None) -> None:
        """Delete a topic; with ``topic_id`` only the one with that id.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID; REQUEST_TIMED_OUT while the store cannot
                be reached.
        """
        async with self._configs.changes:
            topic = self._metadata.topic(name)
            if topic_id is not None and (topic is None or topic.topic_id != topic_id):
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
            if topic is None:
                raise unknown_topic(name)
            await self._store.delete(name)
            self._configs.topic_deleted(name)
            await self._hosting.let_go(topic)
            logger.info("deleted topic %s (%s)", name, topic.topic_id)

    def mark_offline(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """A log directory failed: tell clients that nobody leads what lay in it."""
        self._hosting.mark_offline(topic_partitions)


def already_exists(name: str) -> KafkaError:
    return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def unknown_topic(name: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
