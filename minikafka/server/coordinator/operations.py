"""What waits in a coordinator's shards, each until it is over or its time is up.

In groups these are joins, syncs, sessions and revocations. Kafka: ``DelayedJoin``, ``DelayedSync`` (purgatory
"Rebalance") and ``DelayedHeartbeat`` (purgatory "Heartbeat") of the coordinator of 3.x; 4.x has the timer
without the purgatories. A shard says when one begins (``Park``) and when it is over (``Complete``), so an
operation never looks whether it could complete; it only ever completes or expires. Parking under the name of
one that waits restarts its time, as each heartbeat does with the member's session.

Different from Kafka, where each heartbeat completes the member's operation and parks another: here it mostly
moves the deadline (``Timer.postpone``). It expires at the same time, and as many wait.

How long it takes a coordinator to load a partition of its topic. Kafka: the sensors
``GroupPartitionLoadTime`` and ``TransactionsPartitionLoadTime``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

from minikafka.coordinator.effects import Park
from minikafka.metrics.names_of_coordinators import LOAD_TIME_AVG, LOAD_TIME_MAX
from minikafka.metrics.registry import MetricName, Metrics, Sensor
from minikafka.metrics.series import Sample, Series
from minikafka.metrics.stats import Avg, Max, WindowConfig
from minikafka.purgatory.purgatory import DelayedOperation, DelayedOperationPurgatory


def load_time_sensor(metrics: Metrics, group: str, *, now_ms: int) -> Sensor:
    """Of milliseconds, each load's from when its leadership was known here. ``group``: of the metrics."""
    sensor = metrics.sensor(f"{group}-PartitionLoadTime", now_ms=now_ms)
    windows = WindowConfig()
    sensor.add(MetricName(LOAD_TIME_MAX, group), Max(windows))
    sensor.add(MetricName(LOAD_TIME_AVG, group), Avg(windows))
    return sensor


def load_time_samples(
    metrics: Metrics, group: str, series: Mapping[str, Series], *, now_ms: int
) -> Iterator[Sample]:
    """Those two. ``series`` by the metric's name."""
    for name, shown in series.items():
        yield Sample(shown, metrics.metrics[MetricName(name, group)].measure(now_ms))


Operation = Hashable
"""The name of what waits; the coordinator's ``effects`` say which there are."""

Expired = Callable[[Any], None]
"""Told when the time of an operation is up."""


class DelayedShardOperation(DelayedOperation):
    """Something that a shard waits for."""

    __slots__ = ("_expired", "operation")

    def __init__(self, operation: Operation, timeout_ms: int, expired: Expired) -> None:
        super().__init__(max(timeout_ms, 0))
        self.operation = operation
        self._expired = expired

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        """Nothing: the shard knows."""

    def on_expiration(self) -> None:
        self._expired(self.operation)


Purgatory = DelayedOperationPurgatory[DelayedShardOperation]

PurgatoryOf = Callable[[Any], Purgatory]
"""Where an operation waits."""


class ShardOperations:
    """Those of one shard. They leave together when the shard does."""

    __slots__ = ("_expired", "_purgatory_of", "_waiting")

    def __init__(self, purgatory_of: PurgatoryOf, expired: Expired) -> None:
        self._purgatory_of = purgatory_of
        self._expired = expired
        self._waiting: dict[Operation, DelayedShardOperation] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def park(self, park: Park[Any]) -> None:
        """Let an operation wait for so long from now on, also if it waits already."""
        operation, timeout_ms = park
        purgatory = self._purgatory_of(operation)
        waiting = self._waiting.get(operation)
        if waiting is not None:
            if purgatory.postpone(waiting, timeout_ms):
                return
            purgatory.cancel_for_key((self, operation))
        delayed = DelayedShardOperation(operation, timeout_ms, self._time_is_up)
        self._waiting[operation] = delayed
        purgatory.watch(delayed, ((self, operation),))

    def complete(self, operation: Operation) -> None:
        """It is over. Nothing, if it does not wait."""
        if self._waiting.pop(operation, None) is not None:
            self._purgatory_of(operation).cancel_for_key((self, operation))

    def leave(self) -> None:
        """All are over."""
        for operation in list(self._waiting):
            self.complete(operation)

    def _time_is_up(self, operation: Operation) -> None:
        del self._waiting[operation]
        self._expired(operation)
