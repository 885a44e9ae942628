"""A task that fails is logged and handled by its policy; none outlives its supervisor."""

from __future__ import annotations

import asyncio
import logging

import pytest

from minikafka.server.runtime import event_loop as supervisor_module
from minikafka.server.runtime.event_loop import Restart, Supervisor


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "RESTART_PAUSE_MS", 0)


async def test_periodic_work_goes_on_after_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    supervisor = Supervisor()
    runs = 0
    third = asyncio.Event()

    async def work() -> None:
        nonlocal runs
        runs += 1
        if runs < 3:
            raise OSError(f"fault {runs}")
        third.set()

    supervisor.start("chore", work, restart=Restart.ALWAYS)
    async with asyncio.timeout(60):
        await third.wait()
    await supervisor.stop()
    assert [record.message for record in caplog.records] == ["task failed", "task failed"]
    assert caplog.records[0].exc_info is not None


async def test_a_failure_that_the_broker_cannot_bear_is_reported_once() -> None:
    supervisor = Supervisor()
    first, second = RuntimeError("first"), RuntimeError("second")

    async def fail(error: RuntimeError) -> None:
        raise error

    supervisor.start("a", lambda: fail(first), restart=Restart.STOP_BROKER)
    supervisor.start("b", lambda: fail(second), restart=Restart.STOP_BROKER)
    async with asyncio.timeout(60):
        assert await supervisor.failure is first
    await supervisor.stop()


async def test_a_one_off_failure_is_logged_and_harms_no_other_task(caplog: pytest.LogCaptureFixture) -> None:
    supervisor = Supervisor()

    async def fail() -> None:
        raise ValueError("one request's bug")

    supervisor.start("request", fail)
    with caplog.at_level(logging.ERROR):
        await asyncio.sleep(0)
    assert caplog.messages == ["task failed"]
    assert not supervisor.failure.done()
    await supervisor.stop()


async def test_stop_ends_all_and_nothing_starts_afterwards() -> None:
    supervisor = Supervisor()
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def wait_for_ever() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    supervisor.start("waiting", wait_for_ever, restart=Restart.ALWAYS)
    await started.wait()
    assert "waiting" in repr(supervisor)
    await supervisor.stop()
    assert cancelled.is_set()
    started.clear()
    late = supervisor.start("late", wait_for_ever)
    await asyncio.wait([late])
    assert late.cancelled() and not started.is_set()
    assert "late" not in repr(supervisor)
    assert supervisor.failure.cancelled()


async def test_an_owner_may_end_its_task_earlier() -> None:
    supervisor = Supervisor()
    started = asyncio.Event()

    async def work() -> None:
        started.set()
        await asyncio.Event().wait()

    task = supervisor.start("fetcher", work, restart=Restart.ALWAYS)
    async with asyncio.timeout(60):
        await started.wait()
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled() and repr(supervisor) == "Supervisor()"
    await supervisor.stop()
    late = supervisor.start("late", work)
    await asyncio.wait([late])
    assert late.cancelled() and repr(supervisor) == "Supervisor(, stopping)"
