"""The APIs of share groups, asked of a whole broker with a share coordinator in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from minikafka.coordination.sqlite import SqliteStore
from minikafka.coordinator.share.messages import (
    InitializeShareState,
    ReadShareState,
    SharePartitionError,
    SharePartitionSummary,
    TopicIdPartition,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.api_versions import ApiKey
from tests.unit.server.conftest import AdminBroker

GROUP, MEMBER = "sharers", "member"
NONE = ErrorCode.NONE


class FakePersister:
    """Keeps start offsets. ``asked`` is set whenever it was asked for something."""

    def __init__(self) -> None:
        self.starts: dict[tuple[str, UUID, int], int] = {}
        self.acknowledged = 0
        """The delivery complete count of every partition."""
        self.breaks: Exception | None = None
        self.initialized = asyncio.Event()

    async def initialize_state(
        self, group_id: str, partitions: Sequence[InitializeShareState]
    ) -> list[SharePartitionError]:
        if self.breaks is not None:
            raise self.breaks
        for each in partitions:
            self.starts[group_id, each.topic_id, each.partition] = each.start_offset
        self.initialized.set()
        return [SharePartitionError(each.topic_id, each.partition) for each in partitions]

    async def delete_state(
        self, group_id: str, partitions: Sequence[TopicIdPartition]
    ) -> list[SharePartitionError]:
        for each in partitions:
            self.starts.pop((group_id, each.topic_id, each.partition), None)
        return [SharePartitionError(each.topic_id, each.partition) for each in partitions]

    async def read_summary(
        self, group_id: str, partitions: Sequence[ReadShareState]
    ) -> list[SharePartitionSummary]:
        return [
            SharePartitionSummary(
                each.topic_id,
                each.partition,
                start_offset=self.starts.get((group_id, each.topic_id, each.partition), -1),
                leader_epoch=3,
                delivery_complete_count=self.acknowledged,
            )
            for each in partitions
        ]


PROPERTIES = {"group.share.assignment.interval.ms": "0", "offsets.topic.num.partitions": "1"}


@pytest.fixture
async def broker(store: SqliteStore, tmp_path: Path) -> AsyncIterator[Any]:
    """With a topic of two partitions, and ready to coordinate."""
    broker: Any = await AdminBroker(store, tmp_path / "logs", PROPERTIES).start()
    await broker.topics.create_topic("orders", partitions=2)
    found = await broker.ask(ApiKey.FIND_COORDINATOR, 6, {"key_type": 0, "coordinator_keys": [GROUP]})
    assert found.coordinators[0].error_code == NONE
    broker.persister = broker.services.groups.persister = FakePersister()
    yield broker
    await broker.stop()


async def beat(broker: Any, epoch: int, *names: str, member_id: str = MEMBER) -> Any:
    body = {
        "group_id": GROUP,
        "member_id": member_id,
        "member_epoch": epoch,
        "rack_id": None,
        "subscribed_topic_names": list(names) or None,
    }
    return await broker.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, body)


async def joined(broker: Any) -> int:
    """A member that shares in both partitions; its epoch."""
    epoch = (await beat(broker, 0, "orders")).member_epoch
    await broker.persister.initialized.wait()
    while True:
        answer = await beat(broker, epoch)
        assert answer.error_code == NONE, answer
        epoch = answer.member_epoch
        if answer.assignment is not None and answer.assignment.topic_partitions:
            return int(epoch)


async def describe(broker: Any, *group_ids: str) -> Any:
    body = {"group_ids": list(group_ids), "include_authorized_operations": True}
    return (await broker.ask(ApiKey.SHARE_GROUP_DESCRIBE, 1, body)).groups


async def offsets(broker: Any, *topics: tuple[str, list[int]], version: int = 1) -> Any:
    named = [{"topic_name": name, "partitions": numbers} for name, numbers in topics]
    body = {"groups": [{"group_id": GROUP, "topics": named or None}]}
    (group,) = (await broker.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, version, body)).groups
    assert group.error_code == NONE
    return {
        (topic.topic_name, each.partition_index): (each.start_offset, each.leader_epoch)
        + ((each.lag,) if version else ())
        for topic in group.topics
        for each in topic.partitions
    }


async def alter(broker: Any, topic: str, **offsets: int) -> Any:
    partitions = [
        {"partition_index": int(number[1:]), "start_offset": offset} for number, offset in offsets.items()
    ]
    body = {"group_id": GROUP, "topics": [{"topic_name": topic, "partitions": partitions}]}
    return await broker.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, body)


async def test_a_member_joins_shares_and_leaves(broker: Any) -> None:
    epoch = await joined(broker)
    (group, nothing) = await describe(broker, GROUP, "nothing")
    assert (group.error_code, group.group_state, group.assignor_name) == (NONE, "Stable", "simple")
    (member,) = group.members
    (shared,) = member.assignment.topic_partitions
    assert (member.member_id, member.member_epoch, shared.topic_name, list(shared.partitions)) == (
        MEMBER,
        epoch,
        "orders",
        [0, 1],
    )
    assert nothing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    listed = await broker.ask(ApiKey.LIST_GROUPS, 5, {"states_filter": [], "types_filter": ["SHARE"]})
    assert [(each.group_id, each.group_type, each.group_state) for each in listed.groups] == [
        (GROUP, "share", "Stable")
    ]
    assert (await beat(broker, -1)).member_epoch == -1
    assert (await describe(broker, GROUP))[0].group_state == "Empty"


async def test_a_member_id_is_at_most_a_uuid(broker: Any) -> None:
    for member_id in ("", "x" * 37):
        answer = await beat(broker, 0, "orders", member_id=member_id)
        assert answer.error_code == ErrorCode.INVALID_REQUEST


async def test_offsets_are_described_altered_and_deleted(broker: Any) -> None:
    await joined(broker)
    assert await offsets(broker) == {("orders", 0): (-1, 3, -1), ("orders", 1): (-1, 3, -1)}
    assert (await alter(broker, "orders", p0=0)).error_code == ErrorCode.NON_EMPTY_GROUP
    await beat(broker, -1)
    altered = await alter(broker, "orders", p0=0, p7=0)
    assert altered.error_code == NONE
    (topic,) = altered.responses
    assert [each.error_code for each in topic.partitions] == [NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await offsets(broker, ("orders", [0]), ("nowhere", [0])) == {
        ("orders", 0): (0, 3, 0),
        ("nowhere", 0): (-1, 0, -1),
    }
    assert await offsets(broker, ("orders", [0]), version=0) == {("orders", 0): (0, 3)}
    body = {"group_id": GROUP, "topics": [{"topic_name": name} for name in ("orders", "nowhere")]}
    deleted = await broker.ask(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, body)
    assert [(each.topic_name, each.error_code) for each in deleted.responses] == [
        ("orders", NONE),
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert await offsets(broker) == {}
    assert broker.persister.starts == {}


async def test_a_deleted_group_leaves_nothing(broker: Any) -> None:
    await joined(broker)
    await beat(broker, -1)
    assert broker.persister.starts
    answer = await broker.ask(ApiKey.DELETE_GROUPS, 3, {"groups_names": [GROUP]})
    assert answer.results[0].error_code == NONE
    assert broker.persister.starts == {}
    assert (await describe(broker, GROUP))[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("breaks", "expected"),
    [
        (KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (RuntimeError("a bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_a_share_coordinator_that_breaks_is_an_answer(
    broker: Any, breaks: Exception, expected: ErrorCode
) -> None:
    await joined(broker)
    await beat(broker, -1)
    broker.persister.breaks = breaks
    (topic,) = (await alter(broker, "orders", p0=0)).responses
    assert topic.partitions[0].error_code == expected


async def test_a_share_group_is_no_group_of_another_kind(broker: Any) -> None:
    await joined(broker)
    describing = {"groups": [GROUP], "include_authorized_operations": False}
    assert (await broker.ask(ApiKey.DESCRIBE_GROUPS, 6, describing)).groups[0].error_code == (
        ErrorCode.GROUP_ID_NOT_FOUND
    )
    committing = {
        "group_id": GROUP,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [
            {
                "name": "orders",
                "partitions": [
                    {
                        "partition_index": 0,
                        "committed_offset": 5,
                        "committed_leader_epoch": -1,
                        "committed_metadata": "",
                    }
                ],
            }
        ],
    }
    answer = await broker.ask(ApiKey.OFFSET_COMMIT, 9, committing)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    joining = {
        "group_id": GROUP,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
        "reason": None,
    }
    answer = await broker.ask(ApiKey.JOIN_GROUP, 9, joining)
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
