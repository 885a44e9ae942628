"""Topics in the coordination store: Kafka's nodes for them, as clients' requests change them.

Kafka: the topic half of ``KafkaZkClient`` and ``AdminZkClient``. ``/brokers/topics/T`` holds the id and the
replicas of each partition, ``/config/topics/T`` the configuration, ``/admin/delete_topics/T`` the request to
delete it. The states of partitions below it are the controller's (``controller/store.py``).

Invariants: a topic is created with its configuration in one ``multi``, so it is there as a whole or not at
all; a write that changes what it read names the version that it read.

**At a start** the stored topics say which logs are a broker's own. Kafka: ``LogManager.isStrayKraftReplica``
and ``deleteStrayReplicas``.

**Adoption**: topics for the partitions that lie in the log directories when the store knows no topic at all.
This is the state of directories that Apache Kafka wrote (its topics are in the metadata log of KRaft, or in
ZooKeeper), and of a broker whose coordination file was lost. Kafka has nothing like it: its brokers set such
directories aside as strays, which is right when the store knows better and wrong when it knows nothing. A
store that knows any topic is believed, see ``StoredTopics.is_stray``.

What is done: a topic gets the id that its ``partition.metadata`` files say, or a new one, and partitions from
0 to the highest that is there; those without a directory are created empty. Its configuration is not in the
directories. So that no default deletes data, adopted topics keep their records for ever
(``retention.ms`` and ``retention.bytes`` are -1), and Kafka's internal ones stay compacted. Leadership goes
on above the leader epochs in the logs (``StoredTopics.adopt``). All topics enter the store in one write:
either the next start finds all adopted, or it adopts all again.

What is not a partition of a plausible topic fails the start and changes nothing. So does a log directory that
is offline, for its partitions would be created a second time.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

import msgspec

from minikafka.coordination import paths
from minikafka.coordination.store import (
    BadVersionError,
    CoordinationStore,
    CreateOp,
    NodeExistsError,
    NoNodeError,
    Op,
    SetOp,
    WatchEvent,
)
from minikafka.errors import ErrorCode, InvariantError, KafkaError, StartError
from minikafka.files import Files
from minikafka.log.checkpoint import CorruptCheckpoint, read_partition_metadata
from minikafka.log.files import DirectoryKind, parse_directory_name
from minikafka.log.log_directories import LogDirectories, RandomBits, random_uuid
from minikafka.log.log_manager import LogManager
from minikafka.server.cluster.coordination_store import gather_some, mapped_store_failures
from minikafka.server.cluster.registration import INITIAL_CONTROLLER_EPOCH
from minikafka.server.cluster.topic_validation import (
    CLUSTER_METADATA_TOPIC,
    GROUP_METADATA_TOPIC,
    PARTITIONS_PER_REQUEST_MAX,
    TRANSACTION_STATE_TOPIC,
    validate_topic_name,
)
from minikafka.types import (
    BrokerId,
    LeaderEpoch,
    PartitionState,
    ReplicaAssignment,
    TopicPartition,
    is_topic_name,
)

logger = logging.getLogger(__name__)

ATTEMPTS_MAX = 5
"""Lost races before a write gives up."""

NO_TOPIC_ID = UUID(int=0)
"""Kafka's ``Uuid.ZERO_UUID``; no topic has it."""

_KEEP_ALL = {"retention.ms": "-1", "retention.bytes": "-1"}


class StoredTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic as the store has it."""

    name: str
    topic_id: UUID
    """``NO_TOPIC_ID``: made by a Kafka from before topic ids."""
    assignment: dict[int, ReplicaAssignment]
    """By partition: 0, 1, 2, …"""
    version: int = 0
    """Of the topic's node."""

    def replicas(self, partition: int) -> tuple[BrokerId, ...]:
        return self.assignment[partition].replicas


class TopicStore:
    """Reads and writes topics. Several may be used side by side, by several brokers."""

    def __init__(self, store: CoordinationStore) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"TopicStore({self._store!r})"

    # Reading

    async def names(self) -> list[str]:
        """Of all topics, sorted.

        Raises:
            KafkaError: REQUEST_TIMED_OUT while the store cannot be reached.
        """
        with mapped_store_failures("reading the topics"):
            try:
                return await self._store.children(paths.TOPICS)
            except NoNodeError:
                return []

    async def read_all(
        self, names: Iterable[str] | None = None
    ) -> tuple[dict[str, StoredTopic], dict[str, paths.DamagedNodeError]]:
        """All topics by name, sorted, or those of ``names`` that exist in their order; and those whose node
        cannot be read. Raises StoreError."""
        if names is None:
            try:
                names = await self._store.children(paths.TOPICS)
            except NoNodeError:
                return {}, {}
        else:
            names = [name for name in names if is_topic_name(name)]
        damaged: dict[str, paths.DamagedNodeError] = {}

        async def read(name: str) -> StoredTopic | None:
            try:
                return await self._read(name)
            except paths.DamagedNodeError as error:
                damaged[name] = error
                return None

        topics = await gather_some(read(name) for name in names)
        return {topic.name: topic for topic in topics if topic is not None}, damaged

    async def read(self, name: str) -> StoredTopic | None:
        """One topic, None when there is no such topic, whatever a client takes for a topic's name.

        Raises:
            KafkaError: REQUEST_TIMED_OUT while the store cannot be reached.
        """
        if not is_topic_name(name):
            return None
        with mapped_store_failures(f"reading topic {name}"):
            return await self._read(name)

    async def _read(self, name: str) -> StoredTopic | None:
        path = paths.topic_path(name)
        try:
            node = await self._store.get(path)
        except NoNodeError:
            return None
        decoded = paths.decode_topic(name, node.data)
        if list(decoded.partitions) != list(range(len(decoded.partitions))) or not decoded.partitions:
            raise paths.DamagedNodeError(path, "the partitions are not numbered 0, 1, 2, …", node.data)
        return StoredTopic(
            name=name,
            topic_id=decoded.topic_id or NO_TOPIC_ID,
            assignment=decoded.partitions,
            version=node.stat.version,
        )

    # Writing

    async def create(self, topic: StoredTopic, overrides: Mapping[str, str]) -> None:
        """Create a topic with its configuration.

        Raises:
            KafkaError: TOPIC_ALREADY_EXISTS; REQUEST_TIMED_OUT while the store cannot be reached.
        """
        with mapped_store_failures(f"creating topic {topic.name}"):
            for _ in range(ATTEMPTS_MAX):
                try:
                    await self._store.multi(
                        [
                            await self._config_op(topic.name, overrides),
                            CreateOp(paths.topic_path(topic.name), _encode(topic)),
                        ]
                    )
                except (NodeExistsError, BadVersionError) as error:
                    if error.operation_index == 0:  # the configuration appeared in the meantime
                        continue
                    raise KafkaError(
                        ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists."
                    ) from None
                except NoNodeError:
                    await self._make_parents()
                    continue
                return
        raise contended(topic.name)

    async def _make_parents(self) -> None:
        await self._store.ensure_path(paths.TOPICS)
        await self._store.ensure_path(paths.TOPIC_CONFIGS)

    async def adopt_all(
        self, topics: Iterable[tuple[StoredTopic, Mapping[str, str], Mapping[int, PartitionState]]]
    ) -> None:
        """Create topics with their configurations and the states of their partitions in one write: all, or
        none. Raises StoreError."""
        await self._make_parents()
        ops: list[Op] = []
        for topic, overrides, states in topics:
            ops += [
                await self._config_op(topic.name, overrides),
                CreateOp(paths.topic_path(topic.name), _encode(topic)),
                CreateOp(paths.partitions_path(topic.name)),
            ]
            for partition, state in states.items():
                path = paths.partition_state_path(topic.name, partition)
                ops.append(CreateOp(paths.partition_path(topic.name, partition)))
                ops.append(CreateOp(path, paths.encode_partition_state(state)))
        await self._store.multi(ops)

    async def _config_op(self, name: str, overrides: Mapping[str, str]) -> Op:
        """A configuration may be there without its topic: Kafka's tools write it first."""
        path, data = paths.topic_config_path(name), paths.encode_config(overrides)
        stat = await self._store.exists(path)
        return CreateOp(path, data) if stat is None else SetOp(path, data, stat.version)

    async def add_partitions(self, topic: StoredTopic, added: Mapping[int, ReplicaAssignment]) -> None:
        """Add partitions to a topic that was read before.

        Raises:
            KafkaError: REQUEST_TIMED_OUT when it was changed since, or the store cannot be reached.
        """
        grown = msgspec.structs.replace(topic, assignment={**topic.assignment, **added})
        with mapped_store_failures(f"adding partitions to topic {topic.name}"):
            try:
                await self._store.set(paths.topic_path(topic.name), _encode(grown), topic.version)
            except (BadVersionError, NoNodeError):
                raise contended(topic.name) from None

    async def replace_assignments(self, topic: StoredTopic, changed: Mapping[int, ReplicaAssignment]) -> bool:
        """Write other assignments of some partitions of a topic that was read before, all or none.

        Returns whether that was done; else the topic was changed since.

        Raises:
            KafkaError: REQUEST_TIMED_OUT while the store cannot be reached; then it is not known.
        """
        reassigned = msgspec.structs.replace(topic, assignment={**topic.assignment, **changed})
        with mapped_store_failures(f"reassigning partitions of topic {topic.name}"):
            try:
                await self._store.set(paths.topic_path(topic.name), _encode(reassigned), topic.version)
            except (BadVersionError, NoNodeError):
                return False
        return True

    async def is_to_be_deleted(self, name: str) -> bool:
        """Whether that topic is to be deleted.

        Raises:
            KafkaError: REQUEST_TIMED_OUT while the store cannot be reached.
        """
        with mapped_store_failures(f"reading topic {name}"):
            return await self._store.exists(paths.delete_topic_path(name)) is not None

    async def request_deletion(self, name: str) -> None:
        """Leave the request for the controller. One that is there already is fine.

        Raises:
            KafkaError: REQUEST_TIMED_OUT while the store cannot be reached.
        """
        with mapped_store_failures(f"deleting topic {name}"):
            await self._store.ensure_path(paths.delete_topic_path(name))

    async def wait_until_gone(self, name: str, *, timeout_ms: int) -> bool:
        """Until the topic's node, and the request to delete it, are not there any more; whether that is so.

        Raises:
            KafkaError: REQUEST_TIMED_OUT while the store cannot be reached.
        """
        with mapped_store_failures(f"deleting topic {name}"):
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._gone(paths.topic_path(name))
                    await self._gone(paths.delete_topic_path(name))
            except TimeoutError:
                return False
        return True

    async def _gone(self, path: str) -> None:
        created_at = None
        while True:
            changed = asyncio.Event()

            def notice(event: WatchEvent, changed: asyncio.Event = changed) -> None:
                changed.set()

            stat = await self._store.exists(path, watch=notice)
            if stat is None or created_at not in (None, stat.czxid):  # or it is another one already
                return
            created_at = stat.czxid
            await changed.wait()


def _encode(topic: StoredTopic) -> bytes:
    return paths.encode_topic(paths.TopicAssignment(topic.topic_id, topic.assignment))


def contended(name: str) -> KafkaError:
    """Another writer was faster, each time."""
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"The topic '{name}' was changed by others all the time.")


def adopted_config(topic: str) -> dict[str, str]:
    """What is set for an adopted topic."""
    if topic in (GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC):
        return {**_KEEP_ALL, "cleanup.policy": "compact"}
    return dict(_KEEP_ALL)


def find_topics(
    directories: LogDirectories, *, files: Files, node_id: BrokerId, rng: RandomBits
) -> list[StoredTopic]:
    """The topics whose partitions lie in the log directories, sorted by name; none has a state. Blocks.

    Raises:
        StartError: a directory is no plausible topic's, or a log directory is offline while others hold logs.
        OSError: a directory cannot be read.
    """
    found: dict[str, dict[int, UUID | None]] = defaultdict(dict)
    for log_directory in directories.live:
        for name in files.list(log_directory):
            parsed = parse_directory_name(name)
            path = os.path.join(log_directory, name)
            if parsed is None or parsed.kind is not DirectoryKind.CURRENT or not files.is_directory(path):
                continue
            topic, partition = parsed.topic_partition
            if topic == CLUSTER_METADATA_TOPIC:
                continue
            _check_plausible(path, topic, partition)
            found[topic][partition] = _topic_id(files, path)
    if found and directories.offline:
        raise StartError(
            f"the log directories hold logs that the store does not know, and one of them cannot be used "
            f"({', '.join(directories.offline)}): what it holds would be created a second time; repair it, "
            f"or take it out of log.dirs"
        )
    topics = [_topic(name, partitions, node_id, rng) for name, partitions in sorted(found.items())]
    by_id: dict[UUID, str] = {}
    for each in topics:
        other = by_id.setdefault(each.topic_id, each.name)
        if other != each.name:
            raise StartError(
                f"the directories of topics {other} and {each.name} have one topic id, {each.topic_id}: one "
                f"is a copy of the other; remove partition.metadata from the copy, or move it out of the log "
                f"directory"
            )
    return topics


def _check_plausible(path: str, topic: str, partition: int) -> None:
    why = None
    try:
        validate_topic_name(topic)
    except KafkaError as error:
        why = str(error)
    if partition >= PARTITIONS_PER_REQUEST_MAX:
        why = f"a topic with more than {PARTITIONS_PER_REQUEST_MAX} partitions is not adopted"
    if why is not None:
        raise StartError(
            f"{path} would be partition {partition} of a topic {topic}, which the store does not know: "
            f"{why}; move it out of the log directory"
        )


def _topic_id(files: Files, path: str) -> UUID | None:
    try:
        return read_partition_metadata(files, path)
    except CorruptCheckpoint as error:
        logger.warning("%s; the topic id is taken from other partitions, or created again", error)
        return None


def _topic(name: str, partitions: dict[int, UUID | None], node_id: BrokerId, rng: RandomBits) -> StoredTopic:
    """Where partitions disagree about the id, some are left from a deleted topic of the same name: the id
    that most have counts, and the loader sets the others aside."""
    ids = Counter(topic_id for _, topic_id in sorted(partitions.items()) if topic_id is not None)
    topic_id = ids.most_common(1)[0][0] if ids else random_uuid(rng)
    if len(ids) > 1:
        logger.error(
            "partitions of %s have %d topic ids; those with %s are adopted", name, len(ids), topic_id
        )
    return StoredTopic(
        name=name,
        topic_id=topic_id,
        assignment={partition: ReplicaAssignment((node_id,)) for partition in range(max(partitions) + 1)},
    )


def log_adoption(topics: Sequence[StoredTopic], log_manager: LogManager) -> None:
    """Say what was adopted, and how to change it. Call it before missing partitions are created."""
    logger.warning(
        "the store knows no topics, but %s hold the logs of %d: they are adopted, and their records are kept "
        "for ever. Other configurations of theirs are not known here: the defaults of this broker hold",
        ", ".join(log_manager.live_directories),
        len(topics),
    )
    for topic in topics:
        missing = [
            partition
            for partition in topic.assignment
            if log_manager.get(TopicPartition(topic.name, partition)) is None
        ]
        logger.warning(
            "adopted topic %s (id %s, %d partitions%s) with %s; to return to the default retention: "
            "minikafka topics alter %s --delete-config retention.ms --delete-config retention.bytes",
            topic.name,
            topic.topic_id,
            len(topic.assignment),
            f"; {missing} had no log and are created empty" if missing else "",
            ", ".join(f"{name}={value}" for name, value in adopted_config(topic.name).items()),
            topic.name,
        )


class StoredTopics:
    """What the store said when the broker started. Dropped when its logs are loaded."""

    def __init__(self, store: CoordinationStore, *, node_id: BrokerId) -> None:
        self._store = TopicStore(store)
        self._node_id = node_id
        self._topics: dict[str, StoredTopic] | None = None
        self._damaged: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"StoredTopics({'not read' if self._topics is None else len(self._topics)})"

    async def read(self) -> None:
        """Read all topics, so that ``is_stray`` can tell. One that cannot be read does not keep the broker
        from starting.

        Raises:
            StoreError: the store cannot be reached.
        """
        self._topics, damaged = await self._store.read_all()
        self._damaged = frozenset(damaged)
        for name, error in damaged.items():
            logger.error("%s; the logs of topic %s are left alone until it is repaired", error, name)

    @property
    def knows_none(self) -> bool:
        """Whether ``read`` found no topic: what lies in the log directories is adopted then."""
        return not self._topics and not self._damaged

    def expect(self, topics: Iterable[StoredTopic]) -> None:
        """``topics`` are being adopted: their logs are no strays. ``adopt`` them when they are loaded."""
        self._topics = {topic.name: topic for topic in topics}

    async def adopt(self, log_manager: LogManager) -> None:
        """Put what was expected into the store, led by this broker above the epochs of its logs. What an
        earlier try has put there, whose answer was lost, is fine.

        Raises:
            StoreError: the store's; nothing was put there, or it is not known.
        """
        expected = self._topics or {}
        try:
            await self._store.adopt_all(
                (
                    topic,
                    adopted_config(topic.name),
                    {number: self._state(topic.name, number, log_manager) for number in topic.assignment},
                )
                for topic in expected.values()
            )
        except NodeExistsError:
            stored, _ = await self._store.read_all()
            if any(
                name not in stored or stored[name].topic_id != topic.topic_id
                for name, topic in expected.items()
            ):
                raise

    def _state(self, topic: str, partition: int, log_manager: LogManager) -> PartitionState:
        log = log_manager.get(TopicPartition(topic, partition))
        epoch = LeaderEpoch(0 if log is None else log.leader_epoch + 1)
        return PartitionState(self._node_id, epoch, (self._node_id,), INITIAL_CONTROLLER_EPOCH)

    def is_stray(self, topic_partition: TopicPartition, topic_id: UUID | None) -> bool:
        """Whether a log that was found on the disk belongs to no partition of this broker (any more).

        ``topic_id`` is None for a log without ``partition.metadata``: its name has to do then.
        """
        if self._topics is None:
            raise InvariantError("is_stray before read: every log would be taken for a stray")
        if topic_partition.topic in self._damaged:
            return False
        topic = self._topics.get(topic_partition.topic)
        if topic is None or topic_partition.partition not in topic.assignment:
            return True
        if topic_id is not None and topic.topic_id not in (topic_id, NO_TOPIC_ID):
            return True
        return self._node_id not in topic.replicas(topic_partition.partition)
