"""DeleteRecords (key 21): raise the log start offset of partitions (KIP-107).

Behaviour (``ReplicaManager.deleteRecords``): -1 stands for the high watermark; OFFSET_OUT_OF_RANGE above it;
POLICY_VIOLATION where the topic is only compacted; TOPIC_AUTHORIZATION_FAILED without DELETE on it. Answers
the new low watermark when all live replicas have deleted, or REQUEST_TIMED_OUT (``DelayedDeleteRecords``).
The answer does not wait for the disk: as in Kafka, the checkpoint of log start offsets follows, and until
then a crash may bring records back.

Versions: 0 to 2; 2 is flexible.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any

from minikafka.errors import ErrorCode
from minikafka.protocol.wire.codec import Body
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import permission
from minikafka.server.replica.delayed_delete_records import DelayedDeleteRecords, PartitionDeletion
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services
from minikafka.steps import Steps
from minikafka.types import Offset, TopicPartition


def handle(
    services: Services, context: RequestContext, request: Any
) -> Steps[Body | Coroutine[Any, Any, Body]]:
    replicas = services.replica_manager
    deletable = permission(services, context, AclOperation.DELETE, ResourceType.TOPIC)
    topics = []
    for topic in request.topics:
        deletions = []
        for wanted in topic.partitions:
            deletion = PartitionDeletion(TopicPartition(topic.name, wanted.partition_index))
            if deletable is not None and not deletable[topic.name]:
                deletion.settle(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            else:
                deletion.begin(replicas, Offset(wanted.offset))
            deletions.append(deletion)
            yield
        topics.append((topic.name, deletions))
    waiting = []
    for _, group in topics:
        for deletion in group:
            if not deletion.try_settle(replicas):
                waiting.append(deletion)
            yield
    if not waiting:
        return _body(topics)
    operation = DelayedDeleteRecords(replicas, waiting, timeout_ms=request.timeout)
    operation.park()

    async def answer() -> Body:
        await operation.done
        return _body(topics)

    return answer()


def _body(topics: Iterable[tuple[str, list[PartitionDeletion]]]) -> Body:
    return {
        "throttle_time": 0,
        "topics": [
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": deletion.topic_partition.partition,
                        "low_watermark": deletion.low_watermark,
                        "error_code": deletion.error,
                    }
                    for deletion in deletions
                ],
            }
            for name, deletions in topics
        ],
    }
