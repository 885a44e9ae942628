"""The small files of a log directory: written as Kafka writes them, read without trust."""

from __future__ import annotations

import random
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minikafka.errors import StartError
from minikafka.files import OsFiles
from minikafka.log.checkpoint import (
    PARTITION_METADATA,
    CheckpointWrite,
    CorruptCheckpoint,
    EpochEntry,
    MetaProperties,
    decode_leader_epochs,
    decode_meta_properties,
    decode_offsets,
    decode_partition_metadata,
    decode_uuid,
    encode_leader_epochs,
    encode_meta_properties,
    encode_offsets,
    encode_partition_metadata,
    encode_uuid,
    lock_directory,
    read_offsets,
    read_partition_metadata,
    take_clean_shutdown_marker,
    write_clean_shutdown_marker,
)
from minikafka.log.files import (
    DirectoryKind,
    delete_directory_name,
    future_directory_name,
    parse_directory_name,
    stray_directory_name,
)
from minikafka.log.log_directories import LogDirectories, random_uuid, stored_cluster_id
from minikafka.types import TopicPartition

FILES = OsFiles()
TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")

topics = st.text("abcXYZ019._-", min_size=1, max_size=20)
partitions = st.builds(TopicPartition, topics, st.integers(0, 2**31 - 1))
offsets = st.integers(0, 2**63 - 1)


# Offset checkpoints


def test_an_offset_checkpoint_is_kafkas_text() -> None:
    data = encode_offsets({TopicPartition("b", 10): 7, TopicPartition("a", 0): 0, TopicPartition("b", 9): 1})
    assert data == b"0\n3\na 0 0\nb 9 1\nb 10 7\n"


@given(st.dictionaries(partitions, offsets))
def test_offsets_round_trip(saved: dict[TopicPartition, int]) -> None:
    assert decode_offsets(encode_offsets(saved), path="x") == saved


def test_a_missing_or_empty_checkpoint_has_no_entries(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    assert read_offsets(FILES, str(path)) == {}
    path.touch()  # Kafka creates them so
    assert read_offsets(FILES, str(path)) == {}


def test_windows_line_ends_do_not_matter() -> None:
    assert decode_offsets(b"0\r\n1\r\na 0 5\r\n", path="x") == {TopicPartition("a", 0): 5}


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"1\n0\n", "unknown version 1"),
        (b"zero\n0\n", "line 1"),
        (b"0\nx\n", "line 2"),
        (b"0\n-1\n", "line 2"),
        (b"0\n2\na 0 5\n", "announces 2 entries, there are 1"),
        (b"0\n1\na 0 5\nb 0 5\n", "announces 1 entries, there are 2"),
        (b"0\n1\na 0\n", "line 3"),
        (b"0\n1\na b 0 5\n", "line 3"),
        (b"0\n1\na 0 -5\n", "line 3"),
        (b"0\n1\na 4294967296 5\n", "line 3"),
        (b"0\n1\na 0 99999999999999999999\n", "line 3"),
        (b"0\n1\na 0 \xd9\xa1\n", "line 3"),  # an Arabic digit
        (b"0\n2\na 0 5\na 0 6\n", "a-0 is listed twice"),
        (b"\xff\xfe", "no UTF-8"),
        (b"0\n1\n\n", "line 3"),
        (b"0\n1\na 0 12", "line 3 has no end"),
        (b"0\n1", "line 2 has no end"),
        (b"0", "line 1 has no end"),
        (b"0\n", "before the number of entries"),
    ],
)
def test_damaged_checkpoints_are_named(content: bytes, word: str) -> None:
    with pytest.raises(CorruptCheckpoint, match=word) as error:
        decode_offsets(content, path="/data/checkpoint")
    assert "/data/checkpoint" in str(error.value)


@given(st.binary(max_size=100) | st.text("0123456789 \n-a", max_size=60).map(str.encode))
def test_no_text_upsets_the_readers(content: bytes) -> None:
    for decode in (decode_offsets, decode_leader_epochs, decode_partition_metadata, decode_meta_properties):
        try:
            decode(content, path="x")
        except CorruptCheckpoint as error:
            assert str(error).startswith("x")


def test_a_checkpoint_is_written_by_the_disk_thread(tmp_path: Path) -> None:
    work = CheckpointWrite(FILES, str(tmp_path / "c"), {TopicPartition("a", 0): 1})
    assert not (tmp_path / "c").exists() and work.log_directory == str(tmp_path)
    work.run()
    assert (tmp_path / "c").read_bytes() == b"0\n1\na 0 1\n"
    assert [path.name for path in tmp_path.iterdir()] == ["c"]  # no .tmp is left


# Leader epochs


@given(st.dictionaries(partitions, offsets), st.lists(offsets, unique=True).map(sorted), st.data())
def test_no_file_that_was_cut_short_is_read(
    saved: dict[TopicPartition, int], starts: list[int], data: st.DataObject
) -> None:
    offsets_file = encode_offsets(saved)
    epochs_file = encode_leader_epochs(EpochEntry(epoch, start) for epoch, start in enumerate(starts))
    with pytest.raises(CorruptCheckpoint):
        decode_offsets(offsets_file[: data.draw(st.integers(1, len(offsets_file) - 1))], path="x")
    with pytest.raises(CorruptCheckpoint):
        decode_leader_epochs(epochs_file[: data.draw(st.integers(1, len(epochs_file) - 1))], path="x")


def test_leader_epochs_round_trip() -> None:
    entries = [EpochEntry(0, 0), EpochEntry(3, 17), EpochEntry(4, 2**40)]
    assert decode_leader_epochs(encode_leader_epochs(entries), path="x") == entries


@pytest.mark.parametrize("lines", ["1 5\n1 6", "2 5\n1 6", "1 5\n2 5", "1 5\n2 4"])
def test_leader_epochs_have_to_increase(lines: str) -> None:
    with pytest.raises(CorruptCheckpoint, match="line 4"):
        decode_leader_epochs(f"0\n2\n{lines}\n".encode(), path="x")


# partition.metadata


def test_partition_metadata_is_kafkas(tmp_path: Path) -> None:
    assert encode_partition_metadata(TOPIC_ID) == b"version: 0\ntopic_id: ABEiM0RVZneImaq7zN3u_w"
    assert read_partition_metadata(FILES, str(tmp_path)) is None
    (tmp_path / PARTITION_METADATA).write_bytes(encode_partition_metadata(TOPIC_ID))
    assert read_partition_metadata(FILES, str(tmp_path)) == TOPIC_ID


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"version: 0",
        b"version: 1\ntopic_id: ABEiM0RVZneImaq7zN3u_w",
        b"version: 0\ntopic: ABEiM0RVZneImaq7zN3u_w",
        b"version: 0\ntopic_id: ABEiM0RVZneImaq7zN3u_",
        b"version: 0\ntopic_id: AB!iM0RVZneImaq7zN3u_w",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"version: 0\ntopic_id: " + b"A" * 5000,
        b"version: 0\ntopic_id: ABEiM0RVZneImaq7zN3u_w\nmore: 1",
    ],
)
def test_damaged_partition_metadata_is_refused(content: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        decode_partition_metadata(content, path="x")


@given(st.uuids())
def test_uuids_round_trip(uuid: UUID) -> None:
    text = encode_uuid(uuid)
    assert len(text) == 22 and decode_uuid(text) == uuid


def test_made_uuids_never_look_like_an_option() -> None:
    rng = random.Random(1)
    made = [random_uuid(rng) for _ in range(500)]
    assert not any(encode_uuid(uuid).startswith("-") for uuid in made)
    assert len(set(made)) == 500 and {uuid.version for uuid in made} == {4}


# Clean shutdown and lock


def test_the_clean_shutdown_marker_is_gone_once_it_is_read(tmp_path: Path) -> None:
    assert not take_clean_shutdown_marker(FILES, str(tmp_path))
    write_clean_shutdown_marker(FILES, str(tmp_path), broker_epoch=7)
    assert (tmp_path / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":7}'
    assert take_clean_shutdown_marker(FILES, str(tmp_path))
    assert not take_clean_shutdown_marker(FILES, str(tmp_path))
    (tmp_path / ".kafka_cleanshutdown").touch()  # an older broker's
    assert take_clean_shutdown_marker(FILES, str(tmp_path))


def test_a_directory_has_one_user(tmp_path: Path) -> None:
    lock = lock_directory(FILES, str(tmp_path))
    with pytest.raises(StartError, match=str(tmp_path)):
        lock_directory(FILES, str(tmp_path))
    lock.release()
    lock_directory(FILES, str(tmp_path)).release()


# meta.properties


def test_version_1_is_what_kafka_4_writes() -> None:
    text = (
        b"#\n#Thu May 01 10:00:00 UTC 2025\n"
        b"node.id=3\ndirectory.id=ABEiM0RVZneImaq7zN3u_w\nversion=1\ncluster.id=abc\n"
    )
    meta = decode_meta_properties(text, path="x")
    assert meta == MetaProperties(1, "abc", 3, TOPIC_ID) and meta.is_complete
    assert encode_meta_properties(meta) == (
        b"cluster.id=abc\ndirectory.id=ABEiM0RVZneImaq7zN3u_w\nnode.id=3\nversion=1\n"
    )


def test_version_0_is_what_a_broker_with_zookeeper_wrote() -> None:
    meta = decode_meta_properties(b"broker.id=3\nversion=0\ncluster.id=abc\n", path="x")
    assert meta == MetaProperties(0, "abc", 3) and meta.is_complete
    assert decode_meta_properties(b"version=0\n", path="x") == MetaProperties(0)
    assert encode_meta_properties(meta) == b"broker.id=3\ncluster.id=abc\nversion=0\n"


@example(cluster_id=" \\x=:# \t\n")
@given(cluster_id=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20))
def test_any_cluster_id_round_trips(cluster_id: str) -> None:
    meta = MetaProperties(1, cluster_id, 0, TOPIC_ID)
    assert decode_meta_properties(encode_meta_properties(meta), path="x") == meta


@pytest.mark.parametrize(
    "content",
    [
        b"version=2\ncluster.id=a\nnode.id=1\n",
        b"version=one\n",
        b"version=1\nnode.id=1\n",
        b"version=1\ncluster.id=a\n",
        b"version=1\ncluster.id=a\nnode.id=-1\n",
        b"version=1\ncluster.id=a\nnode.id=99999999999\n",
        b"version=1\ncluster.id=a\nnode.id=1\ndirectory.id=short\n",
        b"version=1\ncluster.id=\\u12\nnode.id=1\n",
    ],
)
def test_damaged_meta_properties_are_refused(content: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        decode_meta_properties(content, path="x")


# Log directories


def opened(*directories: Path, cluster_id: str = "abc", node_id: int = 1, seed: int = 1) -> LogDirectories:
    return LogDirectories(
        [str(d) for d in directories],
        files=FILES,
        rng=random.Random(seed),
        cluster_id=cluster_id,
        node_id=node_id,
    )


def test_new_directories_are_made_and_marked_as_ours(tmp_path: Path) -> None:
    directories = opened(tmp_path / "a" / "deep", tmp_path / "b")
    assert len(set(directories.directory_ids.values())) == 2
    text = (tmp_path / "b" / "meta.properties").read_text()
    assert "cluster.id=abc\n" in text and "node.id=1\n" in text and "version=1\n" in text
    ids = directories.directory_ids
    directories.release()
    again = opened(tmp_path / "a" / "deep", tmp_path / "b", seed=2)
    assert again.directory_ids == ids
    again.release()
    assert stored_cluster_id(FILES, [str(tmp_path / "none"), str(tmp_path / "b")]) == "abc"


@pytest.mark.parametrize(
    ("wrong", "word"),
    [({"cluster_id": "other"}, "belongs to cluster abc, not to other"), ({"node_id": 2}, "broker 1")],
)
def test_another_clusters_or_brokers_directory_is_refused(
    tmp_path: Path, wrong: dict[str, object], word: str
) -> None:
    opened(tmp_path / "a").release()
    with pytest.raises(StartError, match=word) as error:
        opened(tmp_path / "a", **wrong)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)
    opened(tmp_path / "a").release()  # the lock was let go


def test_a_zookeeper_brokers_directory_is_taken_over_unchanged(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("broker.id=1\nversion=0\ncluster.id=abc\n")
    directories = opened(tmp_path)
    assert directories.directory_ids == {}
    assert (tmp_path / "meta.properties").read_text() == "broker.id=1\nversion=0\ncluster.id=abc\n"
    directories.release()


def test_an_incomplete_file_is_completed(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=abc\nnode.id=1\n")
    directories = opened(tmp_path)
    assert "directory.id=" in (tmp_path / "meta.properties").read_text()
    directories.release()


def test_a_directory_given_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="given twice"):
        opened(tmp_path, tmp_path / "." / "")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(StartError, match="locked"):
        opened(tmp_path / "real", tmp_path / "link")


def test_a_copied_directory_is_refused(tmp_path: Path) -> None:
    opened(tmp_path / "a").release()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "meta.properties").write_bytes((tmp_path / "a" / "meta.properties").read_bytes())
    with pytest.raises(StartError, match=r"directory\.id"):
        opened(tmp_path / "a", tmp_path / "b")


def test_an_unusable_directory_is_offline_alone(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "meta.properties").write_text("version=77\n")
    directories = opened(tmp_path / "file", tmp_path / "damaged", tmp_path / "good")
    assert directories.live == (str(tmp_path / "good"),)
    assert "version 77" in directories.offline[str(tmp_path / "damaged")]
    directories.release()
    with pytest.raises(StartError, match="no log directory can be used") as error:
        opened(tmp_path / "file", tmp_path / "damaged")
    assert str(tmp_path / "file") in str(error.value)


# Names


def test_directory_names_say_what_they_hold() -> None:
    orders = TopicPartition("my-orders", 12)
    unique = "0" * 32
    for name, kind in [
        ("my-orders-12", DirectoryKind.CURRENT),
        (f"my-orders-12.{unique}-delete", DirectoryKind.DELETE),
        (f"my-orders-12.{unique}-future", DirectoryKind.FUTURE),
        (f"my-orders-12.{unique}-stray", DirectoryKind.STRAY),
    ]:
        digits = "" if kind is DirectoryKind.CURRENT else unique
        assert parse_directory_name(name) == (orders, kind, digits)
    assert delete_directory_name(orders, unique) == f"my-orders-12.{unique}-delete"
    assert future_directory_name(orders, unique) == f"my-orders-12.{unique}-future"
    assert parse_directory_name("a.b-delete-3") == (
        TopicPartition("a.b-delete", 3),
        DirectoryKind.CURRENT,
        "",
    )


@pytest.mark.parametrize(
    "name", ["orders", "-1", "orders-", "orders-x", "orders-4294967296", "a b-1", "a-1.x"]
)
def test_other_names_hold_nothing(name: str) -> None:
    assert parse_directory_name(name) is None


@given(topics, st.integers(0, 2**31 - 1))
def test_names_of_deleted_directories_parse(topic: str, partition: int) -> None:
    topic_partition = TopicPartition(topic, partition)
    name = delete_directory_name(topic_partition, "f" * 32)
    assert parse_directory_name(name) == (topic_partition, DirectoryKind.DELETE, "f" * 32)


def test_a_long_topic_is_cut_to_what_a_file_name_can_hold() -> None:
    topic_partition = TopicPartition("t" * 249, 10)
    for name in (
        delete_directory_name(topic_partition, "f" * 32),
        stray_directory_name(topic_partition, "f" * 32),
    ):
        assert len(name) == 255
        parsed = parse_directory_name(name)
        assert parsed is not None and parsed.topic_partition.topic.startswith("t" * 200)
