"""DescribeProducers (key 61): the producers that partitions know, for finding hanging transactions (KIP-664).

Behaviour (``KafkaApis.handleDescribeProducersRequest``, ``ReplicaManager.activeProducerState``): every
replica of a partition answers, the leader and those that follow it (NOT_LEADER_OR_FOLLOWER otherwise); each
partition has its own error, TOPIC_AUTHORIZATION_FAILED without READ on its topic.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from minikafka.errors import KafkaError
from minikafka.protocol.wire.codec import Body
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import Permission, permission, topic_denied
from minikafka.server.cluster.topic_validation import validate_topic_name
from minikafka.server.requests.context import RequestContext
from minikafka.server.runtime.error_fields import NO_ERROR, error_fields
from minikafka.server.services import Services
from minikafka.steps import Steps, each
from minikafka.types import TopicPartition


def handle(services: Services, context: RequestContext, request: Any) -> Steps[Body]:
    readable = permission(services, context, AclOperation.READ, ResourceType.TOPIC)
    topics = []
    for topic in request.topics:
        partitions = yield from each(
            partial(_partition, services, readable, topic.name), topic.partition_indexes
        )
        topics.append({"name": topic.name, "partitions": partitions})
        yield
    return {"throttle_time": 0, "topics": topics}


def _partition(services: Services, readable: Permission | None, topic: str, index: int) -> dict[str, Any]:
    topic_partition = TopicPartition(topic, index)
    outcome, producers = NO_ERROR, []
    try:
        validate_topic_name(topic)
        if readable is not None and not readable[topic]:
            raise topic_denied()
        log = services.replica_manager.hosted(topic_partition).log
        producers = [
            {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.producer_epoch,
                "last_sequence": producer.last_sequence,
                "last_timestamp": producer.last_timestamp,
                "coordinator_epoch": producer.coordinator_epoch,
                "current_txn_start_offset": (
                    -1 if producer.current_txn_first_offset is None else producer.current_txn_first_offset
                ),
            }
            for producer in log.producers.active_producers().values()
        ]
    except KafkaError as error:
        outcome = error_fields(error)
    return {
        "partition_index": topic_partition.partition,
        **outcome,
        "active_producers": producers,
    }
