"""What the status page shows: a broker, and the cluster as far as it knows, as one document.

It is made from live objects when it is asked for, and nothing is kept for it. Its words are Kafka's. What is
true of the whole cluster is what the controller last told this broker (``MetadataCache``); everything else is
this broker's own, and what only others know is None here:

- High watermark and log end are those of the replica on this broker. The leader's are the partition's; a
  follower's may be behind, which is why ``offsets_from`` says whose they are.
- Groups are those that this broker coordinates; ``coordinators`` says who has the others.
- A lag is the high watermark less the committed offset, known where the partition is led here.

Invariants: no list is longer than its limit, and the field ``…_left_out`` beside it counts the others;
partitions in trouble come first, the worst before the others, so that no limit hides them. There is nothing
of any record in it.

In parts: the cluster and its partitions; the groups that this broker coordinates, and their lag; the share
partitions of the partitions that it leads (KIP-932), and the members of the streams groups that it
coordinates, with their tasks (KIP-1071); quotas of clients and of replication, and the last throttles; the
listeners, and who is connected through them, without passwords, tokens and certificates.

**The page** that draws it, ``/``: one HTML file with its style and its script inside, made of the files in
``page/``. The browser is told their hashes (Content-Security-Policy), so it runs nothing else, and loads
nothing from anywhere but the server that it has the page from. There is no build: the scripts stand one after
the other in one ``<script>``, in the order of ``SCRIPTS``, and share their names.

What the page draws comes as JSON: ``api/…`` from the console (``minikafka.cli.console``), and where there is
none what a broker says of itself: ``status.json``, ``events.json``, ``purgatory.json``.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from minikafka import __version__
from minikafka.config.client_quotas import QuotaFilter
from minikafka.coordinator.group.messages import DescribedStreamsMember, ListedGroup
from minikafka.coordinator.group.shard import GroupShard
from minikafka.deferred import deferred
from minikafka.errors import KafkaError
from minikafka.network.addresses import format_address
from minikafka.network.socket_server import SocketServer
from minikafka.server.apis.diagnostics import KINDS
from minikafka.server.cluster.metadata_cache import MetadataCache, PartitionMetadata, TopicMetadata
from minikafka.server.cluster.topic_validation import GROUP_METADATA_TOPIC
from minikafka.server.coordinator.hosted_shard import ShardState
from minikafka.server.http.server import HttpRequest, HttpResponse
from minikafka.server.runtime.work_scheduler import TimeSlice
from minikafka.server.services import Services
from minikafka.types import BrokerId, TopicPartition

if TYPE_CHECKING:
    from minikafka.server.share.share_partitions import HostedSharePartition
    from minikafka.share import share_partition
else:
    share_partition = deferred("minikafka.share.share_partition")


GROUPS_MAX = 200
OFFSETS_MAX = 500
SHARE, STREAMS = "share", "streams"
OFFSETS_SEEN_MAX = 10_000
"""So many committed offsets are looked at: 13 ms, in slices."""

SHARE_PARTITIONS_MAX = 500
STREAMS_MEMBERS_MAX = 200

QUOTAS_MAX = 200
THROTTLES_MAX = 20

_ANY_CLIENT = QuotaFilter({}, strict=False)

CONNECTED_MAX = 200
_SLICE_CONNECTIONS = 1_000

TOPICS_MAX = 200
PARTITIONS_MAX = 500
"""More than anybody reads; the filter finds the others."""
BROKERS_MAX = 200

JSON_CONTENT_TYPE = "application/json"

HTML_CONTENT_TYPE: Final = "text/html; charset=utf-8"

SCRIPTS: Final = (
    "base",
    "numbers",
    "tables",
    "charts",
    "routing",
    "dialog",
    "why",
    "cluster",
    "topics",
    "topic",
    "messages",
    "groups",
    "group",
    "reassignments",
    "access",
    "events",
    "purgatory",
    "questions",
    "broker",
    "start",
)
"""In this order: what the later ones do when they are read, they do with what is in the earlier ones."""


class GroupOffset(msgspec.Struct, frozen=True, kw_only=True):
    """What a group has committed for one partition."""

    group_id: str
    topic: str
    partition: int
    committed_offset: int
    high_watermark: int | None
    """None, like the lag: ``leader`` is another broker, which knows it."""
    lag: int | None
    leader: int
    """-1: none."""


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One group. ``type`` and ``state`` as Kafka spells them."""

    group_id: str
    type: str
    state: str
    members: int
    partitions: int
    """With a committed offset (among those that the filter lets through); of a share group those whose state
    is kept."""
    lag: int | None
    """Over these; None: some broker else leads one of them, or not all offsets were looked at. Of a share
    group that is what its share partitions here say, while members fetch from all of them."""


class Coordinator(msgspec.Struct, frozen=True, kw_only=True):
    """Who has the groups of some partitions of ``__consumer_offsets``."""

    node_id: int
    """-1: none."""
    partitions: int


class GroupsStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Groups with their offsets, by name."""

    groups: list[GroupStatus]
    groups_left_out: int
    offsets: list[GroupOffset]
    offsets_left_out: int
    loading_partitions: int
    """Of ``__consumer_offsets``: their groups are not known yet."""
    failed_partitions: int
    """That could not be loaded."""
    coordinators: list[Coordinator]
    """The others."""


async def describe_groups(
    services: Services,
    time_slice: TimeSlice,
    *,
    topic_filter: str,
    share_lags: Mapping[tuple[str, TopicPartition], int],
) -> GroupsStatus:
    """The groups that are coordinated here; with a filter, those with offsets in such topics. ``share_lags``:
    of share partitions that are served here, by group."""
    hosted = services.groups.hosted_shards()
    states = Counter(shard.state for shard in hosted)
    active = [shard.shard for shard in hosted if shard.state is ShardState.ACTIVE]
    all_groups = sorted(
        ((group.group_id, shard, group) for shard in active for group in shard.groups()),
        key=lambda each: each[0],
    )
    groups: list[GroupStatus] = []
    rows: list[GroupOffset] = []
    listed = seen = left_out = 0
    not_seen = max(0, sum(shard.offsets_count for shard in active) - OFFSETS_SEEN_MAX)
    for _, shard, group in all_groups:
        await time_slice.give_way()
        about = group.listed()
        shared: list[TopicPartition] = []
        if about.group_type == SHARE:
            shared = [each for each in _shared(shard, group.group_id) if topic_filter in each.topic]
        offsets = _offsets(services, shard, group.group_id, OFFSETS_SEEN_MAX - seen)
        seen += len(offsets)
        offsets = [each for each in offsets if topic_filter in each.topic]
        if topic_filter and not offsets and not shared:
            continue
        listed += 1
        left_out += max(0, len(rows) + len(offsets) - OFFSETS_MAX)
        rows += offsets[: OFFSETS_MAX - len(rows)]
        if len(groups) < GROUPS_MAX:
            found = _group(about, len(group.members), offsets, is_all=not not_seen)
            if about.group_type == SHARE:
                found = _share_group(found, shared, share_lags)
            groups.append(found)
    return GroupsStatus(
        groups=groups,
        groups_left_out=listed - len(groups),
        offsets=rows,
        offsets_left_out=left_out + not_seen,
        loading_partitions=states[ShardState.LOADING],
        failed_partitions=states[ShardState.FAILED],
        coordinators=_others(services),
    )


def _offsets(services: Services, shard: GroupShard, group_id: str, count_max: int) -> list[GroupOffset]:
    """What the group has committed, by topic and partition."""
    found = []
    committed = (
        (topic, partition, partitions[partition].offset)
        for topic, partitions in sorted(shard.offsets_of(group_id).items())
        for partition in sorted(partitions)
    )
    for topic, partition, offset in islice(committed, count_max):
        at = TopicPartition(topic, partition)
        hosted, told = services.replica_manager.partitions.get(at), services.metadata.partition(at)
        is_led = hosted is not None and hosted.is_leader
        high_watermark = hosted.log.high_watermark if hosted is not None and is_led else None
        found.append(
            GroupOffset(
                group_id=group_id,
                topic=topic,
                partition=partition,
                committed_offset=offset,
                high_watermark=high_watermark,
                lag=None if high_watermark is None else max(0, high_watermark - offset),
                leader=-1 if told is None else told.leader,
            )
        )
    return found


def _group(group: ListedGroup, members: int, offsets: list[GroupOffset], *, is_all: bool) -> GroupStatus:
    lags = [each.lag for each in offsets if each.lag is not None]
    return GroupStatus(
        group_id=group.group_id,
        type=group.group_type,
        state=group.state,
        members=members,
        partitions=len(offsets),
        lag=sum(lags) if is_all and len(lags) == len(offsets) else None,
    )


def _shared(shard: GroupShard, group_id: str) -> list[TopicPartition]:
    return [
        TopicPartition(named.topic, number)
        for named in shard.share_partitions(group_id).values()
        for number in named.partitions
    ]


def _share_group(
    group: GroupStatus, partitions: Sequence[TopicPartition], lags: Mapping[tuple[str, TopicPartition], int]
) -> GroupStatus:
    known = [lags[group.group_id, each] for each in partitions if (group.group_id, each) in lags]
    lag = sum(known) if len(known) == len(partitions) else None
    return msgspec.structs.replace(group, partitions=len(partitions), lag=lag)


def _others(services: Services) -> list[Coordinator]:
    topic = services.metadata.topic(GROUP_METADATA_TOPIC)
    leaders = Counter(partition.leader for partition in topic.partitions) if topic is not None else Counter()
    del leaders[services.node_id]
    return [Coordinator(node_id=node_id, partitions=leaders[node_id]) for node_id in sorted(leaders)]


class SharePartitionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that this broker leads, as one share group consumes it. Only while it has members here."""

    group_id: str
    topic: str
    partition: int
    start_offset: int
    """All records before it are acknowledged or archived."""
    next_offset: int
    """Of the first record that was never delivered."""
    acquired: int
    """Records that a member has, under an acquisition lock."""
    high_watermark: int
    lag: int
    """Records that are not acknowledged or archived yet."""


class SharePartitionsStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Those with most records to acknowledge first."""

    partitions: list[SharePartitionStatus]
    partitions_left_out: int
    loading: int
    """Whose state is being read."""


async def describe_share_partitions(
    services: Services, time_slice: TimeSlice, *, topic_filter: str
) -> tuple[SharePartitionsStatus, dict[tuple[str, TopicPartition], int]]:
    """Also the lag of all of them by group, whatever the filter lets through."""
    found: list[SharePartitionStatus] = []
    lags: dict[tuple[str, TopicPartition], int] = {}
    loading = 0
    for hosted in services.share_partitions.hosted():
        await time_slice.give_way()
        if hosted.error is not None:
            continue
        each = _share_partition(services, hosted)
        if each is None:
            loading += 1
            continue
        lags[each.group_id, hosted.topic_partition] = each.lag
        if topic_filter in each.topic:
            found.append(each)
    found.sort(key=lambda each: (-each.lag, each.group_id, each.topic, each.partition))
    shown = SharePartitionsStatus(
        partitions=found[:SHARE_PARTITIONS_MAX],
        partitions_left_out=max(0, len(found) - SHARE_PARTITIONS_MAX),
        loading=loading,
    )
    return shown, lags


def _share_partition(services: Services, hosted: HostedSharePartition) -> SharePartitionStatus | None:
    """None: it is not loaded, or its partition has just gone."""
    at, shared = hosted.topic_partition, hosted.shared
    partition = services.replica_manager.partitions.get(at)
    if shared is None or partition is None:
        return None
    high_watermark = partition.log.high_watermark
    acquired = share_partition.RecordState.ACQUIRED
    return SharePartitionStatus(
        group_id=hosted.key.group_id,
        topic=at.topic,
        partition=at.partition,
        start_offset=shared.start_offset,
        next_offset=shared.next_offset,
        acquired=sum(run.count for run in shared.runs if run.state is acquired),
        high_watermark=high_watermark,
        lag=max(0, high_watermark - shared.start_offset - shared.delivery_complete_count()),
    )


class StreamsMemberStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a streams group that is coordinated here; tasks by subtopology."""

    group_id: str
    member_id: str
    client_id: str
    process_id: str
    member_epoch: int
    active: dict[str, list[int]]
    standby: dict[str, list[int]]
    warmup: dict[str, list[int]]


class StreamsStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Members by group."""

    members: list[StreamsMemberStatus]
    members_left_out: int


async def describe_streams(services: Services, time_slice: TimeSlice) -> StreamsStatus:
    """Of all streams groups that are coordinated here."""
    groups = sorted(
        (group.group_id, len(group.members), hosted.shard)
        for hosted in services.groups.hosted_shards()
        if hosted.state is ShardState.ACTIVE
        for group in hosted.shard.groups()
        if group.listed().group_type == STREAMS
    )
    members: list[StreamsMemberStatus] = []
    for group_id, _, shard in groups:
        if len(members) >= STREAMS_MEMBERS_MAX:
            break
        await time_slice.give_way()
        members += [
            _streams_member(group_id, each) for each in shard.describe_streams_group(group_id).members
        ]
    members = members[:STREAMS_MEMBERS_MAX]
    count = sum(count for _, count, _ in groups)
    return StreamsStatus(members=members, members_left_out=max(0, count - len(members)))


def _streams_member(group_id: str, member: DescribedStreamsMember) -> StreamsMemberStatus:
    def tasks(ids: Mapping[str, frozenset[int]]) -> dict[str, list[int]]:
        return {name: sorted(ids[name]) for name in sorted(ids)}

    return StreamsMemberStatus(
        group_id=group_id,
        member_id=member.member_id,
        client_id=member.metadata.client_id,
        process_id=member.metadata.process_id,
        member_epoch=member.member_epoch,
        active=tasks(member.assignment.active),
        standby=tasks(member.assignment.standby),
        warmup=tasks(member.assignment.warmup),
    )


class ClientQuotaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A quota that is set."""

    entity: str
    quota: str
    """Kafka's key, such as producer_byte_rate."""
    bound: float


class MeasuredQuota(msgspec.Struct, frozen=True, kw_only=True):
    """What counts for some client of this broker now. An empty user or client id: it is shared."""

    user: str
    client_id: str
    quota: str
    observed: float
    """A rate; for controller_mutation_rate the tokens that are left."""
    bound: float


class ThrottleStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Why a client waited, once."""

    at_ms: int
    user: str
    client_id: str
    quota: str
    throttle_time_ms: int
    formula: str


class ReplicationQuotaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes a second."""

    name: str
    rate: float
    bound: int | None
    """None: no limit."""


class QuotasStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The throttles: the newest first."""

    set: list[ClientQuotaStatus]
    set_left_out: int
    measured: list[MeasuredQuota]
    measured_left_out: int
    throttles: list[ThrottleStatus]
    throttles_left_out: int
    replication: list[ReplicationQuotaStatus]


def describe_quotas(services: Services) -> QuotasStatus:
    """All that counts for this broker."""
    quotas, now_ms = services.client_quotas, services.clock.monotonic_ms()
    bounds = [
        ClientQuotaStatus(entity=str(entity), quota=quota.value, bound=bound)
        for entity, values in quotas.entities().items()
        for quota, bound in values.items()
    ]
    sensors = quotas.sensors()
    throttles = quotas.throttles(_ANY_CLIENT)
    replication = services.replication_quotas
    return QuotasStatus(
        set=bounds[:QUOTAS_MAX],
        set_left_out=max(0, len(bounds) - QUOTAS_MAX),
        measured=[
            MeasuredQuota(
                user=each.user,
                client_id=each.client_id,
                quota=each.quota.value,
                observed=each.measure(now_ms),
                bound=each.bound,
            )
            for each in sensors[:QUOTAS_MAX]
        ],
        measured_left_out=max(0, len(sensors) - QUOTAS_MAX),
        throttles=[
            ThrottleStatus(
                at_ms=each.at_ms,
                user=each.user,
                client_id=each.client_id,
                quota=each.quota.value,
                throttle_time_ms=each.throttle_time_ms,
                formula=each.formula,
            )
            for each in reversed(throttles[-THROTTLES_MAX:])
        ],
        throttles_left_out=max(0, len(throttles) - THROTTLES_MAX),
        replication=[
            ReplicationQuotaStatus(name=name, rate=quota.rate(now_ms), bound=quota.bound)
            for name, quota in (
                ("LeaderReplication", replication.leader),
                ("FollowerReplication", replication.follower),
                ("AlterLogDirsReplication", replication.alter_log_dirs),
            )
        ],
    )


class ListenerStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    address: str
    """Where it listens."""
    protocol: str
    mechanisms: tuple[str, ...]
    """Of SASL; none where the protocol is another."""
    client_auth: str | None
    """Whether clients show a certificate: none, requested or required; None: without TLS."""
    connections: int


class ConnectedStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Who is connected through a listener. ``User:ANONYMOUS``: who did not have to say, or has not yet."""

    principal: str
    listener: str
    connections: int


class SecurityStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Of this broker; the principals with most connections first."""

    authorizer: str | None
    """Its class name; None: everybody may do anything."""
    listeners: list[ListenerStatus]
    connected: list[ConnectedStatus]
    connected_left_out: int


async def describe_security(
    services: Services, socket_server: SocketServer, time_slice: TimeSlice
) -> SecurityStatus:
    """How clients come in, and who is in."""
    config = services.config
    counts: Counter[tuple[str, str]] = Counter()
    for number, connection in enumerate(list(socket_server.connections)):
        counts[str(connection.principal), connection.listener_name] += 1
        if number % _SLICE_CONNECTIONS == 0:
            await time_slice.give_way()
    by_listener: Counter[str] = Counter()
    for (_, listener_name), count in counts.items():
        by_listener[listener_name] += count
    listeners = []
    for listener in config.endpoints():
        security = config.listener_security(listener.name)
        port = socket_server.bound_port(listener.name)
        listeners.append(
            ListenerStatus(
                name=listener.name,
                address=format_address(listener.host or "*", port),
                protocol=listener.protocol,
                mechanisms=security.sasl_enabled_mechanisms if listener.protocol.startswith("SASL") else (),
                client_auth=security.ssl_client_auth if listener.protocol.endswith("SSL") else None,
                connections=by_listener[listener.name],
            )
        )
    return SecurityStatus(
        authorizer=config.authorizer_class_name.strip() or None,
        listeners=listeners,
        connected=[
            ConnectedStatus(principal=principal, listener=listener_name, connections=count)
            for (principal, listener_name), count in counts.most_common(CONNECTED_MAX)
        ],
        connected_left_out=max(0, len(counts) - CONNECTED_MAX),
    )


class ThisBroker(msgspec.Struct, frozen=True, kw_only=True):
    """Who made the document."""

    node_id: int
    version: str
    is_controller: bool
    broker_epoch: int
    """-1: not registered."""
    offline_log_dirs: dict[str, str]
    """Directory → why."""
    offline_replicas: int


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of all there is, whatever is listed and filtered."""

    cluster_id: str
    controller_id: int
    """-1: none, or not known."""
    controller_epoch: int
    topics: int
    partitions: int
    offline_partitions: int
    """Without a live leader."""
    under_replicated_partitions: int
    """With fewer replicas in sync than there are."""
    under_min_isr_partitions: int
    """With a live leader that refuses acks=all: fewer replicas are in sync than ``min.insync.replicas``."""


class BrokerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A live broker, or one that is named as a replica and is not alive."""

    node_id: int
    is_alive: bool
    epoch: int
    """Of its registration; -1: not known."""
    listeners: dict[str, str]
    rack: str | None
    page: str | None
    """The address of its status page; None: it has none, or is not alive."""
    leaders: int
    replicas: int


class TopicStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    partitions: int
    offline_partitions: int
    under_replicated_partitions: int
    under_min_isr_partitions: int


class PartitionStatus(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    leader: int
    """-1: none."""
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    is_offline: bool
    is_under_replicated: bool
    is_under_min_isr: bool
    min_isr: int
    """``min.insync.replicas``, but never more than there are replicas."""
    log_start_offset: int | None
    high_watermark: int | None
    log_end_offset: int | None
    offsets_from: str | None
    """"leader" or "follower", which this broker is; None: there is no replica of it here."""


class PurgatoryStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    delayed: int
    """``NumDelayedOperations``: operations that wait."""
    watched: int
    """``PurgatorySize``: entries in watch lists."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The whole document."""

    at_ms: int
    topic_filter: str
    broker: ThisBroker
    cluster: Cluster
    brokers: list[BrokerStatus]
    brokers_left_out: int
    topics: list[TopicStatus]
    topics_left_out: int
    partitions: list[PartitionStatus]
    partitions_left_out: int
    groups: GroupsStatus
    share_partitions: SharePartitionsStatus
    streams: StreamsStatus
    purgatories: list[PurgatoryStatus]
    quotas: QuotasStatus
    security: SecurityStatus


async def describe(services: Services, socket_server: SocketServer, *, topic_filter: str = "") -> Status:
    """How things are now, within the time slices that it takes to look at all. ``topic_filter``: list
    only topics with that in their names, their partitions, and groups with offsets in them; empty: all."""
    metadata = services.metadata
    time_slice = TimeSlice()
    counts = _Counts(services)
    for topic in sorted(metadata.topics(), key=lambda topic: topic.is_internal):
        counts.add(topic, is_listed=topic_filter in topic.name)
        await time_slice.give_way()
    counts.sort()
    share_partitions, share_lags = await describe_share_partitions(
        services, time_slice, topic_filter=topic_filter
    )
    groups = await describe_groups(services, time_slice, topic_filter=topic_filter, share_lags=share_lags)
    brokers = list(_brokers(metadata, counts, scheme=services.config.http_scheme()))
    partitions = counts.in_danger + counts.thin + counts.well
    return Status(
        at_ms=services.clock.now_ms(),
        topic_filter=topic_filter,
        broker=ThisBroker(
            node_id=services.node_id,
            version=__version__,
            is_controller=services.controller.is_controller,
            broker_epoch=services.broker_epoch,
            offline_log_dirs=dict(services.log_manager.offline_directories),
            offline_replicas=services.replica_manager.offline_count,
        ),
        cluster=Cluster(
            cluster_id=services.cluster_id,
            controller_id=metadata.controller_id,
            controller_epoch=services.replica_manager.controller_epoch,
            topics=len(metadata.topics()),
            partitions=counts.partitions,
            offline_partitions=counts.offline,
            under_replicated_partitions=counts.under_replicated,
            under_min_isr_partitions=counts.under_min_isr,
        ),
        brokers=brokers[:BROKERS_MAX],
        brokers_left_out=max(0, len(brokers) - BROKERS_MAX),
        topics=counts.topics[:TOPICS_MAX],
        topics_left_out=max(0, len(counts.topics) - TOPICS_MAX),
        partitions=[_partition(services, *each) for each in partitions[:PARTITIONS_MAX]],
        partitions_left_out=max(0, len(partitions) - PARTITIONS_MAX),
        groups=groups,
        share_partitions=share_partitions,
        streams=await describe_streams(services, time_slice),
        purgatories=_purgatories(services),
        quotas=describe_quotas(services),
        security=await describe_security(services, socket_server, time_slice),
    )


class _Counts:
    """One walk over all partitions of the cluster."""

    def __init__(self, services: Services) -> None:
        self.partitions = self.offline = self.under_replicated = self.under_min_isr = 0
        self.leaders: Counter[BrokerId] = Counter()
        self.replicas: Counter[BrokerId] = Counter()
        self.topics: list[TopicStatus] = []
        self.in_danger: list[tuple[TopicMetadata, PartitionMetadata]] = []
        """Offline, or under min.insync.replicas."""
        self.thin: list[tuple[TopicMetadata, PartitionMetadata]] = []
        """Only under-replicated."""
        self.well: list[tuple[TopicMetadata, PartitionMetadata]] = []
        self._alive = frozenset(broker.node_id for broker in services.metadata.brokers())
        self._configs = services.configs

    def sort(self) -> None:
        """All are there: those in trouble come first."""
        self.topics.sort(
            key=lambda topic: (
                not (topic.offline_partitions or topic.under_min_isr_partitions),
                not topic.under_replicated_partitions,
            )
        )

    def add(self, topic: TopicMetadata, *, is_listed: bool) -> None:
        offline = under_replicated = under_min_isr = 0
        min_insync_replicas = self._configs.topic_config(topic.name).min_insync_replicas
        for partition in topic.partitions:
            is_offline = partition.leader not in self._alive
            is_under_replicated = len(partition.isr) < len(partition.replicas)
            is_under_min_isr = not is_offline and len(partition.isr) < _min_isr(
                min_insync_replicas, partition
            )
            offline += is_offline
            under_replicated += is_under_replicated
            under_min_isr += is_under_min_isr
            self.leaders[partition.leader] += 1
            self.replicas.update(partition.replicas)
            if is_listed:
                if is_offline or is_under_min_isr:
                    self.in_danger.append((topic, partition))
                else:
                    (self.thin if is_under_replicated else self.well).append((topic, partition))
        self.partitions += len(topic.partitions)
        self.offline += offline
        self.under_replicated += under_replicated
        self.under_min_isr += under_min_isr
        if is_listed:
            self.topics.append(
                TopicStatus(
                    name=topic.name,
                    partitions=len(topic.partitions),
                    offline_partitions=offline,
                    under_replicated_partitions=under_replicated,
                    under_min_isr_partitions=under_min_isr,
                )
            )


def _min_isr(min_insync_replicas: int, partition: PartitionMetadata) -> int:
    return min(min_insync_replicas, len(partition.replicas))


def _brokers(metadata: MetadataCache, counts: _Counts, *, scheme: str) -> Iterator[BrokerStatus]:
    """``scheme``: of this broker's own page; the others are taken to be alike."""
    alive = {broker.node_id: broker for broker in metadata.brokers()}
    for node_id in sorted({*alive, *counts.replicas}):
        broker = alive.get(node_id)
        yield BrokerStatus(
            node_id=node_id,
            is_alive=broker is not None,
            epoch=-1 if broker is None else broker.epoch,
            listeners={}
            if broker is None
            else {name: format_address(*endpoint) for name, endpoint in broker.endpoints.items()},
            rack=None if broker is None else broker.rack,
            page=None
            if broker is None or broker.http is None
            else f"{scheme}://{format_address(*broker.http)}/",
            leaders=counts.leaders[node_id],
            replicas=counts.replicas[node_id],
        )


def _partition(services: Services, topic: TopicMetadata, partition: PartitionMetadata) -> PartitionStatus:
    metadata = services.metadata
    hosted = services.replica_manager.partitions.get(TopicPartition(topic.name, partition.partition))
    log = None if hosted is None else hosted.log
    min_isr = _min_isr(services.configs.topic_config(topic.name).min_insync_replicas, partition)
    is_offline = not metadata.is_alive(partition.leader)
    return PartitionStatus(
        topic=topic.name,
        partition=partition.partition,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        replicas=partition.replicas,
        isr=partition.isr,
        offline_replicas=metadata.offline_replicas(partition),
        is_offline=is_offline,
        is_under_replicated=len(partition.isr) < len(partition.replicas),
        is_under_min_isr=not is_offline and len(partition.isr) < min_isr,
        min_isr=min_isr,
        log_start_offset=None if log is None else log.log_start_offset,
        high_watermark=None if log is None else log.high_watermark,
        log_end_offset=None if log is None else log.log_end_offset,
        offsets_from=None if hosted is None else "leader" if hosted.is_leader else "follower",
    )


def _purgatories(services: Services) -> list[PurgatoryStatus]:
    parked, groups = services.replica_manager.parked, services.groups.parked
    waiting = [
        (each.name, each.delayed, each.watched)
        for each in (parked.produce, parked.fetch, parked.delete_records, parked.share_fetch)
    ]
    waiting += [(each.name, each.delayed, each.watched) for each in (groups.rebalance, groups.heartbeat)]
    return [
        PurgatoryStatus(name=name, delayed=delayed, watched=watched) for name, delayed, watched in waiting
    ]


async def diagnostics(services: Services, kind: str, request: HttpRequest) -> HttpResponse:
    """A kind of ``server.apis.diagnostics``; its arguments are the query's. 400: one of them is wrong."""
    try:
        document = await services.scheduler.finished(KINDS[kind](services, request.query))
    except KafkaError as error:
        return HttpResponse.text(str(error.message), status=400)
    return HttpResponse(msgspec.json.encode(document), content_type=JSON_CONTENT_TYPE, headers=HEADERS)


async def status(services: Services, socket_server: SocketServer, request: HttpRequest) -> HttpResponse:
    """``/status.json``: what the page draws."""
    document = await describe(services, socket_server, topic_filter=request.query.get("topic", ""))
    return HttpResponse(msgspec.json.encode(document), content_type=JSON_CONTENT_TYPE, headers=HEADERS)


def _read(name: str) -> bytes:
    return (Path(__file__).parent / "page" / name).read_bytes()


def _hash_of(content: bytes) -> str:
    """CSP's name of what is between the tags of an element."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content).digest()).decode()}'"


_STYLE = b"\n" + _read("style.css")


_SCRIPT = b"\n" + b"\n".join(_read(f"{name}.js") for name in SCRIPTS)


_HTML = (
    _read("page.html")
    .replace(b"<style></style>", b"<style>%b</style>" % _STYLE)
    .replace(b"<script></script>", b"<script>%b</script>" % _SCRIPT)
)


HEADERS: Final = (
    (
        "content-security-policy",
        f"default-src 'none'; script-src {_hash_of(_SCRIPT)}; style-src {_hash_of(_STYLE)}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
)
"""Of the page, and of the JSON that it draws."""


def page() -> HttpResponse:
    """``/``."""
    return HttpResponse(_HTML, content_type=HTML_CONTENT_TYPE, headers=HEADERS)
