"""An answer that waits for a flush waits for the log that holds the records, wherever a move has put it.

Both stories lost acked records of a topic with ``flush.messages=1`` when the power went (``tests.power``)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from minikafka.clock import ManualClock
from minikafka.server.replica.pending_disk_work import PendingDiskWork
from minikafka.server.storage.maintenance import DiskWriter
from tests.unit.log.log_helpers import TP, append, batch, open_log


async def test_who_waits_for_a_flush_waits_in_the_directory_of_the_log_that_took_the_place() -> None:
    pending = PendingDiskWork()
    current: Any = SimpleNamespace(topic_partition=TP, directory="/a/t-0")
    future: Any = SimpleNamespace(topic_partition=TP, directory="/b/t-0.1-future")
    done = pending.flushed(current)
    pending.flush(future)  # the replacement, in the same step of the loop
    found = await pending.wait()
    assert (found.flushes, found.waiting) == ([future], {done: "/b"})


async def test_a_flush_that_a_rename_overtakes_is_done_again(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0.1-future")
    append(log, batch())
    calls = 0

    async def run(work: Callable[[], Any], *, log_directory: str) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            log.rename(str(tmp_path / "t-0"))
        return work()

    services: Any = SimpleNamespace(
        clock=ManualClock(0),
        log_flushes=SimpleNamespace(update=lambda duration_ns: None),
        log_manager=SimpleNamespace(live_directories=[str(tmp_path)], get=lambda at: log),
        log_io=SimpleNamespace(run=run),
    )
    await DiskWriter(services).flush([log])
    assert (calls, log.recovery_point) == (2, log.log_end_offset)
    log.close()
