"""``minikafka reassign verify``, ``cancel``, ``list`` and ``remove-throttles``: what became of plans, how far
they are, and their throttles.

Kafka: ``ReassignPartitionsCommand.verifyAssignment``, ``cancelAssignment``, ``clearAllThrottles``,
``calculateProposedMoveMap``, ``modifyReassignmentThrottle`` (KIP-73, KIP-113).

A throttle is a rate on brokers plus a list of replicas on topics: on the leaders' side every replica that a
partition has now (any of them may lead), on the followers' side those that it gets. As in Kafka, it is
removed only when nothing moves in the whole cluster, and then from all brokers, because it is not known which
were involved; and from the topics of the plan. A rate that is left on a broker when nothing moves any more is
a trap: it does nothing until a replica falls behind that is still in a list. So a throttle without a
reassignment is called stale, and named; it is left, because it may be wanted. A broker's own configurations
are changed by asking that broker. One that is down keeps what it has.

What is left of a partition is the size of its leader's log less the size of each log that is being filled
(DescribeLogDirs). Both grow while producers write, so a partition may be done with a few bytes left, and
retention on either side makes it an estimate.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TextIO

from minikafka.cli.reassign.plan import Plan
from minikafka.cli.shared.admin_client import (
    RETRY_BACKOFF_S,
    AdminClient,
    LogDir,
    LogReplica,
    PartitionNow,
    broker_resource,
    topic_resource,
)
from minikafka.cli.shared.commands import FAILURE, OK, CommandError, explain
from minikafka.config.definition import ConfigSource
from minikafka.config.resource import ConfigResource, ConfigResourceType
from minikafka.errors import KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.types import ReplicaAssignment, TopicPartition
from minikafka.units import format_bytes, format_duration, format_rate

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table


RATE_WINDOW_MS = 10_000
"""The rate is that of the last ten seconds: long enough to be steady, short enough for a new throttle."""
LINE_EVERY_MS = 10_000
"""Where there is no terminal: a line this often, and whenever a partition is done."""
LINES_AROUND_ROWS = 7
"""The sum, the table's head and frame, and how many more there are: all has to fit on the screen."""

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"

BROKER_CONFIGS = (LEADER_RATE, FOLLOWER_RATE, LOG_DIRS_RATE)
TOPIC_CONFIGS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)


# Progress


class DirMove(NamedTuple):
    """A replica that has to be in a certain directory of its broker."""

    path: str
    """Where it is to be."""
    now: str | None
    """Where it is; None: the broker does not have it, or does not answer."""
    left_bytes: int | None
    """None: it is not being copied."""

    @property
    def is_done(self) -> bool:
        return self.now == self.path and self.left_bytes is None

    @property
    def is_under_way(self) -> bool:
        return self.left_bytes is not None


class Seen(NamedTuple):
    """What moves, at one moment."""

    partitions: dict[TopicPartition, PartitionNow]
    under_way: dict[TopicPartition, ReplicaAssignment]
    """Reassignments between brokers, of the whole cluster."""
    left_bytes: dict[TopicPartition, int | None]
    """For each of these; None: it cannot be told now."""
    dir_moves: dict[tuple[TopicPartition, int], DirMove]
    """By partition and broker: what the plan asks for, and (looking at everything) what else moves."""
    live: frozenset[int]

    @property
    def is_quiet(self) -> bool:
        """Nothing moves, as far as was looked."""
        return not self.under_way and not any(move.is_under_way for move in self.dir_moves.values())

    def waits_for(self, partition: TopicPartition) -> list[int]:
        """Brokers that are to get a replica, and are not there."""
        assignment = self.under_way.get(partition)
        return [each for each in assignment.target if each not in self.live] if assignment else []


async def look(admin: AdminClient, plan: Plan, *, everywhere: bool) -> Seen:
    """What moves now. ``everywhere``: also moves between directories that the plan does not name.

    Raises:
        KafkaError, BrokerUnavailable: the cluster as a whole does not answer; single brokers may be away.
    """
    under_way = await admin.reassignments()
    topics = {each.partition.topic for each in plan} | {each.topic for each in under_way}
    partitions = await admin.partitions(sorted(topics)) if topics else {}
    live = (await admin.nodes()).brokers
    asked = set(live) if everywhere else _concerned(plan, under_way, partitions)
    wanted = None if everywhere else sorted({*under_way, *(each.partition for each in plan)})
    log_dirs = await log_dirs_of(admin, sorted(asked & set(live)), wanted)
    return Seen(
        partitions,
        under_way,
        bytes_left(under_way, partitions, log_dirs),
        dir_moves_of(plan, log_dirs) if not everywhere else _all_dir_moves(plan, log_dirs),
        frozenset(live),
    )


def _concerned(
    plan: Plan,
    under_way: Mapping[TopicPartition, ReplicaAssignment],
    partitions: Mapping[TopicPartition, PartitionNow],
) -> set[int]:
    brokers = {broker for planned in plan for broker, _ in planned.moves()}
    for partition, assignment in under_way.items():
        if assignment.adding and partition in partitions:
            brokers |= {partitions[partition].leader, *assignment.adding}
    return brokers


async def log_dirs_of(
    admin: AdminClient, brokers: Sequence[int], partitions: Sequence[TopicPartition] | None
) -> dict[int, list[LogDir]]:
    """The log directories of each broker that answers, with ``partitions`` in them (None: with all)."""
    found = {}
    for node_id in brokers:
        try:
            found[node_id] = await admin.log_dirs(node_id, partitions)
        except (BrokerUnavailable, KafkaError):
            continue  # its numbers are missing, until it answers again
    return found


def bytes_left(
    under_way: Mapping[TopicPartition, ReplicaAssignment],
    partitions: Mapping[TopicPartition, PartitionNow],
    log_dirs: Mapping[int, Sequence[LogDir]],
) -> dict[TopicPartition, int | None]:
    """What is still to be copied between brokers, for each partition that is under way."""
    logs = {
        (partition, node_id): replica
        for node_id, dirs in log_dirs.items()
        for each in dirs
        for partition, replica in each.replicas.items()
        if not replica.is_future
    }
    left: dict[TopicPartition, int | None] = {}
    for partition, assignment in under_way.items():
        leader = partitions[partition].leader if partition in partitions else None
        source = logs.get((partition, leader)) if leader is not None else None
        if not assignment.adding:
            left[partition] = 0
        elif source is None:
            left[partition] = None
        else:
            copies = [logs.get((partition, broker), LogReplica(0, 0, False)) for broker in assignment.adding]
            left[partition] = sum(max(0, source.size_bytes - copy.size_bytes) for copy in copies)
    return left


def dir_moves_of(
    plan: Plan, log_dirs: Mapping[int, Sequence[LogDir]]
) -> dict[tuple[TopicPartition, int], DirMove]:
    """What the plan says about directories, against what is."""
    return {
        (planned.partition, broker): _dir_move(planned.partition, path, log_dirs.get(broker, ()))
        for planned in plan
        for broker, path in planned.moves()
    }


def _all_dir_moves(
    plan: Plan, log_dirs: Mapping[int, Sequence[LogDir]]
) -> dict[tuple[TopicPartition, int], DirMove]:
    moves = {
        (partition, broker): _dir_move(partition, each.path, dirs)
        for broker, dirs in log_dirs.items()
        for each in dirs
        for partition, replica in each.replicas.items()
        if replica.is_future
    }
    return moves | dir_moves_of(plan, log_dirs)


def _dir_move(partition: TopicPartition, path: str, dirs: Sequence[LogDir]) -> DirMove:
    now = next((each for each in dirs if _current(each, partition)), None)
    future = next((each for each in dirs if _future(each, partition)), None)
    if now is None or future is None or future.path != path:
        return DirMove(path, now.path if now else None, None)
    left = now.replicas[partition].size_bytes - future.replicas[partition].size_bytes
    return DirMove(path, now.path, max(0, left))


def _current(log_dir: LogDir, partition: TopicPartition) -> bool:
    replica = log_dir.replicas.get(partition)
    return replica is not None and not replica.is_future


def _future(log_dir: LogDir, partition: TopicPartition) -> bool:
    replica = log_dir.replicas.get(partition)
    return replica is not None and replica.is_future


class CopyRate:
    """Bytes a second over the last ``RATE_WINDOW_MS``, from how much was left when."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque()

    def record(self, left_bytes: int, *, now_ms: int) -> None:
        self._samples.append((now_ms, left_bytes))
        while len(self._samples) > 2 and self._samples[1][0] <= now_ms - RATE_WINDOW_MS:
            self._samples.popleft()

    @property
    def bytes_per_s(self) -> float | None:
        """None: not known yet. 0: nothing gets done, or producers write as fast as it is copied."""
        if len(self._samples) < 2 or self._samples[-1][0] == self._samples[0][0]:
            return None
        (first_ms, first), (last_ms, last) = self._samples[0], self._samples[-1]
        return max(0.0, (first - last) * 1000 / (last_ms - first_ms))

    def describe(self) -> str:
        """Bytes left, rate and time left: what is known of them."""
        left = self._samples[-1][1] if self._samples else 0
        parts = [f"{format_bytes(left)} left"]
        rate = self.bytes_per_s
        if rate is not None:
            parts.append(format_rate(rate))
        if rate and left:
            parts.append(f"about {format_duration(left * 1000 / rate)}")
        return ", ".join(parts)


class ProgressView:
    """Shows what is left: a table that is drawn again on a terminal, lines elsewhere."""

    def __init__(self, partitions: Iterable[TopicPartition], stream: TextIO | None = None) -> None:
        self._mine = set(partitions)
        self._out = stream or sys.stdout
        self._rate = CopyRate()
        self._live: Live | None = None
        self._said: tuple[int, int] | None = None  # how many were moving, and when that was said

    def show(self, seen: Seen, *, now_ms: int) -> None:
        rows = moving_rows(seen, self._mine)
        self._rate.record(sum(left or 0 for _, _, left in rows), now_ms=now_ms)
        text = f"{len(rows)} still moving, {self._rate.describe()}"
        if self._out.isatty():
            self._draw(rows, text)
        elif self._said is None or self._said[0] != len(rows) or now_ms - self._said[1] >= LINE_EVERY_MS:
            self._said = len(rows), now_ms
            print(text, file=self._out, flush=True)

    def end(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _draw(self, rows: Sequence[tuple[str, str, int | None]], text: str) -> None:
        from rich.console import Console, Group
        from rich.live import Live
        from rich.text import Text

        if self._live is None:
            self._live = Live(console=Console(file=self._out), auto_refresh=False, transient=True)
            self._live.start()
        rows_max = max(1, self._live.console.height - LINES_AROUND_ROWS)
        self._live.update(Group(Text(text), _table(rows, rows_max)), refresh=True)


def moving_rows(seen: Seen, partitions: set[TopicPartition] | None) -> list[tuple[str, str, int | None]]:
    """What is under way of ``partitions`` (None: all): its name, what happens to it, bytes left."""
    rows: list[tuple[str, str, int | None]] = [
        (str(partition), describe_reassignment(seen, partition), seen.left_bytes.get(partition))
        for partition in seen.under_way
        if partitions is None or partition in partitions
    ]
    rows += [
        (f"{partition} on broker {broker}", f"from {move.now} to {move.path}", move.left_bytes)
        for (partition, broker), move in sorted(seen.dir_moves.items())
        if move.is_under_way and (partitions is None or partition in partitions)
    ]
    return rows


def describe_reassignment(seen: Seen, partition: TopicPartition) -> str:
    """Which replicas come and go, and whom it waits for."""
    assignment = seen.under_way[partition]
    parts = [f"replicas {ids(assignment.target)}"]
    if assignment.adding:
        parts.append(f"adding {ids(assignment.adding)}")
    if assignment.removing:
        parts.append(f"removing {ids(assignment.removing)}")
    if away := seen.waits_for(partition):
        parts.append(f"waiting for broker {ids(away)}, which is not registered")
    return ", ".join(parts)


def ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


def _table(rows: Sequence[tuple[str, str, int | None]], rows_max: int) -> Table:
    from rich.table import Table

    table = Table()
    for column in ("partition", "what", "left"):
        table.add_column(column)
    for name, what, left in rows[:rows_max]:
        table.add_row(name, what, "?" if left is None else format_bytes(left))
    if len(rows) > rows_max:
        table.add_row(f"and {len(rows) - rows_max} more", "", "")
    return table


# Throttles


class Throttle(NamedTuple):
    """One throttle property that is set."""

    resource: ConfigResource
    name: str
    value: str

    def __str__(self) -> str:
        kind = "topic" if self.resource.type == ConfigResourceType.TOPIC else "broker"
        whose = f"{kind} {self.resource.name}" if self.resource.name else "all brokers"
        return f"{whose}: {self.name}={self.value}"


class ReplicaMoves(NamedTuple):
    """Between which brokers one partition is copied."""

    sources: tuple[int, ...]
    targets: tuple[int, ...]


def moves_of(
    planned: Mapping[TopicPartition, Sequence[int]],
    current: Mapping[TopicPartition, Sequence[int]],
    under_way: Mapping[TopicPartition, ReplicaAssignment],
) -> dict[TopicPartition, ReplicaMoves]:
    """What moves once ``planned`` is under way too; ``current``: the replicas of what is planned now."""
    moves = {
        partition: ReplicaMoves(tuple(assignment.origin), tuple(assignment.adding))
        for partition, assignment in under_way.items()
    }
    for partition, replicas in planned.items():
        sources = moves[partition].sources if partition in moves else tuple(current[partition])
        targets = tuple(replica for replica in replicas if replica not in sources)
        moves[partition] = ReplicaMoves(sources, targets)
    return moves


def replica_lists(
    moves: Mapping[TopicPartition, ReplicaMoves],
) -> dict[ConfigResource, dict[str, str | None]]:
    """The topics' configurations: ``partition:broker`` lists for both sides."""
    topics: dict[str, dict[str, list[str]]] = {}
    for partition, (sources, targets) in sorted(moves.items()):
        lists = topics.setdefault(partition.topic, {name: [] for name in TOPIC_CONFIGS})
        lists[LEADER_REPLICAS] += [f"{partition.partition}:{broker}" for broker in sources]
        lists[FOLLOWER_REPLICAS] += [f"{partition.partition}:{broker}" for broker in targets]
    return {
        topic_resource(topic): {name: ",".join(replicas) for name, replicas in lists.items()}
        for topic, lists in topics.items()
    }


def brokers_of(moves: Mapping[TopicPartition, ReplicaMoves]) -> list[int]:
    """All brokers that send or receive, sorted."""
    return sorted({broker for move in moves.values() for broker in (*move.sources, *move.targets)})


async def set_throttle(
    admin: AdminClient, moves: Mapping[TopicPartition, ReplicaMoves], *, bytes_per_s: int
) -> list[int]:
    """Throttle what ``moves``. Returns brokers that are not there, and are not throttled when they come."""
    await admin.alter_configs(replica_lists(moves))
    rates: dict[str, str | None] = dict.fromkeys((LEADER_RATE, FOLLOWER_RATE), str(bytes_per_s))
    return await _set_on(admin, brokers_of(moves), rates)


async def set_log_dirs_throttle(admin: AdminClient, brokers: Iterable[int], *, bytes_per_s: int) -> list[int]:
    """Throttle moves between the directories of ``brokers``. Returns as ``set_throttle``."""
    return await _set_on(admin, sorted(set(brokers)), {LOG_DIRS_RATE: str(bytes_per_s)})


async def _set_on(admin: AdminClient, brokers: Sequence[int], rates: Mapping[str, str | None]) -> list[int]:
    live = (await admin.nodes()).brokers
    for node_id in brokers:
        if node_id in live:
            await admin.alter_configs({broker_resource(node_id): rates}, node_id=node_id)
    return [node_id for node_id in brokers if node_id not in live]


async def find_throttles(admin: AdminClient) -> list[Throttle]:
    """Every throttle that is set on a topic, or on a broker that is there."""
    topics = dict.fromkeys(partition.topic for partition in await admin.partitions())
    described = await admin.configs([topic_resource(topic) for topic in topics], TOPIC_CONFIGS)
    for node_id in (await admin.nodes()).brokers:
        described |= await admin.configs([broker_resource(node_id)], BROKER_CONFIGS, node_id=node_id)
    found = []
    for resource, values in described.items():
        for name, value in values.items():
            if value.is_set and value.value:
                for_all = value.source == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
                found.append(Throttle(broker_resource(None) if for_all else resource, name, value.value))
    return list(dict.fromkeys(found))


async def remove_throttles(admin: AdminClient, throttles: Iterable[Throttle]) -> None:
    """Remove each of ``throttles``."""
    changes: dict[ConfigResource, dict[str, str | None]] = {}
    for throttle in throttles:
        changes.setdefault(throttle.resource, {})[throttle.name] = None
    topics = {each: names for each, names in changes.items() if each.type == ConfigResourceType.TOPIC}
    await admin.alter_configs(topics)
    for resource, names in changes.items():
        if resource.type == ConfigResourceType.BROKER:
            node_id = int(resource.name) if resource.name else None
            await admin.alter_configs({resource: names}, node_id=node_id)


# The commands


async def verify(admin: AdminClient, plan: Plan, *, preserve_throttles: bool) -> int:
    """Say of each partition of ``plan`` where it is, and see to the throttles. Returns the exit status: 0
    when everything is where it is to be."""
    seen = await look(admin, plan, everywhere=False)
    print("Status of partition reassignment:")
    status = report(plan, seen, done_too=True)
    await settle_throttles(admin, topics_of(plan), preserve=preserve_throttles)
    return status


def report(plan: Plan, seen: Seen, *, done_too: bool) -> int:
    """A line for each partition and directory that is not (or, ``done_too``, that is) as planned."""
    status = OK
    for planned in sorted(plan):
        is_done, line = _partition_line(planned.partition, planned.replicas, seen)
        if done_too or not is_done:
            print(line)
        status = status if is_done else FAILURE
    for (partition, broker), move in sorted(seen.dir_moves.items()):
        if move.is_done:
            line = f"Replica {partition} on broker {broker} is in {move.path}."
        elif move.is_under_way:
            line = (
                f"Replica {partition} on broker {broker} is still being moved "
                f"from {move.now} to {move.path}, {format_bytes(move.left_bytes or 0)} left."
            )
        else:
            where = f"is in {move.now}" if move.now else "cannot be found"
            line = f"Replica {partition} on broker {broker} {where}, and is not being moved to {move.path}."
        if done_too or not move.is_done:
            print(line)
        status = status if move.is_done else FAILURE
    return status


def _partition_line(partition: TopicPartition, replicas: Sequence[int], seen: Seen) -> tuple[bool, str]:
    if partition in seen.under_way:
        left = seen.left_bytes.get(partition)
        text = f"Reassignment of partition {partition} is still in progress: "
        text += describe_reassignment(seen, partition)
        return False, text + (f", {format_bytes(left)} left." if left is not None else ".")
    now = seen.partitions.get(partition)
    if now is None:
        return False, f"There is no partition {partition}."
    if now.replicas == tuple(replicas):
        return True, f"Reassignment of partition {partition} is completed."
    return False, (
        f"There is no active reassignment of partition {partition}, "
        f"but replica set is {ids(now.replicas)} rather than {ids(replicas)}."
    )


async def settle_throttles(admin: AdminClient, topics: set[str], *, preserve: bool) -> None:
    """Remove the throttle of ``topics`` if nothing moves any more; name what is kept, and why."""
    throttles = await find_throttles(admin)
    if not throttles:
        return
    everything = await look(admin, [], everywhere=True)
    if not everything.is_quiet:
        count = len(moving_rows(everything, None))
        print(
            f"{count} {'is' if count == 1 else 'are'} still moving in the cluster, so the throttle is kept; "
            "`minikafka reassign verify` removes it when all is done."
        )
        return
    mine = [
        each
        for each in throttles
        if each.resource.type == ConfigResourceType.BROKER or each.resource.name in topics
    ]
    if not preserve and mine:
        await remove_throttles(admin, mine)
        brokers = [each.resource.name for each in mine if each.resource.type == ConfigResourceType.BROKER]
        whose = [
            f"brokers {', '.join(dict.fromkeys(name or '(all)' for name in brokers))}" if brokers else "",
            f"topics {', '.join(sorted(topics))}" if len(mine) > len(brokers) else "",
        ]
        print(f"Removed the throttle of {' and '.join(filter(None, whose))}.")
        throttles = [each for each in throttles if each not in mine]
    name_stale(throttles)


def topics_of(plan: Plan) -> set[str]:
    return {each.partition.topic for each in plan}


def name_stale(throttles: Sequence[Throttle]) -> None:
    """Throttles although nothing moves."""
    if throttles:
        print("Stale: nothing is being reassigned, and yet there is a throttle:")
        _print_throttles(throttles)
        print("`minikafka reassign remove-throttles` removes what is stale.")


def _print_throttles(throttles: Sequence[Throttle]) -> None:
    for throttle in throttles:
        print(f"  {throttle}")


async def remove_all_throttles(admin: AdminClient) -> int:
    """Remove every throttle there is. What moves continues at full speed."""
    throttles = await find_throttles(admin)
    await remove_throttles(admin, throttles)
    print("Removed:" if throttles else "There is no throttle.")
    _print_throttles(throttles)
    return OK


async def list_moves(admin: AdminClient) -> int:
    """Everything that moves now."""
    seen = await look(admin, [], everywhere=True)
    rows = moving_rows(seen, None)
    print("Current partition reassignments:" if rows else "No partition reassignments found.")
    for name, what, left in rows:
        print(f"{name}: {what}{'' if left is None else f', {format_bytes(left)} left'}")
    if not rows:
        name_stale(await find_throttles(admin))
    return OK


async def cancel(admin: AdminClient, plan: Plan | None, *, preserve_throttles: bool) -> int:
    """Take back what of ``plan`` (None: of everything) is under way. Returns when it is back."""
    seen = await look(admin, plan or [], everywhere=plan is None)
    mine = None if plan is None else {each.partition for each in plan}
    active = [each for each in seen.under_way if mine is None or each in mine]
    dirs = {key: move for key, move in seen.dir_moves.items() if move.is_under_way}
    if not active and not dirs:
        print("None of the specified partition reassignments are active.")
    if active:
        refused = await admin.reassign(dict.fromkeys(active))
        if refused:
            lines = "".join(f"\n  {each}: {explain(error)}" for each, error in sorted(refused.items()))
            raise CommandError(f"the cluster refused to cancel{lines}")
        await _until_gone(admin, active)
        print(f"Successfully cancelled partition reassignment{'s' * (len(active) > 1)} for: {_names(active)}")
    for (partition, broker), move in dirs.items():
        errors = await admin.move_between_dirs(broker, {partition: move.now or ""})
        if errors:
            raise CommandError(f"{partition} on broker {broker}: {explain(errors[partition])}")
        print(f"Replica {partition} on broker {broker} is kept in {move.now}.")
    topics = {each.topic for each in (*active, *(each for each, _ in dirs))} | topics_of(plan or [])
    await settle_throttles(admin, topics, preserve=preserve_throttles)
    return OK


async def _until_gone(admin: AdminClient, partitions: Sequence[TopicPartition]) -> None:
    """Raises CommandError: the controller has not taken them back in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + admin.timeout_ms / 1000
    while left := [each for each in await admin.reassignments() if each in partitions]:
        if loop.time() >= deadline:
            raise CommandError(f"cancelled, but not rolled back within {admin.timeout_ms} ms: {_names(left)}")
        await asyncio.sleep(RETRY_BACKOFF_S)


def _names(partitions: Sequence[TopicPartition]) -> str:
    return ",".join(map(str, partitions))
