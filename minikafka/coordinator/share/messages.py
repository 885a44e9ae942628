"""What the share coordinator is asked and what it answers, free of versions and encodings.

Kafka: ``org.apache.kafka.server.share.persister`` (``Persister`` and its parameter classes). The group
coordinator and the leaders of partitions ask by way of ``SharePersister``; the broker that coordinates a
(group, topic id, partition) keeps its state in ``__share_group_state``. Each partition is answered for
itself: an error of one is a value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol
from uuid import UUID

from minikafka.errors import KafkaError
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.internal.share_records import SharePartitionKey as SharePartitionKey
from minikafka.protocol.internal.share_records import StateBatch as StateBatch

UNINITIALIZED_START_OFFSET: Final = -1
"""No share-partition start offset yet: the leader decides by ``share.auto.offset.reset``
(``PartitionFactory.UNINITIALIZED_START_OFFSET``)."""
UNINITIALIZED_DELIVERY_COMPLETE_COUNT: Final = -1
"""Not known (``PartitionFactory.UNINITIALIZED_DELIVERY_COMPLETE_COUNT``)."""
DEFAULT_STATE_EPOCH: Final = 0
DEFAULT_LEADER_EPOCH: Final = 0
NO_LEADER_EPOCH: Final = -1
"""A reader that is no leader of the partition: no check, and the kept epoch stays."""


class TopicIdPartition(NamedTuple):
    topic_id: UUID
    partition: int


class InitializeShareState(NamedTuple):
    topic_id: UUID
    partition: int
    state_epoch: int
    start_offset: int


class ReadShareState(NamedTuple):
    topic_id: UUID
    partition: int
    leader_epoch: int


class WriteShareState(NamedTuple):
    """``start_offset`` -1: it stays. ``delivery_complete_count``: records from the start offset on that are
    acknowledged or archived; -1: not known."""

    topic_id: UUID
    partition: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


class SharePartitionError(NamedTuple):
    """What became of a partition's initialization, write or deletion. None: it is done, and safe."""

    topic_id: UUID
    partition: int
    error: KafkaError | None = None


class SharePartitionState(NamedTuple):
    topic_id: UUID
    partition: int
    error: KafkaError | None = None
    state_epoch: int = DEFAULT_STATE_EPOCH
    start_offset: int = UNINITIALIZED_START_OFFSET
    batches: tuple[StateBatch, ...] = ()


class SharePartitionSummary(NamedTuple):
    topic_id: UUID
    partition: int
    error: KafkaError | None = None
    state_epoch: int = DEFAULT_STATE_EPOCH
    leader_epoch: int = DEFAULT_LEADER_EPOCH
    start_offset: int = UNINITIALIZED_START_OFFSET
    delivery_complete_count: int = UNINITIALIZED_DELIVERY_COMPLETE_COUNT


class SharePersister(Protocol):
    """Where the state of share partitions is kept (Kafka: ``Persister``). No method raises for a partition:
    each is answered for itself, in the order asked.

    ``write_here`` asks this broker's own coordinator, once; False: another broker coordinates. ``answer`` is
    called now unless other replicas are waited for.
    """

    async def initialize_state(
        self, group_id: str, partitions: Sequence[InitializeShareState]
    ) -> list[SharePartitionError]: ...

    async def read_state(
        self, group_id: str, partitions: Sequence[ReadShareState]
    ) -> list[SharePartitionState]: ...

    def write_here(
        self, group_id: str, write: WriteShareState, answer: Callable[[SharePartitionError], None]
    ) -> bool: ...

    async def write_state(
        self, group_id: str, partitions: Sequence[WriteShareState]
    ) -> list[SharePartitionError]: ...

    async def delete_state(
        self, group_id: str, partitions: Sequence[TopicIdPartition]
    ) -> list[SharePartitionError]: ...

    async def read_summary(
        self, group_id: str, partitions: Sequence[ReadShareState]
    ) -> list[SharePartitionSummary]: ...
