"""What a broker makes of files that a crash or a bad disk has left: bad tails go, indexes are made again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.conftest import StartBroker
from tests.integration.support import confluent
from tests.integration.support.process import BrokerProcess
from tests.integration.support.records import EPOCH_MS, Record, numbered
from tests.integration.support.wire import RawClient

COUNT = 600
DENSE_INDEX = {"index.interval.bytes": 200}
"""An entry every few batches, so that the indexes of a small log are worth damaging."""


def batches(log: bytes) -> list[tuple[int, int]]:
    """(base offset, position) of each batch in a segment."""
    found, position = [], 0
    while position + 61 <= len(log):
        found.append((int.from_bytes(log[position : position + 8], "big"), position))
        position += 12 + int.from_bytes(log[position + 8 : position + 12], "big")
    return found


def fill(broker: BrokerProcess, topic: str, **config: object) -> list[Record]:
    confluent.make_topic(broker.bootstrap, topic, config=config)
    records = [numbered(i, size=1_000) for i in range(COUNT)]
    offsets = confluent.write_one_batch_each(broker.bootstrap, topic, records)
    assert offsets == list(range(COUNT))
    return records


def assert_log_holds(broker: BrokerProcess, topic: str, records: list[Record]) -> None:
    """These records and no others; and the log goes on from there."""
    assert confluent.latest(broker.bootstrap, topic) == len(records)
    stored = confluent.read(broker.bootstrap, topic, len(records))
    assert [(r.offset, *r.content, r.timestamp_ms) for r in stored] == [
        (i, *r) for i, r in enumerate(records)
    ]
    after = numbered(COUNT + 1)
    assert confluent.write(broker.bootstrap, topic, [after]) == [len(records)]
    (last,) = confluent.read(broker.bootstrap, topic, 1, start=len(records))
    assert last.content == after[:3]


def append_garbage(log: Path) -> int:
    with log.open("ab") as file:
        file.write(os.urandom(500))
    return COUNT


def append_zeros(log: Path) -> int:
    """What an ext4 journal leaves of blocks that were never written."""
    with log.open("ab") as file:
        file.write(bytes(100_000))
    return COUNT


def flip_a_bit_in_the_last_batch(log: Path) -> int:
    data = bytearray(log.read_bytes())
    base_offset, position = batches(bytes(data))[-1]
    data[position + 80] ^= 0x10
    log.write_bytes(data)
    return base_offset


def cut_the_last_batch(log: Path) -> int:
    data = log.read_bytes()
    base_offset, position = batches(data)[-1]
    log.write_bytes(data[: position + 70])
    return base_offset


def cut_within_a_batch_header(log: Path) -> int:
    data = log.read_bytes()
    base_offset, position = batches(data)[-1]
    log.write_bytes(data[: position + 9])
    return base_offset


def flip_a_bit_in_the_middle(log: Path) -> int:
    data = bytearray(log.read_bytes())
    found = batches(bytes(data))
    base_offset, position = found[len(found) // 2]
    data[position + 100] ^= 0x01
    log.write_bytes(data)
    return base_offset


DAMAGES = (
    append_garbage,
    append_zeros,
    flip_a_bit_in_the_last_batch,
    cut_the_last_batch,
    cut_within_a_batch_header,
    flip_a_bit_in_the_middle,
)


def test_a_damaged_tail_is_cut_off_after_an_unclean_stop(start_broker: StartBroker) -> None:
    broker = start_broker()
    written = {damage.__name__: fill(broker, damage.__name__) for damage in DAMAGES}
    broker.kill()
    kept = {damage.__name__: damage(broker.files(damage.__name__, ".log")[-1]) for damage in DAMAGES}
    broker.start()
    for topic, count in kept.items():
        (log,) = broker.files(topic, ".log")
        assert len(batches(log.read_bytes())) == count, f"{topic}: the file is not cut to its last good batch"
        assert_log_holds(broker, topic, written[topic][:count])


def test_all_that_follows_a_bad_batch_goes_with_it(start_broker: StartBroker, topic: str) -> None:
    """In the middle of a log of many segments: offsets stay contiguous, so the later segments go."""
    broker = start_broker(properties={"log.segment.bytes": 1 << 20})
    confluent.make_topic(broker.bootstrap, topic)
    records = [numbered(i, size=100_000) for i in range(60)]
    confluent.write_one_batch_each(broker.bootstrap, topic, records)
    broker.kill()
    segments = broker.files(topic, ".log")
    assert len(segments) > 4
    damaged = segments[2]
    count = flip_a_bit_in_the_middle(damaged)
    broker.start()
    assert broker.files(topic, ".log") == segments[:3]
    assert_log_holds(broker, topic, records[:count])


def lookups(broker: BrokerProcess, topic: str, records: list[Record]) -> None:
    """Every way to use an index, against the records themselves."""
    with RawClient(broker.port) as client:
        for offset in range(0, COUNT, 7):
            fetched = client.fetch(
                topic, 0, offset, partition_max_bytes=100
            )  # at least one batch, all the same
            assert fetched.error == 0
            assert int.from_bytes(fetched.records[:8], "big") == offset, (
                "the batch of one record at the offset"
            )
            assert (records[offset].value or b"?") in bytes(fetched.records)
        for timestamp in range(EPOCH_MS - 1, EPOCH_MS + COUNT // 10):
            first = next(i for i, record in enumerate(records) if (record.timestamp_ms or 0) >= timestamp)
            assert client.list_offset(topic, 0, timestamp) == (0, records[first].timestamp_ms, first)


def remove(index: Path) -> None:
    index.unlink()


def cut_unevenly(index: Path) -> None:
    os.truncate(index, index.stat().st_size - 3)


def fill_with_garbage(index: Path) -> None:
    index.write_bytes(os.urandom(index.stat().st_size))


def fill_with_zeros(index: Path) -> None:
    index.write_bytes(bytes(index.stat().st_size))


def empty(index: Path) -> None:
    os.truncate(index, 0)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
def test_damaged_and_missing_indexes_are_made_again(start_broker: StartBroker, clean: bool) -> None:
    # After a clean stop nobody looks at an index's content: Kafka too trusts what passes its sanity check.
    damages: list[Callable[[Path], None]] = [remove, cut_unevenly]
    if not clean:
        damages += [fill_with_garbage, fill_with_zeros, empty]
    broker = start_broker()
    cases = [(damage, suffix) for damage in damages for suffix in (".index", ".timeindex")]
    topics = [f"{damage.__name__}{suffix}" for damage, suffix in cases]
    written = {topic: fill(broker, topic, **DENSE_INDEX) for topic in topics}
    broker.stop()
    undamaged = {path: path.read_bytes() for topic in topics for path in broker.files(topic, "index")}
    assert all(len(content) > 500 for content in undamaged.values()), undamaged
    if not clean:
        broker.start()
        broker.kill()
    for (damage, suffix), topic in zip(cases, topics, strict=True):
        (index,) = broker.files(topic, suffix)
        damage(index)
    broker.start()
    for topic, records in written.items():
        lookups(broker, topic, records)
    broker.stop()
    for path, content in undamaged.items():
        if broker.is_reference and clean and path.suffix == ".timeindex":
            continue  # Kafka goes on without it, and reads more of the log instead
        assert path.read_bytes() == content, f"{path} is not what it was"
