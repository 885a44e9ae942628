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


BODY_BYTES_PER_SECOND_MIN = 10_000
"""The rest of a request comes at least this fast: ten clients that share a link of 100 KB/s are still served,
and at less a batch of 1 MB takes longer than clients wait for its answer (``request.timeout.ms``, 30 s)."""


class BodyProgress:
    """Whether the rest of a request comes. Looked at by the sweeper, so it costs the traffic nothing."""

    __slots__ = ("_begun", "_bytes", "_since")

    def __init__(self, now: float) -> None:
        self._since = now
        self._begun = 0
        self._bytes = 0

    def late_seconds(self, now: float, begun: int, bytes_here: int, *, is_excused: bool) -> float:
        """For how long the frame, the ``begun``-th, has grown too slowly; 0 when it was fast enough since the
        last call that gave 0. ``is_excused``: we have not read on."""
        seconds = now - self._since
        grown_bytes = bytes_here - self._bytes
        if is_excused or begun != self._begun or grown_bytes > BODY_BYTES_PER_SECOND_MIN * seconds:
            self._since, self._begun, self._bytes = now, begun, bytes_here
            return 0.0
        return seconds
