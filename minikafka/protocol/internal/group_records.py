"""What the records of ``__consumer_offsets`` say, as keys and values of Kafka's names.

Kafka: ``group-coordinator/src/main/resources/common/message/*.json``, ``GroupCoordinatorRecordHelpers``. A
record is a key and a value, or a key and None: a tombstone. Bytes: ``group_record_codec``.

=====  ================================  =========================================
type   key                               since
=====  ================================  =========================================
0, 1   OffsetCommitKey                   a committed offset
2      GroupMetadataKey                  a group of the classic protocol
3      ConsumerGroupMetadataKey          the group epoch (KIP-848, as all below)
4      ConsumerGroupPartitionMetadataKey the subscribed topics' partitions (until 4.0)
5      ConsumerGroupMemberMetadataKey    what a member is and wants
6      ConsumerGroupTargetAssignment-    the epoch of the target assignment
       MetadataKey
7      ConsumerGroupTargetAssignment-    what a member shall own
       MemberKey
8      ConsumerGroupCurrentMember-       what a member owns, and in which epoch
       AssignmentKey
10     ShareGroupMemberMetadataKey       what a member of a share group is and wants (KIP-932, to 15)
11     ShareGroupMetadataKey             the group epoch
12     ShareGroupTargetAssignment-       the epoch of the target assignment
       MetadataKey
13     ShareGroupTargetAssignment-       what a member shall share in
       MemberKey
14     ShareGroupCurrentMember-          what a member shares in, and in which epoch
       AssignmentKey
15     ShareGroupStatePartitionMetadata- which partitions have state with the share coordinator
       Key
16     ConsumerGroupRegularExpressionKey what a regular expression resolved to
17     StreamsGroupMetadataKey           the group epoch of a streams group (KIP-1071, to 23)
19     StreamsGroupMemberMetadataKey     what a member is: where it runs, with which topology
20     StreamsGroupTargetAssignment-     the epoch of the target assignment
       MetadataKey
21     StreamsGroupTargetAssignment-     which tasks a member shall have
       MemberKey
22     StreamsGroupCurrentMember-        which tasks a member has, and in which epoch
       AssignmentKey
23     StreamsGroupTopologyKey           the topology that the group was initialized with
=====  ================================  =========================================
"""

from __future__ import annotations

from uuid import UUID

import msgspec

TopicPartitions = dict[UUID, frozenset[int]]
"""Partition numbers by topic id; no topic without partitions."""
TaskIds = dict[str, frozenset[int]]
"""Partition numbers by subtopology id; no subtopology without partitions."""
TaskEpochs = dict[str, dict[int, int]]
"""The same, and of each task the member epoch in which it was assigned."""


class OffsetCommitKey(msgspec.Struct, frozen=True):
    group_id: str
    topic: str
    partition: int


class OffsetCommitValue(msgspec.Struct, frozen=True, kw_only=True):
    """A committed offset; ``expire_timestamp_ms`` only where the client has set one (OffsetCommit 2 to 4)."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None = None
    topic_id: UUID | None = None


class GroupMetadataKey(msgspec.Struct, frozen=True):
    group_id: str


class MemberMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """A member in a ``GroupMetadataValue``."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupMetadataValue(msgspec.Struct, frozen=True, kw_only=True):
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp_ms: int
    members: tuple[MemberMetadata, ...]


class ConsumerGroupMetadataKey(msgspec.Struct, frozen=True):
    group_id: str


class ConsumerGroupMetadataValue(msgspec.Struct, frozen=True, kw_only=True):
    epoch: int
    metadata_hash: int = 0


class ConsumerGroupPartitionMetadataKey(msgspec.Struct, frozen=True):
    group_id: str


class ConsumerGroupPartitionMetadataValue(msgspec.Struct, frozen=True):
    """Only ever read, in logs that Kafka 3.7 to 4.0 wrote; the hash has replaced it."""


class ConsumerGroupMemberMetadataKey(msgspec.Struct, frozen=True):
    group_id: str
    member_id: str


class ClassicProtocol(msgspec.Struct, frozen=True):
    """An assignor that a member of the classic protocol supports, and its subscription for it."""

    name: str
    metadata: bytes


class ClassicMemberMetadata(msgspec.Struct, frozen=True):
    """What is kept of a member of a KIP-848 group that still speaks the classic protocol."""

    session_timeout_ms: int
    supported_protocols: tuple[ClassicProtocol, ...]


class ConsumerGroupMemberMetadataValue(msgspec.Struct, frozen=True, kw_only=True):
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...] = ()
    subscribed_topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic_member_metadata: ClassicMemberMetadata | None = None


class ConsumerGroupTargetAssignmentMetadataKey(msgspec.Struct, frozen=True):
    group_id: str


class ConsumerGroupTargetAssignmentMetadataValue(msgspec.Struct, frozen=True):
    assignment_epoch: int


class ConsumerGroupTargetAssignmentMemberKey(msgspec.Struct, frozen=True):
    group_id: str
    member_id: str


class ConsumerGroupTargetAssignmentMemberValue(msgspec.Struct, frozen=True):
    topic_partitions: TopicPartitions


class ConsumerGroupCurrentMemberAssignmentKey(msgspec.Struct, frozen=True):
    group_id: str
    member_id: str


class ConsumerGroupCurrentMemberAssignmentValue(msgspec.Struct, frozen=True, kw_only=True):
    """``state`` is Kafka's MemberState: 0 STABLE, 1 UNREVOKED_PARTITIONS, 2 UNRELEASED_PARTITIONS,
    127 UNKNOWN."""

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: TopicPartitions
    partitions_pending_revocation: TopicPartitions


class ConsumerGroupRegularExpressionKey(msgspec.Struct, frozen=True):
    group_id: str
    regular_expression: str


class ConsumerGroupRegularExpressionValue(msgspec.Struct, frozen=True, kw_only=True):
    topics: tuple[str, ...]
    version: int
    """Of the metadata that it was resolved against."""
    timestamp_ms: int


class ShareGroupMemberMetadataKey(msgspec.Struct, frozen=True):
    group_id: str
    member_id: str


class ShareGroupMemberMetadataValue(msgspec.Struct, frozen=True, kw_only=True):
    rack_id: str | None = None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...] = ()


class ShareGroupMetadataKey(msgspec.Struct, frozen=True):
    group_id: str


class ShareGroupMetadataValue(msgspec.Struct, frozen=True, kw_only=True):
    epoch: int
    metadata_hash: int


class ShareGroupTargetAssignmentMetadataKey(msgspec.Struct, frozen=True):
    group_id: str


class ShareGroupTargetAssignmentMetadataValue(msgspec.Struct, frozen=True):
    assignment_epoch: int
    assignment_timestamp_ms: int = 0
    """When the assignment was worked out (KIP-1263); 0: not known."""


class ShareGroupTargetAssignmentMemberKey(msgspec.Struct, frozen=True):
    group_id: str
    member_id: str


class ShareGroupTargetAssignmentMemberValue(msgspec.Struct, frozen=True):
    topic_partitions: TopicPartitions


class ShareGroupCurrentMemberAssignmentKey(msgspec.Struct, frozen=True):
    group_id: str
    member_id: str


class ShareGroupCurrentMemberAssignmentValue(msgspec.Struct, frozen=True, kw_only=True):
    """``state`` is Kafka's MemberState, always 0 STABLE: partitions are shared, so none is waited for."""

    member_epoch: int
    previous_member_epoch: int
    state: int = 0
    assigned_partitions: TopicPartitions


class ShareGroupStatePartitionMetadataKey(msgspec.Struct, frozen=True):
    group_id: str


class NamedPartitions(msgspec.Struct, frozen=True):
    """Partitions of a topic, by the name that it had (Kafka: ``InitMapValue``)."""

    topic: str
    partitions: frozenset[int]


class ShareGroupStatePartitionMetadataValue(msgspec.Struct, frozen=True, kw_only=True):
    """By topic id; ``deleting`` names the topics whose state is being deleted."""

    initializing: dict[UUID, NamedPartitions] = {}
    initialized: dict[UUID, NamedPartitions] = {}
    deleting: dict[UUID, str] = {}


class StreamsGroupMetadataKey(msgspec.Struct, frozen=True):
    group_id: str


class StreamsGroupMetadataValue(msgspec.Struct, frozen=True, kw_only=True):
    epoch: int
    metadata_hash: int = 0
    validated_topology_epoch: int = -1
    """The topology whose topics are all there, as they must be; -1: not so."""
    last_assignment_configs: tuple[tuple[str, str], ...] | None = None
    """With which configuration tasks are assigned; a change makes another epoch."""
    stored_description_topology_epoch: int = -1
    failed_description_topology_epoch: int = -1
    """Of a broker's plugin for topology descriptions (KIP-1331): none here, and kept as they were read."""


class StreamsGroupMemberMetadataKey(msgspec.Struct, frozen=True):
    group_id: str
    member_id: str


class StreamsGroupMemberMetadataValue(msgspec.Struct, frozen=True, kw_only=True):
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    """Of the application's process, which may have several members."""
    user_endpoint: tuple[str, int] | None = None
    """Host and port where the process answers interactive queries."""
    client_tags: tuple[tuple[str, str], ...] = ()


class StreamsGroupTargetAssignmentMetadataKey(msgspec.Struct, frozen=True):
    group_id: str


class StreamsGroupTargetAssignmentMetadataValue(msgspec.Struct, frozen=True):
    assignment_epoch: int
    assignment_timestamp_ms: int = 0
    """When the assignment was worked out (KIP-1263); 0: not known."""


class StreamsGroupTargetAssignmentMemberKey(msgspec.Struct, frozen=True):
    group_id: str
    member_id: str


class StreamsGroupTargetAssignmentMemberValue(msgspec.Struct, frozen=True, kw_only=True):
    active_tasks: TaskIds = {}
    standby_tasks: TaskIds = {}
    warmup_tasks: TaskIds = {}


class StreamsGroupCurrentMemberAssignmentKey(msgspec.Struct, frozen=True):
    group_id: str
    member_id: str


class StreamsGroupCurrentMemberAssignmentValue(msgspec.Struct, frozen=True, kw_only=True):
    """``state`` is Kafka's ``streams.MemberState``: 1 stable, 2 unrevoked tasks, 3 unreleased tasks."""

    member_epoch: int
    previous_member_epoch: int
    state: int
    active_tasks: TaskEpochs = {}
    standby_tasks: TaskIds = {}
    warmup_tasks: TaskIds = {}
    active_tasks_pending_revocation: TaskEpochs = {}
    standby_tasks_pending_revocation: TaskIds = {}
    warmup_tasks_pending_revocation: TaskIds = {}


class StreamsGroupTopologyKey(msgspec.Struct, frozen=True):
    group_id: str


class StreamsTopicInfo(msgspec.Struct, frozen=True):
    """An internal topic; 0 partitions: to be derived, 0 replicas: the broker's default."""

    name: str
    partitions: int
    replication_factor: int
    topic_configs: tuple[tuple[str, str], ...] = ()


class StreamsCopartitionGroup(msgspec.Struct, frozen=True):
    """Indices into the lists of the subtopology of the same names."""

    source_topics: tuple[int, ...] = ()
    source_topic_regex: tuple[int, ...] = ()
    repartition_source_topics: tuple[int, ...] = ()


class StreamsSubtopology(msgspec.Struct, frozen=True, kw_only=True):
    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    source_topic_regex: tuple[str, ...] = ()
    state_changelog_topics: tuple[StreamsTopicInfo, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()
    repartition_source_topics: tuple[StreamsTopicInfo, ...] = ()
    copartition_groups: tuple[StreamsCopartitionGroup, ...] = ()


class StreamsGroupTopologyValue(msgspec.Struct, frozen=True):
    epoch: int
    subtopologies: tuple[StreamsSubtopology, ...] = ()


Key = (
    OffsetCommitKey
    | GroupMetadataKey
    | ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
    | ShareGroupMemberMetadataKey
    | ShareGroupMetadataKey
    | ShareGroupTargetAssignmentMetadataKey
    | ShareGroupTargetAssignmentMemberKey
    | ShareGroupCurrentMemberAssignmentKey
    | ShareGroupStatePartitionMetadataKey
    | StreamsGroupMetadataKey
    | StreamsGroupMemberMetadataKey
    | StreamsGroupTargetAssignmentMetadataKey
    | StreamsGroupTargetAssignmentMemberKey
    | StreamsGroupCurrentMemberAssignmentKey
    | StreamsGroupTopologyKey
)
Value = (
    OffsetCommitValue
    | GroupMetadataValue
    | ConsumerGroupMetadataValue
    | ConsumerGroupPartitionMetadataValue
    | ConsumerGroupMemberMetadataValue
    | ConsumerGroupTargetAssignmentMetadataValue
    | ConsumerGroupTargetAssignmentMemberValue
    | ConsumerGroupCurrentMemberAssignmentValue
    | ConsumerGroupRegularExpressionValue
    | ShareGroupMemberMetadataValue
    | ShareGroupMetadataValue
    | ShareGroupTargetAssignmentMetadataValue
    | ShareGroupTargetAssignmentMemberValue
    | ShareGroupCurrentMemberAssignmentValue
    | ShareGroupStatePartitionMetadataValue
    | StreamsGroupMetadataValue
    | StreamsGroupMemberMetadataValue
    | StreamsGroupTargetAssignmentMetadataValue
    | StreamsGroupTargetAssignmentMemberValue
    | StreamsGroupCurrentMemberAssignmentValue
    | StreamsGroupTopologyValue
)


class GroupRecord(msgspec.Struct, frozen=True):
    """One record of ``__consumer_offsets`` (Kafka: ``CoordinatorRecord``). A value of None is a tombstone."""

    key: Key
    value: Value | None
