"""DescribeLogDirs and AlterReplicaLogDirs (keys 35, 34; KIP-113)."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

import aiofiles.os

from minikafka.errors import ErrorCode, KafkaError
from minikafka.files import Files, Volume
from minikafka.log.log_manager import LogManager
from minikafka.log.unified_log import UnifiedLog
from minikafka.protocol.wire.codec import Body
from minikafka.security.acl import AclOperation
from minikafka.server.apis.shared.authorization import denied_on_cluster
from minikafka.server.requests import RequestContext
from minikafka.server.runtime.work_scheduler import TimeSlice
from minikafka.server.services import Services
from minikafka.steps import Steps
from minikafka.types import TopicPartition

logger = logging.getLogger(__name__)

UNKNOWN_BYTES = -1
"""``DescribeLogDirsResponse.UNKNOWN_VOLUME_BYTES``."""

UNKNOWN_LAG = -1
"""``DescribeLogDirsResponse.INVALID_OFFSET_LAG``."""

NAMED_MAX = 5
"""Of the replicas that one request may not move: a line for each would be 170 bytes of log for four."""


async def handle_describe_log_dirs(services: Services, context: RequestContext, request: Any) -> Body:
    """DescribeLogDirs (key 35): the log directories, what is in them, how full they are (KIP-113, KIP-827).

    Behaviour (``KafkaApis.handleDescribeLogDirsRequest``, ``ReplicaManager.describeLogDirs``): every
    directory is listed; with a list of topics (null means all) only the partitions named in it, and what the
    broker does not have is passed over. A directory that has failed is KAFKA_STORAGE_ERROR and lists nothing.
    A replica has no lag while its log holds all that is committed. The copy of a replica that is being moved
    is listed where it is, with the future key; its lag is what the current log has more, -1 when that is
    offline.

    It needs DESCRIBE on the cluster, else CLUSTER_AUTHORIZATION_FAILED; before version 3 there is no place
    for that, and no directory is listed.

    Versions: 2 flexible; 3 an error code for all; 4 size and free space of the volume; 5 whether a directory
    is cordoned (KIP-1066), which none is here.
    """
    error = denied_on_cluster(services, context, AclOperation.DESCRIBE)
    if error is not None:
        return {"throttle_time": 0, "error_code": error.code, "results": []}
    wanted = None if request.topics is None else await services.scheduler.finished(_wanted(request.topics))
    log_manager = services.log_manager
    directories = log_manager.live_directories
    volumes = [await _volume(services.files, directory) for directory in directories]
    results = []
    for directory, volume in zip(directories, volumes, strict=True):
        if volume is None or directory in log_manager.offline_directories:
            results.append(_failed(directory))
            continue
        logs = [
            log for log in log_manager.logs_in(directory) if wanted is None or log.topic_partition in wanted
        ]
        described = _directory(services.log_manager, directory, logs, volume)
        results.append(await services.scheduler.finished(described))
    results += [
        _failed(directory) for directory in log_manager.offline_directories if directory not in directories
    ]
    return {"throttle_time": 0, "error_code": ErrorCode.NONE, "results": results}


def _wanted(topics: Any) -> Steps[set[TopicPartition]]:
    wanted = set()
    for topic in topics:
        for partition in topic.partitions:
            wanted.add(TopicPartition(topic.topic, partition))
            yield
        yield
    return wanted


async def _volume(files: Files, directory: str) -> Volume | None:
    """The volume that a directory is on; None where the disk does not answer."""
    try:
        return await aiofiles.os.wrap(files.volume)(directory)
    except OSError:
        return None


def _failed(directory: str) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.KAFKA_STORAGE_ERROR,
        "log_dir": directory,
        "topics": [],
        "total_bytes": UNKNOWN_BYTES,
        "usable_bytes": UNKNOWN_BYTES,
    }


def _directory(
    log_manager: LogManager, directory: str, logs: Sequence[UnifiedLog], volume: Volume
) -> Steps[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for log in sorted(logs, key=lambda log: log.topic_partition):
        current = log_manager.get(log.topic_partition)
        is_future = current is not log
        lag = UNKNOWN_LAG
        if current is not None:
            lag = (current.log_end_offset if is_future else log.high_watermark) - log.log_end_offset
        topics.setdefault(log.topic_partition.topic, []).append(
            {
                "partition_index": log.topic_partition.partition,
                "partition_size": log.size_bytes,
                "offset_lag": lag if is_future else max(lag, 0),
                "is_future_key": is_future,
            }
        )
        yield
    return {
        "error_code": ErrorCode.NONE,
        "log_dir": directory,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
        "total_bytes": volume.total_bytes,
        "usable_bytes": volume.usable_bytes,
    }


async def handle_alter_replica_log_dirs(services: Services, context: RequestContext, request: Any) -> Body:
    """AlterReplicaLogDirs (key 34): move replicas to other log directories of this broker (KIP-113).

    Behaviour (``KafkaApis.handleAlterReplicaLogDirsRequest``, ``ReplicaManager.alterReplicaLogDirs``): each
    partition answers for itself, as soon as its move has begun; DescribeLogDirs shows how far it is.

    ====================================================== ========================= the topic's name is too
    long for a ``-future`` one INVALID_TOPIC_EXCEPTION the directory is none of ``log.dirs`` LOG_DIR_NOT_FOUND
    it is offline, or the replica is, or another KAFKA_STORAGE_ERROR directory is where the replica might be
    there is no such replica here: its log will be made REPLICA_NOT_AVAILABLE in that directory when it comes
    who asks has not ALTER on the cluster: all of them CLUSTER_AUTHORIZATION_FAILED
    ====================================================== =========================

    A replica that is where it is asked for stays, and a move of it ends; a move to elsewhere is replaced. Of
    a partition that is named twice the last directory counts, as in Kafka's map.

    Versions: 1 and 2 are the same; 2 is flexible.
    """
    wanted = await services.scheduler.finished(_moves(request))
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


def _moves(request: Any) -> Steps[dict[TopicPartition, str]]:
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
