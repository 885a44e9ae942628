"""What the server's side of every mechanism is, and what can go wrong in an authentication.

Kafka: ``javax.security.sasl.SaslServer``.
"""

from __future__ import annotations

from typing import Protocol

from minikafka.errors import MinikafkaError

NAME_SHOWN_CHARS_MAX = 64
"""Of what a peer says is its name."""


class SaslServer(Protocol):
    """One authentication of one connection, for one mechanism."""

    @property
    def is_complete(self) -> bool:
        """Whether the client has proved who it is."""
        ...

    authorization_id: str
    """Its name, when it has."""
    expires_at_ms: int | None
    """When what it proved that with expires, in milliseconds since the Unix epoch."""
    token_id: str
    """Of the delegation token that it used."""

    def may_take_long(self, response: bytes) -> bool:
        """Whether ``evaluate`` may compute for milliseconds: then it is called in a thread."""
        ...

    def evaluate(self, response: bytes) -> bytes:
        """The answer to what the client sent.

        Raises:
            SaslError: the authentication failed; nothing else may be called afterwards.
        """
        ...


def shown_name(name: str) -> str:
    """A peer's own text as a log may have it."""
    return repr(name if len(name) <= NAME_SHOWN_CHARS_MAX else f"{name[:NAME_SHOWN_CHARS_MAX]}…")


class SaslError(MinikafkaError):
    """The proof failed. ``reason`` is for our log. ``told`` is what the peer may read, None for no more than
    that the credentials are not good: whether a user exists is not told (Kafka: ``SaslException`` and
    ``SaslAuthenticationException``). Neither has a secret in it."""

    def __init__(self, reason: str, *, told: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.told = told
