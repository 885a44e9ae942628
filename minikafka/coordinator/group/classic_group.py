"""One group of the classic protocol: members, leader, protocol, state. Kafka: ``ClassicGroup``.

It decides nothing about time: who prepares and completes rebalances is ``classic_groups``. Methods that
answer a member return the effects.

Invariants (``validate``):
- EMPTY and DEAD groups have no members; COMPLETING_REBALANCE and STABLE ones have some, and a protocol that
  all of them support;
- the leader is a member, and there is one if there are members;
- an instance id belongs to exactly one member; an id that waits to join is no member's;
- requests to join wait only while a rebalance is prepared, or for the append of a static member's new id;
  requests to sync only in COMPLETING_REBALANCE.

Different from Kafka: a member that is removed has its waiting SyncGroup answered (UNKNOWN_MEMBER_ID), and a
request that repeats one that waits has the earlier one answered (REBALANCE_IN_PROGRESS); Kafka leaves both
unanswered. Members are kept in the order in which they came, so the choice of a leader is not left to a hash.

**Its states.** Kafka: ``ClassicGroupState``.
====================  ===================  ===================  ====================  =====================
state                 JoinGroup            SyncGroup            Heartbeat             OffsetCommit
====================  ===================  ===================  ====================  =====================
EMPTY                 new members only     UNKNOWN_MEMBER_ID    UNKNOWN_MEMBER_ID     without a generation
PREPARING_REBALANCE   parked               REBALANCE_IN_-       REBALANCE_IN_-        of the generation that
                                           PROGRESS             PROGRESS              ends
COMPLETING_REBALANCE  answered, or a new   parked until the     answered              REBALANCE_IN_PROGRESS
                      rebalance            leader's is stored
STABLE                answered, or a new   answered             answered              of this generation
                      rebalance
DEAD                  the group is gone: it is not found any more
====================  ===================  ===================  ====================  =====================

**A member** is a ``ClassicMember`` (Kafka: ``ClassicGroupMember``). What members have in common is the
protocol that they agree on (for consumers: an assignor), and the topics that they use.

What is always true of a group between two calls is checked in tests. A group as a record, and back: Kafka's
``newGroupMetadataRecord`` and ``replay``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from uuid import UUID

from minikafka.coordinator.group.environment import GroupSettings
from minikafka.coordinator.group.group import GROUP_BYTES, PENDING_JOIN_BYTES, Footprint, member_bytes
from minikafka.coordinator.group.messages import (
    Answer,
    Complete,
    DescribedGroup,
    DescribedMember,
    Effects,
    GroupOperation,
    JoinedMember,
    JoinGroup,
    JoinGroupResult,
    ListedGroup,
    OperationKind,
    Park,
    SyncGroupResult,
    Ticket,
)
from minikafka.errors import ErrorCode, InvariantError, KafkaError
from minikafka.protocol.internal.consumer_protocol import (
    PROTOCOL_TYPE,
    MalformedSubscription,
    read_subscribed_topics,
)
from minikafka.protocol.internal.consumer_protocol import PROTOCOL_TYPE as CONSUMER
from minikafka.protocol.internal.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    MemberMetadata,
)

Protocols = tuple[tuple[str, bytes], ...]
"""Name and metadata of what a member supports, the preferred one first."""

MEMBER_ID_PREFIX_MAX = 249
"""Characters: as many as Kafka's clients allow an instance id to have
(``JoinGroupRequest.MAX_GROUP_INSTANCE_ID_LENGTH``)."""


class ClassicGroupState(Enum):
    """Values are Kafka's spellings, which clients see."""

    EMPTY = "Empty"
    """No members; offsets may be left. New groups and those that only hold offsets are here, too."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits until all members have joined again, or the rebalance timeout is over."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """Waits for the leader's assignment."""
    STABLE = "Stable"
    DEAD = "Dead"


VALID_PREVIOUS_STATES: dict[ClassicGroupState, frozenset[ClassicGroupState]] = {
    ClassicGroupState.EMPTY: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.PREPARING_REBALANCE: frozenset(
        {ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.EMPTY}
    ),
    ClassicGroupState.COMPLETING_REBALANCE: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.STABLE: frozenset({ClassicGroupState.COMPLETING_REBALANCE}),
    ClassicGroupState.DEAD: frozenset(ClassicGroupState),
}
"""From where each state may be entered."""


def why(reason: str | None) -> str:
    """What a client told of its reason (KIP-800), to be added to a log line; nothing when it told none."""
    return f", reason: {reason}" if reason else ""


def names(protocols: Protocols) -> list[str]:
    """Their names, each once, in order of preference."""
    return list(dict.fromkeys(name for name, _ in protocols))


def choose_protocol(ballots: Sequence[Protocols]) -> str:
    """Each member votes for what it prefers among that which all support; most votes win, and where they are
    even, the vote that came first. Kafka: ``ClassicGroup.selectProtocol``."""
    supported = Counter(name for protocols in ballots for name in names(protocols))
    votes: Counter[str] = Counter()
    for protocols in ballots:
        for name, _ in protocols:
            if supported[name] == len(ballots):
                votes[name] += 1
                break
    if not votes:
        raise InvariantError(f"no protocol is supported by all of {len(ballots)} members")
    return max(votes, key=votes.__getitem__)


def subscribed_topics(
    protocol_type: str | None, protocol: str | None, members: Iterable[ClassicMember]
) -> frozenset[str] | None:
    """The topics that the members of a group of consumers use; None if it is not known: the group is of
    another kind, has no protocol yet, or a member's metadata cannot be read."""
    if protocol_type != PROTOCOL_TYPE:
        return None
    members = list(members)
    if not members:
        return frozenset()
    if protocol is None:
        return None
    try:
        return frozenset(
            topic for member in members for topic in read_subscribed_topics(member.metadata(protocol))
        )
    except MalformedSubscription:
        return None


def check_session_timeout(request: JoinGroup, settings: GroupSettings) -> None:
    """Raises KafkaError INVALID_SESSION_TIMEOUT, also for a member of the classic protocol in a KIP-848
    group."""
    lowest, highest = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
    if not lowest <= request.session_timeout_ms <= highest:
        raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)


def new_member_id(prefix: str, unique: UUID) -> str:
    """Of a member with this client or instance id (``ClassicGroup.generateMemberId``). Those are strings of
    any length; as long as one may be, with something behind it, would fit neither the group's record nor what
    its leader can read."""
    return f"{prefix[:MEMBER_ID_PREFIX_MAX]}-{unique}"


class ClassicMember:
    """What it is, what it supports, what it was assigned, and which of its requests wait.

    Only its ``ClassicGroup`` changes ``protocols``, ``assignment`` and ``awaiting_join``, which it counts.
    The effects that begin and end its session are kept here, because a heartbeat is the request that a
    coordinator sees most.
    """

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "end_session",
        "group_instance_id",
        "is_new",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session",
    )

    def __init__(
        self,
        member_id: str,
        *,
        group_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        operation = GroupOperation(OperationKind.SESSION, group_id, member_id)
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.assignment = assignment
        self.awaiting_join: Ticket | None = None
        self.awaiting_sync: Ticket | None = None
        self.is_new = False
        """Has joined and not been answered yet: it may not know its id, so it cannot send heartbeats."""
        self.session = Park(operation, session_timeout_ms)
        self.end_session = Complete(operation)

    def __repr__(self) -> str:
        waits = "".join(
            f", awaits {name}"
            for name, ticket in (("join", self.awaiting_join), ("sync", self.awaiting_sync))
            if ticket is not None
        )
        static = "" if self.group_instance_id is None else f", group_instance_id={self.group_instance_id!r}"
        return (
            f"ClassicMember({self.member_id!r}{static}, protocols={[name for name, _ in self.protocols]}, "
            f"{len(self.assignment)} bytes assigned{', new' if self.is_new else ''}{waits})"
        )

    @property
    def session_timeout_ms(self) -> int:
        return self.session.timeout_ms

    @session_timeout_ms.setter
    def session_timeout_ms(self, timeout_ms: int) -> None:
        if timeout_ms != self.session.timeout_ms:
            self.session = Park(self.session.operation, timeout_ms)

    @property
    def size_bytes(self) -> int:
        """What it takes in memory."""
        about = (self.member_id, self.group_instance_id, self.client_id, self.client_host)
        return member_bytes(about, self.protocols) + len(self.assignment)

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def satisfies_heartbeat(self) -> bool:
        """Whether the member is alive although its session is over: it waits for us. A new one is not taken
        for alive, because its client may have given up and asked again as another member."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol: str) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise InvariantError(f"{self!r} does not support {protocol!r}")


_EMPTY = ClassicGroupState.EMPTY
_PREPARING = ClassicGroupState.PREPARING_REBALANCE
_COMPLETING = ClassicGroupState.COMPLETING_REBALANCE
_STABLE = ClassicGroupState.STABLE
_DEAD = ClassicGroupState.DEAD


def refused(error: ErrorCode, member_id: str = "") -> JoinGroupResult:
    return JoinGroupResult(error=error, member_id=member_id)


class ClassicGroup:
    """See the module header. New groups are EMPTY, of generation 0, and in no map yet."""

    __slots__ = (
        "awaiting_join_count",
        "footprint",
        "generation",
        "group_id",
        "initial_delay_ms",
        "initial_remaining_ms",
        "join_operation",
        "leader",
        "members",
        "new_member_added",
        "pending_joins",
        "pending_syncs",
        "previous_state",
        "protocol",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "storing_generation",
        "subscribed_topics",
        "supported",
        "sync_operation",
    )

    def __init__(
        self,
        group_id: str,
        *,
        state_timestamp_ms: int | None,
        state: ClassicGroupState = _EMPTY,
        generation: int = 0,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> None:
        """``state_timestamp_ms`` None: read from an old record that does not say when."""
        self.group_id = group_id
        self.footprint = Footprint(group_id)
        self.state = state
        self.previous_state = state
        self.state_timestamp_ms = state_timestamp_ms
        self.generation = generation
        self.protocol_type = protocol_type
        self.protocol = protocol
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by instance id."""
        self.supported: Counter[str] = Counter()
        """How many members support each protocol."""
        self.pending_joins: set[str] = set()
        """Ids that were given out and have not joined yet (KIP-394)."""
        self.pending_syncs: set[str] = set()
        """Members that have joined this generation and not synced yet."""
        self.awaiting_join_count = 0
        self.storing_generation: int | None = None
        """The generation whose assignment is on its way to the log."""
        self.new_member_added = False
        self.initial_delay_ms = 0
        self.initial_remaining_ms = 0
        """What is left of the time by which the first rebalance may be put off."""
        self.subscribed_topics: frozenset[str] | None = None
        """None: not known, or not of consumers."""
        self.join_operation = GroupOperation(OperationKind.JOIN, group_id)
        self.sync_operation = GroupOperation(OperationKind.SYNC, group_id)

    def __repr__(self) -> str:
        return (
            f"ClassicGroup({self.group_id!r}, {self.state.value}, generation={self.generation}, "
            f"protocol={self.protocol_type}/{self.protocol}, leader={self.leader!r}, "
            f"members={list(self.members.values())!r}, pending_joins={sorted(self.pending_joins)!r}, "
            f"pending_syncs={sorted(self.pending_syncs)!r})"
        )

    # State

    def transition(self, state: ClassicGroupState, now_ms: int) -> None:
        if self.state not in VALID_PREVIOUS_STATES[state]:
            raise InvariantError(f"{self!r} cannot become {state.value}")
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    @property
    def can_rebalance(self) -> bool:
        return self.state in VALID_PREVIOUS_STATES[_PREPARING]

    def next_generation(self, now_ms: int) -> None:
        self.generation += 1
        self.pending_syncs.clear()
        self.storing_generation = None
        self.supported = +self.supported  # forget what no member supports any more
        if self.members:
            self.protocol = choose_protocol([member.protocols for member in self.members.values()])
            self.transition(_COMPLETING, now_ms)
        else:
            self.protocol = None
            self.transition(_EMPTY, now_ms)
        self.resolve_subscription()

    def resolve_subscription(self) -> None:
        """Read from the members' metadata which topics are in use; after members or protocol have changed."""
        self.subscribed_topics = subscribed_topics(self.protocol_type, self.protocol, self.members.values())

    # Members

    def add_member(self, member: ClassicMember, ticket: Ticket | None = None) -> None:
        """``ticket``: of its JoinGroup, which waits for the next generation."""
        instance_id = member.group_instance_id
        if member.member_id in self.members or instance_id in self.static_members:
            raise InvariantError(f"{member!r} is already in {self!r}")
        if not self.members:
            self.protocol_type = member.protocol_type
        if instance_id is not None:
            self.static_members[instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self.supported.update(names(member.protocols))
        self.footprint.adjust(member.size_bytes)
        self.expect_no_join(member.member_id)
        self._await_join(member, ticket)

    def update_member(
        self,
        member: ClassicMember,
        *,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        ticket: Ticket,
    ) -> Effects:
        """The member joins again. An earlier request of it that still waits is answered."""
        effects = self.answer_join(member, refused(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        self.supported.subtract(names(member.protocols))
        self.supported.update(names(protocols))
        self.footprint.adjust(-member.size_bytes)
        member.protocols = protocols
        self.footprint.adjust(member.size_bytes)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self._await_join(member, ticket)
        return effects

    def remove(self, member: ClassicMember) -> Effects:
        """The member is gone: its requests are answered, its session ends, another one leads."""
        effects = self.answer_join(member, refused(ErrorCode.UNKNOWN_MEMBER_ID))
        effects += self.answer_sync(member, SyncGroupResult(error=ErrorCode.UNKNOWN_MEMBER_ID))
        effects.append(member.end_session)
        del self.members[member.member_id]
        self.footprint.adjust(-member.size_bytes)
        self.supported.subtract(names(member.protocols))
        if member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        self.pending_syncs.discard(member.member_id)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)
        return effects

    def replace_static_member(self, old: ClassicMember, new: ClassicMember, ticket: Ticket) -> Effects:
        """``new`` takes the place of ``old`` (KIP-345), whose waiting requests learn that they are fenced."""
        assert new.group_instance_id is not None and new.group_instance_id == old.group_instance_id
        error = ErrorCode.FENCED_INSTANCE_ID
        effects = self.answer_join(old, refused(error, old.member_id))
        effects += self.answer_sync(old, SyncGroupResult(error=error))
        effects += [old.end_session, new.session]
        self.members = {
            (new if member is old else member).member_id: new if member is old else member
            for member in self.members.values()
        }
        self.footprint.adjust(new.size_bytes - old.size_bytes)
        self.supported.subtract(names(old.protocols))
        self.supported.update(names(new.protocols))
        self.static_members[new.group_instance_id] = new.member_id
        if old.member_id in self.pending_syncs:
            self.pending_syncs.remove(old.member_id)
            self.pending_syncs.add(new.member_id)
        if self.leader == old.member_id:
            self.leader = new.member_id
        self._await_join(new, ticket)
        return effects

    def assign(self, member: ClassicMember, assignment: bytes) -> None:
        self.footprint.adjust(len(assignment) - len(member.assignment))
        member.assignment = assignment

    def expect_join(self, member_id: str) -> None:
        """The id is given out: a member is to join with it."""
        if member_id not in self.pending_joins:
            self.pending_joins.add(member_id)
            self.footprint.adjust(PENDING_JOIN_BYTES + len(member_id))

    def expect_no_join(self, member_id: str) -> None:
        """A member has, or will not."""
        if member_id in self.pending_joins:
            self.pending_joins.remove(member_id)
            self.footprint.adjust(-PENDING_JOIN_BYTES - len(member_id))

    def elect_joined_leader(self) -> bool:
        """Let a member lead that has joined again.

        Returns:
            Whether there is a leader: not if there is no member, or none that has joined.
        """
        if self.leader is not None and self.members[self.leader].awaiting_join is not None:
            return True
        joined = [member.member_id for member in self.members.values() if member.awaiting_join is not None]
        if joined:
            self.leader = joined[0]
        return bool(joined)

    @property
    def all_joined(self) -> bool:
        return self.awaiting_join_count == len(self.members) and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        """That of the slowest member."""
        return max((0, *(member.rebalance_timeout_ms for member in self.members.values())))

    def supports_protocols(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether one of ``protocols`` is supported by all members."""
        if self.state is _EMPTY:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and any(
            self.supported[name] == len(self.members) for name, _ in protocols
        )

    # Answers

    def joined(self, member: ClassicMember, *, skip_assignment: bool = False) -> JoinGroupResult:
        """What a member is told of the current generation."""
        leads = member.member_id == self.leader
        return JoinGroupResult(
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.leader or "",
            skip_assignment=skip_assignment and leads,
            member_id=member.member_id,
            members=self._joined_members() if leads else (),
        )

    def synced(self, member: ClassicMember) -> SyncGroupResult:
        return SyncGroupResult(
            protocol_type=self.protocol_type, protocol_name=self.protocol, assignment=member.assignment
        )

    def answer_join(self, member: ClassicMember, result: JoinGroupResult) -> Effects:
        """Nothing, if the member does not wait."""
        ticket = member.awaiting_join
        if ticket is None:
            return []
        member.awaiting_join = None
        self.awaiting_join_count -= 1
        return [Answer(ticket, result)]

    def answer_sync(self, member: ClassicMember, result: SyncGroupResult) -> Effects:
        ticket = member.awaiting_sync
        if ticket is None:
            return []
        member.awaiting_sync = None
        return [Answer(ticket, result)]

    def waiting(self) -> Iterable[Ticket]:
        for member in self.members.values():
            if member.awaiting_join is not None:
                yield member.awaiting_join
            if member.awaiting_sync is not None:
                yield member.awaiting_sync

    def _joined_members(self) -> tuple[JoinedMember, ...]:
        assert self.protocol is not None
        return tuple(
            JoinedMember(member.member_id, member.group_instance_id, member.metadata(self.protocol))
            for member in self.members.values()
        )

    def _await_join(self, member: ClassicMember, ticket: Ticket | None) -> None:
        assert member.awaiting_join is None
        member.awaiting_join = ticket
        self.awaiting_join_count += ticket is not None

    # What every group has: see ``group.Group``

    @property
    def is_empty(self) -> bool:
        return self.state is _EMPTY

    @property
    def should_expire(self) -> bool:
        return True

    def listed(self) -> ListedGroup:
        return ListedGroup(self.group_id, self.protocol_type or "", self.state.value, "classic")

    def member_error(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """NONE, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID. Kafka: ``validateMember``."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is not None and current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def check_offset_commit(
        self,
        *,
        member_id: str,
        group_instance_id: str | None,
        generation_or_member_epoch: int,
        version: int,
        is_transactional: bool = False,
    ) -> None:
        if self.state is _DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation_or_member_epoch < 0 and self.state is _EMPTY:
            return  # a consumer that assigns partitions to itself, or an administrator
        if generation_or_member_epoch < 0 and not member_id and group_instance_id is None:
            if is_transactional:  # before KIP-447 it was not told who reads
                return
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        error = self.member_error(member_id, group_instance_id)
        if error is not ErrorCode.NONE:
            raise KafkaError(error)
        if generation_or_member_epoch != self.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if self.state is _COMPLETING and not is_transactional:  # its partitions may be another's already
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def check_offset_fetch(self, *, member_id: str | None, member_epoch: int) -> None:
        if self.state is _DEAD:
            raise self._gone()

    def check_offset_delete(self) -> None:
        if self.state is _DEAD:
            raise self._gone()
        if self.state is not _EMPTY and self.protocol_type != CONSUMER:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")

    def check_delete(self) -> None:
        if self.state is _DEAD:
            raise self._gone()
        if self.state is not _EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER
        return topic in self.subscribed_topics

    def offsets_expire_after(self, *, commit_timestamp_ms: int) -> int | None:
        if self.protocol_type is None:
            return commit_timestamp_ms
        if self.state is _EMPTY:
            return commit_timestamp_ms if self.state_timestamp_ms is None else self.state_timestamp_ms
        if self.state is _STABLE and self.subscribed_topics is not None:
            return commit_timestamp_ms
        return None

    def heard_of(self, member_id: str) -> Effects:
        member = self.members.get(member_id)
        if member is None or self.state not in (_STABLE, _PREPARING):
            return []
        return [member.session]

    def tombstones(self) -> list[GroupRecord]:
        return [GroupRecord(GroupMetadataKey(self.group_id), None)]

    def _gone(self) -> KafkaError:
        return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is in dead state.")


def validate(group: ClassicGroup) -> None:
    """Check ``group``. Raises InvariantError."""
    broken = [name for name, holds in {**_of_members(group), **_of_state(group)}.items() if not holds]
    if broken:
        raise InvariantError(f"{', '.join(broken)}: {group!r}")


def _of_members(group: ClassicGroup) -> dict[str, bool]:
    members = group.members
    static = {member.group_instance_id: key for key, member in members.items() if member.is_static}
    supported = Counter(name for member in members.values() for name in names(member.protocols))
    return {
        "members are filed under their ids": all(key == member.member_id for key, member in members.items()),
        "instance ids are filed": static == group.static_members,
        "who waits to join is no member": not group.pending_joins & members.keys(),
        "who waits to sync is a member": group.pending_syncs <= members.keys(),
        "those who wait for a generation are counted": group.awaiting_join_count
        == sum(member.awaiting_join is not None for member in members.values()),
        "what it takes in memory is counted": group.footprint.size_bytes
        == GROUP_BYTES
        + len(group.group_id)
        + sum(member.size_bytes for member in members.values())
        + sum(PENDING_JOIN_BYTES + len(member_id) for member_id in group.pending_joins),
        "supported protocols are counted": supported == +group.supported,
        "a group with members has one that leads": (group.leader in members) if members else not group.leader,
        "members are of the group's kind": all(
            member.protocol_type == group.protocol_type for member in members.values()
        ),
    }


def _of_state(group: ClassicGroup) -> dict[str, bool]:
    state, members = group.state, group.members.values()
    return {
        "an empty group has no members": not members if state in (_EMPTY, _DEAD) else True,
        "a generation has members that agree": bool(members)
        and all(group.protocol in names(member.protocols) for member in members)
        if state in (_COMPLETING, _STABLE)
        else True,
        "joins wait for a rebalance, or for the log": state is _PREPARING
        or all(member.awaiting_join is None or (state is _STABLE and member.is_static) for member in members),
        "syncs wait for the leader": state is _COMPLETING
        or all(member.awaiting_sync is None for member in members),
        "who syncs is not waited for": all(
            member.awaiting_sync is None or member.member_id not in group.pending_syncs for member in members
        ),
        "syncs are due in a generation": not group.pending_syncs or state in (_COMPLETING, _STABLE),
        "new members wait for their first generation": all(
            state is _PREPARING for member in members if member.is_new
        ),
        "an assignment is stored for this generation": group.storing_generation is None
        or (state is _COMPLETING and group.storing_generation == group.generation),
    }


def group_record(
    group: ClassicGroup,
    *,
    members: Iterable[ClassicMember],
    leader: str | None,
    assignments: Mapping[str, bytes],
) -> GroupRecord:
    """What the log is to say of the group. ``assignments`` by member id; who is not in it gets nothing."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=leader,
        current_state_timestamp_ms=-1 if group.state_timestamp_ms is None else group.state_timestamp_ms,
        members=tuple(
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.session_timeout_ms,
                subscription=member.metadata(group.protocol or ""),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in members
        ),
    )
    return GroupRecord(GroupMetadataKey(group.group_id), value)


def current_record(group: ClassicGroup) -> GroupRecord:
    """The group as it is."""
    assignments = {member.member_id: member.assignment for member in group.members.values()}
    return group_record(group, members=group.members.values(), leader=group.leader, assignments=assignments)


def empty_record(group: ClassicGroup) -> GroupRecord:
    """A group that no member has joined yet, not even its type is known (``newEmptyGroupMetadataRecord``)."""
    value = GroupMetadataValue(
        protocol_type="",
        generation=0,
        protocol=None,
        leader=None,
        current_state_timestamp_ms=-1 if group.state_timestamp_ms is None else group.state_timestamp_ms,
        members=(),
    )
    return GroupRecord(GroupMetadataKey(group.group_id), value)


def group_from_record(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """STABLE, or EMPTY without members: what was going on when the record was written is over.

    A record may come from another broker or an older version, so it is taken as it is: a member that is named
    twice counts once, a leader that is no member is replaced.
    """
    group = ClassicGroup(
        group_id,
        state=ClassicGroupState.STABLE if value.members else ClassicGroupState.EMPTY,
        state_timestamp_ms=None if value.current_state_timestamp_ms < 0 else value.current_state_timestamp_ms,
        generation=value.generation,
        protocol_type=value.protocol_type or None,
        protocol=(value.protocol or "") if value.members else value.protocol,
    )
    for member in value.members:
        if member.member_id in group.members or member.group_instance_id in group.static_members:
            continue
        group.add_member(_member(group, value, member))
    if value.leader in group.members:
        group.leader = value.leader
    group.resolve_subscription()
    return group


def described(group: ClassicGroup) -> DescribedGroup:
    """Metadata and protocol only of a STABLE group: otherwise members do not agree on one."""
    protocol = group.protocol if group.state is ClassicGroupState.STABLE else None
    return DescribedGroup(
        group_id=group.group_id,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol=protocol or "",
        members=tuple(
            DescribedMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=b"" if protocol is None else member.metadata(protocol),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ),
    )


def _member(group: ClassicGroup, value: GroupMetadataValue, member: MemberMetadata) -> ClassicMember:
    rebalance_timeout_ms = member.rebalance_timeout_ms
    if rebalance_timeout_ms < 0:  # records of version 0 have none
        rebalance_timeout_ms = member.session_timeout_ms
    return ClassicMember(
        member.member_id,
        group_id=group.group_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=rebalance_timeout_ms,
        session_timeout_ms=member.session_timeout_ms,
        protocol_type=value.protocol_type,
        protocols=((value.protocol or "", member.subscription),),
        assignment=member.assignment,
    )
