"""The series about the transactions that a broker coordinates. See ``names``."""

from __future__ import annotations

from functools import partial
from typing import Final

from minikafka.metrics.series import gauge, mbean_gauge

_channels = partial(mbean_gauge, "kafka.coordinator.transaction:TransactionMarkerChannelManager")

MARKERS_WITHOUT_LEADER: Final = _channels(
    "UnknownDestinationQueueSize", "Transactions whose markers wait for a partition to have a leader."
)
LOG_APPEND_RETRIES: Final = _channels(
    "LogAppendRetryQueueSize", "Transactions whose markers are written, which could not be noted yet."
)
TRANSACTIONAL_IDS: Final = gauge(
    "minikafka_transactional_ids", "Transactional ids that are coordinated here, by state.", "state"
)
TRANSACTION_PARTITIONS: Final = gauge(
    "minikafka_transaction_coordinator_partitions",
    "Partitions of __transaction_state that are coordinated here, by state: loading, active, failed.",
    "state",
)
TRANSACTIONS: Final = (
    MARKERS_WITHOUT_LEADER,
    LOG_APPEND_RETRIES,
    TRANSACTIONAL_IDS,
    TRANSACTION_PARTITIONS,
)
