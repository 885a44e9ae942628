"""The keys that an issuer of tokens signs with: read from a file or a URL, and again from time to time.

Kafka: ``RefreshingHttpsJwks``, ``RefreshingHttpsJwksVerificationKeyResolver``,
``JwksFileVerificationKeyResolver``; KIP-768.

Invariants: nothing is read on the loop; keys that were read once hold until others have been read; a token
with an unknown key has them read again, but not more often than every ``WANTED_PAUSE_MS``, because anybody
can send one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from minikafka.errors import ConfigError
from minikafka.security.sasl.oauthbearer import VerificationKey, parse_jwks

logger = logging.getLogger(__name__)

TIMEOUT_S: Final = 10
"""Kafka has none for the whole; its connect and read timeouts are the system's."""
JWKS_BYTES_MAX: Final = 1_000_000
"""Issuers have a handful of keys, of half a kilobyte each."""
WANTED_PAUSE_MS: Final = 10_000
CHUNK_BYTES: Final = 65_536


class JwksSettings(NamedTuple):
    """``sasl.oauthbearer.jwks.endpoint.*``."""

    url: str
    refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int


def check_jwks_url(url: str) -> None:
    """Raises ConfigError: it is neither a file nor a web address."""
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.path and parts.netloc in ("", "localhost"):
        return
    if parts.scheme in ("http", "https") and parts.hostname:
        return
    raise ConfigError(
        f"Invalid value {url} for configuration sasl.oauthbearer.jwks.endpoint.url: must be a file: or an "
        "https: URL"
    )


class JwksSource:
    """One issuer's keys. ``run`` is a task."""

    def __init__(self, settings: JwksSettings) -> None:
        self._settings = settings
        self._keys: Sequence[VerificationKey] = ()
        self._wanted = asyncio.Event()
        self.tried = asyncio.Event()
        """Set when they have been read once, or could not be."""
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="minikafka-jwks")

    def __repr__(self) -> str:
        return f"JwksSource({self._settings.url}, {len(self._keys)} keys)"

    def known(self) -> Sequence[VerificationKey]:
        """Those that are known now; of any thread."""
        return self._keys

    def want(self) -> None:
        """A token has a key id that is not known. Of any thread."""
        self._loop.call_soon_threadsafe(self._wanted.set)

    def close(self) -> None:
        """Read nothing more; what is being read is not waited for."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def run(self) -> None:
        """Until cancelled."""
        settings = self._settings
        if urlsplit(settings.url).scheme == "http":  # Kafka takes it too
            logger.warning(
                "sasl.oauthbearer.jwks.endpoint.url %s is read without TLS: an attacker on the network can "
                "put in keys of his own and be any user; use https:",
                settings.url,
            )
        backoff_ms = settings.retry_backoff_ms
        while True:
            self._wanted.clear()
            is_read = await self._read()
            self.tried.set()
            if is_read:
                backoff_ms = settings.retry_backoff_ms
                quiet_ms = min(WANTED_PAUSE_MS, settings.refresh_ms)
                await asyncio.sleep(quiet_ms / 1000)
                try:
                    async with asyncio.timeout((settings.refresh_ms - quiet_ms) / 1000):
                        await self._wanted.wait()
                except TimeoutError:
                    pass
            else:
                await asyncio.sleep(backoff_ms / 1000)
                backoff_ms = min(2 * backoff_ms, settings.retry_backoff_max_ms)

    async def _read(self) -> bool:
        url = self._settings.url
        try:
            keys, complaints = await self._loop.run_in_executor(self._thread, lambda: parse_jwks(_fetch(url)))
        except (OSError, ValueError) as error:
            logger.warning(
                "cannot read the keys of sasl.oauthbearer.jwks.endpoint.url %s: %s%s",
                url,
                _reason(error),
                "; those that were read before still hold" if self._keys else "",
            )
            return False
        for complaint in complaints:
            logger.warning("%s: %s; it is left out", url, complaint)
        if not keys:
            logger.warning("%s has no key that can verify a signature: no token will be taken", url)
        self._keys = keys
        return True


def _reason(error: Exception) -> str:
    """Without what Python wraps it in (``URLError``), and without the URL again."""
    cause = getattr(error, "reason", None)
    if not isinstance(cause, OSError):
        cause = error
    return getattr(cause, "strerror", None) or str(cause)


def _fetch(url: str) -> bytes:
    """What is there. Blocks. Raises OSError, ValueError: it is too large, or too slow."""
    deadline = time.monotonic() + TIMEOUT_S
    parts = urlsplit(url)
    if parts.scheme == "file":
        with open(unquote(parts.path), "rb") as file:
            return _read_all(file, deadline)

    # 3 MB, the standard library's email package among them, that no broker without such a URL needs.
    from urllib.error import URLError
    from urllib.request import HTTPRedirectHandler, build_opener

    class SameSchemeRedirects(HTTPRedirectHandler):
        """Keys that were asked for over TLS do not come without."""

        def redirect_request(self, req, fp, code, msg, headers, newurl):  # type: ignore[no-untyped-def]
            if urlsplit(newurl).scheme != parts.scheme:
                raise URLError(f"it redirects to {urlsplit(newurl).scheme}:")
            return super().redirect_request(req, fp, code, msg, headers, newurl)

    with build_opener(SameSchemeRedirects).open(url, timeout=TIMEOUT_S) as response:
        return _read_all(response, deadline)


def _read_all(file: IO[bytes], deadline: float) -> bytes:
    data = b""
    while chunk := file.read(CHUNK_BYTES):
        data += chunk
        if len(data) > JWKS_BYTES_MAX:
            raise ValueError(f"it has more than {JWKS_BYTES_MAX} bytes")
        if time.monotonic() > deadline:
            raise ValueError(f"it does not come within {TIMEOUT_S} s")
    return data
