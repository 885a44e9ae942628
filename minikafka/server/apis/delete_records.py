"""DeleteRecords (key 21): raise the log start offset of partitions (KIP-107).

Behaviour (``ReplicaManager.deleteRecords``): -1 stands for the high watermark; OFFSET_OUT_OF_RANGE above
it; POLICY_VIOLATION where the topic is only compacted. Answers the new low watermark. The answer does not
wait for the disk: as in Kafka, the checkpoint of log start offsets follows, and until then a crash may
bring records back.

Versions: 0 to 2; 2 is flexible.
"""

from __future__ import annotations

from typing import Any

from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.codec import Body
from minikafka.server.request_context import RequestContext
from minikafka.server.services import Services
from minikafka.types import NO_OFFSET, Offset, TopicPartition


def handle(services: Services, context: RequestContext, request: Any) -> Body:
    return {
        "throttle_time": 0,
        "topics": [
            {
                "name": topic.name,
                "partitions": [_answer(services, topic.name, wanted) for wanted in topic.partitions],
            }
            for topic in request.topics
        ],
    }


def _answer(services: Services, topic: str, wanted: Any) -> dict[str, Any]:
    topic_partition = TopicPartition(topic, wanted.partition_index)
    code, low_watermark = ErrorCode.NONE, NO_OFFSET
    try:
        low_watermark = services.replica_manager.delete_records(topic_partition, Offset(wanted.offset))
    except KafkaError as error:
        code = error.code
    return {"partition_index": wanted.partition_index, "low_watermark": low_watermark, "error_code": code}
