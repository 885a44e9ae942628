"""Clients have the sensors of the quotas that count for them; who is beyond one waits as its formula says."""

from __future__ import annotations

import logging

import pytest

from minikafka.clock import ManualClock
from minikafka.config.broker import broker_config
from minikafka.config.client_quotas import DEFAULT, QuotaEntity, QuotaFilter, QuotaType
from minikafka.flight_recorder import ClientThrottled, Event
from minikafka.metrics.sensors import Metrics
from minikafka.server.client_quotas import (
    CLIENT_LIFE_MS,
    CLIENTS_MAX,
    FORGET_PAUSE_MS,
    LOG_PAUSE_MS,
    THROTTLES_MAX,
    ClientQuotas,
    QuotaClient,
)

ANONYMOUS = "ANONYMOUS"
PRODUCE, FETCH, MUTATION, REQUEST, _ = QuotaType
DEFAULT_CLIENT = QuotaEntity(None, DEFAULT)
ANYTHING = QuotaFilter({}, strict=False)


class Wire:
    """A connection that only notes for how long it was muted."""

    def __init__(self) -> None:
        self.muted_ms: list[int | None] = []

    def mute(self, duration_ms: int | None = None) -> None:
        self.muted_ms.append(duration_ms)


class World:
    """Quotas of one broker, and a client's requests."""

    def __init__(self, **properties: int) -> None:
        config = broker_config({name: str(value) for name, value in properties.items()})
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.quotas = ClientQuotas(config, clock=self.clock, metrics=self.metrics)
        self.wire = Wire()

    def produce(self, client_id: str, size_bytes: int, quota: QuotaType = PRODUCE) -> int:
        """One request. Returns the throttle time, in ms."""
        client = self.quotas.client(ANONYMOUS, client_id)
        client.produced_bytes += size_bytes
        if not client.is_limited:
            return 0
        return self.quotas.slow_down(self.wire, client, client.sensors[quota].record(size_bytes, self.clock))

    def values(self, name: str) -> dict[str, float]:
        """Of the metrics of that name, by their client id."""
        now_ms = self.clock.monotonic_ms()
        return {
            dict(metric.name.tags)["client-id"]: metric.measure(now_ms)
            for metric in self.metrics.metrics.values()
            if metric.name.name == name
        }


@pytest.fixture
def world() -> World:
    return World()


def test_a_client_is_counted_before_there_is_any_quota(world: World) -> None:
    assert world.produce("c", 500) == 0
    client = world.quotas.client(ANONYMOUS, "c")
    assert (client.user, client.produced_bytes, client.is_limited) == (ANONYMOUS, 500, False)
    assert [each.client_id for each in world.quotas.clients()] == ["c"]
    assert not world.metrics.metrics


def test_the_throttle_time_is_that_of_the_formula_and_the_connection_is_muted(world: World) -> None:
    world.quotas.update(QuotaEntity(None, "c"), {PRODUCE: 500.0})
    assert world.produce("c", 5000) == 0, "ten seconds' worth at once: the rate is at its bound"
    assert world.produce("c", 600) == 1200, "(560 - 500) / 500 x 10 s"
    assert world.wire.muted_ms == [1200]
    world.clock.advance(300)
    assert world.produce("c", 0) == 900, "(5600 / 10.3 - 500) / 500 x 10.3 s"
    world.clock.advance(600)
    assert world.produce("c", 0) == 300
    assert world.values("byte-rate") == {"c": pytest.approx(5600 / 10.9)}
    assert world.values("throttle-time") == {"c": pytest.approx(800)}


def test_a_request_quota_throttles_for_a_window_at_most(world: World) -> None:
    world.quotas.update(DEFAULT_CLIENT, {REQUEST: 1.0})
    assert world.produce("c", 20, REQUEST) == 1000
    assert World(**{"quota.window.size.seconds": 3}).quotas.times_requests is False


def test_windows_are_configured() -> None:
    world = World(**{"quota.window.num": 3, "quota.window.size.seconds": 2})
    world.quotas.update(DEFAULT_CLIENT, {PRODUCE: 100.0})
    assert world.produce("c", 400) == 0, "two windows of two seconds"
    assert world.produce("c", 100) == 1000
    assert world.quotas.client(ANONYMOUS, "c").sensors[PRODUCE].value_max == 400


def test_strict_mutations_are_refused_when_the_bucket_is_overspent_and_not_by_how_much(world: World) -> None:
    world.quotas.update(DEFAULT_CLIENT, {MUTATION: 2.0})
    sensor = world.quotas.client(ANONYMOUS, "c").sensors[MUTATION]
    assert sensor.record_if_free(30, world.clock) is None, "the burst is 22, but it was not overspent"
    refused = sensor.record_if_free(1, world.clock)
    assert refused is not None and (refused.observed, refused.throttle_time_ms) == (-8, 4000)
    world.clock.advance(4000)
    assert sensor.record_if_free(1, world.clock) is None
    lenient = sensor.record(3, world.clock)
    assert lenient is not None and lenient.throttle_time_ms == 2000, "counted all the same"
    assert world.values("tokens") == {"c": -4}
    assert world.values("mutation-rate") == {"c": pytest.approx(34 / 10)}


def test_mutations_have_windows_of_their_own() -> None:
    world = World(**{"controller.quota.window.num": 2, "controller.quota.window.size.seconds": 5})
    world.quotas.update(DEFAULT_CLIENT, {MUTATION: 2.0})
    world.quotas.client(ANONYMOUS, "c")
    assert world.values("tokens") == {"c": 20}


def test_a_users_quota_is_shared_by_all_his_clients_and_a_default_is_for_each(world: World) -> None:
    world.quotas.update(QuotaEntity(ANONYMOUS), {PRODUCE: 1000.0})
    assert [world.produce(f"c{number}", 1000) for number in range(11)] == [0] * 10 + [1000]
    world.quotas.update(QuotaEntity(ANONYMOUS), {})
    world.quotas.update(QuotaEntity(DEFAULT, DEFAULT), {PRODUCE: 1000.0})
    assert [world.produce(f"c{number}", 10_000) for number in range(11)] == [0] * 11
    assert world.produce("c3", 1000) == 1000
    assert set(world.values("byte-rate")) == {f"c{number}" for number in range(11)}


def test_a_change_holds_at_once_for_who_is_there_and_keeps_what_was_measured(world: World) -> None:
    held = world.quotas.client(ANONYMOUS, "c")
    assert not held.is_limited
    world.quotas.update(DEFAULT_CLIENT, {PRODUCE: 100.0})
    assert held.is_limited and world.produce("c", 1500) == 5000
    world.quotas.update(DEFAULT_CLIENT, {PRODUCE: 1000.0})
    assert world.produce("c", 0) == 0
    world.quotas.update(DEFAULT_CLIENT, {PRODUCE: 100.0})
    assert world.produce("c", 0) == 5000
    world.quotas.update(DEFAULT_CLIENT, {})
    assert not held.is_limited and not world.metrics.metrics
    assert world.produce("c", 10**9) == 0


def test_requests_are_timed_only_while_a_request_quota_is_set_anywhere(world: World) -> None:
    assert not world.quotas.times_requests
    world.quotas.update(QuotaEntity(None, "c"), {REQUEST: 50.0, PRODUCE: 1.0})
    assert world.quotas.times_requests
    world.quotas.update(QuotaEntity(None, "c"), {PRODUCE: 1.0})
    assert not world.quotas.times_requests


def test_of_two_violations_the_longer_one_counts(world: World) -> None:
    world.quotas.update(DEFAULT_CLIENT, {PRODUCE: 100.0, REQUEST: 1.0})
    client = world.quotas.client(ANONYMOUS, "c")
    violations = (
        client.sensors[PRODUCE].record(1005, world.clock),
        client.sensors[REQUEST].record(15, world.clock),
    )
    recorded: list[Event] = []
    world.quotas.record = recorded.append
    assert world.quotas.slow_down(world.wire, client, *violations) == 1000
    (event,) = recorded
    assert isinstance(event, ClientThrottled)
    assert (event.client_id, event.quota, event.throttle_time_ms) == ("c", REQUEST.value, 1000)
    assert [each.quota for each in world.quotas.throttles(ANYTHING)] == [REQUEST]
    assert world.quotas.slow_down(world.wire, client, None, None) == 0


def test_what_was_taken_back_did_not_count(world: World) -> None:
    world.quotas.update(DEFAULT_CLIENT, {FETCH: 100.0})
    sensor = world.quotas.client(ANONYMOUS, "c").sensors[FETCH]
    assert sensor.record(900, world.clock) is None
    assert sensor.record(500, world.clock) is not None
    sensor.unrecord(500, world.clock)
    assert world.values("byte-rate") == {"c": 90}


def test_the_last_throttles_are_remembered_with_their_numbers(world: World) -> None:
    world.quotas.update(DEFAULT_CLIENT, {PRODUCE: 500.0})
    world.quotas.update(QuotaEntity(ANONYMOUS, "m"), {MUTATION: 2.0})
    world.produce("c", 5600)
    world.clock.advance(1)
    world.produce("m", 26, MUTATION)
    first, second = world.quotas.throttles(ANYTHING)
    assert first._replace(at_ms=0) == (PRODUCE, ANONYMOUS, "c", 560, 500, 10_000, 1200, 0)
    assert first.formula == "(560 - 500) / 500 x 10000 ms"
    assert (second.client_id, second.observed, second.window_ms, second.throttle_time_ms) == (
        "m",
        -4,
        0,
        2000,
    )
    large = first._replace(observed=1_071_671.3, bound=1e6, window_ms=10_079)
    assert large.formula == "(1071671 - 1000000) / 1000000 x 10079 ms"
    assert second.formula == "4 tokens overspent / 2 a second"
    assert second.at_ms == first.at_ms + 1
    for wanted, found in (
        ({"client-id": "c"}, [first]),
        ({"client-id": "c", "user": ANONYMOUS, "throttle": None}, [first]),
        ({"throttle": "controller_mutation_rate"}, [second]),
        ({"user": "alice"}, []),
    ):
        assert world.quotas.throttles(QuotaFilter(wanted, strict=False)) == found
    for _ in range(THROTTLES_MAX + 5):
        world.produce("c", 1)
    assert len(world.quotas.throttles(QuotaFilter({"client-id": "c"}, strict=False))) == THROTTLES_MAX


def test_the_log_says_when_throttling_begins_and_not_each_time(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world.quotas.update(DEFAULT_CLIENT, {PRODUCE: 500.0})
    for _ in range(3):
        world.produce("c", 5600)
    assert [line.getMessage() for line in caplog.records] == [
        "client 'c' is throttled for 1200 ms by producer_byte_rate: (560 - 500) / 500 x 10000 ms"
    ]
    world.clock.advance(LOG_PAUSE_MS)
    world.produce("c", 5600)
    assert len(caplog.records) == 2


def test_who_does_nothing_for_an_hour_is_forgotten(world: World) -> None:
    world.quotas.update(DEFAULT_CLIENT, {PRODUCE: 500.0})
    idle, busy = world.quotas.client(ANONYMOUS, "idle"), world.quotas.client(ANONYMOUS, "busy")
    world.clock.advance(FORGET_PAUSE_MS)
    world.quotas.clients()
    world.clock.advance(CLIENT_LIFE_MS - 1)
    world.produce("busy", 1)
    world.quotas.client(ANONYMOUS, "new")
    world.clock.advance(1)
    assert [each.client_id for each in world.quotas.clients()] == ["busy", "new"]
    assert idle.is_limited, "who holds it asks again"
    assert (
        world.quotas.client(ANONYMOUS, "idle") is not idle and world.quotas.client(ANONYMOUS, "busy") is busy
    )


def test_there_are_so_many_clients_at_most(world: World) -> None:
    world.quotas.update(DEFAULT_CLIENT, {PRODUCE: 500.0})
    first = world.quotas.client(ANONYMOUS, "first")
    for number in range(CLIENTS_MAX):
        world.quotas.client(ANONYMOUS, str(number))
    assert len(world.quotas.clients()) == len(world.values("byte-rate")) == CLIENTS_MAX
    assert isinstance(first, QuotaClient) and first.is_limited
    world.quotas.update(DEFAULT_CLIENT, {})
    assert first is not world.quotas.client(ANONYMOUS, "first")


@pytest.mark.parametrize(("clients", "request_bytes"), [(1, 1000), (1, 10_000), (1, 50_000), (10, 1000)])
def test_who_wants_a_little_more_gets_his_quota_within_five_percent(
    world: World, clients: int, request_bytes: int
) -> None:
    """100,000 bytes a second, alone or for ten clients together, who want a tenth more; over 30 seconds."""
    bound = 100_000
    world.quotas.update(QuotaEntity(ANONYMOUS), {PRODUCE: float(bound)})
    each_ms = round(1000 * request_bytes * clients / (1.1 * bound))
    sends_ms = {f"c{number}": 37 * number for number in range(clients)}
    sent: list[tuple[int, int]] = []
    while world.clock.monotonic_ms() < 60_000:
        client_id = min(sends_ms, key=lambda each: sends_ms[each])
        world.clock.advance(max(0, sends_ms[client_id] - world.clock.monotonic_ms()))
        throttle_time_ms = world.produce(client_id, request_bytes)
        sent.append((world.clock.monotonic_ms(), request_bytes))
        sends_ms[client_id] = world.clock.monotonic_ms() + max(each_ms, throttle_time_ms)
    for start_ms in (15_000, 20_000, 30_000):
        total = sum(size for at_ms, size in sent if start_ms <= at_ms < start_ms + 30_000)
        assert total / 30 == pytest.approx(bound, rel=0.05)


def test_who_wants_all_he_can_get_bursts_and_waits_and_has_his_quota_in_the_long_run(world: World) -> None:
    """Kafka's windows let ten seconds' worth through at once, and then wait for it to leave them."""
    bound = 100_000
    world.quotas.update(DEFAULT_CLIENT, {PRODUCE: float(bound)})
    sent: list[tuple[int, int]] = []
    while world.clock.monotonic_ms() < 240_000:
        sent.append((world.clock.monotonic_ms(), 10_000))
        world.clock.advance(max(1, world.produce("c", 10_000)))
    for start_ms in range(0, 210_000, 1000):
        total = sum(size for at_ms, size in sent if start_ms <= at_ms < start_ms + 30_000)
        assert total / 30 <= 1.15 * bound
    assert sum(size for _, size in sent) / 240 == pytest.approx(bound, rel=0.05)


def test_a_quota_of_a_user_holds_for_its_principal_and_no_other(world: World) -> None:
    """Whatever client ids they choose."""
    world.quotas.update(QuotaEntity("alice"), {PRODUCE: 1000.0})
    alice, again = world.quotas.client("alice", "c"), world.quotas.client("alice", "d")
    bob = world.quotas.client("bob", "c")
    assert (alice.user, bob.user) == ("alice", "bob")
    assert alice.sensors[PRODUCE] is again.sensors[PRODUCE], "they share it"
    assert not bob.is_limited and bob is not alice
    world.quotas.update(QuotaEntity("bob", "c"), {PRODUCE: 5.0})
    assert bob.is_limited and world.quotas.client("bob", "c") is bob
    assert not world.quotas.client("bob", "d").is_limited
