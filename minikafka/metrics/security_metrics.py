"""Who logged in and who failed, and what the authorizer said: plain integers, added to where it happens.

Kafka: the sensors of ``Selector.SelectorMetrics`` (``socket-server-metrics``), and
``StandardAuthorizer.AuthorizerMetrics``. All is counted on the event loop.

Invariants: there are counts for each listener, and what a peer says never adds one, so their number is
bounded. A count only grows. TLS handshakes are counted where they are made
(``network.tls_acceptor.Handshakes``), ACLs where they are kept (``AclStore.count``).
"""

from __future__ import annotations

from typing import Final

AUTHENTICATION_FIELDS: Final = (
    "successful",
    "failed",
    "successful_reauthentication",
    "failed_reauthentication",
    "no_reauth",
    "expired_killed",
)


class AuthenticationMetrics:
    """Counts of one listener."""

    __slots__ = AUTHENTICATION_FIELDS

    def __init__(self) -> None:
        self.successful = 0
        """First logins of connections by SASL."""
        self.failed = 0
        """Those that failed, for whatever reason."""
        self.successful_reauthentication = 0
        """Logins of a connection that had logged in before (KIP-368)."""
        self.failed_reauthentication = 0
        self.no_reauth = 0
        """Logins of clients that cannot authenticate again (SaslAuthenticate 0, or none); they count as
        successful too."""
        self.expired_killed = 0
        """Connections that were closed because they sent a request after their session had expired."""

    def __repr__(self) -> str:
        counts = ", ".join(f"{each}={getattr(self, each)}" for each in AUTHENTICATION_FIELDS)
        return f"AuthenticationMetrics({counts})"


class AuthorizerMetrics:
    """Counts of the authorizer."""

    __slots__ = ("allowed", "denied")

    def __init__(self) -> None:
        self.allowed = 0
        self.denied = 0

    def __repr__(self) -> str:
        return f"AuthorizerMetrics(allowed={self.allowed}, denied={self.denied})"

    @property
    def requests(self) -> int:
        """Decisions, whatever they were."""
        return self.allowed + self.denied


class SecurityMetrics:
    """The counts of a broker."""

    def __init__(self) -> None:
        self.authorizer = AuthorizerMetrics()
        self.listeners: dict[str, AuthenticationMetrics] = {}
        """By name."""

    def __repr__(self) -> str:
        return f"SecurityMetrics({self.listeners}, {self.authorizer})"

    def of(self, listener_name: str) -> AuthenticationMetrics:
        """The counts of a listener, made when it is first asked for. Keep them, rather than ask for each
        connection."""
        counts = self.listeners.get(listener_name)
        if counts is None:
            counts = self.listeners[listener_name] = AuthenticationMetrics()
        return counts
