"""The registry of partitions: it finds the right one, and what fails for one is no matter for another."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minikafka.errors import ErrorCode
from minikafka.testing.simulation.disk import failing, failing_once
from minikafka.types import Offset, TopicPartition
from tests.unit.server.disk import Disk
from tests.unit.server.replicas import OTHER, TP, Replicas, code
from tests.unit.server.running import append, running, until

ELSEWHERE = TopicPartition("payments", 0)


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    made = Replicas(tmp_path)
    yield made
    made.close()


def test_partitions_of_a_topic(replicas: Replicas) -> None:
    partitions = [replicas.lead(TP), replicas.lead(OTHER)]
    replicas.lead(ELSEWHERE)
    manager = replicas.manager
    assert list(manager.partitions_of("orders")) == partitions
    manager.delete_partition(TP)
    assert list(manager.partitions_of("orders")) == partitions[1:]
    manager.delete_partition(OTHER)
    assert list(manager.partitions_of("orders")) == [] and set(manager.partitions) == {ELSEWHERE}
    manager.delete_partition(OTHER)  # nothing to delete is fine


def test_leading_again_keeps_the_log(replicas: Replicas) -> None:
    first = replicas.lead(epoch=0, isr=[1], replicas=[1])
    replicas.append()
    again = replicas.lead(epoch=4, isr=[1], replicas=[1])
    assert again is first and again.leader_epoch == 4 and again.log.log_end_offset == 1
    assert again.log.end_offset_for_epoch(0) == (0, 1)


def test_records_are_deleted_up_to_the_high_watermark(replicas: Replicas) -> None:
    partition = replicas.lead(isr=[1], replicas=[1])
    delete_records = replicas.manager.delete_records
    for _ in range(4):
        replicas.append(acks=-1)
    for offset, low_watermark in ((2, 2), (1, 2)):  # the second is gone already
        assert delete_records(TP, Offset(offset)) == offset
        assert partition.low_watermark() == low_watermark
    for offset in (5, -2):
        assert code(delete_records, TP, Offset(offset)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete_records(TP, Offset(-1)) == partition.low_watermark() == 4


async def test_records_of_a_compacted_topic_are_not_deleted(admin_broker: Any) -> None:
    await admin_broker.topics.create_topic("t", configs={"cleanup.policy": "compact"})
    assert (
        code(admin_broker.replica_manager.delete_records, TopicPartition("t", 0), Offset(0))
        is ErrorCode.POLICY_VIOLATION
    )


def test_acks_all_needs_enough_replicas(replicas: Replicas) -> None:
    replicas.lead(isr=[])
    assert code(replicas.append, acks=-1) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert replicas.append(acks=1) == 1


async def test_a_failed_directory_takes_only_its_own_partitions(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    async with running(one, two) as broker:
        await broker.services.topics.create_topic("t", partitions=4)
        await broker.services.topics.wait_for_leaders("t", partitions=4, timeout_ms=20_000)
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


async def test_a_disk_that_fails_while_a_log_is_made_leaves_it_to_another(tmp_path: Path) -> None:
    disk = Disk()
    async with running(tmp_path / "one", tmp_path / "two", disk=disk) as broker:
        disk.fault = failing_once("create", "/t-1/")
        await broker.services.topics.create_topic("t", partitions=3)
        await until(broker, lambda: len(broker.services.log_manager.live_directories) == 1, "one has failed")
        replicas, at = broker.services.replica_manager.partitions, TopicPartition("t", 1)
        await until(broker, lambda: at in replicas and replicas[at].leader_id == 1, "the other has taken it")
        assert replicas[at].log.directory.startswith(broker.services.log_manager.live_directories[0])
        append(broker, "t", 1)
        assert not broker.failure.done()


@pytest.mark.parametrize("cause", [errno.EMFILE, errno.ENFILE, errno.ENAMETOOLONG, errno.ENOENT])
async def test_what_is_no_failure_of_the_disk_refuses_one_partition_and_nothing_else(
    tmp_path: Path, cause: int
) -> None:
    disk = Disk()
    async with running(tmp_path, disk=disk) as broker:
        disk.fault = failing("create", "/t-1/", cause)
        await broker.services.topics.create_topic("t", partitions=3)

        def offline() -> list[tuple[int, ...]]:
            topic = broker.services.metadata.topic("t")
            return [] if topic is None else [each.offline_replicas for each in topic.partitions]

        await until(broker, lambda: offline() == [(), (1,), ()], "one replica is offline")
        manager = broker.services.log_manager
        await until(broker, lambda: not manager._new_logs, "the pending disk work is done")
        assert manager.live_directories == (str(tmp_path),) and not broker.failure.done()
        assert not (tmp_path / "t-1").exists()
        at = TopicPartition("t", 1)
        assert code(broker.services.replica_manager.partition, at) is ErrorCode.KAFKA_STORAGE_ERROR
        append(broker, "t", 0)
    disk.fault = None
    async with running(tmp_path, disk=disk) as again:
        replicas = again.services.replica_manager.partitions
        await until(again, lambda: at in replicas and replicas[at].leader_id == 1, "it is made now")
        append(again, "t", 1)


@pytest.mark.parametrize("cause", [errno.EMFILE, errno.ENFILE])
async def test_a_log_that_cannot_be_opened_at_the_start_is_offline_alone(tmp_path: Path, cause: int) -> None:
    disk = Disk()
    async with running(tmp_path, disk=disk) as broker:
        await broker.services.topics.create_topic("t", partitions=3)
        await until(broker, lambda: len(broker.services.replica_manager.partitions) == 3, "all are there")
        for partition in range(3):
            append(broker, "t", partition)
    at = TopicPartition("t", 1)
    disk.fault = failing("open", "/t-1/", cause)
    async with running(tmp_path, disk=disk) as again:
        replicas = again.services.replica_manager
        await until(again, lambda: len(replicas.partitions) == 2, "the others are there")
        assert code(replicas.partition, at) is ErrorCode.KAFKA_STORAGE_ERROR
        assert again.services.log_manager.live_directories == (str(tmp_path),) and not again.failure.done()
        append(again, "t", 0)
        append(again, "t", 2)
    disk.fault = None
    async with running(tmp_path, disk=disk) as healed:
        partitions = healed.services.replica_manager.partitions
        await until(healed, lambda: at in partitions and partitions[at].leader_id == 1, "it is back")
        assert partitions[at].log.log_end_offset == 1
