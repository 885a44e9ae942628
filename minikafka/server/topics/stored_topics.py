"""The stored topics as a starting broker needs them: which logs are its own, and what to do when none is
stored.

Kafka: ``LogManager.isStrayKraftReplica`` and ``deleteStrayReplicas``. Adoption is in ``adoption.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from uuid import UUID

from minikafka.coordination.store import CoordinationStore, NodeExistsError
from minikafka.errors import InvariantError
from minikafka.log.manager.log_manager import LogManager
from minikafka.server.cluster.controller_election import INITIAL_CONTROLLER_EPOCH
from minikafka.server.topics.adoption import adopted_config
from minikafka.server.topics.topic_store import NO_TOPIC_ID, StoredTopic, TopicStore
from minikafka.types import BrokerId, LeaderEpoch, PartitionState, TopicPartition

logger = logging.getLogger(__name__)


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
        """Read all topics, so that ``is_stray`` can tell. One that cannot be read keeps nobody from starting.

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
            StoreError: the store's; nothing was put there, or nobody knows.
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
