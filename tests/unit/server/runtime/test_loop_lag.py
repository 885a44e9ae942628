"""The loop's lateness and idleness are measured by a probe of its own."""

from __future__ import annotations

import asyncio

import pytest

from minikafka.server.runtime import event_loop
from minikafka.server.runtime.event_loop import PROBE_INTERVAL_MS, LoopLag
from tests.unit.server.virtual_time import LoopClock, in_virtual_time


class Cpu:
    """What the thread has used."""

    def __init__(self) -> None:
        self.used_ns = 0

    def __call__(self) -> int:
        return self.used_ns


@in_virtual_time
async def test_a_loop_that_is_not_held_up_is_punctual_and_idle() -> None:
    lag = LoopLag(LoopClock())
    probe = asyncio.create_task(lag.run())
    await asyncio.sleep(PROBE_INTERVAL_MS * 4.5 / 1000)
    probe.cancel()
    assert lag.count == 4
    assert lag.seconds.quantiles([1.0]) == [pytest.approx(0, abs=0.001)]


def test_the_idle_share_is_what_the_thread_has_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = Cpu()
    monkeypatch.setattr(event_loop, "thread_cpu_ns", cpu)

    @in_virtual_time
    async def story() -> None:
        lag = LoopLag(LoopClock())
        assert lag.idle_share == 1.0
        probe = asyncio.create_task(lag.run())
        for _ in range(4):
            await asyncio.sleep(PROBE_INTERVAL_MS / 1000)
            cpu.used_ns += PROBE_INTERVAL_MS * 1_000_000 // 4
        await asyncio.sleep(PROBE_INTERVAL_MS / 2000)
        probe.cancel()
        assert lag.idle_share == pytest.approx(0.75, abs=0.01)

    story()
