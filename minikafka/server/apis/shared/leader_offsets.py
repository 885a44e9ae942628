"""The ends of partitions, wherever they are led. Kafka: ``NetworkPartitionMetadataClient``.

What is behind of groups is counted from there: up to the high watermark, as a consumer's ListOffsets says.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable
from itertools import groupby

from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.server.cluster.broker_connection import BrokerConnection
from minikafka.server.services import Services
from minikafka.types import NO_EPOCH, BrokerId, Offset, TopicPartition

logger = logging.getLogger(__name__)

TIMEOUT_MS = 10_000
"""For one leader's answer."""
PARTITIONS_PER_REQUEST = 500
"""About 5 ms of the leader's loop."""
LATEST_TIMESTAMP, READ_UNCOMMITTED, CONSUMER = -1, 0, -1


async def latest_offsets(
    services: Services, wanted: Iterable[TopicPartition]
) -> dict[TopicPartition, Offset]:
    """High watermarks; without those whose leader is gone or has not answered."""
    found: dict[TopicPartition, Offset] = {}
    by_leader: dict[BrokerId, list[TopicPartition]] = defaultdict(list)
    for topic_partition in sorted(set(wanted)):
        told = services.metadata.partition(topic_partition)
        if told is None:
            continue
        partition = services.replica_manager.partitions.get(topic_partition)
        if partition is not None and partition.is_leader:
            found[topic_partition] = partition.log.high_watermark
        elif services.metadata.is_alive(told.leader):
            by_leader[told.leader].append(topic_partition)
    for answer in await asyncio.gather(
        *(ask_leader(services, leader, asked) for leader, asked in by_leader.items())
    ):
        found |= answer
    return found


async def ask_leader(
    services: Services, leader: BrokerId, asked: list[TopicPartition]
) -> dict[TopicPartition, Offset]:
    """The high watermarks that ``leader`` tells of its partitions; without those that it does not know, or
    when it does not answer."""
    connection = BrokerConnection(
        name=f"broker {leader}",
        client_id=f"broker-{services.node_id}-lag",
        timeout_ms=TIMEOUT_MS,
        connect=services.connect,
    )
    broker = services.metadata.broker(leader)
    address = None if broker is None else broker.endpoint(services.config.inter_broker_listener())
    found: dict[TopicPartition, Offset] = {}
    try:
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            for first in range(0, len(asked), PARTITIONS_PER_REQUEST):
                body = _request(asked[first : first + PARTITIONS_PER_REQUEST])
                answer = await connection.request(address, ApiKey.LIST_OFFSETS, body)
                found |= {
                    TopicPartition(topic.name, each.partition_index): Offset(each.offset)
                    for topic in answer.topics
                    for each in topic.partitions
                    if each.error_code == ErrorCode.NONE
                }
    except (BrokerUnavailable, KafkaError, TimeoutError) as error:
        reason = error if str(error) else f"it does not answer within {TIMEOUT_MS} ms"
        logger.info("the lag of groups in partitions of broker %d is not known: %s", leader, reason)
    finally:
        await connection.close()
    return found


def _request(asked: list[TopicPartition]) -> dict[str, object]:
    return {
        "replica_id": CONSUMER,
        "isolation_level": READ_UNCOMMITTED,
        "timeout": TIMEOUT_MS,
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": each.partition,
                        "current_leader_epoch": NO_EPOCH,
                        "timestamp": LATEST_TIMESTAMP,
                    }
                    for each in partitions
                ],
            }
            for topic, partitions in groupby(asked, key=lambda each: each.topic)
        ],
    }
