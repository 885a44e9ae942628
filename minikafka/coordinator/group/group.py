"""What every kind of group has, what all but the classic ones have, and what groups may take in memory.

Kafka: ``org.apache.kafka.coordinator.group.Group``.

**What groups may take in memory.** Kafka has no such limit: there a member may bring as much as
``socket.request.max.bytes``, and it stays for as long as the member. Here a member has
``group.max.member.metadata.bytes``, and all groups that a broker coordinates have ``group.max.memory.bytes``,
of which a newcomer may take a part of what is left: those that want much are turned away before those that
want little.

A member that is too large is refused with INVALID_REQUEST: asking again does not help, and clients raise it.
One for which there is no room is refused with GROUP_MAX_SIZE_REACHED, which clients raise as well and which
says what is the matter: the coordinator takes no more members. What was loaded from the log counts and stays.

**Modern groups**: what consumer groups (KIP-848), share groups (KIP-932) and streams groups (KIP-1071) have
in common. Kafka: ``ModernGroup``, ``ModernGroupMember``, and what ``GroupMetadataManager`` does alike for all
of them. A member says by heartbeats what it is; the group has an epoch that rises with every change of what
shall be assigned; all of it is records.

A change is worked out on a copy, written, and taken in when it is in the log. ``Draft`` is the working out:
it applies each record to a copy of the group at once, with the code that will apply it when it is written or
loaded, so what follows is decided on the state that the group will have. ``GroupChange`` is the append. The
shell writes it, or hears that it cannot, before it asks anything else. ``carry_out`` makes the one of the
other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sized
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar, runtime_checkable

import msgspec

from minikafka.clock import has_passed
from minikafka.coordinator.group.environment import GroupSettings
from minikafka.coordinator.group.messages import (
    Answer,
    Append,
    Complete,
    ComputeAssignment,
    Effect,
    Effects,
    GroupOperation,
    ListedGroup,
    OperationKind,
    Park,
    coordinator_error,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.internal.group_records import GroupRecord, Key, Value

GROUP_BYTES = 2_000
MEMBER_BYTES = 2_000
"""Without its strings: what ten thousand of them take, with timers, divided by as many."""
PENDING_JOIN_BYTES = 1_000
"""A member id that was given out, with its timer."""

LEFT_SHARES = 16
"""A member may take this part of what is left at most: with 256 MiB and members of 1 MiB, the last 16 MiB are
for smaller ones."""

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
"""A static member that is away, and is expected back before its session ends."""

ASSIGNED_AT_ONCE_MAX = 20_000
"""What an assignment may cost that is worked out at once, so that the member which asks has it in its answer:
at most 20 to 30 ms. 10,000 partitions, where all want the same topics, are. Roughly in microseconds
(``GroupSpec.cost``, ``task_assignment.cost_of``)."""

RETRY_MS = 500
"""After which a fencing whose append failed is tried again (Kafka: ``CoordinatorTimerImpl``)."""

MEMBER_EPOCH_VERSION = 9
"""OffsetCommit since this version carries a member epoch (KIP-848)."""


class Memory(Protocol):
    """Where what all groups take is added up."""

    used_bytes: int


class Footprint:
    """Bytes of a group; while it is one of a shard's groups, they count there too."""

    __slots__ = ("_memory", "size_bytes")

    def __init__(self, group_id: str, size_bytes: int = 0) -> None:
        self._memory: Memory | None = None
        self.size_bytes = size_bytes or GROUP_BYTES + len(group_id)

    def __repr__(self) -> str:
        return f"Footprint({self.size_bytes} bytes)"

    def adjust(self, change_bytes: int) -> None:
        """The group has grown, or shrunk."""
        self.size_bytes += change_bytes
        if self._memory is not None:
            self._memory.used_bytes += change_bytes

    def enter(self, memory: Memory) -> None:
        """The group is one of a shard's."""
        memory.used_bytes += self.size_bytes
        self._memory = memory

    def leave(self) -> None:
        """It is none any more."""
        if self._memory is not None:
            self._memory.used_bytes -= self.size_bytes
            self._memory = None


def member_bytes(strings: Iterable[str | None], metadata: Iterable[tuple[str, bytes]] = ()) -> int:
    """What a member takes that is described by ``strings`` and, in the classic protocol, by ``metadata``."""
    told = sum(len(text) for text in strings if text) + sum(len(name) + len(data) for name, data in metadata)
    return MEMBER_BYTES + told


class Group(Protocol):
    """One group. Checks raise KafkaError and change nothing."""

    @property
    def group_id(self) -> str: ...

    @property
    def members(self) -> Sized: ...

    @property
    def footprint(self) -> Footprint: ...

    @property
    def is_empty(self) -> bool:
        """No members."""
        ...

    @property
    def should_expire(self) -> bool:
        """Whether it goes by itself once it is empty and has no offsets (Kafka: ``shouldExpire``)."""
        ...

    def listed(self) -> ListedGroup: ...

    def check_offset_commit(
        self,
        *,
        member_id: str,
        group_instance_id: str | None,
        generation_or_member_epoch: int,
        version: int,
        is_transactional: bool = False,
    ) -> None:
        """Kafka: ``validateOffsetCommit``. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
        ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, STALE_MEMBER_EPOCH."""
        ...

    def check_offset_fetch(self, *, member_id: str | None, member_epoch: int) -> None:
        """Kafka: ``validateOffsetFetch``. Raises UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH."""
        ...

    def check_offset_delete(self) -> None:
        """Kafka: ``validateOffsetDelete``. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        ...

    def check_delete(self) -> None:
        """Kafka: ``validateDeleteGroup``. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether offsets of ``topic`` are in use: not deleted on demand, and not expired."""
        ...

    def offsets_expire_after(self, *, commit_timestamp_ms: int) -> int | None:
        """From when the retention of an offset counts (``OffsetExpirationCondition``): the commit's time for
        a group without members of a consumer's kind, the time when the group became empty; None while its
        offsets do not expire."""
        ...

    def heard_of(self, member_id: str) -> Effects:
        """A commit has come from the member: as good as a heartbeat (classic protocol); else nothing."""
        ...

    def tombstones(self) -> list[GroupRecord]:
        """What removes the group itself, without its offsets, from the log."""
        ...


@runtime_checkable
class FencesOldCommits(Protocol):
    """A group whose members may commit with an older epoch, for what they have had since then."""

    def check_committed(self, member_id: str, epoch: int, partitions: Iterable[tuple[str, int]]) -> None:
        """Beside ``check_offset_commit``. ``partitions``: topic and number. Raises STALE_MEMBER_EPOCH."""
        ...


class GroupMemory:
    """Counts the bytes of one shard's groups, and checks those that are to come."""

    __slots__ = ("_of_all", "_settings", "used_bytes")

    def __init__(self, settings: GroupSettings, of_all: Callable[[], int]) -> None:
        """``of_all``: what all shards of the broker take, this one too."""
        self._settings = settings
        self._of_all = of_all
        self.used_bytes = 0

    def __repr__(self) -> str:
        return f"GroupMemory({self.used_bytes} bytes)"

    def check_member(self, size_bytes: int, *, before_bytes: int = 0) -> None:
        """Whether a member may tell so much about itself; ``before_bytes``: what it has told until now.

        Raises:
            KafkaError: INVALID_REQUEST, GROUP_MAX_SIZE_REACHED; never for one that does not grow.
        """
        if size_bytes <= before_bytes:
            return
        allowed = self._settings.group_max_member_metadata_bytes
        if size_bytes > allowed:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"The member's metadata has {size_bytes} bytes, allowed are {allowed} "
                "(group.max.member.metadata.bytes).",
            )
        self._check_room((size_bytes - before_bytes) * LEFT_SHARES)

    def check_assignment(self, size_bytes: int) -> None:
        """Whether a leader may assign so much.

        Raises:
            KafkaError: GROUP_MAX_SIZE_REACHED.
        """
        self._check_room(size_bytes)

    def _check_room(self, needed_bytes: int) -> None:
        allowed, used_bytes = self._settings.group_max_memory_bytes, self._of_all()
        if used_bytes + needed_bytes > allowed:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The groups of this coordinator take {used_bytes} of {allowed} bytes "
                "(group.max.memory.bytes).",
            )


class GroupMap(dict[str, Group]):
    """The groups of a shard by id. Those in it count; a draft of a change does not."""

    def __init__(self, memory: GroupMemory) -> None:
        super().__init__()
        self.memory = memory

    def __setitem__(self, group_id: str, group: Group) -> None:
        if group_id in self:
            del self[group_id]
        super().__setitem__(group_id, group)
        group.footprint.enter(self.memory)

    def __delitem__(self, group_id: str) -> None:
        self[group_id].footprint.leave()
        super().__delitem__(group_id)


# Groups and members
class HasSize(Protocol):
    """A member, of any kind."""

    @property
    def size_bytes(self) -> int:
        """What it takes in memory because of what it told."""
        ...


class ModernMember(msgspec.Struct, frozen=True):
    """``metadata`` is the record of what the member told, ``current`` that of what it has and in which epoch:
    one is put in the place of another, and never changed."""

    member_id: str
    metadata: Any
    current: Any

    @property
    def epoch(self) -> int:
        epoch: int = self.current.member_epoch
        return epoch


Member = TypeVar("Member", bound=ModernMember)


class RecordKeys(NamedTuple):
    """The keys of a kind's records: those of a group, and those of a member of it."""

    group: Callable[[str], Key]
    assignment: Callable[[str], Key]
    """For which epoch there is a target."""
    member: Callable[[str, str], Key]
    target: Callable[[str, str], Key]
    current: Callable[[str, str], Key]


class ModernGroup(ABC, Generic[Member]):
    """What a group of any of the three kinds is; see ``group.Group``. ``apply`` of each kind takes in one
    record, and nothing else changes a group but for its notes."""

    KEYS: ClassVar[RecordKeys]

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self.footprint = Footprint(group_id)
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by group instance id; share groups have none."""
        # Notes. They save work, and are lost with this broker's leadership.
        self.checked_version = -1
        """The version of the topics that the hash of their metadata is known to stand for."""
        self.uncommitted: GroupChange | None = None
        """The last change that was written and is not committed."""

    def copy(self) -> Self:
        """For a change that is worked out and may not come: it shares what is never changed in place."""
        copy = type(self)(self._group_id)
        for name, value in vars(self).items():
            setattr(copy, name, value.copy() if isinstance(value, dict | set) else value)
        copy.footprint = Footprint(self._group_id, self.footprint.size_bytes)
        return copy

    @property
    def group_id(self) -> str:
        return self._group_id

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def should_expire(self) -> bool:
        return True

    @abstractmethod
    def listed(self) -> ListedGroup: ...

    @abstractmethod
    def check_offset_commit(
        self,
        *,
        member_id: str,
        group_instance_id: str | None,
        generation_or_member_epoch: int,
        version: int,
        is_transactional: bool = False,
    ) -> None: ...

    @abstractmethod
    def check_offset_fetch(self, *, member_id: str | None, member_epoch: int) -> None: ...

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool: ...

    @abstractmethod
    def tombstones(self) -> list[GroupRecord]: ...

    def member(self, member_id: str) -> Member:
        """Raises KafkaError UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self._group_id}."
            )
        return member

    def static_member(self, instance_id: str) -> Member | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def known_static_member(self, instance_id: str, member_id: str) -> Member:
        """Raises KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        member = self.static_member(instance_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if member.member_id != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member "
                f"{member.member_id}.",
            )
        return member

    def committing_member(
        self, member_id: str, instance_id: str | None, epoch: int, *, is_transactional: bool
    ) -> Member | None:
        """Who commits offsets. None, whose commit is good: an administrator who moves the offsets of an empty
        group, and a transaction that names no member.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID.
        """
        if epoch < 0 and not self.members:
            return None
        if is_transactional and (epoch, member_id, instance_id) == (-1, "", None):
            return None
        return self.member(member_id)

    def check_offset_delete(self) -> None:
        """Offsets of topics that no member reads may go at any time; see ``is_subscribed_to``."""

    def check_delete(self) -> None:
        """Also whether the offsets of a share group may be altered or deleted (Kafka:
        ``validateEmptyGroup``)."""
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")

    def offsets_expire_after(self, *, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    def heard_of(self, member_id: str) -> Effects:
        """Heartbeats are sent apart from commits; a commit says nothing."""
        return []

    def member_tombstones(self, member_id: str) -> list[Key]:
        """What ends when a member goes, in Kafka's order."""
        keys = self.KEYS
        return [make(self._group_id, member_id) for make in (keys.current, keys.target, keys.member)]

    def _tombstones(self, targets: Iterable[str], *others: Key) -> list[GroupRecord]:
        """The end of the group, in the order in which records can be taken in one by one: the group's own
        comes last, until then the group is there. ``targets``: the members that have one; ``others``: what
        only groups of this kind have."""
        group_id, keys = self._group_id, self.KEYS
        ends = [
            *(keys.current(group_id, member_id) for member_id in self.members),
            *(keys.target(group_id, member_id) for member_id in targets),
            keys.assignment(group_id),
            *(keys.member(group_id, member_id) for member_id in self.members),
            *others,
            keys.group(group_id),
        ]
        return [GroupRecord(key, None) for key in ends]


AnyGroup = TypeVar("AnyGroup", bound=ModernGroup[Any])


def find_group(groups: GroupMap, group_id: str, kind: type[AnyGroup]) -> AnyGroup | None:
    """The group, if it is of that kind."""
    group = groups.get(group_id)
    return group if isinstance(group, kind) else None


def group_of_record(groups: GroupMap, record: GroupRecord, kind: type[AnyGroup]) -> AnyGroup | None:
    """Which group is to take ``record`` in; it begins with its first record. None: there is no such group, or
    this was its end."""
    key = record.key
    group = find_group(groups, key.group_id, kind)
    if record.value is None and type(key) is kind.KEYS.group:
        if group is not None:
            del groups[key.group_id]
        return None
    if group is None and record.value is not None:
        group = kind(key.group_id)
        groups[key.group_id] = group
    return group


def fenced_member_epoch(kind: str, epoch: int, *, known: int, has: str = "partitions") -> KafkaError:
    """The error for a member of a ``kind`` group that is not in the epoch which it says."""
    comparison = "greater" if epoch > known else "smaller"
    return KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The {kind} group member has a {comparison} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({known}). The member must abandon all its {has} and rejoin.",
    )


def unreleased_instance_id(instance_id: str, member_id: str, *, owner: str) -> KafkaError:
    """The error for a member that joins with the instance id of another one which has not left."""
    return KafkaError(
        ErrorCode.UNRELEASED_INSTANCE_ID,
        f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
        f"instance id is owned by {owner} member.",
    )


def check_commit_version(version: int, *, kind: str) -> None:
    """Raises KafkaError UNSUPPORTED_VERSION: a commit that cannot say its member's epoch."""
    if version < MEMBER_EPOCH_VERSION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"OffsetCommit version {MEMBER_EPOCH_VERSION} or above must be used by members using the "
            f"{kind} group protocol",
        )


def check_room(members: Mapping[str, object], member_id: str, members_max: int, *, kind: str) -> None:
    """Raises KafkaError GROUP_MAX_SIZE_REACHED for a new member of a full group."""
    if len(members) >= members_max and member_id not in members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The {kind} group has reached its maximum capacity of {members_max} members.",
        )


def check_memory(
    memory: GroupMemory, before: HasSize, after: HasSize, *, is_new: bool, brings_bytes: int = 0
) -> None:
    """Whether a member may tell what makes it ``after``; ``is_new``: it has told nothing before.
    ``brings_bytes``: what it tells of the group.

    Raises:
        KafkaError: INVALID_REQUEST, GROUP_MAX_SIZE_REACHED.
    """
    memory.check_member(after.size_bytes + brings_bytes, before_bytes=0 if is_new else before.size_bytes)


def session_timer(group_id: str, member_id: str, timeout_ms: int) -> Park[GroupOperation]:
    """A member is to be heard of within its session."""
    return Park(GroupOperation(OperationKind.SESSION, group_id, member_id), timeout_ms)


def revocation_timer(group_id: str, member_id: str, timeout_ms: int, *, is_due: bool) -> Effect:
    """Begin or end the time in which a member must have given back what is taken from it."""
    operation = GroupOperation(OperationKind.REVOCATION, group_id, member_id)
    return Park(operation, timeout_ms) if is_due else Complete(operation)


def forget_timers(group_id: str, member_id: str, *others: OperationKind) -> Effects:
    """Of a member that is gone; ``others``: what else it may be waited for."""
    kinds = (OperationKind.SESSION, OperationKind.REVOCATION, *others)
    return [Complete(GroupOperation(kind, group_id, member_id)) for kind in kinds]


def count_names(counter: Counter[str], names: Iterable[str], sign: int) -> None:
    """Add (1) or take away (-1) what a member names; what no member names any more is left out."""
    for name in names:
        counter[name] += sign
        if not counter[name]:
            del counter[name]


# Assignments
def may_assign(assigned_at_ms: int, interval_ms: int, now_ms: int) -> bool:
    """Whether the last assignment is old enough for another one (``canComputeNextTargetAssignment``,
    KIP-1263): who comes meanwhile has the next one. ``assigned_at_ms`` 0: not known."""
    return not assigned_at_ms or has_passed(interval_ms, assigned_at_ms, now_ms)


class AssignedGroup(Protocol):
    """A group of which a target may be worked out beside the loop."""

    computing_epoch: int
    """For which it is; -1: none is."""
    assignment_epoch: int


AnyAssigned = TypeVar("AnyAssigned", bound=AssignedGroup)


Target = TypeVar("Target")
"""What a member shall have."""


def is_computed_beside(group: AssignedGroup, cost: int, *, enabled: bool) -> bool:
    """Whether an assignment of ``cost`` is not worked out at once. The first one of a group is, which has one
    member most often: without it that has no epoch to be in."""
    return enabled and group.assignment_epoch > 0 and cost > ASSIGNED_AT_ONCE_MAX


def compute_assignment(
    group_id: str,
    epoch: int,
    compute: Callable[[], Mapping[str, Target]],
    *,
    find: Callable[[], AnyAssigned | None],
    write: Callable[[AnyAssigned, Mapping[str, Target], int], Effects],
) -> Effects:
    """Begin to work out a target for ``epoch``, unless one is being worked out; ``write`` is given the group,
    the targets and the time. Where the group has another epoch by then it is good until there is a target for
    that: no partition is in it more often than it may be."""

    def done(targets: Mapping[str, Target] | None, now_ms: int) -> Effects:
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

    def remove_member(self, member_id: str) -> None:
        for key in self.group.member_tombstones(member_id):
            self.write(key, None)

    def begin(self) -> Effects:
        return [effect for work in self.begins for effect in work()]


def replace_static_member(draft: Draft[AnyGroup], old: Member, member_id: str, target: Value) -> Member:
    """A static member is back under another id: it has what the one before had, and is in no epoch yet.
    ``target`` is the record of what it shall have."""
    group_id, keys = draft.group.group_id, draft.group.KEYS
    current = msgspec.structs.replace(old.current, member_epoch=JOIN_EPOCH, previous_member_epoch=JOIN_EPOCH)
    new = msgspec.structs.replace(old, member_id=member_id, current=current)
    draft.remove_member(old.member_id)
    draft.write(keys.member(group_id, member_id), new.metadata)
    draft.write(keys.target(group_id, member_id), target)
    draft.write(keys.current(group_id, member_id), current)
    return new


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
        group: Callable[[], ModernGroup[Any] | None],
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
