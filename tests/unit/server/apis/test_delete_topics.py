"""DeleteTopics in every version."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
import pytest

from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey

KEY = ApiKey.DELETE_TOPICS
VERSIONS = range(SUPPORTED[KEY].min, SUPPORTED[KEY].max + 1)


async def delete(broker: Any, version: int, *names: str) -> Any:
    if version >= 6:
        body: dict[str, Any] = {"topics": [{"name": name, "topic_id": None} for name in names]}
    else:
        body = {"topic_names": list(names)}
    return (await broker.ask(KEY, version, {**body, "timeout": 1000})).responses


@pytest.mark.parametrize("version", VERSIONS)
async def test_topics_go_by_name_each_with_its_own_result(admin_broker: Any, version: int) -> None:
    for name in ("a", "b", "c"):
        await admin_broker.topics.create_topic(name)
    results = await delete(admin_broker, version, "a", "missing", "b", "b")
    assert [(each.name, ErrorCode(each.error_code)) for each in results] == [
        ("a", ErrorCode.NONE),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("b", ErrorCode.INVALID_REQUEST),
    ]
    if version >= 5:
        assert results[2].error_message == "Duplicate topic name."
    assert [topic.name for topic in admin_broker.metadata.topics()] == ["b", "c"]


async def test_topics_go_by_id(admin_broker: Any) -> None:
    ids = {name: (await admin_broker.topics.create_topic(name)).topic_id for name in ("a", "b", "c")}
    wanted = [
        {"name": None, "topic_id": ids["a"]},
        {"name": None, "topic_id": UUID(int=9)},
        {"name": "b", "topic_id": ids["b"]},
        {"name": None, "topic_id": None},
        {"name": "c", "topic_id": None},
        {"name": None, "topic_id": ids["c"]},
    ]
    results = (await admin_broker.ask(KEY, 6, {"topics": wanted, "timeout": 1000})).responses
    assert [(each.name, each.topic_id, ErrorCode(each.error_code)) for each in results] == [
        ("a", ids["a"], ErrorCode.NONE),
        (None, UUID(int=9), ErrorCode.UNKNOWN_TOPIC_ID),
        ("b", ids["b"], ErrorCode.INVALID_REQUEST),
        (None, None, ErrorCode.INVALID_REQUEST),
        ("c", ids["c"], ErrorCode.INVALID_REQUEST),
        ("c", ids["c"], ErrorCode.INVALID_REQUEST),
    ]
    assert [topic.name for topic in admin_broker.metadata.topics()] == ["b", "c"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_deletion_can_be_switched_off(admin_broker: Any, version: int) -> None:
    await admin_broker.topics.create_topic("a")
    admin_broker.services.config = msgspec.structs.replace(
        admin_broker.services.config, delete_topic_enable=False
    )
    (result,) = await delete(admin_broker, version, "a")
    expected = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
    assert result.error_code == expected
    assert admin_broker.metadata.topic("a") is not None
