"""What is followed: trace sessions, which clients start and end, and the one of ``trace.one.in``.

A session chooses batches by their base offset (one in N) or by the trace id in a record's ``traceparent``.
Both are the same on every replica, so that all brokers choose the same batches without a word between them.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from minikafka.errors import ErrorCode, KafkaError
from minikafka.types import TOPIC_NAME_LENGTH_MAX, TopicPartition

if TYPE_CHECKING:
    from minikafka.server.tracing.tracer import Trace

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
