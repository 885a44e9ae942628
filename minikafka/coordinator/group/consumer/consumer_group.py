"""A group of the next-generation protocol (KIP-848): the fold of its records.

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
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from minikafka.coordinator.group.consumer.member import (
    NOTHING_OWNED,
    ConsumerGroupMember,
)
from minikafka.coordinator.group.effects import Effects
from minikafka.coordinator.group.footprint import Footprint
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
    Key,
    TopicPartitions,
)

if TYPE_CHECKING:
    from minikafka.coordinator.group.consumer.change import GroupChange

PROTOCOL_TYPE = "consumer"
MEMBER_EPOCH_VERSION = 9
"""OffsetCommit since this version carries a member epoch (KIP-848)."""


class ConsumerGroup:
    """See the module header, and ``group.Group``."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self.footprint = Footprint(group_id)
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.members: dict[str, ConsumerGroupMember] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by group instance id."""
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
        # Notes. They save work, and are lost with this broker's leadership.
        self.checked_version = -1
        """The version of the topics that ``metadata_hash`` is known to stand for."""
        self.regexes_checked_version = -1
        self.regexes_checked_ms = 0
        self.regexes_to_check: list[str] = []
        """What of the round that began then is left."""
        self.awaited_joins: set[str] = set()
        """Members of the classic protocol that were told to join again and have not."""
        self.uncommitted: GroupChange | None = None
        """The last change that was written and is not committed."""

    def __repr__(self) -> str:
        return f"ConsumerGroup({self._group_id!r}, {self.state}, {self.epoch}, {len(self.members)} members)"

    def copy(self) -> ConsumerGroup:
        """For a change that is worked out and may not come: it shares what is never changed in place."""
        copy = ConsumerGroup(self._group_id)
        for name, value in vars(self).items():
            setattr(copy, name, value.copy() if isinstance(value, dict | set) else value)
        copy.footprint = Footprint(self._group_id, self.footprint.size_bytes)
        return copy

    # What it is

    @property
    def group_id(self) -> str:
        return self._group_id

    @property
    def is_empty(self) -> bool:
        return not self.members

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

    def member(self, member_id: str) -> ConsumerGroupMember:
        """Raises KafkaError UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self._group_id}."
            )
        return member

    def static_member(self, instance_id: str) -> ConsumerGroupMember | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

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
        # An admin client moves the offsets of a group that nobody is in.
        if generation_or_member_epoch < 0 and not self.members:
            return
        if is_transactional and (generation_or_member_epoch, member_id, group_instance_id) == (-1, "", None):
            return
        member = self.member(member_id)
        if not member.is_classic and not is_transactional and version < MEMBER_EPOCH_VERSION:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"OffsetCommit version {MEMBER_EPOCH_VERSION} or above must be used by members using the "
                f"modern group protocol",
            )
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

    def check_offset_delete(self) -> None:
        """Offsets of topics that nobody is subscribed to may go at any time; see ``is_subscribed_to``."""

    def check_delete(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"Group {self._group_id} is not empty.")

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self._names or any(
            topic in resolved.topics
            for regex, resolved in self.regexes.items()
            if regex in self._regex_members
        )

    def offsets_expire_after(self, *, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    def heard_of(self, member_id: str) -> Effects:
        """Heartbeats are sent apart from commits (KIP-848); a commit says nothing."""
        return []

    def tombstones(self) -> list[GroupRecord]:
        """In the order in which they can be taken in one by one."""
        group_id = self._group_id
        keys: list[Key] = [
            *(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id) for member_id in self.members),
            *(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id) for member_id in self.targets),
            ConsumerGroupTargetAssignmentMetadataKey(group_id),
            *(ConsumerGroupMemberMetadataKey(group_id, member_id) for member_id in self.members),
            *(ConsumerGroupRegularExpressionKey(group_id, regex) for regex in self.regexes),
            *([ConsumerGroupPartitionMetadataKey(group_id)] if self.has_partition_metadata else []),
            ConsumerGroupMetadataKey(group_id),
        ]
        return [GroupRecord(key, None) for key in keys]

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
        _add(self._names, metadata.subscribed_topic_names, sign)
        _add(self._regex_members, [member.regex] if member.regex else [], sign)
        _add(self._assignors, [metadata.server_assignor] if metadata.server_assignor else [], sign)
        if metadata.classic_member_metadata is not None:
            self.classic_member_count += sign
            protocols = metadata.classic_member_metadata.supported_protocols
            _add(self.classic_protocols, [protocol.name for protocol in protocols], sign)
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


def _add(counter: Counter[str], names: list[str] | tuple[str, ...], sign: int) -> None:
    for name in names:
        counter[name] += sign
        if not counter[name]:
            del counter[name]
