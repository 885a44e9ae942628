"""The flight recorder of a broker: written soon, read again, and no harm done by a disk that fails."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from minikafka.clock import ManualClock
from minikafka.config.broker import broker_config
from minikafka.files import File, OsFiles
from minikafka.flight_recorder import CURRENT_NAME, LogDirectoryFailed
from minikafka.server.runtime import event_recorder
from minikafka.server.runtime.event_recorder import EventRecorder
from minikafka.server.runtime.log_io import LogIo
from tests.unit.server.running import eventually


class FullDisk(OsFiles):
    """Takes no file of events while ``is_full``."""

    is_full = True

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        if self.is_full and create:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return super().open(path, create=create, read_only=read_only)


def failure(number: int) -> LogDirectoryFailed:
    return LogDirectoryFailed(directory=f"/disk{number}", partitions=number, cause="it is gone")


@asynccontextmanager
async def recording(
    directory: Path, *, files: OsFiles | None = None, **properties: int
) -> AsyncIterator[EventRecorder]:
    settings = {"log.dirs": str(directory), "event.recorder.flush.interval.ms": "1"}
    settings |= {name.replace("_", "."): str(value) for name, value in properties.items()}
    log_io = LogIo()
    recorder = EventRecorder(
        broker_config(settings), clock=ManualClock(), files=files or OsFiles(), log_io=log_io
    )
    await recorder.load()
    task = asyncio.create_task(recorder.run())
    try:
        yield recorder
    finally:
        task.cancel()
        await recorder.close()
        log_io.close()


def written(directory: Path) -> int:
    path = directory / CURRENT_NAME
    return path.read_bytes().count(b"log_dir") if path.exists() else 0


async def soon(condition: Callable[[], bool], what: str) -> None:
    async def holds() -> bool:
        return condition()

    await eventually(holds, what)


async def test_an_event_is_in_the_file_soon_and_in_memory_after_a_restart(tmp_path: Path) -> None:
    async with recording(tmp_path) as recorder:
        recorder.record(failure(1))
        await soon(lambda: written(tmp_path) == 1, "it is written")
        recorder.record(failure(2))  # the last ones are written at the end
    assert written(tmp_path) == 2
    async with recording(tmp_path) as recorder:
        recorder.record(failure(3))
        assert len(recorder.ring) == 3
    assert written(tmp_path) == 3


async def test_while_the_disk_is_full_events_are_kept_in_memory_and_written_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_recorder, "WRITE_RETRY_MS", 1)
    disk = FullDisk()
    async with recording(tmp_path, files=disk) as recorder:
        recorder.record(failure(1))
        await soon(lambda: "cannot be written" in caplog.text, "it is logged")
        recorder.record(failure(2))
        disk.is_full = False
        await soon(lambda: written(tmp_path) == 2, "both are written")


async def test_switched_off_it_keeps_nothing_and_makes_no_file(tmp_path: Path) -> None:
    async with recording(tmp_path, event_recorder_max_bytes=0) as recorder:
        recorder.record(failure(1))
        assert len(recorder.ring) == 0
    assert os.listdir(tmp_path) == []
