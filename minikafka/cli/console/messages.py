"""``api/messages``: messages of a topic, from anywhere, through a filter, and on from where a call ended.

One call looks at so much and no more: ``RECORDS_MAX`` records, ``BYTES_MAX`` of them, ``TIME_S``; what it has
not seen comes with ``next``. ``SCANS_MAX`` calls work at once, the others wait. Fetches do not wait for
records (a live tail asks again), take no part in a group and leave nothing behind.

``scan`` goes through fetched batches in search of messages, within bounds: pure, and run in a thread. A batch
is decompressed up to ``BATCH_BYTES_MAX`` and read record by record, never as a whole list: a few kilobytes
can hold millions of records. What is found keeps ``KEPT_BYTES_MAX`` of a key or a value. A batch that cannot
be read is skipped, and told. Aborted transactions are left out for read_committed as consumers do it (KIP-98,
``Fetcher.CompletedFetch``); markers are never shown.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from minikafka.cli.console.cluster import ClusterView, Ends, TopicState
from minikafka.cli.console.decoding import (
    KEPT_BYTES_MAX,
    Cut,
    Decoded,
    Format,
    Readers,
    Registry,
    decode,
    read_format,
    schema_id,
)
from minikafka.cli.console.exchange import Query, Refusal, parse_number
from minikafka.cli.groups import ListedOffset
from minikafka.cli.shared.admin_client import RETRY_BACKOFF_S, raise_error
from minikafka.cli.shared.commands import error_of
from minikafka.config.definition import INT_MAX, LONG_MAX
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.records import record_codec
from minikafka.protocol.records.batch import BatchHeader, iterate_headers
from minikafka.protocol.records.compression import CorruptBatch
from minikafka.protocol.records.records import (
    ControlRecordType,
    iterate_records,
    parse_records,
    plain_batch,
    read_end_transaction_marker,
)
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.types import NO_LEADER, Buffer, TopicPartition

LIMIT: Final = 50
LIMIT_MAX: Final = 500
PARTITIONS_MAX: Final = 200
"""Of a topic, at once: ``next`` has the position in each, and a request line has an end."""
RECORDS_MAX: Final = 200_000
BYTES_MAX: Final = 64 * 1024 * 1024
ANSWER_BYTES_MAX: Final = 8 * 1024 * 1024
"""Of all messages of an answer, before they are cut for the page."""
TIME_S: Final = 5.0
FETCH_BYTES: Final = 4 * 1024 * 1024
PARTITION_BYTES: Final = 1024 * 1024
"""As consumers ask (max.partition.fetch.bytes). A batch that is larger comes whole, alone (KIP-74)."""
SCANS_MAX: Final = 2
WAIT_S: Final = 15.0
"""For the others' calls to end; then it is a 503."""
SKIPPED_MAX: Final = 20
NEXT_LENGTH_MAX: Final = 6_000

UNKNOWN: Final = -1
"""The position in a partition that had no leader when a look began: at its end, once it has one."""
MOVED: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # of a broker that does not know of it yet
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.KAFKA_STORAGE_ERROR,
)

Positions = dict[int, int]
"""Partition → the offset that is looked at next."""

BATCH_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of one batch, decompressed. Producers send a megabyte (batch.size, max.request.size) unless told
otherwise."""
HEADERS_MAX: Final = 100
HEADER_BYTES_MAX: Final = 4 * 1024
_CLOCK_EACH: Final = 256
"""Records between two looks at the clock: a fraction of a millisecond."""


class Wanted(NamedTuple):
    """A question, read."""

    topic: TopicState
    partitions: list[int]
    limit: int
    filter: Filter
    format: Format
    is_read_committed: bool
    begin: str
    next: str | None


def read_query(topic: TopicState, query: Query) -> Wanted:
    """Raises Refusal, KafkaError."""
    there = [each.partition for each in topic.partitions]
    partitions = there
    if query.optional("partition") is not None:
        partitions = [query.number("partition", most=INT_MAX)]
        if partitions[0] not in there:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} has partitions 0 to {len(there) - 1}"
            )
    if len(partitions) > PARTITIONS_MAX:
        raise Refusal(400, f"{topic.name} has {len(partitions)} partitions: choose one")
    kind = read_format(query.text("format", "auto"))
    name, equals, value = query.text("header").partition("=")
    key, contains = query.optional("key"), query.optional("contains")
    return Wanted(
        topic,
        partitions,
        query.number("limit", LIMIT, least=1, most=LIMIT_MAX),
        Filter(
            None if key is None else key.encode(),
            name or None,
            value.encode() if equals else None,
            None if contains is None else contains.encode(),
        ),
        kind,
        query.flag("read_committed"),
        query.text("from", f"last:{LIMIT}"),
        query.text("next", length_max=NEXT_LENGTH_MAX) or None,
    )


def format_positions(positions: Mapping[int, int]) -> str:
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(positions.items()))


def parse_positions(text: str, partitions: Iterable[int]) -> Positions:
    """Raises Refusal: it is none of ours for these partitions."""
    positions: Positions = {}
    for each in text.split(","):
        partition, _, offset = each.partition(":")
        number = parse_number("next", partition, most=INT_MAX)
        positions[number] = parse_number("next", offset, least=UNKNOWN, most=LONG_MAX)
    if set(positions) != set(partitions):
        raise Refusal(400, "next: is of other partitions")
    return positions


class MessagesView:
    """See the module header."""

    def __init__(self, view: ClusterView, registry: Registry | None) -> None:
        self._view = view
        self._registry = registry
        self._turns = asyncio.Semaphore(SCANS_MAX)
        self._is_closed = False

    def __repr__(self) -> str:
        return f"MessagesView({self._registry})"

    def close(self) -> None:
        """End the looks that are under way: threads would hold up the end of the process."""
        self._is_closed = True

    async def messages(self, query: Query) -> dict[str, Any]:
        """Raises Refusal, KafkaError, BrokerUnavailable."""
        topic = (await self._view.snapshot()).topic(query.needed("topic"))
        wanted = read_query(topic, query)
        if query.optional("registry") is not None:
            raise Refusal(400, "registry: is not taken from a request; it is configured (http.registry.url)")
        if self._registry is None and wanted.format in ("avro", "protobuf"):
            raise Refusal(400, f"format {wanted.format}: no registry is configured (http.registry.url)")
        try:
            async with asyncio.timeout(WAIT_S):
                await self._turns.acquire()
        except TimeoutError:
            raise Refusal(503, "others are looking at messages; try again") from None
        try:
            return await self._look(wanted)
        finally:
            self._turns.release()

    async def _look(self, wanted: Wanted) -> dict[str, Any]:
        look = _Look(self._view, wanted, is_closed=lambda: self._is_closed)
        await look.run()
        readers = await self._readers(look.found)
        shown = await asyncio.to_thread(_shown, look.found, wanted.format, readers)
        return {
            "messages": shown,
            "scanned": look.records,
            "scanned_bytes": look.bytes,
            "skipped": [each._asdict() for each in look.skipped[:SKIPPED_MAX]],
            "skipped_left_out": max(0, len(look.skipped) - SKIPPED_MAX),
            "next": format_positions(look.positions),
            "is_end": look.is_end,
            "stopped_by": look.stopped_by,
        }

    async def _readers(self, found: Iterable[Found]) -> Readers:
        if self._registry is None:
            return {}
        cuts = (cut for each in found for cut in (each.key, each.value))
        ids = {schema_id(cut.data) for cut in cuts if cut is not None}
        return await self._registry.readers(each for each in ids if each is not None)


class _Look:
    """One call: from where each partition is, to a bound."""

    def __init__(self, view: ClusterView, wanted: Wanted, *, is_closed: Callable[[], bool]) -> None:
        self._view = view
        self._wanted = wanted
        self._is_closed = is_closed
        self._until_s = time.monotonic() + TIME_S
        self._leaders = {each.partition: each.leader for each in wanted.topic.partitions}
        self._ends: dict[int, int] = {}
        self.positions: Positions = {}
        self.found: list[Found] = []
        self.skipped: list[Skipped] = []
        self.records = self.bytes = 0

    @property
    def is_end(self) -> bool:
        return not self._unread()

    @property
    def stopped_by(self) -> str:
        if len(self.found) >= self._wanted.limit:
            return "limit"
        if self.is_end:
            return "end"
        if self._is_late():
            return "time"
        return "records" if self.records >= RECORDS_MAX else "bytes"

    def _unread(self) -> list[int]:
        return [each for each, end in self._ends.items() if self.positions[each] < end]

    def _is_late(self) -> bool:
        return time.monotonic() >= self._until_s or self._is_closed()

    def _kept_bytes(self) -> int:
        return sum(each.kept_bytes for each in self.found)

    def _is_over(self) -> bool:
        return (
            len(self.found) >= self._wanted.limit
            or self.records >= RECORDS_MAX
            or self.bytes >= BYTES_MAX
            or self._kept_bytes() >= ANSWER_BYTES_MAX
            or self._is_late()
        )

    async def run(self) -> None:
        await self._place()
        while (unread := self._unread()) and not self._is_over():
            by_leader: dict[int, list[int]] = {}
            for partition in unread:
                by_leader.setdefault(self._leaders[partition], []).append(partition)
            share = -(-(self._wanted.limit - len(self.found)) // len(unread))
            answers = await asyncio.gather(*(self._fetch(*each) for each in by_leader.items()))
            failures = []
            for answer in answers:
                for each in answer if isinstance(answer, list) else ():
                    failures.append(await self._take(each, share))
                if isinstance(answer, str):
                    failures.append(answer)
            await self._settle([each for each in failures if each is not None])
        self.found.sort(key=lambda each: (each.timestamp_ms, each.partition, each.offset))
        if len(self._wanted.partitions) == 1:
            self.found.sort(key=lambda each: each.offset)

    async def _settle(self, failures: list[str]) -> None:
        """A leader has moved or is away: find the leaders again, as long as there is time. Raises KafkaError:
        there is none, and nothing was found."""
        if not failures:
            return
        if self._is_late() and not self.found:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, failures[0])
        await asyncio.sleep(RETRY_BACKOFF_S)
        for at, now in (await self._view.admin.partitions([self._wanted.topic.name])).items():
            self._leaders[at.partition] = now.leader

    # Where it begins

    async def _place(self) -> None:
        wanted = self._wanted
        at_all = [TopicPartition(wanted.topic.name, each) for each in wanted.partitions]
        ends = await self._view.ends(at_all, is_read_committed=wanted.is_read_committed)
        known = {at.partition: end for at, end in ends.items() if None not in end}
        for each in wanted.partitions:
            if each not in known:
                why = "it has no leader" if self._leaders[each] == NO_LEADER else "its leader does not answer"
                self.skipped.append(Skipped(each, -1, -1, f"partition {each}: {why}"))
        if not known:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, self.skipped[0].why)
        self._ends = {each: end.high_watermark or 0 for each, end in known.items()}
        if wanted.next is not None:
            begin = parse_positions(wanted.next, wanted.partitions)
        else:
            begin = await self._begin(known)
        starts = {each: end.log_start_offset or 0 for each, end in known.items()}
        for each, end in self._ends.items():
            offset = begin.get(each, UNKNOWN)
            self.positions[each] = end if offset == UNKNOWN else max(offset, starts[each])
        for each in wanted.partitions:
            self.positions.setdefault(each, begin.get(each, UNKNOWN))

    async def _begin(self, known: Mapping[int, Ends]) -> Positions:
        kind, _, value = self._wanted.begin.partition(":")
        match kind:
            case "earliest" if not value:
                return dict.fromkeys(self._wanted.partitions, 0)  # which is before any start
            case "latest" if not value:
                return dict(self._ends)
            case "offset":
                offset = parse_number("from: offset", value, most=LONG_MAX)
                return dict.fromkeys(self._wanted.partitions, offset)
            case "last":
                share = -(-parse_number("from: last", value, most=INT_MAX) // len(known))
                return {each: max(0, end - share) for each, end in self._ends.items()}
            case "time":
                timestamp_ms = parse_number("from: time", value, most=LONG_MAX)
                at_all = [TopicPartition(self._wanted.topic.name, each) for each in known]
                found = await self._view.admin.list_offsets(at_all, timestamp_ms)
                return {
                    at.partition: listed.offset
                    if isinstance(listed, ListedOffset) and listed.offset >= 0
                    else self._ends[at.partition]
                    for at, listed in found.items()
                }
        raise Refusal(400, "from: must be earliest, latest, offset:N, time:MS or last:N")

    # What it reads

    async def _fetch(self, leader: int, partitions: list[int]) -> list[Any] | str:
        """What the leader says of each partition; a text: why it does not."""
        topic = self._wanted.topic
        body = {
            "replica_id": -1,
            "max_wait": 0,
            "min_bytes": 0,
            "max_bytes": FETCH_BYTES,
            "isolation_level": int(self._wanted.is_read_committed),
            "session_id": 0,
            "session_epoch": -1,
            "topics": [
                {
                    "topic": topic.name,
                    "topic_id": topic.topic_id,
                    "partitions": [
                        {
                            "partition": each,
                            "current_leader_epoch": -1,
                            "fetch_offset": self.positions[each],
                            "last_fetched_epoch": -1,
                            "log_start_offset": -1,
                            "partition_max_bytes": PARTITION_BYTES,
                        }
                        for each in partitions
                    ],
                }
            ],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        if leader == NO_LEADER:
            return f"partition {partitions[0]} has no leader"
        try:
            answer = await self._view.admin.ask_broker(leader, ApiKey.FETCH, body)
        except BrokerUnavailable as error:
            return str(error)
        raise_error(answer)
        return [each for topic in answer.responses for each in topic.partitions]

    async def _take(self, answer: Any, share: int) -> str | None:
        """Adds what is found. A text: why there is nothing yet. Raises KafkaError: we may not read it, …"""
        partition = int(answer.partition_index)
        error = error_of(answer.error_code)
        if error is not None and error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._skip_to_start(partition, int(getattr(answer, "log_start_offset", -1)))
            return None
        if error is not None and error.code in MOVED:
            return f"partition {partition}: {error.code.name}"
        if error is not None:
            raise KafkaError(error.code, f"partition {partition}")
        data, position, end = answer.records or b"", self.positions[partition], self._ends[partition]
        if self._is_over():
            return None  # what this answer has is fetched again
        aborted = [
            (int(each.producer_id), int(each.first_offset))
            for each in (answer.aborted_transactions or () if self._wanted.is_read_committed else ())
        ]
        bounds = Bounds(
            min(share, self._wanted.limit - len(self.found)),
            RECORDS_MAX - self.records,
            BYTES_MAX - self.bytes,
            ANSWER_BYTES_MAX - self._kept_bytes(),
            self._is_late,
        )
        scanned = await asyncio.to_thread(  # off the loop, also because the first one imports the codec
            scan,
            data,
            partition=partition,
            position=position,
            end=end,
            filter=self._wanted.filter,
            bounds=bounds,
            aborted=aborted,
        )
        self._add(partition, scanned, position, has_data=len(data) > 0)
        return None

    def _add(self, partition: int, scanned: Scanned, position: int, *, has_data: bool) -> None:
        self.found += scanned.found
        self.skipped += scanned.skipped
        self.records += scanned.records
        self.bytes += scanned.bytes
        self.positions[partition] = scanned.next_offset
        if scanned.next_offset == position and not self._is_over():
            # Nothing more is there: a log may end with offsets that compaction or a marker has taken.
            end = self._ends[partition]
            if has_data:
                self.skipped.append(Skipped(partition, position, end - 1, "the batch is cut off"))
            self.positions[partition] = end

    def _skip_to_start(self, partition: int, log_start_offset: int) -> None:
        """Retention was faster. Without a start that is beyond where we are, there is nothing to read."""
        position, end = self.positions[partition], self._ends[partition]
        self.positions[partition] = log_start_offset if position < log_start_offset <= end else end


def _shown(found: Iterable[Found], format: Format, readers: Readers) -> list[dict[str, Any]]:
    """In a thread: schemas take their time."""

    def text(cut: Cut | None, as_format: Format) -> Decoded | None:
        return decode(cut, as_format, readers)

    return [
        {
            "partition": each.partition,
            "offset": each.offset,
            "timestamp_ms": each.timestamp_ms,
            "timestamp_type": each.timestamp_type,
            "key": text(each.key, "auto" if format in ("avro", "protobuf", "json") else format),
            "value": text(each.value, format),
            "headers": [(name, text(cut, "auto")) for name, cut in each.headers],
            "size": each.size,
        }
        for each in found
    ]


# Through fetched batches


class Filter(NamedTuple):
    """What a message must have; None: anything."""

    key: bytes | None = None
    """The whole key."""
    header: str | None = None
    header_value: bytes | None = None
    contains: bytes | None = None
    """Somewhere in its key or value, as bytes."""

    def takes(
        self, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
    ) -> bool:
        if self.key is not None and key != self.key:
            return False
        if self.header is not None and not any(
            name == self.header and self.header_value in (None, found) for name, found in headers
        ):
            return False
        wanted = self.contains
        return (
            wanted is None or (key is not None and wanted in key) or (value is not None and wanted in value)
        )


class Found(NamedTuple):
    """A message."""

    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: str
    key: Cut | None
    value: Cut | None
    headers: list[tuple[str, Cut | None]]
    size: int
    """Bytes of key, value and headers."""

    @property
    def kept_bytes(self) -> int:
        parts = (self.key, self.value, *(value for _, value in self.headers))
        return sum(len(each.data) for each in parts if each is not None)


class Skipped(NamedTuple):
    """Records that could not be read, by their first and last offset."""

    partition: int
    offset: int
    last_offset: int
    why: str


class Bounds(NamedTuple):
    """Of one look into one partition."""

    messages: int
    """To find."""
    records: int
    """To look at."""
    bytes: int
    """Of keys, values and headers, to look at."""
    kept_bytes: int
    """To keep; one message may go beyond it."""
    is_over: Callable[[], bool]
    """The time is."""


class Scanned(NamedTuple):
    """What came of it."""

    found: list[Found]
    skipped: list[Skipped]
    next_offset: int
    records: int
    bytes: int


def scan(
    data: Buffer,
    *,
    partition: int,
    position: int,
    end: int,
    filter: Filter,
    bounds: Bounds,
    aborted: Sequence[tuple[int, int]] = (),
) -> Scanned:
    """The messages from offset ``position`` to before ``end`` in the batches of a fetch response, until a
    bound is met. ``aborted``: producer id and first offset of transactions that a read_committed consumer
    does not see; empty: all are seen."""
    work = _Scan(partition, position, end, filter, bounds)
    try:
        work.run(memoryview(data), deque(sorted(aborted, key=lambda each: each[1])))
    except CorruptBatch as error:  # of a header: where the next one begins is not known
        work.skip(work.position, end - 1, str(error))
        work.position = end
    return Scanned(work.found, work.skipped, work.position, work.records, work.bytes)


class _Scan:
    def __init__(self, partition: int, position: int, end: int, filter: Filter, bounds: Bounds) -> None:
        self._partition = partition
        self.position = position
        self._end = end
        self._filter = filter
        self._bounds = bounds
        self.found: list[Found] = []
        self.skipped: list[Skipped] = []
        self.records = self.bytes = self._kept_bytes = 0

    def skip(self, offset: int, last_offset: int, why: str) -> None:
        self.skipped.append(Skipped(self._partition, offset, last_offset, why))

    def run(self, view: memoryview, aborted: deque[tuple[int, int]]) -> None:
        """Raises CorruptBatch: a header is none."""
        unseen: set[int] = set()
        """Producers whose records belong to a transaction that was aborted."""
        for at, header in iterate_headers(view):
            if header.base_offset >= self._end or self._is_over():
                return
            while aborted and aborted[0][1] <= header.last_offset:
                unseen.add(aborted.popleft()[0])
            batch = view[at : at + header.size]
            if header.is_control:
                if _is_abort(batch):
                    unseen.discard(header.producer_id)
            elif header.last_offset < self.position or (
                header.is_transactional and header.producer_id in unseen
            ):
                pass  # not looked at
            elif not self._read(batch, header):
                return
            self.position = max(self.position, header.next_offset)

    def _read(self, batch: memoryview, header: BatchHeader) -> bool:
        """Whether all of it was looked at."""
        try:
            plain = plain_batch(batch, header, BATCH_BYTES_MAX)
            for record in _records(plain, header):
                if record.offset < self.position:
                    continue
                if record.offset >= self._end or self._is_over():
                    return False
                self._take(record, header)
                self.position = record.offset + 1
        except CorruptBatch as error:
            self.skip(max(self.position, header.base_offset), header.last_offset, str(error))
        return True

    def _take(self, record: Any, header: BatchHeader) -> None:
        key, value, headers = record.key, record.value, record.headers
        size = len(key or b"") + len(value or b"")
        for name, data in headers:
            size += len(name) + len(data or b"")
        self.records += 1
        self.bytes += size
        if self._filter.takes(key, value, headers):
            timestamp = record.timestamp
            found = Found(
                self._partition,
                record.offset,
                -1 if timestamp is None else timestamp,
                header.timestamp_type.name,
                _cut(key, KEPT_BYTES_MAX),
                _cut(value, KEPT_BYTES_MAX),
                [
                    (name[:HEADER_BYTES_MAX], _cut(data, HEADER_BYTES_MAX))
                    for name, data in headers[:HEADERS_MAX]
                ],
                size,
            )
            self._kept_bytes += found.kept_bytes
            self.found.append(found)

    def _is_over(self) -> bool:
        bounds = self._bounds
        return (
            len(self.found) >= bounds.messages
            or self.records >= bounds.records
            or self.bytes >= bounds.bytes
            or self._kept_bytes >= bounds.kept_bytes
            or (self.records % _CLOCK_EACH == 0 and bounds.is_over())
        )


def _records(plain: memoryview, header: BatchHeader) -> Iterator[Any]:
    """One after the other, none of them kept. Raises CorruptBatch."""
    codec = record_codec.load()
    last = -1
    try:
        for record in codec.Batch(plain):
            last = record.offset
            yield record
        return
    except codec.refusals:
        pass  # what the compiled codec refuses, ours may read, or say what is wrong
    for each in parse_records(plain, header):
        if each.offset > last:
            yield each


def _is_abort(batch: memoryview) -> bool:
    try:
        (record,) = iterate_records(batch)
    except (CorruptBatch, ValueError):
        return False
    marker = read_end_transaction_marker(record.key, record.value)
    return marker is not None and marker.type is ControlRecordType.ABORT


def _cut(data: bytes | None, bytes_max: int) -> Cut | None:
    return None if data is None else Cut(bytes(data[:bytes_max]), len(data))
