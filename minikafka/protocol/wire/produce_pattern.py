"""The next Produce request of a producer is its last one with other records: so only the difference is read.

One batch for one partition in a flexible version (9 and later) is what producers send nearly always, and what
lies around the records hardly changes: api key, version, client and transactional id, acks, timeout, topic,
partition. A
``ProducePattern`` is made of one such request and recognises the next by comparing bytes; what is new are the
correlation id and the records. The answer without an error differs just as little.

Measured (µs, 100-byte records): recognised and cut 0.5, against 2.5 for reading header and body; packed
answer 0.35 against 0.8.
"""

from __future__ import annotations

from struct import Struct
from typing import Final
from uuid import UUID

from minikafka.protocol.records.batch import ATTRIBUTES_LOW_AT, HEADER_SIZE, TRANSACTIONAL_MASK
from minikafka.protocol.wire.codec import RequestHeader
from minikafka.protocol.wire.fast_paths import plain_produce_answer
from minikafka.protocol.wire.produce_request import FLEXIBLE_SINCE, TOPIC_IDS_SINCE, ProduceRequest
from minikafka.protocol.wire.writing import unsigned_varint

_I32 = Struct(">i")
_CORRELATION_ID_AT: Final = 4
"""In the request behind api key and version, in the answer behind its size."""
_FIXED_FROM: Final = 8
_NO_TAGS: Final = bytes(3)
"""Behind the records: no tagged fields of the partition, the topic and the request."""


class ProducePattern:
    """What a Produce request has in common with the next one like it. Made by ``of``."""

    __slots__ = (
        "_answer", "_begin", "_expected", "_frame_bytes_min", "_header", "_records_at", "acks", "index",
        "is_transactional", "timeout_ms", "topic", "topic_id",
    )  # fmt: skip

    def __init__(self, header: RequestHeader, request: ProduceRequest, head: bytes, fixed: bytes) -> None:
        topic = request.topic_data[0]
        self.is_transactional = request.transactional_id is not None
        self.acks = request.acks
        self.timeout_ms = request.timeout
        self.topic = topic.name
        self.topic_id: UUID | None = topic.topic_id
        self.index = topic.partition_data[0].index
        self._header = header
        self._begin = Struct(f"{len(head)}s{_FIXED_FROM - len(head)}x{len(fixed)}sBB").unpack_from
        self._expected = (head, fixed)
        self._records_at = _FIXED_FROM + len(fixed)
        self._frame_bytes_min = self._records_at + 1 + HEADER_SIZE + len(_NO_TAGS)
        self._answer = plain_produce_answer(
            topic.name, topic.topic_id, self.index, by_id=header.api_version >= TOPIC_IDS_SINCE
        )

    def __repr__(self) -> str:
        return f"ProducePattern({self.topic or self.topic_id}-{self.index}, acks={self.acks})"

    @classmethod
    def of(cls, header: RequestHeader, request: ProduceRequest, frame: memoryview) -> ProducePattern | None:
        """The pattern of a request that was just read from ``frame``; None when it is not of the usual
        kind."""
        topics = request.topic_data
        if header.api_version < FLEXIBLE_SINCE or len(topics) != 1 or len(topics[0].partition_data) != 1:
            return None
        records = topics[0].partition_data[0].records
        if records is None or frame[-len(_NO_TAGS) :] != _NO_TAGS:
            return None
        records_end = len(frame) - len(_NO_TAGS)
        size = unsigned_varint(len(records) + 1)
        records_at = records_end - len(records) - len(size)
        if (
            frame[records_at : records_at + len(size)] != size
            or frame[records_at + len(size) : records_end] != records
        ):
            return None  # tagged fields behind the records, or a size in more bytes than it needs
        return cls(header, request, bytes(frame[:_CORRELATION_ID_AT]), bytes(frame[_FIXED_FROM:records_at]))

    def records_in(self, frame: memoryview) -> memoryview | None:
        """The records of a request that follows the pattern, and are part of a transaction if its were; None
        for any other."""
        size = len(frame)
        if size < self._frame_bytes_min:
            return None
        head, fixed, first, second = self._begin(frame)
        if (head, fixed) != self._expected:
            return None
        if first < 0x80:  # the size of the records, and 1
            at, length = self._records_at + 1, first
        elif second < 0x80:
            at, length = self._records_at + 2, first & 0x7F | second << 7
        else:
            at, length = _unsigned_varint_in(frame, self._records_at)
        end = size - 3
        if at + length - 1 != end or length <= HEADER_SIZE or frame[end:] != _NO_TAGS:
            return None
        if (frame[at + ATTRIBUTES_LOW_AT] & TRANSACTIONAL_MASK != 0) is not self.is_transactional:
            return None
        return frame[at:end]

    def answer(
        self, frame: memoryview, *, base_offset: int, log_append_time_ms: int, log_start_offset: int
    ) -> bytes:
        """The whole frame that answers the request in ``frame``, which was appended."""
        (correlation_id,) = _I32.unpack_from(frame, _CORRELATION_ID_AT)
        return self._answer(correlation_id, base_offset, log_append_time_ms, log_start_offset)

    def header(self, answer: bytes) -> RequestHeader:
        """The header of the request that ``answer`` was made for, when another one is needed."""
        (correlation_id,) = _I32.unpack_from(answer, _CORRELATION_ID_AT)
        return self._header._replace(correlation_id=correlation_id)


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
