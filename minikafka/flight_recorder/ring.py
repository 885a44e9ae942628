"""The latest events of a broker, encoded, within a number of bytes.

An event is encoded once, when it is recorded: the same bytes are a line of the file. When there is no more
room the oldest leave. Of kinds that clients can cause at will only ``BY_CLIENTS_MAX`` are kept of a second;
the next one that is kept says how many were not. So no client can push out what the broker has decided but by
the time that it takes.

Invariants: ``size_bytes`` is at most ``bytes_max``; sequence numbers rise.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import cache
from itertools import takewhile
from typing import Final

import msgspec

from minikafka.clock import Clock
from minikafka.flight_recorder.events import Event, RecordedEvent
from minikafka.named_tuple import NamedTuple

BY_CLIENTS_MAX: Final = 20
"""Events a second of one kind that clients cause: at 300 bytes each a ring of 4 MiB holds over ten minutes
of nothing else."""

_ENCODER = msgspec.json.Encoder()


class Line(NamedTuple):
    """A recorded event. ``data`` is its JSON, without the end of the line."""

    sequence: int
    data: bytes


@cache
def _decoder() -> msgspec.json.Decoder[RecordedEvent]:
    """Made when the first event is read: 15 ms for all kinds of events, for which no start needs to wait."""
    return msgspec.json.Decoder(RecordedEvent)


def decode_event(line: Line) -> RecordedEvent | None:
    """None for an event of a kind that this release does not know: a later one has written the file."""
    try:
        return _decoder().decode(line.data)
    except msgspec.DecodeError:
        return None


class _Second:
    """How many events of a kind came in the current second, and are left out since the last that was kept."""

    __slots__ = ("began_ms", "kept", "left_out")

    def __init__(self) -> None:
        self.began_ms = 0
        self.kept = 0
        self.left_out = 0


class EventRing:
    """See the module header."""

    def __init__(self, clock: Clock, *, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.size_bytes = 0
        self._clock = clock
        self._lines: deque[Line] = deque()
        self._last_sequence = 0
        self._seconds: dict[type, _Second] = {}

    def __repr__(self) -> str:
        return f"EventRing({len(self._lines)} events, {self.size_bytes} of {self.bytes_max} bytes)"

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def first(self) -> Line | None:
        """The oldest event."""
        return self._lines[0] if self._lines else None

    @property
    def last_sequence(self) -> int:
        """Of the latest event; 0: there was none."""
        return self._last_sequence

    def restore(self, lines: Iterable[Line]) -> None:
        """What an earlier process of the broker has recorded, before anything else is."""
        for line in lines:
            if line.sequence > self._last_sequence:
                self._keep(line)

    def add(self, event: Event) -> bool:
        """Record an event. Returns whether it is kept."""
        left_out = 0
        if event.by_clients:
            second = self._seconds.setdefault(type(event), _Second())
            if not self._has_room(second):
                return False
            left_out, second.left_out = second.left_out, 0
        at_ms = self._clock.now_ms()
        sequence = max(at_ms * 1000, self._last_sequence + 1)
        recorded = RecordedEvent(sequence=sequence, at_ms=at_ms, left_out=left_out, event=event)
        return self._keep(Line(sequence, _ENCODER.encode(recorded)))

    def after(self, sequence: int) -> list[Line]:
        """The events after that one, the oldest first."""
        newer = list(takewhile(lambda line: line.sequence > sequence, reversed(self._lines)))
        newer.reverse()
        return newer

    def _has_room(self, second: _Second) -> bool:
        now_ms = self._clock.monotonic_ms()
        if not second.kept or now_ms - second.began_ms >= 1000:
            second.began_ms, second.kept = now_ms, 0
        if second.kept >= BY_CLIENTS_MAX:
            second.left_out += 1
            return False
        second.kept += 1
        return True

    def _keep(self, line: Line) -> bool:
        size_bytes = len(line.data) + 1
        if size_bytes > self.bytes_max:
            return False
        self._last_sequence = line.sequence
        self._lines.append(line)
        self.size_bytes += size_bytes
        while self.size_bytes > self.bytes_max:
            self.size_bytes -= len(self._lines.popleft().data) + 1
        return True
