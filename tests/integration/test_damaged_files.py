"""What a broker makes of files that a crash or a bad disk has left: bad tails go, indexes are made again."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, TopicPartition

from minikafka.cli.dump_log import command as dump_log
from tests.integration.conftest import StartBroker
from tests.integration.support import confluent
from tests.integration.support.process import BrokerProcess, StartFailed
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
    # After a clean stop an index's content is not read: Kafka too trusts what passes its sanity check.
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


@pytest.mark.minikafka_only
@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", "leader-epoch-checkpoint"])
def test_a_link_in_the_place_of_a_file_is_refused_and_its_target_is_left_alone(
    start_broker: StartBroker, topic: str, suffix: str, tmp_path: Path
) -> None:
    """After a kill recovery cuts segments and rewrites indexes: not those that a link leads to."""
    broker = start_broker()
    fill(broker, topic)
    broker.kill()
    (path,) = broker.files(topic, suffix)
    target = tmp_path / "elsewhere"
    path.rename(target)
    if suffix == ".log":
        append_garbage(target)
    before = target.read_bytes()
    path.symlink_to(target)
    with pytest.raises(StartFailed, match=f"a symbolic link; only regular files are used.*{path.name}"):
        broker.start()
    assert target.read_bytes() == before
    path.unlink()
    target.rename(path)
    broker.start()
    assert confluent.latest(broker.bootstrap, topic) == COUNT


@pytest.mark.minikafka_only
@pytest.mark.parametrize("how", ["emptied", "overwritten", "removed", "replaced"])
def test_no_admin_request_is_acknowledged_once_the_store_is_lost(
    start_broker: StartBroker, topic: str, how: str
) -> None:
    """What is created afterwards would not be there after the next start; records go on."""
    broker = start_broker()
    confluent.make_topic(broker.bootstrap, topic)
    assert confluent.write(broker.bootstrap, topic, [numbered(0)]) == [0]
    store = broker.data_dir / "coordination.sqlite"
    backup = store.with_name("backup")
    with sqlite3.connect(store) as connection:  # all of it reaches the file, as it does by itself in time
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(store, backup)
    match how:
        case "emptied":
            os.truncate(store, 0)
        case "overwritten":
            store.write_bytes(os.urandom(store.stat().st_size))
        case "removed":
            store.unlink()
        case "replaced":
            store.unlink()
            shutil.copy(backup, store)
    with pytest.raises(KafkaException, match="coordination store"):
        confluent.make_topic(broker.bootstrap, f"{topic}-2")
    said = [line for line in broker.log_text().splitlines() if " ERROR " in line]
    assert all(str(store) in line and "Stop every broker that uses it" in line for line in said) and said
    assert confluent.write(broker.bootstrap, topic, [numbered(1)]) == [1]
    broker.kill()
    for path in broker.data_dir.glob("coordination.sqlite*"):
        path.unlink()
    backup.rename(store)
    broker.start()
    assert set(confluent.admin(broker.bootstrap).list_topics(timeout=30).topics) == {topic}
    assert confluent.latest(broker.bootstrap, topic) == 2


@pytest.mark.minikafka_only
@pytest.mark.leaves_damage("offsets are missing")
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_offsets_that_were_lost_while_the_broker_was_stopped_are_named(
    start_broker: StartBroker, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the broker when it starts, and by ``dump-log --verify`` before and after."""
    broker = start_broker(properties={"log.flush.interval.messages": 1})
    topics = ("emptied", "removed", "first", "last", "untouched", "compacted")
    for topic in topics:
        policy = "compact" if topic == "compacted" else "delete"
        confluent.make_topic(
            broker.bootstrap, topic, config={"segment.bytes": 1 << 20, "cleanup.policy": policy}
        )
        records = [Record(b"%d" % i, bytes(100_000), (), EPOCH_MS + i) for i in range(60)]
        confluent.write_one_batch_each(broker.bootstrap, topic, records)
    if how == "kill":
        broker.stop()  # every recovery point is on the disk
        broker.start()
    broker.kill() if how == "kill" else broker.stop()
    bases = {topic: [int(path.stem) for path in broker.files(topic, ".log")] for topic in topics}
    os.truncate(broker.files("emptied", ".log")[2], 0)
    os.truncate(broker.files("compacted", ".log")[2], 0)
    for topic, number in (("removed", 2), ("first", 0), ("last", -1)):
        stem = broker.files(topic, ".log")[number].stem
        for path in broker.partition_dir(topic).glob(f"{stem}.*"):
            path.unlink()
    lost = {
        "emptied": (bases["emptied"][2], bases["emptied"][3] - 1),
        "removed": (bases["removed"][2], bases["removed"][3] - 1),
        "last": (bases["last"][-1], 59),
    }
    if how == "stop":  # after a kill retention may have moved the log start
        lost["first"] = (0, bases["first"][1] - 1)
    assert dump_log.main(["--verify", str(broker.data_dir)]) == 1
    found = capsys.readouterr().out
    broker.start()
    said = [line for line in broker.log_text().splitlines() if "ERROR" in line]
    assert len(said) == len(lost)
    for topic, (first, last) in lost.items():
        (line,) = [line for line in said if f"{topic}-0: " in line]
        assert f"offsets {first} to {last} are lost" in line
        if topic != "last":  # which is a recovery point above the log end
            assert f"{topic}-0" in found and f"offsets {first} to {last} are missing" in found
    assert "untouched-0/" not in found
    assert confluent.latest(broker.bootstrap, "untouched") == 60
    assert broker.stop() == 0


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_deleted_records_are_no_damage(start_broker: StartBroker, topic: str, how: str) -> None:
    """The log start lies within a segment; ``dump-log --verify`` sees the directory when the test is over."""
    broker = start_broker()
    fill(broker, topic)
    admin = confluent.admin(broker.bootstrap)
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 222)]).values()
    assert deleted.result(timeout=30).low_watermark == 222
    broker.stop() if how == "stop" else broker.kill()
