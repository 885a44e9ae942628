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
who asks has not ALTER on the cluster: all of them      CLUSTER_AUTHORIZATION_FAILED
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
from minikafka.security.acl import AclOperation
from minikafka.server.apis.shared.authorization import denied_on_cluster
from minikafka.server.requests.context import RequestContext
from minikafka.server.runtime.time_slice import TimeSlice
from minikafka.server.services import Services
from minikafka.steps import Steps
from minikafka.types import TopicPartition

logger = logging.getLogger(__name__)

NAMED_MAX = 5
"""Of the replicas that one request may not move: a line for each would be 170 bytes of log for four."""


async def handle(services: Services, context: RequestContext, request: Any) -> Body:
    wanted = await services.scheduler.finished(_wanted(request))
    denied = denied_on_cluster(services, context, AclOperation.ALTER)
    topics: dict[str, list[dict[str, Any]]] = {}
    refused: list[str] = []
    refused_count = 0
    time_slice = TimeSlice()
    for topic_partition, directory in wanted.items():
        code = ErrorCode.NONE if denied is None else denied.code
        try:
            if denied is None:
                services.replica_manager.alter_log_dir(topic_partition, directory)
        except KafkaError as error:
            code = error.code
            if len(refused) < NAMED_MAX:
                refused.append(f"{topic_partition} to {directory}: {error}")
            refused_count += 1
        topics.setdefault(topic_partition.topic, []).append(
            {"partition_index": topic_partition.partition, "error_code": code}
        )
        await time_slice.give_way()
    if refused:
        logger.warning("%d replicas do not move, among them %s", refused_count, "; ".join(refused))
    results = [{"topic_name": name, "partitions": partitions} for name, partitions in topics.items()]
    return {"throttle_time": 0, "results": results}


def _wanted(request: Any) -> Steps[dict[TopicPartition, str]]:
    """Where each partition is to be."""
    wanted = {}
    for directory in request.dirs:
        path = os.path.normpath(directory.path)
        for topic in directory.topics:
            for partition in topic.partitions:
                wanted[TopicPartition(topic.name, partition)] = path
                yield
            yield
        yield
    return wanted
