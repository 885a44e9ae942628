"""Moving partitions to other brokers: checked here, written to the store, done by the controller.

Kafka: the first step of ``KafkaController.processPartitionReassignments`` (what may be done, and U1: the wish
in the topic's node) and ``ReplicationControlManager.alterPartitionReassignments``; KIP-455, KIP-860. Any
broker serves this, as with everything about topics (``topic_service``): the topic's node is written on
condition that it is what was read, so a wish never undoes what the controller or another broker has written.

Invariants: each partition has its own outcome, and a bad one does not keep back the others; the good ones of
a topic are written together; a node says of a partition where it comes from for as long as it is being moved.

Where it differs from Kafka: there the answer comes when the controller has begun. Here it comes when the wish
is written, which survives whatever becomes of the controller; ``ongoing`` shows it from then on.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from minikafka.coordination.store import CoordinationStore
from minikafka.errors import ErrorCode, KafkaError
from minikafka.server.cluster.metadata_cache import MetadataCache
from minikafka.server.cluster.store_failures import mapped_store_failures
from minikafka.server.cluster.store_reads import gather_some
from minikafka.server.cluster.topic_validation import validate_reassignment
from minikafka.server.runtime.turns import Turns
from minikafka.server.topics.topic_store import ATTEMPTS_MAX, StoredTopic, TopicStore, contended
from minikafka.types import ReplicaAssignment, TopicPartition, joined

logger = logging.getLogger(__name__)

Targets = Mapping[TopicPartition, Sequence[int] | None]
"""Where each partition is to be, the preferred leader first; None: where it was before it was being moved."""


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
        """Ask for reassignments, or take them back. What became of each wish: None when it is written, or
        when it has come true already.

        Errors are UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR,
        NO_REASSIGNMENT_IN_PROGRESS, and REQUEST_TIMED_OUT while the store cannot be reached.
        """
        by_topic: dict[str, dict[int, Sequence[int] | None]] = defaultdict(dict)
        turns = Turns()
        for (topic, partition), target in targets.items():
            await turns.give_way()
            by_topic[topic][partition] = target
        outcomes = await gather_some(
            self._alter_topic(name, wanted, allow_replication_factor_change=allow_replication_factor_change)
            for name, wanted in by_topic.items()
        )
        found = dict(zip(by_topic, outcomes, strict=True))
        answers: dict[TopicPartition, KafkaError | None] = {}
        for each in targets:
            await turns.give_way()
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
                turns = Turns()
                for partition, target in targets.items():
                    await turns.give_way()
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
