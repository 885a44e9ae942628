"""The brokers of a running ``minikafka cluster``, as child processes or on the event loop of this one: in
what state each is; starts, stops and kills single ones.

Invariants:
- What is done to one broker is done one thing after the other; different brokers do not wait for each other.
- A broker that ends by itself is reported; one that was stopped or killed on request is not, the request is.
- ``ended`` resolves when the last broker has ended by itself. While one was taken down on request the cluster
  is kept, because its broker may be wanted again.

``minikafka cluster start|stop|kill ID`` asks a running cluster about one of its brokers. The two talk over a
Unix socket in the cluster's data directory, ``control.sock``, which only its owner may use. A request is a
line of JSON, ``{"action": "start", "broker": 2}``, and so is its answer, ``{"said": ..., "failed": false}``.
A socket that a killed cluster has left behind gives no answer; the next cluster on that directory takes its
place. Exit status: 0 when it is done, 1 when it cannot be done or no cluster runs there, 2 for bad usage.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import enum
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

import msgspec

from minikafka.cli.broker import OFF, http_url, status_page_in, usual_http_port
from minikafka.cli.shared.commands import INTERRUPTED
from minikafka.config.broker import is_password
from minikafka.config.listeners import Listener
from minikafka.config.loader import Setting, load
from minikafka.config.properties import properties_line
from minikafka.errors import MinikafkaError, StartError
from minikafka.files import open_regular
from minikafka.network.addresses import format_address
from minikafka.network.broker_client import BrokerClient, BrokerUnavailable

if TYPE_CHECKING:
    from minikafka.network.client_security import ClientSecurity
    from minikafka.security.secure_setup import SecureSetup
    from minikafka.server.broker import Broker


START_DEADLINE_S = 60.0
"""A directory full of segments to recover takes its time."""
STOP_DEADLINE_S = 30.0
BANNER_DEADLINE_S = 15.0
"""A broker without a controller says that it is up after ten seconds."""
POLL_S = 0.05
LOCALHOST = "localhost"
EVERY_INTERFACE = "0.0.0.0"

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


# Brokers


@dataclass(frozen=True, kw_only=True)
class MemberConfig:
    """One broker: where it is, and its properties beyond that."""

    node_id: int
    port: int
    data_dir: Path
    log_path: Path
    properties: dict[str, str]
    http_port: str | None = None
    """A number or ``off``; None: what the properties or a broker's own default say."""
    host: str = LOCALHOST
    """What it listens on; empty: every interface."""
    secure: SecureSetup | None = None
    """What ``--secure`` has made for it; None: anybody may do anything."""
    security: ClientSecurity | None = None
    """How this process reaches it."""

    @property
    def address(self) -> tuple[str, int]:
        """Where this process, and each on this machine, reaches it."""
        return self.host or LOCALHOST, self.port

    @property
    def advertised(self) -> str:
        """Where clients elsewhere reach it, ``host:port``."""
        return format_address(self.host or socket.getfqdn(), self.port)

    @property
    def listener(self) -> str:
        return str(Listener("PLAINTEXT" if self.secure is None else "SASL_SSL", self.host, self.port))

    def settings(self) -> list[Setting]:
        """All properties, for the loader."""
        where: dict[str, str] = {
            "log.dirs": str(self.data_dir),
            "listeners": self.listener,
            "advertised.listeners": "",
        }
        if self.http_port is not None and self.http_port != OFF:
            where["http.port"] = self.http_port
        given = [Setting(name, value, "--set") for name, value in (where | self.properties).items()]
        return given if self.secure is None else [*given, *self.secure.settings]


class Member(Protocol):
    """A broker of the cluster."""

    config: MemberConfig

    @property
    def where(self) -> str:
        """Where it listens, and where to look for what it says."""
        ...

    async def start(self) -> None:
        """Returns when it answers. Raises StartError."""
        ...

    async def status_page(self) -> str | None:
        """Where it is, once the broker has said so; None: nowhere."""
        ...

    async def ended(self) -> str:
        """Wait until it has ended by itself. Returns a sentence that says how."""
        ...

    async def stop(self) -> None:
        """Stop it cleanly. Idempotent, and fine after a start that failed."""
        ...

    @property
    def can_be_killed(self) -> bool:
        """It can crash without the others."""
        ...

    def kill(self) -> None:
        """End it at once, if it does not end with this process."""
        ...


class ChildMember:
    """A ``minikafka-broker`` process. It is in a session of its own: a Ctrl-C reaches only the parent, which
    stops one broker after the other."""

    def __init__(self, config: MemberConfig) -> None:
        self.config = config
        self._process: asyncio.subprocess.Process | None = None
        self._said_before = 0

    def __repr__(self) -> str:
        return f"ChildMember(broker {self.config.node_id}, {self._process})"

    @property
    def where(self) -> str:
        assert self._process is not None
        address = format_address(*self.config.address)
        return f"{address}, process {self._process.pid}, log in {self.config.log_path}"

    async def start(self) -> None:
        config = self.config
        with open(config.log_path, "ab", opener=open_regular) as log:  # noqa: ASYNC230 - one small file, before anything is served
            self._said_before = log.tell()
            await self._spawn(log)
        ended = asyncio.ensure_future(self._wait())
        try:
            async with asyncio.timeout(START_DEADLINE_S):
                while not await _answers(config):
                    if ended.done():
                        raise StartError(self._why())
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise StartError(
                f"broker {config.node_id} does not answer within {START_DEADLINE_S:g} s; "
                f"its log: {config.log_path}"
            ) from None
        finally:
            ended.cancel()

    async def _spawn(self, log: IO[bytes]) -> None:
        config = self.config
        secret = {name: value for name, value in config.properties.items() if is_password(name)}
        plain = {name: value for name, value in config.properties.items() if name not in secret}
        properties = [f"--set={name}={value}" for name, value in plain.items()]
        if secret:  # a command line can be seen by all
            properties.append(f"--config={_written(secret, config.log_path.with_suffix('.secrets'))}")
        command = [
            "-P",
            "-m",
            "minikafka.cli.broker",
            f"--listen={format_address(config.host or EVERY_INTERFACE, config.port)}",
            f"--data-dir={config.data_dir}",
            *([] if config.http_port is None else [f"--http-port={config.http_port}"]),
            *(
                []
                if config.secure is None
                else ["--secure", f"--security-dir={config.secure.directory.path}"]
            ),
        ]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            *properties,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    async def _wait(self) -> int:
        assert self._process is not None
        return await self._process.wait()

    async def ended(self) -> str:
        status = await self._wait()
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return f"broker {self.config.node_id} {how}; its log: {self.config.log_path}"

    async def status_page(self) -> str | None:
        """As its banner has it, which is printed when a controller has sent metadata."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BANNER_DEADLINE_S):
                while self._process is not None and self._process.returncode is None:
                    try:
                        return status_page_in(self._said())
                    except LookupError:
                        await asyncio.sleep(POLL_S)
        return None

    def _said(self) -> list[str]:
        """The lines that this process has written."""
        data = self.config.log_path.read_bytes()[self._said_before :]
        return data.decode(errors="replace").splitlines()

    def _why(self) -> str:
        """What the broker itself gave as the reason for not starting."""
        reasons = [line for line in self._said() if line.startswith("minikafka-broker: ")]
        reason = reasons[-1].removeprefix("minikafka-broker: ") if reasons else "it ended"
        return f"broker {self.config.node_id}: {reason} (its log: {self.config.log_path})"

    async def stop(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(STOP_DEADLINE_S):
                await process.wait()
        except TimeoutError:
            print(
                f"minikafka cluster: broker {self.config.node_id} does not stop within {STOP_DEADLINE_S:g} s "
                f"and is killed; its log: {self.config.log_path}",
                file=sys.stderr,
            )
            process.kill()
            await process.wait()

    can_be_killed = True

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()


class InProcessMember:
    """A broker on this event loop."""

    can_be_killed = False

    def __init__(self, config: MemberConfig) -> None:
        self.config = config
        self._broker: Broker | None = None
        self._scheme = "http"

    def __repr__(self) -> str:
        return f"InProcessMember({self._broker!r})"

    @property
    def where(self) -> str:
        return f"{format_address(*self.config.address)}, data in {self.config.data_dir}"

    async def start(self) -> None:
        from minikafka.server.broker import Broker

        loaded = load(settings=self.config.settings()).config
        self._scheme = loaded.http_scheme()
        usual = None if self.config.http_port == OFF else usual_http_port(loaded)
        first_users = () if self.config.secure is None else self.config.secure.first_users
        self._broker = Broker(loaded, usual_http_port=usual, first_users=first_users)
        try:
            await self._broker.start()
        except StartError as error:
            raise StartError(f"broker {self.config.node_id}: {error}") from error

    async def status_page(self) -> str | None:
        assert self._broker is not None
        return http_url(self._broker.http_address, "/", scheme=self._scheme)

    async def ended(self) -> str:
        assert self._broker is not None
        reason = await asyncio.shield(self._broker.failure)
        await self._broker.stop()
        return f"broker {self.config.node_id} stopped because of a failure: {type(reason).__name__}: {reason}"

    async def stop(self) -> None:
        if self._broker is not None:
            await self._broker.stop()

    def kill(self) -> None:
        """It ends with this process."""


def _written(properties: dict[str, str], path: Path) -> Path:
    """The properties in a file that only its owner may read."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.writelines(properties_line(name, value) for name, value in properties.items())
    return path


async def _answers(config: MemberConfig) -> bool:
    try:
        client = await BrokerClient.connect(
            *config.address, client_id="minikafka-cluster", deadline_ms=5_000, security=config.security
        )
    except BrokerUnavailable:
        return False
    await client.close()
    return True


# What is done to them


class BrokerLife(enum.Enum):
    """What a broker of the cluster does."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    KILLED = "killed"
    ENDED = "ended by itself"


class ControlError(MinikafkaError):
    """What was asked for cannot be done; the message is for the person who asked."""


class _Supervised:
    def __init__(self, member: Member) -> None:
        self.member = member
        self.life = BrokerLife.STARTING
        self.turn = asyncio.Lock()
        self.watch: asyncio.Task[None] | None = None


class ClusterSupervisor:
    """All brokers of one cluster. ``say`` gets a line for each broker that ends by itself."""

    def __init__(self, members: Sequence[Member], say: Callable[[str], None]) -> None:
        self._brokers = {each.config.node_id: _Supervised(each) for each in members}
        self._say = say
        self.ended = asyncio.Event()

    def __repr__(self) -> str:
        lives = ", ".join(f"{node_id} {each.life.value}" for node_id, each in self._brokers.items())
        return f"ClusterSupervisor({lives})"

    async def start_all(self) -> list[str | None]:
        """Start every broker. Returns their status pages, None: nowhere. Raises StartError."""
        return await asyncio.gather(*map(self._start_in_turn, self._brokers.values()))

    async def _start_in_turn(self, broker: _Supervised) -> str | None:
        async with broker.turn:  # a request at the control socket may be early
            return await self._start(broker)

    async def start(self, node_id: int) -> str:
        """Start a broker that is down, with its port and its directory. Returns a sentence about it.

        Raises:
            ControlError: there is no such broker, or it runs. StartError: it cannot start.
        """
        broker = self._find(node_id)
        async with broker.turn:
            if broker.life is BrokerLife.RUNNING:
                raise ControlError(f"broker {node_id} is running")
            page = await self._start(broker)
        told = f"broker {node_id} was started: {broker.member.where}"
        return told if page is None else f"{told}, status page {page}"

    async def stop(self, node_id: int) -> str:
        """Stop a broker cleanly. Returns a sentence about it. Raises ControlError."""
        broker = self._find(node_id)
        async with broker.turn:
            await self._begin_ending(broker)
            broker.life = BrokerLife.STOPPING
            await broker.member.stop()
            broker.life = BrokerLife.STOPPED
        return f"broker {node_id} was stopped"

    async def kill(self, node_id: int) -> str:
        """End a broker as a crash would. Returns a sentence about it. Raises ControlError."""
        broker = self._find(node_id)
        async with broker.turn:
            if not broker.member.can_be_killed:
                raise ControlError(
                    f"broker {node_id} shares a process with the others (--in-process): "
                    "it can only be stopped"
                )
            await self._begin_ending(broker)
            broker.member.kill()
            await broker.member.ended()
            broker.life = BrokerLife.KILLED
        return f"broker {node_id} was killed"

    async def stop_all(self, *, last: int) -> None:
        """One after the other, so that each finds one that takes over what it leads; ``last`` is the last."""
        for node_id, broker in sorted(self._brokers.items(), key=lambda each: each[0] == last):
            await _cancel(broker.watch)
            await broker.member.stop()
            self._brokers[node_id].life = BrokerLife.STOPPED

    def kill_all(self) -> None:
        """End everything at once."""
        for broker in self._brokers.values():
            broker.member.kill()

    def _find(self, node_id: int) -> _Supervised:
        found = self._brokers.get(node_id)
        if found is None:
            there = ", ".join(map(str, self._brokers))
            raise ControlError(f"there is no broker {node_id}: the brokers of this cluster are {there}")
        return found

    async def _start(self, broker: _Supervised) -> str | None:
        broker.life = BrokerLife.STARTING
        try:
            await broker.member.start()
        except StartError:
            await broker.member.stop()  # it may hang instead of having ended
            broker.life = BrokerLife.STOPPED
            raise
        broker.life = BrokerLife.RUNNING
        broker.watch = asyncio.create_task(self._watch(broker))
        return await broker.member.status_page()

    async def _begin_ending(self, broker: _Supervised) -> None:
        if broker.life is not BrokerLife.RUNNING:
            raise ControlError(f"broker {broker.member.config.node_id} is not running ({broker.life.value})")
        await _cancel(broker.watch)

    async def _watch(self, broker: _Supervised) -> None:
        sentence = await broker.member.ended()
        broker.life = BrokerLife.ENDED
        self._say(sentence)
        if all(each.life is BrokerLife.ENDED for each in self._brokers.values()):
            self.ended.set()


async def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


# Start, stop and kill from elsewhere


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
