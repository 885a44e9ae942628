"""Offsets of a topic that is deleted and made again, by its name and by its id (versions 10).

Requests by id are bytes on a socket, from the first commit to the last fetch; a stock consumer, which knows
names, is beside them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from minikafka.errors import ErrorCode
from minikafka.network.broker_client import BrokerClient
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.testing.broker import Broker

GROUP, TOPIC = "readers", "orders"
NO_ONES = UUID(int=77)
NONE, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID
pytestmark = pytest.mark.minikafka_only


class ById:
    """A client that names topics by their ids."""

    def __init__(self, client: BrokerClient) -> None:
        self._client = client

    async def ask(self, key: ApiKey, version: int, body: dict[str, Any]) -> Any:
        return await self._client.request(key, body, deadline_ms=30_000, version=version)

    async def topic_id(self) -> UUID:
        body = {
            "topics": [{"topic_id": None, "name": TOPIC}],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }
        (topic,) = (await self.ask(ApiKey.METADATA, 13, body)).topics
        assert topic.error_code == NONE
        found: UUID = topic.topic_id
        return found

    async def commit(self, topic_id: UUID, offset: int) -> ErrorCode:
        partition = {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        body = {
            "group_id": GROUP,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"topic_id": topic_id, "partitions": [partition]}],
        }
        (topic,) = (await self.ask(ApiKey.OFFSET_COMMIT, 10, body)).topics
        assert topic.topic_id == topic_id
        return ErrorCode(topic.partitions[0].error_code)

    async def fetch(self, topic_id: UUID) -> tuple[ErrorCode, int]:
        group = {"group_id": GROUP, "member_id": None, "member_epoch": -1}
        topics = [{"topic_id": topic_id, "partition_indexes": [0]}]
        body = {"groups": [group | {"topics": topics}], "require_stable": True}
        (topic,) = (await self.ask(ApiKey.OFFSET_FETCH, 10, body)).groups[0].topics
        assert topic.topic_id == topic_id
        return ErrorCode(topic.partitions[0].error_code), topic.partitions[0].committed_offset

    async def fetch_all(self) -> dict[UUID, int]:
        group = {"group_id": GROUP, "member_id": None, "member_epoch": -1, "topics": None}
        answer = await self.ask(ApiKey.OFFSET_FETCH, 10, {"groups": [group], "require_stable": True})
        return {each.topic_id: each.partitions[0].committed_offset for each in answer.groups[0].topics}


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    config = {"offsets.topic.num.partitions": 1, "group.initial.rebalance.delay.ms": 0}
    async with Broker(config=config) as broker:
        yield broker


def committed_by_name(bootstrap: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    (found,) = consumer.committed([TopicPartition(TOPIC, 0)], timeout=30)
    consumer.close()
    assert found.error is None
    return int(found.offset)


def delete(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([TOPIC])[TOPIC].result(30)


def make(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)


async def test_offsets_belong_to_the_topic_that_they_were_committed_for(broker: Broker) -> None:
    bootstrap = broker.bootstrap_servers
    await asyncio.to_thread(make, bootstrap)
    await asyncio.to_thread(committed_by_name, bootstrap)  # the coordinator is there
    client = await BrokerClient.connect("127.0.0.1", broker.port, client_id="by-id", deadline_ms=30_000)
    by_id = ById(client)
    first = await by_id.topic_id()
    assert await by_id.commit(first, 5) == NONE
    assert await by_id.fetch(first) == (NONE, 5)
    assert await asyncio.to_thread(committed_by_name, bootstrap) == 5, "one offset, by either"
    assert await by_id.commit(NO_ONES, 5) == UNKNOWN
    assert await by_id.fetch(NO_ONES) == (UNKNOWN, -1)

    await asyncio.to_thread(delete, bootstrap)
    assert await by_id.commit(first, 6) == UNKNOWN
    assert await by_id.fetch(first) == (UNKNOWN, -1)
    async with asyncio.timeout(30):
        while await by_id.fetch_all():
            pass  # they go with the topic: when the controller has told the coordinator

    await asyncio.to_thread(make, bootstrap)
    second = await by_id.topic_id()
    assert second != first
    assert await by_id.fetch(second) == (NONE, -1), "this one has had no commit"
    assert await by_id.commit(first, 7) == UNKNOWN, "who still means the old one changes nothing"
    assert await by_id.fetch(second) == (NONE, -1)
    assert await asyncio.to_thread(committed_by_name, bootstrap) == OFFSET_INVALID
    assert await by_id.commit(second, 8) == NONE
    assert (await by_id.fetch(second), await by_id.fetch(first)) == ((NONE, 8), (UNKNOWN, -1))
    assert await by_id.fetch_all() == {second: 8}
    assert await asyncio.to_thread(committed_by_name, bootstrap) == 8
    await client.close()


async def test_a_stock_consumer_begins_again_in_a_topic_that_was_made_again(broker: Broker) -> None:
    """Deleted while its group has an offset beyond the end of the next topic."""
    bootstrap = broker.bootstrap_servers

    def consumed(values: list[bytes]) -> list[bytes | None]:
        producer = Producer({"bootstrap.servers": bootstrap})
        for value in values:
            producer.produce(TOPIC, value)
        producer.flush(30)
        consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([TOPIC])
        found = []
        while len(found) < len(values):
            message = consumer.poll(30)
            assert message is not None and message.error() is None
            found.append(message.value())
        consumer.commit(asynchronous=False)
        consumer.close()
        return found

    await asyncio.to_thread(make, bootstrap)
    old = [b"old %d" % number for number in range(5)]
    assert await asyncio.to_thread(consumed, old) == old
    await asyncio.to_thread(delete, bootstrap)
    await asyncio.to_thread(make, bootstrap)
    assert await asyncio.to_thread(consumed, [b"new 0", b"new 1"]) == [b"new 0", b"new 1"]
