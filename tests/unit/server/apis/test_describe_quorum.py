"""DescribeQuorum in every version: how far the replicas of a partition are, and who the controller is."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from minikafka.coordination import paths
from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey
from minikafka.types import BrokerId, Offset, ReplicaAssignment, TopicPartition
from tests.unit.server.running import append

KEY = ApiKey.DESCRIBE_QUORUM
VERSIONS = range(SUPPORTED[KEY].min, SUPPORTED[KEY].max + 1)
ONE, TWO, THREE = map(BrokerId, (1, 2, 3))


def asked(*partitions: tuple[str, int]) -> dict[str, Any]:
    return {
        "topics": [
            {"topic_name": topic, "partitions": [{"partition_index": number}]} for topic, number in partitions
        ]
    }


async def describe(broker: Any, version: int, topic: str, partition: int = 0) -> Any:
    answer = await broker.ask(KEY, version, asked((topic, partition)))
    assert answer.error_code == ErrorCode.NONE
    (found,) = answer.topics
    assert found.topic_name == topic
    (described,) = found.partitions
    assert described.partition_index == partition and described.observers == ()
    return described


async def put_topic(broker: Any, name: str, *replicas: BrokerId) -> None:
    data = paths.encode_topic(paths.TopicAssignment(UUID(int=77), {0: ReplicaAssignment(replicas)}))
    await broker.store.create(paths.topic_path(name), data)


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_leader_tells_how_far_each_replica_is(admin_broker: Any, version: int) -> None:
    await put_topic(admin_broker, "a", ONE, TWO, THREE)
    await admin_broker.topics.led("a")
    for _ in range(3):
        append(admin_broker.broker, "a")
    partition = admin_broker.replica_manager.partition(TopicPartition("a", 0))
    clock = admin_broker.clock
    fetched_at_ms = clock.monotonic_ms() - 5_000
    partition.record_follower_fetch(
        TWO, fetch_offset=Offset(1), log_start_offset=Offset(0), now_ms=fetched_at_ms
    )
    before_ms = clock.now_ms()
    described = await describe(admin_broker, version, "a")
    assert (described.error_code, described.leader_id, described.leader_epoch) == (0, 1, 0)
    assert described.high_watermark == partition.log.high_watermark == 3
    leader, behind, absent = described.current_voters
    assert [each.replica_id for each in described.current_voters] == [1, 2, 3]
    assert [each.log_end_offset for each in described.current_voters] == [3, 1, -1]
    if version >= 1:
        assert before_ms <= leader.last_fetch_timestamp <= clock.now_ms()
        assert before_ms <= leader.last_caught_up_timestamp <= clock.now_ms()
        wall_clock_ms = clock.now_ms() - clock.monotonic_ms() + fetched_at_ms
        assert abs(behind.last_fetch_timestamp - wall_clock_ms) <= 50
        assert behind.last_caught_up_timestamp == -1
        assert (absent.last_fetch_timestamp, absent.last_caught_up_timestamp) == (-1, -1)
    if version >= 2:
        assert described.error_message is None


@pytest.mark.parametrize("version", VERSIONS)
async def test_others_than_the_leader_name_the_leader_and_say_no_more(
    admin_broker: Any, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await admin_broker.topics.create_topic("a")
    partition = admin_broker.replica_manager.partition(TopicPartition("a", 0))
    monkeypatch.setattr(partition, "leader_id", TWO)
    described = await describe(admin_broker, version, "a")
    assert described.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (described.leader_id, described.leader_epoch, described.current_voters) == (1, 0, ())
    for topic, number in (("x", 0), ("a", 4)):
        described = await describe(admin_broker, version, topic, number)
        assert described.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (described.leader_id, described.leader_epoch, described.high_watermark) == (-1, -1, -1)
    if version >= 2:
        assert described.error_message


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_metadata_partition_stands_for_the_controller(admin_broker: Any, version: int) -> None:
    described = await describe(admin_broker, version, "__cluster_metadata")
    assert (described.error_code, described.leader_id, described.leader_epoch) == (0, 1, 1)
    assert [(each.replica_id, each.log_end_offset) for each in described.current_voters] == [(1, 0)]
    assert described.high_watermark == 0, "kafka-metadata-quorum takes -1 for a broken quorum"
    other = await describe(admin_broker, version, "__cluster_metadata", 1)
    assert other.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_since_version_2_the_nodes_and_their_listeners_are_there(admin_broker: Any) -> None:
    answer = await admin_broker.ask(KEY, 2, asked(("__cluster_metadata", 0)))
    assert [
        (node.node_id, [(each.name, each.host, each.port) for each in node.listeners])
        for node in answer.nodes
    ] == [(1, [("PLAINTEXT", "localhost", 9092), ("INSIDE", "10.0.0.1", 9093)])]
