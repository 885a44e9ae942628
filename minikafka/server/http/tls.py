"""TLS of the HTTP port: its certificate, which is read again when its files change.

Handshakes are those of Kafka's listeners (``network.tls_acceptor``): in threads, with a deadline, and bounded
in number together with the connections.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Mapping, Sequence

from minikafka.errors import ConfigError
from minikafka.network.tls_acceptor import Handshakes, tls_factory
from minikafka.security.principal import ANONYMOUS, KafkaPrincipal

logger = logging.getLogger(__name__)

CHECK_INTERVAL_S = 10.0
"""A renewed certificate holds from then on at the latest."""


class HttpTls:
    """A ``TlsListener``. ``begin`` once, and have ``watch`` run."""

    def __init__(self, load: Callable[[], ssl.SSLContext], files: Sequence[str], *, name: str) -> None:
        """``load`` reads ``files``, in a thread. Raises ConfigError: what is wrong with them. ``name``: of
        the port in messages."""
        self._load = load
        self._files = tuple(files)
        self._name = name
        self._context: ssl.SSLContext | None = None
        self._stamps: tuple[object, ...] = ()
        self._handshakes = Handshakes(asyncio.get_running_loop())

    def __repr__(self) -> str:
        return f"HttpTls({', '.join(self._files)})"

    def handshakes_failed(self) -> Mapping[str, int]:
        """How many, by the port's name."""
        return self._handshakes.failed

    def context(self) -> ssl.SSLContext:
        """For a connection that begins now."""
        assert self._context is not None, "begin comes first"
        return self._context

    def principal(self, certificate: bytes | None) -> KafkaPrincipal:
        """A certificate lets one in; there is nothing that only some of those may read."""
        return ANONYMOUS

    def above(self, make: Callable[[], asyncio.Protocol]) -> Callable[[], asyncio.Protocol]:
        """What makes the protocol of an accepted socket, with what ``make`` makes above TLS."""
        return tls_factory(make, listener_name=self._name, tls=self, handshakes=self._handshakes)

    async def begin(self) -> None:
        """Raises ConfigError: what is wrong with the stores."""
        self._stamps = await asyncio.to_thread(self._stamped)
        self._context = await asyncio.to_thread(self._load)

    async def watch(self) -> None:
        """Take what changes, until it is cancelled."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            await self.refresh()

    async def refresh(self) -> None:
        """Take what the files say now; while they are no good, what they said last holds."""
        stamps = await asyncio.to_thread(self._stamped)
        if stamps == self._stamps:
            return
        self._stamps = stamps
        try:
            self._context = await asyncio.to_thread(self._load)
        except (ConfigError, OSError) as error:
            logger.warning("the HTTP port keeps its old certificate: %s", error)
        else:
            logger.info("the HTTP port has read its certificate again")

    def close(self) -> None:
        """Once no connection is left."""
        self._handshakes.close()

    def _stamped(self) -> tuple[object, ...]:
        return tuple(map(_stamp, self._files))


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
