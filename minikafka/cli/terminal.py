"""``minikafka produce`` and ``minikafka consume``: records from and to a terminal or a pipe, by aiokafka's
producer and consumer. Their log lines are kept off the terminal; their errors become one line each.

``produce``: lines of standard input become records of a topic. Kafka: ``kafka-console-producer.sh``
(``ConsoleProducer``), and kcat's habits: a line without the key separator has no key. Exit status: 0 when
every line was written, 1 when a record was refused or no broker answers, 2 for bad usage.

``consume``: prints the records of a topic as they come. Kafka: ``kafka-console-consumer.sh``
(``ConsoleConsumer``), whose options work here, ``--property`` included; ``--print`` and ``--json`` say the
same in fewer words. Different: with a group nothing else is chosen, and a topic that does not exist is an
error. A record is shown as Kafka's ``DefaultMessageFormatter`` does it, or as JSON. Fields come in Kafka's
order whatever the order they are asked for in. In JSON, bytes that are not UTF-8 are ``{"base64": …}``. Exit
status: 0 when it ended by itself, 1 when something is refused or no broker answers, 2 for bad usage, 130
after Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import logging
import os
import re
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from minikafka.cli.groups import EARLIEST, LATEST, GroupAdmin
from minikafka.cli.shared.admin_client import AdminClient
from minikafka.cli.shared.commands import (
    DEFAULT_TIMEOUT_MS,
    OK,
    CommandError,
    ProfileParser,
    add_bootstrap_option,
    add_connection_options,
    explain,
    run,
    take_connection,
)
from minikafka.errors import KafkaError
from minikafka.network.addresses import format_address
from minikafka.types import TopicPartition

_ESCAPED = {"t": "\t", "n": "\n", "0": "\0", "\\": "\\"}

_NUMBER = re.compile(r"^\[Error -?\d+\] ")
"""In front of the name of an error."""

CLIENT_ID = "minikafka"
STOP_DEADLINE_S = 10.0
"""For what is still on its way when the command ends."""

PRODUCE_PROG = "minikafka produce"
READ_BYTES = 64 * 1024
CHUNKS_MAX = 16
"""What is read ahead of the broker."""
LINGER_MS = 5

FIELDS = ("timestamp", "partition", "offset", "headers", "key", "value")
_TIMESTAMP_TYPES = {0: "CreateTime", 1: "LogAppendTime"}
_encode = msgspec.json.Encoder().encode

CONSUME_PROG = "minikafka consume"
POLL_MS = 200
"""How often an end is looked for while nothing comes."""
RECORDS_MAX = 500
"""Printed at once (Kafka's max.poll.records)."""


@contextmanager
def client_errors() -> Iterator[None]:
    """Raises CommandError for aiokafka's errors."""
    from aiokafka.errors import KafkaError  # type: ignore[import-untyped]

    logging.getLogger("aiokafka").addHandler(logging.NullHandler())  # else Python prints what is logged
    try:
        yield
    except KafkaError as error:
        text = _NUMBER.sub("", str(error)).strip() or type(error).__name__
        if "AuthorizationFailed" in type(error).__name__:
            text += " (no ACL allows it, or one denies it: minikafka why-denied says which)"
        raise CommandError(text) from None


async def client_options(command_config: str) -> dict[str, Any]:
    """What aiokafka's clients are to be told of ``--command-config``. Raises ConfigError."""
    if not command_config:
        return {}
    from minikafka.cli.shared.client_properties import aiokafka_options, read_client_properties

    return await asyncio.to_thread(lambda: aiokafka_options(read_client_properties(command_config)))


def unescape(text: str) -> str:
    r"""``\t``, ``\n``, ``\0`` and ``\\`` as a shell's user writes them."""
    return re.sub(r"\\([tn0\\])", lambda match: _ESCAPED[match[1]], text)


# Producing


def produce_parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka produce``."""
    options = ProfileParser(
        prog=PRODUCE_PROG,
        description="Write each line of standard input as a record.",
        epilog="With --key-separator : the line a:b is a record with key a and value b.",
        allow_abbrev=False,
    )
    options.add_argument("topic", metavar="TOPIC")
    add_connection_options(options)
    options.add_argument("--key-separator", "-K", metavar="TEXT", help="what stands between key and value")
    options.add_argument(
        "--header",
        "-H",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="on every record; may be repeated",
    )
    options.add_argument("--partition", "-p", type=int, metavar="N", help="write to this partition only")
    options.add_argument(
        "--acks", choices=["0", "1", "all"], default="all", help="how many replicas must have it (all)"
    )
    options.add_argument(
        "--compression",
        choices=["none", "gzip", "snappy", "lz4", "zstd"],
        default="none",
        metavar="CODEC",
        help="none, gzip, snappy, lz4 or zstd (none)",
    )
    options.add_argument(
        "--empty-is-null", "-Z", action="store_true", help="empty keys and values are null: tombstones"
    )
    return options


def produce(argv: Sequence[str] | None = None) -> int:
    """Produce. Returns the exit status."""
    options = produce_parser()
    arguments = options.parse_args(argv)
    try:
        take_connection(arguments)
        arguments.headers = [_header(text) for text in arguments.header]
    except ValueError as error:
        options.error(str(error))
    if arguments.key_separator == "":
        options.error("--key-separator must not be empty")
    return run(PRODUCE_PROG, _run_produce(arguments))


async def _run_produce(arguments: argparse.Namespace) -> int:
    async with AdminClient.of(arguments, CLIENT_ID) as admin:
        await admin.nodes()  # says in one line what is wrong when no broker answers
        if arguments.partition is not None:
            await _check_partition(admin, TopicPartition(arguments.topic, arguments.partition))
    if sys.stdin.isatty():
        print("one record a line; Ctrl-D ends", file=sys.stderr)
    with client_errors():
        await _produce(arguments)
    return OK


async def _check_partition(admin: AdminClient, partition: TopicPartition) -> None:
    """A topic may come into being with its first record, but not with a certain partition of it.

    Raises:
        CommandError: there is no such partition.
    """
    known = await admin.partitions([partition.topic])
    if partition not in known:
        raise CommandError(f"there is no partition {partition}")


async def _produce(arguments: argparse.Namespace) -> None:
    from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped]

    producer = AIOKafkaProducer(
        bootstrap_servers=[format_address(host, port) for host, port in arguments.addresses],
        client_id=CLIENT_ID,
        acks="all" if arguments.acks == "all" else int(arguments.acks),
        compression_type=None if arguments.compression == "none" else arguments.compression,
        linger_ms=LINGER_MS,
        request_timeout_ms=arguments.timeout_ms,
        **await client_options(arguments.command_config),
    )
    failures: list[BaseException] = []

    def delivered(future: asyncio.Future[Any]) -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            failures.append(error)

    await producer.start()
    try:
        async for line in read_lines(sys.stdin.fileno()):
            key, value = split_line(line, arguments.key_separator, empty_is_null=arguments.empty_is_null)
            sent = await producer.send(
                arguments.topic, value, key=key, partition=arguments.partition, headers=arguments.headers
            )
            sent.add_done_callback(delivered)
            if failures:
                break
        await producer.flush()
    finally:
        await asyncio.wait_for(producer.stop(), STOP_DEADLINE_S)
    if failures:
        raise failures[0]


def split_line(
    line: bytes, separator: str | None, *, empty_is_null: bool
) -> tuple[bytes | None, bytes | None]:
    """Key and value of a line."""
    key: bytes | None = None
    value: bytes | None = line
    if separator is not None:
        before, found, after = line.partition(unescape(separator).encode())
        if found:
            key, value = before, after
    return (key or None, value or None) if empty_is_null else (key, value)


async def read_lines(descriptor: int) -> AsyncIterator[bytes]:
    """The lines that come from ``descriptor``, without their ends.

    A thread of its own reads: an interrupt does not wait for a line that never comes.
    """
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes] = asyncio.Queue(CHUNKS_MAX)

    def read() -> None:
        chunk = b"-"
        while chunk:
            chunk = os.read(descriptor, READ_BYTES)
            asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()

    threading.Thread(target=read, name="stdin", daemon=True).start()
    rest = b""
    while chunk := await chunks.get():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
    if rest:
        yield rest


def _header(text: str) -> tuple[str, bytes]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise ValueError(f"--header {text}: must be NAME=VALUE")
    return name, value.encode()


# Consuming: how a record is shown
class RecordFormat(msgspec.Struct, frozen=True, kw_only=True):
    """Raises ValueError for a field that there is not."""

    fields: tuple[str, ...] = ("value",)
    separator: str = "\t"
    is_json: bool = False

    def __post_init__(self) -> None:
        for each in self.fields:
            if each not in FIELDS:
                raise ValueError(f"there is no field {each!r}: there are {', '.join(FIELDS)}")

    def line(self, record: Any) -> bytes:
        """An aiokafka ``ConsumerRecord`` as a line, with its end."""
        if self.is_json:
            return _json(record) + b"\n"
        cells = [_cell(record, each) for each in FIELDS if each in self.fields]
        return self.separator.encode().join(cells) + b"\n"


def with_properties(form: RecordFormat, properties: Sequence[str]) -> RecordFormat:
    """``form`` changed by Kafka's properties: ``print.<field>=true``, ``key.separator=…``.

    Raises:
        ValueError: there is no such property.
    """
    fields, separator = list(form.fields), form.separator
    for text in properties:
        name, _, value = text.partition("=")
        field = name.removeprefix("print.")
        if name == "key.separator":
            separator = unescape(value)
        elif name == f"print.{field}" and field in FIELDS and value in ("true", "false"):
            fields = [each for each in fields if each != field] + ([field] if value == "true" else [])
        else:
            known = ", ".join(f"print.{each}=true" for each in FIELDS)
            raise ValueError(f"--property {text}: there are {known} and key.separator=TEXT")
    return msgspec.structs.replace(form, fields=tuple(fields), separator=separator)


def _cell(record: Any, field: str) -> bytes:
    match field:
        case "timestamp":
            kind = _TIMESTAMP_TYPES.get(record.timestamp_type)
            return f"{kind}:{record.timestamp}".encode() if kind else b"NO_TIMESTAMP"
        case "partition":
            return f"Partition:{record.partition}".encode()
        case "offset":
            return f"Offset:{record.offset}".encode()
        case "headers":
            pairs = (name.encode() + b":" + _bytes(value) for name, value in record.headers)
            return b",".join(pairs) or b"NO_HEADERS"
        case "key":
            return _bytes(record.key)
        case _:
            return _bytes(record.value)


def _bytes(value: bytes | None) -> bytes:
    return b"null" if value is None else value


def _json(record: Any) -> bytes:
    return _encode(
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": _text(record.key),
            "value": _text(record.value),
            "headers": [[name, _text(value)] for name, value in record.headers],
        }
    )


def _text(value: bytes | None) -> str | dict[str, str] | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


# Consuming
def consume_parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka consume``."""
    options = ProfileParser(
        prog=CONSUME_PROG,
        description="Print the records of a topic: those that come from now on, unless told otherwise.",
        allow_abbrev=False,
    )
    options.add_argument("topic", metavar="TOPIC")
    add_bootstrap_option(options)
    where = options.add_mutually_exclusive_group()
    where.add_argument("--from-beginning", action="store_true", help="start with the first record there is")
    where.add_argument(
        "--offset", "-o", metavar="OFFSET", help="start at an offset, beginning, end, or -N for the last N"
    )
    options.add_argument("--partition", "-p", type=int, action="append", metavar="N", help="may be repeated")
    options.add_argument("--group", "-g", metavar="GROUP", help="share the topic with others of this group")
    options.add_argument("--max-messages", "-c", type=int, metavar="N", help="end after so many records")
    options.add_argument("--timeout-ms", type=int, metavar="MS", help="end when nothing comes for so long")
    options.add_argument("--until-end", "-e", action="store_true", help="end when all there is was printed")
    options.add_argument("--json", action="store_true", help="print each record as a line of JSON")
    options.add_argument(
        "--print", metavar="FIELDS", default="value", help=f"which of {','.join(FIELDS)} (value)"
    )
    options.add_argument("--separator", metavar="TEXT", default=r"\t", help="between fields (a tab)")
    options.add_argument(
        "--property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="as Kafka's: print.key=true, ...",
    )
    return options


def consume(argv: Sequence[str] | None = None) -> int:
    """Consume. Returns the exit status."""
    options = consume_parser()
    arguments = options.parse_args(argv)
    try:
        take_connection(arguments)
        arguments.start = _start(arguments)
        arguments.format = with_properties(
            RecordFormat(
                fields=tuple(each.strip() for each in arguments.print.split(",")),
                separator=unescape(arguments.separator),
                is_json=arguments.json,
            ),
            arguments.property,
        )
    except ValueError as error:
        options.error(str(error))
    if arguments.group and (arguments.partition or arguments.offset is not None or arguments.until_end):
        options.error("--partition, --offset and --until-end do not go with --group")
    if arguments.max_messages is not None and arguments.max_messages < 1:
        options.error("--max-messages must be at least 1")
    return run(CONSUME_PROG, _run_consume(arguments))


def _start(arguments: argparse.Namespace) -> int | str:
    """An offset (negative: so many before the end), ``beginning`` or ``end``. Raises ValueError."""
    text: str = arguments.offset or ("beginning" if arguments.from_beginning else "end")
    text = {"earliest": "beginning", "latest": "end"}.get(text, text)
    try:
        return text if text in ("beginning", "end") else int(text)
    except ValueError:
        raise ValueError(f"--offset {text}: must be a number, beginning or end") from None


async def _run_consume(arguments: argparse.Namespace) -> int:
    async with GroupAdmin(
        arguments.addresses,
        client_id=CLIENT_ID,
        timeout_ms=DEFAULT_TIMEOUT_MS,
        security=arguments.security,
    ) as admin:
        partitions = await _partitions(admin, arguments)
        starts: dict[TopicPartition, int] = {}
        ends: dict[TopicPartition, int] = {}
        if not arguments.group:
            starts, ends = await _range(admin, partitions, arguments.start)
    with client_errors():
        await _consume(arguments, starts, ends if arguments.until_end else None)
    return OK


async def _partitions(admin: GroupAdmin, arguments: argparse.Namespace) -> list[TopicPartition]:
    known = list(await admin.partitions([arguments.topic]))
    if not known:
        hidden = ", or none that this user may describe" if arguments.command_config else ""
        raise CommandError(f"there is no topic {arguments.topic}{hidden}")
    wanted = [TopicPartition(arguments.topic, each) for each in dict.fromkeys(arguments.partition or ())]
    for each in wanted:
        if each not in known:
            raise CommandError(f"there is no partition {each}")
    return wanted or known


async def _range(
    admin: GroupAdmin, partitions: Sequence[TopicPartition], start: int | str
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Where to start, and the end as it is now."""
    limits = []
    for timestamp in (EARLIEST, LATEST):
        offsets = {}
        for partition, listed in (await admin.list_offsets(partitions, timestamp)).items():
            if isinstance(listed, KafkaError):
                raise CommandError(f"{partition}: {explain(listed)}")
            offsets[partition] = listed.offset
        limits.append(offsets)
    firsts, ends = limits
    starts = {}
    for each in partitions:
        wanted = {"beginning": firsts[each], "end": ends[each]}.get(str(start))
        if wanted is None:
            wanted = int(start) if int(start) >= 0 else ends[each] + int(start)
        starts[each] = min(max(wanted, firsts[each]), ends[each])
    return starts, ends


async def _consume(
    arguments: argparse.Namespace,
    starts: dict[TopicPartition, int],
    ends: dict[TopicPartition, int] | None,
) -> None:
    """Print until there is a reason to end. ``starts`` is empty for a group; ``ends``: where to end."""
    from aiokafka import AIOKafkaConsumer
    from aiokafka import TopicPartition as Partition

    consumer = AIOKafkaConsumer(
        *([arguments.topic] if arguments.group else []),
        bootstrap_servers=[format_address(host, port) for host, port in arguments.addresses],
        client_id=CLIENT_ID,
        group_id=arguments.group,
        auto_offset_reset="earliest" if arguments.start == "beginning" else "latest",
        **await client_options(arguments.command_config),
    )
    await consumer.start()
    try:
        if starts:
            consumer.assign([Partition(*each) for each in starts])
            for each, offset in starts.items():
                consumer.seek(Partition(*each), offset)
        await _print_records(consumer, arguments, ends)
    finally:
        await asyncio.wait_for(consumer.stop(), STOP_DEADLINE_S)


async def _print_records(
    consumer: Any, arguments: argparse.Namespace, ends: dict[TopicPartition, int] | None
) -> None:
    from aiokafka import TopicPartition as Partition

    left: int | None = arguments.max_messages
    quiet_ms = 0
    wait_ms = POLL_MS if arguments.timeout_ms is None else min(POLL_MS, arguments.timeout_ms)
    while True:
        if ends is not None:
            positions = [(await consumer.position(Partition(*each)), end) for each, end in ends.items()]
            if all(position >= end for position, end in positions):
                return
        most = RECORDS_MAX if left is None else min(left, RECORDS_MAX)
        batches = await consumer.getmany(timeout_ms=wait_ms, max_records=most)
        records = [record for batch in batches.values() for record in batch]
        if records:
            sys.stdout.buffer.write(b"".join(map(arguments.format.line, records)))
            sys.stdout.buffer.flush()
        quiet_ms = 0 if records else quiet_ms + wait_ms
        if left is not None:
            left -= len(records)
            if left <= 0:
                return
        if arguments.timeout_ms is not None and quiet_ms >= arguments.timeout_ms:
            return
