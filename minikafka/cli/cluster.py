"""``minikafka cluster``: several brokers on this machine, started and stopped together.

One child process a broker (``minikafka-broker`` with a port, a directory and a log file of its own), or all
in this process. They share a SQLite file in the data directory, or a ZooKeeper. A cluster that is started
again on the same directory goes on with its records, if it has as many brokers as before.

``minikafka cluster describe`` is another command (``cluster_describe``): it looks at a cluster that runs.

Exit status: 0 after a clean stop, 1 when the cluster cannot start or all brokers have ended, 2 for bad usage.
A second signal ends everything at once, as a crash would.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from minikafka.cli.cluster_members import ChildMember, InProcessMember, Member, MemberConfig
from minikafka.cli.cluster_view import ClusterView
from minikafka.config.loader import load, parse_setting
from minikafka.errors import ConfigError, StartError

FAILURE = 1
BROKERS_MAX = 100
PORT_MAX = 65535
DEFAULTS = {"zookeeper.session.timeout.ms": "6000"}
"""A killed broker is noticed after 6 s: Kafka's 18 s are for networks and garbage collections."""
OWN = ("node.id", "broker.id", "listeners", "advertised.listeners", "log.dirs", "log.dir", "coordination")
"""Properties that differ from broker to broker, or hold them together: they are not for ``--set``."""


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka cluster``."""
    options = argparse.ArgumentParser(
        prog="minikafka cluster",
        description="A cluster of several brokers on this machine; Ctrl-C stops it.",
        epilog="minikafka cluster describe --bootstrap-server HOST:PORT says how a cluster is (any cluster).",
        allow_abbrev=False,
    )
    options.add_argument("--brokers", type=int, default=3, metavar="N", help="how many (3)")
    options.add_argument(
        "--in-process", action="store_true", help="all brokers in this process, instead of one process each"
    )
    options.add_argument(
        "--data-dir",
        default="minikafka-cluster",
        metavar="DIR",
        help="keep records, logs and the cluster's state below DIR (minikafka-cluster)",
    )
    options.add_argument(
        "--port",
        type=int,
        default=9092,
        metavar="PORT",
        help="of the first broker; the others take the next ones (9092; 0: any free ports)",
    )
    options.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="set a property of all brokers; may be repeated",
    )
    options.add_argument(
        "--zookeeper",
        metavar="HOST:PORT",
        help="keep the cluster's state in this ZooKeeper, instead of a SQLite file",
    )
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run a cluster until a signal stops it, or describe one. Returns the exit status."""
    given = list(sys.argv[1:] if argv is None else argv)
    if given[:1] == ["describe"]:
        from minikafka.cli import cluster_describe

        return cluster_describe.main(given[1:])
    options = parser()
    arguments = options.parse_args(given)
    if not 1 <= arguments.brokers <= BROKERS_MAX:
        options.error(f"--brokers {arguments.brokers}: must be from 1 to {BROKERS_MAX}")
    if not 0 <= arguments.port <= PORT_MAX - arguments.brokers:
        options.error(f"--port {arguments.port}: must be from 0 to {PORT_MAX - arguments.brokers}")
    try:
        configs = member_configs(arguments)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_serve(list(map(_kind(arguments), configs))))
    except (ConfigError, StartError) as error:
        print(f"minikafka cluster: {error}", file=sys.stderr)
        return FAILURE


def member_configs(arguments: argparse.Namespace) -> list[MemberConfig]:
    """What each broker is started with.

    Raises:
        ConfigError: a property cannot be. StartError: a port is taken, the directory cannot be made.
    """
    directory = Path(arguments.data_dir).absolute()
    common = DEFAULTS | {"default.replication.factor": str(min(3, arguments.brokers))}
    if arguments.zookeeper is not None:
        common["zookeeper.connect"] = arguments.zookeeper
    else:
        common["coordination"] = f"sqlite:///{directory}/coordination.sqlite"
    for setting in map(parse_setting, arguments.set):
        if setting.name in OWN:
            raise ConfigError(f"--set {setting.name}: the cluster chooses that for each broker")
        common[setting.name] = setting.value
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StartError(f"cannot make the data directory {directory}: {error.strerror}") from None
    configs = [
        MemberConfig(
            node_id=node_id,
            port=port,
            data_dir=directory / f"broker-{node_id}",
            log_path=directory / f"broker-{node_id}.log",
            properties=common | {"node.id": str(node_id)},
        )
        for node_id, port in enumerate(_ports(arguments.port, arguments.brokers), start=1)
    ]
    load(
        environment=os.environ, settings=configs[0].settings()
    )  # a mistake is said once, and before all else
    return configs


def _ports(first: int, count: int) -> list[int]:
    """Free ones. Raises StartError: somebody has one of those that were asked for."""
    with contextlib.ExitStack() as probes:
        ports = []
        for number in range(count):
            probe = probes.enter_context(socket.socket())
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            port = first + number if first else 0
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise StartError(
                    f"broker {number + 1} cannot listen on port {port}: {os.strerror(error.errno or 0)}; "
                    "--port chooses others"
                ) from None
            ports.append(probe.getsockname()[1])
        return ports


def _kind(arguments: argparse.Namespace) -> Callable[[MemberConfig], Member]:
    if not arguments.in_process:
        return ChildMember
    from minikafka.cli.logs import configure_logging
    from minikafka.server.descriptors import raise_limit

    configure_logging(level="warning", format="text")
    raise_limit()
    return InProcessMember


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(members: Sequence[Member]) -> int:
    stopped = _stop_on_signals(members)
    view = ClusterView([member.config.address for member in members])
    watching: asyncio.Task[None] | None = None
    try:
        starting = asyncio.gather(*map(_start, members))
        ends: set[asyncio.Future[Any]] = {starting, stopped}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if stopped.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return 0
        view.begin(_banner(members, await starting))
        watching = asyncio.create_task(view.watch())
        return await _until_over(members, stopped, view)
    finally:
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        view.end()
        await _stop(members, controller=view.controller)


async def _start(member: Member) -> str | None:
    """Returns where the broker's status page is; None: nowhere."""
    await member.start()
    return await member.status_page()


def _banner(members: Sequence[Member], pages: Sequence[str | None]) -> list[tuple[str, str]]:
    servers = ",".join("{}:{}".format(*member.config.address) for member in members)
    return [
        ("bootstrap servers", servers),
        *((f"broker {each.config.node_id}", each.where) for each in members),
        *(
            (
                f"status page of {each.config.node_id}",
                page or "nowhere (its log says why; try --set http.port=0)",
            )
            for each, page in zip(members, pages, strict=True)
        ),
        ("stop it", "Ctrl-C"),
    ]


async def _until_over(members: Sequence[Member], stopped: asyncio.Future[None], view: ClusterView) -> int:
    """Until a signal comes, or the last broker has ended. Names each that ends. Returns the exit status."""
    ends = {asyncio.ensure_future(member.ended()): member for member in members}
    try:
        while ends:
            waited: set[asyncio.Future[Any]] = {*ends, stopped}
            done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if stopped in done:
                return 0
            for end in [each for each in ends if each in done]:
                del ends[end]
                view.say(await end)
        print("minikafka cluster: all brokers have ended", file=sys.stderr)
        return FAILURE
    finally:
        for end in ends:
            end.cancel()
        await asyncio.gather(*ends, return_exceptions=True)


async def _stop(members: Sequence[Member], *, controller: int) -> None:
    """One after the other, so that each finds somebody who takes over what it leads; the controller last."""
    for member in sorted(members, key=lambda each: each.config.node_id == controller):
        await member.stop()


def _stop_on_signals(members: Sequence[Member]) -> asyncio.Future[None]:
    """A future that the first signal resolves; the second ends everything at once."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[None] = loop.create_future()

    def handle(number: signal.Signals) -> None:
        if not stopped.done():
            stopped.set_result(None)
            return
        for member in members:
            member.kill()
        os._exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, handle, number)
    return stopped
