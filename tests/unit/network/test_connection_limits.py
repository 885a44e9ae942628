"""How many connections are admitted."""

from __future__ import annotations

from minikafka.network.socket_server import ConnectionLimits


def test_limits_in_all_per_address_and_by_override() -> None:
    limits = ConnectionLimits(
        max_connections=4,
        max_connections_per_ip=1,
        max_connections_per_ip_overrides={"::1": 3, "10.0.0.2": 0},
    )
    assert limits.admit("10.0.0.1") is None
    assert "max.connections.per.ip" in (limits.admit("10.0.0.1") or "")
    assert "already has its 0" in (limits.admit("10.0.0.2") or "")
    assert [limits.admit("::1") for _ in range(3)] == [None] * 3
    assert "already 4 connections (max.connections)" in (limits.admit("10.0.0.3") or "")
    assert limits.count == 4

    limits.release("10.0.0.1")
    assert limits.admit("10.0.0.3") is None
