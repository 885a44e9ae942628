"""Fetch (key 1): records of many partitions, waiting for them if need be.

Behaviour (``KafkaApis.handleFetchRequest``; KIP-74 byte limits, KIP-227 sessions, KIP-320 epochs, KIP-516
topic ids): the session cache turns the request into the partitions to read, ``Fetch`` reads or waits, the
session picks the answers that are news. Followers do not fetch from a broker that is alone, so every
request is a consumer's: it sees up to the high watermark, or to the last stable offset with read_committed.
max bytes is capped by ``fetch.max.bytes``.

Versions: 4 isolation level; 5 log start offset; 7 sessions; 9 current leader epoch; 11 rack id; 12
flexible, last fetched epoch and diverging epoch; 13 topic ids; 15 replica state as a tagged field; 16 node
endpoints; 17 directory ids; 18 the follower's high watermark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from minikafka.log.fetch_data import FetchIsolation
from minikafka.network.connection import Result
from minikafka.protocol.codec import field
from minikafka.protocol.fast_paths import FetchPartitionResponse, fetch_response
from minikafka.replication.fetch_context import FINAL_EPOCH, INVALID_SESSION_ID, FetchContext, PartitionKey
from minikafka.server.delayed_fetch import Fetch
from minikafka.server.partition_reads import FetchParams, PartitionRead, WantedPartition
from minikafka.server.request_context import RequestContext
from minikafka.server.services import Services
from minikafka.types import NO_EPOCH, Buffer, Offset, TopicPartition

FIRST_VERSION_WITH_SESSIONS = 7
FIRST_VERSION_WITH_TOPIC_IDS = 13
READ_COMMITTED = 1


def handle(services: Services, context: RequestContext, request: Any) -> Result:
    session = _session(services, context, request)
    params = FetchParams(
        max_wait_ms=request.max_wait,
        min_bytes=request.min_bytes,
        max_bytes=min(field(request, "max_bytes", 2**31 - 1), services.config.fetch_max_bytes),
        isolation=_isolation(request.isolation_level),
    )
    keys, wanted = [], []
    for key, want in session.partitions():
        if not want.topic_partition.topic:  # its id was unknown when the session began; it may be known now
            want = _with_name(services, want)
            if want.topic_partition.topic:
                session.remember(key, want)
        keys.append(key)
        wanted.append(want)

    def respond(reads: list[PartitionRead]) -> Sequence[Buffer]:
        return _response(context, session, zip(keys, reads, strict=True))

    return Fetch(
        replicas=services.replica_manager,
        log_io=services.log_io,
        purgatory=services.replica_manager.fetch_purgatory,
        clock=services.clock,
        params=params,
        wanted=wanted,
        respond=respond,
    ).start()


def _session(services: Services, context: RequestContext, request: Any) -> FetchContext[WantedPartition]:
    """What the request asks for, in or without a session."""
    by_id = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    partitions: dict[PartitionKey, WantedPartition] = {}
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
            )
    with_sessions = context.api_version >= FIRST_VERSION_WITH_SESSIONS
    return services.fetch_sessions.new_context(
        session_id=request.session_id if with_sessions else INVALID_SESSION_ID,
        session_epoch=request.session_epoch if with_sessions else FINAL_EPOCH,
        uses_topic_ids=by_id,
        is_follower=False,
        partitions=partitions,
        forgotten=[
            (topic.topic_id if by_id else topic.topic, partition)
            for topic in (request.forgotten_topics_data if with_sessions else ())
            for partition in topic.partitions
        ],
    )


def _isolation(level: int) -> FetchIsolation:
    return FetchIsolation.TXN_COMMITTED if level == READ_COMMITTED else FetchIsolation.HIGH_WATERMARK


def _name_of(services: Services, topic_id: UUID | None) -> str:
    """The name of a topic, empty when the id is not known."""
    topic = services.metadata.topic_by_id(topic_id) if topic_id is not None else None
    return "" if topic is None else topic.name


def _with_name(services: Services, want: WantedPartition) -> WantedPartition:
    name = _name_of(services, want.topic_id)
    return want._replace(topic_partition=TopicPartition(name, want.topic_partition.partition))


def _response(
    context: RequestContext,
    session: FetchContext[WantedPartition],
    answers: Iterable[tuple[PartitionKey, PartitionRead]],
) -> Sequence[Buffer]:
    told = session.respond(answers)
    return fetch_response(
        context.header,
        [_partition(read) for _, read in told.answers],
        error_code=told.error,
        session_id=told.session_id,
    )


def _partition(read: PartitionRead) -> FetchPartitionResponse:
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
