"""AlterReplicaLogDirs (key 34): move replicas to other log directories of this broker (KIP-113).

Behaviour (``KafkaApis.handleAlterReplicaLogDirsRequest``, ``ReplicaManager.alterReplicaLogDirs``): each
partition answers for itself, as soon as its move has begun; DescribeLogDirs shows how far it is.

======================================================  =========================
the topic's name is too long for a ``-future`` one      INVALID_TOPIC_EXCEPTION
the directory is none of ``log.dirs``                   LOG_DIR_NOT_FOUND
it is offline, or the replica is, or another            KAFKA_STORAGE_ERROR
directory is where the replica might be
there is no such replica here: its log will be made     REPLICA_NOT_AVAILABLE
in that directory when it comes
======================================================  =========================

A replica that is where it is asked for stays, and a move of it ends; a move to elsewhere is replaced. Of a
partition that is named twice the last directory counts, as in Kafka's map.

Versions: 1 and 2 are the same; 2 is flexible.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body
from minikafka.server.requests.context import RequestContext
from minikafka.server.runtime.turns import Turns
from minikafka.server.services import Services
from minikafka.types import TopicPartition

logger = logging.getLogger(__name__)


async def handle(services: Services, context: RequestContext, request: Any) -> Body:
    wanted = {
        TopicPartition(topic.name, partition): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for partition in topic.partitions
    }
    topics: dict[str, list[dict[str, Any]]] = {}
    turns = Turns()
    for topic_partition, directory in wanted.items():
        topics.setdefault(topic_partition.topic, []).append(
            {
                "partition_index": topic_partition.partition,
                "error_code": _alter(services, topic_partition, directory),
            }
        )
        await turns.give_way()
    results = [{"topic_name": name, "partitions": partitions} for name, partitions in topics.items()]
    return {"throttle_time": 0, "results": results}


def _alter(services: Services, topic_partition: TopicPartition, directory: str) -> ErrorCode:
    try:
        services.replica_manager.alter_log_dir(topic_partition, os.path.normpath(directory))
    except KafkaError as error:
        logger.warning("%s does not move to %s: %s", topic_partition, directory, error)
        return error.code
    return ErrorCode.NONE
