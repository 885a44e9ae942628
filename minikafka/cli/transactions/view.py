"""Transactions for people: tables in plain text with the heads that ``kafka-transactions.sh`` has."""

from __future__ import annotations

from collections.abc import Sequence

from minikafka.cli.groups.view import table
from minikafka.cli.transactions.requests import ProducerState, TransactionDescription, TransactionListing

NONE = "None"
MINUTE_MS = 60_000


def listing_lines(transactions: Sequence[TransactionListing]) -> list[str]:
    """All transactional ids; nothing when there are none."""
    rows = [
        [each.transactional_id, str(each.coordinator), str(each.producer_id), each.state]
        for each in transactions
    ]
    return table(["TransactionalId", "Coordinator", "ProducerId", "TransactionState"], rows)


def description_lines(found: TransactionDescription, *, now_ms: int) -> list[str]:
    """What a transactional id is doing, and for how long."""
    start_ms = found.start_time_ms
    row = [
        str(found.coordinator),
        found.transactional_id,
        str(found.producer_id),
        str(found.producer_epoch),
        found.state,
        str(found.timeout_ms),
        NONE if start_ms is None else str(start_ms),
        NONE if start_ms is None else str(now_ms - start_ms),
        ",".join(map(str, found.partitions)),
    ]
    heads = (
        "CoordinatorId TransactionalId ProducerId ProducerEpoch TransactionState TransactionTimeoutMs "
        "CurrentTransactionStartTimeMs TransactionDurationMs TopicPartitions"
    )
    return table(heads.split(), [row])


def producer_lines(producers: Sequence[ProducerState]) -> list[str]:
    """Who has written to a partition; nothing when nobody is known."""
    rows = [
        [
            str(each.producer_id),
            str(each.producer_epoch),
            str(each.coordinator_epoch),
            str(each.last_sequence),
            str(each.last_timestamp_ms),
            NONE if each.transaction_start_offset is None else str(each.transaction_start_offset),
        ]
        for each in producers
    ]
    heads = (
        "ProducerId ProducerEpoch LatestCoordinatorEpoch LastSequence LastTimestamp "
        "CurrentTransactionStartOffset"
    )
    return table(heads.split(), rows)


def hanging_lines(producers: Sequence[ProducerState], *, now_ms: int) -> list[str]:
    """Transactions that nobody will end; nothing when there are none."""
    rows = [
        [
            each.topic,
            str(each.partition),
            str(each.producer_id),
            str(each.producer_epoch),
            str(each.coordinator_epoch),
            str(each.transaction_start_offset),
            str(each.last_timestamp_ms),
            str((now_ms - each.last_timestamp_ms) // MINUTE_MS),
        ]
        for each in producers
    ]
    heads = (
        "Topic Partition ProducerId ProducerEpoch CoordinatorEpoch StartOffset LastTimestamp Duration(min)"
    )
    return table(heads.split(), rows)
