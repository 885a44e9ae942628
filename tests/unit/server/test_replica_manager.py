"""The registry of partitions: it finds the right one, and what fails for one is no matter for another."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from minikafka.errors import ErrorCode, InvariantError, KafkaError
from minikafka.protocol.records import Record, build_batch
from minikafka.server.partition import Partition
from minikafka.server.replica_manager import ReplicaManager
from minikafka.types import BrokerId, LeaderEpoch, TopicPartition
from tests.unit.server.disk import Disk, failing
from tests.unit.server.running import append, running

ID, OTHER_ID = UUID(int=7, version=4), UUID(int=8, version=4)
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
ME = BrokerId(1)


@pytest.fixture
def replicas(admin_broker: Any) -> ReplicaManager:
    manager: ReplicaManager = admin_broker.replica_manager
    return manager


def lead(replicas: ReplicaManager, at: TopicPartition, *, epoch: int = 0, topic_id: UUID = ID) -> Partition:
    return replicas.become_leader(
        at, topic_id=topic_id, leader_epoch=LeaderEpoch(epoch), replicas=[ME], isr=[ME], is_new=True
    )


def one_record() -> bytes:
    return build_batch([Record(0, 1_000, b"k", b"v", ())])


def code(call: Any, *args: Any, **kwargs: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call(*args, **kwargs)
    return caught.value.code


def test_only_partitions_that_are_led_here_are_found(replicas: ReplicaManager) -> None:
    partition = lead(replicas, T0)
    assert replicas.partition(T0) is partition
    assert code(replicas.partition, T1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    partition.leader_id = BrokerId(2)
    assert code(replicas.partition, T0) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_partitions_of_a_topic(replicas: ReplicaManager) -> None:
    partitions = [lead(replicas, T0), lead(replicas, T1)]
    lead(replicas, U0, topic_id=OTHER_ID)
    assert list(replicas.partitions_of("t")) == partitions
    replicas.delete_partition(T0)
    assert list(replicas.partitions_of("t")) == partitions[1:]
    replicas.delete_partition(T1)
    assert list(replicas.partitions_of("t")) == [] and set(replicas.partitions) == {U0}
    replicas.delete_partition(T1)  # nothing to delete is fine


def test_leading_again_keeps_the_log_and_never_goes_back(replicas: ReplicaManager) -> None:
    first = lead(replicas, T0)
    replicas.append(T0, one_record(), required_acks=1)
    again = lead(replicas, T0, epoch=4)
    assert again is first and again.leader_epoch == 4 and again.log.log_end_offset == 1
    assert again.log.end_offset_for_epoch(0) == (0, 1)
    with pytest.raises(InvariantError, match="epoch 3 after 4"):
        lead(replicas, T0, epoch=3)
    assert code(lead, replicas, T0, epoch=5, topic_id=OTHER_ID) is ErrorCode.INCONSISTENT_TOPIC_ID


def test_a_new_leader_epoch_is_noted_for_the_disk_thread_and_an_old_one_is_not(
    replicas: ReplicaManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[TopicPartition] = []
    monkeypatch.setattr(replicas._chores, "flush", lambda log: noted.append(log.topic_partition))
    lead(replicas, T0)
    lead(replicas, T1)
    assert noted == [T0, T1]
    lead(replicas, T1)
    assert noted == [T0, T1]
    lead(replicas, T1, epoch=1)
    assert noted == [T0, T1, T1]


def test_records_are_deleted_up_to_the_high_watermark(replicas: ReplicaManager) -> None:
    lead(replicas, T0)
    for _ in range(4):
        replicas.append(T0, one_record(), required_acks=-1)
    assert replicas.delete_records(T0, 2) == 2  # type: ignore[arg-type]
    assert replicas.delete_records(T0, 1) == 2  # type: ignore[arg-type]  # gone already
    for offset in (5, -2):
        assert code(replicas.delete_records, T0, offset) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert replicas.delete_records(T0, -1) == 4  # type: ignore[arg-type]


async def test_records_of_a_compacted_topic_are_not_deleted(admin_broker: Any) -> None:
    await admin_broker.topics.create_topic("t", configs={"cleanup.policy": "compact"})
    assert code(admin_broker.replica_manager.delete_records, T0, 0) is ErrorCode.POLICY_VIOLATION


async def test_acks_all_needs_enough_replicas(admin_broker: Any) -> None:
    await admin_broker.topics.create_topic("t")
    replicas = admin_broker.replica_manager
    replicas.partition(T0).isr = ()
    assert code(replicas.append, T0, one_record(), required_acks=-1) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert replicas.append(T0, one_record(), required_acks=1).first_offset == 0


async def test_a_failed_directory_takes_only_its_own_partitions(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    async with running(one, two) as broker:
        await broker.services.topics.create_topic("t", partitions=4)
        replicas = broker.services.replica_manager
        lost = replicas.take_directory_offline(str(one), reason="smoke")
        assert len(lost) == 2 and len(replicas.partitions) == 2
        assert {code(replicas.partition, at) for at in lost} == {ErrorCode.KAFKA_STORAGE_ERROR}
        assert {partition.topic_partition for partition in replicas.partitions_of("t")} == set(
            replicas.partitions
        )
        for at in replicas.partitions:
            append(broker, "t", at.partition)
        assert replicas.take_directory_offline(str(one), reason="again") == []


async def test_a_partition_whose_log_cannot_be_made_is_offline_alone(tmp_path: Path) -> None:
    disk = Disk()
    async with running(tmp_path, disk=disk) as broker:
        disk.fault = failing("create", "/t-1/")
        await broker.services.topics.create_topic("t", partitions=3)
        topic = broker.services.metadata.topic("t")
        assert topic is not None
        assert [each.offline_replicas for each in topic.partitions] == [(), (1,), ()]
        at = TopicPartition("t", 1)
        assert code(broker.services.replica_manager.partition, at) in (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.KAFKA_STORAGE_ERROR,
        )
