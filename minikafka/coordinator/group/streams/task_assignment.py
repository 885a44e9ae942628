"""Which tasks the members of a streams group shall have, and one step of a member towards them. Pure.

**The target** of all members. Kafka: ``StickyTaskAssignor`` of 4.4.

Every task is active with exactly one member. A task with state has ``num_standby_replicas`` standbys, each in
another process than its active task and its other standbys, as far as there are processes; what is more is
not assigned. In this order a task goes

1. to the member that has had it, while that one has no more than its part;
2. to a member that has had it as a standby, or that has its state on disk (it told an offset);
3. to the process with the least load (tasks by members), and in it to the member with the fewest tasks.

The part of a member is the number of tasks by members, rounded up; once a member has its part, the part of
the others is what is left among them. So active tasks are spread evenly, and few of them move. Where Kafka
takes the order of a hash map, ties are broken here by the ids of processes and members.

Where it differs: nothing is warmed up; Kafka 4.4 has the tasks for it in its protocol, and an assignor that
gives none.

**One step** of a member from the tasks that it has to those that it shall have. Kafka:
``streams.CurrentAssignmentBuilder`` of 4.4. A member first gives back what it shall not have any more, and
says so; then it enters the target's epoch, with what is free of its target; the rest follows when others have
given it back. What makes a task not free is its *process*, not the member: the state of a task is in a
directory that all members of a process share, so two of them never have the same task, in whichever role.

A member that has a task already in another role need not wait for itself: an active task that becomes a
standby, a standby that becomes a warm-up or the other way round change at once; a standby or warm-up that
shall be active stays what it is until the active task is free.

The record says of each active task in which epoch it was assigned: who commits with an older epoch has lost
it since (KIP-1071, fencing of zombies).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from heapq import heapify, heappop, heappush

import msgspec

from minikafka.coordinator.group.environment import StreamsGroupSettings
from minikafka.coordinator.group.streams.topology import ConfiguredTopology, Tasks
from minikafka.errors import ErrorCode, KafkaError
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.internal.group_records import (
    StreamsGroupCurrentMemberAssignmentValue,
    TaskEpochs,
    TaskIds,
)

COST_OF_A_TASK = 12
"""Microseconds, of each that is given out."""

_NONE: frozenset[int] = frozenset()


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


class StreamsMemberState(IntEnum):
    """As the record says it (Kafka: ``streams.MemberState``)."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    """It must say that it has given tasks back before it enters the next epoch."""
    UNRELEASED_TASKS = 3
    """It is in its epoch, and waits for tasks that others have not yet given back."""
    UNKNOWN = 127
    """A state of a newer version: the member must restart."""


class Holders(msgspec.Struct, frozen=True):
    """In which processes a task (subtopology, partition) is, by role."""

    active: Callable[[str, int], tuple[str, ...]]
    standby: Callable[[str, int], tuple[str, ...]]
    warmup: Callable[[str, int], tuple[str, ...]]


class _Roles(msgspec.Struct):
    """Sets of tasks in the making, which change in place."""

    active: TaskEpochs
    standby: dict[str, set[int]]
    warmup: dict[str, set[int]]

    @property
    def is_empty(self) -> bool:
        return not (any(self.active.values()) or any(self.standby.values()) or any(self.warmup.values()))


class Reconciliation:
    """See the module header. Made for one step of one member."""

    def __init__(
        self,
        current: StreamsGroupCurrentMemberAssignmentValue,
        *,
        process_id: str,
        target_epoch: int,
        target: Tasks,
        holders: Holders,
        owned: Tasks | None,
    ) -> None:
        """``owned`` is what the member says that it has; None: it has not said."""
        self._current = current
        self._process_id = process_id
        self._target_epoch = target_epoch
        self._target = target
        self._holders = holders
        self._owned = owned

    def step(self) -> StreamsGroupCurrentMemberAssignmentValue:
        """``current`` itself when nothing changes.

        Raises:
            KafkaError: FENCED_MEMBER_EPOCH: it is in a state that is not known, and has tasks.
        """
        current = self._current
        match current.state:
            case StreamsMemberState.STABLE:
                return current if current.member_epoch == self._target_epoch else self._next()
            case StreamsMemberState.UNREVOKED_TASKS:
                pending = _Roles(
                    current.active_tasks_pending_revocation,
                    _sets(current.standby_tasks_pending_revocation),
                    _sets(current.warmup_tasks_pending_revocation),
                )
                return current if self._may_have(pending) else self._next(current.member_epoch + 1)
            case StreamsMemberState.UNRELEASED_TASKS:
                return self._next()
        if self._owned is None or self._owned != Tasks({}, {}, {}):
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The streams group member is in a unknown state. The member must abandon all its tasks and "
                "rejoin.",
            )
        return self._next(self._target_epoch)

    def _next(self, epoch: int | None = None) -> StreamsGroupCurrentMemberAssignmentValue:
        current, target = self._current, self._target
        kept, lost, gained = (_Roles({}, {}, {}) for _ in range(3))
        waits = self._divide_active(kept, lost, gained)
        for role, is_taken in (("standby", self._standby_is_taken), ("warmup", self._warmup_is_taken)):
            wanted = getattr(target, role)
            waits |= _divide(
                getattr(current, f"{role}_tasks"),
                wanted,
                (getattr(kept, role), getattr(lost, role), getattr(gained, role)),
                is_taken,
            )
        self._change_roles(kept, lost, gained)
        # What is taken away, without what becomes active and therefore stays what it is.
        for role in ("standby", "warmup"):
            for subtopology_id in getattr(current, f"{role}_tasks"):
                _discard(getattr(lost, role), subtopology_id, target.active.get(subtopology_id, _NONE))
        gives_back = not lost.is_empty and self._may_have(lost)
        for role in ("standby", "warmup"):
            for subtopology_id, numbers in getattr(current, f"{role}_tasks").items():
                granted = _NONE if gives_back else frozenset(gained.active.get(subtopology_id, ()))
                promoted = numbers & target.active.get(subtopology_id, _NONE)
                if waiting := promoted - granted:
                    getattr(kept, role).setdefault(subtopology_id, set()).update(waiting)
        if gives_back:
            epoch = current.member_epoch if epoch is None else epoch
            return self._moved(StreamsMemberState.UNREVOKED_TASKS, epoch, kept, lost)
        for subtopology_id, epochs in gained.active.items():
            kept.active[subtopology_id] = kept.active.get(subtopology_id, {}) | epochs
        for role in ("standby", "warmup"):
            for subtopology_id, added in getattr(gained, role).items():
                getattr(kept, role).setdefault(subtopology_id, set()).update(added)
        state = StreamsMemberState.UNRELEASED_TASKS if waits else StreamsMemberState.STABLE
        return self._moved(state, self._target_epoch, kept, _Roles({}, {}, {}))

    def _divide_active(self, kept: _Roles, lost: _Roles, gained: _Roles) -> bool:
        """Fill in what it keeps, loses and gains; whether it waits for any."""
        waits = False
        for subtopology_id in {**self._target.active, **self._current.active_tasks}:
            wanted = self._target.active.get(subtopology_id, _NONE)
            has = self._current.active_tasks.get(subtopology_id, {})
            free = {
                number: self._target_epoch
                for number in sorted(wanted - has.keys())
                if not self._active_is_taken(subtopology_id, number)
            }
            waits |= len(free) < len(wanted - has.keys())
            for part, numbers in (
                (kept, {number: epoch for number, epoch in has.items() if number in wanted}),
                (lost, {number: epoch for number, epoch in has.items() if number not in wanted}),
                (gained, free),
            ):
                if numbers:
                    part.active[subtopology_id] = numbers
        return waits

    def _change_roles(self, kept: _Roles, lost: _Roles, gained: _Roles) -> None:
        """What the member has already in another role it has in its new one at once."""
        current = self._current
        for subtopology_id, epochs in current.active_tasks.items():
            _grant(gained.standby, kept.standby, subtopology_id, frozenset(epochs))
        for subtopology_id, numbers in current.standby_tasks.items():
            granted = _grant(gained.warmup, kept.warmup, subtopology_id, numbers)
            _discard(lost.standby, subtopology_id, granted)
        for subtopology_id, numbers in current.warmup_tasks.items():
            granted = _grant(gained.standby, kept.standby, subtopology_id, numbers)
            _discard(lost.warmup, subtopology_id, granted)

    def _may_have(self, tasks: _Roles) -> bool:
        """Whether it has not said that it has none of them."""
        if self._owned is None:
            return True
        return any(
            not owned.get(subtopology_id, _NONE).isdisjoint(numbers)
            for owned, asked in (
                (self._owned.active, tasks.active),
                (self._owned.standby, tasks.standby),
                (self._owned.warmup, tasks.warmup),
            )
            for subtopology_id, numbers in asked.items()
        )

    # Who has a task

    def _active_is_taken(self, subtopology_id: str, number: int) -> bool:
        return (
            bool(self._holders.active(subtopology_id, number))
            or self._another_has(self._holders.standby, self._current.standby_tasks, subtopology_id, number)
            or self._another_has(self._holders.warmup, self._current.warmup_tasks, subtopology_id, number)
        )

    def _standby_is_taken(self, subtopology_id: str, number: int) -> bool:
        return (
            self._another_has(self._holders.active, self._current.active_tasks, subtopology_id, number)
            or self._process_id in self._holders.standby(subtopology_id, number)
            or self._another_has(self._holders.warmup, self._current.warmup_tasks, subtopology_id, number)
        )

    def _warmup_is_taken(self, subtopology_id: str, number: int) -> bool:
        return (
            self._process_id in self._holders.active(subtopology_id, number)
            or self._another_has(self._holders.standby, self._current.standby_tasks, subtopology_id, number)
            or self._process_id in self._holders.warmup(subtopology_id, number)
        )

    def _another_has(
        self,
        holders: Callable[[str, int], tuple[str, ...]],
        mine: Mapping[str, frozenset[int] | dict[int, int]],
        subtopology_id: str,
        number: int,
    ) -> bool:
        """Whether another member of the same process has it."""
        return self._process_id in holders(subtopology_id, number) and number not in mine.get(
            subtopology_id, _NONE
        )

    def _moved(
        self, state: StreamsMemberState, epoch: int, assigned: _Roles, lost: _Roles
    ) -> StreamsGroupCurrentMemberAssignmentValue:
        moved = StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=epoch,
            previous_member_epoch=self._current.previous_member_epoch,
            state=int(state),
            active_tasks={key: each for key, each in assigned.active.items() if each},
            standby_tasks=_task_ids(assigned.standby),
            warmup_tasks=_task_ids(assigned.warmup),
            active_tasks_pending_revocation={key: each for key, each in lost.active.items() if each},
            standby_tasks_pending_revocation=_task_ids(lost.standby),
            warmup_tasks_pending_revocation=_task_ids(lost.warmup),
        )
        if moved == self._current:
            return self._current
        return msgspec.structs.replace(moved, previous_member_epoch=self._current.member_epoch)


def _divide(
    has: TaskIds,
    wanted: TaskIds,
    parts: tuple[dict[str, set[int]], dict[str, set[int]], dict[str, set[int]]],
    is_taken: Callable[[str, int], bool],
) -> bool:
    """Fill in what is kept, lost and gained; whether any of it is waited for."""
    waits = False
    for subtopology_id in {**wanted, **has}:
        now, then = has.get(subtopology_id, _NONE), wanted.get(subtopology_id, _NONE)
        free = {number for number in then - now if not is_taken(subtopology_id, number)}  # any order
        waits |= len(free) < len(then - now)
        for part, numbers in zip(parts, (now & then, now - then, free), strict=True):
            if numbers:
                part[subtopology_id] = set(numbers)
    return waits


def _grant(
    waiting: dict[str, set[int]], granted: dict[str, set[int]], subtopology_id: str, numbers: frozenset[int]
) -> frozenset[int]:
    """Move ``numbers`` from what is gained to what is had already; which of them."""
    found = frozenset(waiting.get(subtopology_id, ())) & numbers
    if found:
        waiting[subtopology_id] -= found
        granted.setdefault(subtopology_id, set()).update(found)
    return found


def _discard(tasks: dict[str, set[int]], subtopology_id: str, numbers: frozenset[int]) -> None:
    if subtopology_id in tasks:
        tasks[subtopology_id] -= numbers


def _sets(tasks: TaskIds) -> dict[str, set[int]]:
    return {key: set(numbers) for key, numbers in tasks.items()}


def _task_ids(tasks: dict[str, set[int]]) -> TaskIds:
    return {key: frozenset(numbers) for key, numbers in tasks.items() if numbers}
