"""The requests that reach a transactional id and the results that leave it, free of versions and encodings.

Handlers in ``server.apis`` make these from requests and write results as bodies. An error is a KafkaError in
the place of a result, with the newest version's code: handlers say INVALID_PRODUCER_EPOCH in the place of
PRODUCER_FENCED where a version does not know that (Kafka: ``KafkaApis``).
"""

from __future__ import annotations

from typing import Final

import msgspec

from minikafka.errors import ErrorCode
from minikafka.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

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
