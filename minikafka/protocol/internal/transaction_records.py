"""What the records of ``__transaction_state`` say, as keys and values of Kafka's names.

Kafka: ``transaction-coordinator/src/main/resources/common/message/*.json``, ``TransactionLog``. A record is a
key and a value, or a key and None: a tombstone. Bytes: ``transaction_record_codec``. The last epoch of a
producer (KIP-360) is not in the log.
"""

from __future__ import annotations

from typing import Final

import msgspec

from minikafka.types import NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition

NEWEST_VALUE_VERSION: Final = 1
"""Flexible (KIP-915), and with KIP-890's producer ids. Written when ``transaction.version`` is 1 or more."""


class TransactionLogKey(msgspec.Struct, frozen=True):
    transactional_id: str


class TransactionLogValue(msgspec.Struct, frozen=True, kw_only=True):
    """A state of a transactional id. Times are milliseconds since the Unix epoch, or -1."""

    producer_id: int
    previous_producer_id: int = NO_PRODUCER_ID
    """As all other fields with a default, not in version 0."""
    next_producer_id: int = NO_PRODUCER_ID
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_status: int
    """Kafka's ``TransactionState.id``."""
    transaction_partitions: frozenset[TopicPartition]
    transaction_last_update_timestamp_ms: int
    transaction_start_timestamp_ms: int = NO_TIMESTAMP
    client_transaction_version: int = 0
    version: int = NEWEST_VALUE_VERSION
    """Of the format, when it is written."""


class TransactionRecord(msgspec.Struct, frozen=True):
    """One record of ``__transaction_state``. A value of None is a tombstone."""

    key: TransactionLogKey
    value: TransactionLogValue | None
