"""Hosts of max.connections.per.ip.overrides that another broker has set are looked up by this one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import pytest

from minikafka.config.broker import BrokerConfig, broker_config
from minikafka.network.limits import NO_LIMIT, ConnectionLimits
from minikafka.server import client_quotas
from minikafka.server.client_quotas import ConnectionOverrides

NAMES = {"near": "10.0.0.1", "far": "10.0.0.2"}


def config(overrides: str) -> BrokerConfig:
    return broker_config({"max.connections.per.ip.overrides": overrides})


class WatchedLimits(ConnectionLimits):
    def __init__(self, **properties: Any) -> None:
        self.changed = asyncio.Event()
        super().__init__(**properties)
        self.changed.clear()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "max_connections_per_ip_overrides":
            self.changed.set()


async def test_the_last_change_holds_and_an_unknown_host_spoils_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    asked: asyncio.Queue[Mapping[str, int]] = asyncio.Queue()
    may_answer = asyncio.Semaphore(0)

    async def looked_up(overrides: Mapping[str, int]) -> tuple[dict[str, int], list[str]]:
        asked.put_nowait(overrides)
        await may_answer.acquire()
        found = {NAMES[host]: count for host, count in overrides.items() if host in NAMES}
        return found, [f"the host '{host}' is unknown" for host in overrides if host not in NAMES]

    monkeypatch.setattr(client_quotas, "resolved_overrides", looked_up)
    limits = WatchedLimits(
        max_connections=NO_LIMIT, max_connections_per_ip=NO_LIMIT, max_connections_per_ip_overrides={}
    )
    overrides = ConnectionOverrides(config(""), limits)
    task = asyncio.create_task(overrides.run())
    overrides.apply(config("near:1"))
    assert await asked.get() == {"near": 1}
    overrides.apply(config("near:2,lost:3,far:4"))
    may_answer.release()
    assert await asked.get() == {"near": 2, "lost": 3, "far": 4}
    assert limits.max_connections_per_ip_overrides == {}, "what was overtaken never holds"
    may_answer.release()
    await limits.changed.wait()
    assert limits.max_connections_per_ip_overrides == {"10.0.0.1": 2, "10.0.0.2": 4}
    assert "the host 'lost' is unknown" in caplog.text
    task.cancel()
