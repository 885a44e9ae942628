"""A group of the next-generation protocol (KIP-848) and its members: the fold of their records.

Kafka: ``ConsumerGroup``, ``ModernGroup``. ``apply`` takes in one record; nothing else changes a group, but
for the notes below. Epochs only rise: the group's with every change of what shall be assigned, the
assignment's follows it, the members' follow that.

==============  =========================================================================
state           it is the group's while
==============  =========================================================================
Empty           it has no members
Assigning       its target assignment is behind its epoch
Reconciling     some member does not own its target yet
Stable          all members own their targets
==============  =========================================================================
(Dead is a group that is gone.)

**One member**: what it told about itself, and what it owns. Kafka: ``ConsumerGroupMember``, ``MemberState``.
A member is exactly its two records: it is replaced when one of them is written, never changed.

**A change** may end a classic group or begin one: ``GroupDraft`` (``group``).
"""

from __future__ import annotations

from collections import Counter
from enum import IntEnum
from uuid import UUID

import msgspec

from minikafka.coordinator.group.classic_group import ClassicGroup
from minikafka.coordinator.group.group import (
    Draft,
    ModernGroup,
    ModernMember,
    RecordKeys,
    check_commit_version,
    count_names,
    member_bytes,
)
from minikafka.coordinator.group.messages import ListedGroup
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupRecord,
    TopicPartitions,
)

PROTOCOL_TYPE = "consumer"


class MemberState(IntEnum):
    """Where a member stands on the way from what it owns to its target assignment."""

    STABLE = 0
    """It owns what it shall own, as far as it has heard."""
    UNREVOKED_PARTITIONS = 1
    """It must say that it has given partitions back before it enters the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """It is in its epoch, and waits for partitions that others have not yet given back."""
    UNKNOWN = 127
    """A state of a newer version: the member must restart."""


_STATES = {int(state): state for state in MemberState}


NO_METADATA = ConsumerGroupMemberMetadataValue(client_id="", client_host="")
NOTHING_OWNED = ConsumerGroupCurrentMemberAssignmentValue(
    member_epoch=0,
    previous_member_epoch=0,
    state=MemberState.STABLE,
    assigned_partitions={},
    partitions_pending_revocation={},
)


class ConsumerGroupMember(ModernMember, frozen=True):
    """``metadata`` is what the member told, ``current`` what it owns and in which epoch."""

    metadata: ConsumerGroupMemberMetadataValue = NO_METADATA
    current: ConsumerGroupCurrentMemberAssignmentValue = NOTHING_OWNED

    @property
    def state(self) -> MemberState:
        return _STATES.get(self.current.state, MemberState.UNKNOWN)

    @property
    def assigned(self) -> TopicPartitions:
        """What it may consume."""
        return self.current.assigned_partitions

    @property
    def pending_revocation(self) -> TopicPartitions:
        """What it must stop consuming; no other member gets it until it says that it has."""
        return self.current.partitions_pending_revocation

    @property
    def size_bytes(self) -> int:
        """What it takes in memory because of what it told; what it owns is of the coordinator's making."""
        told = self.metadata
        classic = told.classic_member_metadata
        about = (self.member_id, told.instance_id, told.rack_id, told.client_id, told.client_host)
        wanted = (told.subscribed_topic_regex, told.server_assignor, *told.subscribed_topic_names)
        protocols = () if classic is None else classic.supported_protocols
        return member_bytes((*about, *wanted), ((each.name, each.metadata) for each in protocols))

    @property
    def regex(self) -> str | None:
        """Its regular expression; None also if it is empty."""
        return self.metadata.subscribed_topic_regex or None

    @property
    def is_classic(self) -> bool:
        """It speaks the classic protocol."""
        return self.metadata.classic_member_metadata is not None

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.current.state == MemberState.STABLE and self.current.member_epoch == epoch


def is_subset(owned: TopicPartitions, assigned: TopicPartitions) -> bool:
    """Whether everything in ``owned`` is also in ``assigned``."""
    return all(partitions <= assigned.get(topic_id, frozenset()) for topic_id, partitions in owned.items())


class GroupDraft(Draft["ConsumerGroup"]):
    """A group, and the records that change it."""

    def __init__(self, group: ConsumerGroup, *, replaces: ClassicGroup | None = None) -> None:
        """``replaces``: a group of the classic protocol that ends with this change."""
        super().__init__(group, ConsumerGroup.apply)
        self.origin = group
        self.replaces = replaces
        self.becomes: ClassicGroup | None = None
        """A group of the classic protocol that comes in the place of this one."""
        if replaces is not None:
            self.records += replaces.tombstones()


class ConsumerGroup(ModernGroup[ConsumerGroupMember]):
    """See the module header, and ``group.Group``."""

    KEYS = RecordKeys(
        group=ConsumerGroupMetadataKey,
        assignment=ConsumerGroupTargetAssignmentMetadataKey,
        member=ConsumerGroupMemberMetadataKey,
        target=ConsumerGroupTargetAssignmentMemberKey,
        current=ConsumerGroupCurrentMemberAssignmentKey,
    )

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.targets: dict[str, TopicPartitions] = {}
        self.regexes: dict[str, ConsumerGroupRegularExpressionValue] = {}
        """What the members' regular expressions resolved to."""
        self.has_partition_metadata = False
        """The log still has a record of type 4, which Kafka 4.0 wrote."""
        self._owners: dict[UUID, dict[int, str]] = {}
        self._names: Counter[str] = Counter()
        self._regex_members: Counter[str] = Counter()
        self._assignors: Counter[str] = Counter()
        self.classic_protocols: Counter[str] = Counter()
        """How many members of the classic protocol support each assignor of theirs."""
        self.classic_member_count = 0
        # Notes.
        self.regexes_checked_version = -1
        self.regexes_checked_ms = 0
        self.regexes_to_check: list[str] = []
        """What of the round that began then is left."""
        self.assigned_ms: int | None = None
        """When the target was written, or read from the log."""
        self.awaited_joins: set[str] = set()
        """Members of the classic protocol that were told to join again and have not."""
        self.computing_epoch = -1
        """For which a target is being worked out beside the loop; -1: none is."""

    def __repr__(self) -> str:
        return f"ConsumerGroup({self._group_id!r}, {self.state}, {self.epoch}, {len(self.members)} members)"

    # What it is

    @property
    def state(self) -> str:
        """Costs a look at each member."""
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def owner(self, topic_id: UUID, partition: int) -> str | None:
        """The member that owns a partition or must give it back."""
        return self._owners.get(topic_id, {}).get(partition)

    def subscribed_topics(self) -> list[str]:
        """The names that members want, in alphabetical order; some may not exist."""
        wanted = {*self._names}
        for regex in self._regex_members:
            if resolved := self.regexes.get(regex):
                wanted.update(resolved.topics)
        return sorted(wanted)

    def unresolved_regexes(self) -> list[str]:
        """Members' expressions of which it is not known yet what they match."""
        if self._regex_members.keys() <= self.regexes.keys():
            return []
        return [regex for regex in self._regex_members if regex not in self.regexes]

    def regex_member_count(self, regex: str) -> int:
        return self._regex_members[regex]

    def preferred_assignor(self) -> str | None:
        """The server-side assignor that most members ask for; of equals the first in the alphabet."""
        return min(self._assignors, key=lambda name: (-self._assignors[name], name), default=None)

    def supports_classic_protocols(self, protocol_type: str, names: list[str]) -> bool:
        """Whether a member with these assignors may join: all classic members must support one of them."""
        if protocol_type != PROTOCOL_TYPE or not names:
            return False
        return not self.members or any(
            self.classic_protocols[name] == self.classic_member_count for name in names
        )

    # The Group protocol

    def listed(self) -> ListedGroup:
        return ListedGroup(self._group_id, PROTOCOL_TYPE, self.state, "consumer")

    def check_offset_commit(
        self,
        *,
        member_id: str,
        group_instance_id: str | None,
        generation_or_member_epoch: int,
        version: int,
        is_transactional: bool = False,
    ) -> None:
        member = self.committing_member(
            member_id, group_instance_id, generation_or_member_epoch, is_transactional=is_transactional
        )
        if member is None:
            return
        if not member.is_classic and not is_transactional:
            check_commit_version(version, kind="modern")
        self._check_epoch(member, generation_or_member_epoch)

    def check_offset_fetch(self, *, member_id: str | None, member_epoch: int) -> None:
        # Who is no member may look too.
        if member_id is None and member_epoch < 0:
            return
        self._check_epoch(self.member(member_id or ""), member_epoch)

    def _check_epoch(self, member: ConsumerGroupMember, epoch: int) -> None:
        if epoch != member.epoch:
            raise KafkaError(
                ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH,
                f"The received member epoch {epoch} does not match the expected member epoch {member.epoch}.",
            )

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self._names or any(
            topic in resolved.topics
            for regex, resolved in self.regexes.items()
            if regex in self._regex_members
        )

    def tombstones(self) -> list[GroupRecord]:
        group_id = self._group_id
        return self._tombstones(
            self.targets,
            *(ConsumerGroupRegularExpressionKey(group_id, regex) for regex in self.regexes),
            *([ConsumerGroupPartitionMetadataKey(group_id)] if self.has_partition_metadata else []),
        )

    # The fold

    def apply(self, record: GroupRecord) -> None:
        """Take in one record of this group."""
        match record.key, record.value:
            case ConsumerGroupMetadataKey(), ConsumerGroupMetadataValue() as value:
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case ConsumerGroupPartitionMetadataKey(), value:
                self.has_partition_metadata = value is not None
            case ConsumerGroupMemberMetadataKey() as key, ConsumerGroupMemberMetadataValue() as value:
                member = self.members.get(key.member_id) or ConsumerGroupMember(key.member_id)
                self._put(msgspec.structs.replace(member, metadata=value))
            case ConsumerGroupMemberMetadataKey() as key, None:
                if gone := self.members.pop(key.member_id, None):
                    self._count(gone, -1)
                    self._disown(gone)
                    self.awaited_joins.discard(key.member_id)
            case (
                ConsumerGroupTargetAssignmentMetadataKey(),
                ConsumerGroupTargetAssignmentMetadataValue() as value,
            ):
                self.assignment_epoch = value.assignment_epoch
            case ConsumerGroupTargetAssignmentMetadataKey(), None:
                self.assignment_epoch = 0
            case (
                ConsumerGroupTargetAssignmentMemberKey() as key,
                ConsumerGroupTargetAssignmentMemberValue() as value,
            ):
                self.targets[key.member_id] = value.topic_partitions
            case ConsumerGroupTargetAssignmentMemberKey() as key, None:
                self.targets.pop(key.member_id, None)
            case (
                ConsumerGroupCurrentMemberAssignmentKey() as key,
                ConsumerGroupCurrentMemberAssignmentValue() as value,
            ):
                # After compaction this may come before what the member told.
                member = self.members.get(key.member_id) or ConsumerGroupMember(key.member_id)
                self._put(msgspec.structs.replace(member, current=value))
            case ConsumerGroupCurrentMemberAssignmentKey() as key, None:
                if key.member_id in self.members:
                    owner = self.members[key.member_id]
                    self._put(msgspec.structs.replace(owner, current=NOTHING_OWNED))
            case ConsumerGroupRegularExpressionKey() as key, ConsumerGroupRegularExpressionValue() as value:
                self.regexes[key.regular_expression] = value
            case ConsumerGroupRegularExpressionKey() as key, None:
                self.regexes.pop(key.regular_expression, None)

    def _put(self, member: ConsumerGroupMember) -> None:
        old = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if old is None or old.metadata is not member.metadata:
            if old is not None:
                self._count(old, -1)
            self._count(member, 1)
        if old is not None and old.current is not member.current:
            self._disown(old)
        if old is None or old.current is not member.current:
            self._own(member)

    def _count(self, member: ConsumerGroupMember, sign: int) -> None:
        """Keep the sums over all members."""
        metadata = member.metadata
        self.footprint.adjust(sign * member.size_bytes)
        count_names(self._names, metadata.subscribed_topic_names, sign)
        count_names(self._regex_members, [member.regex] if member.regex else [], sign)
        count_names(self._assignors, [metadata.server_assignor] if metadata.server_assignor else [], sign)
        if metadata.classic_member_metadata is not None:
            self.classic_member_count += sign
            protocols = metadata.classic_member_metadata.supported_protocols
            count_names(self.classic_protocols, [protocol.name for protocol in protocols], sign)
        if metadata.instance_id is not None:
            if sign > 0:
                self.static_members[metadata.instance_id] = member.member_id
            elif self.static_members.get(metadata.instance_id) == member.member_id:
                del self.static_members[metadata.instance_id]

    def _own(self, member: ConsumerGroupMember) -> None:
        for partitions in (member.assigned, member.pending_revocation):
            for topic_id, numbers in partitions.items():
                mine = dict.fromkeys(numbers, member.member_id)
                self._owners[topic_id] = {**self._owners.get(topic_id, {}), **mine}

    def _disown(self, member: ConsumerGroupMember) -> None:
        # Only what is still the member's: half a compacted log may have given it to the next one already.
        for partitions in (member.assigned, member.pending_revocation):
            for topic_id, numbers in partitions.items():
                left = {
                    number: owner
                    for number, owner in self._owners.get(topic_id, {}).items()
                    if number not in numbers or owner != member.member_id
                }
                if left:
                    self._owners[topic_id] = left
                else:
                    self._owners.pop(topic_id, None)
