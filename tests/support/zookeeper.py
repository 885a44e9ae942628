"""ZooKeeper servers for tests, from Debian's package (libzookeeper-java) or Apache's in $ZOOKEEPER_HOME.

A server listens on loopback only, keeps its data in a directory of the test's, and starts in half a second.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.ports import free_port

DEBIAN_JAR = Path("/usr/share/java/zookeeper.jar")
DEBIAN_NETTY = [Path(f"/usr/share/java/netty-{part}.jar") for part in ("codec", "resolver")]
"""What Debian's jar does not name, and TLS needs."""
START_DEADLINE_S = 90.0
STOP_DEADLINE_S = 60.0
TICK_MS = 100
"""The server's unit of time: it looks for expired sessions so often, and none may be shorter than two."""

JVM = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
SETTINGS = [
    "-Dzookeeper.forceSync=no",  # no fsync: the page cache outlives the process
    "-Dzookeeper.preAllocSize=1024",  # KiB of transaction log at a time, instead of 64 MiB
]


def skip_if_missing() -> None:
    """Skip the test on a machine that cannot run a server; with CI=true fail it."""
    if shutil.which("java") is None:
        reason = "java is not there"
    elif _class_path() is None:
        reason = "ZooKeeper is not there (Debian: libzookeeper-java; else set ZOOKEEPER_HOME)"
    else:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def _class_path() -> str | None:
    if home := os.environ.get("ZOOKEEPER_HOME"):
        return f"{home}/lib/*"
    return os.pathsep.join(map(str, [DEBIAN_JAR, *DEBIAN_NETTY])) if DEBIAN_JAR.exists() else None


class ZooKeeperServer:
    """A server as a process. Keeps its directory and its port over restarts."""

    def __init__(
        self,
        directory: Path,
        *,
        members: tuple[str, ...] = (),
        settings: Sequence[str] = (),
        java_options: Sequence[str] = (),
    ) -> None:
        """``members``: the lines of zoo.cfg that name the servers of its ensemble; none: it stands alone.
        ``settings``: more lines of zoo.cfg."""
        self.directory = directory
        self.port = 0
        self.secure_port = 0
        """Of the clients with TLS; 0: there is none."""
        self._members = (*members, *settings)
        self._java_options = java_options
        self._process: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        return f"<ZooKeeperServer {self.address} {self.directory}>"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log_text(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def start(self) -> ZooKeeperServer:
        """Start and wait until it takes sessions. Another process may be faster to a free port: try again. A
        server that was killed keeps its port: its clients know no other."""
        known_port = self.port
        for _ in range(3):
            self.launch(known_port or free_port())
            if self.wait_until_ready():
                return self
        raise AssertionError(f"ZooKeeper did not start\n{self.log_text}")

    def launch(self, port: int) -> None:
        """Start without waiting."""
        self.port = port
        config = self.directory / "zoo.cfg"
        config.write_text(
            f"tickTime={TICK_MS}\nmaxSessionTimeout=60000\ndataDir={self.directory}/data\n"
            f"clientPortAddress=127.0.0.1\nclientPort={port}\nmaxClientCnxns=0\n"
            "admin.enableServer=false\n4lw.commands.whitelist=\ninitLimit=100\nsyncLimit=50\n"
            + "".join(f"{member}\n" for member in self._members)
        )
        main = ["-cp", str(_class_path()), "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)]
        with open(self.directory / "log", "ab") as log:
            self._process = subprocess.Popen(
                [*JVM, *SETTINGS, *self._java_options, *main],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
            )

    def wait_until_ready(self) -> bool:
        """Wait until it takes sessions. False: its process has ended."""
        assert self._process is not None
        deadline = time.monotonic() + START_DEADLINE_S
        while not _takes_sessions(self.port):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=0.02)  # which paces the attempts
                return False
            assert time.monotonic() < deadline, f"no session within {START_DEADLINE_S} s\n{self.log_text}"
        return True

    def pause(self) -> None:
        """Freeze it: it keeps its connections, takes new ones, and says nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Idempotent, also when it is paused."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait(timeout=STOP_DEADLINE_S)
            self._process = None

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def end_session(self, session_id: int, password: bytes) -> None:
        """End somebody's session, as if it had expired: take it over, and close it."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=STOP_DEADLINE_S) as connection:
            assert _connect(connection, session_id, password) > 0, "it is over already"
            connection.sendall(struct.pack("!iii", 8, 1, -11))
            assert connection.recv(4), "no answer to closeSession"


@contextlib.contextmanager
def ensemble(directory: Path, size: int) -> Iterator[list[ZooKeeperServer]]:
    """Servers that elect a leader and take over each other's sessions."""
    ports = [(free_port(), free_port()) for _ in range(size)]
    members = tuple(f"server.{n}=127.0.0.1:{peer}:{vote}" for n, (peer, vote) in enumerate(ports, start=1))
    servers = []
    for number in range(1, size + 1):
        data = directory / f"server-{number}" / "data"
        data.mkdir(parents=True)
        (data / "myid").write_text(str(number))
        servers.append(ZooKeeperServer(data.parent, members=members))
    try:
        for server in servers:
            server.launch(free_port())
        for server in servers:
            assert server.wait_until_ready(), server.log_text
        yield servers
    finally:
        for server in servers:
            server.kill()


def _connect(connection: socket.socket, session_id: int, password: bytes) -> int:
    """A ConnectRequest of 10 seconds; returns the timeout of its answer, 0 or less: no such session."""
    body = struct.pack("!iqiqi16s?", 0, 0, 10_000, session_id, 16, password, False)
    connection.sendall(struct.pack("!i", len(body)) + body)
    answer = connection.makefile("rb").read(41)
    if len(answer) < 41:
        raise ConnectionError("the server hung up")
    _, _, timeout_ms = struct.unpack_from("!iii", answer)
    return int(timeout_ms)


def _takes_sessions(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=0.2) as connection:
            return _connect(connection, 0, bytes(16)) > 0
    except OSError:
        return False


USER, PASSWORD = "kafka", "a long secret"


def secured_server(
    directory: Path, *, client_auth: str = "none", requires_sasl: bool = True
) -> ZooKeeperServer:
    """One with TLS on its port ``secure_port`` and a login by DIGEST-MD5, with which it answers nobody else.

    ``directory`` has ``server.p12`` and ``ca.p12``, both with ``PASSWORD``. ``client_auth``: none, want or need a certificate.
    """
    secure_port = free_port()
    jaas = directory / "jaas.conf"
    jaas.write_text(
        "Server { org.apache.zookeeper.server.auth.DigestLoginModule required "
        f'user_{USER}="{PASSWORD}"; }};\n'
    )
    server = ZooKeeperServer(
        directory,
        settings=[
            f"secureClientPort={secure_port}",
            "secureClientPortAddress=127.0.0.1",
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            f"ssl.keyStore.location={directory}/server.p12",
            f"ssl.keyStore.password={PASSWORD}",
            f"ssl.trustStore.location={directory}/ca.p12",
            f"ssl.trustStore.password={PASSWORD}",
            f"ssl.clientAuth={client_auth}",
            "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            "authProvider.2=org.apache.zookeeper.server.auth.X509AuthenticationProvider",
            *(["sessionRequireClientSASLAuth=true"] if requires_sasl else []),
        ],
        java_options=[f"-Djava.security.auth.login.config={jaas}"],
    )
    server.secure_port = secure_port
    return server
