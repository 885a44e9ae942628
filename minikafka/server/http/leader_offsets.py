"""Where partitions end that other brokers lead: the lag of a group, which is known at the group's
coordinator, needs it. Asked when somebody looks, of all those leaders at once (ListOffsets).

Who looks waits for a moment only: a leader that is slow or gone must not hold up a scrape. What it answers
later counts the next time, and what it said last counts for a minute.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from itertools import groupby
from typing import NamedTuple

from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.server.cluster.broker_connection import BrokerConnection
from minikafka.server.services import Services
from minikafka.types import NO_EPOCH, BrokerId, Offset, TopicPartition

logger = logging.getLogger(__name__)


class Told(NamedTuple):
    """A leader's answer, and when it came on the monotonic clock."""

    at_ms: int
    offsets: dict[TopicPartition, Offset]


WAIT_MS = 250
"""For the answers: many round trips, and nothing beside the 10 s that Prometheus waits."""
KEPT_MS = 60_000
"""For so long an answer counts when no other comes: a few of the usual scrapes."""
TIMEOUT_MS = 10_000
"""For one leader's answer."""
PARTITIONS_PER_REQUEST = 500
"""About 5 ms of the leader's loop."""
LATEST_TIMESTAMP, READ_UNCOMMITTED, CONSUMER = -1, 0, -1


class LeaderOffsets:
    """What the other leaders have said."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._told: dict[BrokerId, Told] = {}
        self._asking: dict[BrokerId, asyncio.Task[None]] = {}

    def __repr__(self) -> str:
        return f"LeaderOffsets(told by {sorted(self._told)}, asking {sorted(self._asking)})"

    async def high_watermarks(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Without those whose leader is this broker, is gone, or has not answered."""
        services = self._services
        by_leader: dict[BrokerId, list[TopicPartition]] = defaultdict(list)
        for topic_partition in sorted(set(wanted)):
            told = services.metadata.partition(topic_partition)
            leader = services.node_id if told is None else told.leader
            if leader != services.node_id and services.metadata.is_alive(leader):
                by_leader[leader].append(topic_partition)
        for leader, asked in by_leader.items():
            if leader not in self._asking:
                ask = partial(self._ask, leader, asked)
                self._asking[leader] = services.supervisor.start(f"lag-{leader}", ask)
        if self._asking:
            await asyncio.wait(self._asking.values(), timeout=WAIT_MS / 1000)
        now_ms = services.clock.monotonic_ms()
        self._told = {
            leader: told
            for leader, told in self._told.items()
            if leader in by_leader and now_ms - told.at_ms < KEPT_MS
        }
        return {
            topic_partition: offset
            for leader, asked in by_leader.items()
            if leader in self._told
            for topic_partition, offset in self._told[leader].offsets.items()
        }

    async def _ask(self, leader: BrokerId, asked: list[TopicPartition]) -> None:
        try:
            found = await _ask(self._services, leader, asked)
            if found:
                self._told[leader] = Told(self._services.clock.monotonic_ms(), found)
        finally:
            del self._asking[leader]


async def _ask(
    services: Services, leader: BrokerId, asked: list[TopicPartition]
) -> dict[TopicPartition, Offset]:
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
