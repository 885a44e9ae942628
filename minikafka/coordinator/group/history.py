"""What the last rebalances of each group were for, and which members it has lost: ``minikafka why group``.
Kafka has this in its log alone.

Bounded in every direction: so many groups, of each so many events, and no text longer than it has to be,
because member ids, client ids and reasons are what clients make them. Lost with the broker, and with its
leadership of the group: the next coordinator begins with an empty history.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import Final

import msgspec

GROUPS_MAX: Final = 1_000
"""With a full history of short texts each a few MB."""
EVENTS_MAX: Final = 16
TEXT_MAX: Final = 256


class GroupEventKind(Enum):
    """Values are what diagnostics show."""

    REBALANCE = "rebalance"
    """One began."""
    COMPLETED = "completed"
    """All members of the new generation have joined."""
    LEFT = "left"
    """A member left by itself, or an administrator removed it."""
    REMOVED = "removed"
    """The coordinator took a member for dead, or it did not do what it was told."""


class GroupEvent(msgspec.Struct, frozen=True):
    """``member_id`` and ``client_id`` are empty where no single member is meant."""

    at_ms: int
    kind: GroupEventKind
    why: str
    member_id: str = ""
    client_id: str = ""


class GroupHistory:
    """Of all groups that a broker has coordinated; those that had no event for the longest time go first."""

    def __init__(self) -> None:
        self._events: dict[str, deque[GroupEvent]] = {}

    def __repr__(self) -> str:
        return f"GroupHistory({len(self._events)} groups)"

    def note(
        self,
        group_id: str,
        kind: GroupEventKind,
        why: str,
        *,
        now_ms: int,
        member_id: str = "",
        client_id: str = "",
    ) -> None:
        events = self._events.pop(group_id, None)
        if events is None:
            events = deque(maxlen=EVENTS_MAX)
            if len(self._events) >= GROUPS_MAX:
                del self._events[next(iter(self._events))]
        self._events[group_id] = events  # the last one in the order of the dict
        texts = (text[:TEXT_MAX] for text in (why, member_id, client_id))
        events.append(GroupEvent(now_ms, kind, *texts))

    def of(self, group_id: str) -> Sequence[GroupEvent]:
        """The oldest first."""
        return tuple(self._events.get(group_id, ()))
