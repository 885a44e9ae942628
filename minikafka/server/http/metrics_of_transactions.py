"""What a scrape reads of the transactions that this broker coordinates, and of those that write to its
partitions. See ``metrics_of_data``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from minikafka.coordinator.transaction.transaction_state import TransactionState
from minikafka.metrics import names_of_transactions as names
from minikafka.metrics.names_of_coordinators import TRANSACTION_METRICS
from minikafka.metrics.series import Sample
from minikafka.server.coordinator.hosted_shard import ShardState
from minikafka.server.coordinator.metrics import load_time_samples
from minikafka.server.http.summaries import timer_summary
from minikafka.server.services import Services

_SHARD_STATES = (ShardState.LOADING, ShardState.ACTIVE, ShardState.FAILED)
_STATES = (
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
)
"""Those that last."""


def transactions(services: Services) -> Iterator[Sample]:
    """A source."""
    coordinator, verification = services.transactions, services.transaction_verification
    hosted = coordinator.hosted_shards()
    yield Sample(names.MARKERS_WITHOUT_LEADER, coordinator.markers.without_leader)
    yield Sample(names.LOG_APPEND_RETRIES, coordinator.parked.delayed)
    counts: Counter[TransactionState] = Counter()
    for each in hosted:
        if each.state is ShardState.ACTIVE:
            counts.update(each.shard.counts_by_state())
    for state in _STATES:
        yield Sample(names.TRANSACTIONAL_IDS, counts[state], (state.kafka_name,))
    for shard_state in _SHARD_STATES:
        count = sum(each.state is shard_state for each in hosted)
        yield Sample(names.TRANSACTION_PARTITIONS, count, (shard_state.value,))
    yield from load_time_samples(
        services.metrics,
        TRANSACTION_METRICS,
        names.TRANSACTIONS_LOAD_TIMES,
        now_ms=services.clock.monotonic_ms(),
    )
    yield Sample(names.VERIFICATION_FAILURES, verification.failures)
    yield from timer_summary(names.VERIFICATION_TIME, verification.times)
