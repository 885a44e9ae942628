"""A share group (KIP-932): the fold of its records, what its members shall share in, and the assignor.

Kafka: ``ShareGroup``, ``ShareGroupMember``, ``ModernGroup``. ``apply`` takes in one record; nothing else
changes a group, but for its notes. A share group is ``Empty`` without members, and ``Stable`` with some:
partitions are shared, so a member takes and leaves its part at once and never waits for another one.

A partition is assigned only when the share coordinator keeps state of it. ``partitions`` says how far that is
(``ShareGroupStatePartitionMetadata``): a subscribed partition is *initializing* from when it is first seen,
*initialized* when the share coordinator has said so, and its topic *deleting* while its state is deleted.

**The assignor.** Kafka: ``SimpleAssignor`` with ``SimpleHomogeneousAssignmentBuilder`` and
``SimpleHeterogeneousAssignmentBuilder``. Each partition goes to equally many members, at least to one;
members have equally many partitions where all want the same topics, and of each topic where they do not. What
a member has it keeps as far as that balance lets it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NoReturn
from uuid import UUID

import msgspec

from minikafka.coordinator.group.consumer.target import AssignmentBuilder, GroupSpec
from minikafka.coordinator.group.environment import TopicImage
from minikafka.coordinator.group.group import (
    Draft,
    ModernGroup,
    ModernMember,
    RecordKeys,
    count_names,
    fenced_member_epoch,
    member_bytes,
)
from minikafka.coordinator.group.messages import ListedGroup
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_records import (
    GroupRecord,
    NamedPartitions,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    TopicPartitions,
)

PROTOCOL_TYPE = "share"
ASSIGNOR_NAME = "simple"
"""The only one that Kafka has for share groups, and its default (``group.share.assignors``)."""

NO_METADATA = ShareGroupMemberMetadataValue(client_id="", client_host="")
NOTHING_SHARED = ShareGroupCurrentMemberAssignmentValue(
    member_epoch=0, previous_member_epoch=0, assigned_partitions={}
)
NO_PARTITIONS = ShareGroupStatePartitionMetadataValue()
_NONE: frozenset[int] = frozenset()

# The assignor
_Place = tuple[UUID, int]


class ShareGroupMember(ModernMember, frozen=True):
    """``metadata`` is what the member told, ``current`` what it shares in and in which epoch."""

    metadata: ShareGroupMemberMetadataValue = NO_METADATA
    current: ShareGroupCurrentMemberAssignmentValue = NOTHING_SHARED

    @property
    def assigned(self) -> TopicPartitions:
        return self.current.assigned_partitions

    @property
    def size_bytes(self) -> int:
        """What it takes in memory because of what it told."""
        told = self.metadata
        about = (self.member_id, told.rack_id, told.client_id, told.client_host)
        return member_bytes((*about, *told.subscribed_topic_names))

    def check_epoch(self, epoch: int) -> None:
        """Whether a heartbeat of this epoch is the member's next: its own epoch, or the one before when the
        answer that told it the new one was lost.

        Raises:
            KafkaError: FENCED_MEMBER_EPOCH.
        """
        if epoch not in (self.epoch, self.current.previous_member_epoch):
            raise fenced_member_epoch(PROTOCOL_TYPE, epoch, known=self.epoch)


class ShareGroup(ModernGroup[ShareGroupMember]):
    """See the module header, and ``group.Group``."""

    KEYS = RecordKeys(
        group=ShareGroupMetadataKey,
        assignment=ShareGroupTargetAssignmentMetadataKey,
        member=ShareGroupMemberMetadataKey,
        target=ShareGroupTargetAssignmentMemberKey,
        current=ShareGroupCurrentMemberAssignmentKey,
    )

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assigned_at_ms = 0
        """When the target assignment was worked out; 0: not known."""
        self.targets: dict[str, TopicPartitions] = {}
        self.partitions = NO_PARTITIONS
        self._names: Counter[str] = Counter()
        # Notes.
        self.initializing_since_ms: dict[UUID, int] = {}
        """When the log said of each initializing topic that it is that."""
        self.settled_version = -1
        """The version of the topics for which all that is wanted has state and is assigned."""
        self.computing_epoch = -1
        """For which a target is being worked out beside the loop; -1: none is."""

    def __repr__(self) -> str:
        return f"ShareGroup({self._group_id!r}, {self.state}, {self.epoch}, {len(self.members)} members)"

    # What it is

    @property
    def state(self) -> str:
        return "Stable" if self.members else "Empty"

    def subscribed_topics(self) -> list[str]:
        """The names that members want, in alphabetical order; some may not exist."""
        return sorted(self._names)

    def has_unassigned(self, topics: TopicImage) -> bool:
        """Whether an initialized partition of a topic that is there and wanted is assigned to no member yet
        (Kafka: ``initializedAssignmentPending``)."""
        if not self.members:
            return False
        assigned: dict[UUID, frozenset[int]] = {}
        for target in self.targets.values():
            for topic_id, numbers in target.items():
                assigned[topic_id] = assigned.get(topic_id, _NONE) | numbers
        return any(
            each.topic in self._names
            and not each.partitions <= assigned.get(topic_id, _NONE)
            and topics.topic_by_id(topic_id) is not None
            for topic_id, each in self.partitions.initialized.items()
        )

    # The Group protocol

    @property
    def should_expire(self) -> bool:
        """Only an administrator deletes it: what the share coordinator keeps of it goes with it."""
        return False

    def listed(self) -> ListedGroup:
        return ListedGroup(self._group_id, PROTOCOL_TYPE, self.state, PROTOCOL_TYPE)

    def check_offset_commit(
        self,
        *,
        member_id: str,
        group_instance_id: str | None,
        generation_or_member_epoch: int,
        version: int,
        is_transactional: bool = False,
    ) -> None:
        self._is_no_consumer_group()

    def check_offset_fetch(self, *, member_id: str | None, member_epoch: int) -> None:
        self._is_no_consumer_group()

    def check_offset_delete(self) -> None:
        self._is_no_consumer_group()

    def _is_no_consumer_group(self) -> NoReturn:
        """A share group commits no offsets: its progress is with the share coordinator."""
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self._group_id} is not a consumer group.")

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self._names

    def tombstones(self) -> list[GroupRecord]:
        return self._tombstones(self.targets, ShareGroupStatePartitionMetadataKey(self._group_id))

    # The fold

    def apply(self, record: GroupRecord, now_ms: int) -> None:
        """Take in one record of this group."""
        self.settled_version = -1
        match record.key, record.value:
            case ShareGroupMetadataKey(), ShareGroupMetadataValue() as value:
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case ShareGroupMemberMetadataKey() as key, ShareGroupMemberMetadataValue() as value:
                member = self.members.get(key.member_id) or ShareGroupMember(key.member_id)
                self._put(msgspec.structs.replace(member, metadata=value))
            case ShareGroupMemberMetadataKey() as key, None:
                if gone := self.members.pop(key.member_id, None):
                    self._count(gone, -1)
            case ShareGroupTargetAssignmentMetadataKey(), ShareGroupTargetAssignmentMetadataValue() as value:
                self.assignment_epoch = value.assignment_epoch
                self.assigned_at_ms = value.assignment_timestamp_ms
            case ShareGroupTargetAssignmentMetadataKey(), None:
                self.assignment_epoch = self.assigned_at_ms = 0
            case (
                ShareGroupTargetAssignmentMemberKey() as key,
                ShareGroupTargetAssignmentMemberValue() as value,
            ):
                self.targets[key.member_id] = value.topic_partitions
            case ShareGroupTargetAssignmentMemberKey() as key, None:
                self.targets.pop(key.member_id, None)
            case (
                ShareGroupCurrentMemberAssignmentKey() as key,
                ShareGroupCurrentMemberAssignmentValue() as value,
            ):
                # After compaction this may come before what the member told.
                member = self.members.get(key.member_id) or ShareGroupMember(key.member_id)
                self._put(msgspec.structs.replace(member, current=value))
            case ShareGroupCurrentMemberAssignmentKey() as key, None:
                if key.member_id in self.members:
                    self._put(msgspec.structs.replace(self.members[key.member_id], current=NOTHING_SHARED))
            case ShareGroupStatePartitionMetadataKey(), ShareGroupStatePartitionMetadataValue() as value:
                self.partitions = value
                self.initializing_since_ms = dict.fromkeys(value.initializing, now_ms)
            case ShareGroupStatePartitionMetadataKey(), None:
                self.partitions = NO_PARTITIONS
                self.initializing_since_ms = {}

    def _put(self, member: ShareGroupMember) -> None:
        old = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if old is None or old.metadata is not member.metadata:
            if old is not None:
                self._count(old, -1)
            self._count(member, 1)

    def _count(self, member: ShareGroupMember, sign: int) -> None:
        """Keep the sums over all members."""
        self.footprint.adjust(sign * member.size_bytes)
        count_names(self._names, member.metadata.subscribed_topic_names, sign)


class ShareGroupDraft(Draft[ShareGroup]):
    """A share group, and the records that change it."""

    def __init__(self, group: ShareGroup, now_ms: int) -> None:
        super().__init__(group, lambda group, record: group.apply(record, now_ms))

    def write_partitions(self, value: ShareGroupStatePartitionMetadataValue) -> None:
        if value != self.group.partitions:
            self.write(ShareGroupStatePartitionMetadataKey(self.group.group_id), value)


# How far the partitions' state is: all of these are values, and change nothing in place.
def with_initializing(
    state: ShareGroupStatePartitionMetadataValue, topics: Mapping[UUID, NamedPartitions]
) -> ShareGroupStatePartitionMetadataValue:
    """``topics`` are being initialized; one whose state is being deleted is not that any more."""
    return msgspec.structs.replace(
        state,
        initializing=_united(state.initializing, topics),
        deleting={topic_id: name for topic_id, name in state.deleting.items() if topic_id not in topics},
    )


def with_initialized(
    state: ShareGroupStatePartitionMetadataValue, topics: Mapping[UUID, NamedPartitions]
) -> ShareGroupStatePartitionMetadataValue:
    """``topics`` are initialized; those that are being deleted meanwhile stay so."""
    done = {topic_id: each for topic_id, each in topics.items() if topic_id not in state.deleting}
    return msgspec.structs.replace(
        state,
        initializing=_without(state.initializing, topics),
        initialized=_united(state.initialized, done),
    )


def without_initializing(
    state: ShareGroupStatePartitionMetadataValue, topics: Mapping[UUID, NamedPartitions]
) -> ShareGroupStatePartitionMetadataValue:
    """``topics`` could not be initialized: they are as if never seen."""
    return msgspec.structs.replace(state, initializing=_without(state.initializing, topics))


def with_deleting(
    state: ShareGroupStatePartitionMetadataValue, topics: Mapping[UUID, str]
) -> ShareGroupStatePartitionMetadataValue:
    """The state of ``topics`` is being deleted."""
    return ShareGroupStatePartitionMetadataValue(
        initializing={key: each for key, each in state.initializing.items() if key not in topics},
        initialized={key: each for key, each in state.initialized.items() if key not in topics},
        deleting={**state.deleting, **topics},
    )


def without_topics(
    state: ShareGroupStatePartitionMetadataValue, topic_ids: Iterable[UUID]
) -> ShareGroupStatePartitionMetadataValue:
    """The state of the topics is deleted."""
    gone = set(topic_ids)
    return ShareGroupStatePartitionMetadataValue(
        initializing={key: each for key, each in state.initializing.items() if key not in gone},
        initialized={key: each for key, each in state.initialized.items() if key not in gone},
        deleting={key: name for key, name in state.deleting.items() if key not in gone},
    )


def _united(
    first: Mapping[UUID, NamedPartitions], second: Mapping[UUID, NamedPartitions]
) -> dict[UUID, NamedPartitions]:
    united = dict(first)
    for topic_id, each in second.items():
        before = united[topic_id].partitions if topic_id in united else _NONE
        united[topic_id] = NamedPartitions(each.topic, before | each.partitions)
    return united


def _without(
    topics: Mapping[UUID, NamedPartitions], gone: Mapping[UUID, NamedPartitions]
) -> dict[UUID, NamedPartitions]:
    left = {
        topic_id: NamedPartitions(
            each.topic, each.partitions - (gone[topic_id].partitions if topic_id in gone else _NONE)
        )
        for topic_id, each in topics.items()
    }
    return {topic_id: each for topic_id, each in left.items() if each.partitions}


def assign_simple(spec: GroupSpec, is_assignable: Callable[[UUID, int], bool]) -> dict[str, TopicPartitions]:
    """See the module header. A partition that is not assignable is no member's target; where there are more
    members than partitions, several share one."""
    builder = AssignmentBuilder(spec)
    places = {
        topic_id: [(topic_id, number) for number in range(count) if is_assignable(topic_id, number)]
        for topic_id, count in spec.partition_counts.items()
    }
    if spec.is_homogeneous:
        _share_out(spec, builder, [place for each in places.values() for place in each], list(spec.members))
    else:
        for topic_id, member_ids in spec.subscribers().items():
            _share_out(spec, builder, places[topic_id], member_ids)
    return builder.build()


def _share_out(
    spec: GroupSpec, builder: AssignmentBuilder, places: Sequence[_Place], member_ids: Sequence[str]
) -> None:
    """Give every one of ``places`` to ``sharing`` of the members, and each member ``wanted`` of them."""
    if not places or not member_ids:
        return
    sharing = -(-len(member_ids) // len(places))
    shares = sharing * len(places)
    wanted = {
        # Kafka's rounding: the first members have the larger parts, spread evenly.
        member_id: -(-shares * (rank + 1) // len(member_ids)) - -(-shares * rank // len(member_ids))
        for rank, member_id in enumerate(member_ids)
    }
    sharers: dict[_Place, set[str]] = {place: set() for place in places}
    topic_ids = {topic_id for topic_id, _ in places}
    kept: Counter[str] = Counter()
    for member_id in member_ids:
        target = spec.members[member_id].target
        for place in sorted(
            (
                (topic_id, number)
                # Of one topic out of many: not all that the member has is gone through.
                for topic_id in (topic_ids if len(topic_ids) < len(target) else target)
                for number in target.get(topic_id, ())
                if (topic_id, number) in sharers
            ),
            # What few others have first: it is kept rather than what many have.
            key=lambda place: (len(sharers[place]), place),
        ):
            if kept[member_id] < wanted[member_id] and len(sharers[place]) < sharing:
                sharers[place].add(member_id)
                kept[member_id] += 1
    _fill(sharers, kept, wanted, sharing, member_ids)
    for place, sharing_members in sharers.items():
        for member_id in sharing_members:
            builder.give(member_id, *place)


def _fill(
    sharers: dict[_Place, set[str]],
    kept: Counter[str],
    wanted: Mapping[str, int],
    sharing: int,
    member_ids: Sequence[str],
) -> None:
    """Give the partitions that have too few sharers, those with the fewest first, to the members that have
    too few partitions. A member may share in all that is left already: then it has fewer than it should."""
    ranks = {place: rank for rank, place in enumerate(sharers)}
    heap = [
        (len(members), ranks[place], place) for place, members in sharers.items() if len(members) < sharing
    ]
    heapify(heap)
    for member_id in member_ids:
        mine: list[tuple[int, int, _Place]] = []
        while heap and kept[member_id] < wanted[member_id]:
            count, rank, place = heappop(heap)
            if member_id not in sharers[place]:
                sharers[place].add(member_id)
                kept[member_id] += 1
                count += 1
            if count < sharing:
                mine.append((count, rank, place))
        for each in mine:
            heappush(heap, each)
