"""``minikafka cluster``: several brokers on this machine, started and stopped together.

One child process a broker (``minikafka-broker`` with a port, a directory and a log file of its own), or all
in this process. They share a SQLite file in the data directory, or a ZooKeeper. A cluster that is started
again on the same directory continues with its records, if it has as many brokers as before.

One broker uses one core (``docs/decisions/015``), so ``--brokers auto`` runs one for each core that this
process may use: those of its affinity, and no more than its control group's quota pays for. Brokers of one
machine share its memory, which Kafka's defaults, meant for one broker a machine, do not know.

What is shown (live brokers, the controller, leaders) is asked of the cluster itself with Metadata, every
second: on a terminal a table that is drawn again when something has changed, elsewhere one line for each
thing that has. ``minikafka cluster describe`` is another command (``describe``): it looks at a cluster that
runs. So are ``start``, ``stop`` and ``kill`` (``supervisor``), which ask the one that runs on the same data
directory.

Exit status: 0 after a clean stop, 1 when the cluster cannot start or all brokers have ended, 2 for bad usage.
A second signal ends everything at once, as a crash would.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from minikafka.cli.broker import DEFAULT_PORT, HTTP_PORT_BASE, OFF, admin_lines, parse_listen
from minikafka.cli.cluster import supervisor as cluster_control
from minikafka.cli.cluster.supervisor import (
    DEFAULT_DATA_DIR,
    EVERY_INTERFACE,
    LOCALHOST,
    ChildMember,
    ClusterSupervisor,
    InProcessMember,
    Member,
    MemberConfig,
)
from minikafka.config.listeners import Listener
from minikafka.config.loader import Setting, configured, load, parse_setting
from minikafka.errors import ConfigError, KafkaError, PeerProtocolError, StartError
from minikafka.files import make_private_directory
from minikafka.network.addresses import format_address
from minikafka.network.broker_client import BrokerClient, BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from minikafka.network.client_security import ClientSecurity

REFRESH_S = 1.0
DEADLINE_MS = 3_000
ROWS_MAX = 40
"""Partitions on a terminal; more do not fit."""

NO_NODE = -1

FAILURE = 1
AUTO = "auto"
"""``--brokers``: one for each core."""
BROKERS_MAX = 100
PORT_MAX = 65535
NODE_ID_MAX = 2**31 - 1
DEFAULTS = {"zookeeper.session.timeout.ms": "6000"}
"""A killed broker is noticed after 6 s: Kafka's 18 s are for networks and garbage collections."""
OWN = ("node.id", "broker.id", "listeners", "advertised.listeners", "log.dirs", "log.dir", "coordination")
"""Properties that differ from broker to broker, or hold them together: they are not for ``--set``."""

_EPILOG = """\
minikafka cluster start|stop|kill ID, in another terminal: one broker of the cluster that runs.
minikafka cluster describe --bootstrap-server HOST:PORT: how a cluster is (any cluster).
"""

CGROUPS = Path("/sys/fs/cgroup")
MEMORY_SHARE = 0.5
"""Of the memory for brokers; the page cache, in which the newest records are read, has the rest."""
BROKER_BYTES = 64 * 1024 * 1024
"""What a broker takes beside the budgets below."""
BUDGETS = {
    "queued.max.request.bytes": 256 * 1024 * 1024,
    "group.max.memory.bytes": 256 * 1024 * 1024,
    "log.cleaner.dedupe.buffer.size": 128 * 1024 * 1024,
}
"""Properties that bound memory, and their defaults."""
BUDGET_MIN = 16 * 1024 * 1024


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka cluster``."""
    options = argparse.ArgumentParser(
        prog="minikafka cluster",
        description="A cluster of several brokers on this machine; Ctrl-C stops it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    options.add_argument(
        "--brokers",
        default="3",
        metavar="N",
        help="how many (3); auto: one for each core that this process may use, so that they do together what "
        "one broker of Kafka does on this machine: topics of as many partitions, kept once unless a topic "
        "says otherwise, memory divided between them, the machine as their rack",
    )
    options.add_argument(
        "--in-process", action="store_true", help="all brokers in this process, instead of one process each"
    )
    options.add_argument(
        "--data-dir",
        default=DEFAULT_DATA_DIR,
        metavar="DIR",
        help=f"keep records, logs and the cluster's state below DIR ({DEFAULT_DATA_DIR})",
    )
    _add_where(options)
    options.add_argument(
        "--first-id",
        type=int,
        default=1,
        metavar="ID",
        help="id of the first broker; the others have the next ones (1)",
    )
    options.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="set a property of all brokers; may be repeated",
    )
    options.add_argument(
        "--api-versions",
        metavar="RELEASE",
        help="look like this release of Kafka to clients: 3.9, 4.1 or 4.4 (4.4)",
    )
    options.add_argument(
        "--secure",
        action="store_true",
        help="TLS and users with passwords, between brokers too, and nothing allowed that no ACL allows; "
        "certificates and passwords are made once, below DIR/security",
    )
    options.add_argument(
        "--zookeeper",
        metavar="HOST:PORT",
        help="keep the cluster's state in this ZooKeeper, instead of a SQLite file",
    )
    return options


def _add_where(options: argparse.ArgumentParser) -> None:
    """Ports and addresses."""
    options.add_argument(
        "--port",
        type=int,
        metavar="PORT",
        help="of the first broker; the others take the next ones (9092; 0: any free ports)",
    )
    options.add_argument(
        "--listen",
        metavar="HOST[:PORT]",
        help="listen on HOST, the first broker on PORT (9092), instead of localhost; "
        "0.0.0.0 is every interface",
    )
    options.add_argument(
        "--http-port",
        metavar="PORT",
        help="of the first broker's status page and metrics; the others take the next ones "
        f"({HTTP_PORT_BASE} + the broker's id, where that is free; 0: any free ports, off: none)",
    )


def subcommand_parsers() -> dict[str, argparse.ArgumentParser]:
    """The command lines of ``describe``, ``start``, ``stop`` and ``kill``."""
    from minikafka.cli.cluster import describe as cluster_describe

    actions = {action: cluster_control.parser(action) for action in cluster_control.ACTIONS}
    return {"describe": cluster_describe.parser()} | actions


def main(argv: Sequence[str] | None = None) -> int:
    """Run a cluster until a signal stops it, or describe one. Returns the exit status."""
    given = list(sys.argv[1:] if argv is None else argv)
    if given[:1] == ["describe"]:
        from minikafka.cli.cluster import describe as cluster_describe

        return cluster_describe.main(given[1:])
    if given and given[0] in cluster_control.ACTIONS:
        return cluster_control.main(given[0], given[1:])
    options = parser()
    arguments = options.parse_args(given)
    if mistake := mistake_in(arguments):
        options.error(mistake)
    try:
        configs = member_configs(arguments)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            members = list(map(_kind(arguments), configs))
            return runner.run(_serve(members, Path(arguments.data_dir).absolute()))
    except (ConfigError, StartError) as error:
        print(f"minikafka cluster: {error}", file=sys.stderr)
        return FAILURE


def mistake_in(arguments: argparse.Namespace) -> str:
    """What cannot be in the options, if anything; ``--brokers`` is a number afterwards."""
    arguments.is_auto = arguments.brokers == AUTO
    if arguments.is_auto:
        arguments.brokers = str(min(max(usable_cores(), _brokers_before(arguments)), BROKERS_MAX))
    if not _is_number(arguments.brokers) or not 1 <= int(arguments.brokers) <= BROKERS_MAX:
        return f"--brokers {arguments.brokers}: must be from 1 to {BROKERS_MAX}, or {AUTO}"
    count = arguments.brokers = int(arguments.brokers)
    if not 0 <= arguments.first_id <= NODE_ID_MAX - count:
        return f"--first-id {arguments.first_id}: must be from 0 to {NODE_ID_MAX - count}"
    if arguments.http_port is not None and not _is_http_port(arguments.http_port, count):
        return f"--http-port {arguments.http_port}: must be off, or from 0 to {PORT_MAX - count}"
    if arguments.port is not None and arguments.listen is not None:
        return "--port and --listen say the same thing twice: --listen takes HOST:PORT"
    arguments.host, port = LOCALHOST, DEFAULT_PORT if arguments.port is None else arguments.port
    if arguments.listen is not None:
        try:
            arguments.host, port = parse_listen(arguments.listen)
        except ConfigError as error:
            return str(error)
    if not 0 <= port <= PORT_MAX - count:
        return f"{_port_option(arguments)} {port}: must be from 0 to {PORT_MAX - count}"
    arguments.port = port
    return ""


def _brokers_before(arguments: argparse.Namespace) -> int:
    """How many have their records in the directory: on fewer cores all of them are needed still."""
    directory = Path(arguments.data_dir)
    number = 0
    while (directory / f"broker-{arguments.first_id + number}").is_dir():
        number += 1
    return number


def _port_option(arguments: argparse.Namespace) -> str:
    return "--port" if arguments.listen is None else "--listen"


def _common_properties(arguments: argparse.Namespace, directory: Path) -> dict[str, str]:
    """Of all brokers; what ``--set`` says comes later, and counts."""
    count = arguments.brokers
    common = DEFAULTS | {"default.replication.factor": str(min(3, count))}
    if arguments.zookeeper is not None:
        common["zookeeper.connect"] = arguments.zookeeper
    else:
        common["coordination"] = f"sqlite:///{directory}/coordination.sqlite"
    if arguments.api_versions is not None:
        common["api.versions"] = arguments.api_versions
    if arguments.is_auto:
        common |= {"num.partitions": str(count), "broker.rack": machine_name()}
        common |= memory_properties(count, usable_memory())
        if arguments.zookeeper is None:  # all on this machine: another copy on the same disk keeps nothing
            common["default.replication.factor"] = "1"
    return common


def member_configs(arguments: argparse.Namespace) -> list[MemberConfig]:
    """What each broker is started with.

    Raises:
        ConfigError: a property cannot be. StartError: a port is taken, the directory cannot be made.
    """
    directory = Path(arguments.data_dir).absolute()
    common = _common_properties(arguments, directory)
    for setting in map(parse_setting, arguments.set):
        if setting.name == "api.versions" and arguments.api_versions is not None:
            raise ConfigError(
                f"--api-versions and --set api.versions={setting.value} say the same thing twice"
            )
        if setting.name in OWN:
            raise ConfigError(f"--set {setting.name}: the cluster chooses that for each broker")
        if setting.name == "http.port" and arguments.http_port is not None:
            raise ConfigError(f"--http-port and --set http.port={setting.value} say the same thing twice")
        common[setting.name] = setting.value
    try:
        make_private_directory(str(directory))
    except OSError as error:
        raise StartError(f"cannot make the data directory {directory}: {error.strerror}") from None
    configs = [
        MemberConfig(
            node_id=node_id,
            port=port,
            data_dir=directory / f"broker-{node_id}",
            log_path=directory / f"broker-{node_id}.log",
            properties=common | {"node.id": str(node_id)},
            http_port=_http_port(arguments.http_port, index),
            host=arguments.host,
        )
        for index, port in enumerate(_ports(arguments))
        for node_id in [arguments.first_id + index]
    ]
    if arguments.secure:
        configs = _secured(configs, directory / "security")
    load(
        environment=os.environ, settings=configs[0].settings()
    )  # a mistake is said once, and before all else
    return configs


def _secured(configs: Sequence[MemberConfig], directory: Path) -> list[MemberConfig]:
    """With what ``--secure`` makes for each; all of it before the first starts, so that a mistake is said
    once and the administrator's files name all brokers. Raises ConfigError."""
    from minikafka.network.client_security import client_security
    from minikafka.security.client_files import java_settings
    from minikafka.security.secure_setup import BROKER_USER
    from minikafka.server.security.secure_broker import make_secure_setup

    secured = []
    for config in configs:
        listening = Setting("listeners", str(Listener("SASL_SSL", config.host, config.port)), "--listen")
        given = configured(environment=os.environ, settings=[*config.settings(), listening])
        setup = make_secure_setup(given, str(directory))
        setup.write_admin_files(config.advertised)
        security = client_security(java_settings(setup.login(BROKER_USER, format_address(*config.address))))
        secured.append(replace(config, secure=setup, security=security))
    return secured


def _is_http_port(text: str, count: int) -> bool:
    return text == OFF or (_is_number(text) and int(text[:6]) <= PORT_MAX - count)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _http_port(first: str | None, index: int) -> str | None:
    return first if first in (None, OFF, "0") else str(int(first) + index)


def _ports(arguments: argparse.Namespace) -> list[int]:
    """Free ones. Raises StartError: one of those that were asked for is in use, the host is none of ours."""
    host, first = arguments.host, arguments.port
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host or EVERY_INTERFACE, None, family=_family(host), type=socket.SOCK_STREAM
        )[0]
    except OSError as error:
        raise StartError(f"--listen {host}: cannot be resolved: {error.strerror}") from None
    with contextlib.ExitStack() as probes:
        ports = []
        for number in range(arguments.brokers):
            probe = probes.enter_context(socket.socket(family))
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            port = first + number if first else 0
            try:
                probe.bind((address[0], port))
            except OSError as error:
                raise StartError(
                    f"broker {arguments.first_id + number} cannot listen on port {port}"
                    f"{'' if host == LOCALHOST else f' of {host or EVERY_INTERFACE}'}: "
                    f"{os.strerror(error.errno or 0)}; {_port_option(arguments)} chooses others"
                ) from None
            ports.append(probe.getsockname()[1])
        return ports


def _family(host: str) -> int:
    """IPv4 where a name may be both: one port that is free there is as good as free."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _kind(arguments: argparse.Namespace) -> Callable[[MemberConfig], Member]:
    if not arguments.in_process:
        return ChildMember
    from minikafka.cli.logs import configure_logging
    from minikafka.server.runtime.process import raise_limit

    configure_logging(level="warning", format="text")
    raise_limit()
    return InProcessMember


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(members: Sequence[Member], directory: Path) -> int:
    view = ClusterView(
        {member.config.node_id: member.config.address for member in members},
        security=members[0].config.security,
    )
    supervisor = ClusterSupervisor(members, view.say)
    stopped = _stop_on_signals(supervisor)
    tasks: list[asyncio.Task[Any]] = []
    try:
        async with cluster_control.served(directory, supervisor):
            starting = asyncio.create_task(supervisor.start_all())
            tasks.append(starting)
            ends: set[asyncio.Future[Any]] = {starting, stopped}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if stopped.done():
                return 0
            view.begin(_banner(members, await starting))
            ended = asyncio.create_task(supervisor.ended.wait())
            tasks += [ended, asyncio.create_task(view.watch())]
            ends = {ended, stopped}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if stopped.done():
                return 0
            print("minikafka cluster: all brokers have ended", file=sys.stderr)
            return FAILURE
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        view.end()
        await supervisor.stop_all(last=view.controller)


def _banner(members: Sequence[Member], pages: Sequence[str | None]) -> list[tuple[str, str]]:
    servers = ",".join(member.config.advertised for member in members)
    secure = members[0].config.secure
    return [
        ("bootstrap servers", servers),
        *([] if secure is None else admin_lines(str(secure.directory.user_directory("admin")))),
        *((f"broker {each.config.node_id}", each.where) for each in members),
        *(
            (
                f"status page of {member.config.node_id}",
                page or _why_no_page(member),
            )
            for member, page in zip(members, pages, strict=True)
        ),
        ("one broker", "minikafka cluster start|stop|kill ID (in another terminal)"),
        ("stop it", "Ctrl-C"),
    ]


def _why_no_page(member: Member) -> str:
    if member.config.http_port == OFF:
        return "nowhere (--http-port off)"
    return "nowhere (its log says why; try --set http.port=0)"


def _stop_on_signals(supervisor: ClusterSupervisor) -> asyncio.Future[None]:
    """A future that the first signal resolves; the second ends everything at once."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[None] = loop.create_future()

    def handle(number: signal.Signals) -> None:
        if not stopped.done():
            stopped.set_result(None)
            return
        supervisor.kill_all()
        os._exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, handle, number)
    return stopped


# What is shown


class Seen(NamedTuple):
    """The cluster at one moment."""

    brokers: tuple[int, ...]
    controller: int
    partitions: dict[str, tuple[int, tuple[int, ...]]]
    """``topic-number`` → the leader, the ISR."""


NOTHING = Seen((), NO_NODE, {})


class ClusterView:
    """Shows the cluster whose brokers are at ``addresses``, by id. One that is not alive is shown as down."""

    def __init__(
        self,
        addresses: Mapping[int, tuple[str, int]],
        stream: TextIO | None = None,
        *,
        security: ClientSecurity | None = None,
    ) -> None:
        self._security = security
        self._addresses = list(addresses.values())
        self._ids = tuple(addresses)
        self._out = stream or sys.stdout
        self._client: BrokerClient | None = None
        self._seen = NOTHING
        self._live: Live | None = None

    def __repr__(self) -> str:
        return f"ClusterView({self._addresses}, {len(self._seen.partitions)} partitions)"

    @property
    def controller(self) -> int:
        """Which it was when last looked at; ``NO_NODE``: none."""
        return self._seen.controller

    def begin(self, banner: Sequence[tuple[str, str]]) -> None:
        """Say what has been started."""
        for label, text in banner:
            print(f"{label:<18} {text}", file=self._out, flush=True)
        if self._out.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(file=self._out), auto_refresh=False)
            self._live.start()

    def end(self) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, line: str) -> None:
        """A line of its own, above the table."""
        if self._live is not None:
            self._live.console.print(line, markup=False, highlight=False)
        else:
            print(line, file=self._out, flush=True)

    async def watch(self) -> None:
        """Show what changes, until cancelled."""
        try:
            while True:
                seen = await self._look()
                if seen is not None and seen != self._seen:
                    before, self._seen = self._seen, seen
                    self._show(before, seen)
                await asyncio.sleep(REFRESH_S)
        finally:
            if self._client is not None:
                await self._client.close()

    async def _look(self) -> Seen | None:
        """Ask the broker that answered last; when it does not, another. None: no broker answers now."""
        body = {
            "topics": None,
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        try:
            if self._client is None or not self._client.is_connected:
                self._addresses.append(self._addresses.pop(0))
                self._client = await BrokerClient.connect(
                    *self._addresses[-1],
                    client_id="minikafka-cluster",
                    deadline_ms=DEADLINE_MS,
                    security=self._security,
                )
            return _seen(await self._client.request(ApiKey.METADATA, body, deadline_ms=DEADLINE_MS))
        except (BrokerUnavailable, PeerProtocolError, KafkaError):
            return None

    def _show(self, before: Seen, now: Seen) -> None:
        if self._live is not None:
            self._live.update(_table(now, self._ids), refresh=True)
            return
        if before.brokers != now.brokers:
            self.say(f"brokers: {_brokers(now.brokers, self._ids)}")
        if before.controller != now.controller:
            self.say(f"controller: {_leader(now.controller)}")
        for name, (leader, isr) in now.partitions.items():
            if before.partitions.get(name) != (leader, isr):
                self.say(f"{name}: led by {_leader(leader)}, in sync {_ids(isr)}")
        for name in before.partitions:
            if name not in now.partitions:
                self.say(f"{name}: deleted")


def _seen(answer: Any) -> Seen:
    return Seen(
        brokers=tuple(sorted(broker.node_id for broker in answer.brokers)),
        controller=answer.controller_id,
        partitions={
            f"{topic.name}-{partition.partition_index}": (
                partition.leader_id,
                tuple(sorted(partition.isr_nodes)),
            )
            for topic in answer.topics
            for partition in sorted(topic.partitions, key=lambda each: each.partition_index)
        },
    )


def _brokers(alive: Sequence[int], of_cluster: Sequence[int]) -> str:
    """``2 of 3 alive (1, 3), down: 2``: how many and which, since ``3`` alone could be either."""
    down = [each for each in of_cluster if each not in alive]
    known = sorted({*alive, *of_cluster})
    told = f"{len(alive)} of {len(known)} alive ({_ids(alive)})"
    return f"{told}, down: {_ids(down)}" if down else told


def _table(seen: Seen, of_cluster: Sequence[int]) -> Table:
    from rich.table import Table

    table = Table(
        title=f"brokers: {_brokers(seen.brokers, of_cluster)}; controller: {_leader(seen.controller)}",
        title_justify="left",
    )
    for column in ("partition", "leader", "in sync"):
        table.add_column(column)
    for name, (leader, isr) in list(seen.partitions.items())[:ROWS_MAX]:
        table.add_row(name, _leader(leader), _ids(isr))
    if len(seen.partitions) > ROWS_MAX:
        table.add_row(f"and {len(seen.partitions) - ROWS_MAX} more", "", "")
    return table


def _ids(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers)) or "none"


def _leader(broker: int) -> str:
    return "none" if broker == NO_NODE else str(broker)


# What this machine has


def usable_cores(cgroups: Path = CGROUPS) -> int:
    """Cores that this process may use, at least 1; a quota of a part of one counts as one."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota_cores(cgroups)
    return max(affinity if quota is None else min(affinity, math.ceil(quota)), 1)


def _quota_cores(cgroups: Path) -> float | None:
    """Of the control group, of both versions; None: it has no quota."""
    unified = _words(cgroups / "cpu.max")
    if len(unified) == 2:
        return None if unified[0] == "max" else int(unified[0]) / int(unified[1])
    quota, period = _words(cgroups / "cpu/cpu.cfs_quota_us"), _words(cgroups / "cpu/cpu.cfs_period_us")
    if not quota or not period or int(quota[0]) <= 0:
        return None
    return int(quota[0]) / int(period[0])


def usable_memory(cgroups: Path = CGROUPS) -> int:
    """Bytes of memory of the machine, or of its control group where that has less."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = (_words(cgroups / name) for name in ("memory.max", "memory/memory.limit_in_bytes"))
    return min([physical, *(int(words[0]) for words in limits if words and words[0] != "max")])


def memory_properties(brokers: int, memory_bytes: int) -> dict[str, str]:
    """What each of ``brokers`` is to be configured with, so that all of them stay within their share of
    ``memory_bytes``; nothing where the defaults do."""
    budget = memory_bytes * MEMORY_SHARE / brokers - BROKER_BYTES
    wanted = sum(BUDGETS.values())
    if budget >= wanted:
        return {}
    return {name: str(max(int(size * budget / wanted), BUDGET_MIN)) for name, size in BUDGETS.items()}


def machine_name() -> str:
    """The rack of its brokers: replicas of a partition are spread over machines first, then."""
    return socket.gethostname()


def _words(path: Path) -> list[str]:
    """Of a small file; none when it is not there, as outside of Linux."""
    try:
        return path.read_text().split()
    except OSError:
        return []
