"""Log directories without a store: Kafka's, or those of a broker whose coordination file was lost."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from minikafka.clock import ManualClock
from minikafka.config.broker import broker_config
from minikafka.config.topic import TopicConfig
from minikafka.coordination.store import ConnectionLossError
from minikafka.errors import StartError
from minikafka.files import OsFiles
from minikafka.log.checkpoint import PARTITION_METADATA, encode_partition_metadata, encode_uuid
from minikafka.log.segment.fetch_data import FetchIsolation
from minikafka.log.unified_log import UnifiedLog
from minikafka.protocol.records.batch import iterate_headers
from minikafka.protocol.records.records import Record, build_batch, iterate_records
from minikafka.server.broker import Broker
from minikafka.server.cluster import coordination_store
from minikafka.server.topic_store import TopicStore
from minikafka.types import LeaderEpoch, TopicPartition
from tests.unit.server.running import topics_of

ID = UUID("00112233-4455-4677-8899-aabbccddeeff")
OTHER_ID = UUID("ffeeddcc-bbaa-4988-8766-554433221100")
OLD_MS = 1_000_000_000_000
"""September 2001: older than any retention."""

Start = Callable[..., Awaitable[Broker]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Start a broker on ``tmp_path/data`` (or other directories) with Kafka's properties."""
    started: list[Broker] = []

    async def start(*directories: str, **properties: str) -> Broker:
        log_dirs = ",".join(str(tmp_path / name) for name in directories or ("data",))
        settings = {"log.dirs": log_dirs, "listeners": "PLAINTEXT://127.0.0.1:0"}
        settings |= {name.replace("_", "."): value for name, value in properties.items()}
        broker = Broker(broker_config(settings))
        started.append(broker)
        await broker.start()
        return broker

    yield start
    for broker in started:
        await broker.stop()


def records_of(values: list[bytes]) -> bytes:
    return build_batch([Record(i, OLD_MS, b"k", value, ()) for i, value in enumerate(values)])


def write_log(
    directory: Path,
    topic: str,
    partition: int,
    values: list[bytes],
    *,
    epoch: int = 0,
    topic_id: UUID | None = ID,
) -> None:
    """A partition's directory as Kafka leaves it."""
    path = directory / f"{topic}-{partition}"
    clock = ManualClock(OLD_MS)
    log = UnifiedLog.load(
        str(path),
        TopicPartition(topic, partition),
        config=TopicConfig(),
        files=OsFiles(),
        clock=clock,
        clean_shutdown=True,
    )
    if values:
        log.append_as_leader(records_of(values), leader_epoch=LeaderEpoch(epoch))
    log.close()
    if topic_id is not None:
        (path / PARTITION_METADATA).write_bytes(encode_partition_metadata(topic_id))


def kraft_files(directory: Path, *, node_id: int = 1, cluster_id: str = "MkU3OEVBNTcwNTJENDM2Qk") -> None:
    """What else is in a log directory of Apache Kafka 4."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "meta.properties").write_text(
        f"#\n#Sat Jan 01 00:00:00 UTC 2025\ncluster.id={cluster_id}\nversion=1\n"
        f"directory.id={encode_uuid(OTHER_ID)}\nnode.id={node_id}\n"
    )
    (directory / "bootstrap.checkpoint").write_bytes(b"\0\1")
    (directory / "cleaner-offset-checkpoint").write_text("0\n0\n")
    (directory / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":12}')
    metadata = directory / "__cluster_metadata-0"
    metadata.mkdir()
    (metadata / "quorum-state").write_text('{"leaderId":1}')
    (metadata / "00000000000000000000.log").write_bytes(b"not ours")


def values_of(broker: Broker, topic: str, partition: int) -> list[bytes | None]:
    log = broker.services.replica_manager.partition(TopicPartition(topic, partition)).log
    data = log.read(
        0,
        max_bytes=1 << 20,
        min_one_message=True,
        isolation=FetchIsolation.HIGH_WATERMARK,
        cached_only=False,
    )
    whole = memoryview(data.records)
    return [
        record.value
        for position, header in iterate_headers(data.records)
        for record in iterate_records(whole[position : position + header.size])
    ]


def strays(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir() if path.name.endswith("-stray")]


async def test_a_broker_that_lost_its_store_keeps_its_topics_and_every_record(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    first = await start()
    created = await topics_of(first).create_topic("orders", partitions=3)
    first.services.replica_manager.append(
        TopicPartition("orders", 2), records_of([b"a", b"b"]), required_acks=1
    )
    cluster_id = first.cluster_id
    await first.stop()
    for path in data.glob("coordination.sqlite*"):
        path.unlink()

    caplog.set_level(logging.WARNING, logger="minikafka.server.topic_store")
    again = await start(log_retention_ms="1")
    assert again.cluster_id == cluster_id
    topic = again.services.metadata.topic("orders")
    assert topic is not None and topic.topic_id == created.topic_id
    assert [partition.leader for partition in topic.partitions] == [1, 1, 1]
    assert values_of(again, "orders", 2) == [b"a", b"b"] and strays(data) == []
    log = again.services.replica_manager.partition(TopicPartition("orders", 2)).log
    assert (log.config.retention_ms, log.config.retention_bytes) == (-1, -1)
    again.services.log_manager.cleanup()
    assert values_of(again, "orders", 2) == [b"a", b"b"]
    text = caplog.text
    assert "adopted topic orders" in text and "retention.ms=-1" in text
    assert "topics alter orders --delete-config retention.ms" in text

    # From now on the store knows, and what it does not know is set aside again.
    await again.stop()
    write_log(data, "unknown", 0, [b"x"])
    third = await start()
    log = third.services.replica_manager.partition(TopicPartition("orders", 2)).log
    assert log.config.retention_ms == -1 and values_of(third, "orders", 2) == [b"a", b"b"]
    assert third.services.metadata.topic("unknown") is None and len(strays(data)) == 1


async def test_a_directory_of_apache_kafka_is_taken_over(start: Start, tmp_path: Path) -> None:
    data = tmp_path / "data"
    kraft_files(data)
    write_log(data, "payments", 0, [b"one"], epoch=17)
    write_log(data, "payments", 2, [b"three"], epoch=4)
    write_log(data, "from-zookeeper", 0, [b"old"], topic_id=None)
    write_log(data, "__consumer_offsets", 0, [], topic_id=OTHER_ID)
    broker = await start()
    assert broker.cluster_id == "MkU3OEVBNTcwNTJENDM2Qk"
    assert {topic.name: len(topic.partitions) for topic in broker.services.metadata.topics()} == {
        "payments": 3,
        "from-zookeeper": 1,
        "__consumer_offsets": 1,
    }
    assert values_of(broker, "payments", 0) == [b"one"] and values_of(broker, "payments", 2) == [b"three"]
    assert values_of(broker, "payments", 1) == [] and values_of(broker, "from-zookeeper", 0) == [b"old"]
    offsets = broker.services.replica_manager.partition(TopicPartition("__consumer_offsets", 0)).log
    assert offsets.config.cleanup_policy == ("compact",)
    # Kafka's own metadata is left as it was.
    assert (data / "__cluster_metadata-0" / "00000000000000000000.log").read_bytes() == b"not ours"
    assert (data / "bootstrap.checkpoint").exists() and strays(data) == []
    # The topic without an id has one now, on the disk too.
    topic = broker.services.metadata.topic("from-zookeeper")
    assert topic is not None
    assert encode_uuid(topic.topic_id) in (data / "from-zookeeper-0" / "partition.metadata").read_text()


async def test_leadership_goes_on_above_the_epochs_in_the_logs(start: Start, tmp_path: Path) -> None:
    """A batch with a smaller epoch than the one before it is what recovery cuts off."""
    write_log(tmp_path / "data", "t", 0, [b"one"], epoch=17)
    write_log(tmp_path / "data", "t", 1, [b"one"], epoch=9)
    (tmp_path / "data" / "t-1" / "leader-epoch-checkpoint").unlink()
    broker = await start()
    for number, epoch in ((0, 17), (1, 9)):
        partition = broker.services.replica_manager.partition(TopicPartition("t", number))
        assert partition.leader_epoch > epoch
        assert partition.log.end_offset_for_epoch(epoch) == (epoch, 1)
        broker.services.replica_manager.append(
            partition.topic_partition, records_of([b"two"]), required_acks=1
        )
        assert values_of(broker, "t", number) == [b"one", b"two"]


async def test_partitions_of_a_deleted_topic_of_the_same_name_are_set_aside(
    start: Start, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    for partition, topic_id in ((0, ID), (1, ID), (2, OTHER_ID)):
        write_log(data, "t", partition, [b"v"], topic_id=topic_id)
    broker = await start()
    topic = broker.services.metadata.topic("t")
    assert topic is not None and topic.topic_id == ID and len(topic.partitions) == 3
    assert values_of(broker, "t", 1) == [b"v"] and values_of(broker, "t", 2) == []
    assert len(strays(data)) == 1


async def test_another_brokers_directory_says_how_to_start_that_broker(start: Start, tmp_path: Path) -> None:
    kraft_files(tmp_path / "data", node_id=5)
    with pytest.raises(StartError, match=r"--set node\.id=5"):
        await start()
    broker = await start(node_id="5")
    assert broker.node_id == 5


@pytest.mark.parametrize("name", ["backup-20240101", "täglich-0"])
async def test_what_is_no_plausible_topic_fails_the_start_and_changes_nothing(
    start: Start, tmp_path: Path, name: str
) -> None:
    write_log(tmp_path / "data", "t", 0, [b"v"])
    (tmp_path / "data" / name).mkdir()
    with pytest.raises(StartError, match="move it out of the log directory"):
        await start()
    assert sorted(path.name for path in (tmp_path / "data").iterdir() if path.is_dir()) == sorted(
        [name, "t-0"]
    )
    (tmp_path / "data" / name).rmdir()
    assert values_of(await start(), "t", 0) == [b"v"]


async def test_a_copied_directory_is_told_from_its_original(start: Start, tmp_path: Path) -> None:
    for topic in ("t", "t-copy"):
        write_log(tmp_path / "data", topic, 0, [b"v"])
    with pytest.raises(StartError, match="one is a copy of the other"):
        await start()
    (tmp_path / "data" / "t-copy-0" / "partition.metadata").unlink()
    assert values_of(await start(), "t-copy", 0) == [b"v"]


async def test_nothing_is_adopted_while_a_log_directory_is_offline(start: Start, tmp_path: Path) -> None:
    write_log(tmp_path / "data", "t", 0, [b"v"])
    write_log(tmp_path / "other", "t", 1, [b"w"])
    (tmp_path / "other" / "meta.properties").write_text("version=7\n")
    with pytest.raises(StartError, match=r"cannot be used.*other"):
        await start("data", "other")
    (tmp_path / "other" / "meta.properties").unlink()
    assert values_of(await start("data", "other"), "t", 1) == [b"w"]


async def test_an_adoption_whose_answer_was_lost_is_found_done(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log(tmp_path / "data", "a", 0, [b"v"])
    adopt_all, tries = TopicStore.adopt_all, []

    async def lose_the_first_answer(*arguments: Any) -> None:
        tries.append(arguments)
        await adopt_all(*arguments)
        if len(tries) == 1:
            raise ConnectionLossError("no answer")

    monkeypatch.setattr(TopicStore, "adopt_all", lose_the_first_answer)
    monkeypatch.setattr(coordination_store, "RETRY_PAUSE_MS", 1)
    assert values_of(await start(), "a", 0) == [b"v"]
    assert len(tries) == 2


async def test_a_start_that_fails_before_the_store_has_the_topics_adopts_again(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log(tmp_path / "data", "a", 0, [b"v"])
    write_log(tmp_path / "data", "b", 0, [b"w"], topic_id=OTHER_ID)

    async def crash(*_: object) -> None:
        raise RuntimeError("power cut")

    with monkeypatch.context() as patch:
        patch.setattr("minikafka.server.topic_store.TopicStore.adopt_all", crash)
        with pytest.raises(RuntimeError):
            await start()
    broker = await start()
    assert values_of(broker, "a", 0) == [b"v"] and values_of(broker, "b", 0) == [b"w"]
    assert strays(tmp_path / "data") == []
