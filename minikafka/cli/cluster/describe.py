"""``minikafka cluster describe``: who is there, who is the controller, what is not well and why.

Works with any broker; one that is not minikafka does not say why a replica is out of the ISR.

Exit status: 0 when the cluster answers (whatever its state), 1 when it does not, 2 for bad usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.console import Console

from minikafka.cli.cluster.description import (
    BrokerState,
    ClusterDescription,
    PartitionHealth,
    ReassignmentState,
    ReplicaState,
    describe,
)
from minikafka.cli.shared.admin_client import NOBODY, AdminClient
from minikafka.cli.shared.commands import OK, add_connection_options, as_json, parse_addresses, run
from minikafka.cli.shared.profiles import ProfileParser
from minikafka.cli.shared.quantities import format_bytes
from minikafka.network.addresses import format_address

ROWS_MAX = 50
"""Partitions in a list; --json has all."""


PATIENCE_MS = 3_000
"""For each broker. Whoever asks how a cluster is does not want to wait for the one that hangs."""


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka cluster describe``."""
    options = ProfileParser(
        prog="minikafka cluster describe",
        description="Brokers, controller, partitions that are not well and why, reassignments.",
        allow_abbrev=False,
    )
    add_connection_options(options, timeout_ms=PATIENCE_MS)
    options.add_argument("--json", action="store_true", help="print JSON, with all partitions")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Describe a cluster. Returns the exit status."""
    options = parser()
    arguments = options.parse_args(argv)
    try:
        arguments.addresses = parse_addresses(arguments.bootstrap_server)
    except ValueError as error:
        options.error(str(error))
    return run("minikafka cluster describe", _run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    async with AdminClient(
        arguments.addresses, client_id="minikafka-cluster", timeout_ms=arguments.timeout_ms
    ) as admin:
        description = await describe(admin)
    if arguments.json:
        print(as_json(description))
    else:
        show(description, sys.stdout)
    return OK


def show(description: ClusterDescription, stream: TextIO) -> None:
    """Print it for people."""
    console = Console(file=stream, highlight=False, soft_wrap=True)
    epoch = "" if description.controller_epoch is None else f", epoch {description.controller_epoch}"
    nobody = description.controller == NOBODY
    controller = "nobody" if nobody else f"broker {description.controller}{epoch}"
    for label, text in (
        ("Cluster", description.cluster_id),
        ("Controller", controller),
        ("Topics", f"{description.topics}, with {description.partitions} partitions"),
    ):
        console.print(f"{label:<11}{text}", markup=False)
    console.print()
    _section(console, "Brokers", _counted(description.brokers), _brokers(description.brokers))
    for title, partitions in (
        ("Offline partitions", description.offline),
        ("Under min.insync.replicas", description.under_min_isr),
        ("Under-replicated partitions", description.under_replicated),
    ):
        _section(console, title, len(partitions), _partitions(partitions), is_bad=True)
    elsewhere = description.not_preferred
    _section(console, "Not led by their preferred leader", len(elsewhere), _partitions(elsewhere))
    moving = description.reassignments
    _section(console, "Reassignments under way", len(moving), _reassignments(moving))


Rows = list[list[str]]


def _section(console: Console, title: str, count: int | str, rows: Rows, *, is_bad: bool = False) -> None:
    """A heading with how many there are; below it what there is, in columns."""
    console.print(f"{title}: {count or 'none'}", style="bold red" if count and is_bad else "bold")
    if count:
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
            console.print("  " + "  ".join(cells).rstrip(), markup=False)


def _counted(brokers: Sequence[BrokerState]) -> str:
    down = sum(not each.is_registered for each in brokers)
    return f"{len(brokers)}, {down} of them down" if down else str(len(brokers))


def _brokers(brokers: Iterable[BrokerState]) -> Rows:
    rows = [["id", "address", "rack", "leaders", "replicas", "log directories"]]
    for broker in brokers:
        state = "all online" if broker.answers else "it does not answer"
        if broker.offline_log_dirs:
            state = f"OFFLINE: {', '.join(broker.offline_log_dirs)}"
        if broker.host is None or broker.port is None:
            address, state = "-", "DOWN: it is not registered"
        else:
            address = format_address(broker.host, broker.port)
        counts = [str(broker.leaders), str(broker.replicas)]
        rows.append([str(broker.id), address, broker.rack or "-", *counts, state])
    return rows


def _partitions(partitions: Sequence[PartitionHealth]) -> Rows:
    rows = [["partition", "leader", "replicas", "in sync", "min", "out of sync"]]
    for each in partitions[:ROWS_MAX]:
        leader = "nobody" if each.leader == NOBODY else str(each.leader)
        min_isr = "-" if each.min_isr is None else str(each.min_isr)
        cells = [str(each), leader, _ids(each.replicas), _ids(each.isr) or "nobody", min_isr]
        rows += _with_reasons(cells, each.out_of_sync)
    return _cut(rows, len(partitions))


def _reassignments(reassignments: Sequence[ReassignmentState]) -> Rows:
    rows = [["partition", "to", "adding", "removing", "left", "not in sync yet"]]
    for each in reassignments[:ROWS_MAX]:
        left = "?" if each.left_bytes is None else format_bytes(each.left_bytes)
        cells = [str(each), _ids(each.replicas), _ids(each.adding), _ids(each.removing), left]
        rows += _with_reasons(cells, each.out_of_sync)
    return _cut(rows, len(reassignments))


def _with_reasons(cells: list[str], replicas: Sequence[ReplicaState]) -> Rows:
    """A row for each replica; the first one also says what it is about."""
    reasons = [f"{replica.broker}: {replica.why}" for replica in replicas] or [""]
    return [[*cells, reasons[0]], *([""] * len(cells) + [reason] for reason in reasons[1:])]


def _cut(rows: Rows, count: int) -> Rows:
    if count > ROWS_MAX:
        rows.append([f"and {count - ROWS_MAX} more", *[""] * (len(rows[0]) - 1)])
    return rows


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))
