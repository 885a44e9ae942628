"""Client quotas of one broker: who the clients are, what they moved, what counts for each of them.

Kafka: ``QuotaFactory.QuotaManagers`` with its ``ClientQuotaManager``s. There is no authentication, so every
client is the user ANONYMOUS; users' quotas hold for that name or by default. Who handles a request asks for
the ``QuotaClient`` of its client id, adds to its counters, and looks at ``is_limited``: as long as no quota
counts for that client, this is all it costs. Else it records with the quota's ``ClientSensor`` and hands
what comes of it to ``slow_down``.

Invariants:
- A client's counters exist from its first request on, whether there are quotas or not.
- Every client that is known here has the sensors of all quotas that count for it, and no others: a changed
  quota is applied to all of them at once. A sensor lives as long as a client that has it.
- What is kept is bounded: a client that did nothing for an hour is forgotten, and above ``CLIENTS_MAX`` the
  one that came first. Somebody may still hold a forgotten one; it says that it is limited, which makes him
  ask again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from minikafka.clock import Clock
from minikafka.config.broker import BrokerConfig
from minikafka.config.client_quotas import (
    CLIENT_ID,
    THROTTLE,
    USER,
    Bound,
    QuotaEntity,
    QuotaFilter,
    Quotas,
    QuotaType,
    bound_for,
)
from minikafka.metrics.registry import Metrics
from minikafka.metrics.throttle import Throttle
from minikafka.metrics.windows import WindowConfig
from minikafka.server.quota.client_sensor import ClientSensor, Violation

ANONYMOUS = "ANONYMOUS"
"""``KafkaPrincipal.ANONYMOUS``."""

CLIENT_LIFE_MS = 3_600_000
"""``QuotaConfig.INACTIVE_SENSOR_EXPIRATION_TIME_SECONDS``."""

CLIENTS_MAX = 2_000
"""Client ids are the clients' own choice. Kafka has no limit; this one keeps a scrape of all series short."""

FORGET_PAUSE_MS = 60_000
"""Between two looks for clients that did nothing."""


class Mutable(Protocol):
    """A connection, as far as quotas care."""

    def mute(self, duration_ms: int | None = None) -> None: ...


class QuotaClient:
    """One user and client id, and what it did. The counters are whoever's who handles its requests."""

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
        self._clients: dict[str, QuotaClient] = {}
        self._sensors: dict[tuple[QuotaType, str, str], ClientSensor] = {}
        self._looked_ms = clock.monotonic_ms()
        self._followers: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"ClientQuotas({len(self._quotas)} entities with quotas, {len(self._clients)} clients)"

    def follow(self, tell: Callable[[], None]) -> None:
        """``tell`` is told after each change of a quota."""
        self._followers.append(tell)

    def update(self, entity: QuotaEntity, quotas: Quotas) -> None:
        """All that is set for an entity now."""
        if quotas:
            self._quotas[entity] = quotas
        else:
            self._quotas.pop(entity, None)
        self.times_requests = any(QuotaType.REQUEST in each for each in self._quotas.values())
        for client in self._clients.values():
            self._resolve(client)
        for tell in self._followers:
            tell()

    def client(self, client_id: str | None) -> QuotaClient:
        """Who has this client id."""
        known = self._clients.get(client_id or "")
        return self._new_client(client_id or "") if known is None else known

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
        longest.sensor.throttled(longest, user=client.user, client_id=client.client_id, clock=self.clock)
        connection.mute(longest.throttle_time_ms)
        return longest.throttle_time_ms

    def _new_client(self, client_id: str) -> QuotaClient:
        now_ms = self.clock.monotonic_ms()
        if now_ms - self._looked_ms >= FORGET_PAUSE_MS:
            self._forget_idle()
        if len(self._clients) >= CLIENTS_MAX:
            self._forget([next(iter(self._clients.values()))])
        client = self._clients[client_id] = QuotaClient(ANONYMOUS, client_id, now_ms=now_ms)
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
            del self._clients[client.client_id]
            self._release(client.sensors)
            client.is_limited = True  # who holds it is to ask again
