"""AlterPartitionReassignments and ListPartitionReassignments in every version."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from minikafka.coordination import paths
from minikafka.coordination.store import ConnectionLossError
from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey
from minikafka.types import BrokerId, ReplicaAssignment
from tests.unit.server.running import PATIENCE_MS

ALTER, LIST = ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS
ONE, GONE = BrokerId(1), BrokerId(7)


def request(partition: int, replicas: list[int] | None) -> dict[str, Any]:
    return {"partition_index": partition, "replicas": replicas}


def asked(*topics: tuple[str, list[dict[str, Any]]], **more: Any) -> dict[str, Any]:
    named = [{"name": name, "partitions": partitions} for name, partitions in topics]
    return {"timeout": 1000, "topics": named, **more}


def codes(answer: Any) -> dict[tuple[str, int], ErrorCode]:
    return {
        (topic.name, each.partition_index): ErrorCode(each.error_code)
        for topic in answer.responses
        for each in topic.partitions
    }


async def begin_move(broker: Any, name: str) -> None:
    """A move that will not end: broker 7 is to have the first partition, and does not live."""
    path = paths.topic_path(name)
    node = await broker.store.get(path)
    topic = paths.decode_topic(name, node.data)
    topic.partitions[0] = ReplicaAssignment((ONE,)).reassign_to((ONE, GONE))
    await broker.store.set(path, paths.encode_topic(topic), node.stat.version)
    await broker.until(lambda: replicas(broker, name) == (ONE, GONE), "the controller has begun")


def replicas(broker: Any, name: str) -> tuple[int, ...]:
    return tuple(broker.metadata.topic(name).partitions[0].replicas)


async def settled(broker: Any, name: str) -> None:
    """Until the store knows of no move of the topic any more."""
    async with asyncio.timeout(PATIENCE_MS / 1000):
        while True:
            changed = asyncio.Event()
            node = await broker.store.get(
                paths.topic_path(name), watch=lambda _, changed=changed: changed.set()
            )
            partitions = paths.decode_topic(name, node.data).partitions
            if not any(each.is_being_reassigned for each in partitions.values()):
                return
            await changed.wait()


async def moves(broker: Any, topics: list[dict[str, Any]] | None = None) -> list[tuple[Any, ...]]:
    answer = await broker.ask(LIST, 0, {"timeout": 1000, "topics": topics})
    assert (answer.error_code, answer.error_message) == (0, None)
    return [
        (topic.name, each.partition_index, each.replicas, each.adding_replicas, each.removing_replicas)
        for topic in answer.topics
        for each in topic.partitions
    ]


@pytest.mark.parametrize("version", range(SUPPORTED[ALTER].min, SUPPORTED[ALTER].max + 1))
async def test_each_partition_has_its_own_answer(admin_broker: Any, version: int) -> None:
    await admin_broker.topics.create_topic("a", partitions=3)
    body = asked(
        ("a", [request(0, [1]), request(1, []), request(2, None), request(9, [1])]),
        ("x", [request(0, [1])]),
        ("a", [request(0, [1, 7])]),  # said last
    )
    answer = await admin_broker.ask(ALTER, version, body)
    assert (answer.error_code, answer.error_message) == (0, None)
    assert codes(answer) == {
        ("a", 0): ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ("a", 1): ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ("a", 2): ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ("a", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("x", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert await moves(admin_broker) == []
    if version >= 1:
        assert answer.allow_replication_factor_change is True


async def test_since_version_1_the_number_of_replicas_can_be_held(admin_broker: Any) -> None:
    await admin_broker.topics.create_topic("a")
    await begin_move(admin_broker, "a")
    body = asked(("a", [request(0, [1])]), allow_replication_factor_change=False)
    answer = await admin_broker.ask(ALTER, 1, body)
    assert codes(answer) == {("a", 0): ErrorCode.INVALID_REPLICATION_FACTOR}
    assert answer.allow_replication_factor_change is False


async def test_moves_are_listed_until_they_are_taken_back_and_the_controller_has_done_so(
    admin_broker: Any,
) -> None:
    for name in ("a", "b"):
        await admin_broker.topics.create_topic(name, partitions=2)
        await begin_move(admin_broker, name)
    assert await moves(admin_broker) == [("a", 0, (1, 7), (7,), ()), ("b", 0, (1, 7), (7,), ())]
    named = [{"name": "b", "partition_indexes": [0, 1, 5]}, {"name": "x", "partition_indexes": [0]}]
    assert await moves(admin_broker, named) == [("b", 0, (1, 7), (7,), ())]
    assert await moves(admin_broker, []) == []
    answer = await admin_broker.ask(ALTER, 1, asked(("b", [request(0, None)])))
    assert codes(answer) == {("b", 0): ErrorCode.NONE}
    await settled(admin_broker, "b")
    assert await moves(admin_broker) == [("a", 0, (1, 7), (7,), ())]


async def test_a_store_that_is_away_is_the_error_of_the_whole_list(
    admin_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*args: Any, **options: Any) -> Any:
        raise ConnectionLossError("no answer")

    monkeypatch.setattr(admin_broker.own_store, "children", away)
    answer = await admin_broker.ask(LIST, 0, {"timeout": 1000, "topics": None})
    assert (answer.error_code, answer.topics) == (ErrorCode.REQUEST_TIMED_OUT, ())
    assert answer.error_message


async def test_a_topic_that_is_being_moved_does_not_grow(admin_broker: Any) -> None:
    await admin_broker.topics.create_topic("a", partitions=2)
    await begin_move(admin_broker, "a")
    body = {
        "topics": [{"name": "a", "count": 3, "assignments": None}],
        "timeout": 1000,
        "validate_only": False,
    }
    (result,) = (await admin_broker.ask(ApiKey.CREATE_PARTITIONS, 3, body)).results
    assert result.error_code == ErrorCode.REASSIGNMENT_IN_PROGRESS
    assert result.error_message == "A partition reassignment is in progress for the topic 'a'."
