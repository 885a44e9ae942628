"""The groups of one partition of ``__consumer_offsets``: who is asked about what.

Kafka: ``GroupCoordinatorShard``. A shard lives while this broker leads the partition; it is filled by
``replay`` from the log, begins its work with ``loaded``, and is thrown away when another broker leads.
Everything here is synchronous and knows no clock and no I/O; see ``effects`` for how the work is carried out.

A group belongs to one of two protocols, and may change: a heartbeat of KIP-848 upgrades a classic group, the
last such member's leaving downgrades it (``consumer_groups``). A classic request to a KIP-848 group is served
there. A share group (KIP-932) stays one. A streams group (KIP-1071) and a classic one take each other's place
when they have no members.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from uuid import UUID

from minikafka.coordinator.group.classic_groups import ClassicGroups
from minikafka.coordinator.group.consumer.consumer_group import ConsumerGroup
from minikafka.coordinator.group.consumer.consumer_groups import ConsumerGroups, GroupUpdater
from minikafka.coordinator.group.environment import GroupCounts, GroupSettings, TopicImage
from minikafka.coordinator.group.group import Group, GroupMap, GroupMemory
from minikafka.coordinator.group.messages import (
    AlterShareGroupOffsets,
    Answer,
    Append,
    ConsumerGroupHeartbeat,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribedShareGroup,
    DescribedStreamsGroup,
    Effects,
    EndTransaction,
    GroupOperation,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListedGroup,
    OffsetCommit,
    OffsetFetchGroup,
    OffsetFetchResult,
    ShareGroupHeartbeat,
    StreamsGroupHeartbeat,
    SyncGroup,
    Ticket,
    TxnOffsetCommit,
    coordinator_error,
)
from minikafka.coordinator.group.offsets import CommittedOffset, GroupOffsets
from minikafka.coordinator.group.share_group import ShareGroup
from minikafka.coordinator.group.share_groups import ShareGroups
from minikafka.coordinator.group.streams.streams_group import StreamsGroup
from minikafka.coordinator.group.streams.streams_groups import StreamsGroups
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    NamedPartitions,
    OffsetCommitKey,
    OffsetCommitValue,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMetadataKey,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTopologyKey,
)
from minikafka.types import TopicPartition

_log = logging.getLogger(__name__)

TOMBSTONES_MAX = 1_000
"""In one batch, of those that need not go together (Kafka: appends that are not atomic). With long names of
groups and topics they take half of a topic's default ``max.message.bytes``."""


class Tombstones(Append):
    """Removes what is not needed any more; answers the client that asked for it. What no client has asked for
    stays when the log refuses it: what has expired is found again by the next clean-up."""

    __slots__ = ("_answer", "_shard")

    def __init__(self, shard: GroupShard, records: list[GroupRecord], answer: Answer | None = None) -> None:
        super().__init__(records)
        self._shard = shard
        self._answer = answer

    def written(self, now_ms: int) -> Effects:
        for record in self.records:
            self._shard.replay(record, now_ms)
        return []

    def committed(self, now_ms: int) -> Effects:
        return [] if self._answer is None else [self._answer]

    def failed(self, error: KafkaError, now_ms: int) -> Effects:
        if self._answer is not None:
            return [Answer(self._answer.ticket, coordinator_error(error))]
        _log.warning("%d expired offsets and groups remain in the log: %s", len(self.records), error)
        return []


class GroupShard:
    """See the module header."""

    def __init__(
        self,
        counts: GroupCounts,
        *,
        settings: GroupSettings,
        topics: TopicImage,
        new_uuid: Callable[[], UUID],
        memory_bytes: Callable[[], int],
    ) -> None:
        """``counts`` is shared with the other shards of a broker; ``memory_bytes`` says what all of them
        take."""
        self._settings = settings
        self._memory = GroupMemory(settings, memory_bytes)
        self._groups = GroupMap(self._memory)
        self._classic = ClassicGroups(self._groups, settings=settings, new_uuid=new_uuid, counts=counts)
        updater = GroupUpdater(
            self._groups,
            classic=self._classic,
            settings=settings,
            topics=topics,
            new_uuid=new_uuid,
            counts=counts,
        )
        self._consumer = ConsumerGroups(updater)
        self._share = ShareGroups(self._groups, settings=settings, topics=topics, counts=counts)
        self._streams = StreamsGroups(
            self._groups, classic=self._classic, settings=settings, topics=topics, counts=counts
        )
        self._offsets = GroupOffsets(
            self._groups, settings=settings, make_simple=self._classic.make_simple, counts=counts
        )

    def __repr__(self) -> str:
        return f"GroupShard({len(self._groups)} groups)"

    # The classic protocol

    def join_group(self, request: JoinGroup, ticket: Ticket, now_ms: int) -> Effects:
        """Answered with a JoinGroupResult. Raises KafkaError, as all of these: the answer is an error."""
        group = self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self._consumer.classic_join(request, ticket, now_ms)
        if isinstance(group, StreamsGroup) and group.is_empty:
            return self._streams.join_after_end(request, ticket)
        return self._classic.join(request, ticket, now_ms)

    def sync_group(self, request: SyncGroup, ticket: Ticket, now_ms: int) -> Effects:
        """Answered with a SyncGroupResult."""
        if isinstance(self._groups.get(request.group_id), ConsumerGroup):
            return self._consumer.classic_sync(request, ticket, now_ms)
        return self._classic.sync(request, ticket, now_ms)

    def heartbeat(self, request: Heartbeat, ticket: Ticket, now_ms: int) -> Effects:
        """Answered with a HeartbeatResult."""
        if isinstance(self._groups.get(request.group_id), ConsumerGroup):
            return self._consumer.classic_heartbeat(request, ticket, now_ms)
        return self._classic.heartbeat(request, ticket, now_ms)

    def leave_group(self, request: LeaveGroup, ticket: Ticket, now_ms: int) -> Effects:
        """Answered with a LeaveGroupResult."""
        if isinstance(self._groups.get(request.group_id), ConsumerGroup):
            return self._consumer.classic_leave(request, ticket, now_ms)
        return self._classic.leave(request, ticket, now_ms)

    # KIP-848

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeat, ticket: Ticket, now_ms: int
    ) -> Effects:
        """Answered with a ConsumerGroupHeartbeatResult."""
        return self._consumer.heartbeat(request, ticket, now_ms)

    def regexes_due(self, group_id: str, now_ms: int, *, has_rules: bool) -> list[str]:
        """What is to be matched before a member's next heartbeat or join: ``subscription.regexes_due``."""
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return []
        return self._consumer.regexes_due(group, now_ms, has_rules=has_rules)

    # KIP-932

    def share_group_heartbeat(self, request: ShareGroupHeartbeat, ticket: Ticket, now_ms: int) -> Effects:
        """Answered with a ShareGroupHeartbeatResult."""
        return self._share.heartbeat(request, ticket, now_ms)

    def describe_share_group(self, group_id: str) -> DescribedShareGroup:
        return self._share.describe(group_id)

    def share_partitions(self, group_id: str) -> Mapping[UUID, NamedPartitions]:
        """Those of which the share coordinator keeps state for the group, by topic id."""
        return self._share.initialized_partitions(group_id)

    def alter_share_offsets(self, request: AlterShareGroupOffsets, ticket: Ticket, now_ms: int) -> Effects:
        """Answered with an AlterShareGroupOffsetsResult."""
        return self._share.alter_offsets(request, ticket, now_ms)

    def delete_share_offsets(
        self, group_id: str, topics: Collection[str], ticket: Ticket, now_ms: int
    ) -> Effects:
        """Answered with a DeleteShareGroupOffsetsResult."""
        return self._share.delete_offsets(group_id, topics, ticket, now_ms)

    # KIP-1071

    def streams_group_heartbeat(self, request: StreamsGroupHeartbeat, ticket: Ticket, now_ms: int) -> Effects:
        """Answered with a StreamsGroupHeartbeatResult."""
        return self._streams.heartbeat(request, ticket, now_ms)

    def describe_streams_group(self, group_id: str) -> DescribedStreamsGroup:
        return self._streams.describe(group_id)

    # Offsets

    def commit_offsets(self, request: OffsetCommit, ticket: Ticket, now_ms: int) -> Effects:
        """Answered with an OffsetCommitResult."""
        return self._offsets.commit(request, ticket, now_ms)

    def commit_transactional_offsets(self, request: TxnOffsetCommit, ticket: Ticket, now_ms: int) -> Effects:
        """Answered with an OffsetCommitResult."""
        return self._offsets.commit_transactional(request, ticket, now_ms)

    def end_transaction(self, request: EndTransaction, ticket: Ticket, now_ms: int) -> Effects:
        """Answered with None."""
        return self._offsets.end_transaction(request, ticket)

    def fetch_offsets(self, request: OffsetFetchGroup) -> OffsetFetchResult:
        return self._offsets.fetch(request)

    def delete_offsets(
        self, group_id: str, partitions: Collection[TopicPartition], ticket: Ticket, now_ms: int
    ) -> Effects:
        """Answered with an OffsetCommitResult, in the order of ``partitions``."""
        return self._offsets.delete(group_id, partitions, ticket, now_ms)

    # Admin

    def list_groups(self) -> list[ListedGroup]:
        return [group.listed() for group in self._groups.values()]

    def groups(self) -> list[Group]:
        """All groups, as they are now."""
        return list(self._groups.values())

    def group(self, group_id: str) -> Group | None:
        """One group, as it is now. Not to be changed."""
        return self._groups.get(group_id)

    def consumer_session_timeout_ms(self, group_id: str) -> int:
        """That of a group's members that speak KIP-848's protocol."""
        return self._settings.consumer_group(group_id).session_timeout_ms

    def offsets_of(self, group_id: str) -> Mapping[str, Mapping[int, CommittedOffset]]:
        """What a group has committed, by topic and partition. Not to be held while anything else happens."""
        return self._offsets.committed_of(group_id)

    @property
    def offsets_count(self) -> int:
        return self._offsets.committed_count

    @property
    def memory_bytes(self) -> int:
        """What the groups and their members take."""
        return self._memory.used_bytes

    def describe_group(self, group_id: str) -> DescribedGroup:
        """A group of the classic protocol; others as a KafkaError GROUP_ID_NOT_FOUND or Dead, see there."""
        return self._classic.describe(group_id)

    def describe_consumer_group(self, group_id: str) -> DescribedConsumerGroup:
        return self._consumer.describe(group_id)

    def delete_group(self, group_id: str, ticket: Ticket, now_ms: int) -> Effects:
        """Answered with None. What the share coordinator keeps of a share group is deleted before.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        self._deletable(group_id)
        if isinstance(self._groups.get(group_id), ShareGroup):
            return self._share.delete(
                group_id, ticket, now_ms, then=lambda: self._end_group(group_id, ticket)
            )
        return self._end_group(group_id, ticket)

    def _end_group(self, group_id: str, ticket: Ticket) -> Effects:
        group = self._deletable(group_id)
        records = self._offsets.delete_groups_offsets(group_id) + group.tombstones()
        return [Tombstones(self, records, Answer(ticket, None))]

    def _deletable(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        group.check_delete()
        return group

    # What the clock and the cluster bring

    def expired(self, operation: GroupOperation, now_ms: int) -> Effects:
        """The time of a parked operation is up."""
        match self._groups.get(operation.group_id):
            case ConsumerGroup():
                return self._consumer.expired(operation, now_ms)
            case ShareGroup():
                return self._share.expired(operation, now_ms)
            case StreamsGroup():
                return self._streams.expired(operation, now_ms)
            case _:
                return self._classic.expired(operation, now_ms)

    def clean_up(self, now_ms: int) -> Effects:
        """Every ``offsets.retention.check.interval.ms``: expired offsets and groups without any go."""
        return self._remove(self._offsets.expired_records(now_ms))

    def topics_deleted(self, topics: Mapping[str, UUID], now_ms: int) -> Effects:
        """``topics``: name → id."""
        return self._remove(self._offsets.topics_deleted(topics)) + self._share.topics_deleted(now_ms)

    def _remove(self, records: list[GroupRecord]) -> Effects:
        return [
            Tombstones(self, records[first : first + TOMBSTONES_MAX])
            for first in range(0, len(records), TOMBSTONES_MAX)
        ]

    # The log

    def replay(self, record: GroupRecord, now_ms: int, *, producer_id: int = -1) -> None:
        """Take in one record, in the order of the log."""
        match record.key:
            case OffsetCommitKey() as key:
                assert record.value is None or isinstance(record.value, OffsetCommitValue)
                self._offsets.replay(key, record.value, producer_id=producer_id)
            case GroupMetadataKey() as key:
                assert record.value is None or isinstance(record.value, GroupMetadataValue)
                self._classic.replay(key, record.value, now_ms)
            case (
                ShareGroupMemberMetadataKey()
                | ShareGroupMetadataKey()
                | ShareGroupTargetAssignmentMetadataKey()
                | ShareGroupTargetAssignmentMemberKey()
                | ShareGroupCurrentMemberAssignmentKey()
                | ShareGroupStatePartitionMetadataKey()
            ):
                self._share.replay(record, now_ms)
            case (
                StreamsGroupMetadataKey()
                | StreamsGroupMemberMetadataKey()
                | StreamsGroupTargetAssignmentMetadataKey()
                | StreamsGroupTargetAssignmentMemberKey()
                | StreamsGroupCurrentMemberAssignmentKey()
                | StreamsGroupTopologyKey()
            ):
                self._streams.replay(record, now_ms)
            case _:
                self._consumer.replay(record, now_ms)

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """A transaction that committed offsets has ended."""
        self._offsets.replay_marker(producer_id, committed=committed)

    def loaded(self, now_ms: int) -> Effects:
        """The log is replayed: begin."""
        parts = (self._classic, self._consumer, self._share, self._streams)
        return [effect for part in parts for effect in part.loaded(now_ms)]

    def waiting(self) -> list[Ticket]:
        """Who waits for an answer of this shard, which is being unloaded."""
        return self._classic.waiting() + self._consumer.waiting() + self._share.waiting()
