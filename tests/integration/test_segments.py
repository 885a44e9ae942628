"""Segments roll where Kafka rolls them, go when their time is over, and are found by time."""

from __future__ import annotations

import random
import time
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from tests.integration.conftest import StartBroker
from tests.integration.support import confluent
from tests.integration.support.process import BrokerProcess
from tests.integration.support.records import EPOCH_MS, Record

FAST_CHORES = {"log.retention.check.interval.ms": 100, "log.initial.task.delay.ms": 100}

BATCH_OF_100_004_BYTES = Record(None, bytes(99_932))


def base_offsets(files: list[Path]) -> list[int]:
    return [int(path.name.split(".")[0]) for path in files]


def timed(timestamps_ms: list[int], *, size: int = 10) -> list[Record]:
    return [Record(None, bytes(size), (), EPOCH_MS + timestamp) for timestamp in timestamps_ms]


def test_rolls_by_size(broker: BrokerProcess, topic: str) -> None:
    """A segment never exceeds segment.bytes: the batch that would make it do so begins the next."""
    confluent.make_topic(broker.bootstrap, topic, config={"segment.bytes": 1 << 20})
    confluent.write_one_batch_each(broker.bootstrap, topic, [BATCH_OF_100_004_BYTES] * 35)
    files = broker.files(topic, ".log")
    assert base_offsets(files) == [0, 10, 20, 30]
    assert [path.stat().st_size for path in files[:-1]] == [1_000_040] * 3
    assert base_offsets(broker.files(topic, ".index")) == [0, 10, 20, 30]
    assert base_offsets(broker.files(topic, ".timeindex")) == [0, 10, 20, 30]


def test_rolls_by_time(broker: BrokerProcess, topic: str) -> None:
    """By the records' own time: a batch more than segment.ms after the segment's first begins the next."""
    confluent.make_topic(broker.bootstrap, topic, config={"segment.ms": 5_000, "segment.jitter.ms": 0})
    seconds = [0, 2, 5, 5, 6, 3, 11, 12, 60, 1, 65, 66]
    confluent.write_one_batch_each(broker.bootstrap, topic, timed([1_000 * second for second in seconds]))
    assert base_offsets(broker.files(topic, ".log")) == [0, 4, 7, 8, 11]
    assert len(confluent.read(broker.bootstrap, topic, len(seconds))) == len(seconds)


def test_rolls_when_the_index_is_full(broker: BrokerProcess, topic: str) -> None:
    confluent.make_topic(
        broker.bootstrap, topic, config={"segment.index.bytes": 80, "index.interval.bytes": 1}
    )
    confluent.write_one_batch_each(broker.bootstrap, topic, timed(list(range(40))))
    # As Apache Kafka 4.1 does it: of the six entries in 80 bytes of time index one is kept for the roll.
    assert base_offsets(broker.files(topic, ".log")) == [0, 6, 12, 18, 24, 30, 36]
    assert [r.offset for r in confluent.read(broker.bootstrap, topic, 40)] == list(range(40))


def test_retention_by_time(start_broker: StartBroker, topic: str) -> None:
    broker = start_broker(properties=FAST_CHORES | {"log.segment.delete.delay.ms": 100})
    config = {"segment.ms": 5_000, "retention.ms": 3_600_000, "segment.jitter.ms": 0}
    confluent.make_topic(broker.bootstrap, topic, config=config)
    now = int(time.time() * 1000)
    ages_s = [7_300, 7_290, 7_200, 7_199, 60, 59, 10]
    records = [Record(None, b"%d" % age, (), now - age * 1000) for age in ages_s]
    confluent.write_one_batch_each(broker.bootstrap, topic, records)
    confluent.wait_until(lambda: confluent.earliest(broker.bootstrap, topic) == 4, "old segments deleted")
    confluent.wait_until(lambda: base_offsets(broker.files(topic, ".log")) == [4, 6], "their files too")
    confluent.wait_until(lambda: not broker.files(topic, ".deleted"), "the renamed files removed")
    assert [r.value for r in confluent.read(broker.bootstrap, topic, 3)] == [b"60", b"59", b"10"]


def test_retention_by_size(start_broker: StartBroker, topic: str) -> None:
    broker = start_broker(properties=FAST_CHORES)
    config = {"segment.bytes": 1 << 20, "retention.bytes": 2_500_000}
    confluent.make_topic(broker.bootstrap, topic, config=config)
    confluent.write_one_batch_each(broker.bootstrap, topic, [BATCH_OF_100_004_BYTES] * 65)
    # 65 batches of 100,004 bytes in segments of ten; those go whose removal leaves at least 2,500,000 bytes.
    confluent.wait_until(
        lambda: confluent.earliest(broker.bootstrap, topic) == 40, "the oldest segments deleted"
    )
    assert confluent.latest(broker.bootstrap, topic) == 65
    assert [r.offset for r in confluent.read(broker.bootstrap, topic, 25)] == list(range(40, 65))


def test_delete_records(start_broker: StartBroker, topic: str) -> None:
    """The log's start moves at once and for good; whole segments below it go; reading below it says so."""
    broker = start_broker(properties=FAST_CHORES)
    confluent.make_topic(broker.bootstrap, topic, config={"segment.bytes": 1 << 20})
    confluent.write_one_batch_each(broker.bootstrap, topic, [BATCH_OF_100_004_BYTES] * 35)
    admin = confluent.admin(broker.bootstrap)
    at = TopicPartition(topic, 0, 23)
    assert admin.delete_records([at])[at].result(60).low_watermark == 23
    assert confluent.earliest(broker.bootstrap, topic) == 23
    confluent.wait_until(
        lambda: base_offsets(broker.files(topic, ".log")) == [20, 30], "whole segments deleted"
    )
    assert [r.offset for r in confluent.read(broker.bootstrap, topic, 12)] == list(range(23, 35))
    reset = confluent.read(broker.bootstrap, topic, 1, start=5, auto_offset_reset="earliest")
    assert reset[0].offset == 23
    broker.stop()
    broker.start()
    assert confluent.earliest(broker.bootstrap, topic) == 23
    assert [r.offset for r in confluent.read(broker.bootstrap, topic, 12)] == list(range(23, 35))


def test_offsets_for_times_are_exact(broker: BrokerProcess, topic: str) -> None:
    """The first record at or after a time, over many segments, batches and index entries, with time going to
    and fro: what a search through all records finds."""
    config = {"segment.bytes": 1 << 20, "index.interval.bytes": 1_000}
    confluent.make_topic(broker.bootstrap, topic, config=config)
    dice = random.Random(7)
    timestamps = [10 * i + dice.randrange(-400, 400) for i in range(20_000)]
    offsets = confluent.write(
        broker.bootstrap, topic, timed(timestamps, size=300), batch_num_messages=50, linger_ms=5
    )
    assert offsets == list(range(len(timestamps)))
    assert len(broker.files(topic, ".log")) > 4

    highest: list[int] = []  # running maximum: the first at or after t is where it first reaches t
    for timestamp in timestamps:
        highest.append(max(timestamp, highest[-1]) if highest else timestamp)
    consumer = confluent.make_consumer(broker.bootstrap)
    for target in [dice.randrange(-500, 200_600) for _ in range(300)] + [highest[-1], highest[-1] + 1]:
        expected = next((i for i, timestamp in enumerate(highest) if timestamp >= target), None)
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, EPOCH_MS + target)], timeout=60)
        # librdkafka gives the end as OFFSET_END where the broker has no such record
        assert found.offset == (-1 if expected is None else expected), f"at {target}"
    consumer.close()

    highest_offset = confluent.list_offset(broker.bootstrap, topic, OffsetSpec.max_timestamp())
    assert timestamps[highest_offset] == highest[-1]
    assert highest_offset == timestamps.index(highest[-1])


def test_reading_from_a_time(broker: BrokerProcess, topic: str) -> None:
    """A consumer that starts at a time gets the record of that time first."""
    confluent.write_one_batch_each(broker.bootstrap, topic, timed([100 * i for i in range(50)]))
    consumer = confluent.make_consumer(broker.bootstrap)
    found = consumer.offsets_for_times([TopicPartition(topic, 0, EPOCH_MS + 1_250)], timeout=60)
    consumer.close()
    records = confluent.read(broker.bootstrap, topic, 37, start=found[0].offset)
    assert records[0].timestamp_ms == EPOCH_MS + 1_300
    assert records[-1].offset == 49
