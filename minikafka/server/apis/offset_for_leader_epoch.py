"""OffsetForLeaderEpoch (key 23): where a leader epoch ended, so that a reader can find where its history
parts.

Behaviour (KIP-101, KIP-279, KIP-320; ``ReplicaManager.lastOffsetForLeaderEpoch``): the end offset of the
largest epoch at most the one asked for; the log end for the current epoch; -1 and -1 where nothing is
known. Only the leader answers, consumers and followers alike.

Versions: 2 the current leader epoch in the request, throttle time; 3 a replica id, which is for authorization
only; 4 flexible.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body, field
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services
from minikafka.steps import Steps, each
from minikafka.types import NO_EPOCH, NO_OFFSET, LeaderEpoch, TopicPartition


def handle(services: Services, context: RequestContext, request: Any) -> Steps[Body]:
    topics = []
    for topic in request.topics:
        partitions = yield from each(partial(_answer, services, topic.topic), topic.partitions)
        topics.append({"topic": topic.topic, "partitions": partitions})
        yield
    return {"throttle_time": 0, "topics": topics}


def _answer(services: Services, topic: str, wanted: Any) -> dict[str, Any]:
    answer = {"partition": wanted.partition, "error_code": ErrorCode.NONE}
    try:
        partition = services.replica_manager.hosted(TopicPartition(topic, wanted.partition))
        partition.check_leader(field(wanted, "current_leader_epoch", NO_EPOCH))
        end = partition.epoch_end_offset(LeaderEpoch(wanted.leader_epoch))
    except KafkaError as error:
        return answer | {"error_code": error.code, "leader_epoch": NO_EPOCH, "end_offset": NO_OFFSET}
    return answer | {"leader_epoch": end.epoch, "end_offset": end.end_offset}
