"""AlterPartitionReassignments (key 45): move partitions to other brokers, or take that back (KIP-455).

Behaviour (``KafkaApis.handleAlterPartitionReassignmentsRequest``): a list of replicas is the whole target of
a partition, null cancels the reassignment; each partition has its own error. A partition that is named twice
gets what is said last. The answer comes when the requests are written; the request's timeout is not used, the
store has its own. Without ALTER on the cluster all is CLUSTER_AUTHORIZATION_FAILED, the whole and each
partition.

Versions: 1 may forbid another replication factor (KIP-860).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from minikafka.errors import KafkaError
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation
from minikafka.server.apis.shared.authorization import denied_on_cluster
from minikafka.server.requests.context import RequestContext
from minikafka.server.runtime.error_fields import NO_ERROR, error_fields
from minikafka.server.services import Services
from minikafka.steps import Steps
from minikafka.types import TopicPartition


async def handle(services: Services, context: RequestContext, request: Any) -> Body:
    allow_replication_factor_change = field(request, "allow_replication_factor_change", True)
    targets = await services.scheduler.finished(_targets(request))
    outcomes: Mapping[TopicPartition, KafkaError | None]
    error = denied_on_cluster(services, context, AclOperation.ALTER)
    if error is None:
        outcomes = await services.reassignments.alter(
            targets, allow_replication_factor_change=allow_replication_factor_change
        )
    else:
        outcomes = dict.fromkeys(targets, error)
    return {
        "throttle_time": 0,
        "allow_replication_factor_change": allow_replication_factor_change,
        **(NO_ERROR if error is None else error_fields(error)),
        "responses": await services.scheduler.finished(_responses(outcomes)),
    }


def _targets(request: Any) -> Steps[dict[TopicPartition, Sequence[int] | None]]:
    targets = {}
    for topic in request.topics:
        for partition in topic.partitions:
            targets[TopicPartition(topic.name, partition.partition_index)] = partition.replicas
            yield
        yield
    return targets


def _responses(outcomes: Mapping[TopicPartition, KafkaError | None]) -> Steps[list[dict[str, Any]]]:
    topics: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for (topic, partition), error in outcomes.items():
        outcome = NO_ERROR if error is None else error_fields(error)
        topics[topic].append({"partition_index": partition} | outcome)
        yield
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
