"""The JSON files of ``minikafka reassign``, in the format of ``kafka-reassign-partitions``, and what can be
wrong with a plan.

Kafka: ``ReassignPartitionsCommand.parsePartitionReassignmentData``, ``parseTopicsData``. Different here: all
that is wrong with a plan is said at once, and log directories are looked up before anything begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from minikafka.cli.shared.admin_client import LogDir, PartitionNow
from minikafka.cli.shared.commands import CommandError
from minikafka.errors import UNDECODABLE
from minikafka.types import TopicPartition

ANY_LOG_DIR = "any"
VERSION = 1


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


_T = TypeVar("_T", str, int, TopicPartition)


def _twice(things: Iterable[_T]) -> list[_T]:
    return [each for each, count in Counter(things).items() if count > 1]
