"""Plans of ``minikafka reassign``: their JSON files, what can be wrong with them, and how ``generate`` makes
one.

Files have the format of ``kafka-reassign-partitions``. Kafka:
``ReassignPartitionsCommand.parsePartitionReassignmentData``, ``parseTopicsData``. Different here: all that is
wrong with a plan is said at once, and log directories are looked up before anything begins.

``minikafka reassign generate`` proposes which brokers partitions should be on, when they are to be spread
evenly and little is to be copied; it changes nothing. Kafka: ``generateAssignment`` with
``AdminUtils.assignReplicasToBrokers``, which deals all partitions out again, as if the topics were just being
created. Different here: every replica that can be kept is, because each that is not is copied over the
network; all topics and all registered brokers are taken unless said otherwise, and the replication factor can
be changed.

What a generated plan promises, in this order:
1. Replicas are on the given brokers, none twice on one, as many as there were (or as asked for).
2. With racks, a partition is in as many racks as it can be: all replicas in different ones, or all racks
   used.
3. Each topic's replicas are spread evenly, then those of all topics together: no broker has two more than
   another. Racks of different sizes can make that impossible (a rack of one broker gets a replica of
   everything); then it is as even as the racks allow. The preferred leaders of each topic are even in the
   same sense, those of all topics as far as swapping them within even topics goes.
4. Few moves. A replica moves only where that makes a topic or the whole more even.

How, without asking a cluster: replicas are kept where possible, missing ones are added where there is least,
and then replicas move along the shortest paths from brokers that have too much to brokers that have too
little. A path may lead over brokers in between (1 gives to 2, and 2 to 3), which is what racks ask for. This
is how a maximum flow is found, so when there is no path any more a topic cannot be more even.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from minikafka.cli.shared.admin_client import AdminClient, LogDir, PartitionNow
from minikafka.cli.shared.commands import OK, CommandError, read_text, write_text
from minikafka.controller.assignment import BrokerMetadata
from minikafka.errors import UNDECODABLE
from minikafka.types import BrokerId, TopicPartition

ANY_LOG_DIR = "any"
VERSION = 1

_T = TypeVar("_T", str, int, TopicPartition)

Assignment = dict[TopicPartition, tuple[int, ...]]
"""Partition → its replicas, the preferred leader first."""

FindMove = Callable[[int, int], "_Move | None"]
"""Source and target → the move between them that costs least; None: there is none."""


# Files


class _Partition(msgspec.Struct):
    topic: str
    partition: int
    replicas: list[int]
    log_dirs: list[str] | None = None


class _PlanFile(msgspec.Struct):
    partitions: list[_Partition] = []
    version: int = VERSION


class _Topic(msgspec.Struct):
    topic: str


class _TopicsFile(msgspec.Struct):
    topics: list[_Topic] = []
    version: int = VERSION


class _ElectionPartition(msgspec.Struct):
    topic: str
    partition: int


class _ElectionFile(msgspec.Struct):
    partitions: list[_ElectionPartition]
    version: int = VERSION


_File = TypeVar("_File", _PlanFile, _TopicsFile, _ElectionFile)


class PlannedPartition(NamedTuple):
    """What a plan says of one partition."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    log_dirs: tuple[str, ...]
    """For each replica an absolute path, or "any"."""

    def moves(self) -> Iterator[tuple[int, str]]:
        """Broker and path of each replica that has to be in a certain directory."""
        return (
            (replica, path)
            for replica, path in zip(self.replicas, self.log_dirs, strict=False)
            if path != ANY_LOG_DIR
        )


Plan = list[PlannedPartition]


def parse_plan(text: str) -> Plan:
    """A plan as it is written, however wrong. Raises CommandError: it is not such a file."""
    return [
        PlannedPartition(
            TopicPartition(each.topic, each.partition),
            tuple(each.replicas),
            tuple([ANY_LOG_DIR] * len(each.replicas) if each.log_dirs is None else each.log_dirs),
        )
        for each in _decode(text, _PlanFile, "a reassignment plan").partitions
    ]


def parse_topics(text: str) -> list[str]:
    """The topics of a --topics-to-move-json-file. Raises CommandError: as above, or one is named twice."""
    topics = [each.topic for each in _decode(text, _TopicsFile, "a list of topics").topics]
    if twice := _twice(topics):
        raise CommandError(f"the list of topics names {', '.join(twice)} more than once")
    return topics


def parse_election_partitions(text: str) -> list[TopicPartition]:
    """The partitions of a --path-to-json-file. Raises CommandError: as above, empty, or one named twice."""
    found = _decode(text, _ElectionFile, "a list of partitions").partitions
    partitions = [TopicPartition(each.topic, each.partition) for each in found]
    if not partitions:
        raise CommandError("the list of partitions is empty")
    if twice := _twice(partitions):
        raise CommandError(f"the list of partitions names {', '.join(map(str, twice))} more than once")
    return partitions


def format_plan(
    assignment: Mapping[TopicPartition, Sequence[int]],
    log_dirs: Mapping[tuple[TopicPartition, int], str] | None = None,
) -> str:
    """One line that ``parse_plan`` reads; ``log_dirs``: of replicas that are to be in certain directories."""
    partitions = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replicas": list(replicas),
            "log_dirs": [(log_dirs or {}).get((partition, replica), ANY_LOG_DIR) for replica in replicas],
        }
        for partition, replicas in sorted(assignment.items())
    ]
    return msgspec.json.encode({"version": VERSION, "partitions": partitions}).decode()


def problems_of(plan: Plan) -> list[str]:
    """What is wrong with a plan whatever the cluster is like: one line each."""
    if not plan:
        return ["it names no partition"]
    found = [
        f"{partition} is named more than once" for partition in _twice([each.partition for each in plan])
    ]
    for partition, replicas, log_dirs in plan:
        if not replicas:
            found.append(f"{partition}: the list of replicas is empty")
        if twice := _twice(replicas):
            found.append(f"{partition}: broker {', '.join(map(str, twice))} is named more than once")
        if len(log_dirs) != len(replicas):
            found.append(f"{partition}: {len(replicas)} replicas, but {len(log_dirs)} log directories")
    return found


def problems_with_cluster(
    plan: Plan, partitions: Mapping[TopicPartition, PartitionNow], brokers: Iterable[int]
) -> list[str]:
    """What of a plan this cluster does not have: topics, partitions, brokers; one line each."""
    topics = {partition.topic for partition in partitions}
    live = set(brokers)
    found = [
        f"there is no topic {topic}" for topic in sorted({each.partition.topic for each in plan} - topics)
    ]
    for partition, replicas, _ in plan:
        if partition.topic in topics and partition not in partitions:
            count = sum(each.topic == partition.topic for each in partitions)
            found.append(f"there is no partition {partition}: the topic has {count}")
        found += [
            f"{partition}: broker {replica} is not registered"
            for replica in dict.fromkeys(replicas)
            if replica not in live
        ]
    return found


def problems_with_log_dirs(plan: Plan, log_dirs: Mapping[int, Sequence[LogDir]]) -> list[str]:
    """Directories that the brokers do not have, or that failed; one line each."""
    found = []
    for planned in plan:
        for replica, path in planned.moves():
            if replica not in log_dirs:
                continue  # it is not registered, which is said elsewhere
            known = {each.path: each for each in log_dirs[replica]}
            if path not in known:
                there = ", ".join(sorted(known))
                found.append(
                    f"{planned.partition}: broker {replica} has no log directory {path} (it has {there})"
                )
            elif known[path].is_offline:
                found.append(f"{planned.partition}: log directory {path} of broker {replica} is offline")
    return found


def refuse(problems: Sequence[str]) -> None:
    """Raise CommandError if there are any."""
    if problems:
        lines = "".join(f"\n  {problem}" for problem in problems)
        raise CommandError(f"the plan cannot be carried out, and nothing was changed:{lines}")


def _decode(text: str, kind: type[_File], what: str) -> _File:
    try:
        file = msgspec.json.decode(text, type=kind)
    except UNDECODABLE as error:
        raise CommandError(f"this is not {what}: {error}") from None
    if file.version != VERSION:
        raise CommandError(f"this is not {what}: version {file.version} is unknown, there is {VERSION}")
    return file


def _twice(things: Iterable[_T]) -> list[_T]:
    return [each for each, count in Counter(things).items() if count > 1]


# Proposing a plan


async def generate(admin: AdminClient, arguments: argparse.Namespace) -> int:
    """Print where the partitions are and where they could be. Returns the exit status.

    Raises:
        CommandError: an unknown topic or broker, brokers with and without racks, more replicas than brokers.
    """
    current = await _current(admin, _topics(arguments))
    brokers = await _brokers(admin, arguments)
    try:
        planned = plan_assignment(current, brokers, replication_factor=arguments.replication_factor)
    except ValueError as error:
        raise CommandError(str(error)) from None
    proposal = format_plan(planned)
    print(f"Current partition replica assignment\n{format_plan(current)}\n")
    print(f"Proposed partition reassignment configuration\n{proposal}")
    changed = sum(planned[each] != current[each] for each in planned)
    print(
        f"{changed} of {len(planned)} partitions change, {count_moves(current, planned)} replicas are copied",
        file=sys.stderr,
    )
    if arguments.output is not None:
        write_text(arguments.output, proposal + "\n")
    return OK


def _topics(arguments: argparse.Namespace) -> list[str] | None:
    if arguments.topics_to_move_json_file is not None:
        return parse_topics(read_text(arguments.topics_to_move_json_file))
    return None if arguments.topics is None else list(dict.fromkeys(arguments.topics.split(",")))


async def _current(admin: AdminClient, topics: list[str] | None) -> Assignment:
    """Where the partitions are, or will be when what is under way is done."""
    partitions = await admin.partitions(topics)
    missing = sorted(set(topics or ()) - {each.topic for each in partitions})
    if missing:
        raise CommandError(f"there is no topic {', '.join(missing)}")
    if not partitions:
        raise CommandError("there is no partition to plan for")
    under_way = await admin.reassignments()
    return {
        each: under_way[each].target if each in under_way else now.replicas
        for each, now in partitions.items()
    }


async def _brokers(admin: AdminClient, arguments: argparse.Namespace) -> list[BrokerMetadata]:
    live = (await admin.nodes()).brokers
    wanted = arguments.broker_list or list(live)
    unknown = [node_id for node_id in wanted if node_id not in live]
    if unknown:
        raise CommandError(f"broker {', '.join(map(str, unknown))} is not registered")
    racks = [None if arguments.disable_rack_aware else live[node_id].rack for node_id in wanted]
    if None in racks and any(rack is not None for rack in racks):
        without = [str(node_id) for node_id, rack in zip(wanted, racks, strict=True) if rack is None]
        raise CommandError(
            f"broker {', '.join(without)} has no rack, others have; --disable-rack-aware leaves racks aside"
        )
    return [BrokerMetadata(BrokerId(node_id), rack) for node_id, rack in zip(wanted, racks, strict=True)]


# The best assignment


class _Move(NamedTuple):
    """What one partition has on ``source`` goes to ``target``."""

    partition: TopicPartition
    source: int
    target: int


def plan_assignment(
    current: Mapping[TopicPartition, Sequence[int]],
    brokers: Sequence[BrokerMetadata],
    *,
    replication_factor: int | None = None,
) -> Assignment:
    """An even assignment of the partitions in ``current`` to ``brokers``, near to what there is.

    ``replication_factor``: how many replicas each shall have; None: as many as it has. Racks count when all
    brokers have one; leave them out to ignore them.

    Raises:
        ValueError: a partition shall have more replicas than there are brokers, or none.
    """
    for partition, replicas in current.items():
        wanted = len(replicas) if replication_factor is None else replication_factor
        if not 0 < wanted <= len(brokers):
            raise ValueError(f"{partition}: {wanted} replicas on {len(brokers)} brokers is not possible")
    planner = _Planner(current, brokers, replication_factor)
    planner.place()
    planner.spread_replicas()
    return planner.with_leaders()


def count_moves(current: Mapping[TopicPartition, Sequence[int]], planned: Assignment) -> int:
    """How many replicas have to be copied."""
    return sum(
        replica not in current[partition] for partition, replicas in planned.items() for replica in replicas
    )


class _Planner:
    def __init__(
        self,
        current: Mapping[TopicPartition, Sequence[int]],
        brokers: Sequence[BrokerMetadata],
        replication_factor: int | None,
    ) -> None:
        self._current = {partition: tuple(current[partition]) for partition in sorted(current)}
        self._brokers = sorted(broker.node_id for broker in brokers)
        has_racks = all(broker.rack is not None for broker in brokers)
        self._racks: dict[int, str | None] = {
            broker.node_id: broker.rack if has_racks else None for broker in brokers
        }
        self._rack_count = len(set(self._racks.values()))
        self._wanted = {
            partition: replication_factor or len(replicas) for partition, replicas in self._current.items()
        }
        self._replicas: dict[TopicPartition, list[int]] = {}
        self._held: dict[int, dict[TopicPartition, None]] = {broker: {} for broker in self._brokers}
        self._of_topic: dict[str, Counter[int]] = {partition.topic: Counter() for partition in self._current}
        self._in_all: Counter[int] = Counter()
        self._partitions: dict[str, list[TopicPartition]] = {}
        for partition in self._current:
            self._partitions.setdefault(partition.topic, []).append(partition)

    # Which are kept, and which are added

    def place(self) -> None:
        """As many replicas for each partition as it shall have: old ones where that is possible."""
        for partition, replicas in self._current.items():
            self._replicas[partition] = []
            for replica in replicas:
                if replica in self._racks and self._may_add(partition, replica):
                    self._add(partition, replica)
        for partition, placed in self._replicas.items():
            while len(placed) < self._wanted[partition]:
                self._add(partition, min(self._candidates(partition), key=self._load_key(partition.topic)))

    def _candidates(self, partition: TopicPartition) -> list[int]:
        placed = self._replicas[partition]
        return [each for each in self._brokers if each not in placed and self._may_add(partition, each)]

    def _may_add(self, partition: TopicPartition, broker: int) -> bool:
        """Whether the partition can still get into as many racks as it is to be in."""
        placed = [*self._replicas[partition], broker]
        missing = self._wanted[partition] - len(placed)
        return missing >= 0 and self._racks_of(placed) + missing >= self._racks_wanted(partition)

    def _load_key(self, topic: str) -> Callable[[int], tuple[int, int, int]]:
        counts = self._of_topic[topic]
        return lambda broker: (counts[broker], self._in_all[broker], broker)

    def _add(self, partition: TopicPartition, broker: int) -> None:
        self._replicas[partition].append(broker)
        self._held[broker][partition] = None
        self._of_topic[partition.topic][broker] += 1
        self._in_all[broker] += 1

    # Even replicas

    def spread_replicas(self) -> None:
        """First each topic, as even as can be; then all together, by moves that keep the topics even."""
        for topic, counts in self._of_topic.items():
            _even_out(self._brokers, counts, self._find_in_topic(topic), self._move)
        _even_out(self._brokers, self._in_all, self._find_neutral, self._move)

    def _find_in_topic(self, topic: str) -> FindMove:
        def find(source: int, target: int) -> _Move | None:
            held = self._held[source]
            return self._cheapest([each for each in self._partitions[topic] if each in held], source, target)

        return find

    def _find_neutral(self, source: int, target: int) -> _Move | None:
        """A move that only swaps which of the two has the one that is too many of a topic."""
        movable = [
            each
            for each in self._held[source]
            if self._of_topic[each.topic][source] > self._of_topic[each.topic][target]
        ]
        return self._cheapest(movable, source, target)

    def _cheapest(self, partitions: Sequence[TopicPartition], source: int, target: int) -> _Move | None:
        """The one of ``partitions`` that may move and costs least: -1 is a replica that comes home."""
        best: tuple[int, TopicPartition] | None = None
        for partition in partitions:
            if target in self._replicas[partition] or not self._keeps_racks(partition, source, target):
                continue
            home = self._current[partition]
            cost = (target not in home) - (source not in home)
            if best is None or cost < best[0]:
                best = cost, partition
        return None if best is None else _Move(best[1], source, target)

    def _keeps_racks(self, partition: TopicPartition, source: int, target: int) -> bool:
        if self._racks[source] == self._racks[target]:
            return True
        after = [target, *(each for each in self._replicas[partition] if each != source)]
        return self._racks_of(after) >= self._racks_wanted(partition)

    def _move(self, move: _Move) -> None:
        replicas = self._replicas[move.partition]
        replicas[replicas.index(move.source)] = move.target
        del self._held[move.source][move.partition]
        self._held[move.target][move.partition] = None
        for counts in (self._of_topic[move.partition.topic], self._in_all):
            counts[move.source] -= 1
            counts[move.target] += 1

    def _racks_of(self, brokers: Sequence[int]) -> int:
        return len({self._racks[broker] for broker in brokers})

    def _racks_wanted(self, partition: TopicPartition) -> int:
        return min(self._wanted[partition], self._rack_count)

    # Even leaders

    def with_leaders(self) -> Assignment:
        """The replicas with the preferred leader first: the old one, unless another makes it more even."""
        leaders = _Leaders(self._current, self._replicas)
        leaders.spread(self._brokers)
        return {
            partition: (leader, *(each for each in self._in_order(partition) if each != leader))
            for partition, leader in leaders.leader.items()
        }

    def _in_order(self, partition: TopicPartition) -> list[int]:
        """Those that are kept in the order they had, then those that are added."""
        placed = self._replicas[partition]
        kept = [each for each in self._current[partition] if each in placed]
        return kept + [each for each in placed if each not in kept]


class _Leaders:
    """The preferred leader of each partition, one of its replicas."""

    def __init__(
        self,
        current: Mapping[TopicPartition, Sequence[int]],
        replicas: Mapping[TopicPartition, Sequence[int]],
    ) -> None:
        self._current = current
        self._replicas = replicas
        self.leader: dict[TopicPartition, int] = {}
        self._of_topic: dict[str, Counter[int]] = {}
        self._in_all: Counter[int] = Counter()
        for partition, placed in replicas.items():
            counts = self._of_topic.setdefault(partition.topic, Counter())
            before = current[partition][0]
            leader = before if before in placed else min(placed, key=lambda each: (counts[each], each))
            self.leader[partition] = leader
            counts[leader] += 1
            self._in_all[leader] += 1

    def spread(self, brokers: Sequence[int]) -> None:
        """First each topic, then all together."""
        for topic, counts in self._of_topic.items():
            partitions = [each for each in self.leader if each.topic == topic]
            _even_out(brokers, counts, self._find_in(partitions), self._move)
        _even_out(brokers, self._in_all, self._find_neutral, self._move)

    def _find_in(self, partitions: Sequence[TopicPartition]) -> FindMove:
        def find(source: int, target: int) -> _Move | None:
            movable = [
                each for each in partitions if self.leader[each] == source and target in self._replicas[each]
            ]
            if not movable:
                return None
            # A leader that changes already may as well change to another; one that comes home is best.
            best = min(movable, key=lambda each: self._cost(each, source, target))
            return _Move(best, source, target)

        return find

    def _find_neutral(self, source: int, target: int) -> _Move | None:
        neutral = [
            each
            for each in self.leader
            if self._of_topic[each.topic][source] > self._of_topic[each.topic][target]
        ]
        return self._find_in(neutral)(source, target)

    def _cost(self, partition: TopicPartition, source: int, target: int) -> int:
        before = self._current[partition][0]
        return (target != before) - (source != before)

    def _move(self, move: _Move) -> None:
        self.leader[move.partition] = move.target
        for counts in (self._of_topic[move.partition.topic], self._in_all):
            counts[move.source] -= 1
            counts[move.target] += 1


def _even_out(
    brokers: Sequence[int], counts: Counter[int], find: FindMove, apply: Callable[[_Move], None]
) -> None:
    """Move along shortest paths until no broker that can be reached has two fewer than another."""
    improved = True
    while improved:
        improved = False
        for source in sorted(brokers, key=lambda broker: (-counts[broker], broker)):
            path = _path_to_less(brokers, counts, find, source)
            if path:
                for move in path:
                    apply(move)
                improved = True
                break


def _path_to_less(
    brokers: Sequence[int], counts: Counter[int], find: FindMove, source: int
) -> list[_Move] | None:
    """The moves of a shortest path from ``source`` to a broker with at least two fewer, if there is one."""
    if counts[source] - min(counts[broker] for broker in brokers) < 2:
        return None
    came_by: dict[int, _Move | None] = {source: None}
    ring = deque([source])
    while ring:
        nearer = list(ring)
        ring.clear()
        for broker in nearer:
            for target in brokers:
                if target not in came_by and (move := find(broker, target)) is not None:
                    came_by[target] = move
                    ring.append(target)
        ends = [broker for broker in ring if counts[broker] <= counts[source] - 2]
        if ends:
            return _moves_to(min(ends, key=lambda broker: (counts[broker], broker)), came_by)
    return None


def _moves_to(end: int, came_by: Mapping[int, _Move | None]) -> list[_Move]:
    moves = []
    move = came_by[end]
    while move is not None:
        moves.append(move)
        move = came_by[move.source]
    return moves[::-1]
