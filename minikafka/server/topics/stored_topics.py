"""The stored topics as a starting broker needs them: which logs are its own, and what to do when none is
stored.

Kafka: ``LogManager.isStrayKraftReplica`` and ``deleteStrayReplicas``.

Adoption: topics for the partitions that lie in the log directories when the store knows no topic at all. This
is the state of directories that Apache Kafka wrote (its topics are in the metadata log of KRaft, or in
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

import logging
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from uuid import UUID

from minikafka.coordination.store import CoordinationStore, NodeExistsError
from minikafka.errors import InvariantError, KafkaError, StartError
from minikafka.files import Files
from minikafka.log.files.checkpoint import CorruptCheckpoint, read_partition_metadata
from minikafka.log.files.names import DirectoryKind, parse_directory_name
from minikafka.log.manager.log_directories import LogDirectories, RandomBits, random_uuid
from minikafka.log.manager.log_manager import LogManager
from minikafka.server.cluster.controller_election import INITIAL_CONTROLLER_EPOCH
from minikafka.server.cluster.topic_validation import (
    CLUSTER_METADATA_TOPIC,
    GROUP_METADATA_TOPIC,
    PARTITIONS_PER_REQUEST_MAX,
    TRANSACTION_STATE_TOPIC,
    validate_topic_name,
)
from minikafka.server.topics.topic_store import NO_TOPIC_ID, StoredTopic, TopicStore
from minikafka.types import BrokerId, LeaderEpoch, PartitionState, ReplicaAssignment, TopicPartition

logger = logging.getLogger(__name__)

_KEEP_ALL = {"retention.ms": "-1", "retention.bytes": "-1"}


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
