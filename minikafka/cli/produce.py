"""``minikafka produce``: lines of standard input become records of a topic.

Kafka: ``kafka-console-producer.sh`` (``ConsoleProducer``), and kcat's habits: a line without the key
separator has no key. aiokafka's producer does the work.

Exit status: 0 when every line was written, 1 when a record was refused or no broker answers, 2 for bad usage.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

from minikafka.cli.shared.admin_client import AdminClient
from minikafka.cli.shared.commands import (
    OK,
    CommandError,
    ProfileParser,
    add_connection_options,
    run,
    take_connection,
)
from minikafka.cli.shared.terminal_client import (
    CLIENT_ID,
    STOP_DEADLINE_S,
    client_errors,
    client_options,
    unescape,
)
from minikafka.network.addresses import format_address
from minikafka.types import TopicPartition

PROG = "minikafka produce"
READ_BYTES = 64 * 1024
CHUNKS_MAX = 16
"""What is read ahead of the broker."""
LINGER_MS = 5


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka produce``."""
    options = ProfileParser(
        prog=PROG,
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


def main(argv: Sequence[str] | None = None) -> int:
    """Produce. Returns the exit status."""
    options = parser()
    arguments = options.parse_args(argv)
    try:
        take_connection(arguments)
        arguments.headers = [_header(text) for text in arguments.header]
    except ValueError as error:
        options.error(str(error))
    if arguments.key_separator == "":
        options.error("--key-separator must not be empty")
    return run(PROG, _run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
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


if __name__ == "__main__":
    sys.exit(main())
