"""The latest events of a broker: a ring of them in memory, and files in its first log directory.

An event is encoded once, when it is recorded: the same bytes are in the ring and a line of the file.

**The ring** (``EventRing``) holds them within a number of bytes. When there is no more room the oldest leave.
Of kinds that clients can cause at will only ``BY_CLIENTS_MAX`` are kept of a second; the next one that is
kept says how many were not. So no client can push out what the broker has decided but by the time that it
takes. Invariants: ``size_bytes`` is at most ``bytes_max``; sequence numbers rise.

**The files** (``EventFile``): two, each at most half of what the recorder may take.
``minikafka-events.jsonl`` is written at its end, and when it is full it becomes
``minikafka-events.old.jsonl`` in place of the one before. Kafka's tools, and Kafka itself in the same
directory, look only at directories and at the files whose names they know. All of this may wait for the disk.

A file is lines of JSON in UTF-8. The first is the header:

    {"format":"minikafka-events","version":1,"broker":1}

each other one is a ``RecordedEvent``, in the order of ``sequence``. A line counts when its end is written:
what a crash has left behind the last end is dropped by the next start, and by every reader. A line that
cannot be read is skipped. A file of another version is left unread and unwritten: the next start
moves it out of the way.

Lines are written to the page cache, whole, and not forced to the disk: they survive the end of the process,
whatever ended it, up to the last write; after a power cut the latest seconds may be missing.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import takewhile
from typing import Final

import msgspec

from minikafka.clock import Clock
from minikafka.files import File, Files
from minikafka.flight_recorder.events import Event, RecordedEvent
from minikafka.named_tuple import NamedTuple

logger = logging.getLogger(__name__)

BY_CLIENTS_MAX: Final = 20
"""Events a second of one kind that clients cause: at 300 bytes each a ring of 4 MiB holds over ten minutes
of nothing else."""

_ENCODER = msgspec.json.Encoder()

FORMAT: Final = "minikafka-events"
VERSION: Final = 1
CURRENT_NAME: Final = "minikafka-events.jsonl"
OLD_NAME: Final = "minikafka-events.old.jsonl"
HEADER_BYTES_MAX: Final = 4096
SEQUENCE_MAX: Final = 2**53 - 1
"""What JSON's readers take for a whole number. A larger one is damage, after which nothing could follow."""


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


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line."""

    format: str
    version: int
    broker: int


class UnreadableEventFile(Exception):
    """What is wrong with a file; it begins with its path."""


class _Sequenced(msgspec.Struct, frozen=True):
    sequence: int


_SEQUENCED = msgspec.json.Decoder(_Sequenced)
_HEADER = msgspec.json.Decoder(Header)


class EventsOfFile(NamedTuple):
    """What is in a file. ``end`` is where the next line belongs."""

    broker: int
    lines: list[Line]
    end: int


def read_event_file(files: Files, path: str, *, bytes_max: int) -> EventsOfFile:
    """The events of a file; of a larger one those in its last ``bytes_max`` bytes.

    Raises:
        UnreadableEventFile: it is something else, or of a version that is not known here. OSError.
    """
    file = files.open(path, read_only=True)
    try:
        size = file.size()
        first, newline, _ = file.read(min(size, HEADER_BYTES_MAX), 0).partition(b"\n")
        header = _header(path, first if newline else b"")
        start = max(len(first) + 1, size - bytes_max)
        data = file.read(size - start, start)
    finally:
        file.close()
    if start > len(first) + 1:
        data = data[data.find(b"\n") + 1 :]  # the line that ``start`` lies in
    complete = data.rfind(b"\n") + 1
    end = size - (len(data) - complete)
    lines = []
    for text in data[:complete].splitlines():
        try:
            sequence = _SEQUENCED.decode(text).sequence
        except msgspec.DecodeError:  # not valid JSON, or no event
            continue
        if 0 < sequence <= SEQUENCE_MAX:
            lines.append(Line(sequence, text))
    return EventsOfFile(header.broker, lines, end)


def _header(path: str, line: bytes) -> Header:
    try:
        header = _HEADER.decode(line)
    except msgspec.DecodeError:
        raise UnreadableEventFile(f"{path} does not begin with the header of a file of events") from None
    if header.format != FORMAT:
        raise UnreadableEventFile(f"{path} is a file of {header.format!r}, not of {FORMAT!r}")
    if header.version != VERSION:
        raise UnreadableEventFile(
            f"{path} has version {header.version} of the format, and this minikafka reads {VERSION}: read it "
            "with the minikafka that wrote it"
        )
    return header


class EventFile:
    """Both files of a broker, for the one process that writes them."""

    def __init__(self, directory: str, *, files: Files, broker: int, bytes_max: int) -> None:
        self._files = files
        self._broker = broker
        self._bytes_max = bytes_max // 2
        self._current = os.path.join(directory, CURRENT_NAME)
        self._old = os.path.join(directory, OLD_NAME)
        self._file: File | None = None
        self._end = 0
        self.written_sequence = 0
        """Of the last event that is in the files."""

    def __repr__(self) -> str:
        return f"EventFile({self._current}, {self._end} of {self._bytes_max} bytes)"

    def load(self) -> list[Line]:
        """What earlier processes have written. Raises OSError."""
        lines = []
        old, current = self._read(self._old), self._read(self._current)
        if old is not None:
            lines += old.lines
        if current is not None:
            lines += current.lines
            self._file, self._end = self._files.open(self._current), current.end
            self._file.truncate(current.end)
        elif self._files.exists(self._current):
            self._files.rename(self._current, self._old)
        self.written_sequence = max((line.sequence for line in lines), default=0)
        return lines

    def _read(self, path: str) -> EventsOfFile | None:
        if not self._files.exists(path):
            return None
        try:
            return read_event_file(self._files, path, bytes_max=self._bytes_max)
        except UnreadableEventFile as error:
            logger.warning("earlier events are not shown: %s", error)
            return None

    def append(self, lines: Sequence[Line]) -> None:
        """Write events at the end, but for those that are written already. Raises OSError; then the others
        may be tried again."""
        for line in lines:
            if line.sequence <= self.written_sequence:
                continue
            size_bytes = len(line.data) + 1
            if self._file is not None and self._end + size_bytes > self._bytes_max:
                self.close()
                self._files.rename(self._current, self._old)
            file = self._file or self._begin()
            self._end += file.write((line.data, b"\n"), self._end)
            self.written_sequence = line.sequence

    def _begin(self) -> File:
        file = self._files.open(self._current, create=True)
        header = Header(format=FORMAT, version=VERSION, broker=self._broker)
        file.truncate(0)
        self._end = file.write((msgspec.json.encode(header), b"\n"), 0)
        self._file = file
        return file

    def close(self) -> None:
        """Let go of the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
