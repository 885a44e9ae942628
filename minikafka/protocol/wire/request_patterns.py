"""Requests that repeat the one before but for a few fields, of which only the difference is read.

**Fetch** of a consumer without a session, which is its last one at other offsets.

A ``FetchAnswer`` is written partition by partition, without a value for each in between.

Measured (µs, 40 topics of 4 partitions): recognised and cut 65, against 150 for reading header and body; an
answer without records 40, against 145.

**Produce**, which is the producer's last one with other records. One batch for one partition is what
producers send nearly always, and what lies around the records hardly changes: api key, version, client and
transactional id, acks, timeout, topic. A ``ProducePattern`` is made of one such request and recognises the
next by comparing bytes; what is new are the correlation id, the partition and the records. The answer without
an error differs just as little. From version 9 on the size of the records is a varint, and tagged fields may
follow.

Measured (µs, 100-byte records): recognised and cut 0.5, against 2.5 for reading header and body; packed
answer 0.35 against 0.8.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final
from uuid import UUID

from minikafka.errors import PeerProtocolError
from minikafka.protocol.records.batch import (
    ATTRIBUTES_LOW_AT,
    COMPRESSION_MASK,
    HEADER_SIZE,
    TRANSACTIONAL_MASK,
)
from minikafka.protocol.records.compression import CompressionType
from minikafka.protocol.wire.codec import RequestHeader
from minikafka.protocol.wire.fast_paths import FETCH_TOPIC_IDS_SINCE, plain_produce_answer
from minikafka.protocol.wire.produce_request import FLEXIBLE_SINCE, ZSTD_SINCE, ProduceRequest
from minikafka.protocol.wire.reading import read_unsigned_varint
from minikafka.protocol.wire.writing import unsigned_varint
from minikafka.types import Buffer

_I32 = Struct(">i")

PATTERN_BYTES_MAX: Final = 1 << 20
"""Of a request that is cut here, about 30,000 partitions: far from what may not be read in one go."""

_REPLICA_STATE_SINCE: Final = 15
_LIMITS_BYTES: Final = 21
"""Max wait, min bytes, max bytes, isolation level, session id and epoch; behind the replica id up to version
14, which has four more."""
_NO_SESSION: Final = (0, -1)
_CORRELATION_ID_AT: Final = 4
"""In the request behind api key and version, in the answer behind its size."""
_FIXED_FROM: Final = 8
_TOPIC_ID_BYTES: Final = 16

WantedFields = tuple[int, int, int, int, int, int]
"""Partition, current leader epoch, fetch offset, last fetched epoch, log start offset, max bytes."""

_WANTED = Struct(">iiqiqix")
"""With the byte behind it: no tagged fields."""
_TAGS_AT: Final = _WANTED.size - 1

# The answer ------------------------------------------------------------------------------------------------
_HEAD = Struct(">iiBihi")
"""Size, correlation id, no tagged fields; throttle time, error code, session id."""
_PARTITION = Struct(">ihqqq")
_NOTHING = Struct(">ihqqqBiBB")
"""A partition with its aborted transactions (none or null), no preferred replica, no records, no tags."""
_PREFERRED = Struct(">i")
_ABORTED = Struct(">qqB")
_NO_REPLICA: Final = -1


class ProducePattern:
    """What a Produce request has in common with the next one like it. Made by ``produce_pattern``."""

    __slots__ = (
        "_answer", "_begin", "_expected", "_frame_bytes_min", "_header", "_records_at", "acks",
        "is_transactional", "timeout_ms", "topic", "topic_id",
    )  # fmt: skip

    _SIZE_BYTES_MIN = 4
    _SIZE_FORMAT = "i"
    """Of the records."""
    _END = b""
    """Behind them."""

    def __init__(self, header: RequestHeader, request: ProduceRequest, frame: memoryview, end: int) -> None:
        """``end``: where the partition is, behind which the size of the records and they follow."""
        topic = request.topic_data[0]
        self.is_transactional = request.transactional_id is not None
        self.acks = request.acks
        self.timeout_ms = request.timeout
        self.topic = topic.name
        self.topic_id: UUID | None = topic.topic_id
        self._header = header
        head, fixed = bytes(frame[:_CORRELATION_ID_AT]), bytes(frame[_FIXED_FROM:end])
        between = _FIXED_FROM - _CORRELATION_ID_AT
        self._begin = Struct(f">{len(head)}s{between}x{len(fixed)}si{self._SIZE_FORMAT}").unpack_from
        self._expected = (head, fixed)
        self._records_at = end + _I32.size
        self._frame_bytes_min = self._records_at + self._SIZE_BYTES_MIN + HEADER_SIZE + len(self._END)
        self._answer = plain_produce_answer(topic.name, topic.topic_id, version=header.api_version)

    def __repr__(self) -> str:
        return f"ProducePattern({self.topic or self.topic_id}, acks={self.acks})"

    def cut(self, frame: memoryview) -> tuple[int, memoryview] | None:
        """The partition and the records of a request that follows the pattern; the records are part of a
        transaction if its were. None for any other."""
        size = len(frame)
        if size < self._frame_bytes_min:
            return None
        head, fixed, index, length = self._begin(frame)
        at = self._records_at + 4
        if (head, fixed) != self._expected or at + length != size:
            return None
        attributes = frame[at + ATTRIBUTES_LOW_AT]
        if (attributes & TRANSACTIONAL_MASK != 0) is not self.is_transactional:
            return None
        if attributes & COMPRESSION_MASK >= CompressionType.ZSTD and self._header.api_version < ZSTD_SINCE:
            return None  # it is refused
        return index, frame[at:]

    def answer(
        self,
        frame: memoryview,
        index: int,
        base_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
    ) -> bytes:
        """The whole frame that answers the request in ``frame``, which was appended to that partition."""
        (correlation_id,) = _I32.unpack_from(frame, _CORRELATION_ID_AT)
        return self._answer(correlation_id, index, base_offset, log_append_time_ms, log_start_offset)

    def header(self, answer: bytes) -> RequestHeader:
        """The header of the request that ``answer`` was made for, when another one is needed."""
        (correlation_id,) = _I32.unpack_from(answer, _CORRELATION_ID_AT)
        return self._header._replace(correlation_id=correlation_id)


class FlexibleProducePattern(ProducePattern):
    """Of version 9 and later."""

    __slots__ = ()

    _SIZE_BYTES_MIN = 1
    _SIZE_FORMAT = "BB"  # its first two bytes
    _END = bytes(3)
    """No tagged fields of the partition, the topic and the request."""

    def cut(self, frame: memoryview) -> tuple[int, memoryview] | None:
        size = len(frame)
        if size < self._frame_bytes_min:
            return None
        head, fixed, index, first, second = self._begin(frame)
        if (head, fixed) != self._expected:
            return None
        if first < 0x80:  # the size of the records, and 1
            at, length = self._records_at + 1, first
        elif second < 0x80:
            at, length = self._records_at + 2, first & 0x7F | second << 7
        else:
            at, length = _unsigned_varint_in(frame, self._records_at)
        end = size - 3
        if at + length - 1 != end or length <= HEADER_SIZE or frame[end:] != self._END:
            return None
        if (frame[at + ATTRIBUTES_LOW_AT] & TRANSACTIONAL_MASK != 0) is not self.is_transactional:
            return None
        return index, frame[at:end]


def produce_pattern(
    header: RequestHeader, request: ProduceRequest, frame: memoryview
) -> ProducePattern | None:
    """The pattern of a request that was just read from ``frame``; None when it is not of the usual kind."""
    topics = request.topic_data
    if len(topics) != 1 or len(topics[0].partition_data) != 1:
        return None
    records = topics[0].partition_data[0].records
    if records is None:
        return None
    kind, size = ProducePattern, _I32.pack(len(records))
    if header.api_version >= FLEXIBLE_SINCE:
        kind, size = FlexibleProducePattern, unsigned_varint(len(records) + 1)
    partition_at = len(frame) - len(kind._END) - len(records) - len(size) - _I32.size
    pattern = kind(header, request, frame, partition_at)
    # Not so with tagged fields behind the records, or a size in more bytes than it needs.
    return pattern if pattern.cut(frame) == (topics[0].partition_data[0].index, records) else None


def _unsigned_varint_in(frame: memoryview, position: int) -> tuple[int, int]:
    """Where a number ends, and the number. One that is cut off is taken for what there is of it."""
    value = shift = 0
    for byte in frame[position : position + 5]:
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return position, value


class FetchPattern:
    """What a Fetch request has in common with the next one like it. Made by ``of``."""

    __slots__ = ("_fixed", "_head", "_tail", "_topics_at")

    def __init__(self, frame: memoryview, topics_at: int, tail: bytes) -> None:
        self._head = bytes(frame[:_CORRELATION_ID_AT])
        self._fixed = bytes(frame[_FIXED_FROM:topics_at])
        self._topics_at = topics_at
        self._tail = tail

    def __repr__(self) -> str:
        return f"FetchPattern({self._fixed!r} … {self._tail!r})"

    @classmethod
    def of(cls, header: RequestHeader, request: Any, frame: memoryview) -> FetchPattern | None:
        """The pattern of a request that was just read from ``frame``; None when it is not of the usual kind:
        by topic ids, without a session, without tagged fields."""
        version = header.api_version
        if version < FETCH_TOPIC_IDS_SINCE or (request.session_id, request.session_epoch) != _NO_SESSION:
            return None
        topics_at = header.body_start + _LIMITS_BYTES + (0 if version >= _REPLICA_STATE_SINCE else 4)
        rack = request.rack_id.encode()
        tail = b"\x01" + unsigned_varint(len(rack) + 1) + rack + b"\0"
        pattern = cls(frame, topics_at, tail)
        return pattern if pattern.topics_in(frame) is not None else None

    def matches(self, frame: memoryview) -> bool:
        """Whether all around the topics is as in the pattern."""
        return (
            frame[:_CORRELATION_ID_AT] == self._head
            and frame[_FIXED_FROM : self._topics_at].tobytes() == self._fixed
            and frame[-len(self._tail) :].tobytes() == self._tail
        )

    def topics_in(self, frame: memoryview) -> list[tuple[bytes, list[WantedFields]]] | None:
        """Topic ids, with what is wanted of their partitions, of a request that follows the pattern; None for
        any other, and where a partition is named twice."""
        if len(frame) > PATTERN_BYTES_MAX or not self.matches(frame):
            return None
        try:
            return _cut(frame, self._topics_at, len(frame) - len(self._tail))
        except (IndexError, PeerProtocolError):  # the slow path says what is wrong
            return None


def _cut(frame: memoryview, at: int, end: int) -> list[tuple[bytes, list[WantedFields]]] | None:
    """The topics that lie exactly between ``at`` and ``end``. Raises IndexError, PeerProtocolError."""
    width, unpack_all = _WANTED.size, _WANTED.iter_unpack
    count, at = read_unsigned_varint(frame, at)
    topics: list[tuple[bytes, list[WantedFields]]] = []
    named: dict[bytes, set[int]] = {}
    previous = b""
    for _ in range(count - 1):
        topic_id = frame[at : at + _TOPIC_ID_BYTES].tobytes()
        partitions, at = read_unsigned_varint(frame, at + _TOPIC_ID_BYTES)
        stop = at + (partitions - 1) * width
        if partitions < 2 or stop >= end or frame[stop] or any(frame[at + _TAGS_AT : stop : width]):
            return None
        wanted: list[Any] = list(unpack_all(frame[at:stop]))
        indexes = {each[0] for each in wanted}
        if topic_id in named:
            if topic_id == previous or not indexes.isdisjoint(named[topic_id]):
                return None
            named[topic_id] |= indexes
        else:
            named[topic_id] = indexes
        if len(indexes) < len(wanted):
            return None
        topics.append((topic_id, wanted))
        previous = topic_id
        at = stop + 1
    return topics if topics and at == end else None


class FetchAnswer:
    """The frame that answers a request of a pattern, without throttling, session and errors."""

    __slots__ = ("_buffers", "_out")

    def __init__(self, frame: memoryview, topics: int) -> None:
        """To the request in ``frame``; ``topics`` are to come."""
        self._out = bytearray(_HEAD.size)
        self._out[4:8] = frame[_CORRELATION_ID_AT : _CORRELATION_ID_AT + 4]
        self._out += unsigned_varint(topics + 1)
        self._buffers: list[Buffer] = []

    def begin_topic(self, topic_id: bytes, partitions: int) -> None:
        self._out += topic_id
        self._out += unsigned_varint(partitions + 1)

    def end_topic(self) -> None:
        self._out.append(0)

    def add_standing(
        self,
        index: int,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        tells_aborted: bool,
    ) -> None:
        """A partition without records; ``tells_aborted``: that no transaction in them was."""
        self._out += _NOTHING.pack(
            index, 0, high_watermark, last_stable_offset, log_start_offset, tells_aborted, _NO_REPLICA, 1, 0
        )

    def add_records(
        self,
        index: int,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        aborted: Sequence[tuple[int, int]] | None,
        records: Buffer,
    ) -> None:
        """A partition with ``records``, which are sent as they are."""
        out = self._out
        out += _PARTITION.pack(index, 0, high_watermark, last_stable_offset, log_start_offset)
        out += b"\0" if aborted is None else unsigned_varint(len(aborted) + 1)
        for producer_id, first_offset in aborted or ():
            out += _ABORTED.pack(producer_id, first_offset, 0)
        out += _PREFERRED.pack(_NO_REPLICA)
        out += unsigned_varint(len(records) + 1)
        if records:
            self._buffers += (out, records)
            self._out = bytearray(1)
        else:
            out.append(0)

    def finish(self) -> list[Buffer]:
        """The frame, in buffers to be sent in order."""
        self._out.append(0)
        buffers = [*self._buffers, self._out]
        size = sum(map(len, buffers)) - 4
        first: Any = buffers[0]
        first[:4] = size.to_bytes(4)
        return buffers
