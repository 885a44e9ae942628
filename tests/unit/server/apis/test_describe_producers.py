"""DescribeProducers."""

from __future__ import annotations

from typing import Any

from minikafka.errors import ErrorCode
from minikafka.protocol.records.records import Record, build_batch
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.types import TopicPartition

KEY = ApiKey.DESCRIBE_PRODUCERS


async def test_the_producers_of_a_partition_each_with_its_own_error(admin_broker: Any) -> None:
    await admin_broker.topics.create_topic("a", partitions=2)
    now_ms = admin_broker.clock.now_ms()
    records = [Record(0, now_ms, None, b"1", ()), Record(1, now_ms, None, b"2", ())]
    batch = build_batch(records, producer_id=9, producer_epoch=2, base_sequence=0)
    log = admin_broker.replica_manager.partition(TopicPartition("a", 1)).log
    log.append_as_leader(batch, leader_epoch=0)
    topics = [
        {"name": "a", "partition_indexes": [0, 1, 7]},
        {"name": "b/c", "partition_indexes": [0]},
    ]
    first, second = (await admin_broker.ask(KEY, 0, {"topics": topics})).topics
    empty, used, missing = first.partitions
    assert (empty.error_code, empty.active_producers) == (ErrorCode.NONE, ())
    (producer,) = used.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (9, 2, 1)
    assert (producer.last_timestamp, producer.coordinator_epoch) == (now_ms, -1)
    assert producer.current_txn_start_offset == -1
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert second.partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_a_follower_answers_too(admin_broker: Any) -> None:
    await admin_broker.topics.create_topic("a")
    at = TopicPartition("a", 0)
    batch = build_batch([Record(0, 0, None, b"1", ())], producer_id=9, producer_epoch=2, base_sequence=0)
    partition = admin_broker.replica_manager.partition(at)
    partition.log.append_as_leader(batch, leader_epoch=0)
    partition.leader_id = 2
    topics = [{"name": "a", "partition_indexes": [0]}]
    ((found,),) = [each.partitions for each in (await admin_broker.ask(KEY, 0, {"topics": topics})).topics]
    assert [each.producer_id for each in found.active_producers] == [9]
