"""TLS of the HTTP port: its certificate, which is read again when its files change."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Sequence

from minikafka.errors import ConfigError

logger = logging.getLogger(__name__)


class HttpTls:
    """``begin`` once, then ``context`` for each connection."""

    def __init__(self, load: Callable[[], ssl.SSLContext], files: Sequence[str]) -> None:
        """``load`` reads ``files``, in a thread. Raises ConfigError: what is wrong with them."""
        self._load = load
        self._files = tuple(files)
        self._context: ssl.SSLContext | None = None
        self._stamps: tuple[object, ...] = ()

    def __repr__(self) -> str:
        return f"HttpTls({', '.join(self._files)})"

    async def begin(self) -> None:
        """Raises ConfigError: what is wrong with the stores."""
        self._stamps = await asyncio.to_thread(self._stamped)
        self._context = await asyncio.to_thread(self._load)

    async def context(self) -> ssl.SSLContext:
        """What the files say now; what they said last, while they are no good."""
        stamps = await asyncio.to_thread(self._stamped)
        if stamps != self._stamps:
            self._stamps = stamps
            try:
                self._context = await asyncio.to_thread(self._load)
            except (ConfigError, OSError) as error:
                logger.warning("the HTTP port keeps its old certificate: %s", error)
            else:
                logger.info("the HTTP port has read its certificate again")
        assert self._context is not None, "begin comes first"
        return self._context

    def _stamped(self) -> tuple[object, ...]:
        return tuple(map(_stamp, self._files))


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
