"""Metadata (key 3): the cluster's brokers and the leaders of partitions; every client's first real question.

Behaviour (``KafkaApis.handleTopicMetadataRequest``, ``KRaftMetadataCache``):
- no topic list (null; in version 0 an empty one) means all topics, an empty list means none;
- addresses are those of the listener that the question came on; brokers without that listener are left out;
- a topic that does not exist is created when both the broker (``auto.create.topics.enable``) and the request
  allow it, and is UNKNOWN_TOPIC_OR_PARTITION otherwise; one asked for by id is UNKNOWN_TOPIC_ID;
- each topic has its own error; none spoils the others.

Where it differs from Kafka: a broker that has just started answers when the controller has told it of the
cluster; Kafka's says that there are no brokers and no controller, and some clients take minutes to ask again.
Kafka answers UNKNOWN_TOPIC_OR_PARTITION while it creates and lets the client ask again; here the answer comes
after the creation, so that a first produce works at once. Kafka refuses a whole request when one topic in it
is malformed, and ignores names beside ids; here each topic is answered for itself.

Versions: 1 rack, controller id, is_internal; 2 cluster id; 4 allow_auto_topic_creation; 5 offline replicas;
6 LISTENER_NOT_FOUND; 7 leader epoch; 8 authorized operations; 9 flexible; 10 topic ids in the answer; 11 no
cluster operations (DescribeCluster has them); 12 topics by id (KIP-516); 13 an error code for all
(KIP-1102).
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body, field
from minikafka.server.apis.shared.authorized_operations import cluster_operations, topic_operations
from minikafka.server.apis.shared.mutation_quota import NEVER, MutationQuota
from minikafka.server.cluster.metadata_cache import MetadataCache, PartitionMetadata, TopicMetadata
from minikafka.server.cluster.topic_validation import is_internal, validate_topic_name
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services
from minikafka.steps import Steps, each
from minikafka.types import NO_LEADER

FIRST_VERSION_WITH_TOPICS_BY_ID = 12
FIRST_VERSION_WITH_LISTENER_NOT_FOUND = 6

STARTING_TIMEOUT_MS = 5_000
"""How long a question waits in a broker that has just started and has not heard from the controller."""


async def handle(services: Services, context: RequestContext, request: Any) -> Body:
    metadata, listener_name = services.metadata, context.connection.listener_name
    await metadata.wait_for(lambda: metadata.controller_id != NO_LEADER, timeout_ms=STARTING_TIMEOUT_MS)
    errors = await _create_missing(services, context, request)
    topic_bits = topic_operations(asked=field(request, "include_topic_authorized_operations", False))
    topics = await services.scheduler.finished(_topics(metadata, context, request, errors, topic_bits))
    controller = metadata.broker(metadata.controller_id)
    reachable_controller = controller is not None and controller.endpoint(listener_name) is not None
    return {
        "throttle_time": 0,
        "brokers": describe_brokers(metadata, listener_name),
        "cluster_id": services.cluster_id,
        "controller_id": metadata.controller_id if reachable_controller else NO_LEADER,
        "topics": topics,
        "cluster_authorized_operations": cluster_operations(
            asked=field(request, "include_cluster_authorized_operations", False)
        ),
        "error_code": ErrorCode.NONE,
    }


def describe_brokers(metadata: MetadataCache, listener_name: str) -> list[dict[str, Any]]:
    """The live brokers that have the listener."""
    brokers = []
    for broker in metadata.brokers():
        endpoint = broker.endpoint(listener_name)
        if endpoint is not None:
            brokers.append(
                {"node_id": broker.node_id, "host": endpoint.host, "port": endpoint.port, "rack": broker.rack}
            )
    return brokers


async def _create_missing(services: Services, context: RequestContext, request: Any) -> dict[str, KafkaError]:
    """Create the unknown topics, when that is allowed. Returns why a topic could not be created."""
    allowed = services.config.auto_create_topics_enable and field(request, "allow_auto_topic_creation", True)
    if not allowed or not request.topics:
        return {}
    missing = await services.scheduler.finished(_missing(services.metadata, request))
    if not missing:
        return {}
    quota = MutationQuota(services.client_quotas, context, strict_since_version=NEVER)
    return await services.topics.auto_create(list(missing), spend=quota.spend)


def _missing(metadata: MetadataCache, request: Any) -> Steps[dict[str, None]]:
    """The names of topics that are not known."""
    missing: dict[str, None] = {}
    for topic in request.topics:
        if (
            topic.name is not None
            and field(topic, "topic_id", None) is None
            and metadata.topic(topic.name) is None
        ):
            missing[topic.name] = None
        yield
    return missing


def _topics(
    metadata: MetadataCache,
    context: RequestContext,
    request: Any,
    errors: dict[str, KafkaError],
    operations: int,
) -> Steps[list[dict[str, Any]]]:
    topics = []
    if request.topics is None or (not request.topics and context.api_version == 0):
        for known in list(metadata.topics()):
            topics.append((yield from _describe(metadata, context, known)))
            yield
    else:
        seen = set()
        for topic in request.topics:
            wanted = (topic.name, field(topic, "topic_id", None))
            if wanted not in seen:
                seen.add(wanted)
                name, topic_id = wanted
                topics.append((yield from _topic(metadata, context, errors, name=name, topic_id=topic_id)))
            yield
    for described in topics:
        described["topic_authorized_operations"] = operations
    return topics


def _topic(
    metadata: MetadataCache,
    context: RequestContext,
    errors: dict[str, KafkaError],
    *,
    name: str | None,
    topic_id: UUID | None,
) -> Steps[dict[str, Any]]:
    """One topic that was asked for, by id or by name."""
    if topic_id is not None:
        if context.api_version < FIRST_VERSION_WITH_TOPICS_BY_ID:
            return _error(ErrorCode.INVALID_REQUEST, name=name or "", topic_id=topic_id)
        topic = metadata.topic_by_id(topic_id)
        if topic is None:
            return _error(ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
        return (yield from _describe(metadata, context, topic))
    if name is None:
        return _error(ErrorCode.INVALID_REQUEST, name="")
    topic = metadata.topic(name)
    if topic is not None:
        return (yield from _describe(metadata, context, topic))
    if name in errors:
        return _error(errors[name].code, name=name)
    try:
        validate_topic_name(name)
    except KafkaError as error:
        return _error(error.code, name=name)
    return _error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)


def _error(code: ErrorCode, *, name: str | None, topic_id: UUID | None = None) -> dict[str, Any]:
    return {
        "error_code": code,
        "name": name,
        "topic_id": topic_id,
        "is_internal": name is not None and is_internal(name),
        "partitions": [],
    }


def _describe(
    metadata: MetadataCache, context: RequestContext, topic: TopicMetadata
) -> Steps[dict[str, Any]]:
    partitions = yield from each(lambda known: _partition(metadata, context, known), topic.partitions)
    return {
        "error_code": ErrorCode.NONE,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": partitions,
    }


def _partition(
    metadata: MetadataCache, context: RequestContext, partition: PartitionMetadata
) -> dict[str, Any]:
    listener_name = context.connection.listener_name
    leader = metadata.broker(partition.leader)
    replicas, isr = partition.replicas, partition.isr
    if leader is None:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    elif leader.endpoint(listener_name) is None:
        known = context.api_version >= FIRST_VERSION_WITH_LISTENER_NOT_FOUND
        code = ErrorCode.LISTENER_NOT_FOUND if known else ErrorCode.LEADER_NOT_AVAILABLE
    else:
        code = ErrorCode.NONE
    if context.api_version == 0:  # clients of that time cannot bear replicas that are not among the brokers
        replicas = metadata.reachable(partition.replicas, listener_name=listener_name)
        isr = metadata.reachable(partition.isr, listener_name=listener_name)
        if code is ErrorCode.NONE and (replicas != partition.replicas or isr != partition.isr):
            code = ErrorCode.REPLICA_NOT_AVAILABLE
    unreachable = code in (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.LISTENER_NOT_FOUND)
    return {
        "error_code": code,
        "partition_index": partition.partition,
        "leader_id": NO_LEADER if unreachable else partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": replicas,
        "isr_nodes": isr,
        "offline_replicas": metadata.offline_replicas(partition, listener_name=listener_name),
    }
