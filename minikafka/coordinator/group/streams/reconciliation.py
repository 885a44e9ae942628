"""One step of a member of a streams group from the tasks that it has to those that it shall have.

Kafka: ``streams.CurrentAssignmentBuilder`` of 4.4. A member first gives back what it shall not have any more,
and says so; then it enters the target's epoch, with what is free of its target; the rest follows when others
have given it back. What makes a task not free is its *process*, not the member: the state of a task is in a
directory that all members of a process share, so two of them never have the same task, in whichever role.

A member that has a task already in another role need not wait for itself: an active task that becomes a
standby, a standby that becomes a warm-up or the other way round change at once; a standby or warm-up that
shall be active stays what it is until the active task is free.

The record says of each active task in which epoch it was assigned: who commits with an older epoch has lost
it since (KIP-1071, fencing of zombies).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum

import msgspec

from minikafka.coordinator.group.streams.topology import Tasks
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_records import (
    StreamsGroupCurrentMemberAssignmentValue,
    TaskEpochs,
    TaskIds,
)

_NONE: frozenset[int] = frozenset()


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
            standby_tasks=_frozen(assigned.standby),
            warmup_tasks=_frozen(assigned.warmup),
            active_tasks_pending_revocation={key: each for key, each in lost.active.items() if each},
            standby_tasks_pending_revocation=_frozen(lost.standby),
            warmup_tasks_pending_revocation=_frozen(lost.warmup),
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


def _frozen(tasks: dict[str, set[int]]) -> TaskIds:
    return {key: frozenset(numbers) for key, numbers in tasks.items() if numbers}
