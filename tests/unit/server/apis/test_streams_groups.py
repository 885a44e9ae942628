"""The APIs of streams groups, asked of a whole broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from minikafka.coordination.sqlite import SqliteStore
from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import ApiKey
from tests.unit.server.conftest import AdminBroker

GROUP, MEMBER = "counters", "member"
NONE = ErrorCode.NONE
PROPERTIES = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "1",
}


async def started(store: SqliteStore, tmp_path: Path, **properties: str) -> Any:
    """With a topic of two partitions, and ready to coordinate."""
    settings = PROPERTIES | {name.replace("_", "."): value for name, value in properties.items()}
    broker: Any = await AdminBroker(store, tmp_path / "logs", settings).start()
    await broker.topics.create_topic("words", partitions=2)
    found = await broker.ask(ApiKey.FIND_COORDINATOR, 6, {"key_type": 0, "coordinator_keys": [GROUP]})
    assert found.coordinators[0].error_code == NONE
    return broker


@pytest.fixture
async def broker(store: SqliteStore, tmp_path: Path) -> AsyncIterator[Any]:
    broker = await started(store, tmp_path)
    yield broker
    await broker.stop()


def topic(name: str, partitions: int = 0, **configs: str) -> dict[str, Any]:
    return {
        "name": name,
        "partitions": partitions,
        "replication_factor": -1,
        "topic_configs": [{"key": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }


def topology(*changelogs: dict[str, Any], source: str = "words") -> dict[str, Any]:
    return {
        "epoch": 0,
        "subtopologies": [
            {
                "subtopology_id": "0",
                "source_topics": [source],
                "source_topic_regex": [],
                "state_changelog_topics": list(changelogs),
                "repartition_sink_topics": [],
                "repartition_source_topics": [],
                "copartition_groups": [],
            }
        ],
    }


async def beat(broker: Any, epoch: int, *, version: int = 1, **fields: Any) -> Any:
    nothing = dict.fromkeys(
        (
            "instance_id",
            "rack_id",
            "topology",
            "user_endpoint",
            "client_tags",
            "task_offsets",
            "task_end_offsets",
        )
    )
    owned: Any = {key: [] for key in ("active_tasks", "standby_tasks", "warmup_tasks")}
    body = {
        "group_id": GROUP,
        "member_id": MEMBER,
        "member_epoch": epoch,
        "endpoint_information_epoch": -1,
        "rebalance_timeout": 60_000,
        "process_id": "process",
        "shutdown_application": False,
    }
    return await broker.ask(ApiKey.STREAMS_GROUP_HEARTBEAT, version, body | nothing | owned | fields)


async def describe(broker: Any, *group_ids: str, version: int = 1) -> Any:
    body = {
        "group_ids": list(group_ids),
        "include_authorized_operations": False,
        "include_topology_description": True,
    }
    return (await broker.ask(ApiKey.STREAMS_GROUP_DESCRIBE, version, body)).groups


def tasks(answer: Any) -> dict[str, list[int]]:
    return {each.subtopology_id: list(each.partitions) for each in answer.active_tasks or ()}


@pytest.mark.parametrize("version", [0, 1])
async def test_a_member_joins_lives_and_leaves(broker: Any, version: int) -> None:
    answer = await beat(broker, 0, version=version, topology=topology())
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (NONE, MEMBER, 2)
    assert (answer.heartbeat_interval, answer.task_offset_interval) == (5_000, 60_000)
    lag = answer.acceptable_recovery_lag if version else answer.acceptable_recovery_lag_legacy
    assert lag == 10_000
    assert tasks(answer) == {"0": [0, 1]}
    mine = [{"subtopology_id": "0", "partitions": [0, 1]}]
    answer = await beat(broker, 2, version=version, active_tasks=mine)
    assert (answer.error_code, answer.active_tasks, answer.status) == (NONE, None, ())
    (group,) = await describe(broker, GROUP, version=version)
    assert (group.error_code, group.group_state, group.group_epoch) == (NONE, "Stable", 2)
    (member,) = group.members
    assert (member.member_id, member.process_id, member.is_classic) == (MEMBER, "process", False)
    assert [each.source_topics for each in group.topology.subtopologies] == [("words",)]
    if version:
        assert (group.assignor_name, group.topology_description_status) == ("sticky", 1)
    listed = await broker.ask(ApiKey.LIST_GROUPS, 5, {"states_filter": [], "types_filter": ["Streams"]})
    assert [(each.group_id, each.group_type, each.group_state) for each in listed.groups] == [
        (GROUP, "streams", "Stable")
    ]
    left = await beat(broker, -1, version=version)
    assert (left.error_code, left.member_epoch) == (NONE, -1)


async def test_internal_topics_are_created_and_then_there_are_tasks(broker: Any) -> None:
    log = topic("counts-changelog", cleanup_policy="compact")
    answer = await beat(broker, 0, topology=topology(log))
    assert [each.status_code for each in answer.status] == [3]
    assert tasks(answer) == {}
    assert await broker.metadata.wait_for(
        lambda: broker.metadata.topic("counts-changelog") is not None, timeout_ms=30_000
    )
    answer = await beat(broker, answer.member_epoch)
    assert (answer.error_code, answer.status) == (NONE, ())
    assert tasks(answer) == {"0": [0, 1]}
    created = broker.metadata.topic("counts-changelog")
    assert (len(created.partitions), created.name) == (2, "counts-changelog")
    assert broker.configs.topic_config("counts-changelog").cleanup_policy == ("compact",)


async def test_why_an_internal_topic_cannot_be_created_is_told(broker: Any) -> None:
    answer = await beat(broker, 0, topology=topology(topic("log", no_such_config="1")))
    for _ in range(30_000):
        if broker.services.internal_topics.failures(["log"]):
            break
        await asyncio.sleep(0.001)
    answer = await beat(broker, answer.member_epoch)
    (status,) = answer.status
    assert status.status_code == 3
    assert "Internal topics are missing: log; Creation failed: log (" in status.status_detail
    assert "no.such.config" in status.status_detail


async def test_names_that_no_application_may_use_are_refused(broker: Any) -> None:
    answer = await beat(broker, 0, topology=topology(source="__consumer_offsets"))
    assert answer.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert "__consumer_offsets" in answer.error_message
    answer = await beat(broker, 0, topology=topology(source="no/name"))
    assert answer.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert answer.error_message == "Topic names no/name are not valid topic names."


async def test_groups_that_are_no_streams_groups_are_not_found(broker: Any) -> None:
    there, empty = await describe(broker, "other", "")
    assert (there.error_code, there.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group other not found.",
    )
    assert empty.error_code == ErrorCode.INVALID_GROUP_ID
    assert (await beat(broker, 3)).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_without_the_protocol_there_are_no_streams_groups(store: SqliteStore, tmp_path: Path) -> None:
    broker = await started(store, tmp_path, group_coordinator_rebalance_protocols="classic,consumer")
    try:
        assert (await beat(broker, 0, topology=topology())).error_code == ErrorCode.UNSUPPORTED_VERSION
        (group,) = await describe(broker, GROUP)
        assert group.error_code == ErrorCode.UNSUPPORTED_VERSION
    finally:
        await broker.stop()
