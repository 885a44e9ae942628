"""One quota of one entity: what is measured of it, how long it is throttled, and its last throttles.

Kafka: ``ClientSensors`` and what ``ClientQuotaManager``, ``ClientRequestQuotaManager`` and
``ControllerMutationQuotaManager`` do with one of them. The formulas are in ``metrics.quota``:

=============================  ============================================================================
quota                          throttle time
=============================  ============================================================================
producer_, consumer_byte_rate  (observed − bound) / bound × window
request_percentage             the same, one window at most
controller_mutation_rate       −tokens / rate, once the bucket is overspent
=============================  ============================================================================

Its metrics, as Kafka names them: ``byte-rate``, ``request-time`` or ``tokens`` with ``mutation-rate``, and
``throttle-time``, in the groups Produce, Fetch, Request and ControllerMutation, tagged with user and client
id; an empty tag stands for everybody who shares the quota.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import NamedTuple

from minikafka.clock import Clock
from minikafka.config.client_quotas import Bound, QuotaType
from minikafka.metrics.quota import (
    Quota,
    QuotaViolationError,
    rate_throttle_time_ms,
    tokens_throttle_time_ms,
)
from minikafka.metrics.quota_rate import QuotaRate
from minikafka.metrics.registry import MetricName, Metrics
from minikafka.metrics.stats import Rate, TokenBucket
from minikafka.metrics.throttle import Throttle
from minikafka.metrics.windows import Avg, WindowConfig

logger = logging.getLogger(__name__)

LOG_PAUSE_MS = 60_000
"""Between two log lines about one quota of one entity."""

THROTTLES_MAX = 16
"""The last ones that an entity can be told about."""

_NAMES = {
    QuotaType.PRODUCE: ("Produce", "byte-rate"),
    QuotaType.FETCH: ("Fetch", "byte-rate"),
    QuotaType.REQUEST: ("Request", "request-time"),
    QuotaType.CONTROLLER_MUTATION: ("ControllerMutation", "tokens"),
}


class ClientSensor:
    """Made by ``ClientQuotas`` when the first client comes that the quota counts for, and closed when the
    last one is forgotten. Its measurements outlive a change of the bound."""

    __slots__ = (
        "_avg",
        "_bound",
        "_bucket",
        "_logged_ms",
        "_metric",
        "_metrics",
        "_quota",
        "_rate",
        "_sensor",
        "_throttle_time",
        "_windows",
        "client_id",
        "throttles",
        "user",
        "users",
    )

    def __init__(
        self, metrics: Metrics, quota: QuotaType, bound: Bound, windows: WindowConfig, *, now_ms: int
    ) -> None:
        self.throttles: deque[Throttle] = deque(maxlen=THROTTLES_MAX)
        """The oldest first."""
        self.user, self.client_id = bound.user, bound.client_id
        self.users = 0
        """How many clients have it."""
        self._metrics = metrics
        self._quota = quota
        self._bound = bound
        self._windows = windows
        self._logged_ms: int | None = None
        group, name = _NAMES[quota]
        tags = (("user", bound.user), ("client-id", bound.client_id))
        self._sensor = metrics.sensor(f"{group}-{bound.user}:{bound.client_id}", now_ms=now_ms)
        self._rate: Rate | QuotaRate = Rate(windows)
        self._bucket: TokenBucket | None = None
        if quota in (QuotaType.PRODUCE, QuotaType.FETCH):
            self._rate = QuotaRate(windows, bound=bound.value)
        if quota is QuotaType.CONTROLLER_MUTATION:
            self._bucket = TokenBucket(windows)
            self._sensor.add(MetricName("mutation-rate", group, tags), self._rate)
            self._metric = self._sensor.add(MetricName(name, group, tags), self._bucket)
        else:
            self._metric = self._sensor.add(MetricName(name, group, tags), self._rate)
        self._avg = Avg(WindowConfig())
        self._throttle_time = metrics.add_metric(MetricName("throttle-time", group, tags), self._avg)
        self.update(bound)

    def __repr__(self) -> str:
        return f"ClientSensor({self._quota.value}, {self._bound}, {self._rate!r})"

    @property
    def quota(self) -> QuotaType:
        return self._quota

    @property
    def bound(self) -> float:
        return self._bound.value

    def measure(self, now_ms: int) -> float:
        """The rate, or the tokens that are left."""
        return self._metric.measure(now_ms)

    @property
    def last_record_ms(self) -> int:
        return self._sensor.last_record_ms

    @property
    def value_max(self) -> float:
        """More than that at once is throttled, whatever else was recorded
        (``getMaxValueInQuotaWindow``)."""
        return self._bound.value * (self._windows.samples - 1) * self._windows.window_ms / 1000

    def update(self, bound: Bound) -> None:
        """Another bound for those who share this one."""
        self._bound = bound
        if self._bucket is not None:
            self._bucket.tokens_per_s = bound.value
            self._metric.quota = Quota(0, is_upper=False)
            return
        if isinstance(self._rate, QuotaRate):
            self._rate.bound = bound.value
        self._metric.quota = Quota(bound.value)

    def close(self) -> None:
        """Take the metrics away."""
        self._metrics.remove_sensor(self._sensor.name)
        self._metrics.remove_metric(self._throttle_time.name)

    def record(self, value: float, clock: Clock) -> Violation | None:
        """Count ``value``, and say how long whoever did it is to wait."""
        now_ms = clock.monotonic_ms()
        try:
            self._sensor.record(value, now_ms)
        except QuotaViolationError as error:
            return self._violation(error, now_ms)
        return None

    def record_if_free(self, value: float, clock: Clock) -> Violation | None:
        """Count ``value`` if the quota is not exceeded before; else say how long to wait, and count
        nothing."""
        now_ms = clock.monotonic_ms()
        try:
            self._sensor.check_quotas(now_ms)
        except QuotaViolationError as error:
            return self._violation(error, now_ms)
        self._sensor.record(value, now_ms, check_quotas=False)
        return None

    def take_back(self, value: float, clock: Clock) -> None:
        """What was counted did not happen after all (``unrecordQuotaSensor``)."""
        self._sensor.record(-value, clock.monotonic_ms(), check_quotas=False)

    def throttled(self, violation: Violation, *, user: str, client_id: str, clock: Clock) -> None:
        """Somebody is slowed down: keep in mind why, and say so now and then."""
        now_ms = clock.monotonic_ms()
        self._avg.record(violation.throttle_time_ms, now_ms)
        throttle = Throttle(
            quota=self._quota,
            user=user,
            client_id=client_id,
            observed=violation.observed,
            bound=self._bound.value,
            window_ms=violation.window_ms,
            throttle_time_ms=violation.throttle_time_ms,
            at_ms=clock.now_ms(),
        )
        self.throttles.append(throttle)
        if self._logged_ms is None or now_ms - self._logged_ms >= LOG_PAUSE_MS:
            logger.info(
                "client %r is throttled for %d ms by %s: %s",
                client_id,
                throttle.throttle_time_ms,
                self._quota.value,
                throttle.formula,
            )
            self._logged_ms = now_ms

    def _violation(self, error: QuotaViolationError, now_ms: int) -> Violation | None:
        if self._bucket is not None:
            window_ms = 0
            time_ms = tokens_throttle_time_ms(tokens=error.value, tokens_per_s=self._bound.value)
        else:
            window_ms = self._rate.window_size_ms(now_ms)
            time_ms = rate_throttle_time_ms(observed=error.value, bound=error.bound, window_ms=window_ms)
            if self._quota is QuotaType.REQUEST:
                time_ms = min(time_ms, self._windows.window_ms)
        return Violation(self, error.value, window_ms, time_ms) if time_ms > 0 else None


class Violation(NamedTuple):
    """A quota is exceeded: by how much, and for how long that is a reason to wait, more than nothing."""

    sensor: ClientSensor
    observed: float
    window_ms: int
    throttle_time_ms: int
