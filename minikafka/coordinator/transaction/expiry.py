"""What the clock does to transactional ids: time-outs of transactions, and ids that nobody uses any more.

Kafka: ``TransactionCoordinator.abortTimedOutTransactions``, ``TransactionStateManager``'s
``removeExpiredTransactionalIds``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from minikafka.coordinator.transaction.effects import Append, Effects
from minikafka.coordinator.transaction.metadata import NEVER_TIMES_OUT_MS, TransactionMetadata, tombstone
from minikafka.coordinator.transaction.transaction_state import TransactionState
from minikafka.coordinator.transaction.transactions import Transactions
from minikafka.errors import KafkaError

TOMBSTONES_MAX: Final = 1_000
"""In one batch (Kafka: as many as the log takes). With long ids they take a third of a topic's default
``max.message.bytes``."""


class Tombstones(Append):
    """The ids go when their tombstones are committed; those whose tombstones are not stay."""

    __slots__ = ("_expired", "_transactions")

    def __init__(self, transactions: Transactions, expired: Sequence[TransactionMetadata]) -> None:
        for metadata in expired:
            metadata.prepare_dead()
        super().__init__([tombstone(metadata.transactional_id) for metadata in expired])
        self._transactions = transactions
        self._expired = expired

    def committed(self, now_ms: int) -> Effects:
        for metadata in self._expired:
            del self._transactions.ids[metadata.transactional_id]
        return []

    def failed(self, error: KafkaError, now_ms: int) -> Effects:
        for metadata in self._expired:
            metadata.drop_transition()
        return []


def abort_timed_out(transactions: Transactions, now_ms: int) -> Effects:
    """See ``TransactionShard``."""
    effects: Effects = []
    for metadata in transactions.ids.values():
        current = metadata.current
        if (
            current.state is TransactionState.ONGOING
            and metadata.pending is None
            and current.timeout_ms != NEVER_TIMES_OUT_MS
            and current.start_timestamp_ms + current.timeout_ms < now_ms
        ):
            effects += transactions.fence(metadata, None, now_ms)
    return effects


def remove_expired(transactions: Transactions, now_ms: int) -> Effects:
    """See ``TransactionShard``."""
    latest_ms = now_ms - transactions.settings.transactional_id_expiration_ms
    expired = [
        metadata
        for metadata in transactions.ids.values()
        if metadata.state.is_idle
        and metadata.pending is None
        and metadata.current.last_update_timestamp_ms <= latest_ms
    ]
    return [
        Tombstones(transactions, expired[first : first + TOMBSTONES_MAX])
        for first in range(0, len(expired), TOMBSTONES_MAX)
    ]
