"""What a broker has decided of late: the events, a ring of them in memory, their files, and which are shown.
Knows no broker.

**Events**: a struct for each kind, with what it is about, what happened, and the cause. Who decides something
calls ``Record`` with one of these; the recorder adds when that was. The fields are the file's: a field may be
added with a default, but none may be renamed or change its meaning without another version of the file.
Strings that clients choose are cut (``cut``), so that no event is large. An event is encoded once, when it is
recorded: the same bytes are in the ring and a line of the file.

**The ring** (``EventRing``) holds them within a number of bytes. When there is no more room the oldest leave.
Of kinds that clients can cause at will only ``BY_CLIENTS_MAX`` are kept of a second; the next one that is
kept says how many were not. So no client can push out what the broker has decided but by the time that it
takes. Invariants: ``size_bytes`` is at most ``bytes_max``; sequence numbers rise.

**The files** (``EventFile``): two, in the broker's first log directory, each at most half of what the
recorder may take. ``minikafka-events.jsonl`` is written at its end, and when it is full it becomes
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

**What is shown**: ``EventFilter`` is which events are wanted, ``show`` one of them for its readers.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from itertools import takewhile
from typing import ClassVar, Final, TypeAlias

import msgspec

from minikafka.clock import Clock
from minikafka.errors import ErrorCode, KafkaError
from minikafka.files import File, Files
from minikafka.named_tuple import NamedTuple

logger = logging.getLogger(__name__)

TEXT_MAX: Final = 200
"""Characters of a string that a client chose: a client id, a group's name, a reason."""

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
EVENTS_MAX: Final = 1_000
"""In one document: 300 KB."""


def cut(text: str) -> str:
    """``text``, or its beginning."""
    return text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 1]}…"


def _list(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers)) or "none"


class EventOfBroker(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    """What all have in common."""

    by_clients: ClassVar[bool] = False
    """Whether clients can cause as many as they like, so that only some of them are kept."""

    @property
    def kind(self) -> str:
        """One of ``KINDS``."""
        return str(self.__struct_config__.tag)

    @property
    def subject(self) -> str:
        """What it happened to."""
        return "broker"

    @property
    def text(self) -> str:
        """What happened, and why, for people."""
        raise NotImplementedError


class EventOfPartition(EventOfBroker, frozen=True, kw_only=True):
    topic: str
    partition: int

    @property
    def subject(self) -> str:
        return f"{self.topic}-{self.partition}"


class BrokerStarted(EventOfBroker, frozen=True, kw_only=True, tag="started"):
    """The logs are loaded; the broker is about to join its cluster."""

    version: str
    was_clean: bool | None
    """Whether the broker had stopped in order before; None: it has not run before."""

    @property
    def text(self) -> str:
        if self.was_clean is None:
            return f"minikafka {self.version} starts for the first time"
        before = "it had stopped in order" if self.was_clean else "it had not stopped in order"
        return f"minikafka {self.version} starts; {before}"


class BrokerStopped(EventOfBroker, frozen=True, kw_only=True, tag="stopped"):
    """In order. A broker that is killed records nothing of that."""

    @property
    def text(self) -> str:
        return "stops in order"


class ControllerChanged(EventOfBroker, frozen=True, kw_only=True, tag="controller"):
    """This broker has become the controller, or is it no more."""

    controller_epoch: int
    is_controller: bool
    cause: str = ""

    @property
    def subject(self) -> str:
        return "controller"

    @property
    def text(self) -> str:
        if self.is_controller:
            return f"is the controller of epoch {self.controller_epoch}"
        return f"no longer the controller of epoch {self.controller_epoch}: {self.cause}"


class ControllerStep(EventOfBroker, frozen=True, kw_only=True, tag="controller_step"):
    """The controller has dealt with something, and changed or sent something for it."""

    step: str
    """Kafka's name of the event (``ControllerState``)."""
    duration_ms: int
    states_written: int = 0
    requests: int = 0
    cause: str = ""

    @property
    def subject(self) -> str:
        return "controller"

    @property
    def text(self) -> str:
        return (
            f"{self.step} took {self.duration_ms} ms: {self.states_written} partition states written, "
            f"{self.requests} requests to brokers; {self.cause}"
        )


class LeaderElected(EventOfPartition, frozen=True, kw_only=True, tag="election"):
    """The controller has written another leader."""

    leader: int
    """-1: none."""
    previous_leader: int = -1
    leader_epoch: int
    isr: tuple[int, ...]
    is_unclean: bool = False
    """The leader was not in the ISR: committed records may be lost."""
    cause: str

    @property
    def text(self) -> str:
        who = "no leader" if self.leader < 0 else f"leader {self.leader}"
        before = "" if self.previous_leader < 0 else f" after {self.previous_leader}"
        unclean = ", unclean: committed records may be lost" if self.is_unclean else ""
        isr = _list(self.isr)
        return f"{who}{before} in epoch {self.leader_epoch}, ISR {isr}{unclean}: {self.cause}"


class IsrChanged(EventOfPartition, frozen=True, kw_only=True, tag="isr"):
    """The ISR is another one; or the leader wanted another one, and it was refused (``is_refused``)."""

    isr: tuple[int, ...]
    previous_isr: tuple[int, ...]
    leader_epoch: int
    is_refused: bool = False
    cause: str

    @property
    def text(self) -> str:
        if self.is_refused:
            return f"ISR stays {_list(self.isr)}: {self.cause}"
        return f"ISR {_list(self.isr)} after {_list(self.previous_isr)}: {self.cause}"


class EpochBegan(EventOfPartition, frozen=True, kw_only=True, tag="epoch"):
    """A broker leads or follows in another leader epoch."""

    leader: int
    """-1: none."""
    leader_epoch: int
    is_leader: bool
    log_end_offset: int
    high_watermark: int

    @property
    def text(self) -> str:
        if self.is_leader:
            role = "leads"
        else:
            role = "waits for a leader" if self.leader < 0 else f"follows {self.leader}"
        ends = f"log end {self.log_end_offset}, high watermark {self.high_watermark}"
        return f"{role} in epoch {self.leader_epoch}; {ends}"


class LogTruncated(EventOfPartition, frozen=True, kw_only=True, tag="truncation"):
    """A follower has dropped records that its leader does not have."""

    from_offset: int
    """Where the log ended before."""
    to_offset: int
    leader: int
    leader_epoch: int
    cause: str

    @property
    def text(self) -> str:
        return f"truncated from {self.from_offset} to {self.to_offset}: {self.cause}"


class GroupRebalanced(EventOfBroker, frozen=True, kw_only=True, tag="rebalance"):
    """A rebalance of a group begins."""

    by_clients: ClassVar[bool] = True

    group: str
    generation: int
    """The generation or epoch that ends."""
    members: int
    cause: str

    @property
    def subject(self) -> str:
        return self.group

    @property
    def text(self) -> str:
        return f"rebalance of generation {self.generation} with {self.members} members: {self.cause}"


class ClientThrottled(EventOfBroker, frozen=True, kw_only=True, tag="throttle"):
    """A client waits because of a quota."""

    by_clients: ClassVar[bool] = True

    user: str
    client_id: str
    quota: str
    throttle_time_ms: int
    cause: str

    @property
    def subject(self) -> str:
        return self.client_id or self.user

    @property
    def text(self) -> str:
        return f"{self.user} throttled for {self.throttle_time_ms} ms by {self.quota}: {self.cause}"


class LogCompacted(EventOfPartition, frozen=True, kw_only=True, tag="cleaner"):
    """A compaction was put in, or was given up (``failure``)."""

    bytes_read: int = 0
    bytes_written: int = 0
    elapsed_ms: int = 0
    failure: str = ""

    @property
    def text(self) -> str:
        if self.failure:
            return f"not compacted: {self.failure}"
        return f"compacted {self.bytes_read} bytes to {self.bytes_written} in {self.elapsed_ms} ms"


class SessionChanged(EventOfBroker, frozen=True, kw_only=True, tag="session"):
    """The session with the coordination store has expired, or another one has begun after that."""

    is_lost: bool

    @property
    def text(self) -> str:
        if self.is_lost:
            return "the session with the coordination store has expired: the broker is not registered"
        return "a new session with the coordination store: the broker is registered again"


class LogDirectoryFailed(EventOfBroker, frozen=True, kw_only=True, tag="log_dir"):
    directory: str
    partitions: int
    cause: str

    @property
    def subject(self) -> str:
        return self.directory

    @property
    def text(self) -> str:
        return f"offline, with {self.partitions} replicas: {self.cause}"


class SlowRequest(EventOfBroker, frozen=True, kw_only=True, tag="slow_request"):
    """A request took longer than ``event.recorder.slow.request.ms``. Times in milliseconds, by phase."""

    by_clients: ClassVar[bool] = True

    request: str
    client_id: str
    connection: str
    duration_ms: int
    queue_ms: int
    local_ms: int
    remote_ms: int
    response_queue_ms: int
    send_ms: int

    @property
    def subject(self) -> str:
        return self.client_id or self.connection

    @property
    def text(self) -> str:
        return (
            f"{self.request} of {self.connection} took {self.duration_ms} ms: in the queue {self.queue_ms}, "
            f"local {self.local_ms}, remote {self.remote_ms}, response queue {self.response_queue_ms}, "
            f"send {self.send_ms}"
        )


class SlowProduce(EventOfPartition, frozen=True, kw_only=True, tag="slow_produce"):
    """A produce with acks=all has waited longer than ``event.recorder.slow.request.ms`` for its replicas."""

    by_clients: ClassVar[bool] = True

    waited_ms: int
    is_committed: bool
    isr: tuple[int, ...]
    cause: str
    """Which replica it waited for, as far as that is known."""

    @property
    def text(self) -> str:
        end = "" if self.is_committed else " and is not committed"
        return f"acks=all waited {self.waited_ms} ms{end}; ISR {_list(self.isr)}: {self.cause}"


class BatchRefused(EventOfPartition, frozen=True, kw_only=True, tag="refused_batch"):
    """A producer's batch had another sequence than the next one (OUT_OF_ORDER_SEQUENCE_NUMBER)."""

    by_clients: ClassVar[bool] = True

    producer_id: int
    producer_epoch: int
    sequence: int
    """The batch's first."""
    last_sequence: int
    """The last one in the log, or tried before in a transaction that begins; -1: none of this epoch."""
    repeats: int = 0
    """How often the same was refused since the event about it before this one."""
    cause: str

    @property
    def text(self) -> str:
        more = f", {self.repeats} times more since the last event" if self.repeats else ""
        return f"a batch is refused, out of order{more}: {self.cause}"


Event: TypeAlias = (
    BrokerStarted
    | BrokerStopped
    | ControllerChanged
    | ControllerStep
    | LeaderElected
    | IsrChanged
    | EpochBegan
    | LogTruncated
    | GroupRebalanced
    | ClientThrottled
    | LogCompacted
    | SessionChanged
    | LogDirectoryFailed
    | SlowRequest
    | SlowProduce
    | BatchRefused
)


KINDS: Final[tuple[str, ...]] = tuple(
    str(each.__struct_config__.tag)
    for each in (
        BrokerStarted,
        BrokerStopped,
        ControllerChanged,
        ControllerStep,
        LeaderElected,
        IsrChanged,
        EpochBegan,
        LogTruncated,
        GroupRebalanced,
        ClientThrottled,
        LogCompacted,
        SessionChanged,
        LogDirectoryFailed,
        SlowRequest,
        SlowProduce,
        BatchRefused,
    )
)
"""Their names, as files and commands have them."""


Record = Callable[[Event], None]
"""Keeps an event. Costs a few microseconds, waits for nothing and never fails."""


def not_recorded(event: Event) -> None:
    """A ``Record`` for where there is no recorder."""


class RecordedEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event and when it was recorded."""

    sequence: int
    """Rises with each event of a broker, also over restarts and when its clock is set back: microseconds
    since the Unix epoch, or one more than the one before. By it the events of several brokers are put into
    one order, which is right as far as their clocks agree, and always right for each of them."""
    at_ms: int
    """The broker's wall clock."""
    left_out: int = 0
    """How many of the kind came since the last one that was kept, and are not."""
    event: Event


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


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which events are wanted."""

    after: int = 0
    """A sequence number."""
    since_ms: int = 0
    """Since the Unix epoch, by the broker's clock."""
    topic: str | None = None
    group: str | None = None
    kinds: Collection[str] = ()
    """Empty: all."""
    subject: str = ""
    """To be found in what it happened to."""
    limit: int = EVENTS_MAX
    is_newest: bool = False
    """Whether ``limit`` lets the newest through, not the oldest."""

    def matches(self, recorded: RecordedEvent) -> bool:
        event = recorded.event
        return (
            recorded.at_ms >= self.since_ms
            and (self.topic is None or getattr(event, "topic", None) == self.topic)
            and (self.group is None or getattr(event, "group", None) == self.group)
            and (not self.kinds or event.kind in self.kinds)
            and self.subject in event.subject
        )


class ShownEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event, with the same things in words."""

    sequence: int
    at_ms: int
    broker: int
    kind: str
    subject: str
    text: str
    left_out: int
    event: Event
    """Its fields."""


def show(broker: int, recorded: RecordedEvent) -> ShownEvent:
    """An event for others."""
    event = recorded.event
    return ShownEvent(
        sequence=recorded.sequence,
        at_ms=recorded.at_ms,
        broker=broker,
        kind=event.kind,
        subject=event.subject,
        text=event.text,
        left_out=recorded.left_out,
        event=event,
    )


def event_filter(arguments: Mapping[str, str]) -> EventFilter:
    """``after``, ``since_ms``, ``topic``, ``group``, ``kind`` (several with commas between), ``subject``, and
    ``limit`` (the oldest) or ``newest`` (of them).

    Raises KafkaError: INVALID_REQUEST.
    """
    known = ("after", "since_ms", "topic", "group", "kind", "subject", "limit", "newest")
    for name in arguments:
        if name not in known:
            raise _invalid(f"Unknown argument {name!r}; events take {', '.join(known)}")
    kinds = tuple(filter(None, arguments.get("kind", "").split(",")))
    for kind in kinds:
        if kind not in KINDS:
            raise _invalid(f"There is no kind of event {kind!r}: there are {', '.join(KINDS)}")
    return EventFilter(
        after=_number(arguments, "after", 0, 0),
        since_ms=_number(arguments, "since_ms", 0, 0),
        topic=arguments.get("topic"),
        group=arguments.get("group"),
        kinds=kinds,
        subject=arguments.get("subject", ""),
        limit=min(
            _number(arguments, "newest" if "newest" in arguments else "limit", 1, EVENTS_MAX), EVENTS_MAX
        ),
        is_newest="newest" in arguments,
    )


def _number(arguments: Mapping[str, str], name: str, least: int, default: int) -> int:
    text = arguments.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 18 or int(text) < least:
        raise _invalid(f"{name}={text}: must be a whole number of at least {least}")
    return int(text)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
