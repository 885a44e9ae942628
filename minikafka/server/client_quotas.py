"""Client quotas of one broker: who the clients are, what they moved, what counts for each of them.

Kafka: ``QuotaFactory.QuotaManagers`` with its ``ClientQuotaManager``s. A client is a user, which is the name
of its connection's principal (ANONYMOUS without authentication), and a client id. Who handles a request asks
for its ``QuotaClient``, adds to its counters, and looks at ``is_limited``: as long as no quota counts for
that client, this is all it costs. Else it records with the quota's ``ClientSensor`` and hands what comes of
it to ``slow_down``.

What is measured for one quota of one entity, how long it is throttled, and its last throttles are in its
``ClientSensor`` (``ClientSensors``, ``ClientQuotaManager``, ``ClientRequestQuotaManager`` and
``ControllerMutationQuotaManager``). The formulas are in ``metrics.sensors``:

=============================  ============================================================================
quota                          throttle time
=============================  ============================================================================
producer_, consumer_byte_rate  (observed − bound) / bound × window
request_percentage             the same, one window at most
controller_mutation_rate       −tokens / rate, once the bucket is overspent
=============================  ============================================================================

Its metrics, as Kafka names them: ``byte-rate``, ``request-time`` or ``tokens`` with ``mutation-rate``, and
``throttle-time``, in the groups Produce, Fetch, Request and ControllerMutation, tagged with user and client
id; an empty tag stands for all clients that share the quota.

Invariants:
- A client's counters exist from its first request on, whether there are quotas or not.
- Every client that is known here has the sensors of all quotas that count for it, and no others: a changed
  quota is applied to all of them at once. A sensor lives as long as a client that has it.
- What is kept is bounded: a client that did nothing for an hour is forgotten, and above ``CLIENTS_MAX`` the
  one that came first. A connection may still hold a forgotten one; it says that it is limited, which makes
  the connection ask again.

**Handlers' time**: how long a request keeps its handler busy, for request quotas (KIP-124). Made only while
one is set. Kafka: ``ClientRequestQuotaManager`` and the thread times in ``RequestChannel.Request``. There is
one event loop, so a client that has 100 percent of handler time has all of it. Time spent waiting (for
replicas, bytes, the store) does not count.

The time is counted when the answer is made, so that the answer tells the throttle that comes of it; what is
done after that (other partitions of a group's request, the writing) is not counted. Kafka counts the network
threads' part afterwards.

**Connections**: what the configuration says about them, and quotas of addresses (KIP-612), as
``network.limits`` takes it. Kafka: ``ConnectionQuotas.listenerConfigurations``, ``IpConfigHandler``.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Protocol, TypeVar, cast

from minikafka.clock import Clock
from minikafka.config.broker import BrokerConfig
from minikafka.config.client_quotas import (
    CLIENT_ID,
    DEFAULT,
    THROTTLE,
    USER,
    Bound,
    QuotaEntity,
    QuotaFilter,
    Quotas,
    QuotaType,
    bound_for,
)
from minikafka.errors import ConfigError
from minikafka.flight_recorder import ClientThrottled, Record, cut, not_recorded
from minikafka.metrics.sensors import (
    Avg,
    MetricName,
    Metrics,
    Quota,
    QuotaRate,
    QuotaViolationError,
    Rate,
    Throttle,
    TokenBucket,
    WindowConfig,
    rate_throttle_time_ms,
    tokens_throttle_time_ms,
)
from minikafka.named_tuple import NamedTuple
from minikafka.network.connection import Connection
from minikafka.network.limits import NO_LIMIT, ConnectionLimits, ListenerLimits
from minikafka.network.socket_server import resolved_overrides
from minikafka.protocol.wire.codec import AnyBody, Body
from minikafka.steps import Steps as WorkSteps

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

CLIENT_LIFE_MS = 3_600_000
"""``QuotaConfig.INACTIVE_SENSOR_EXPIRATION_TIME_SECONDS``."""

CLIENTS_MAX = 2_000
"""Client ids are the clients' own choice. Kafka has no limit; this one keeps a scrape of all series short."""

FORGET_PAUSE_MS = 60_000
"""Between two looks for clients that did nothing."""

T = TypeVar("T")

PERCENT_PER_NS = 100 / 1_000_000_000
"""Of one second."""


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
        """Count ``value``, and say how long the client is to wait."""
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

    def unrecord(self, value: float, clock: Clock) -> None:
        """What was counted did not happen after all (``unrecordQuotaSensor``)."""
        self._sensor.record(-value, clock.monotonic_ms(), check_quotas=False)

    def throttled(self, violation: Violation, *, user: str, client_id: str, clock: Clock) -> Throttle:
        """A client is slowed down: keep in mind why, which is returned, and say so now and then."""
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
        return throttle

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


class Mutable(Protocol):
    """A connection, as far as quotas care."""

    def mute(self, duration_ms: int | None = None) -> None: ...


class QuotaClient:
    """One user and client id, and what it did. The counters belong to the handlers of its requests."""

    __slots__ = (
        "_seen",
        "_seen_ms",
        "client_id",
        "fetched_bytes",
        "is_limited",
        "produced_bytes",
        "sensors",
        "user",
    )

    def __init__(self, user: str, client_id: str, *, now_ms: int) -> None:
        self.user = user
        self.client_id = client_id
        self.produced_bytes = 0
        """Of Produce requests, all of them."""
        self.fetched_bytes = 0
        """Of records in Fetch responses."""
        self.sensors: dict[QuotaType, ClientSensor] = {}
        """Of the quotas that count for it."""
        self.is_limited = False
        """Whether there are any, or the client was forgotten."""
        self._seen = 0
        self._seen_ms = now_ms

    def __repr__(self) -> str:
        return f"QuotaClient({self.user}, {self.client_id!r}, {self.sensors})"

    def idle_ms(self, now_ms: int) -> int:
        """For how long it has done nothing, as far as earlier calls could see."""
        done = self.produced_bytes + self.fetched_bytes
        done += sum(sensor.last_record_ms for sensor in self.sensors.values())
        if done != self._seen:
            self._seen, self._seen_ms = done, now_ms
        return now_ms - self._seen_ms


class ClientQuotas:
    """See the module header."""

    def __init__(self, config: BrokerConfig, *, clock: Clock, metrics: Metrics) -> None:
        self.clock = clock
        self.times_requests = False
        """Whether a request quota is set anywhere, so that handlers are to be timed."""
        self._metrics = metrics
        self._windows = WindowConfig(config.quota_window_num, config.quota_window_size_seconds * 1000)
        self._mutation_windows = WindowConfig(
            config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000
        )
        self._quotas: dict[QuotaEntity, Quotas] = {}
        self._clients: dict[tuple[str, str], QuotaClient] = {}
        self._sensors: dict[tuple[QuotaType, str, str], ClientSensor] = {}
        self._looked_ms = clock.monotonic_ms()
        self._followers: list[Callable[[], None]] = []
        self.record: Record = not_recorded
        """The broker's flight recorder."""

    def __repr__(self) -> str:
        return f"ClientQuotas({len(self._quotas)} entities with quotas, {len(self._clients)} clients)"

    def follow(self, tell: Callable[[], None]) -> None:
        """``tell`` is told after each change of a quota."""
        self._followers.append(tell)

    def update(self, entity: QuotaEntity, quotas: Quotas) -> None:
        """All that is set for an entity now."""
        if entity.ip is not None:  # of connections: ``network.limits``
            return
        if quotas:
            self._quotas[entity] = quotas
        else:
            self._quotas.pop(entity, None)
        self.times_requests = any(QuotaType.REQUEST in each for each in self._quotas.values())
        for client in self._clients.values():
            self._resolve(client)
        for tell in self._followers:
            tell()

    def client(self, user: str, client_id: str | None) -> QuotaClient:
        """Who has this client id. ``user``: the name of the principal of its connection."""
        known = self._clients.get((user, client_id or ""))
        return self._new_client(user, client_id or "") if known is None else known

    def clients(self) -> list[QuotaClient]:
        """All that did something within the last hour."""
        self._forget_idle()
        return list(self._clients.values())

    def entities(self) -> dict[QuotaEntity, Quotas]:
        """All that is set, for whom."""
        return dict(self._quotas)

    def sensors(self) -> list[ClientSensor]:
        """Of all quotas that count for some client."""
        return list(self._sensors.values())

    def throttles(self, wanted: QuotaFilter) -> list[Throttle]:
        """The last throttles that a filter asks for, the oldest first."""
        found = [
            throttle
            for sensor in self._sensors.values()
            for throttle in sensor.throttles
            if wanted.matches(
                {USER: throttle.user, CLIENT_ID: throttle.client_id, THROTTLE: throttle.quota.value}
            )
        ]
        return sorted(found, key=lambda throttle: throttle.at_ms)

    def slow_down(self, connection: Mutable, client: QuotaClient, *violations: Violation | None) -> int:
        """Mute a connection for the longest of ``violations`` (KIP-219). Returns its throttle time."""
        longest = max(
            (each for each in violations if each is not None),
            key=lambda each: each.throttle_time_ms,
            default=None,
        )
        if longest is None:
            return 0
        throttle = longest.sensor.throttled(
            longest, user=client.user, client_id=client.client_id, clock=self.clock
        )
        self.record(
            ClientThrottled(
                user=cut(throttle.user),
                client_id=cut(throttle.client_id),
                quota=throttle.quota.value,
                throttle_time_ms=throttle.throttle_time_ms,
                cause=throttle.formula,
            )
        )
        connection.mute(longest.throttle_time_ms)
        return longest.throttle_time_ms

    def _new_client(self, user: str, client_id: str) -> QuotaClient:
        now_ms = self.clock.monotonic_ms()
        if now_ms - self._looked_ms >= FORGET_PAUSE_MS:
            self._forget_idle()
        if len(self._clients) >= CLIENTS_MAX:
            self._forget([next(iter(self._clients.values()))])
        client = self._clients[user, client_id] = QuotaClient(user, client_id, now_ms=now_ms)
        self._resolve(client)
        return client

    def _resolve(self, client: QuotaClient) -> None:
        """Give a client the sensors of the quotas that count for it."""
        had, client.sensors = client.sensors, {}
        for quota in QuotaType if self._quotas else ():
            bound = bound_for(self._quotas, quota, user=client.user, client_id=client.client_id)
            if bound is not None:
                client.sensors[quota] = sensor = self._sensor(quota, bound)
                sensor.users += 1
        client.is_limited = bool(client.sensors)
        self._release(had)

    def _sensor(self, quota: QuotaType, bound: Bound) -> ClientSensor:
        sensor = self._sensors.get((quota, bound.user, bound.client_id))
        if sensor is None:
            is_mutation = quota is QuotaType.CONTROLLER_MUTATION
            windows = self._mutation_windows if is_mutation else self._windows
            sensor = ClientSensor(self._metrics, quota, bound, windows, now_ms=self.clock.monotonic_ms())
            self._sensors[quota, bound.user, bound.client_id] = sensor
        else:
            sensor.update(bound)
        return sensor

    def _release(self, sensors: dict[QuotaType, ClientSensor]) -> None:
        """A client does not have them any more."""
        for quota, sensor in sensors.items():
            sensor.users -= 1
            if not sensor.users:
                sensor.close()
                del self._sensors[quota, sensor.user, sensor.client_id]

    def _forget_idle(self) -> None:
        self._looked_ms = now_ms = self.clock.monotonic_ms()
        self._forget([each for each in self._clients.values() if each.idle_ms(now_ms) >= CLIENT_LIFE_MS])

    def _forget(self, clients: list[QuotaClient]) -> None:
        for client in clients:
            del self._clients[client.user, client.client_id]
            self._release(client.sensors)
            client.is_limited = True  # who holds it is to ask again


class HandlerTime:
    """One request's. It runs from the start, and stops with ``pause``."""

    __slots__ = ("_client_id", "_connection", "_now_ns", "_quotas", "_spent_ns", "_started_ns")

    def __init__(self, quotas: ClientQuotas, connection: Connection, client_id: str | None) -> None:
        self._quotas = quotas
        self._connection = connection
        self._client_id = client_id
        self._now_ns = quotas.clock.monotonic_ns
        self._spent_ns = 0
        self._started_ns: int | None = self._now_ns()

    def __repr__(self) -> str:
        return f"HandlerTime({self.spent_ns} ns)"

    @property
    def spent_ns(self) -> int:
        """Until now."""
        running_ns = 0 if self._started_ns is None else self._now_ns() - self._started_ns
        return self._spent_ns + running_ns

    def pause(self) -> None:
        """The handler waits from here on, or has returned. Harmless when it does already."""
        self._spent_ns, self._started_ns = self.spent_ns, None

    def resume(self) -> None:
        """The handler continues."""
        self.pause()
        self._started_ns = self._now_ns()

    def _client(self) -> QuotaClient:
        return self._quotas.client(self._connection.principal.name, self._client_id)

    def record(self) -> Violation | None:
        """Count the time so far for the client; once a request."""
        sensor = self._client().sensors.get(QuotaType.REQUEST)
        return None if sensor is None else sensor.record(self.spent_ns * PERCENT_PER_NS, self._quotas.clock)

    def throttled(self, body: Body) -> Body:
        """The answer, with the throttle time that the request costs its client; the connection is muted."""
        client = self._client()
        throttle_time_ms = self._quotas.slow_down(self._connection, client, self.record())
        if throttle_time_ms <= body.get("throttle_time", throttle_time_ms):
            return body
        return {**body, "throttle_time": throttle_time_ms}

    def measure_steps(self, steps: WorkSteps[T]) -> WorkSteps[T]:
        """``steps``, in which the time between them does not count. It runs on when they have ended."""
        while True:
            self.resume()
            try:
                waits_for = next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            self.pause()
            yield waits_for

    def measure(self, work: Coroutine[Any, Any, AnyBody]) -> Steps:
        """To be awaited instead of ``work``: its steps are measured, its waiting is not."""
        return Steps(work, self)


class Steps:
    """A coroutine under a stop watch: an awaitable whose steps are those of ``work``."""

    __slots__ = ("_time", "_work")

    def __init__(self, work: Coroutine[Any, Any, AnyBody], time: HandlerTime) -> None:
        self._work = work
        self._time = time

    def __await__(self) -> Generator[Any, Any, AnyBody]:
        return cast(Generator[Any, Any, AnyBody], self)  # as far as an await needs one

    def __iter__(self) -> Steps:
        return self

    def __next__(self) -> Any:
        return self._step(self._work.send, None)

    def send(self, value: Any) -> Any:
        return self._step(self._work.send, value)

    def throw(self, error: BaseException) -> Any:
        return self._step(self._work.throw, error)

    def close(self) -> None:
        self._work.close()

    def _step(self, step: Callable[[Any], Any], argument: Any) -> Any:
        self._time.resume()
        try:
            return step(argument)
        finally:
            self._time.pause()


def listener_limits(config: BrokerConfig) -> dict[str, ListenerLimits]:
    """What each listener has of its own."""

    def own(listener: str, name: str) -> int:
        value = config.listener_value(listener, name)
        return NO_LIMIT if value is None else int(value)

    return {
        listener.name: ListenerLimits(
            own(listener.name, "max.connections"), own(listener.name, "max.connection.creation.rate")
        )
        for listener in config.endpoints()
    }


class ConnectionOverrides:
    """``max.connections.per.ip.overrides`` while a broker runs. Hosts in it are looked up before a change is
    stored, which is refused where one is unknown, and by each broker that hears of it."""

    def __init__(self, config: BrokerConfig, limits: ConnectionLimits) -> None:
        self._set = config.connection_overrides()
        self._limits = limits
        self._checked: tuple[dict[str, int], dict[str, int]] = ({}, {})
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"ConnectionOverrides({self._set})"

    async def check(self, config: BrokerConfig) -> None:
        """Raises ConfigError: a host is unknown."""
        wanted = config.connection_overrides()
        if wanted != self._set:
            by_address, unknown = await resolved_overrides(wanted)
            if unknown:
                raise ConfigError(unknown[0])
            self._checked = (wanted, by_address)

    def apply(self, config: BrokerConfig) -> None:
        """At once what was checked here; else as soon as ``run`` has looked it up."""
        wanted = config.connection_overrides()
        if wanted == self._set:
            return
        self._set = wanted
        checked, by_address = self._checked
        if wanted == checked:
            self._changed.clear()
            self._limits.max_connections_per_ip_overrides = by_address
        else:
            self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            wanted = self._set
            by_address, unknown = await resolved_overrides(wanted)
            if self._set is not wanted:
                continue  # it was set again meanwhile
            for line in unknown:
                logger.error("%s; this broker does without that override", line)
            self._limits.max_connections_per_ip_overrides = by_address


def apply_ip_quota(limits: ConnectionLimits, entity: QuotaEntity, quotas: Quotas) -> None:
    """All that is set for an entity now; of interest are addresses. A host name, which only a Kafka can have
    stored, is left out: see ``config.client_quotas``."""
    if entity.ip is None:
        return
    rate = quotas.get(QuotaType.CONNECTION_CREATION)
    if entity.ip is DEFAULT:
        limits.set_ip_rate(None, rate)
        return
    try:
        limits.set_ip_rate(str(ipaddress.ip_address(str(entity.ip))), rate)
    except ValueError:
        logger.error("connection_creation_rate of %s is ignored: it is not an IP address", entity.ip)
