"""Metadata and DescribeTopicPartitions (keys 3, 75): brokers, topics, and the leaders of partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from typing import Any
from uuid import UUID

from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body, field
from minikafka.protocol.wire.writing import ArrayToKeep, EncodedArray
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import (
    NOT_ASKED,
    Permission,
    authorized_operations,
    authorized_operations_on_cluster,
    is_authorized_on_cluster,
    permission,
)
from minikafka.server.apis.topics import NEVER, MutationQuota
from minikafka.server.cluster.metadata_cache import MetadataCache, PartitionMetadata, TopicMetadata
from minikafka.server.cluster.topic_validation import is_internal, validate_topic_name
from minikafka.server.requests import RequestContext
from minikafka.server.services import Services
from minikafka.steps import Steps, each
from minikafka.types import NO_LEADER

FIRST_VERSION_WITH_TOPICS_BY_ID = 12
FIRST_VERSION_WITH_LISTENER_NOT_FOUND = 6

STARTING_TIMEOUT_MS = 5_000
"""How long a question waits in a broker that has just started and has not heard from the controller."""

SORTED_A_STEP = 1_000
"""Names; to sort 240,000 takes 0.2 s."""


async def handle_metadata(services: Services, context: RequestContext, request: Any) -> Body:
    """Metadata (key 3): the cluster's brokers and the leaders of partitions; every client's first real
    question.

    Behaviour (``KafkaApis.handleTopicMetadataRequest``, ``KRaftMetadataCache``):
    - no topic list (null; in version 0 an empty one) means all topics, an empty list means none;
    - addresses are those of the listener that the question came on; brokers without that listener are left
      out;
    - a topic that does not exist is created when both the broker (``auto.create.topics.enable``) and the
      request allow it, and is UNKNOWN_TOPIC_OR_PARTITION otherwise; one asked for by id is UNKNOWN_TOPIC_ID;
    - each topic has its own error; none spoils the others;
    - a topic without DESCRIBE is TOPIC_AUTHORIZATION_FAILED, whether it exists or not: by name without its
      id, by id without its name. Of all topics it is left out. To be created it needs CREATE on the cluster
      or on the topic.

    Where it differs from Kafka: a broker that has just started answers when the controller has told it of the
    cluster; Kafka's says that there are no brokers and no controller, and some clients take minutes to ask
    again. Kafka answers UNKNOWN_TOPIC_OR_PARTITION while it creates and lets the client ask again; here the
    answer comes after the creation, so that a first produce works at once. Kafka refuses a whole request when
    one topic in it is malformed, and ignores names beside ids; here each topic is answered for itself.

    Versions: 1 rack, controller id, is_internal; 2 cluster id; 4 allow_auto_topic_creation; 5 offline
    replicas; 6 LISTENER_NOT_FOUND; 7 leader epoch; 8 authorized operations; 9 flexible; 10 topic ids in the
    answer; 11 no cluster operations (DescribeCluster has them); 12 topics by id (KIP-516); 13 an error code
    for all (KIP-1102).
    """
    metadata, listener_name = services.metadata, context.connection.listener_name
    await metadata.wait_for(lambda: metadata.controller_id != NO_LEADER, timeout_ms=STARTING_TIMEOUT_MS)
    asks_for_all = request.topics is None or (not request.topics and context.api_version == 0)
    describable = permission(
        services, context, AclOperation.DESCRIBE, ResourceType.TOPIC, logs_denied=not asks_for_all
    )
    errors = await _create_missing(services, context, request, describable)
    if asks_for_all:
        described = _all_topics(metadata, context, describable)
    else:
        described = _topics(metadata, context, request, errors, describable)
    topics = await services.scheduler.finished(described)
    if field(request, "include_topic_authorized_operations", False):
        await services.scheduler.finished(_add_operations(services, context, topics))
    controller = metadata.broker(metadata.controller_id)
    reachable_controller = controller is not None and controller.endpoint(listener_name) is not None
    return {
        "throttle_time": 0,
        "brokers": describe_brokers(metadata, listener_name),
        "cluster_id": services.cluster_id,
        "controller_id": metadata.controller_id if reachable_controller else NO_LEADER,
        "topics": topics,
        "cluster_authorized_operations": authorized_operations_on_cluster(
            services, context, asked=field(request, "include_cluster_authorized_operations", False)
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


async def _create_missing(
    services: Services, context: RequestContext, request: Any, describable: Permission | None
) -> dict[str, KafkaError]:
    """Create the unknown topics, when that is allowed. Returns why a topic could not be created."""
    allowed = services.config.auto_create_topics_enable and field(request, "allow_auto_topic_creation", True)
    if not allowed or not request.topics:
        return {}
    missing = await services.scheduler.finished(_missing(services.metadata, request, describable))
    if not missing:
        return {}
    refused: dict[str, KafkaError] = {}
    if not is_authorized_on_cluster(services, context, AclOperation.CREATE, logs_denied=False):
        creatable = permission(services, context, AclOperation.CREATE, ResourceType.TOPIC)
        refused = await services.scheduler.finished(_not_creatable(missing, creatable))
    wanted = [name for name in missing if name not in refused]
    if not wanted:
        return refused
    quota = MutationQuota(services.client_quotas, context, strict_since_version=NEVER)
    return refused | await services.topics.auto_create(wanted, spend=quota.spend)


def _not_creatable(names: Iterable[str], creatable: Permission | None) -> Steps[dict[str, KafkaError]]:
    refused = {}
    for name in names:
        if creatable is not None and not creatable[name]:
            refused[name] = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        yield
    return refused


def _missing(metadata: MetadataCache, request: Any, describable: Permission | None) -> Steps[dict[str, None]]:
    """The names of topics that are not known, of those that who asks may describe."""
    missing: dict[str, None] = {}
    for topic in request.topics:
        if (
            topic.name is not None
            and field(topic, "topic_id", None) is None
            and metadata.topic(topic.name) is None
            and (describable is None or describable[topic.name])
        ):
            missing[topic.name] = None
        yield
    return missing


def _all_topics(
    metadata: MetadataCache, context: RequestContext, describable: Permission | None
) -> Steps[list[dict[str, Any]]]:
    """Without those that who asks may not describe."""
    topics = []
    for known in list(metadata.topics()):
        if describable is None or describable[known.name]:
            topics.append((yield from _describe(metadata, context, known)))
        yield
    return topics


def _topics(
    metadata: MetadataCache,
    context: RequestContext,
    request: Any,
    errors: dict[str, KafkaError],
    describable: Permission | None,
) -> Steps[list[dict[str, Any]]]:
    """Those that were asked for."""
    topics = []
    seen = set()
    for topic in request.topics:
        wanted = (topic.name, field(topic, "topic_id", None))
        if wanted not in seen:
            seen.add(wanted)
            name, topic_id = wanted
            topics.append(
                (yield from _topic(metadata, context, errors, describable, name=name, topic_id=topic_id))
            )
        yield
    return topics


def _add_operations(
    services: Services, context: RequestContext, topics: Iterable[dict[str, Any]]
) -> Steps[None]:
    """What who asks may do to the topics that it may describe and that have a name."""
    for topic in topics:
        if topic["name"] is not None and topic["error_code"] != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            topic["topic_authorized_operations"] = authorized_operations(
                services, context, ResourceType.TOPIC, topic["name"], asked=True
            )
        yield


def _topic(
    metadata: MetadataCache,
    context: RequestContext,
    errors: dict[str, KafkaError],
    describable: Permission | None,
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
        if describable is not None and not describable[topic.name]:
            return _error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=None, topic_id=topic_id)
        return (yield from _describe(metadata, context, topic))
    if name is None:
        return _error(ErrorCode.INVALID_REQUEST, name="")
    if describable is not None and not describable[name]:
        return _error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name) | {"is_internal": False}
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
        "topic_authorized_operations": NOT_ASKED,
    }


def _describe(
    metadata: MetadataCache, context: RequestContext, topic: TopicMetadata
) -> Steps[dict[str, Any]]:
    partitions = yield from _partitions(metadata, context, topic)
    return {
        "error_code": ErrorCode.NONE,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": partitions,
        "topic_authorized_operations": NOT_ASKED,
    }


def _partitions(
    metadata: MetadataCache, context: RequestContext, topic: TopicMetadata
) -> Steps[EncodedArray | list[dict[str, Any]]]:
    """As they were encoded before, where nothing has changed since; else they are kept for the next."""
    key = (context.connection.listener_name, context.api_version)
    encoded = metadata.encoded(topic)
    partitions: list[dict[str, Any]] = []
    for known in topic.partitions:
        if encoded is not None and key in encoded:  # from the start, or another was faster
            return EncodedArray(encoded[key])
        partitions.append(_partition(metadata, context, known))
        yield
    return partitions if encoded is None else ArrayToKeep(partitions, encoded, key)


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


def handle_describe_topic_partitions(
    services: Services, context: RequestContext, request: Any
) -> Steps[Body]:
    """DescribeTopicPartitions (key 75): topics page by page, for clusters with very many partitions
    (KIP-966).

    Behaviour (``DescribeTopicPartitionsRequestHandler``): topics in the order of their names, all of them
    when none is named; at most ``response_partition_limit`` partitions (and at most
    ``max.request.partition.size.limit``) in one answer, and where that is not all, a cursor from which the
    next request continues. A cursor must lie in the topics that are asked for. Among all topics, one that was
    deleted since the last page is passed over; a topic that was asked for by name gets its error. A topic
    without DESCRIBE is TOPIC_AUTHORIZATION_FAILED when it was asked for by name, and else left out; neither
    counts for the limit.

    Where it differs from Kafka: a limit below 1 counts as 1, because with none an asker would never get on.
    """
    metadata, cursor = services.metadata, request.cursor
    asked_for_all = not request.topics
    names = yield from each(
        lambda topic: topic.name, list(metadata.topics()) if asked_for_all else request.topics
    )
    if cursor is not None:
        if cursor.partition_index < 0 or not (asked_for_all or cursor.topic_name in names):
            return (yield from _refuse(request))
        names = yield from _from_cursor_on(names, cursor.topic_name)
    listener_name = context.connection.listener_name
    describable = permission(services, context, AclOperation.DESCRIBE, ResourceType.TOPIC)
    remaining = max(
        1, min(request.response_partition_limit, services.config.max_request_partition_size_limit)
    )
    answers: list[dict[str, Any]] = []
    last = None
    for name in (yield from _sorted(names)):
        yield
        if name == last:
            continue
        last = name
        if describable is not None and not describable[name]:
            if not asked_for_all:
                answers.append(_denied(name))
            continue
        if remaining == 0:
            return _body(answers, next_cursor=(name, 0))
        start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        answer = _described_topic(metadata, listener_name, name, start=start, limit=remaining)
        if answer["error_code"] is ErrorCode.NONE:
            answer["topic_authorized_operations"] = authorized_operations(
                services, context, ResourceType.TOPIC, name, asked=True
            )
        answers.append(answer)
        remaining -= len(answer["partitions"])
        topic, end = metadata.topic(name), start + len(answer["partitions"])
        if topic is not None and end < len(topic.partitions):
            return _body(answers, next_cursor=(name, end))
    return _body(answers, next_cursor=None)


def _from_cursor_on(names: list[str], first: str) -> Steps[list[str]]:
    left = []
    for name in names:
        if name >= first:
            left.append(name)
        yield
    return left


def _sorted(names: list[str]) -> Steps[Iterator[str]]:
    """``names`` in order, those that come several times one after the other."""
    runs = []
    for start in range(0, len(names), SORTED_A_STEP):
        runs.append(sorted(names[start : start + SORTED_A_STEP]))
        yield
    return merge(*runs)


def _body(topics: list[dict[str, Any]], *, next_cursor: tuple[str, int] | None) -> Body:
    cursor = None
    if next_cursor is not None:
        cursor = {"topic_name": next_cursor[0], "partition_index": next_cursor[1]}
    return {"throttle_time": 0, "topics": topics, "next_cursor": cursor}


def _refuse(request: Any) -> Steps[Body]:
    """The answer has no error of its own, so each topic that was asked for carries it, as in Kafka."""
    topics = yield from each(
        lambda topic: _described_error(ErrorCode.INVALID_REQUEST, topic.name), request.topics
    )
    return _body(topics, next_cursor=None)


def _denied(name: str) -> dict[str, Any]:
    """Of a topic that may not be described. Whether there is one of that name is not told."""
    return _described_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name) | {"is_internal": False}


def _described_error(code: ErrorCode, name: str) -> dict[str, Any]:
    return {
        "error_code": code,
        "name": name,
        "topic_id": None,
        "is_internal": is_internal(name),
        "partitions": [],
        "topic_authorized_operations": NOT_ASKED,
    }


def _described_topic(
    metadata: MetadataCache, listener_name: str, name: str, *, start: int, limit: int
) -> dict[str, Any]:
    topic = metadata.topic(name)
    if topic is None:
        try:
            validate_topic_name(name)
        except KafkaError as error:
            return _described_error(error.code, name)
        return _described_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
    return {
        "error_code": ErrorCode.NONE,
        "name": name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": [
            _described_partition(metadata, listener_name, partition)
            for partition in topic.partitions[start : start + limit]
        ],
        "topic_authorized_operations": NOT_ASKED,
    }


def _described_partition(
    metadata: MetadataCache, listener_name: str, partition: PartitionMetadata
) -> dict[str, Any]:
    leader = metadata.broker(partition.leader)
    if leader is None:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    elif leader.endpoint(listener_name) is None:
        code = ErrorCode.LISTENER_NOT_FOUND
    else:
        code = ErrorCode.NONE
    return {
        "error_code": code,
        "partition_index": partition.partition,
        "leader_id": partition.leader if code is ErrorCode.NONE else NO_LEADER,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr,
        "eligible_leader_replicas": partition.eligible,
        "last_known_elr": [] if partition.last_known_leader == NO_LEADER else [partition.last_known_leader],
        "offline_replicas": metadata.offline_replicas(partition, listener_name=listener_name),
    }
