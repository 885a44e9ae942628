"""CreatePartitions in every version."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey

KEY = ApiKey.CREATE_PARTITIONS


@pytest.mark.parametrize("version", range(SUPPORTED[KEY].min, SUPPORTED[KEY].max + 1))
@pytest.mark.parametrize("validate_only", [False, True])
async def test_topics_grow_each_with_its_own_result(
    admin_broker: Any, version: int, validate_only: bool
) -> None:
    for name in ("a", "b", "c", "d"):
        await admin_broker.topics.create_topic(name)

    def wanted(name: str, count: int, assignments: list[int] | None = None) -> dict[str, Any]:
        manual = None if assignments is None else [{"broker_ids": [broker]} for broker in assignments]
        return {"name": name, "count": count, "assignments": manual}

    topics = [
        wanted("a", 3),
        wanted("b", 1),
        wanted("c", 2, [1]),
        wanted("d", 2, [7]),
        wanted("x", 2),
        wanted("twice", 2),
        wanted("twice", 2),
    ]
    body = {"topics": topics, "timeout": 1000, "validate_only": validate_only}
    results = (await admin_broker.ask(KEY, version, body)).results
    assert {each.name: ErrorCode(each.error_code) for each in results} == {
        "a": ErrorCode.NONE,
        "b": ErrorCode.INVALID_PARTITIONS,
        "c": ErrorCode.NONE,
        "d": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "x": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "twice": ErrorCode.INVALID_REQUEST,
    }
    assert {each.name: each.error_message for each in results}["b"] == "Topic already has 1 partition(s)."
    sizes = {topic.name: len(topic.partitions) for topic in admin_broker.metadata.topics()}
    grown = {"a": 1, "c": 1} if validate_only else {"a": 3, "c": 2}
    assert sizes == {"b": 1, "d": 1, **grown}
