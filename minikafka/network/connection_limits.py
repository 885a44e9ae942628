"""How many connections there may be, in all and from one address. No I/O.

Kafka's ``ConnectionQuotas``: ``max.connections``, ``max.connections.per.ip``,
``max.connections.per.ip.overrides``; and how many the process has descriptors for, so that files can still be
opened. A connection over a limit is closed at once, before it is read.

Unlike Kafka, which stops accepting at ``max.connections`` until another connection closes (or, for the
inter-broker listener, closes another one), that limit refuses too: an event loop's server cannot stop
accepting without closing its listening socket, and a client that is told at once tries elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping


class ConnectionLimits:
    """Counts open connections. Addresses are textual, IPv4 in its own form even on a dual-stack socket."""

    def __init__(
        self,
        *,
        max_connections: int,
        max_connections_per_ip: int,
        max_connections_per_ip_overrides: Mapping[str, int],
        descriptors: int = 2**31 - 1,
    ) -> None:
        self._descriptors = descriptors
        self.max_connections = max_connections
        self.max_connections_per_ip = max_connections_per_ip
        self.max_connections_per_ip_overrides = dict(max_connections_per_ip_overrides)
        self._count_by_address: dict[str, int] = {}
        self._count = 0

    def __repr__(self) -> str:
        return f"ConnectionLimits({self._count} from {len(self._count_by_address)} addresses)"

    @property
    def count(self) -> int:
        return self._count

    def admit(self, address: str) -> str | None:
        """Count a new connection, unless there is a reason not to: that is returned, and nothing counted."""
        if self._count >= self.max_connections:
            return f"there are already {self._count} connections (max.connections)"
        if self._count >= self._descriptors:
            return f"there are already {self._count} connections; the other file descriptors are for files"
        count = self._count_by_address.get(address, 0)
        allowed = self.max_connections_per_ip_overrides.get(address, self.max_connections_per_ip)
        if count >= allowed:
            return f"the address already has its {allowed} connections (max.connections.per.ip)"
        self._count_by_address[address] = count + 1
        self._count += 1
        return None

    def release(self, address: str) -> None:
        """A connection that was admitted has closed."""
        count = self._count_by_address[address] - 1
        if count:
            self._count_by_address[address] = count
        else:
            del self._count_by_address[address]
        self._count -= 1
