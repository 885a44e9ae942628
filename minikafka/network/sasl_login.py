"""A login by SASL over a connection that has just been made, and again before its session ends.

Kafka: ``SaslClientAuthenticator``, ``ExpiringCredentialRefreshingLogin``; KIP-43 (handshake), KIP-152
(SaslAuthenticate), KIP-368 (re-authentication). After ApiVersions: SaslHandshake names the mechanism,
SaslAuthenticate carries its messages, until both sides are content. A mechanism itself is pure
(``security.sasl``); what derives keys runs in a thread.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from minikafka.errors import ErrorCode, MinikafkaError
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.security.sasl.client import SaslClient, sasl_client
from minikafka.security.sasl.errors import SaslError

Ask = Callable[[ApiKey, Mapping[str, Any]], Awaitable[Any]]
"""One request on the connection, and its response's entity."""

TokenSource = Callable[[], Awaitable[str]]
"""A bearer token that is valid now, in compact form. Raises LoginRefused: none is to be had."""

REAUTHENTICATE_FROM, REAUTHENTICATE_TO = 0.85, 0.95
"""Between which parts of a session's lifetime the next login is due (``SaslClientAuthenticator``), at random,
so that clients that came together do not come again together."""

HANDSHAKE_VERSION = 1
"""With version 0 the mechanism's messages would follow without a request around them."""


class LoginRefused(MinikafkaError):
    """The broker does not let us in, or failed to prove itself; says why, and has no secret in it."""


class SaslLogin:
    """Who logs in, and how: a mechanism, the options of its JAAS login module, a source of tokens."""

    def __init__(
        self, mechanism: str, options: Mapping[str, str], *, token: TokenSource | None = None
    ) -> None:
        """Raises ConfigError: an option is missing, or there is no such mechanism."""
        self.mechanism = mechanism
        self._options = options
        self.token = token
        if token is None:
            self._client(None)

    def __repr__(self) -> str:
        return f"SaslLogin({self.mechanism})"

    async def __call__(self, ask: Ask) -> int:
        """Log in by requests of ``ask``. Returns after how many ms the broker wants to see a login again; 0:
        never.

        Raises:
            LoginRefused: by the broker, or by us.
            What ``ask`` raises.
        """
        client = self._client(None if self.token is None else await self.token())
        answer = await ask(ApiKey.SASL_HANDSHAKE, {"mechanism": self.mechanism})
        if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise LoginRefused("the listener has no SASL: set security.protocol to what it has")
        if answer.error_code != ErrorCode.NONE:
            raise LoginRefused(
                f"the broker does not accept {self.mechanism} here; it accepts "
                f"{', '.join(answer.mechanisms) or 'no mechanism'}: set sasl.mechanism"
            )
        message: bytes | None = client.first()
        lifetime_ms = 0
        while message is not None:
            answer = await ask(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": message})
            if answer.error_code != ErrorCode.NONE:
                raise LoginRefused(answer.error_message or ErrorCode(answer.error_code).name)
            lifetime_ms = getattr(answer, "session_lifetime", None) or 0
            try:
                message = await asyncio.to_thread(client.next, bytes(answer.auth_bytes))
            except SaslError as error:
                raise LoginRefused(f"the broker failed to prove itself: {error}") from None
        return lifetime_ms

    def _client(self, token: str | None) -> SaslClient:
        return sasl_client(self.mechanism, self._options, nonce=_nonce, token=token)


def reauthenticate_after_ms(lifetime_ms: int) -> float:
    """When, in a session of this length, the next login is due; 0 when there is no need of one."""
    part = REAUTHENTICATE_FROM + (REAUTHENTICATE_TO - REAUTHENTICATE_FROM) * secrets.randbelow(1000) / 1000
    return lifetime_ms * part


def _nonce() -> str:
    return secrets.token_urlsafe(24)
