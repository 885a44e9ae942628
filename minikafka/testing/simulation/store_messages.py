"""What a simulated store's clients and servers tell each other, in the order of one connection each way."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

from minikafka.coordination.store import Op, StoreError, WatchEvent


class Wire(Protocol):
    """One direction of a connection: in order, and nothing is lost while it lasts."""

    def send(self, message: Any) -> None: ...

    def close(self) -> object:
        """Send nothing more; what is under way arrives."""
        ...


class WatchKind(Enum):
    DATA = "DATA"
    """On a node that existed when the watch was set."""
    MISSING = "MISSING"
    """On one that did not."""
    CHILDREN = "CHILDREN"


class Hello(NamedTuple):
    """Begins a session (id 0), or a connection of one; ``watches`` that the client still waits for."""

    session_id: int
    timeout_ms: int
    seen_zxid: int
    watches: Sequence[tuple[WatchKind, str]]


class Ping(NamedTuple):
    """The client lives."""


class Get(NamedTuple):
    path: str
    watch: bool


class Exists(NamedTuple):
    path: str
    watch: bool


class Children(NamedTuple):
    path: str
    watch: bool


class Write(NamedTuple):
    ops: Sequence[Op]


class EnsurePath(NamedTuple):
    path: str


class Bye(NamedTuple):
    """Ends the session."""


Call = Get | Exists | Children | Write | EnsurePath | Bye | Ping


class Request(NamedTuple):
    number: int
    call: Call


class Welcome(NamedTuple):
    session_id: int


class Expired(NamedTuple):
    """The session is over."""


class Disconnected(NamedTuple):
    """The server has closed this connection, not the session."""


class Reply(NamedTuple):
    number: int
    result: Any
    error: StoreError | None
    zxid: int


class Told(NamedTuple):
    """A watch fires."""

    event: WatchEvent
    zxid: int
