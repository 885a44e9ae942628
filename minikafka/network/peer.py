"""Who is at the other end of a connection, as far as handlers care: no I/O."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from minikafka.network.addresses import format_address, split_address


class ToldLeaders(NamedTuple):
    """The partitions of a topic whose leaders a peer was told, and when, on the monotonic clock."""

    at_ms: int
    partitions: frozenset[int]


class Peer:
    """``memory`` is the handler's own: what it wants to know when this peer's next request comes.
    ``id`` is Kafka's connection id, ``local-remote-index``. ``client_software_name`` and ``…_version`` are
    what ApiVersions said (KIP-511). ``told_leaders``: where it was sent to lately, by topic. ``is_follower``:
    a broker fetches over it.
    """

    __slots__ = (
        "client_software_name",
        "client_software_version",
        "id",
        "is_follower",
        "listener_name",
        "local_host",
        "local_port",
        "memory",
        "peer_host",
        "peer_port",
        "told_leaders",
    )

    def __init__(self, listener_name: str) -> None:
        self.listener_name = listener_name
        self.memory: Any = None
        self.client_software_name = "unknown"
        self.client_software_version = "unknown"
        self.id = ""
        self.is_follower = False
        self.local_host, self.local_port = "", 0
        self.peer_host, self.peer_port = "", 0
        self.told_leaders: dict[str, ToldLeaders] = {}

    @property
    def peer(self) -> str:
        """``host:port`` for log lines."""
        return format_address(self.peer_host, self.peer_port)

    def note_addresses(self, transport: asyncio.BaseTransport) -> None:
        """For the connection: it is made."""
        self.local_host, self.local_port = split_address(transport.get_extra_info("sockname"))
        self.peer_host, self.peer_port = split_address(transport.get_extra_info("peername"))
