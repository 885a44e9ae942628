"""ListPartitionReassignments (key 46): which partitions are on their way to other brokers (KIP-455).

Behaviour (``KafkaApis.handleListPartitionReassignmentsRequest``): of the partitions that are asked for, or of
all when the list of topics is null, those that are being moved; all others, unknown ones too, are left out.
``replicas`` are all that hold the partition or are to hold it. One that is both added and removed was wanted
and is not any more, and has not been stopped yet. It needs DESCRIBE on the cluster.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from minikafka.errors import KafkaError
from minikafka.protocol.wire.codec import Body
from minikafka.security.acl import AclOperation
from minikafka.server.apis.shared.authorization import denied_on_cluster
from minikafka.server.requests.context import RequestContext
from minikafka.server.runtime.error_fields import NO_ERROR, error_fields
from minikafka.server.services import Services
from minikafka.types import TopicPartition


async def handle(services: Services, context: RequestContext, request: Any) -> Body:
    denied = denied_on_cluster(services, context, AclOperation.DESCRIBE)
    if denied is not None:
        return {"throttle_time": 0, **error_fields(denied), "topics": _as_asked(request)}
    asked = None
    if request.topics is not None:
        asked = [
            TopicPartition(topic.name, partition)
            for topic in request.topics
            for partition in topic.partition_indexes
        ]
    try:
        ongoing = await services.reassignments.ongoing(asked)
    except KafkaError as error:
        return {"throttle_time": 0, **error_fields(error), "topics": []}
    topics: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for (topic, partition), assignment in ongoing.items():
        topics[topic].append(
            {
                "partition_index": partition,
                "replicas": assignment.replicas,
                "adding_replicas": assignment.adding,
                "removing_replicas": assignment.removing,
            }
        )
    return {
        "throttle_time": 0,
        **NO_ERROR,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
    }


def _as_asked(request: Any) -> list[Body]:
    """What was asked for, without an answer (``ListPartitionReassignmentsRequest.getErrorResponse``)."""
    nothing: Body = {"replicas": [], "adding_replicas": [], "removing_replicas": []}
    return [
        {
            "name": topic.name,
            "partitions": [{"partition_index": each, **nothing} for each in topic.partition_indexes],
        }
        for topic in request.topics or ()
    ]
