"""``minikafka cluster describe``: brokers, controller, unhealthy partitions and why.

Kafka has this in several places: ``kafka-metadata-quorum``, ``kafka-topics --under-replicated-partitions``
(and ``--unavailable-partitions``, ``--under-min-isr-partitions``), ``kafka-reassign-partitions --list``,
``kafka-log-dirs``. It works with any broker. *Why* a replica is out of the ISR only the leader says, in
answer to DescribeQuorum of an ordinary partition, if it is minikafka; Kafka's does not.

The state of a cluster are values, and what makes them is pure, apart from ``describe``. Times of a replica
are taken by its leader's clock and compared with the leader's own "now" in the same answer, so clocks of
different machines do not matter.

Exit status: 0 when the cluster answers (whatever its state), 1 when it does not, 2 for bad usage.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

import msgspec
from rich.console import Console

from minikafka.cli.reassign.verify import bytes_left
from minikafka.cli.shared.admin_client import (
    METADATA_TOPIC,
    NO_NODE,
    AdminClient,
    ClusterNodes,
    LogDir,
    PartitionNow,
    topic_resource,
)
from minikafka.cli.shared.commands import (
    OK,
    ProfileParser,
    add_connection_options,
    as_json,
    run,
    take_connection,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.addresses import format_address
from minikafka.network.broker_client import AuthenticationFailed, BrokerUnavailable
from minikafka.types import NO_LEADER, ReplicaAssignment, TopicPartition
from minikafka.units import format_bytes, format_duration

MIN_ISR = "min.insync.replicas"
UNKNOWN = -1

ROWS_MAX = 50
"""Partitions in a list; --json has all."""

PATIENCE_MS = 3_000
"""For each broker. The state of a cluster should not wait for the one that hangs."""

Rows = list[list[str]]


# The state of a cluster


class BrokerState(msgspec.Struct, frozen=True):
    """A registered broker, or one that is not and has replicas nevertheless: it is down, or was removed."""

    id: int
    is_registered: bool
    host: str | None
    """None, as the port: not known, because it is not registered."""
    port: int | None
    rack: str | None
    leaders: int
    replicas: int
    answers: bool
    """It could be asked for its log directories."""
    offline_log_dirs: list[str]


class ReplicaState(msgspec.Struct, frozen=True):
    """A replica that is not in the ISR; None: not known."""

    broker: int
    why: str
    records_behind: int | None = None
    not_caught_up_for_ms: int | None = None
    last_fetch_ms_ago: int | None = None


class PartitionHealth(msgspec.Struct, frozen=True):
    """A partition with something to say about it; ``leader`` is -1 when there is none."""

    topic: str
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    min_isr: int | None
    out_of_sync: list[ReplicaState]

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ReassignmentState(msgspec.Struct, frozen=True):
    """A partition whose replicas are being changed; ``out_of_sync``: those that come and are not in sync."""

    topic: str
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]
    left_bytes: int | None
    out_of_sync: list[ReplicaState]

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ClusterDescription(msgspec.Struct, frozen=True):
    """The whole cluster. A partition may be in several of the lists."""

    cluster_id: str
    controller: int
    controller_epoch: int | None
    brokers: list[BrokerState]
    topics: int
    partitions: int
    offline: list[PartitionHealth]
    """They have no leader."""
    under_replicated: list[PartitionHealth]
    """A replica that is not just being added is out of the ISR."""
    under_min_isr: list[PartitionHealth]
    """Producers with acks=all are refused."""
    not_preferred: list[PartitionHealth]
    """Led, but not by the first of their replicas. Those that are being reassigned do not count."""
    reassignments: list[ReassignmentState] | None
    """None: the controller, which knows them, does not answer, or there is none."""


async def describe(admin: AdminClient) -> ClusterDescription:
    """Ask every broker that answers.

    Raises:
        BrokerUnavailable: none does. KafkaError: what the cluster as a whole refuses.
    """
    nodes = await admin.nodes()
    partitions = await admin.partitions()
    reassignments = await _reassignments_under_way(admin)
    under_way = reassignments or {}
    topics = sorted({each.topic for each in partitions})
    configs = await admin.configs([topic_resource(topic) for topic in topics], [MIN_ISR])
    min_isr = {
        resource.name: int(values[MIN_ISR].value or 1)
        for resource, values in configs.items()
        if MIN_ISR in values
    }
    found = await asyncio.gather(*(_log_dirs(admin, node_id) for node_id in nodes.brokers))
    log_dirs = dict(zip(nodes.brokers, found, strict=True))
    health = health_of(partitions, min_isr, nodes, log_dirs, await _quorums(admin, nodes, partitions))
    return ClusterDescription(
        cluster_id=nodes.cluster_id,
        controller=nodes.controller,
        controller_epoch=await _controller_epoch(admin, nodes.controller),
        brokers=broker_states(nodes, partitions, log_dirs),
        topics=len(topics),
        partitions=len(partitions),
        reassignments=None
        if reassignments is None
        else reassignment_states(reassignments, partitions, log_dirs, health),
        **problems(health, under_way),
    )


async def _reassignments_under_way(
    admin: AdminClient,
) -> dict[TopicPartition, ReplicaAssignment] | None:
    """None: the controller does not answer, or no broker is the controller."""
    try:
        return await admin.reassignments()
    except AuthenticationFailed:
        raise
    except BrokerUnavailable:
        return None
    except KafkaError as error:
        if error.code is not ErrorCode.NOT_CONTROLLER:
            raise
        return None


async def _log_dirs(admin: AdminClient, node_id: int) -> list[LogDir] | None:
    """None: the broker does not answer."""
    try:
        return await admin.log_dirs(node_id, None)
    except (BrokerUnavailable, KafkaError):
        return None


async def _controller_epoch(admin: AdminClient, controller: int) -> int | None:
    if controller == NO_NODE:
        return None
    try:
        answer = (await admin.quorum([METADATA_TOPIC], node_id=controller)).get(METADATA_TOPIC)
    except (BrokerUnavailable, KafkaError):
        return None
    return None if answer is None else int(answer.leader_epoch)


async def _quorums(
    admin: AdminClient, nodes: ClusterNodes, partitions: Mapping[TopicPartition, PartitionNow]
) -> dict[TopicPartition, Any]:
    """What the leaders know of partitions with a replica out of the ISR; one request a leader."""
    by_leader: dict[int, list[TopicPartition]] = {}
    for partition, now in partitions.items():
        if now.leader in nodes.brokers and set(now.replicas) - set(now.isr):
            by_leader.setdefault(now.leader, []).append(partition)
    found: dict[TopicPartition, Any] = {}
    for leader, led in sorted(by_leader.items()):
        try:
            found |= await admin.quorum(led, node_id=leader)
        except (BrokerUnavailable, KafkaError):
            continue  # the reason is then that the leader does not say
    return found


def broker_states(
    nodes: ClusterNodes,
    partitions: Mapping[TopicPartition, PartitionNow],
    log_dirs: Mapping[int, Sequence[LogDir] | None],
) -> list[BrokerState]:
    """Every registered broker and every other that has replicas, and what each has, in the order of ids."""
    leaders = Counter(now.leader for now in partitions.values())
    replicas = Counter(broker for now in partitions.values() for broker in now.replicas)
    states = []
    for node_id in sorted({*nodes.brokers, *replicas}):
        broker = nodes.brokers.get(node_id)
        dirs = log_dirs.get(node_id)
        states.append(
            BrokerState(
                node_id,
                is_registered=broker is not None,
                host=None if broker is None else broker.host,
                port=None if broker is None else broker.port,
                rack=None if broker is None else broker.rack,
                leaders=leaders[node_id],
                replicas=replicas[node_id],
                answers=dirs is not None,
                offline_log_dirs=[each.path for each in dirs or () if each.is_offline],
            )
        )
    return states


def health_of(
    partitions: Mapping[TopicPartition, PartitionNow],
    min_isr: Mapping[str, int],
    nodes: ClusterNodes,
    log_dirs: Mapping[int, Sequence[LogDir] | None],
    quorums: Mapping[TopicPartition, Any],
) -> dict[TopicPartition, PartitionHealth]:
    """Every partition, with a reason for each replica that is not in the ISR."""
    return {
        partition: PartitionHealth(
            partition.topic,
            partition.partition,
            now.leader,
            list(now.replicas),
            list(now.isr),
            min_isr.get(partition.topic),
            [
                why_out_of_sync(
                    broker,
                    partition,
                    now,
                    nodes=nodes,
                    dirs=log_dirs.get(broker),
                    quorum=quorums.get(partition),
                )
                for broker in now.replicas
                if broker not in now.isr
            ],
        )
        for partition, now in partitions.items()
    }


def reassignment_states(
    under_way: Mapping[TopicPartition, ReplicaAssignment],
    partitions: Mapping[TopicPartition, PartitionNow],
    log_dirs: Mapping[int, Sequence[LogDir] | None],
    health: Mapping[TopicPartition, PartitionHealth],
) -> list[ReassignmentState]:
    """What is being reassigned, with what is left to copy."""
    left = bytes_left(under_way, partitions, {broker: dirs or [] for broker, dirs in log_dirs.items()})
    return [
        ReassignmentState(
            partition.topic,
            partition.partition,
            list(each.target),
            list(each.adding),
            list(each.removing),
            left[partition],
            [out for out in health[partition].out_of_sync if out.broker in each.adding]
            if partition in health
            else [],
        )
        for partition, each in under_way.items()
    ]


def problems(
    health: Mapping[TopicPartition, PartitionHealth], under_way: Mapping[TopicPartition, ReplicaAssignment]
) -> dict[str, list[PartitionHealth]]:
    """The four lists of partitions of a ``ClusterDescription``."""
    lists: dict[str, list[PartitionHealth]] = {
        name: [] for name in ("offline", "under_replicated", "under_min_isr", "not_preferred")
    }
    for partition, each in health.items():
        assignment = under_way.get(partition)
        if each.leader == NO_LEADER:
            lists["offline"].append(each)
        elif assignment is None and each.leader != each.replicas[0]:
            lists["not_preferred"].append(each)
        if any(assignment is None or out.broker not in assignment.adding for out in each.out_of_sync):
            lists["under_replicated"].append(each)
        if len(each.isr) < (each.min_isr or 0):
            lists["under_min_isr"].append(each)
    return lists


def why_out_of_sync(
    broker: int,
    partition: TopicPartition,
    now: PartitionNow,
    *,
    nodes: ClusterNodes,
    dirs: Sequence[LogDir] | None,
    quorum: Any,
) -> ReplicaState:
    """Why a replica is not in the ISR, the nearest cause first.

    ``dirs``: the broker's log directories, None when it does not answer. ``quorum``: what the leader says, a
    partition of a DescribeQuorum response, or None.
    """
    if broker not in nodes.brokers:
        return ReplicaState(broker, "its broker is not registered")
    failed = [each.path for each in dirs or () if each.is_offline]
    is_there = any(partition in each.replicas for each in dirs or ())
    if broker in now.offline or (failed and not is_there):
        return ReplicaState(
            broker, f"its log directory is offline: {', '.join(failed) or 'it does not say which'}"
        )
    if now.leader == NO_LEADER:
        return ReplicaState(broker, "the partition has no leader")
    states = {} if quorum is None else {int(each.replica_id): each for each in quorum.current_voters}
    if broker not in states or now.leader not in states:
        return ReplicaState(broker, f"its leader, broker {now.leader}, does not report it")
    return _behind(states[broker], states[now.leader])


def _behind(state: Any, leader: Any) -> ReplicaState:
    """How far a replica is behind its leader, and since when."""
    leader_now_ms = int(leader.last_caught_up_timestamp)
    records = None
    if state.log_end_offset != UNKNOWN:
        records = max(0, int(leader.log_end_offset) - int(state.log_end_offset))
    fetched_ms = _ago(state.last_fetch_timestamp, leader_now_ms)
    behind_ms = _ago(state.last_caught_up_timestamp, leader_now_ms)
    parts = []
    if records is not None:
        parts.append(f"{records} record{'s' * (records != 1)} behind")
    if fetched_ms is None:
        parts.append("it has not fetched since its leader was elected")
    elif records == 0 and behind_ms is not None and behind_ms < 1000:
        parts = ["it has caught up, and is about to join"]
    else:
        since = "since its leader was elected" if behind_ms is None else f"for {format_duration(behind_ms)}"
        parts.append(f"not caught up {since}, fetched last {format_duration(fetched_ms)} ago")
    return ReplicaState(state.replica_id, ", ".join(parts), records, behind_ms, fetched_ms)


def _ago(timestamp_ms: int, now_ms: int) -> int | None:
    return None if timestamp_ms <= 0 else max(0, now_ms - int(timestamp_ms))


# The command


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka cluster describe``."""
    options = ProfileParser(
        prog="minikafka cluster describe",
        description="Brokers, controller, unhealthy partitions and why, reassignments.",
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
        take_connection(arguments)
    except ValueError as error:
        options.error(str(error))
    return run("minikafka cluster describe", _run(arguments))


async def _run(arguments: argparse.Namespace) -> int:
    async with AdminClient.of(arguments, "minikafka-cluster") as admin:
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
    has_none = description.controller == NO_NODE
    controller = "none" if has_none else f"broker {description.controller}{epoch}"
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
    moving, title = description.reassignments, "Reassignments under way"
    if moving is None:
        why = "there is no controller" if has_none else "the controller does not answer"
        console.print(f"{title}: not known, {why}", style="bold red")
    else:
        _section(console, title, len(moving), _reassignments(moving))


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
        leader = "none" if each.leader == NO_LEADER else str(each.leader)
        min_isr = "-" if each.min_isr is None else str(each.min_isr)
        cells = [str(each), leader, _ids(each.replicas), _ids(each.isr) or "none", min_isr]
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
