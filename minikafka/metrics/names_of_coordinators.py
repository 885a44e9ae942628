"""What coordinators measure alike, each in a group of metrics of its own. See ``names``.

Kafka: ``GroupCoordinatorMetrics``, ``GroupCoordinatorRuntimeMetrics``, ``TransactionStateManager``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from minikafka.metrics.series import Series, gauge

GROUP_METRICS: Final = "group-coordinator-metrics"
TRANSACTION_METRICS: Final = "transaction-coordinator-metrics"
LOAD_TIME_MAX: Final = "partition-load-time-max"
LOAD_TIME_AVG: Final = "partition-load-time-avg"


def load_times(group: str) -> Mapping[str, Series]:
    """By the metric's name."""
    return {
        name: gauge(
            f"kafka_server_{group}_{name}".replace("-", "_"),
            f"Milliseconds until a partition of the coordinator's topic was loaded: {what} the last 30 to 60 "
            "seconds; not a number when there was no load.",
            mbean=f"kafka.server:type={group},name={name}",
        )
        for name, what in ((LOAD_TIME_MAX, "the most in"), (LOAD_TIME_AVG, "the mean of"))
    }
