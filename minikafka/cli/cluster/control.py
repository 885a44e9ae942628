"""``minikafka cluster start|stop|kill ID``: asks a running ``minikafka cluster`` about one of its brokers.

The two talk over a Unix socket in the cluster's data directory, ``control.sock``, which only its owner may
use. A request is a line of JSON, ``{"action": "start", "broker": 2}``, and so is its answer,
``{"said": ..., "failed": false}``. A socket that a killed cluster has left behind gives no answer; the next
cluster on that directory takes its place.

Exit status: 0 when it is done, 1 when it cannot be done or no cluster runs there, 2 for bad usage.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec

from minikafka.cli.cluster.supervisor import ClusterSupervisor, ControlError
from minikafka.cli.shared.commands import INTERRUPTED
from minikafka.errors import MinikafkaError, StartError

OK, FAILURE = 0, 1
SOCKET = "control.sock"
ACTIONS = {
    "start": "start a broker that is down, with its port and its records",
    "stop": "stop a broker cleanly",
    "kill": "end a broker as a crash would (SIGKILL)",
}
DEFAULT_DATA_DIR = "minikafka-cluster"
REQUEST_DEADLINE_S = 5.0
"""For a line that a command writes at once."""
CONNECT_DEADLINE_S = 5.0


class Request(msgspec.Struct, frozen=True):
    """What is wanted of which broker."""

    action: str
    broker: int


class Answer(msgspec.Struct, frozen=True):
    """What became of it, as a sentence."""

    said: str
    failed: bool = False


def parser(action: str) -> argparse.ArgumentParser:
    """The command line of ``minikafka cluster start``, ``stop`` or ``kill``."""
    options = argparse.ArgumentParser(
        prog=f"minikafka cluster {action}",
        description=f"Beside a running minikafka cluster: {ACTIONS[action]}.",
        allow_abbrev=False,
    )
    options.add_argument("broker", type=int, metavar="ID", help="the id of the broker")
    options.add_argument(
        "--data-dir",
        default=DEFAULT_DATA_DIR,
        metavar="DIR",
        help=f"that of the running cluster ({DEFAULT_DATA_DIR})",
    )
    return options


def main(action: str, argv: Sequence[str]) -> int:
    """Ask the running cluster. Returns the exit status."""
    arguments = parser(action).parse_args(argv)
    try:
        answer = ask(Path(arguments.data_dir), Request(action, arguments.broker))
    except KeyboardInterrupt:
        return INTERRUPTED
    except MinikafkaError as error:
        answer = Answer(str(error), failed=True)
    if answer.failed:
        print(f"minikafka cluster {action}: {answer.said}", file=sys.stderr)
        return FAILURE
    print(answer.said)
    return OK


def ask(directory: Path, request: Request) -> Answer:
    """Wait for the answer of the cluster that runs on ``directory``.

    Raises:
        StartError: none does, or it ended before it answered.
    """
    connection = _connect(directory)
    if connection is None:
        raise StartError(f"no cluster runs on {directory.absolute()}; --data-dir names another directory")
    with connection:
        try:
            connection.sendall(msgspec.json.encode(request) + b"\n")
            line = connection.makefile("rb").readline()
        except OSError as error:
            raise StartError(f"the cluster on {directory.absolute()}: {error.strerror}") from None
    if not line.endswith(b"\n"):
        raise StartError(f"the cluster on {directory.absolute()} ended before it answered")
    return msgspec.json.decode(line, type=Answer)


@contextlib.asynccontextmanager
async def served(directory: Path, supervisor: ClusterSupervisor) -> AsyncIterator[None]:
    """Answer requests while the body runs.

    Raises:
        StartError: another cluster runs on ``directory``, or the socket cannot be made.
    """
    listener = _listen(directory)
    asking: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(_answer(supervisor, reader, writer))
        asking.add(task)
        task.add_done_callback(asking.discard)

    server = await asyncio.start_unix_server(accept, sock=listener)
    try:
        yield
    finally:
        (directory / SOCKET).unlink(missing_ok=True)
        server.close()
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


async def _answer(
    supervisor: ClusterSupervisor, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    actions = {"start": supervisor.start, "stop": supervisor.stop, "kill": supervisor.kill}
    try:
        async with asyncio.timeout(REQUEST_DEADLINE_S):
            line = await reader.readline()
        if not line:  # another cluster looked whether this one runs
            return
        try:
            request = msgspec.json.decode(line, type=Request)
            if request.action not in actions:
                raise ControlError(f"there is no action {request.action}: there are {', '.join(actions)}")
            answer = Answer(await actions[request.action](request.broker))
        except (MinikafkaError, msgspec.DecodeError) as error:
            answer = Answer(str(error), failed=True)
        writer.write(msgspec.json.encode(answer) + b"\n")
        await writer.drain()
    except (OSError, ValueError):  # TimeoutError too; a line too long. What a command asked for is done,
        pass  # also when it was interrupted meanwhile
    finally:
        writer.close()


def _connect(directory: Path) -> socket.socket | None:
    """None: no cluster listens there."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(CONNECT_DEADLINE_S)
    try:
        with contextlib.chdir(directory):  # a whole path may be too long for a socket's address (108 bytes)
            connection.connect(SOCKET)
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        connection.close()
        return None
    except OSError as error:
        connection.close()
        raise StartError(f"cannot talk to the cluster on {directory.absolute()}: {error.strerror}") from None
    connection.settimeout(None)
    return connection


def _listen(directory: Path) -> socket.socket:
    other = _connect(directory)
    if other is not None:
        other.close()
        raise StartError(f"a cluster runs on {directory} already; --data-dir chooses another directory")
    listener = socket.socket(socket.AF_UNIX)
    try:
        with contextlib.chdir(directory):
            Path(SOCKET).unlink(missing_ok=True)  # of a cluster that was killed
            listener.bind(SOCKET)
            os.chmod(SOCKET, 0o600)  # before a client can connect
            listener.listen()
    except OSError as error:
        listener.close()
        raise StartError(f"cannot listen on {directory / SOCKET}: {error.strerror}") from None
    return listener
