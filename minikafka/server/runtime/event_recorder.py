"""The flight recorder of a broker: keeps what it decided of late, in memory and, soon after, in its files.

Any part of the broker calls ``record``, on the loop. That costs the encoding of a small struct: nothing is
waited for. A task of its own has the disk thread write what is new, ``event.recorder.flush.interval.ms``
after the first of it; while nothing happens it sleeps. A disk that fails or hangs holds up nothing else:
events stay in memory, and are written when it can again, as far as the ring still has them.

Kafka has no such thing: what it decided is in several log files, of each broker.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final

from minikafka.clock import Clock
from minikafka.config.broker import BrokerConfig
from minikafka.files import Files
from minikafka.flight_recorder import Event, EventFile, EventRing
from minikafka.server.runtime.log_io import LogIo

logger = logging.getLogger(__name__)

WRITE_RETRY_MS: Final = 10_000
"""After a write that failed."""


class EventRecorder:
    """See the module header. ``load`` first, then ``run`` is its task, and ``close`` at the end."""

    def __init__(self, config: BrokerConfig, *, clock: Clock, files: Files, log_io: LogIo) -> None:
        bytes_max = config.event_recorder_max_bytes
        self.ring = EventRing(clock, bytes_max=bytes_max)
        self._log_io = log_io
        self._flush_interval_ms = config.event_recorder_flush_interval_ms
        self._file = EventFile(config.log_dirs[0], files=files, broker=config.node_id, bytes_max=bytes_max)
        self._is_on = bytes_max > 0
        self._has_new = asyncio.Event()

    def __repr__(self) -> str:
        return f"EventRecorder({self.ring!r}, {self._file!r})"

    def record(self, event: Event) -> None:
        """Keep ``event``; a ``flight_recorder.Record``."""
        if self._is_on and self.ring.add(event):
            self._has_new.set()

    async def load(self) -> None:
        """Bring back what earlier processes of this broker have recorded. No one else writes the files: the
        log directory is locked."""
        if not self._is_on:
            return
        try:
            self.ring.restore(await self._log_io.run(self._file.load))
        except OSError as error:
            logger.warning("the events of before this start cannot be read: %s", error)

    async def run(self) -> None:
        """Until cancelled: write what is recorded."""
        while True:
            await self._has_new.wait()
            await asyncio.sleep(self._flush_interval_ms / 1000)
            self._has_new.clear()
            if not await self._write():
                self._has_new.set()
                await asyncio.sleep(WRITE_RETRY_MS / 1000)

    async def _write(self) -> bool:
        lines = self.ring.after(self._file.written_sequence)
        try:
            await self._log_io.run(partial(self._file.append, lines))
        except OSError as error:
            logger.warning("events are kept in memory only, their file cannot be written: %s", error)
            return False
        return True

    async def close(self) -> None:
        """Write the last ones, and let go of the file; after ``run`` was cancelled."""
        if self._is_on:
            await self._write()
        await self._log_io.run(self._file.close)
