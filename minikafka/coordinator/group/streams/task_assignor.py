"""Which tasks the members of a streams group shall have. Kafka: ``StickyTaskAssignor`` of 4.4.

A pure function. Every task is active with exactly one member. A task with state has ``num_standby_replicas``
standbys, each in another process than its active task and its other standbys, as far as there are processes;
what is more is not assigned. In this order a task goes

1. to the member that has had it, while that one has no more than its part;
2. to a member that has had it as a standby, or that has its state on disk (it told an offset);
3. to the process with the least load (tasks by members), and in it to the member with the fewest tasks.

The part of a member is the number of tasks by members, rounded up; once a member has its part, the part of
the others is what is left among them. So active tasks are spread evenly, and few of them move. Where Kafka
takes the order of a hash map, ties are broken here by the ids of processes and members.

Where it differs: nothing is warmed up; Kafka 4.4 has the tasks for it in its protocol, and an assignor that
gives none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush

import msgspec

from minikafka.coordinator.group.environment import StreamsGroupSettings
from minikafka.coordinator.group.streams.topology import ConfiguredTopology, Tasks
from minikafka.named_tuple import NamedTuple

COST_OF_A_TASK = 12
"""Microseconds, of each that is given out."""


class MemberSpec(msgspec.Struct, frozen=True, kw_only=True):
    """``tasks`` is its target until now; offsets are by subtopology and partition."""

    instance_id: str | None
    rack_id: str | None
    process_id: str
    client_tags: Mapping[str, str]
    tasks: Tasks
    task_offsets: Mapping[str, Mapping[int, int]]
    task_end_offsets: Mapping[str, Mapping[int, int]]


class _Task(NamedTuple):
    """In the order in which tasks of one partition number are seen together: those read the same keys."""

    partition: int
    subtopology_id: str


class _Quota:
    """How many tasks a member may have so that all have about as many."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.each = _rounded_up(tasks, members)

    def taken(self, count: int) -> None:
        """A member has ``count`` tasks now. With its part it is out of the account."""
        if count == self.each:
            self._members -= 1
            self._tasks -= count
            self.each = _rounded_up(self._tasks, self._members)


def _rounded_up(tasks: int, members: int) -> int:
    return 0 if members == 0 else -(-tasks // members)


class _Process:
    """What the members of a process have by now."""

    def __init__(self, process_id: str) -> None:
        self.process_id = process_id
        self.counts: dict[str, int] = {}
        """Tasks by member."""
        self.tasks: set[_Task] = set()

    @property
    def load(self) -> float:
        return sum(self.counts.values()) / len(self.counts)

    def least_loaded(self) -> str:
        return min(self.counts, key=lambda member_id: (self.counts[member_id], member_id))


class _Assignment:
    def __init__(self, members: Mapping[str, MemberSpec], active: int, total: int) -> None:
        """``active`` tasks are to be given, ``total`` with standbys."""
        self._members = members
        self._active_quota = _Quota(active, len(members))
        self._total_quota = _Quota(total, len(members))
        self._processes: dict[str, _Process] = {}
        self._had_active: dict[_Task, str] = {}
        self._had_standby: dict[_Task, list[str]] = {}
        self.active: dict[str, dict[str, set[int]]] = {}
        self.standby: dict[str, dict[str, set[int]]] = {}
        standbys: dict[_Task, list[tuple[bool, int, str]]] = {}
        for member_id, member in sorted(members.items()):
            process = self._processes.setdefault(member.process_id, _Process(member.process_id))
            process.counts[member_id] = 0
            self.active[member_id], self.standby[member_id] = {}, {}
            for task in _tasks(member.tasks.active):
                self._had_active[task] = member_id
            assigned = {*_tasks(member.tasks.standby), *_tasks(member.tasks.warmup)}
            offsets = {
                _Task(number, key): offset
                for key, numbers in member.task_offsets.items()
                for number, offset in numbers.items()
            }
            for task in {**offsets, **dict.fromkeys(sorted(assigned))}:
                rank = (task not in assigned, -offsets.get(task, 0), member_id)
                standbys.setdefault(task, []).append(rank)
        for task, ranks in standbys.items():
            self._had_standby[task] = [member_id for _, _, member_id in sorted(ranks)]

    def _process(self, member_id: str) -> _Process:
        return self._processes[self._members[member_id].process_id]

    def _give(self, member_id: str, task: _Task, given: dict[str, dict[str, set[int]]]) -> int:
        """How many tasks the member has then."""
        process = self._process(member_id)
        process.tasks.add(task)
        process.counts[member_id] += 1
        given[member_id].setdefault(task.subtopology_id, set()).add(task.partition)
        return process.counts[member_id]

    def _give_active(self, member_id: str, task: _Task) -> None:
        count = self._give(member_id, task, self.active)
        self._active_quota.taken(count)
        self._total_quota.taken(count)

    def _give_standby(self, member_id: str, task: _Task) -> None:
        self._total_quota.taken(self._give(member_id, task, self.standby))

    def _count(self, member_id: str) -> int:
        return self._process(member_id).counts[member_id]

    def _least_loaded_of(self, member_ids: Iterable[str], without: _Task | None) -> str | None:
        """Of those whose process does not have ``without``; the first of equals."""
        able = [each for each in member_ids if without not in self._process(each).tasks]
        return min(able, key=lambda each: (self._process(each).load, self._count(each)), default=None)

    def assign_active(self, tasks: Iterable[_Task]) -> None:
        left = []
        for task in sorted(tasks):
            member_id = self._had_active.get(task)
            if member_id is not None and self._count(member_id) < self._active_quota.each:
                self._give_active(member_id, task)
            else:
                left.append(task)
        others = []
        for task in left:
            member_id = self._least_loaded_of(self._had_standby.get(task, ()), None)
            if member_id is not None and self._count(member_id) < self._active_quota.each:
                self._give_active(member_id, task)
            else:
                others.append(task)
        heap = self._heap()
        for task in sorted(others, key=lambda each: (each.subtopology_id, each.partition)):
            _, process_id = heappop(heap)
            process = self._processes[process_id]
            self._give_active(process.least_loaded(), task)
            heappush(heap, (process.load, process_id))

    def _heap(self) -> list[tuple[float, str]]:
        heap = [(process.load, process_id) for process_id, process in self._processes.items()]
        heapify(heap)
        return heap

    def assign_standbys(self, tasks: Iterable[_Task], replicas: int) -> None:
        left: list[tuple[_Task, int]] = []
        for task in sorted(tasks, reverse=True):
            for done in range(replicas):
                member_id = self._sticky_standby(task)
                if member_id is None:
                    left.append((task, replicas - done))
                    break
                self._give_standby(member_id, task)
        heap = self._heap()
        for task, wanted in sorted(
            left, key=lambda each: (each[0].subtopology_id, each[0].partition), reverse=True
        ):
            self._spread(task, wanted, heap)

    def _sticky_standby(self, task: _Task) -> str | None:
        member_id = self._had_active.get(task)
        if (
            member_id is not None
            and task not in self._process(member_id).tasks
            and self._count(member_id) < self._total_quota.each
        ):
            return member_id
        member_id = self._least_loaded_of(self._had_standby.get(task, ()), task)
        if member_id is not None and self._count(member_id) < self._total_quota.each:
            return member_id
        return None

    def _spread(self, task: _Task, wanted: int, heap: list[tuple[float, str]]) -> None:
        """To ``wanted`` processes at most: those that have it already have to do with one."""
        passed = []
        while wanted and heap:
            load, process_id = heappop(heap)
            process = self._processes[process_id]
            if task not in process.tasks:
                self._give_standby(process.least_loaded(), task)
                load = process.load
                wanted -= 1
            passed.append((load, process_id))
        for each in passed:
            heappush(heap, each)


def cost_of(topology: ConfiguredTopology, settings: StreamsGroupSettings, members: int) -> int:
    """How long ``assign`` takes, roughly in microseconds."""
    tasks = 0
    for each in (topology.subtopologies or {}).values():
        standbys = settings.num_standby_replicas if each.state_changelog_topics else 0
        tasks += each.number_of_tasks * (1 + standbys)
    return members + COST_OF_A_TASK * tasks


def assign(
    members: Mapping[str, MemberSpec], topology: ConfiguredTopology, settings: StreamsGroupSettings
) -> dict[str, Tasks]:
    """The tasks of each member; ``topology`` has all its topics."""
    tasks: list[_Task] = []
    stateful: list[_Task] = []
    for subtopology_id, each in (topology.subtopologies or {}).items():
        mine = [_Task(number, subtopology_id) for number in range(each.number_of_tasks)]
        tasks += mine
        if each.state_changelog_topics:
            stateful += mine
    if not members:
        return {}
    standbys = len(stateful) * settings.num_standby_replicas
    assignment = _Assignment(members, len(tasks), len(tasks) + standbys)
    assignment.assign_active(tasks)
    if standbys:
        assignment.assign_standbys(stateful, settings.num_standby_replicas)
    return {
        member_id: Tasks(_frozen(assignment.active[member_id]), _frozen(assignment.standby[member_id]))
        for member_id in members
    }


def _tasks(tasks: Mapping[str, frozenset[int]]) -> list[_Task]:
    return [_Task(number, key) for key, numbers in tasks.items() for number in sorted(numbers)]


def _frozen(tasks: Mapping[str, set[int]]) -> dict[str, frozenset[int]]:
    return {key: frozenset(numbers) for key, numbers in tasks.items()}
