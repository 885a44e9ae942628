"""What the server's side of every mechanism is. Kafka: ``javax.security.sasl.SaslServer``."""

from __future__ import annotations

from typing import Protocol


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
