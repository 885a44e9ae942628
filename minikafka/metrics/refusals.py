"""What a broker has refused lately, and why: produces, logins, operations that no ACL allows.

Clients log what they are told, if at all, and who is asked for help sees the broker. Kafka has it in its
logs. Equal refusals are one entry with a count. Bounded: so many entries, those that did not come again for
the longest time go first, and no text is longer than it has to be, because clients make most of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final

from minikafka.named_tuple import NamedTuple

ENTRIES_MAX: Final = 500
TEXT_MAX: Final = 256


class RefusedKind(Enum):
    """Values are what diagnostics show."""

    PRODUCE = "produce"
    LOGIN = "login"
    AUTHORIZATION = "authorization"


class Refused(NamedTuple):
    """What was refused to whom; what is the same counts as one. Empty: not known."""

    kind: RefusedKind
    about: str
    """A partition, a listener, or a resource with the operation."""
    error: str
    """The name of an error code."""
    user: str
    client_id: str
    host: str


class Refusal:
    """How often, since when, and what the last one was told."""

    __slots__ = ("count", "first_ms", "last_ms", "message")

    def __init__(self, now_ms: int) -> None:
        self.count = 0
        self.first_ms = self.last_ms = now_ms
        self.message = ""

    def __repr__(self) -> str:
        return f"Refusal({self.count} from {self.first_ms} to {self.last_ms}: {self.message!r})"


class Refusals:
    """Those of one broker."""

    def __init__(self) -> None:
        self._found: dict[Refused, Refusal] = {}

    def __repr__(self) -> str:
        return f"Refusals({len(self._found)})"

    def note(
        self,
        kind: RefusedKind,
        about: str,
        error: str,
        message: str | None,
        *,
        user: str = "",
        client_id: str | None = "",
        host: str = "",
        now_ms: int,
    ) -> None:
        texts = (text[:TEXT_MAX] for text in (about, error, user, client_id or "", host))
        refused = Refused(kind, *texts)
        refusal = self._found.pop(refused, None)
        if refusal is None:
            refusal = Refusal(now_ms)
            if len(self._found) >= ENTRIES_MAX:
                del self._found[next(iter(self._found))]
        self._found[refused] = refusal  # the last one in the order of the dict
        refusal.count += 1
        refusal.last_ms = now_ms
        refusal.message = (message or "")[:TEXT_MAX]

    def newest_first(self) -> Iterable[tuple[Refused, Refusal]]:
        return reversed(self._found.items())
