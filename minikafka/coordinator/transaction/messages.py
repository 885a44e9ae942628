"""Requests that reach a transactional id, results that leave it, and what its shard wants done.

All is free of versions and encodings. Handlers in ``server.apis`` make requests and write results as bodies.
An error is a KafkaError in the place of a result, with the newest version's code: handlers say
INVALID_PRODUCER_EPOCH in the place of PRODUCER_FENCED where a version does not know that (Kafka:
``KafkaApis``).

**What a shard wants done**: as ``coordinator.effects``, and two more.

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
from typing import TYPE_CHECKING, Final

import msgspec

from minikafka.coordinator import effects
from minikafka.coordinator.effects import Answer as Answer
from minikafka.coordinator.effects import Park as Park
from minikafka.coordinator.effects import Ticket as Ticket
from minikafka.coordinator.effects import coordinator_error as coordinator_error
from minikafka.errors import ErrorCode, KafkaError
from minikafka.named_tuple import NamedTuple
from minikafka.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

if TYPE_CHECKING:  # with it come the schemas of two internal topics, which a start does not need
    from minikafka.protocol.internal.transaction_record_codec import TransactionRecord  # noqa: F401 quoted below

TRANSACTION_VERSION_1: Final = 0
"""``client_transaction_version`` of clients that speak the first version of the protocol: AddPartitionsToTxn
until 3, AddOffsetsToTxn, EndTxn until 4 (Kafka: ``TransactionVersion.TV_0``)."""

TRANSACTION_VERSION_2: Final = 2
"""KIP-890: EndTxn since 5 raises the epoch, brokers add partitions by AddPartitionsToTxn since 4."""


class InitProducerId(msgspec.Struct, frozen=True, kw_only=True):
    """``transactional_id`` is not None: a producer without one gets its id from the handler. ``producer_id``
    and ``producer_epoch`` are what a producer has that continues after an error (KIP-360), else -1."""

    transactional_id: str
    transaction_timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class InitProducerIdResult(msgspec.Struct, frozen=True):
    producer_id: int
    producer_epoch: int


class AddPartitionsToTxn(msgspec.Struct, frozen=True, kw_only=True):
    """One transaction of an AddPartitionsToTxn, or an AddOffsetsToTxn: then its partition is the group's of
    ``__consumer_offsets``. The partitions exist: the handler answers for those that do not."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    verify_only: bool = False
    """Change nothing; say which are in the ongoing transaction (KIP-890)."""
    knows_abortable: bool = True
    """The version is at least 5: a partition that is not in it is TRANSACTION_ABORTABLE, else
    INVALID_TXN_STATE."""
    client_transaction_version: int


class AddPartitionsToTxnResult(msgspec.Struct, frozen=True):
    """In the order of the request."""

    errors: tuple[ErrorCode, ...]
    is_remembered: bool = False
    """As in ``EndTxnResult``; only in the first version of the protocol, where what is remembered may be of
    the transaction before."""


class EndTxn(msgspec.Struct, frozen=True, kw_only=True):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    client_transaction_version: int


class EndTxnResult(msgspec.Struct, frozen=True):
    """The id and epoch with which the producer continues; -1 in the first version of the protocol."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    is_remembered: bool = False
    """A retry, for which nothing was written. A write would have shown that this is still the coordinator."""


class DescribedTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """``state`` as Kafka spells it; the start is -1 when no transaction has begun. ``partitions`` in
    ascending order."""

    transactional_id: str
    state: str
    timeout_ms: int
    start_time_ms: int
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


class ListTransactions(msgspec.Struct, frozen=True, kw_only=True):
    """What is empty or negative filters nothing."""

    states: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    duration_ms: int = -1
    """Transactions that have been going on for longer than this."""
    transactional_id_pattern: str = ""
    """RE2; matches the whole id (KIP-1152)."""


class ListedTransaction(msgspec.Struct, frozen=True):
    transactional_id: str
    producer_id: int
    state: str


class Append(effects.Append["TransactionRecord", "Effect"]):
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
