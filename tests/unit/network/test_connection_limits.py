"""How many connections are admitted, and how fast."""

from __future__ import annotations

from typing import Any

from minikafka.network.limits import BUCKETS_MAX, DELAYED_MAX, NO_LIMIT, ConnectionLimits, ListenerLimits


def limits(**changed: Any) -> ConnectionLimits:
    usual: dict[str, Any] = {
        "max_connections": NO_LIMIT,
        "max_connections_per_ip": NO_LIMIT,
        "max_connections_per_ip_overrides": {},
        "burst_s": 1,
    }
    return ConnectionLimits(**usual | changed)


def why_not(limits: ConnectionLimits, address: str, listener: str = "", *, now_ms: int = 0) -> str:
    return limits.admit(address, listener, now_ms=now_ms).refusal or ""


def test_limits_in_all_per_address_and_by_override() -> None:
    limited = limits(
        max_connections=4,
        max_connections_per_ip=1,
        max_connections_per_ip_overrides={"::1": 3, "10.0.0.2": 0},
    )
    assert why_not(limited, "10.0.0.1") == ""
    assert "max.connections.per.ip" in why_not(limited, "10.0.0.1")
    assert "already has its 0" in why_not(limited, "10.0.0.2")
    assert [why_not(limited, "::1") for _ in range(3)] == [""] * 3
    assert "already 4 connections (max.connections)" in why_not(limited, "10.0.0.3")
    assert limited.count == 4

    limited.release("10.0.0.1")
    assert why_not(limited, "10.0.0.3") == ""


def test_a_listener_has_a_number_of_its_own() -> None:
    limited = limits(listeners={"CLIENTS": ListenerLimits(max_connections=1)})
    assert why_not(limited, "10.0.0.1", "CLIENTS") == ""
    assert "listener.name.clients.max.connections" in why_not(limited, "10.0.0.2", "CLIENTS")
    assert why_not(limited, "10.0.0.2", "OTHERS") == ""
    limited.release("10.0.0.1", "CLIENTS")
    assert why_not(limited, "10.0.0.2", "CLIENTS") == ""
    counts = limited.counts["CLIENTS"]
    assert (counts.open, counts.accepted, counts.refused) == (1, 2, 1)


def test_brokers_come_in_when_clients_have_taken_all() -> None:
    limited = limits(max_connections=1, protected_listener="BROKERS", max_connection_creation_rate=1)
    assert why_not(limited, "10.0.0.1", "CLIENTS") == ""
    assert "max.connections" in why_not(limited, "10.0.0.2", "CLIENTS")
    assert limited.admit("10.0.0.3", "BROKERS") == (None, 0), "neither the number nor the rate holds for it"
    assert limited.excess == 1, "a client's connection is to make room"
    limited.release("10.0.0.1", "CLIENTS")
    assert limited.excess == 0


def test_who_comes_faster_than_the_rate_is_read_later_each_in_its_turn() -> None:
    limited = limits(max_connection_creation_rate=10)
    assert [limited.admit("a").delay_ms for _ in range(10)] == [0] * 10, "a burst"
    assert [limited.admit("a").delay_ms for _ in range(3)] == [100, 200, 300]
    assert limited.delayed == 3
    for _ in range(3):
        limited.delay_over()
    assert limited.admit("a", now_ms=1_000).delay_ms == 0, "ten a second have come"
    assert (limited.counts[""].throttled, limited.counts[""].delayed_ms) == (3, 600)
    limited.max_connection_creation_rate = NO_LIMIT
    assert limited.admit("a", now_ms=1_000).delay_ms == 0


def test_a_listener_has_a_rate_of_its_own_and_the_longer_delay_counts() -> None:
    limited = limits(
        max_connection_creation_rate=2, listeners={"SLOW": ListenerLimits(max_connection_creation_rate=1)}
    )
    assert limited.admit("a", "SLOW").delay_ms == 0
    assert limited.admit("a", "SLOW").delay_ms == 1000, "the listener's: the broker has one left"
    assert limited.admit("a", "QUICK").delay_ms == 500, "the broker's"


def test_no_more_wait_than_there_is_room_for_and_none_waits_in_vain() -> None:
    limited = limits(max_connection_creation_rate=1_000_000, burst_s=0.000_001)
    limited.admit("a")
    limited._delayed = DELAYED_MAX  # as many wait
    limited.max_connection_creation_rate = 1
    assert "wait to be accepted" in why_not(limited, "a")
    limited._delayed = 0
    delays = [limited.admit("a") for _ in range(40)]
    assert max(each.delay_ms for each in delays) <= 30_000
    assert delays[-1].refusal is not None and delays[-1].delay_ms == 0


def test_an_address_over_its_rate_is_closed_after_a_while() -> None:
    limited = limits()
    limited.set_ip_rate(None, 2)
    limited.set_ip_rate("10.0.0.9", 1)
    assert [limited.admit("10.0.0.1").refusal for _ in range(2)] == [None, None]
    refusal, delay_ms = limited.admit("10.0.0.1")
    assert "connection_creation_rate" in (refusal or "") and delay_ms == 500
    assert limited.admit("10.0.0.9") == (None, 0), "others are not concerned"
    assert limited.admit("10.0.0.9").delay_ms == 1000, "its own rate, not the default"
    assert limited.admit("10.0.0.1", now_ms=600) == (None, 0)
    assert limited.counts[""].ip_throttled == 2

    limited.set_ip_rate("10.0.0.9", None)
    assert limited.admit("10.0.0.9").refusal is not None, "the default holds, the debt stays"
    limited.set_ip_rate(None, None)
    assert limited.admit("10.0.0.9") == limited.admit("10.0.0.1") == (None, 0)


def test_addresses_without_end_are_forgotten() -> None:
    limited = limits()
    limited.set_ip_rate(None, 1)
    for number in range(BUCKETS_MAX + 5):
        limited.admit(str(number))
    assert len(limited._ip_buckets) == BUCKETS_MAX
    limited.admit("new", now_ms=10_000)
    assert len(limited._ip_buckets) == 1, "full buckets say nothing"
