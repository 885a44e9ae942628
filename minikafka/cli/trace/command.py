"""``minikafka trace produce TOPIC``: where a record has been, step by step, over all brokers.

Minikafka's own. It starts a trace session on every live broker, writes one record with a ``traceparent``
header, reads it back as a consumer, and shows what the brokers noted as one time line. With ``--live`` it
writes nothing, and follows one in N of the batches that come to the topic anyway.

The sessions end with the command, and by themselves if it is killed.

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
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

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
from minikafka.cli.trace.client import ProduceOfOne, TraceClient, read_until
from minikafka.cli.trace.timeline import CLIENT, Event, Timeline, describe, document, timelines
from minikafka.errors import KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.records.records import Record
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
        import msgspec

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


if __name__ == "__main__":
    sys.exit(main())
