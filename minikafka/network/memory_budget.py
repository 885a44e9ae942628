"""How many bytes all connections together may hold for requests and responses under way.

Kafka's ``SimpleMemoryPool`` behind ``queued.max.request.bytes``; here responses that wait count too, because
we have them in memory where Kafka has them in files (sendfile).

What counts is what has arrived, not what a frame's size announces: a peer that announces much and sends
nothing takes nothing from the others. So frames grow side by side, and together may use the budget up before
any of them is whole. Then one of them may overdraw until it is handled, the others wait: that way somebody
always gets on, and the overdraft is at most one request.

Whoever was told that nothing is left waits in line and is woken, first come first served, when there is
something again or when the overdraft is free.
"""

from __future__ import annotations

from collections.abc import Callable


class MemoryBudget:
    """Counts bytes; owned by one event loop.

    ``call_soon`` is the loop's: the ones in line are woken from there and not from inside of ``adjust``, so
    that one connection's progress never runs another one's handlers in the middle of its own.
    """

    __slots__ = (
        "_bytes_max",
        "_call_soon",
        "_overdrawer",
        "_waiting",
        "_wake_is_scheduled",
        "exhausted",
        "used_bytes",
    )

    def __init__(self, bytes_max: int, *, call_soon: Callable[..., object]) -> None:
        if bytes_max < 1:
            raise ValueError(f"a memory budget of {bytes_max} bytes")
        self._bytes_max = bytes_max
        self._call_soon = call_soon
        self._waiting: dict[Callable[[], None], None] = {}
        self._wake_is_scheduled = False
        self._overdrawer: object | None = None
        self.used_bytes = 0
        self.exhausted = False
        """Whether nothing is left. An attribute, because it is read for every chunk that arrives."""

    def __repr__(self) -> str:
        return f"MemoryBudget({self.used_bytes} of {self._bytes_max} bytes, {len(self._waiting)} waiting)"

    @property
    def waiting(self) -> int:
        """How many wait for something to be left."""
        return len(self._waiting)

    def adjust(self, change_bytes: int) -> None:
        """Take bytes, or give them back when ``change_bytes`` is negative."""
        self.used_bytes += change_bytes
        assert self.used_bytes >= 0, self
        self.exhausted = self.used_bytes >= self._bytes_max
        if self._waiting and not self.exhausted:
            self._schedule_wake()

    def may_overdraw(self, who: object) -> bool:
        """Whether ``who`` may go on although nothing is left: the one that asked first, until ``settle``."""
        if self._overdrawer is None:
            self._overdrawer = who
        return self._overdrawer is who

    def settle(self, who: object) -> None:
        """``who`` has what it wanted: the overdraft, if it was its, is free."""
        if self._overdrawer is who:
            self._overdrawer = None
            if self._waiting:
                self._schedule_wake()

    def wait(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` once something is left again. The same ``wake`` stands in line only once."""
        self._waiting[wake] = None
        if not self.exhausted:
            self.adjust(0)

    def forget(self, wake: Callable[[], None]) -> None:
        """Leave the line."""
        self._waiting.pop(wake, None)

    def _schedule_wake(self) -> None:
        if not self._wake_is_scheduled:
            self._wake_is_scheduled = True
            self._call_soon(self._wake)

    def _wake(self) -> None:
        self._wake_is_scheduled = False
        for _ in range(len(self._waiting)):
            if not self._waiting or (self.exhausted and self._overdrawer is not None):
                return
            wake = next(iter(self._waiting))
            del self._waiting[wake]
            wake()
