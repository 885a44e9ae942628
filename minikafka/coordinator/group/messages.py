"""Requests that reach a group, results that leave it, and what its shard wants done; no versions, no bytes.

Kafka: ``JoinGroupRequestData`` and its like. Handlers in ``server.apis`` make these from requests and write
results as bodies. Ids are strings as on the wire; an absent member id is empty.

**What a shard wants done**, see ``coordinator.effects``; ``server`` does it. State that must equal the log
changes in an append's ``written``, never before: an append that is refused has changed nothing. What clients
may see before it is safe changes in ``committed`` (KAFKA_BEHAVIOUR: a committed offset). What waits is a
join, a sync, a heartbeat or a revocation. Besides, groups ask the share coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec

from minikafka.coordinator import effects
from minikafka.coordinator.effects import Answer as Answer
from minikafka.coordinator.effects import Complete as Complete
from minikafka.coordinator.effects import Park as Park
from minikafka.coordinator.effects import Ticket as Ticket
from minikafka.coordinator.effects import coordinator_error as coordinator_error
from minikafka.coordinator.share.messages import InitializeShareState, SharePartitionError, TopicIdPartition
from minikafka.errors import ErrorCode, KafkaError
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.internal.group_records import (
    GroupRecord,
    StreamsGroupMemberMetadataValue,
    StreamsGroupTopologyValue,
    StreamsTopicInfo,
    TaskIds,
    TopicPartitions,
)
from minikafka.types import TopicPartition

NO_GENERATION = -1
"""Of a client that commits without being a member, and of answers that refuse."""

MayDescribe = Callable[[str], bool]
"""Whether who asks may describe the topic of that name."""


class JoinGroup(msgspec.Struct, frozen=True, kw_only=True):
    group_id: str
    member_id: str
    group_instance_id: str | None = None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """Name and metadata, the preferred one first."""
    requires_known_member_id: bool
    """Version 4 and later without a group instance id: an unknown member gets its id first (KIP-394)."""
    supports_skipping_assignment: bool
    """Version 9 and later (KIP-814)."""
    reason: str | None = None
    may_describe: MayDescribe | None = None
    """Which topics the regular expressions of a group may match that is one of KIP-848; None: all."""


class JoinedMember(msgspec.Struct, frozen=True):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinGroupResult(msgspec.Struct, frozen=True, kw_only=True):
    error: ErrorCode = ErrorCode.NONE
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: tuple[JoinedMember, ...] = ()
    """Only the leader's answer has them."""


class SyncGroup(msgspec.Struct, frozen=True, kw_only=True):
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes]


class SyncGroupResult(msgspec.Struct, frozen=True, kw_only=True):
    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None = None


class HeartbeatResult(msgspec.Struct, frozen=True):
    error: ErrorCode = ErrorCode.NONE


class LeavingMember(msgspec.Struct, frozen=True):
    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


class LeaveGroup(msgspec.Struct, frozen=True):
    group_id: str
    members: tuple[LeavingMember, ...]


class LeaveGroupResult(msgspec.Struct, frozen=True):
    """One error a member, in the order of the request."""

    members: tuple[tuple[LeavingMember, ErrorCode], ...]


class OffsetToCommit(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    topic_id: UUID | None = None
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None
    timestamp_ms: int = -1


class OffsetCommit(msgspec.Struct, frozen=True, kw_only=True):
    """The partitions exist: the handler answers for those that do not."""

    group_id: str
    generation_or_member_epoch: int
    member_id: str
    group_instance_id: str | None = None
    retention_time_ms: int = -1
    offsets: tuple[OffsetToCommit, ...]
    version: int
    """Of the API: a STALE_MEMBER_EPOCH and the like are only for versions that have them."""


class TxnOffsetCommit(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets that a producer commits with its transaction (KIP-98, KIP-447). The partitions exist."""

    group_id: str
    generation: int = NO_GENERATION
    """Or a member epoch; with -1 and no member id it is not said who reads (versions before 3)."""
    member_id: str = ""
    group_instance_id: str | None = None
    producer_id: int
    producer_epoch: int
    verification_guard: object = None
    """Of the check with the transaction coordinator (KIP-890)."""
    offsets: tuple[OffsetToCommit, ...]
    version: int


class EndTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """A marker for a partition of ``__consumer_offsets`` (WriteTxnMarkers)."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int = -1
    timeout_ms: int


class OffsetCommitResult(msgspec.Struct, frozen=True):
    """In the order of the request."""

    errors: tuple[ErrorCode, ...]


class OffsetFetchGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One group of an OffsetFetch; ``partitions`` None asks for all of the group's."""

    group_id: str
    member_id: str | None = None
    member_epoch: int = -1
    partitions: tuple[TopicPartition, ...] | None
    topic_ids: Mapping[str, UUID] = {}
    """Of those topics that were asked for by id."""
    require_stable: bool


class FetchedOffset(msgspec.Struct, frozen=True, kw_only=True):
    """``offset`` -1: none is committed."""

    topic_partition: TopicPartition
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


class OffsetFetchResult(msgspec.Struct, frozen=True):
    offsets: tuple[FetchedOffset, ...]


class DescribedMember(msgspec.Struct, frozen=True, kw_only=True):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group of the classic protocol, for DescribeGroups."""

    group_id: str
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    state: str = "Dead"
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()


class ListedGroup(msgspec.Struct, frozen=True):
    """``group_type`` is "classic", "consumer", "share" or "streams"; ``state`` as Kafka spells it."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


class ModernGroupHeartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """What a member of a consumer group (KIP-848) and one of a share group (KIP-932) say alike. None: not
    changed since the last heartbeat."""

    group_id: str
    member_id: str
    member_epoch: int
    """0 joins, -1 leaves; -2 leaves for a while (static members of consumer groups)."""
    rack_id: str | None = None
    subscribed_topic_names: tuple[str, ...] | None = None
    client_id: str
    client_host: str


class ModernGroupHeartbeatResult(msgspec.Struct, frozen=True, kw_only=True):
    """And what they hear."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: TopicPartitions | None = None
    """None: as it was."""


class DescribedModernMember(msgspec.Struct, frozen=True, kw_only=True):
    """What is told of members of either kind of group."""

    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    assignment: TopicPartitions

    def topic_ids(self) -> Iterable[UUID]:
        """Of all that it has, or shall have."""
        return self.assignment


class DescribedModernGroup(msgspec.Struct, frozen=True, kw_only=True):
    """For ConsumerGroupDescribe, ShareGroupDescribe and StreamsGroupDescribe; each has its own members."""

    group_id: str
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str | None = ""
    members: tuple[Any, ...] = ()


class ConsumerGroupHeartbeat(ModernGroupHeartbeat, frozen=True, kw_only=True):
    """``rebalance_timeout_ms`` -1: not changed."""

    instance_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    topic_partitions: TopicPartitions | None = None
    version: int
    """Of the API: since 1 the client makes the member id, and may send a regular expression."""
    may_describe: MayDescribe | None = None
    """Which topics a regular expression may match; None: all."""


class ConsumerGroupHeartbeatResult(ModernGroupHeartbeatResult, frozen=True, kw_only=True):
    pass


class DescribedConsumerMember(DescribedModernMember, frozen=True, kw_only=True):
    instance_id: str | None
    subscribed_topic_regex: str | None
    target_assignment: TopicPartitions
    member_type: int
    """1: KIP-848; 0: classic."""

    def topic_ids(self) -> Iterable[UUID]:
        return (*self.assignment, *self.target_assignment)


class DescribedConsumerGroup(DescribedModernGroup, frozen=True, kw_only=True):
    members: tuple[DescribedConsumerMember, ...] = ()


class ShareGroupHeartbeat(ModernGroupHeartbeat, frozen=True, kw_only=True):
    pass


class ShareGroupHeartbeatResult(ModernGroupHeartbeatResult, frozen=True, kw_only=True):
    pass


class DescribedShareMember(DescribedModernMember, frozen=True, kw_only=True):
    pass


class DescribedShareGroup(DescribedModernGroup, frozen=True, kw_only=True):
    members: tuple[DescribedShareMember, ...] = ()


class AlterShareGroupOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """The start offsets that the partitions of topics get."""

    group_id: str
    topics: Mapping[str, Mapping[int, int]]


class AlterShareGroupOffsetsResult(msgspec.Struct, frozen=True):
    """The error of each partition, None for one whose start offset is set."""

    topics: Mapping[str, Mapping[int, KafkaError | None]]


class DeleteShareGroupOffsetsResult(msgspec.Struct, frozen=True):
    """The error of each topic, None for one of which the share coordinator keeps nothing any more."""

    topics: Mapping[str, KafkaError | None]


class StreamsTask(NamedTuple):
    """A task, and how far its changelogs are, or where they end."""

    subtopology_id: str
    partition: int
    offset: int


class StreamsGroupHeartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """None: not changed since the last heartbeat (KIP-1071). ``rebalance_timeout_ms`` -1 likewise."""

    group_id: str
    member_id: str
    member_epoch: int
    """0 joins, -1 leaves, -2 leaves for a while (static members)."""
    endpoint_information_epoch: int = -1
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: StreamsGroupTopologyValue | None = None
    active_tasks: TaskIds | None = None
    standby_tasks: TaskIds | None = None
    warmup_tasks: TaskIds | None = None
    process_id: str | None = None
    user_endpoint: tuple[str, int] | None = None
    client_tags: tuple[tuple[str, str], ...] | None = None
    task_offsets: tuple[StreamsTask, ...] | None = None
    task_end_offsets: tuple[StreamsTask, ...] | None = None
    shutdown_application: bool = False
    client_id: str
    client_host: str
    version: int
    """Of the API: since 1 a member is told which of its client tags are missing."""


class StreamsStatus(msgspec.Struct, frozen=True):
    """What keeps a streams application from working, as a heartbeat tells it."""

    code: int
    detail: str


class EndpointPartitions(msgspec.Struct, frozen=True):
    """Of which partitions of which topics a process answers interactive queries, and where."""

    endpoint: tuple[str, int]
    active: tuple[tuple[str, tuple[int, ...]], ...]
    standby: tuple[tuple[str, tuple[int, ...]], ...]


class MemberTasks(msgspec.Struct, frozen=True):
    """By subtopology."""

    active: TaskIds
    standby: TaskIds
    warmup: TaskIds


class StreamsGroupHeartbeatResult(msgspec.Struct, frozen=True, kw_only=True):
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    task_offset_interval_ms: int = 0
    acceptable_recovery_lag: int = 0
    status: tuple[StreamsStatus, ...] = ()
    tasks: MemberTasks | None = None
    """None: as they were."""
    endpoint_information_epoch: int = 0
    partitions_by_user_endpoint: tuple[EndpointPartitions, ...] | None = None
    """None: as they were."""
    internal_topics: tuple[StreamsTopicInfo, ...] = ()
    """Those that the application needs and that are not there, with the partitions that they shall have."""


class DescribedStreamsMember(msgspec.Struct, frozen=True, kw_only=True):
    member_id: str
    member_epoch: int
    metadata: StreamsGroupMemberMetadataValue
    task_offsets: tuple[StreamsTask, ...]
    task_end_offsets: tuple[StreamsTask, ...]
    assignment: MemberTasks
    target_assignment: MemberTasks


class DescribedStreamsGroup(DescribedModernGroup, frozen=True, kw_only=True):
    """The topology has the partitions that its topics have, when all are there."""

    assignor_name: str | None = None
    topology: StreamsGroupTopologyValue | None = None
    members: tuple[DescribedStreamsMember, ...] = ()


class InitializeShareStates(NamedTuple):
    """Have the share coordinator keep state of partitions; ``done`` hears what became of each, as a call of
    the shard."""

    group_id: str
    partitions: tuple[InitializeShareState, ...]
    done: Callable[[list[SharePartitionError], int], Effects]


class DeleteShareStates(NamedTuple):
    """Have the share coordinator forget partitions; ``done`` as above."""

    group_id: str
    partitions: tuple[TopicIdPartition, ...]
    done: Callable[[list[SharePartitionError], int], Effects]


class ComputeAssignment(NamedTuple):
    """Have a large assignment worked out beside the loop, which it would hold. ``compute`` uses nothing that
    changes; ``done`` hears what comes of it, as a call of the shard, or None: it has failed."""

    group_id: str
    compute: Callable[[], Mapping[str, Any]]
    """What each member shall have, by its id: of what kind it is, is the group's."""
    done: Callable[[Mapping[str, Any] | None, int], Effects]


class Append(effects.Append[GroupRecord, "Effect"]):
    """Records of groups; see there."""

    __slots__ = ()


class OperationKind(Enum):
    """What waits. JOIN, SYNC and NEW_MEMBER are Kafka's DelayedRebalance, SESSION its DelayedHeartbeat."""

    JOIN = "join"
    """A group prepares a rebalance until all members have joined again; ``member_id`` is empty."""
    SYNC = "sync"
    """A group waits until all members have synced (KIP-394's pending syncs); ``member_id`` is empty."""
    NEW_MEMBER = "new-member"
    """An id was given out that has not joined yet (KIP-394)."""
    SESSION = "session"
    """A member must be heard of."""
    REVOCATION = "revocation"
    """A member of a KIP-848 group must give partitions back within its rebalance timeout; one of a streams
    group tasks."""
    FIRST_ASSIGNMENT = "first-assignment"
    """The first members of a streams group wait for others; ``member_id`` is empty."""


class GroupOperation(NamedTuple):
    """The name of a delayed operation."""

    kind: OperationKind
    group_id: str
    member_id: str = ""


Effect = (
    Answer
    | Append
    | Park[GroupOperation]
    | Complete[GroupOperation]
    | ComputeAssignment
    | InitializeShareStates
    | DeleteShareStates
)
Effects = list[Effect]
