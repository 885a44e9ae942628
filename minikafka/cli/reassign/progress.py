"""How far reassignments are: bytes left, rate, time left; and how that is shown while one waits.

What is left of a partition is the size of its leader's log less the size of each log that is being filled
(DescribeLogDirs). Both grow while producers write, so a partition may be done with a few bytes left, and
retention on either side makes it an estimate.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TextIO

from minikafka.cli.reassign.plan import Plan
from minikafka.cli.shared.admin_client import AdminClient, LogDir, LogReplica, PartitionNow
from minikafka.cli.shared.commands import format_bytes, format_duration, format_rate
from minikafka.errors import KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.types import ReplicaAssignment, TopicPartition

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

RATE_WINDOW_MS = 10_000
"""The rate is that of the last ten seconds: long enough to be steady, short enough for a new throttle."""
LINE_EVERY_MS = 10_000
"""Where there is no terminal: a line this often, and whenever a partition is done."""
LINES_AROUND_ROWS = 7
"""The sum, the table's head and frame, and how many more there are: all has to fit on the screen."""


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
