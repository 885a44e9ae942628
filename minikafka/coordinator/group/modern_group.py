"""What consumer groups (KIP-848) and share groups (KIP-932) have in common, and streams groups (KIP-1071).

Kafka: ``ModernGroup``, ``ModernGroupMember``, and what ``GroupMetadataManager`` does alike for all of them. A
member says by heartbeats what it is; the group has an epoch that rises with every change of what shall be
assigned; all of it is records.

A change is worked out on a copy, written, and taken in when it is in the log. ``Draft`` is the working out:
it applies each record to a copy of the group at once, with the code that will apply it when it is written or
loaded, so what follows is decided on the state that the group will have. ``GroupChange`` is the append. The
shell writes it, or hears that it cannot, before it asks anything else. ``carry_out`` makes the one of the
other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, Protocol, Self, TypeVar

from minikafka.coordinator.group.group import GroupMemory
from minikafka.coordinator.group.messages import (
    Answer,
    Append,
    ComputeAssignment,
    Effect,
    Effects,
    GroupOperation,
    Park,
    coordinator_error,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_records import GroupRecord, Key, TopicPartitions, Value

JOIN_EPOCH = 0
LEAVE_EPOCH = -1

ASSIGNED_AT_ONCE_MAX = 20_000
"""``GroupSpec.cost`` up to which an assignment is worked out at once, so that the member which asks has it in
its answer: at most 20 to 30 ms. 10,000 partitions, where all want the same topics, are."""

RETRY_MS = 500
"""After which a fencing whose append failed is tried again (Kafka: ``CoordinatorTimerImpl``)."""


# Members


class HasSize(Protocol):
    """A member, of either kind."""

    @property
    def size_bytes(self) -> int:
        """What it takes in memory because of what it told."""
        ...


Member = TypeVar("Member")


def known_member(members: Mapping[str, Member], member_id: str, group_id: str) -> Member:
    """Raises KafkaError UNKNOWN_MEMBER_ID."""
    member = members.get(member_id)
    if member is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}."
        )
    return member


def fenced_member_epoch(kind: str, epoch: int, *, known: int) -> KafkaError:
    """The error for a member of a ``kind`` group that is not in the epoch which it says."""
    comparison = "greater" if epoch > known else "smaller"
    return KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The {kind} group member has a {comparison} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({known}). The member must abandon all its partitions and rejoin.",
    )


def check_room(members: Mapping[str, object], member_id: str, members_max: int, *, kind: str) -> None:
    """Raises KafkaError GROUP_MAX_SIZE_REACHED for a new member of a full group."""
    if len(members) >= members_max and member_id not in members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The {kind} group has reached its maximum capacity of {members_max} members.",
        )


def check_memory(memory: GroupMemory, before: HasSize, after: HasSize, *, is_new: bool) -> None:
    """Whether a member may tell what makes it ``after``; ``is_new``: it has told nothing before.

    Raises:
        KafkaError: INVALID_REQUEST, GROUP_MAX_SIZE_REACHED.
    """
    memory.check_member(after.size_bytes, before_bytes=0 if is_new else before.size_bytes)


def count_names(counter: Counter[str], names: Iterable[str], sign: int) -> None:
    """Add (1) or take away (-1) what a member names; what no member names any more is left out."""
    for name in names:
        counter[name] += sign
        if not counter[name]:
            del counter[name]


# Assignments


class AssignedGroup(Protocol):
    """A group of which a target may be worked out beside the loop."""

    computing_epoch: int
    """For which it is; -1: none is."""
    epoch: int
    assignment_epoch: int


AnyAssigned = TypeVar("AnyAssigned", bound=AssignedGroup)


def is_computed_beside(group: AssignedGroup, cost: int, *, enabled: bool) -> bool:
    """Whether an assignment of ``cost`` is not worked out at once. The first one of a group is, which has one
    member most often: without it that has no epoch to be in."""
    return enabled and group.assignment_epoch > 0 and cost > ASSIGNED_AT_ONCE_MAX


def compute_assignment(
    group_id: str,
    epoch: int,
    compute: Callable[[], Mapping[str, TopicPartitions]],
    *,
    find: Callable[[], AnyAssigned | None],
    write: Callable[[AnyAssigned, Mapping[str, TopicPartitions], int], Effects],
) -> Effects:
    """Begin to work out a target for ``epoch``, unless one is being worked out; ``write`` is given the group,
    the targets and the time. Where the group has another epoch by then it is good until there is a target for
    that: no partition is in it more often than it may be."""

    def done(targets: Mapping[str, TopicPartitions] | None, now_ms: int) -> Effects:
        group = find()
        if group is None or group.computing_epoch != epoch:
            return []
        group.computing_epoch = -1
        return [] if targets is None or group.assignment_epoch >= epoch else write(group, targets, now_ms)

    group = find()
    if group is None or group.computing_epoch >= 0:
        return []
    group.computing_epoch = epoch
    return [ComputeAssignment(group_id, compute, done)]


# Changes


class ModernGroup(Protocol):
    """A group of which a change may wait to be committed."""

    uncommitted: GroupChange | None

    def copy(self) -> Self:
        """For a change that is worked out and may not come: it shares what is never changed in place."""
        ...


AnyGroup = TypeVar("AnyGroup", bound=ModernGroup)


class Draft(Generic[AnyGroup]):
    """A group, and the records that change it."""

    def __init__(self, group: AnyGroup, apply: Callable[[AnyGroup, GroupRecord], None]) -> None:
        self.group = group
        self.records: list[GroupRecord] = []
        self.begins: list[Callable[[], Effects]] = []
        """What is begun when the change is written, or at once where there is nothing to write."""
        self._apply = apply
        self._is_copy = False

    def write(self, key: Key, value: Value | None) -> None:
        if not self._is_copy:
            self.group = self.group.copy()
            self._is_copy = True
        record = GroupRecord(key, value)
        self._apply(self.group, record)
        self.records.append(record)

    def begin(self) -> Effects:
        return [effect for work in self.begins for effect in work()]


def _nothing(now_ms: int) -> Effects:
    return []


class GroupChange(Append):
    """``replay`` takes each record in. Answers that depend on the change wait until it is committed, also
    those of requests that come after it and change nothing: what they tell may be lost with this leader."""

    __slots__ = ("_after", "_before", "_group", "_is_written", "_replay", "_retry", "_then", "answers")

    def __init__(
        self,
        records: Iterable[GroupRecord],
        *,
        group: Callable[[], ModernGroup | None],
        replay: Callable[[GroupRecord, int], None],
        before: Callable[[int], Effects] = _nothing,
        after: Callable[[int], Effects] = _nothing,
        then: Iterable[Effect] = (),
        answer: Answer | None = None,
        retry: GroupOperation | None = None,
    ) -> None:
        """``group`` is the group once the change is written; ``before`` and ``after`` surround the taking in;
        ``then`` is done when the change is committed; ``retry`` expires again if the change does not come."""
        super().__init__(tuple(records))
        self._group = group
        self._replay = replay
        self._before = before
        self._after = after
        self._then = tuple(then)
        self._retry = retry
        self._is_written = False
        self.answers = [] if answer is None else [answer]

    def written(self, now_ms: int) -> Effects:
        self._is_written = True
        effects = self._before(now_ms)
        for record in self.records:
            self._replay(record, now_ms)
        if group := self._group():
            group.uncommitted = self
        return effects + self._after(now_ms)

    def committed(self, now_ms: int) -> Effects:
        self._is_settled()
        return [*self.answers, *self._then]

    def failed(self, error: KafkaError, now_ms: int) -> Effects:
        self._is_settled()
        effects: list[Effect] = [Answer(answer.ticket, coordinator_error(error)) for answer in self.answers]
        if self._retry is not None and not self._is_written:
            effects.append(Park(self._retry, RETRY_MS))
        return effects

    def _is_settled(self) -> None:
        group = self._group()
        if group is not None and group.uncommitted is self:
            group.uncommitted = None


def carry_out(
    draft: Draft[AnyGroup],
    timers: Effects,
    answer: Answer | None = None,
    *,
    find: Callable[[], AnyGroup | None],
    replay: Callable[[GroupRecord, int], None],
    before: Callable[[int], Effects] = _nothing,
    after: Callable[[int], Effects] = _nothing,
    then: Iterable[Effect] = (),
    retry: GroupOperation | None = None,
) -> Effects:
    """Write what the draft says; without anything to write, what would follow it follows at once. ``timers``
    are set when it is written, then ``after`` is asked; the others are as in ``GroupChange``."""
    if draft.records:
        return [
            GroupChange(
                draft.records,
                group=find,
                replay=replay,
                before=before,
                after=lambda now_ms: timers + after(now_ms) + draft.begin(),
                then=then,
                answer=answer,
                retry=retry,
            )
        ]
    effects: Effects = [*timers, *then, *draft.begin()]
    if answer is not None:
        if draft.group.uncommitted is None:
            effects.append(answer)
        else:
            draft.group.uncommitted.answers.append(answer)
    return effects
