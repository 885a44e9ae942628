"""Fetch (key 1): records of many partitions, waiting for them if need be.

Behaviour (``KafkaApis.handleFetchRequest``; KIP-74 byte limits, KIP-227 sessions, KIP-320 epochs, KIP-516
topic ids): the session cache turns the request into the partitions to read, ``Fetch`` reads or waits, the
session picks the answers that are news. A consumer sees up to the high watermark, or to the last stable
offset with read_committed, and may be sent to a replica in its rack (KIP-392); a follower (it gives its
replica id) sees up to the log end, and its fetch offset says how far it is. max bytes is capped by
``fetch.max.bytes``, and a consumer's answer by ``CONSUMER_ANSWER_BYTES_MAX``. What followers get of throttled
partitions counts for the leader's replication quota when it is answered, whichever follower gets it (KIP-73).

A consumer beyond a quota gets an empty answer with the throttle time, and its connection reads no more for so
long; what it would have got does not count then. Its max bytes are what it may have at once at all. Bytes are
those of the records; Kafka counts the fields around them too. A follower has no quota of this kind.

A topic without READ is TOPIC_AUTHORIZATION_FAILED; for who gives a replica id and has not CLUSTER_ACTION
every topic is.

Versions: 4 isolation level; 5 log start offset; 7 sessions; 9 current leader epoch; 11 rack id; 12
flexible, last fetched epoch and diverging epoch; 13 topic ids; 15 replica state as a tagged field; 16 node
endpoints, with the current leader on NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH (KIP-951); 17 directory
ids; 18 the follower's high watermark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from minikafka.config.client_quotas import QuotaType
from minikafka.errors import ErrorCode
from minikafka.log.segment.fetch_data import FetchIsolation
from minikafka.network.connection import Result
from minikafka.protocol.wire.codec import field
from minikafka.protocol.wire.fast_paths import FetchPartitionResponse, NodeEndpoint, fetch_response
from minikafka.replication.fetch_session import (
    FINAL_EPOCH,
    INVALID_SESSION_ID,
    FetchContext,
    PartitionKey,
    SessionResponse,
)
from minikafka.replication.partition_replicas import NO_BROKER_EPOCH
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import denied_on_cluster, permission
from minikafka.server.apis.shared.current_leader import current_leader, leader_endpoints
from minikafka.server.client_quotas import QuotaClient
from minikafka.server.replica.delayed_operations import Fetch
from minikafka.server.replica.partition import CONSUMER_REPLICA_ID
from minikafka.server.replica.partition_reads import (
    ClientMetadata,
    FetchParams,
    PartitionRead,
    WantedPartition,
)
from minikafka.server.requests import RequestContext, client_of
from minikafka.server.services import Services
from minikafka.server.tracing.tracer import Reader
from minikafka.steps import ELEMENTS_A_STEP, Steps, each
from minikafka.types import NO_EPOCH, NO_OFFSET, BrokerId, Buffer, Offset, TopicPartition

FIRST_VERSION_WITH_SESSIONS = 7
FIRST_VERSION_WITH_RACK = 11
FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_REPLICA_STATE = 15
FIRST_VERSION_WITH_ENDPOINTS = 16
READ_COMMITTED = 1

CONSUMER_ANSWER_BYTES_MAX = 8 << 20
"""What a consumer gets at a time, unless its min bytes ask for more; Kafka: all that the client allows, by
default 50 MiB. For so much the client takes new memory each time, and this loop serves no other client
meanwhile: here librdkafka spent 1.4 core-seconds on a GB in pieces of 2 to 16 MiB, 1.8 to 2.6 in answers of
50. With 160 partitions in each request this broker spends 0.9 on it at 1 MiB, 0.6 at 4, 0.55 at 8. To a
client far away, a piece is 40 round trips of ``socket.send.buffer.bytes``, and its request one more."""
READ_AT_ONCE_MAX = 1_000
"""Partitions of a fetch that is read and answered in one go: a few milliseconds."""

LED_ELSEWHERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def handle_fetch(services: Services, context: RequestContext, request: Any) -> Steps[Result]:
    client = client_of(services.client_quotas, context)
    params = fetch_params(services, context, request, client)
    readable: Mapping[str, bool] | None
    if not params.is_from_follower:
        readable = permission(services, context, AclOperation.READ, ResourceType.TOPIC)
    elif denied_on_cluster(services, context, AclOperation.CLUSTER_ACTION) is None:
        readable = None
    else:  # it gets nothing, and is a consumer in all that a follower has for itself (CVE-2018-1288)
        readable = _Nothing()
        params = params._replace(replica_id=BrokerId(CONSUMER_REPLICA_ID))
    if params.replica_id == CONSUMER_REPLICA_ID:
        params = params.at_most(context.connection.answer_bytes_max)
    elif params.is_from_follower:
        context.connection.is_follower = True
    session = yield from _session(services, context, request, is_follower=params.is_from_follower)
    keys: list[PartitionKey] = []
    wanted: list[WantedPartition] = []
    refused: dict[int, PartitionRead] = {}
    for key, want in session.partitions():
        if not want.topic_partition.topic:  # its id was unknown when the session began; it may be known now
            want = _with_name(services, want)
            if want.topic_partition.topic:
                session.remember(key, want)
        # Asked again for each request of a session: it may have been allowed when the session began.
        topic = want.topic_partition.topic
        if readable is not None and topic and not readable[topic]:
            refused[len(keys)] = PartitionRead(want, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        else:
            wanted.append(want)
        keys.append(key)
        if len(keys) % ELEMENTS_A_STEP == 0:
            yield

    def respond(reads: list[PartitionRead]) -> Steps[Sequence[Buffer]]:
        if refused:
            reads = yield from _with_refused(reads, refused)
        if params.is_from_follower:
            told = session.respond(zip(keys, reads, strict=True))
            if services.replication_quotas.leader.is_active:
                _record(services, told)
        else:
            if client.is_limited:
                answers = session.selected(zip(keys, reads, strict=True))
                throttle_time_ms = _throttle(services, context, answers)
                if throttle_time_ms:
                    services.request_metrics.fetch_consumer.note_throttle(throttle_time_ms)
                    throttled = session.throttled()
                    return (yield from _response(services, context, throttled, throttle_time_ms))
            told = session.respond(zip(keys, reads, strict=True))
            client.fetched_bytes += sum([len(read.records) for _, read in told.answers])
        _count(services, told, params)
        if services.replica_manager.tracer.is_on:
            _trace(services, context, told, params)
        return (yield from _response(services, context, told))

    is_large = len(wanted) > READ_AT_ONCE_MAX
    fetch = Fetch(
        replicas=services.replica_manager,
        log_io=services.log_io,
        clock=services.clock,
        params=params,
        wanted=wanted,
        respond=respond,
        scheduler=services.scheduler if is_large else None,
    )
    return (yield from fetch.start())


class _Nothing(dict[str, bool]):
    """What a client may read that says it is a broker and is none."""

    def __missing__(self, name: str) -> bool:
        return False


def _with_refused(
    reads: Iterable[PartitionRead], refused: Mapping[int, PartitionRead]
) -> Steps[list[PartitionRead]]:
    """``reads`` with those that were not to be read in their places."""
    answers: list[PartitionRead] = []
    left = iter(reads)
    while True:
        read = refused.get(len(answers)) or next(left, None)
        if read is None:
            return answers
        answers.append(read)
        if len(answers) % ELEMENTS_A_STEP == 0:
            yield


def fetch_params(
    services: Services, context: RequestContext, request: Any, quota_client: QuotaClient
) -> FetchParams:
    """What holds for the whole request."""
    version = context.header.api_version
    if version >= FIRST_VERSION_WITH_REPLICA_STATE:
        replica_id, replica_epoch = request.replica_state
    else:
        replica_id, replica_epoch = request.replica_id, NO_BROKER_EPOCH
    isolation = FetchIsolation.LOG_END
    max_bytes = min(field(request, "max_bytes", 2**31 - 1), services.config.fetch_max_bytes)
    if replica_id == CONSUMER_REPLICA_ID:
        max_bytes = min(max_bytes, max(CONSUMER_ANSWER_BYTES_MAX, request.min_bytes))
        committed = request.isolation_level == READ_COMMITTED
        isolation = FetchIsolation.TXN_COMMITTED if committed else FetchIsolation.HIGH_WATERMARK
    client = None
    if version >= FIRST_VERSION_WITH_RACK:
        client = ClientMetadata(request.rack_id, context.connection.listener_name)
    if quota_client.is_limited and replica_id < 0 and QuotaType.FETCH in quota_client.sensors:
        max_bytes = int(min(max_bytes, quota_client.sensors[QuotaType.FETCH].value_max))
    return FetchParams(
        max_wait_ms=request.max_wait,
        min_bytes=min(request.min_bytes, max_bytes),
        max_bytes=max_bytes,
        isolation=isolation,
        replica_id=replica_id,
        replica_epoch=replica_epoch,
        client=client,
        fetcher=context.connection,
    )


def _session(
    services: Services, context: RequestContext, request: Any, *, is_follower: bool
) -> Steps[FetchContext[WantedPartition]]:
    """What the request asks for, in or without a session."""
    by_id = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    partitions: dict[PartitionKey, WantedPartition] = {}
    count = 0  # of what is asked for: the same partition may be named again and again
    for topic in request.topics:
        topic_id = topic.topic_id if by_id else None
        name = _name_of(services, topic_id) if by_id else topic.topic
        for partition in topic.partitions:
            partitions[topic_id if by_id else name, partition.partition] = WantedPartition(
                TopicPartition(name, partition.partition),
                topic_id,
                Offset(partition.fetch_offset),
                partition.partition_max_bytes,
                field(partition, "current_leader_epoch", NO_EPOCH),
                field(partition, "last_fetched_epoch", NO_EPOCH),
                field(partition, "log_start_offset", NO_OFFSET),
            )
            count += 1
            if count % ELEMENTS_A_STEP == 0:
                yield
    with_sessions = context.api_version >= FIRST_VERSION_WITH_SESSIONS
    return services.fetch_sessions.new_context(
        session_id=request.session_id if with_sessions else INVALID_SESSION_ID,
        session_epoch=request.session_epoch if with_sessions else FINAL_EPOCH,
        uses_topic_ids=by_id,
        is_follower=is_follower,
        partitions=partitions,
        forgotten=[
            (topic.topic_id if by_id else topic.topic, partition)
            for topic in (request.forgotten_topics_data if with_sessions else ())
            for partition in topic.partitions
        ],
    )


def _name_of(services: Services, topic_id: UUID | None) -> str:
    """The name of a topic, empty when the id is not known."""
    if topic_id is None:
        return ""
    topic = services.metadata.topic_by_id(topic_id)
    return services.replica_manager.topic_name(topic_id) if topic is None else topic.name


def _with_name(services: Services, want: WantedPartition) -> WantedPartition:
    name = _name_of(services, want.topic_id)
    return want._replace(topic_partition=TopicPartition(name, want.topic_partition.partition))


def _record(services: Services, told: SessionResponse[PartitionRead]) -> None:
    """Count what a follower gets of throttled partitions (``sizeOfThrottledPartitions``)."""
    quota = services.replication_quotas.leader
    sizes = [len(read.records) for _, read in told.answers if quota.is_throttled(read.wanted.topic_partition)]
    if sizes:
        quota.record(sum(sizes), services.clock.monotonic_ms())


def _throttle(
    services: Services, context: RequestContext, answers: list[tuple[PartitionKey, PartitionRead]]
) -> int:
    """Count what a consumer is about to get. Returns the throttle time, in ms: then the connection is muted,
    and nothing was counted."""
    quotas = services.client_quotas
    client = client_of(quotas, context)  # who came with the request may be forgotten by now
    size_bytes = sum(len(read.records) for _, read in answers)
    sensor = client.sensors.get(QuotaType.FETCH)
    bandwidth = None if sensor is None else sensor.record(size_bytes, quotas.clock)
    time = None if context.handler_time is None else context.handler_time.record()
    throttle_time_ms = quotas.slow_down(context.connection, client, bandwidth, time)
    if throttle_time_ms and sensor is not None:
        sensor.unrecord(size_bytes, quotas.clock)
    return throttle_time_ms


def _count(services: Services, told: SessionResponse[PartitionRead], params: FetchParams) -> None:
    """The bytes and the errors of an answer."""
    stats, requests = services.replica_manager.stats, services.request_metrics
    metrics = requests.fetch_follower if params.is_from_follower else requests.fetch_consumer
    if told.error:
        metrics.note_error(told.error)
    for _, read in told.answers:
        if read.error:
            metrics.note_error(read.error)
        elif params.is_from_follower:
            stats.replication_bytes_out += len(read.records)
        elif read.records:
            stats.of(read.wanted.topic_partition.topic).bytes_out += len(read.records)


def _trace(
    services: Services,
    context: RequestContext,
    told: SessionResponse[PartitionRead],
    params: FetchParams,
) -> None:
    """Batches that are followed are on their way to who asks."""
    reader = Reader(params.replica_id, context.header.client_id or "", context.connection.peer)
    for _, read in told.answers:
        if read.records:
            services.replica_manager.tracer.sent(
                read.wanted.topic_partition,
                read.records,
                fetch_offset=read.wanted.fetch_offset,
                reader=reader,
            )


def _response(
    services: Services,
    context: RequestContext,
    told: SessionResponse[PartitionRead],
    throttle_time_ms: int = 0,
) -> Steps[Sequence[Buffer]]:
    partitions = yield from each(_partition, told.answers, a_step=ELEMENTS_A_STEP)
    endpoints: Sequence[NodeEndpoint] = ()
    if context.api_version >= FIRST_VERSION_WITH_ENDPOINTS and any(
        partition.error_code in LED_ELSEWHERE for partition in partitions
    ):
        partitions = [
            partition._replace(
                current_leader=current_leader(services, TopicPartition(partition.topic, partition.partition))
            )
            if partition.error_code in LED_ELSEWHERE
            else partition
            for partition in partitions
        ]
        endpoints = leader_endpoints(
            services,
            (partition.current_leader for partition in partitions),
            listener_name=context.connection.listener_name,
        )
    return (
        yield from fetch_response(
            context.header,
            partitions,
            throttle_time_ms=throttle_time_ms,
            error_code=told.error,
            session_id=told.session_id,
            node_endpoints=endpoints,
        )
    )


def _partition(answer: tuple[PartitionKey, PartitionRead]) -> FetchPartitionResponse:
    _, read = answer
    topic_partition = read.wanted.topic_partition
    return FetchPartitionResponse(
        topic=topic_partition.topic,
        topic_id=read.wanted.topic_id,
        partition=topic_partition.partition,
        error_code=read.error,
        high_watermark=read.high_watermark,
        last_stable_offset=read.last_stable_offset,
        log_start_offset=read.log_start_offset,
        aborted_transactions=read.aborted_transactions,
        diverging_epoch=read.diverging_epoch,
        preferred_read_replica=read.preferred_read_replica,
        records=read.records,
    )
