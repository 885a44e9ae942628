"""DescribeTopicPartitions: topics page by page."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import ApiKey

KEY = ApiKey.DESCRIBE_TOPIC_PARTITIONS
SIZES = {"a": 3, "b": 1, "c": 4}


@pytest.fixture
async def broker(admin_broker: Any) -> Any:
    for name, partitions in SIZES.items():
        await admin_broker.topics.create_topic(name, partitions=partitions)
    return admin_broker


async def ask(
    broker: Any, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> tuple[list[tuple[str, ErrorCode, list[int]]], tuple[str, int] | None]:
    at = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
    body = {
        "topics": [{"name": name} for name in names],
        "response_partition_limit": limit,
        "cursor": at,
    }
    answer = await broker.ask(KEY, 0, body)
    topics = [
        (topic.name, ErrorCode(topic.error_code), [each.partition_index for each in topic.partitions])
        for topic in answer.topics
    ]
    following = answer.next_cursor
    return topics, None if following is None else (following.topic_name, following.partition_index)


async def test_all_topics_in_one_page(broker: Any) -> None:
    topics, cursor = await ask(broker)
    assert topics == [(name, ErrorCode.NONE, list(range(size))) for name, size in SIZES.items()]
    assert cursor is None


async def test_what_a_partition_says(broker: Any) -> None:
    body = {"topics": [{"name": "b"}], "response_partition_limit": 10, "cursor": None}
    (topic,) = (await broker.ask(KEY, 0, body)).topics
    (partition,) = topic.partitions
    assert topic.topic_id == broker.metadata.topic("b").topic_id
    assert topic.topic_authorized_operations == 0b1101_1111_1000
    assert (partition.leader_id, partition.leader_epoch, partition.replica_nodes) == (1, 0, (1,))
    assert (partition.isr_nodes, partition.offline_replicas) == ((1,), ())
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((), ())


@given(limit=st.integers(-1, 9), names=st.lists(st.sampled_from(["a", "b", "c", "missing"]), unique=True))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_pages_of_any_size_together_are_everything_once(
    broker: Any, limit: int, names: list[str]
) -> None:
    found: list[tuple[str, int]] = []
    cursor: tuple[str, int] | None = None
    for _ in range(20):
        topics, cursor = await ask(broker, *names, limit=limit, cursor=cursor)
        assert sum(len(partitions) for _, _, partitions in topics) <= max(limit, 1)
        found += [(name, partition) for name, _, partitions in topics for partition in partitions]
        if cursor is None:
            break
    assert cursor is None
    wanted = sorted(SIZES.keys() & set(names)) if names else sorted(SIZES)
    assert found == [(name, partition) for name in wanted for partition in range(SIZES[name])]


async def test_a_page_ends_exactly_with_a_topic(broker: Any) -> None:
    topics, cursor = await ask(broker, limit=3)
    assert ([name for name, _, _ in topics], cursor) == (["a"], ("b", 0))


async def test_topics_that_do_not_exist_have_their_errors(broker: Any) -> None:
    topics, _ = await ask(broker, "z", "a", "b/d")
    assert [(name, code) for name, code, _ in topics] == [
        ("a", ErrorCode.NONE),
        ("b/d", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("z", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


@pytest.mark.parametrize("cursor", [("b", 0), ("a", -1)])
async def test_a_cursor_elsewhere_is_refused(broker: Any, cursor: tuple[str, int]) -> None:
    topics, _ = await ask(broker, "a", cursor=cursor)
    assert topics == [("a", ErrorCode.INVALID_REQUEST, [])]


async def test_among_all_topics_a_cursor_outlives_its_topic(broker: Any) -> None:
    await broker.topics.delete_topic("b")
    topics, _ = await ask(broker, cursor=("b", 0))
    assert [name for name, _, _ in topics] == ["c"]


async def test_thousands_of_names_are_answered_in_order_and_each_once(broker: Any) -> None:
    names = [f"missing-{number * 7 % 2_500:04}" for number in range(5_000)]
    topics, cursor = await ask(broker, *names, "b", "b")
    assert [name for name, _, _ in topics] == sorted({*names, "b"}) and cursor is None
    topics, _ = await ask(broker, *names, cursor=("missing-2000", 0))
    assert [name for name, _, _ in topics] == sorted({name for name in names if name >= "missing-2000"})
