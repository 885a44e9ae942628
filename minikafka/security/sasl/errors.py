"""What can go wrong in an authentication."""

from __future__ import annotations

from minikafka.errors import MinikafkaError

NAME_SHOWN_CHARS_MAX = 64
"""Of what a peer says is its name."""


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
