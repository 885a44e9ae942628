"""What ties the spans of one batch together: W3C trace context, and ids that all brokers make alike.

An application that traces puts ``traceparent`` (https://www.w3.org/TR/trace-context/) into the headers of its
records. Where the first records of a batch have none, the trace id is made from the place of the batch. So
are the ids of spans: the leader, its followers and who serves a consumer give the same batch the same
ids, and tell each other nothing.
"""

from __future__ import annotations

import hashlib
import re
from itertools import islice
from typing import Final
from uuid import UUID

from minikafka.named_tuple import NamedTuple
from minikafka.protocol.records.batch import BatchHeader
from minikafka.protocol.records.compression import CorruptBatch
from minikafka.protocol.records.records import parse_records, plain_batch
from minikafka.types import Buffer

HEADER_NAME: Final = "traceparent"

SEARCHED_BYTES_MAX: Final = 64 * 1024
"""A larger batch, compressed or not, is not searched for headers: what it takes is the loop's time."""
SEARCHED_PLAIN_BYTES_MAX: Final = 1 << 20
SEARCHED_RECORDS_MAX: Final = 16

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 1


class TraceContext(NamedTuple):
    """The trace that a batch belongs to."""

    trace_id: str
    """32 hexadecimal digits."""
    parent_span_id: str | None = None
    """16 digits: the application's span; None where the batch begins the trace."""
    is_sampled: bool = True
    """False: the application has decided that nothing of this trace is exported."""


def parse_traceparent(text: str) -> TraceContext | None:
    """None where ``text`` is none, and a trace starts over (section 3.2 of the recommendation)."""
    match = _TRACEPARENT.fullmatch(text)
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    if version == "ff" or (version == "00" and more) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    return TraceContext(trace_id, span_id, is_sampled=bool(int(flags, 16) & _SAMPLED))


def find_trace_context(batch: Buffer, header: BatchHeader) -> TraceContext | None:
    """That of the first record with one, among the first of the batch. None also for a batch that is damaged,
    or too long to be searched here."""
    if header.is_control or header.size > SEARCHED_BYTES_MAX:
        return None
    try:
        plain = plain_batch(batch, header, SEARCHED_PLAIN_BYTES_MAX)
        for record in islice(parse_records(plain, header), SEARCHED_RECORDS_MAX):
            for name, value in record.headers:
                if name == HEADER_NAME and value is not None:
                    context = parse_traceparent(bytes(value).decode("ascii", "replace"))
                    if context is not None:
                        return context
    except CorruptBatch:
        return None
    return None


def new_trace_context(topic_id: UUID, partition: int, first_offset: int) -> TraceContext:
    """For a batch whose application does not trace."""
    return TraceContext(_digest(f"{topic_id}/{partition}/{first_offset}", size=16))


def span_id(trace_id: str, *parts: object) -> str:
    """The id of the span that ``parts`` name, the same on each broker that asks."""
    return _digest("/".join((trace_id, *map(str, parts))), size=8)


def _digest(text: str, *, size: int) -> str:
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()
