"""The series about transactions, of their coordinators and of the partitions that ask them. See ``names``."""

from __future__ import annotations

from functools import partial
from typing import Final

from minikafka.metrics.names_of_coordinators import TRANSACTION_METRICS, load_times
from minikafka.metrics.series import counter, gauge, mbean_gauge, mbean_summary

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
TRANSACTIONS_LOAD_TIMES: Final = load_times(TRANSACTION_METRICS)
TRANSACTION_PARTITIONS: Final = gauge(
    "minikafka_transaction_coordinator_partitions",
    "Partitions of __transaction_state that are coordinated here, by state: loading, active, failed.",
    "state",
)
_VERIFICATION = "kafka.server:AddPartitionsToTxnManager"

VERIFICATION_FAILURES: Final = counter(
    "kafka_server_addpartitionstotxnmanager_verificationfailurerate",
    "Partitions for which a transaction's coordinator did not agree, or could not be asked.",
    mbean="kafka.server:type=AddPartitionsToTxnManager,name=VerificationFailureRate",
)
VERIFICATION_TIME: Final = mbean_summary(
    _VERIFICATION,
    "VerificationTimeMs",
    "Milliseconds from a transaction's first batch for a partition until its coordinator had answered.",
)
TRANSACTIONS: Final = (
    MARKERS_WITHOUT_LEADER,
    LOG_APPEND_RETRIES,
    TRANSACTIONAL_IDS,
    TRANSACTION_PARTITIONS,
    VERIFICATION_FAILURES,
    VERIFICATION_TIME,
    *TRANSACTIONS_LOAD_TIMES.values(),
)
