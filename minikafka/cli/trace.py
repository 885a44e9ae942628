"""``minikafka trace produce TOPIC``: where a record has been, step by step, over all brokers.

Minikafka's own. It starts a trace session on every live broker, writes one record with a ``traceparent``
header, reads it back as a consumer, and shows what the brokers noted as one time line. With ``--live`` it
writes nothing, and follows one in N of the batches that come to the topic anyway. The sessions end with the
command, and by themselves if it is killed.

Brokers' clocks differ. Each document says what its broker's clock showed, and who asked knows when it asked
and when the answer came: a clock that cannot have shown that is set right by the difference, one that can is
believed. So the steps of brokers on one machine keep their microseconds, and those of brokers that are a
second apart come in order, as exactly as a round trip takes.

Exit status: 0 when the record was written, or ``--live`` has come to its end; 1 when a broker refused
something or cannot be reached; 2 for bad usage.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import secrets
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

import msgspec

from minikafka.cli.shared.admin_client import AdminClient
from minikafka.cli.shared.commands import (
    FAILURE,
    OK,
    CommandError,
    ProfileParser,
    add_connection_options,
    as_json,
    error_of,
    explain,
    run,
    take_connection,
)
from minikafka.config.resource import DIAGNOSTICS, ConfigResource
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import AuthenticationFailed, BrokerClient, BrokerUnavailable
from minikafka.protocol.records.batch import iterate_headers
from minikafka.protocol.records.records import Record, build_batch, iterate_records
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.codec import encode_request
from minikafka.types import TopicPartition

PROG = "minikafka trace"
CLIENT_ID = "minikafka-trace"
TRACEPARENT = "traceparent"

ACKS = {"0": 0, "1": 1, "all": -1}
VALUE_BYTES_MAX = 32_000
"""Brokers look for the trace id in batches of 64 KiB at most."""

_TRACEPARENT = re.compile("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")

POLL_S = 0.1
SETTLE_S = 3.0
"""After the answer: for followers whose next fetch tells that they have the record, 500 ms apart at most."""
LIVE_POLL_S = 1.0
LIVE_SETTLE_NS = 1_500_000_000
"""For steps that may still come. Brokers keep few traces of a topic that is written fast, so one that all
followers have is shown after"""
LIVE_COPIED_SETTLE_NS = 200_000_000
SESSION_SECONDS_MAX = 3600
MARGIN_SECONDS = 10
"""A session lasts a little longer than it is needed."""

CONSOLE_WIDTH_MIN = 100

RESOURCE: Final = ConfigResource(DIAGNOSTICS, "traces")

LAST_WITH_TOPIC_NAMES: Final = 12
"""Of Produce and of Fetch."""
FETCH_WAIT_MS: Final = 500
LATEST: Final = -1

CLIENT: Final = "client"
ORDER: Final = (
    "client_sent", "received", "validated", "refused", "appended", "duplicate", "sent_to_follower", "parked",
    "follower_appended", "follower_has", "high_watermark_moved", "woken", "answered", "consumed", "sent",
    "client_answered", "client_read",
)  # fmt: skip
"""Of steps that were noted in the same nanosecond, or by clocks that differ by less than can be known."""

Key = tuple[str, int, int]
"""Topic, partition, first offset."""


# The command


class Written(NamedTuple):
    """What this command did and saw."""

    events: list[Event]
    error: KafkaError | None
    notes: list[str]


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka trace``."""
    options = ProfileParser(
        prog=PROG, description="Follow a record over the brokers of a cluster.", allow_abbrev=False
    )
    actions = options.add_subparsers(dest="action", required=True, metavar="ACTION")
    produce = actions.add_parser(
        "produce",
        help="write a record, or watch those that come, and show their way",
        description="Write a record and show its way as a time line: read from the socket, validated, "
        "appended, parked, fetched by each follower, high watermark moved, woken, answered, read by a "
        "consumer.",
        allow_abbrev=False,
    )
    produce.add_argument("topic", metavar="TOPIC")
    produce.add_argument("--partition", "-p", type=int, metavar="N", help="(by the key; else the first)")
    produce.add_argument("--key", metavar="TEXT", help="the record's key (none)")
    produce.add_argument("--value", metavar="TEXT", default="a record of minikafka trace", help="its value")
    produce.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="may be repeated; traceparent=… continues the trace of an application",
    )
    produce.add_argument(
        "--acks", choices=list(ACKS), default="all", help="how many replicas must have it (all)"
    )
    produce.add_argument(
        "--no-consumer", action="store_true", help="do not read the record back; others still may"
    )
    produce.add_argument(
        "--live", action="store_true", help="write nothing: follow what producers of the topic write"
    )
    produce.add_argument(
        "--one-in", type=int, default=100, metavar="N", help="with --live: one batch in N (100)"
    )
    produce.add_argument("--seconds", type=int, default=60, metavar="S", help="with --live: for so long (60)")
    produce.add_argument("--count", type=int, metavar="N", help="with --live: end after so many time lines")
    produce.add_argument("--json", action="store_true", help="print JSON; with --live one object a line")
    add_connection_options(produce)
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Trace. Returns the exit status."""
    options = parser()
    arguments = options.parse_args(argv)
    try:
        take_connection(arguments)
        arguments.headers = [_header(text) for text in arguments.header]
    except ValueError as error:
        options.error(str(error))
    longest_seconds = SESSION_SECONDS_MAX - MARGIN_SECONDS
    if not 1 <= arguments.seconds <= longest_seconds:
        options.error(f"--seconds {arguments.seconds}: must be 1 to {longest_seconds}")
    if not 1 <= arguments.one_in <= 2**31 - 1:
        options.error(f"--one-in {arguments.one_in}: must be 1 to {2**31 - 1}")
    size = sum(len(text.encode()) for text in (arguments.value, arguments.key or "", *arguments.header))
    if size > VALUE_BYTES_MAX:
        options.error(f"key, value and headers have {size} bytes; {VALUE_BYTES_MAX} can be followed")
    return run(PROG, _live(arguments) if arguments.live else _produce(arguments))


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"--header {text}: must be NAME=VALUE")
    if name == TRACEPARENT and not _TRACEPARENT.fullmatch(value):
        raise ValueError(f"--header {text}: a traceparent is 00-TRACE_ID-PARENT_ID-FLAGS, in hexadecimal")
    return name, value.encode()


# One record


async def _produce(arguments: argparse.Namespace) -> int:
    async with TraceClient.of(arguments, CLIENT_ID) as admin:
        at, leader, in_sync = await _partition(admin, arguments)
        record, trace_id = _record(arguments)
        session = f"trace-{secrets.token_hex(8)}"
        seconds = min(SESSION_SECONDS_MAX, arguments.timeout_ms // 1000 + MARGIN_SECONDS)
        options = {"topic": at.topic, "trace_id": trace_id, "seconds": seconds}
        brokers, notes = await admin.start(session, options)
        try:
            written = await _write_and_read(admin, arguments, at, leader, record)
            expected = [each for each in in_sync if each in brokers]
            found = await _settled(admin, session, brokers, written, expected)
        finally:
            await admin.end(session, brokers)
    notes += written.notes
    if found is None:
        notes.append(f"broker {leader}, the leader, has noted nothing of it")
        found = Timeline((at.topic, at.partition, -1), -1, trace_id, None, ())
    found = found.with_events(written.events)
    notes += [
        f"broker {each} had not fetched it when this ended"
        for each in expected
        if each != leader and not found.has("follower_appended", broker=each) and found.has("appended")
    ]
    if arguments.json:
        print(as_json(document(found) | {"notes": notes}))
    else:
        _print(found, notes)
    if written.error is not None:
        print(f"{PROG}: {at} was not written: {explain(written.error)}", file=sys.stderr)
        return FAILURE
    return OK


async def _partition(
    admin: TraceClient, arguments: argparse.Namespace
) -> tuple[TopicPartition, int, Sequence[int]]:
    """The partition to write to, its leader and its in-sync replicas. Raises CommandError."""
    partitions = await admin.partitions([arguments.topic])
    if not partitions:
        raise CommandError(f"there is no topic {arguments.topic}: minikafka topics create {arguments.topic}")
    number = arguments.partition
    if number is None and arguments.key is not None:
        from aiokafka.partitioner import murmur2  # type: ignore[import-untyped]

        number = (murmur2(arguments.key.encode()) & 0x7FFF_FFFF) % len(partitions)
    elif number is None:
        number = next((each.partition for each, now in partitions.items() if now.leader >= 0), 0)
    at = TopicPartition(arguments.topic, number)
    if at not in partitions:
        raise CommandError(f"there is no partition {at}: {at.topic} has {len(partitions)}")
    now = partitions[at]
    if now.leader < 0:
        raise CommandError(f"{at} has no leader now; its replicas are {list(now.replicas)}")
    return at, now.leader, now.isr


def _record(arguments: argparse.Namespace) -> tuple[Record, str]:
    """The record, and the trace id that it carries."""
    headers = list(arguments.headers)
    given = next((value.decode() for name, value in headers if name == TRACEPARENT), None)
    if given is None:
        given = f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"
        headers.append((TRACEPARENT, given.encode()))
    key = None if arguments.key is None else arguments.key.encode()
    record = Record(0, time.time_ns() // 1_000_000, key, arguments.value.encode(), tuple(headers))
    return record, given.split("-")[1]


async def _write_and_read(
    admin: TraceClient, arguments: argparse.Namespace, at: TopicPartition, leader: int, record: Record
) -> Written:
    """Write the record while a consumer waits for it."""
    seen = Written([], None, [])
    producer = await admin.connection_to(leader)
    consumer: asyncio.Task[None] | None = None
    try:
        request = ProduceOfOne.of(
            producer, at, record, acks=ACKS[arguments.acks], timeout_ms=arguments.timeout_ms
        )
        if not arguments.no_consumer:
            begins = asyncio.Event()
            consumer = asyncio.create_task(_consume(admin, at, leader, record, seen, begins))
            await begins.wait()
        seen.events.append(_own("client_sent", broker=leader))
        answer = await request.send(producer)
        if answer is not None:
            error = error_of(answer.error_code, getattr(answer, "error_message", None))
            text = f"offset {answer.base_offset}" if error is None else error.code.name
            seen.events.append(_own("client_answered", answer=text))
            seen = seen._replace(error=error)
        if consumer is not None and seen.error is None:
            await consumer
    finally:
        if consumer is not None:
            consumer.cancel()
            await asyncio.gather(consumer, return_exceptions=True)
        await producer.close()
    return seen


async def _consume(
    admin: TraceClient, at: TopicPartition, leader: int, record: Record, seen: Written, begins: asyncio.Event
) -> None:
    """Read the record back. What goes wrong is a note: the time line is there without it."""
    connection = None
    try:
        connection = await admin.connection_to(leader)
        offset = await admin.log_end(at, leader)
        reading = asyncio.ensure_future(
            read_until(connection, at, offset, wanted=record, timeout_ms=admin.timeout_ms)
        )
        await asyncio.sleep(0)  # its fetch is on its way
        begins.set()
        await reading
        seen.events.append(_own("client_read", broker=leader))
    except KafkaError as error:
        seen.notes.append(f"it was not read back: {explain(error)}")
    except BrokerUnavailable as error:
        seen.notes.append(f"it was not read back: {error}")
    except TimeoutError:
        seen.notes.append(f"it was not read back within {admin.timeout_ms} ms")
    finally:
        begins.set()
        if connection is not None:
            await connection.close()


def _own(step: str, **detail: Any) -> Event:
    return Event(time.time_ns(), None, step, detail)


async def _settled(
    admin: TraceClient, session: str, brokers: Sequence[int], written: Written, in_sync: Collection[int]
) -> Timeline | None:
    """The time line, when nothing more is to be expected, or after a while."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        found = timelines(await admin.traces(session, brokers))
        timeline = found[0] if found else None
        if timeline is not None and (written.error is not None or _is_whole(timeline, in_sync)):
            return timeline
        if time.monotonic() > deadline:
            return timeline
        await asyncio.sleep(POLL_S)


def _is_whole(timeline: Timeline, in_sync: Collection[int]) -> bool:
    """Whether each broker of ``in_sync`` has it, and knows that it is committed."""
    return timeline.is_answered and all(timeline.has("high_watermark_moved", broker=each) for each in in_sync)


# Those that come anyway


async def _live(arguments: argparse.Namespace) -> int:
    async with TraceClient.of(arguments, CLIENT_ID) as admin:
        await _partition(admin, arguments)
        session = f"live-{secrets.token_hex(8)}"
        options = {
            "topic": arguments.topic,
            "one_in": arguments.one_in,
            "seconds": arguments.seconds + MARGIN_SECONDS,
        }
        brokers, notes = await admin.start(session, options)
        for note in notes:
            print(f"{PROG}: {note}", file=sys.stderr)
        print(
            f"following one batch in {arguments.one_in} of {arguments.topic} for {arguments.seconds} s, on "
            f"brokers {', '.join(map(str, brokers))}; Ctrl-C ends",
            file=sys.stderr,
        )
        began_ns = time.time_ns()  # what came earlier was not followed by all brokers
        shown: set[tuple[str, int, int]] = set()
        deadline = time.monotonic() + arguments.seconds
        try:
            while time.monotonic() < deadline and len(shown) != arguments.count:
                await asyncio.sleep(LIVE_POLL_S)
                for timeline in timelines(await admin.traces(session, brokers)):
                    is_due = timeline.events[0].at_ns > began_ns and _is_quiet(timeline, brokers)
                    if timeline.key in shown or not is_due or len(shown) == arguments.count:
                        continue
                    shown.add(timeline.key)
                    _print_live(timeline, as_json_lines=arguments.json)
        finally:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(admin.end(session, brokers))
    if not shown:
        print(
            f"{PROG}: none was followed: nothing came, or less than {arguments.one_in} batches (--one-in)",
            file=sys.stderr,
        )
    return OK


def _is_quiet(timeline: Timeline, brokers: Collection[int]) -> bool:
    copied = all(
        timeline.has("follower_appended", broker=each.detail["replica"])
        for each in timeline.events
        if each.step == "sent_to_follower" and each.detail["replica"] in brokers
    )
    settle_ns = LIVE_COPIED_SETTLE_NS if copied else LIVE_SETTLE_NS
    return timeline.is_answered and time.time_ns() - timeline.events[-1].at_ns > settle_ns


# Showing


def _print_live(timeline: Timeline, *, as_json_lines: bool) -> None:
    if as_json_lines:
        print(msgspec.json.encode(document(timeline)).decode(), flush=True)
    else:
        _print(timeline, [])


def _print(timeline: Timeline, notes: Sequence[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, CONSOLE_WIDTH_MIN)
    topic, partition, first = timeline.key
    where = "" if first < 0 else f" at offset {first}"
    if timeline.last_offset > first:
        where = f" at offsets {first} to {timeline.last_offset}"
    console.print(Text(f"{topic}-{partition}{where}, trace {timeline.trace_id}", style="bold"))
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for event in timeline.events:
        after_ms = (event.at_ns - timeline.events[0].at_ns) / 1e6
        who = CLIENT if event.broker is None else f"broker {event.broker}"
        style = "red" if event.step == "refused" or event.detail.get("error") else ""
        table.add_row(Text(f"{after_ms:.3f} ms"), Text(who), Text(describe(event), style=style))
    console.print(table)
    if timeline.dropped_steps:
        console.print(Text(f"and {timeline.dropped_steps} steps more, which were not kept"))
    for note in notes:
        console.print(Text(note, style="yellow"))
    console.print()


# What brokers are asked


class TraceClient(AdminClient):
    """Methods raise as those of ``AdminClient`` do."""

    async def start(self, session: str, options: Mapping[str, Any]) -> tuple[list[int], list[str]]:
        """Start a session on all live brokers. Returns those on which it runs, and why not on the others.

        Raises:
            KafkaError: a broker refuses. CommandError: none is one of minikafka.
        """
        value = msgspec.json.encode(options).decode()
        started: list[int] = []
        problems: list[str] = []
        for node_id in (await self.nodes()).brokers:
            try:
                await self.alter_configs({RESOURCE: {session: value}}, node_id=node_id)
            except AuthenticationFailed:
                raise
            except BrokerUnavailable as error:
                problems.append(f"broker {node_id} does not take part: {error}")
            except KafkaError as error:
                if not _is_unknown_type(error):
                    raise
                problems.append(f"broker {node_id} does not take part: it is no broker of minikafka")
            else:
                started.append(node_id)
        if not started:
            raise CommandError(
                "no broker can follow records: they are not minikafka's, or of an older version"
            )
        return started, problems

    async def end(self, session: str, brokers: Iterable[int]) -> None:
        """End it; where that fails, it ends by itself."""
        for node_id in brokers:
            try:
                await self.alter_configs({RESOURCE: {session: None}}, node_id=node_id)
            except (KafkaError, BrokerUnavailable):
                pass

    async def traces(self, session: str, brokers: Iterable[int]) -> list[Answer]:
        """What each broker has noted; nothing from one that does not answer."""
        answers = []
        for node_id in brokers:
            first: int | None = 0
            while first is not None:
                asked_ns = time.time_ns()
                arguments = {"session": session, "from": first}
                try:
                    document = await self.diagnostics("traces", node_id=node_id, **arguments)
                except (KafkaError, BrokerUnavailable):
                    break
                answers.append(Answer(document, asked_ns, time.time_ns()))
                first = document["next"]
        return answers

    async def connection_to(self, node_id: int) -> BrokerClient:
        """Of its own; the caller closes it."""
        broker = (await self.nodes(refresh=False)).brokers.get(node_id)
        if broker is None:
            raise BrokerUnavailable(f"broker {node_id} is not registered")
        return await self._connect((broker.host, broker.port))

    async def log_end(self, at: TopicPartition, node_id: int) -> int:
        """Where consumers of a partition would begin now. Raises KafkaError."""
        body = {
            "replica_id": -1,
            "isolation_level": 0,
            "timeout": self.timeout_ms,
            "topics": [
                {
                    "name": at.topic,
                    "partitions": [
                        {
                            "partition_index": at.partition,
                            "current_leader_epoch": -1,
                            "timestamp": LATEST,
                        }
                    ],
                }
            ],
        }
        (topic,) = (await self.ask_broker(node_id, ApiKey.LIST_OFFSETS, body)).topics
        (partition,) = topic.partitions
        error = error_of(partition.error_code)
        if error is not None:
            raise error
        return int(partition.offset)


def _is_unknown_type(error: KafkaError) -> bool:
    """How a broker refuses a resource type that it does not know, in Kafka's words or in ours."""
    return error.code is ErrorCode.INVALID_REQUEST and "resource type" in (error.message or "").lower()


class ProduceOfOne(NamedTuple):
    """A Produce request with one record, made before its time is taken: the first one loads what it needs."""

    body: Mapping[str, Any]
    version: int
    acks: int
    timeout_ms: int

    @classmethod
    def of(
        cls, connection: BrokerClient, at: TopicPartition, record: Record, *, acks: int, timeout_ms: int
    ) -> Self:
        partition = {"index": at.partition, "records": build_batch([record])}
        body = {
            "transactional_id": None,
            "acks": acks,
            "timeout": timeout_ms,
            "topic_data": [{"name": at.topic, "partition_data": [partition]}],
        }
        key, version = ApiKey.PRODUCE, min(LAST_WITH_TOPIC_NAMES, connection.version_of(ApiKey.PRODUCE))
        encode_request(api_key=key, api_version=version, correlation_id=0, client_id=None, body=body)
        return cls(body, version, acks, timeout_ms)

    async def send(self, connection: BrokerClient) -> Any:
        """Returns what the partition is answered; None with acks=0."""
        key, version, deadline_ms = ApiKey.PRODUCE, self.version, self.timeout_ms + FETCH_WAIT_MS
        if self.acks == 0:
            await connection.send(key, self.body, deadline_ms=deadline_ms, version=version)
            return None
        answer = await connection.request(key, self.body, deadline_ms=deadline_ms, version=version)
        return answer.responses[0].partition_responses[0]


async def read_until(
    connection: BrokerClient, at: TopicPartition, offset: int, *, wanted: Record, timeout_ms: int
) -> None:
    """Fetch from ``offset`` on until there is a record with the headers of ``wanted``.

    Raises:
        KafkaError: what the broker says. TimeoutError.
    """
    version = min(LAST_WITH_TOPIC_NAMES, connection.version_of(ApiKey.FETCH))
    async with asyncio.timeout(timeout_ms / 1000):
        while True:
            answer = await connection.request(
                ApiKey.FETCH, _fetch(at, offset), deadline_ms=timeout_ms, version=version
            )
            (topic,) = answer.responses
            (partition,) = topic.partitions
            error = error_of(partition.error_code)
            if error is not None:
                raise error
            records = memoryview(partition.records or b"")
            for position, header in iterate_headers(records):
                offset = header.next_offset
                batch = records[position : position + header.size]
                if any(each.headers == wanted.headers for each in iterate_records(batch)):
                    return


def _fetch(at: TopicPartition, offset: int) -> dict[str, Any]:
    return {
        "replica_id": -1,
        "max_wait": FETCH_WAIT_MS,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [
            {
                "topic": at.topic,
                "partitions": [
                    {
                        "partition": at.partition,
                        "current_leader_epoch": -1,
                        "fetch_offset": offset,
                        "last_fetched_epoch": -1,
                        "log_start_offset": -1,
                        "partition_max_bytes": 1 << 20,
                    }
                ],
            }
        ],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


# The time line


class Answer(NamedTuple):
    """A broker's document, and when it was asked for and got."""

    document: Mapping[str, Any]
    asked_ns: int
    got_ns: int

    @property
    def broker(self) -> int:
        return int(self.document["broker"])

    @property
    def fast_ns(self) -> int:
        """By how much the broker's clock is ahead of ours, if that can be told; else 0."""
        now_ns = int(self.document["now_ns"])
        if self.asked_ns <= now_ns <= self.got_ns:
            return 0
        return now_ns - (self.asked_ns + self.got_ns) // 2


class Event(NamedTuple):
    """A step, on a broker or (None) at this command."""

    at_ns: int
    """By our clock."""
    broker: int | None
    step: str
    detail: Mapping[str, Any]


class Timeline(NamedTuple):
    """The way of one batch."""

    key: Key
    last_offset: int
    trace_id: str
    parent_span_id: str | None
    events: tuple[Event, ...]
    dropped_steps: int = 0

    def has(self, step: str, *, broker: int | None = None) -> bool:
        return any(each.step == step and broker in (None, each.broker) for each in self.events)

    @property
    def is_answered(self) -> bool:
        """Whether the leader has nothing more to do for its producer."""
        if self.has("sent") or self.has("refused"):
            return True
        return self.has("appended") and any(
            each.step == "received" and each.detail.get("acks") == 0 for each in self.events
        )

    def with_events(self, events: Iterable[Event]) -> Timeline:
        return self._replace(events=_sorted((*self.events, *events)))


def timelines(answers: Iterable[Answer]) -> list[Timeline]:
    """One of each batch that a leader noted the arrival of, in the order of arrival."""
    found: dict[Key, Timeline] = {}
    for answer in answers:
        for trace in answer.document["traces"]:
            key = (trace["topic"], trace["partition"], trace["first_offset"])
            events = tuple(
                Event(
                    step["at_ns"] - answer.fast_ns,
                    answer.broker,
                    step["step"],
                    {name: value for name, value in step.items() if name not in ("step", "at_ns")},
                )
                for step in trace["steps"]
            )
            known = found.get(key)
            if known is None:
                known = Timeline(key, trace["last_offset"], trace["trace_id"], trace["parent_span_id"], ())
            dropped = known.dropped_steps + trace["dropped_steps"]
            found[key] = known.with_events(events)._replace(dropped_steps=dropped)
    whole = [each for each in found.values() if each.has("received")]
    return sorted(whole, key=lambda each: each.events[0].at_ns)


def _sorted(events: Iterable[Event]) -> tuple[Event, ...]:
    return tuple(sorted(events, key=lambda each: (each.at_ns, _rank(each.step))))


def _rank(step: str) -> int:
    return ORDER.index(step) if step in ORDER else len(ORDER)


def describe(event: Event) -> str:
    """In words."""
    words = _WORDS.get(event.step)
    return event.step if words is None else words(event.detail)


def _received(detail: Mapping[str, Any]) -> str:
    acks = "all" if detail["acks"] == -1 else detail["acks"]
    who = detail["client"] or "a client without a name"
    return (
        f"read from the socket: {_count(detail['bytes'], 'byte')} from {who} at {detail['peer']}, acks={acks}"
    )


def _parked(detail: Mapping[str, Any]) -> str:
    return (
        f"parked in the purgatory {detail['purgatory']} under {', '.join(detail['keys'])}, until the high "
        f"watermark is {detail['until_high_watermark']}, for {detail['timeout_ms']} ms at most"
    )


def _appended(detail: Mapping[str, Any]) -> str:
    first, last = detail["first_offset"], detail["last_offset"]
    where = f"offset {first}" if first == last else f"offsets {first} to {last}"
    return f"appended at {where} in leader epoch {detail['leader_epoch']}"


def _refused(detail: Mapping[str, Any]) -> str:
    message = detail.get("message")
    return f"refused: {detail['error']}" + (f", {message}" if message else "")


def _woken(detail: Mapping[str, Any]) -> str:
    error = detail.get("error")
    return f"woken by {detail['by']}" + (f": {error}" if error else "")


def _consumed(detail: Mapping[str, Any]) -> str:
    who = f"consumer {detail['client'] or 'without a name'} at {detail['peer']}"
    group = detail.get("share_group")
    return f"read by {who}" + (f", of share group {group}" if group else "")


_WORDS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "received": _received,
    "validated": lambda d: f"validated: {_count(d['records'], 'record')} in {_count(d['bytes'], 'byte')}",
    "appended": _appended,
    "refused": _refused,
    "duplicate": lambda d: f"a duplicate of what was appended at offset {d['first_offset']}",
    "parked": _parked,
    "sent_to_follower": lambda d: f"sent to broker {d['replica']}, which fetched at {d['fetch_offset']}",
    "follower_appended": lambda d: f"fetched from broker {d['leader']} and appended",
    "follower_has": lambda d: f"broker {d['replica']} has it: it fetched at {d['fetch_offset']}",
    "high_watermark_moved": lambda d: f"high watermark moved to {d['high_watermark']}: {d['cause']}",
    "woken": _woken,
    "answered": lambda d: "answered",
    "sent": lambda d: f"the socket has the answer to {d['client'] or 'the client'}",
    "consumed": _consumed,
    "client_sent": lambda d: f"sent to broker {d['broker']}",
    "client_answered": lambda d: f"has the answer: {d['answer']}",
    "client_read": lambda d: f"has read it from broker {d['broker']}",
}


def _count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def document(timeline: Timeline) -> dict[str, Any]:
    """For ``--json``."""
    topic, partition, first_offset = timeline.key
    begin_ns = timeline.events[0].at_ns
    return {
        "topic": topic,
        "partition": partition,
        "first_offset": first_offset,
        "last_offset": timeline.last_offset,
        "trace_id": timeline.trace_id,
        "parent_span_id": timeline.parent_span_id,
        "dropped_steps": timeline.dropped_steps,
        "steps": [
            {
                "at_ns": each.at_ns,
                "after_us": round((each.at_ns - begin_ns) / 1000),
                "broker": each.broker,
                "step": each.step,
                "detail": dict(each.detail),
                "text": describe(each),
            }
            for each in timeline.events
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
