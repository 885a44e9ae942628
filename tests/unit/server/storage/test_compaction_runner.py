"""Who ends a compaction's process waits for no job; the jobs themselves are in ``test_log_cleaner``."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from minikafka.server.storage import log_cleaner
from minikafka.server.storage.log_cleaner import CompactionProcessDied, CompactionSubprocess


async def test_closing_while_the_process_is_being_started_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    is_starting, may_start, is_closing = threading.Event(), threading.Event(), threading.Event()
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        """A process that never answers."""
        is_starting.set()
        assert may_start.wait(10)
        command = [sys.executable, "-c", "import time; time.sleep(1000)"]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        return started[0]

    def close() -> None:
        is_closing.set()
        runner.close()

    monkeypatch.setattr(log_cleaner, "_start", start)
    runner = CompactionSubprocess()
    asked = runner._thread.submit(runner._ask, b"a job")
    assert await asyncio.to_thread(is_starting.wait, 10)
    closed = asyncio.create_task(asyncio.to_thread(close))
    assert await asyncio.to_thread(is_closing.wait, 10)
    may_start.set()
    try:
        async with asyncio.timeout(60):
            await asyncio.shield(closed)
    finally:
        for process in started:
            process.kill()
    with pytest.raises(CompactionProcessDied):
        asked.result(60)


def test_nothing_is_started_after_the_end() -> None:
    runner = CompactionSubprocess()
    runner.close()
    with pytest.raises(CompactionProcessDied, match="the broker stops"):
        runner._ask(b"a job")
    assert runner._process is None
