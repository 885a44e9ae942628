"""The way of a batch through one broker, noted step by step while a trace session runs.

Clients start and end sessions; ``trace.one.in`` is one, too. A session chooses batches by their base offset
(one in N) or by the trace id in a record's ``traceparent``. Both are the same on every replica, so that all
brokers choose the same batches without a word between them.

Points on the way of a produce, of a fetch and of replication look at ``Tracer.is_on`` and, nearly always, go
on. While a session runs they say what happens, and the tracer finds the batches that it is about:

==========================  =================================================================================
step                        of which broker, and when
==========================  =================================================================================
received                    leader: its request was read from the socket
validated                   leader: batch header, CRC and records are as they must be
appended                    leader: in the log, at these offsets
refused                     leader: not appended, and why
parked                      leader: the request waits in the purgatory, under these keys
sent_to_follower            leader: in the answer to a follower's fetch
follower_appended           follower: in its log
follower_has                leader: the follower's next fetch begins behind it
high_watermark_moved        leader, followers: past it, and what moved it
woken                       leader: the parked request, and by what
answered                    leader: there is an answer
sent                        leader: the socket has the answer
consumed                    leader or follower: in the answer to a consumer's fetch
==========================  =================================================================================

Invariants: what sessions and traces cost is bounded, by the constants here; a tracer
raises nothing on the way of a request, and changes nothing of it.

Times are those of the wall clock as it stood when the first of the running sessions began, so that they never
go back while it runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol
from uuid import UUID

import msgspec

from minikafka.clock import Clock
from minikafka.deferred import deferred
from minikafka.errors import ErrorCode, KafkaError
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.records.batch import BatchHeader, iterate_headers
from minikafka.protocol.records.compression import CorruptBatch
from minikafka.server.cluster.topic_validation import is_internal
from minikafka.system_clock import wall_ns as system_wall_ns
from minikafka.types import TOPIC_NAME_LENGTH_MAX, BrokerId, Buffer, TopicPartition

if TYPE_CHECKING:
    from minikafka.server.tracing import spans
    from minikafka.server.tracing.spans import TraceContext
else:
    spans = deferred("minikafka.server.tracing.spans")

SESSION_NAME_LENGTH_MAX: Final = 64
SESSION_SECONDS_MAX: Final = 3600
SESSION_TRACES_MAX: Final = 100
"""Kept of a session, the newest: with ``STEPS_MAX`` each that is 3 MB at most."""

CONFIGURED: Final = "trace.one.in"
"""The name of the session that the property of that name stands for."""

_GOLDEN: Final = 0x9E37_79B9_7F4A_7C15
"""2^64 divided by the golden ratio (Knuth, 6.4): its multiples are spread evenly, whatever N is."""
_STRIDE: Final = 1_000_003
"""Between partitions, so that they do not choose the same offsets."""
_MASK: Final = (1 << 64) - 1

_NS_PER_SECOND: Final = 1_000_000_000

SESSIONS_MAX: Final = 8
"""At a time, those included whose traces are still to be read."""
FOLLOWED_MAX: Final = 256
"""Traces that steps are added to; the oldest are left as they are."""
STEPS_MAX: Final = 64
"""Of a trace: a topic may have many consumers."""
TEXT_LENGTH_MAX: Final = 200
"""Of what comes from a client, which may give itself a name of 32 KiB."""
KEPT_NS: Final = 60_000_000_000
"""How long the traces of a session can be read after its time."""
FOREVER_NS: Final = 1 << 63
BATCHES_MAX: Final = 1_000
"""Looked at in one answer to a fetch: 0.5 ms."""


class SessionOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a client asks for, as JSON."""

    seconds: Annotated[int, msgspec.Meta(ge=1, le=SESSION_SECONDS_MAX)] = 60
    topic: Annotated[str, msgspec.Meta(max_length=TOPIC_NAME_LENGTH_MAX)] | None = None
    """None: all topics."""
    one_in: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    trace_id: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}$")] | None = None

    def __post_init__(self) -> None:
        if (self.one_in is None) == (self.trace_id is None):
            raise ValueError("give either one_in or trace_id")
        if self.trace_id is not None and self.topic is None:
            raise ValueError("trace_id needs a topic")


def read_options(text: str | None) -> SessionOptions:
    """Raises KafkaError: INVALID_CONFIG, and what is wrong."""
    try:
        return msgspec.json.decode(text or "", type=SessionOptions)
    except (msgspec.DecodeError, ValueError) as error:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f'{error}. A trace session is JSON like {{"topic": "orders", "one_in": 100, "seconds": 60}}',
        ) from None


class TraceSession:
    """What one client, or the configuration, wants followed, and what was."""

    __slots__ = ("_one_in", "_topic", "begun", "ends_ns", "name", "options", "traces")

    def __init__(self, name: str, options: SessionOptions, *, ends_ns: int | None) -> None:
        self.name = name
        self.options = options
        self._topic = options.topic
        self._one_in = options.one_in
        self.ends_ns = ends_ns
        """By the monotonic clock; None: when it is told to."""
        self.traces: deque[Trace] = deque(maxlen=SESSION_TRACES_MAX)
        self.begun = 0
        """Traces, with those that are gone from ``traces``."""

    def __repr__(self) -> str:
        return f"TraceSession({self.name}, {self.options}, {self.begun} traces)"

    def is_over(self, now_ns: int) -> bool:
        return self.ends_ns is not None and now_ns >= self.ends_ns

    def may_choose(self, topic_partition: TopicPartition, first_offset: int) -> bool:
        """Whether it chooses a batch that begins there, or has to see it first."""
        if self._topic is not None and self._topic != topic_partition.topic:
            return False
        return self._one_in is None or is_chosen(topic_partition, first_offset, one_in=self._one_in)

    def keep(self, trace: Trace) -> None:
        self.begun += 1
        self.traces.append(trace)


def is_chosen(topic_partition: TopicPartition, first_offset: int, *, one_in: int) -> bool:
    """One batch in ``one_in`` on average, the same ones on each replica."""
    mixed = (first_offset + topic_partition.partition * _STRIDE) * _GOLDEN & _MASK
    return (mixed >> 32) % one_in == 0


def ends_ns(options: SessionOptions, *, now_ns: int) -> int:
    return now_ns + options.seconds * _NS_PER_SECOND


class Step(NamedTuple):
    """Something that has happened to a batch."""

    name: str
    at_ns: int
    """Since the epoch."""
    detail: dict[str, Any]


class Trace:
    """A batch, and what has happened to it on this broker."""

    __slots__ = (
        "context", "dropped_steps", "first_offset", "holders", "is_committed", "last_offset", "sent_to",
        "steps", "topic_partition",
    )  # fmt: skip

    def __init__(
        self, topic_partition: TopicPartition, context: TraceContext, *, first_offset: int, last_offset: int
    ) -> None:
        self.topic_partition = topic_partition
        self.context = context
        self.first_offset = first_offset
        """Where it is, or would have been."""
        self.last_offset = last_offset
        self.steps: list[Step] = []
        self.dropped_steps = 0
        self.is_committed = False
        self.sent_to: dict[int, int] = {}
        """Followers that got it, and when."""
        self.holders: set[int] = set()
        """Followers that have told that they have it."""

    def __repr__(self) -> str:
        names = ", ".join(step.name for step in self.steps)
        return f"Trace({self.topic_partition} from {self.first_offset} to {self.last_offset}: {names})"

    def is_replicated(self) -> bool:
        """Committed, and with all followers that it was sent to."""
        return self.is_committed and self.sent_to.keys() <= self.holders

    def add(self, step: Step) -> None:
        if len(self.steps) < STEPS_MAX:
            detail = {
                name: value[:TEXT_LENGTH_MAX] if isinstance(value, str) else value
                for name, value in step.detail.items()
            }
            self.steps.append(step._replace(detail=detail))
        else:
            self.dropped_steps += 1


class Reader(NamedTuple):
    """Who fetches."""

    replica_id: int
    """Of a follower; negative of others."""
    client_id: str
    peer: str
    share_group: str | None = None
    """Of a member of one."""


class SpanSink(Protocol):
    """Takes what is to be exported, without a wait (``spans.OtlpExporter``)."""

    exported: int
    dropped: int

    def add(self, spans: Iterable[spans.Span]) -> None: ...


class Tracer:
    """A broker's."""

    __slots__ = (
        "_active", "_clock", "_ends_ns", "_followed", "_node_id", "_open", "_order", "_sessions", "_wall_ns",
        "_wall_offset_ns", "exporter", "is_on",
    )  # fmt: skip

    def __init__(
        self, *, node_id: BrokerId, clock: Clock, wall_ns: Callable[[], int] = system_wall_ns
    ) -> None:
        self.is_on = False
        """Whether a session runs: all that a hot path looks at while none does."""
        self.exporter: SpanSink | None = None
        self._node_id = node_id
        self._clock = clock
        self._wall_ns = wall_ns
        self._wall_offset_ns = 0
        self._sessions: dict[str, TraceSession] = {}
        self._active: tuple[TraceSession, ...] = ()
        """Those that run."""
        self._ends_ns = FOREVER_NS
        """When the first of them is over."""
        self._followed: dict[TopicPartition, dict[int, Trace]] = {}
        """By the first offset."""
        self._open: dict[TopicPartition, list[Trace]] = {}
        """Those of which a follower or the high watermark has more to tell."""
        self._order: deque[Trace] = deque()
        """The same, oldest first."""

    def __repr__(self) -> str:
        return f"Tracer({'on' if self.is_on else 'off'}, {list(self._sessions)}, follows {len(self._order)})"

    # Sessions

    def start(self, name: str, options: SessionOptions) -> None:
        """Begin a session, or restart it.

        Raises:
            KafkaError: INVALID_REQUEST for a name that is empty, too long or the broker's own;
                POLICY_VIOLATION: there are too many.
        """
        if not 0 < len(name) <= SESSION_NAME_LENGTH_MAX or name == CONFIGURED:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"A trace session has a name of 1 to {SESSION_NAME_LENGTH_MAX} characters, not {CONFIGURED}",
            )
        now_ns = self._clock.monotonic_ns()
        self._forget_old(now_ns)
        clients = [each for each in self._sessions if each not in (CONFIGURED, name)]
        if len(clients) >= SESSIONS_MAX:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{SESSIONS_MAX} trace sessions run on broker {self._node_id} already: {', '.join(clients)}",
            )
        self._begin_session(TraceSession(name, options, ends_ns=ends_ns(options, now_ns=now_ns)))

    def follow_one_in(self, count: int) -> None:
        """``trace.one.in`` has this value now; 0: nothing is followed for it."""
        current = self._sessions.get(CONFIGURED)
        if count == 0:
            self.end(CONFIGURED)
        elif current is None or current.options.one_in != count:
            self._begin_session(TraceSession(CONFIGURED, SessionOptions(one_in=count), ends_ns=None))

    def _begin_session(self, session: TraceSession) -> None:
        if not self.is_on:
            self._wall_offset_ns = self._wall_ns() - self._clock.monotonic_ns()
        self._sessions[session.name] = session
        self._settle(self._clock.monotonic_ns())

    def end(self, name: str) -> None:
        """End a session and forget its traces. Harmless when there is none."""
        self._sessions.pop(name, None)
        self._settle(self._clock.monotonic_ns())

    def end_of_client(self, name: str) -> None:
        """``end``, for a client. Raises KafkaError: INVALID_REQUEST: the session is the configuration's."""
        if name == CONFIGURED:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Session {name} ends when the property {name} is set to 0"
            )
        self.end(name)

    def session(self, name: str) -> TraceSession | None:
        """The session of that name, for a minute after its time too."""
        self._forget_old(self._clock.monotonic_ns())
        return self._sessions.get(name)

    def sessions(self) -> list[TraceSession]:
        self._forget_old(self._clock.monotonic_ns())
        return list(self._sessions.values())

    def now_ns(self) -> int:
        """By the clock of the steps."""
        return self._clock.monotonic_ns() + self._wall_offset_ns

    def monotonic_ns(self) -> int:
        """For ``received_ns`` of ``begin``."""
        return self._clock.monotonic_ns()

    def _forget_old(self, now_ns: int) -> None:
        for session in list(self._sessions.values()):
            if session.is_over(now_ns - KEPT_NS):
                del self._sessions[session.name]
        self._settle(now_ns)

    def _settle(self, now_ns: int) -> None:
        self._active = tuple(each for each in self._sessions.values() if not each.is_over(now_ns))
        self._ends_ns = min((each.ends_ns or FOREVER_NS for each in self._active), default=FOREVER_NS)
        self.is_on = bool(self._active)
        if not self.is_on:
            self._followed.clear()
            self._open.clear()
            self._order.clear()

    def _running(self) -> tuple[TraceSession, ...]:
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._ends_ns:
            self._settle(now_ns)
        return self._active

    # Choosing

    def covers(self, topic: str) -> bool:
        """Whether batches of the topic may have to be followed. Those of coordinators come by no Produce."""
        return not is_internal(topic) and any(each.options.topic in (None, topic) for each in self._running())

    def may_choose(self, topic_partition: TopicPartition, first_offset: int) -> bool:
        """Whether a batch that is appended there may have to be followed."""
        for session in self._running():  # noqa: SIM110 - a generator takes twice the time
            if session.may_choose(topic_partition, first_offset):
                return True
        return False

    def begin(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        batch: Buffer,
        *,
        first_offset: int,
        received_ns: int,
        **detail: object,
    ) -> Trace | None:
        """Follow a producer's batch that is about to be appended, if a session wants that. ``received_ns``,
        by the monotonic clock: when its request was read."""
        sessions = self._choosing(topic_partition, first_offset)
        header = next(_headers(batch), None) if sessions else None
        if header is None:
            return None
        trace = self._follow(sessions, topic_partition, topic_id, memoryview(batch), header, first_offset)
        if trace is not None:
            trace.add(Step("received", received_ns + self._wall_offset_ns, detail))
        return trace

    def _choosing(self, topic_partition: TopicPartition, first_offset: int) -> list[TraceSession]:
        return [each for each in self._running() if each.may_choose(topic_partition, first_offset)]

    def _follow(
        self,
        sessions: list[TraceSession],
        topic_partition: TopicPartition,
        topic_id: UUID,
        batch: memoryview,
        header: BatchHeader,
        first_offset: int,
    ) -> Trace | None:
        """The trace of a batch, for those of ``sessions`` that want it after all."""
        if header.is_control:
            return None
        by_offset = [each for each in sessions if each.options.trace_id is None]
        if not by_offset and header.record_count != 1:  # whom a session waits for writes one record a batch
            return None
        context = spans.find_trace_context(batch, header)
        wanting = by_offset + [
            each
            for each in sessions
            if context is not None and header.record_count == 1 and each.options.trace_id == context.trace_id
        ]
        if not wanting:
            return None
        if context is None:
            context = spans.new_trace_context(topic_id, topic_partition.partition, first_offset)
        trace = Trace(
            topic_partition,
            context,
            first_offset=first_offset,
            last_offset=first_offset + header.last_offset_delta,
        )
        for session in wanting:
            session.keep(trace)
        self._followed.setdefault(topic_partition, {})[first_offset] = trace
        self._open.setdefault(topic_partition, []).append(trace)
        self._order.append(trace)
        if len(self._order) > FOLLOWED_MAX:
            self._leave(self._order.popleft())
        return trace

    def _leave(self, trace: Trace) -> None:
        """No more steps from events of the partition."""
        followed = self._followed.get(trace.topic_partition, {})
        if followed.get(trace.first_offset) is trace:
            del followed[trace.first_offset]
            if not followed:
                del self._followed[trace.topic_partition]
        self._shut(trace.topic_partition, lambda each: each is trace)

    def _shut(self, topic_partition: TopicPartition, is_whole: Callable[[Trace], bool]) -> None:
        still_open = [each for each in self._open.get(topic_partition, ()) if not is_whole(each)]
        if still_open:
            self._open[topic_partition] = still_open
        else:
            self._open.pop(topic_partition, None)

    def follows(self, topic_partition: TopicPartition) -> bool:
        """Whether an append there, or a high watermark that moves, may be a step of a trace."""
        return topic_partition in self._open

    # Steps of the request

    def note(self, trace: Trace, name: str, **detail: object) -> None:
        """``name`` happens to it now."""
        trace.add(Step(name, self.now_ns(), detail))

    def appended(self, topic_partition: TopicPartition, first_offset: int, **detail: object) -> None:
        """The batch that is followed there is in the log."""
        trace = self._followed.get(topic_partition, {}).get(first_offset)
        if trace is not None:
            self.note(trace, "appended", first_offset=first_offset, **detail)

    def refused(self, trace: Trace, error: KafkaError) -> None:
        """It was not appended."""
        self._leave(trace)
        self.note(trace, "refused", error=error.code.name, message=error.message)

    def duplicate(self, trace: Trace, first_offset: int) -> None:
        """It was appended before."""
        self._leave(trace)
        self.note(trace, "duplicate", first_offset=first_offset)

    def finished(self, trace: Trace) -> None:
        """The request that brought it has no more steps."""
        self._export(trace, spans.of_produce(trace, self._node_id))

    # Steps of the partition

    def follower_fetched(
        self, topic_partition: TopicPartition, replica_id: int, *, fetch_offset: int
    ) -> None:
        """On the leader: a follower has all below ``fetch_offset``."""
        if topic_partition not in self._open:
            return
        for trace in self._open[topic_partition]:
            if trace.last_offset < fetch_offset and replica_id not in trace.holders:
                trace.holders.add(replica_id)
                self.note(trace, "follower_has", replica=replica_id, fetch_offset=fetch_offset)
                since_ns = trace.sent_to.get(replica_id)
                if since_ns is not None:
                    span = spans.of_replication(trace, self._node_id, replica_id, since_ns, self.now_ns())
                    self._export(trace, (span,))
        self._shut(topic_partition, Trace.is_replicated)

    def high_watermark_moved(self, topic_partition: TopicPartition, high_watermark: int, cause: str) -> None:
        """On any replica."""
        if topic_partition not in self._open:
            return
        for trace in self._open[topic_partition]:
            if trace.last_offset < high_watermark and not trace.is_committed:
                trace.is_committed = True
                self.note(trace, "high_watermark_moved", high_watermark=high_watermark, cause=cause)
        self._shut(topic_partition, Trace.is_replicated)

    def follower_appended(
        self, topic_partition: TopicPartition, topic_id: UUID, records: Buffer, *, leader_id: int
    ) -> None:
        """On a follower: ``records`` are in its log."""
        view, position = memoryview(records), 0
        for header in _headers(records):
            sessions = self._choosing(topic_partition, header.base_offset)
            if sessions:
                batch = view[position : position + header.size]
                trace = self._follow(sessions, topic_partition, topic_id, batch, header, header.base_offset)
                if trace is not None:
                    self.note(trace, "follower_appended", leader=leader_id, bytes=header.size)
                    self._export(trace, (spans.of_follower_append(trace, self._node_id),))
            position += header.size

    def sent(
        self, topic_partition: TopicPartition, records: Buffer, *, fetch_offset: int, reader: Reader
    ) -> None:
        """``records`` are in the answer to a fetch at ``fetch_offset``."""
        for trace in self._in(topic_partition, records, fetch_offset):
            if reader.replica_id < 0:
                group = {} if reader.share_group is None else {"share_group": reader.share_group}
                self.note(trace, "consumed", client=reader.client_id, peer=reader.peer, **group)
                self._export(
                    trace,
                    (spans.of_consumer_fetch(trace, self._node_id, reader.client_id[:TEXT_LENGTH_MAX]),),
                )
            elif reader.replica_id not in trace.sent_to:
                trace.sent_to[reader.replica_id] = self.now_ns()
                opened = self._open.setdefault(topic_partition, [])
                if trace not in opened:
                    opened.append(trace)
                self.note(trace, "sent_to_follower", replica=reader.replica_id, fetch_offset=fetch_offset)

    def has_followed(self, topic_partition: TopicPartition, records: Buffer) -> bool:
        """Whether a batch is followed that is among ``records``."""
        return any(True for _ in self._in(topic_partition, records, 0))

    def _in(self, topic_partition: TopicPartition, records: Buffer, fetch_offset: int) -> Iterator[Trace]:
        followed = self._followed.get(topic_partition)
        if not followed or not any(trace.last_offset >= fetch_offset for trace in followed.values()):
            return
        for header in _headers(records):
            trace = followed.get(header.base_offset)
            if trace is not None and header.last_offset >= fetch_offset:
                yield trace

    def _export(self, trace: Trace, made: Iterable[spans.Span]) -> None:
        if self.exporter is not None and trace.context.is_sampled:
            self.exporter.add(made)


def _headers(records: Buffer) -> Iterator[BatchHeader]:
    """Of the whole batches, as far as they are looked at."""
    try:
        for _, header in islice(iterate_headers(records), BATCHES_MAX):
            yield header
    except CorruptBatch:
        return
