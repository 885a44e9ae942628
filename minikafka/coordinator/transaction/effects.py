"""What a shard of the transaction coordinator wants done: as ``coordinator.effects``, and two more.

- ``WriteMarkers``: tell the leaders of partitions that a transaction has ended, by WriteTxnMarkers. The
  shell groups them by broker and sends them; what each broker answers it tells
  ``TransactionShard.markers_written``, which wants those that failed for a while written once more.
- ``AllocateProducerId``: get an id of ``ProducerIdManager`` and tell the effect, as an append.

A transition of a transactional id is one append. Its state changes in ``committed``, as in Kafka: until then
the transition is pending, and the id answers CONCURRENT_TRANSACTIONS. An append that fails leaves the state
as it was, also where its record is in the log and may be committed yet: a retry then makes the same
transition, to the same epoch (R20).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import NamedTuple

from minikafka.coordinator import effects
from minikafka.coordinator.effects import Answer as Answer
from minikafka.coordinator.effects import Park as Park
from minikafka.coordinator.effects import Ticket as Ticket
from minikafka.coordinator.effects import coordinator_error as coordinator_error
from minikafka.errors import KafkaError
from minikafka.protocol.internal.transaction_record_codec import TransactionRecord
from minikafka.types import TopicPartition


class Append(effects.Append[TransactionRecord, "Effect"]):
    """Records of transactional ids; see there."""

    __slots__ = ()


class OperationKind(Enum):
    """What waits."""

    RETRY_COMPLETE = "retry-complete"
    """All markers are written; that the transaction is over could not be, and is tried again."""


class TransactionOperation(NamedTuple):
    """The name of a delayed operation."""

    kind: OperationKind
    transactional_id: str


class WriteMarkers(NamedTuple):
    """Markers of one transaction for some of its partitions, at least one."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    """What the markers carry: with the second version of the protocol one more than the records do."""
    is_commit: bool
    partitions: tuple[TopicPartition, ...]
    transaction_version: int
    """The client's; WriteTxnMarkers since 2 has it."""
    attempt: int = 0
    """More than 0: these failed for a while, and are to be sent after a pause."""


class AllocateProducerId(ABC):
    """A producer id is needed; one of the two is called, once."""

    __slots__ = ()

    @abstractmethod
    def allocated(self, producer_id: int, now_ms: int) -> list[Effect]:
        """``producer_id``: no producer has had it."""

    @abstractmethod
    def failed(self, error: KafkaError, now_ms: int) -> list[Effect]:
        """``error`` is for the client."""


Effect = Answer | Append | Park[TransactionOperation] | WriteMarkers | AllocateProducerId
Effects = list[Effect]
