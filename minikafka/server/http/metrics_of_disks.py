"""What a scrape shows of the file systems of the log directories."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import NamedTuple

from minikafka.metrics import names_of_data as names
from minikafka.metrics.series import Sample
from minikafka.server.services import Services


class Space(NamedTuple):
    """Bytes of a file system."""

    total: int
    free: int


class DiskFigures:
    """What was found last."""

    def __init__(self, services: Services) -> None:
        self._log_manager = services.log_manager
        self._space: dict[str, Space] = {}

    def __repr__(self) -> str:
        return f"DiskFigures({self._space})"

    async def read(self) -> None:
        """Ask in another thread: a file system that hangs must not stop the loop. Of directories that are
        offline nothing is shown."""
        online = self._log_manager.directories.configured
        offline = self._log_manager.offline_directories
        self._space = await asyncio.to_thread(_space, [each for each in online if each not in offline])

    def samples(self) -> Iterator[Sample]:
        """What the last ``read`` found."""
        for directory, space in self._space.items():
            yield Sample(names.LOG_DIRECTORY_BYTES, space.total, (directory,))
        for directory, space in self._space.items():
            yield Sample(names.LOG_DIRECTORY_FREE_BYTES, space.free, (directory,))


def _space(directories: list[str]) -> dict[str, Space]:
    found = {}
    for directory in directories:
        try:
            told = os.statvfs(directory)
        except OSError:  # the next access of its logs takes it offline
            continue
        found[directory] = Space(told.f_blocks * told.f_frsize, told.f_bavail * told.f_frsize)
    return found
