"""Who may read the HTTP port: under which names it is asked, and who asks.

A request under a name that is not ours is refused: a page of another site, whose name its owner points at
this machine (DNS rebinding), would otherwise read everything through a visitor's browser.

Tokens (RFC 6750) and passwords (RFC 7617) are kept as digests and compared in constant time, all of them each
time, so that no answer's time tells how many characters were right or which users there are. From one address
``FAILURES_AT_ONCE`` may be wrong, then one a second; more are not even compared. Who has proved itself on a
connection is served whatever others at its address do.

**TLS of the HTTP port**: its certificate is read again when its files change. Handshakes are those of Kafka's
listeners (``network.tls_acceptor``): in threads, with a deadline, and bounded in number together with the
connections.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import ipaddress
import logging
import os
import re
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from minikafka.config.listeners import is_loopback
from minikafka.deferred import deferred
from minikafka.errors import ConfigError
from minikafka.security.acl import ANONYMOUS, KafkaPrincipal

if TYPE_CHECKING:
    from minikafka.network import tls_acceptor
else:
    tls_acceptor = deferred("minikafka.network.tls_acceptor", at_start_or_never=True)

logger = logging.getLogger(__name__)

FAILURES_AT_ONCE = 10
FAILURE_INTERVAL_S = 1.0
ADDRESSES_MAX = 1_000
"""That have failed lately; more share one allowance."""

_HOST = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]+)(:[0-9]*)?")
_IPV6_NEIGHBOURS = 64
"""Bits: who has one IPv6 address usually has all with the same ones."""

CHECK_INTERVAL_S = 10.0
"""A renewed certificate holds from then on at the latest."""


class AllowedHosts:
    """The names under which the port may be asked."""

    def __init__(self, names: Iterable[str]) -> None:
        """``names``: of hosts, or addresses; ``*``: any."""
        self._names = frozenset(_normal(name) for name in names if name)

    def __repr__(self) -> str:
        return f"AllowedHosts({sorted(self._names)})"

    def has(self, header: str, *, local_host: str) -> bool:
        """Whether a ``Host`` header is about us. ``local_host``: the address that the connection came to."""
        if "*" in self._names:
            return True
        match = _HOST.fullmatch(header.strip())
        if match is None:
            return False
        host = _normal(match[1])
        return is_loopback(host) or host in self._names or host == _normal(local_host)


def _normal(host: str) -> str:
    """One text for each host: lower case, without brackets and the root's dot, IPv6 in its short form."""
    host = host.strip().strip("[]").rstrip(".").lower()
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    return str(address.ipv4_mapped or address)


class Credentials:
    """Tokens and passwords that let one in."""

    def __init__(self, *, tokens: Sequence[str], users: Sequence[tuple[str, str]]) -> None:
        self._digests = (
            *(_digest("bearer", token.encode()) for token in tokens),
            *(_digest("basic", f"{name}:{password}".encode()) for name, password in users),
        )
        realm = 'realm="minikafka"'
        self._challenges = (
            *((f'Basic {realm}, charset="UTF-8"',) if users else ()),
            *((f"Bearer {realm}",) if tokens else ()),
        )

    def __repr__(self) -> str:
        return f"Credentials({len(self._digests)})"

    @property
    def challenges(self) -> tuple[tuple[str, str], ...]:
        """The headers of a refusal, which say what would do."""
        return tuple(("www-authenticate", challenge) for challenge in self._challenges)

    def are_shown_by(self, authorization: str) -> bool:
        """Whether a header ``Authorization`` has one of them."""
        scheme, _, shown = authorization.strip().partition(" ")
        scheme, data = scheme.lower(), shown.strip().encode("utf-8")
        if scheme == "basic":
            try:
                data = base64.b64decode(data, validate=True)
            except binascii.Error:
                return False
        digest = _digest(scheme, data)
        is_one = False
        for each in self._digests:
            is_one |= hmac.compare_digest(digest, each)
        return is_one


def _digest(scheme: str, data: bytes) -> bytes:
    return hashlib.sha256(scheme.encode() + b" " + data).digest()


class Failures:
    """How many more wrong credentials an address may show. Bounded for every address."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._forgiven_s: dict[str, float] = {}
        """Address → when all of its failures are forgiven: each adds an interval."""

    def __repr__(self) -> str:
        return f"Failures({len(self._forgiven_s)} addresses)"

    def wait_s(self, address: str) -> float:
        """In how many seconds it may try again; 0: now."""
        forgiven_s = self._forgiven_s.get(self._key(address), 0.0)
        too_many_s = forgiven_s - self._now_s() - (FAILURES_AT_ONCE - 1) * FAILURE_INTERVAL_S
        return max(0.0, too_many_s)

    def add(self, address: str) -> None:
        now_s = self._now_s()
        if len(self._forgiven_s) >= ADDRESSES_MAX:
            self._forgiven_s = {key: at_s for key, at_s in self._forgiven_s.items() if at_s > now_s}
        key = self._key(address)
        self._forgiven_s[key] = max(now_s, self._forgiven_s.get(key, 0.0)) + FAILURE_INTERVAL_S

    def _key(self, address: str) -> str:
        key = address
        if ":" in address:
            network = ipaddress.IPv6Network((address.partition("%")[0], _IPV6_NEIGHBOURS), strict=False)
            key = str(network)
        return key if key in self._forgiven_s or len(self._forgiven_s) < ADDRESSES_MAX else ""


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
        self._handshakes = tls_acceptor.Handshakes(asyncio.get_running_loop())

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
        return tls_acceptor.tls_factory(make, listener_name=self._name, tls=self, handshakes=self._handshakes)

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
