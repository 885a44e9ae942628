"""CreatePartitions (key 37): give topics more partitions (KIP-195).

Behaviour (``ReplicationControlManager.createPartitions``): ``count`` is the new total and must be more than
there are (INVALID_PARTITIONS); a manual assignment names the replicas of the added partitions only. A topic
that appears twice is INVALID_REQUEST, one without ALTER TOPIC_AUTHORIZATION_FAILED. With ``validate_only``
nothing is written. The answer waits for leaders as that of CreateTopics does.

Versions: 2 flexible; 3 throttling errors: partitions beyond the client's quota are refused (KIP-599).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import permission, topic_denied
from minikafka.server.apis.shared.mutation_quota import MutationQuota
from minikafka.server.requests.context import RequestContext
from minikafka.server.runtime.error_fields import NO_ERROR, error_fields
from minikafka.server.runtime.time_slice import TimeSlice
from minikafka.server.services import Services

STRICT_QUOTA_SINCE = 3


async def handle(services: Services, context: RequestContext, request: Any) -> Body:
    quota = MutationQuota(services.client_quotas, context, strict_since_version=STRICT_QUOTA_SINCE)
    counts = Counter(topic.name for topic in request.topics)
    alterable = permission(services, context, AclOperation.ALTER, ResourceType.TOPIC)
    results = []
    time_slice = TimeSlice()
    for name, topic in {topic.name: topic for topic in request.topics}.items():
        await time_slice.give_way()
        outcome = NO_ERROR
        try:
            if counts[name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if alterable is not None and not alterable[name]:
                raise topic_denied()
            await services.topics.create_partitions(
                name,
                total=topic.count,
                assignments=_assignments(topic),
                validate_only=request.validate_only,
                spend=quota.spend,
            )
            if not request.validate_only:
                await services.topics.wait_for_leaders(
                    name, partitions=topic.count, timeout_ms=request.timeout
                )
        except KafkaError as error:
            outcome = error_fields(error)
        results.append({"name": name} | outcome)
    return {"throttle_time": quota.throttle(), "results": results}


def _assignments(topic: Any) -> list[tuple[int, ...]] | None:
    if topic.assignments is None:
        return None
    return [assignment.broker_ids for assignment in topic.assignments]
