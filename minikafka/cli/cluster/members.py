"""The brokers of ``minikafka cluster``: as child processes, or on the event loop of this one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from minikafka.cli.broker import OFF, http_url, status_page_in, usual_http_port
from minikafka.config.broker import is_password
from minikafka.config.loader import Setting, load
from minikafka.config.properties import properties_line
from minikafka.errors import StartError
from minikafka.files import open_regular
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
HOST = "localhost"


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
    secure: SecureSetup | None = None
    """What ``--secure`` has made for it; None: anybody may do anything."""
    security: ClientSecurity | None = None
    """How this process reaches it."""

    @property
    def address(self) -> tuple[str, int]:
        return HOST, self.port

    @property
    def listener(self) -> str:
        return f"{'PLAINTEXT' if self.secure is None else 'SASL_SSL'}://{HOST}:{self.port}"

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
        return f"{HOST}:{self.config.port}, process {self._process.pid}, log in {self.config.log_path}"

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
            f"--port={config.port}",
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
        return f"{HOST}:{self.config.port}, data in {self.config.data_dir}"

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
