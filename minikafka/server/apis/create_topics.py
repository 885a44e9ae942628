"""CreateTopics (key 19): create topics, each with its own result.

Behaviour (``ControllerApis.createTopics``, ``ReplicationControlManager.createTopics``): a name that appears
twice is INVALID_REQUEST; a manual assignment excludes a partition count and a replication factor; -1 stands
for the broker's ``num.partitions`` and ``default.replication.factor``; more than 10,000 partitions in one
request is POLICY_VIOLATION for all of it. With ``validate_only`` everything is checked and nothing written.
The answer waits until this broker knows leaders for all partitions, so a topic that is reported as created
can be produced to at once; after ``timeout`` it is REQUEST_TIMED_OUT, and the topic gets its leaders later.

It needs CREATE on the cluster or on the topic (TOPIC_AUTHORIZATION_FAILED), and DESCRIBE_CONFIGS on the topic
to see what it was made with.

Where it differs from Kafka: the topic id of a ``validate_only`` answer is zero; Kafka answers one that
nothing has.

Versions: 5 partition count, replication factor and configs in the answer (KIP-525), flexible; 6 throttling
errors: partitions beyond the client's quota are refused (KIP-599); 7 topic ids.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import is_authorized_on_cluster, permission
from minikafka.server.apis.shared.config_alterations import check_config_count
from minikafka.server.apis.shared.mutation_quota import MutationQuota
from minikafka.server.cluster.topic_validation import validate_request_total
from minikafka.server.requests.context import RequestContext
from minikafka.server.runtime.error_fields import NO_ERROR, error_fields
from minikafka.server.runtime.time_slice import TimeSlice
from minikafka.server.services import Services
from minikafka.server.topics.topic_service import CreatedTopic

STRICT_QUOTA_SINCE = 6

DEFAULT = -1
"""Partition count or replication factor: the broker's default."""


async def handle(services: Services, context: RequestContext, request: Any) -> Body:
    quota = MutationQuota(services.client_quotas, context, strict_since_version=STRICT_QUOTA_SINCE)
    counts = Counter(topic.name for topic in request.topics)
    total = sum(_partitions(services, topic) for topic in request.topics)
    creatable = None
    if not is_authorized_on_cluster(services, context, AclOperation.CREATE, logs_denied=False):
        creatable = permission(services, context, AclOperation.CREATE, ResourceType.TOPIC)
    describable = permission(
        services, context, AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, logs_denied=False
    )
    results: list[dict[str, Any]] = []
    written: list[CreatedTopic] = []
    time_slice = TimeSlice()
    for name, topic in {topic.name: topic for topic in request.topics}.items():
        await time_slice.give_way()
        try:
            if counts[name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if creatable is not None and not creatable[name]:
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
            validate_request_total(total)
            created = await _create(services, topic, quota, validate_only=request.validate_only)
        except KafkaError as error:
            results.append(_failure(name, error))
        else:
            shows_configs = describable is None or describable[name]
            results.append(_success(created) if shows_configs else _success(created) | _HIDDEN)
            written.append(created)
    if not request.validate_only:
        late = await _wait(services, written, timeout_ms=request.timeout)
        results = [late.get(result["name"], result) for result in results]
    return {"throttle_time": quota.throttle(), "topics": results}


async def _wait(
    services: Services, written: list[CreatedTopic], *, timeout_ms: int
) -> dict[str, dict[str, Any]]:
    """Until all have leaders. Returns the answers for those that have none in time."""
    late = {}
    deadline_ms = services.clock.monotonic_ms() + timeout_ms
    for topic in written:
        left_ms = deadline_ms - services.clock.monotonic_ms()
        try:
            await services.topics.wait_for_leaders(
                topic.name, partitions=topic.partitions, timeout_ms=left_ms
            )
        except KafkaError as error:
            late[topic.name] = _failure(topic.name, error)
    return late


def _partitions(services: Services, topic: Any) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return services.config.num_partitions if topic.num_partitions == DEFAULT else max(topic.num_partitions, 0)


async def _create(
    services: Services, topic: Any, quota: MutationQuota, *, validate_only: bool
) -> CreatedTopic:
    check_config_count(topic.configs)
    return await services.topics.create_topic(
        topic.name,
        partitions=None if topic.num_partitions == DEFAULT else topic.num_partitions,
        replication_factor=None if topic.replication_factor == DEFAULT else topic.replication_factor,
        assignments=_assignments(topic),
        configs={config.name: config.value for config in topic.configs},
        validate_only=validate_only,
        spend=quota.spend,
    )


def _assignments(topic: Any) -> dict[int, tuple[int, ...]] | None:
    """The manual assignment of a request, if it has one.

    Raises:
        KafkaError: INVALID_REQUEST beside a count or a factor, INVALID_REPLICA_ASSIGNMENT for a partition
            that comes twice.
    """
    if not topic.assignments:
        return None
    for what, value in (
        ("replication factor", topic.replication_factor),
        ("numPartitions", topic.num_partitions),
    ):
        if value != DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {what} was not set to -1.",
            )
    assignments: dict[int, tuple[int, ...]] = {}
    for assignment in topic.assignments:
        if assignment.partition_index in assignments:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {assignment.partition_index}",
            )
        assignments[assignment.partition_index] = assignment.broker_ids
    return assignments


def _success(created: CreatedTopic) -> dict[str, Any]:
    return {
        "name": created.name,
        "topic_id": created.topic_id,
        **NO_ERROR,
        "topic_config_error_code": ErrorCode.NONE,
        "num_partitions": created.partitions,
        "replication_factor": created.replication_factor,
        "configs": [
            {
                "name": entry.name,
                "value": entry.value,
                "read_only": entry.read_only,
                "config_source": entry.source,
                "is_sensitive": entry.is_sensitive,
            }
            for entry in created.configs
        ],
    }


_HIDDEN = {
    "topic_config_error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    "num_partitions": -1,
    "replication_factor": -1,
    "configs": [],
}
"""What a topic's creator is told of it that may not describe its configuration."""


def _failure(name: str, error: KafkaError) -> dict[str, Any]:
    return {
        "name": name,
        "topic_id": None,
        **error_fields(error),
        "topic_config_error_code": ErrorCode.NONE,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": [],
    }
