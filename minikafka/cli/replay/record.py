"""``minikafka record``: keeps what clients ask of a cluster, and the answers, for ``minikafka replay``.

Exit status: 0 when it was ended (Ctrl-C, SIGTERM, or the end of the command that it runs), 1 when no broker
answers or the file cannot be written, 2 for bad usage; with a command its own, unless it is 0.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from minikafka.cli.replay.recording import FORMAT, VERSION, Disguise, Event, Head, RecordingError, Request
from minikafka.cli.replay.relay import Chosen, Relay, Target
from minikafka.cli.shared.admin_client import AdminClient
from minikafka.cli.shared.commands import (
    FAILURE,
    OK,
    ProfileParser,
    add_connection_options,
    parse_addresses,
    parse_bytes,
    run,
    take_connection,
)
from minikafka.network.addresses import format_address
from minikafka.units import format_bytes

PROG: Final = "minikafka record"
CLIENT_ID: Final = "minikafka-record"
SIZE_MAX: Final = 64 * 1024 * 1024
ADDRESS: Final = "{}"
"""In a command: where its clients connect to."""


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka record``."""
    options = ProfileParser(
        prog=PROG,
        usage="minikafka record [options] FILE [-- COMMAND ...]",
        description="Stand between clients and a cluster, and keep what is asked and answered, for minikafka "
        "replay. Clients connect to the address that is printed, in plain text; --command-config says how to "
        "log in to the cluster. Logins, tokens and passwords are not kept, nor the contents of records. A "
        "COMMAND is run with the address in place of {}, and the recording ends when it does.",
        epilog="example: minikafka record -b localhost:9092 bug.jsonl -- kcat -b {} -L",
        allow_abbrev=False,
    )
    options.add_argument("file", metavar="FILE", type=Path, help="where to; it must not be there yet")
    add_connection_options(options)
    options.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="where clients connect to; for the brokers further ports are taken (127.0.0.1 and any port)",
    )
    options.add_argument(
        "--client-id", action="append", default=[], metavar="PATTERN", help="only of these clients"
    )
    options.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only requests about these topics, or about none",
    )
    options.add_argument(
        "--with-records", action="store_true", help="keep keys, values and headers of records as they are"
    )
    options.add_argument(
        "--max-bytes",
        default=str(SIZE_MAX),
        metavar="SIZE",
        help=f"how large the file may become ({format_bytes(SIZE_MAX)}); then clients go on, unrecorded",
    )
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Record until it is ended. Returns the exit status."""
    options = parser()
    given = list(sys.argv[1:] if argv is None else argv)
    end = given.index("--") if "--" in given else len(given)
    arguments = options.parse_args(given[:end])
    arguments.command = given[end + 1 :]
    try:
        take_connection(arguments)
        arguments.at = ("127.0.0.1", 0)
        if arguments.listen is not None:
            arguments.at, *others = parse_addresses(arguments.listen, option="--listen")
            if others:
                raise ValueError(f"--listen {arguments.listen}: must be one HOST:PORT")
        arguments.size_max = parse_bytes(arguments.max_bytes)
    except ValueError as error:
        options.error(str(error))
    return run(PROG, _run(arguments))


class Recorder:
    """The file. It is written as requests come; nothing more once it is full."""

    def __init__(self, path: Path, head: Head, *, size_max: int) -> None:
        """Raises RecordingError: the file cannot be made, or is there already."""
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise RecordingError(f"cannot make {path}: {error.strerror}") from None
        self._path = path
        self._file = os.fdopen(descriptor, "wb")
        self._left = size_max
        self.requests = 0
        self.is_full = False
        self._write(head)

    def keep(self, event: Event) -> None:
        """Raises RecordingError: the disk does not take it."""
        if self.is_full:
            return
        self._write(event)
        if isinstance(event, Request) and not self.is_full:
            self.requests += 1

    def _write(self, line: Head | Event) -> None:
        data = msgspec.json.encode(line) + b"\n"
        if len(data) > self._left:
            self.is_full = True
            print(f"{PROG}: {self._path} is full (--max-bytes); clients go on, unrecorded", file=sys.stderr)
            return
        self._left -= len(data)
        try:
            self._file.write(data)
        except OSError as error:
            raise RecordingError(f"cannot write {self._path}: {error.strerror}") from None

    def close(self) -> None:
        """Raises RecordingError, as ``keep``. Idempotent."""
        try:
            self._file.close()
        except OSError as error:
            raise RecordingError(f"cannot write {self._path}: {error.strerror}") from None


async def _run(arguments: argparse.Namespace) -> int:
    async with AdminClient.of(arguments, CLIENT_ID) as admin:
        brokers = (await admin.nodes()).brokers
    first = brokers[min(brokers)]
    head = Head(FORMAT, VERSION, "kept" if arguments.with_records else "hidden", sorted(brokers))
    recorder = Recorder(arguments.file, head, size_max=arguments.size_max)
    try:
        async with _listening(arguments, Target(first.host, first.port), recorder) as (address, failed):
            status = await (_run_command if arguments.command else _wait)(arguments, address, failed)
    finally:
        recorder.close()
    print(f"{recorder.requests} requests in {arguments.file}", file=sys.stderr)
    return status


@contextlib.asynccontextmanager
async def _listening(
    arguments: argparse.Namespace, target: Target, recorder: Recorder
) -> AsyncIterator[tuple[str, asyncio.Future[None]]]:
    """The relay's address, and a future that gets the reason why the recording has failed."""
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def keep(event: Event) -> None:
        try:
            recorder.keep(event)
        except RecordingError as error:
            if not failed.done():
                failed.set_exception(error)

    host, port = arguments.at
    relay = Relay(
        host=host,
        security=arguments.security,
        timeout_ms=arguments.timeout_ms,
        chosen=Chosen(tuple(arguments.client_id), tuple(arguments.topic)),
        disguise=None if arguments.with_records else Disguise(),
        keep=keep,
        say=lambda text: print(f"{PROG}: {text}", file=sys.stderr),
    )
    try:
        try:
            port = await relay.listen(None, target, port=port)
        except OSError as error:
            raise RecordingError(f"cannot listen on {format_address(host, port)}: {error.strerror}") from None
        yield format_address(host, port), failed
    finally:
        await relay.close()


async def _wait(arguments: argparse.Namespace, address: str, failed: asyncio.Future[None]) -> int:
    print(f"Clients connect to {address}. Ctrl-C ends the recording.", flush=True)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    await _first(ended.wait(), failed)
    return OK


async def _run_command(arguments: argparse.Namespace, address: str, failed: asyncio.Future[None]) -> int:
    words = [each.replace(ADDRESS, address) for each in arguments.command]
    try:
        process = await asyncio.create_subprocess_exec(*words)
    except OSError as error:
        print(f"{PROG}: cannot run {words[0]}: {error.strerror}", file=sys.stderr)
        return FAILURE
    try:
        await _first(process.wait(), failed)
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    assert process.returncode is not None
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


async def _first(work, failed: asyncio.Future[None]) -> None:  # type: ignore[no-untyped-def]
    """Until ``work`` is done. Raises what ``failed`` has, sooner."""
    task = asyncio.ensure_future(work)
    await asyncio.wait((task, failed), return_when=asyncio.FIRST_COMPLETED)
    task.cancel()
    if failed.done():
        failed.result()


if __name__ == "__main__":
    sys.exit(main())
