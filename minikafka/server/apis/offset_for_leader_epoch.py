"""OffsetForLeaderEpoch (key 23): where a leader epoch ended, so that a reader can find where its history
parts.

Behaviour (KIP-101, KIP-279, KIP-320; ``ReplicaManager.lastOffsetForLeaderEpoch``): the end offset of the
largest epoch at most the one asked for; the log end for the current epoch; -1 and -1 where nothing is known.
Only the leader answers, consumers and followers alike. It needs CLUSTER_ACTION on the cluster, or DESCRIBE on
the topic (TOPIC_AUTHORIZATION_FAILED).

Versions: 2 the current leader epoch in the request, throttle time; 3 a replica id, which changes
nothing; 4 flexible.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import (
    Permission,
    is_authorized_on_cluster,
    permission,
    topic_denied,
)
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services
from minikafka.steps import Steps, each
from minikafka.types import NO_EPOCH, NO_OFFSET, LeaderEpoch, TopicPartition


def handle(services: Services, context: RequestContext, request: Any) -> Steps[Body]:
    # CLUSTER_ACTION is what followers have; consumers ask as well since KIP-320.
    describable = None
    if not is_authorized_on_cluster(services, context, AclOperation.CLUSTER_ACTION, logs_denied=False):
        describable = permission(services, context, AclOperation.DESCRIBE, ResourceType.TOPIC)
    topics = []
    for topic in request.topics:
        partitions = yield from each(partial(_answer, services, describable, topic.topic), topic.partitions)
        topics.append({"topic": topic.topic, "partitions": partitions})
        yield
    return {"throttle_time": 0, "topics": topics}


def _answer(services: Services, describable: Permission | None, topic: str, wanted: Any) -> dict[str, Any]:
    answer = {"partition": wanted.partition, "error_code": ErrorCode.NONE}
    try:
        if describable is not None and not describable[topic]:
            raise topic_denied()
        partition = services.replica_manager.hosted(TopicPartition(topic, wanted.partition))
        partition.check_leader(field(wanted, "current_leader_epoch", NO_EPOCH))
        end = partition.epoch_end_offset(LeaderEpoch(wanted.leader_epoch))
    except KafkaError as error:
        return answer | {"error_code": error.code, "leader_epoch": NO_EPOCH, "end_offset": NO_OFFSET}
    return answer | {"leader_epoch": end.epoch, "end_offset": end.end_offset}
