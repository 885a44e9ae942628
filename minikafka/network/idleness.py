"""For how long nothing has happened on a connection. Kafka: ``Selector.IdleExpiryManager``.

Something happened when bytes came or left. The loop's clock is read when the sweeper comes by and not for
every chunk: so a time is short by at most the pause between two sweeps, and never too long.
"""

from __future__ import annotations


class Idleness:
    """Of one connection, which sets ``is_active`` whenever something happens."""

    __slots__ = ("_since", "is_active")

    def __init__(self, now: float) -> None:
        self.is_active = True
        self._since = now

    def seconds(self, now: float, *, is_excused: bool) -> float:
        """How long it has been idle at ``now``. 0 when something happened since the last call, or when the
        connection has a good reason to be silent."""
        if self.is_active or is_excused:
            self.is_active = False
            self._since = now
        return now - self._since
