"""When a fast path holds: what a connection remembers of its last request is good for one epoch.

What is remembered: a connection's last usual Produce or Fetch, or its last heartbeat
(``server/dispatch/repeated_*``), with all that was looked up for it once: partition, client, limits. It is
one connection's, so it is one principal's.

When it is dropped: all of it at once, with the epoch (``drop``). What was looked up may have changed when a
quota, the configuration of a topic or of the broker, the leader of a partition here or the set of topics
did; ``assembly`` has each of those call ``drop``, and so does the authorizer with each change of its rules:
what was allowed once is not asked again within an epoch. A connection changes its principal by
``Connection.hand_over`` only, which forgets its memory. What may differ
between two requests of one epoch (offsets, the ISR, a transaction's state) is looked at each time.

Who says "not now": ``Dispatcher._remember``, once an epoch. Then nothing is remembered, and requests take
the slow path.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

NEVER: Final = -1
"""An epoch that never is."""

SWITCHED_OFF: Final[set[FastPath]] = set()
"""In brokers that are made from now on. For measuring and for tests; no configuration sets it."""


class FastPath(Enum):
    """What can be switched off."""

    PRODUCE = "produce"
    FETCH = "fetch"
    HEARTBEAT = "heartbeat"
    CATCH_UP = "catch_up"
    """The pace of followers (``server/replica/replication_quotas``)."""


class FastPaths:
    """A broker's."""

    __slots__ = ("epoch", "on")

    def __init__(self) -> None:
        self.epoch = 0
        self.on = frozenset(FastPath) - SWITCHED_OFF

    def __repr__(self) -> str:
        return f"FastPaths(epoch {self.epoch}, on: {sorted(each.value for each in self.on)})"

    def drop(self, *_: object) -> None:
        """What is remembered holds no more. The arguments are those of the listener that calls it."""
        self.epoch += 1
