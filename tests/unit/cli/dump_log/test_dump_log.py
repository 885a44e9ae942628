"""``dump-log``: shows what is in a log's files, and finds every kind of damage in them."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import crc32c
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minikafka.cli.dump_log.command import main
from minikafka.cli.dump_log.files import FileKind, identify
from minikafka.cli.dump_log.segment import FINDINGS_MAX
from minikafka.clock import ManualClock
from minikafka.config.topic import TopicConfig
from minikafka.files import OsFiles
from minikafka.log.log_manager import LogManager
from minikafka.log.producers.append import AppendOrigin
from minikafka.protocol.records.batch import CompressionType
from minikafka.protocol.records.records import ControlRecordType, EndTransactionMarker, Record, build_batch
from minikafka.types import LeaderEpoch, TopicPartition

TOPIC_ID = UUID("00112233-4455-4677-8899-aabbccddeeff")
BATCHES = 30
FIRST = "00000000000000000000"


def make_log_directory(directory: Path) -> None:
    """A partition ``t-0`` of three segments: an idempotent producer, two epochs, an aborted transaction."""
    clock = ManualClock()
    config = TopicConfig(segment_bytes=2000, index_interval_bytes=300, segment_index_bytes=4096)
    manager = LogManager(
        [str(directory)],
        default_config=config,
        topic_config=lambda topic: config,
        files=OsFiles(),
        clock=clock,
        rng=random.Random(1),
        cluster_id="cluster",
        broker_id=1,
    )
    manager.load()
    log = manager.get_or_create(TopicPartition("t", 0), topic_id=TOPIC_ID, is_new=True)
    log.assign_epoch_start(0, 0)
    for number in range(BATCHES):
        clock.advance(10)
        epoch = LeaderEpoch(number // 20)
        records = [
            Record(
                i,
                clock.now_ms() - 2 + i,
                b"key-%d" % i,
                b"value \xff" if i == 1 else b"value",
                (("h", b"1"),),
            )
            for i in range(3)
        ]
        options: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number * 3}
        codec = CompressionType.ZSTD if number % 5 == 4 else CompressionType.NONE
        log.append_as_leader(build_batch(records, compression=codec, **options), leader_epoch=epoch)
        if number in (3, 4):
            transaction = {"producer_id": 8, "producer_epoch": 0, "transactional": True}
            if number == 3:
                batch = build_batch(
                    [Record(0, clock.now_ms(), None, None, ())], base_sequence=0, **transaction
                )
                log.append_as_leader(batch, leader_epoch=epoch)
            else:
                marker = EndTransactionMarker(ControlRecordType.ABORT, 5)
                record = Record(0, clock.now_ms(), marker.key(), marker.value(), ())
                batch = build_batch([record], control=True, **transaction)
                log.append_as_leader(batch, leader_epoch=epoch, origin=AppendOrigin.COORDINATOR)
        log.update_high_watermark(log.log_end_offset)
    manager.shutdown()


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pristine") / "logs"
    make_log_directory(directory)
    return directory


@pytest.fixture
def logs(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "logs"))


@pytest.fixture
def partition(logs: Path) -> Path:
    return logs / "t-0"


class Run:
    """Runs the command and reads what it said."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str | Path, status: int = 0) -> str:
        assert main([str(a) for a in arguments]) == status
        return self._capsys.readouterr().out

    def json(self, *arguments: str | Path, status: int = 0) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self(*arguments, "--json", status=status).splitlines()]

    def findings(self, *arguments: str | Path) -> list[dict[str, Any]]:
        """What ``--verify`` finds; there is something."""
        return [i for i in self.json("--verify", *arguments, status=1) if i["type"] == "finding"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(capsys)


def of_type(items: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [item for item in items if item["type"] == kind]


def bases(partition: Path) -> list[int]:
    return sorted(int(path.stem) for path in partition.glob("*.log"))


def batches_of(path: Path) -> list[tuple[int, int]]:
    """(position, size) of the batches of an undamaged segment."""
    data = path.read_bytes()
    found = []
    position = 0
    while position < len(data):
        size = 12 + struct.unpack_from(">i", data, position + 8)[0]
        found.append((position, size))
        position += size
    return found


def patch(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def patch_batch(path: Path, number: int, field: int, data: bytes) -> int:
    """Change a field of a batch's header and make its CRC right again; returns the batch's position."""
    position, size = batches_of(path)[number]
    content = bytearray(path.read_bytes())
    content[position + field : position + field + len(data)] = data
    crc = crc32c.crc32c(bytes(content[position + 21 : position + size]))
    content[position + 17 : position + 21] = struct.pack(">I", crc)
    path.write_bytes(content)
    return position


# Showing


def test_a_whole_log_directory_is_shown(run: Run, logs: Path) -> None:
    items = run.json(logs, "--print-data-log")
    kinds = {item["kind"] for item in of_type(items, "file")}
    assert kinds == {
        "segment",
        "offset_index",
        "time_index",
        "txn_index",
        "snapshot",
        "leader_epochs",
        "offsets",
        "partition_metadata",
        "meta_properties",
    }
    assert len(of_type(items, "batch")) == BATCHES + 2
    assert [r["offset"] for r in of_type(items, "record")] == list(range(BATCHES * 3 + 2))
    assert of_type(items, "leader_epoch") == [
        {"type": "leader_epoch", "epoch": 0, "start_offset": 0},
        {"type": "leader_epoch", "epoch": 1, "start_offset": 62},
    ]
    (aborted,) = of_type(items, "aborted_transaction")
    assert (aborted["producer_id"], aborted["first_offset"], aborted["last_offset"]) == (8, 12, 16)
    assert of_type(items, "partition_metadata") == [
        {"type": "partition_metadata", "version": 0, "topic_id": "ABEiM0RVRneImaq7zN3u_w"}
    ]
    (meta,) = of_type(items, "meta_properties")
    assert (meta["cluster_id"], meta["node_id"]) == ("cluster", 1)
    assert {item["offset"] for item in of_type(items, "checkpoint_entry")} == {92}
    assert of_type(items, "producer")[-1]["last_sequence"] >= 0
    assert items[-1] == {"type": "summary", "findings": 0}


def test_records_are_shown_with_what_they_hold(run: Run, partition: Path) -> None:
    items = run.json(partition / f"{FIRST}.log", "--print-data-log")
    first, second = of_type(items, "record")[:2]
    assert first == {
        "type": "record",
        "offset": 0,
        "timestamp": 1_700_000_000_008,
        "key_size": 5,
        "value_size": 5,
        "sequence": 0,
        "headers": [{"key": "h", "value": "1"}],
        "key": "key-0",
        "value": "value",
    }
    assert second["value_base64"] == "dmFsdWUg/w==" and "value" not in second
    (marker,) = [r for r in of_type(items, "record") if "end_txn_marker" in r]
    assert (marker["offset"], marker["end_txn_marker"], marker["coordinator_epoch"]) == (16, "ABORT", 5)


def test_text_looks_as_kafkas_tool_prints_it(run: Run, partition: Path) -> None:
    lines = run(partition / f"{FIRST}.log", "--print-data-log").splitlines()
    assert (
        lines[0]
        == f"Dumping {partition / f'{FIRST}.log'} ({(partition / f'{FIRST}.log').stat().st_size} bytes)"
    )
    assert lines[1].startswith(
        "baseOffset: 0 lastOffset: 2 count: 3 baseSequence: 0 lastSequence: 2 producerId: 7 producerEpoch: 0 "
        "partitionLeaderEpoch: 0 isTransactional: false isControl: false"
    )
    assert "compresscodec: none" in lines[1] and lines[1].endswith("isvalid: true")
    assert lines[2] == (
        "| offset: 0 timestamp: 1700000000008 keySize: 5 valueSize: 5 sequence: 0 headers: [h=1] "
        "key: key-0 payload: value"
    )


def test_a_terminal_gets_no_escapes_from_a_record(run: Run, tmp_path: Path) -> None:
    path = tmp_path / f"{FIRST}.log"
    path.write_bytes(build_batch([Record(0, 0, None, b"\x1b[2Jgone\nline\xc2\x9b", ())]))
    output = run(path, "--print-data-log")
    assert "\x1b" not in output and "payload: \\x1b[2Jgone\\nline\\x9b" in output


def test_offsets_and_record_limits_select(run: Run, partition: Path) -> None:
    path = partition / f"{FIRST}.log"
    assert [b["base_offset"] for b in of_type(run.json(path, "--offsets", "4:7"), "batch")] == [3, 6]
    records = of_type(run.json(path, "--offsets", "4:7", "--print-data-log"), "record")
    assert [r["offset"] for r in records] == [4, 5, 6, 7]
    records = of_type(run.json(path, "--offsets", "4:", "--max-records", "2"), "record")
    assert [r["offset"] for r in records] == [4, 5]
    assert [b["base_offset"] for b in of_type(run.json(path, "--offsets", "2"), "batch")] == [0]
    index = partition / f"{FIRST}.index"
    everything = of_type(run.json(index), "index_entry")
    some = of_type(run.json(index, "--offsets", f":{everything[0]['offset']}"), "index_entry")
    assert some == everything[:1]


def test_the_space_reserved_in_an_index_is_told_from_entries(run: Run, tmp_path: Path) -> None:
    path = tmp_path / f"{5:020d}.timeindex"
    path.write_bytes(struct.pack(">qi", 1000, 2) + bytes(36))
    items = run.json(path)
    assert of_type(items, "time_index_entry") == [
        {"type": "time_index_entry", "timestamp": 1000, "offset": 7}
    ]
    assert of_type(items, "reserved_space") == [{"type": "reserved_space", "entries": 3}]


def test_renamed_files_are_known() -> None:
    for name, kind in {
        f"/x/{FIRST}.log.deleted": FileKind.SEGMENT,
        f"/x/{FIRST}.index.swap": FileKind.OFFSET_INDEX,
        "/x/copy-of-a.log": FileKind.SEGMENT,
        "/x/cleaner-offset-checkpoint": FileKind.OFFSETS,
        "/x/leader-epoch-checkpoint": FileKind.LEADER_EPOCHS,
    }.items():
        known = identify(name)
        assert known is not None and known.kind is kind
    assert identify("/x/y.index") is None and identify("/x/photo.jpg") is None


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["/does/not/exist"],
        ["{logs}/t-0/photo.jpg"],
        ["{logs}", "--offsets", "b:a"],
        ["{logs}", "--offsets", "9:3"],
        ["{logs}", "--max-records", "0"],
        ["{logs}", "--verify", "--print-data-log"],
        ["{logs}", "--nonsense"],
    ],
)
def test_arguments_that_cannot_be_used(
    arguments: list[str], logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (logs / "t-0" / "photo.jpg").touch()
    assert main([argument.format(logs=logs) for argument in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.splitlines()[-1].startswith(
        ("dump-log:", "minikafka dump-log:")
    )


def test_help_is_no_error(run: Run) -> None:
    assert "--verify" in run("--help")


# Verifying


def test_nothing_is_wrong_with_what_a_broker_writes(run: Run, logs: Path, partition: Path) -> None:
    before = {path: path.read_bytes() for path in logs.rglob("*") if path.is_file()}
    (summary,) = run.json("--verify", logs)
    assert summary["findings"] == 0
    assert (summary["batches"], summary["records"]) == (BATCHES + 2, BATCHES * 3 + 2)
    assert "nothing is wrong" in run("--verify", partition)
    for path in partition.iterdir():
        run("--verify", path)
    assert before == {path: path.read_bytes() for path in logs.rglob("*") if path.is_file()}


def test_a_clusters_data_directory_is_no_partition(run: Run, pristine: Path, tmp_path: Path) -> None:
    """``minikafka cluster`` calls them broker-1, broker-2, as partitions of a topic "broker" would be."""
    cluster = tmp_path / "cluster-0"
    for node_id in (1, 2):
        shutil.copytree(pristine, cluster / f"broker-{node_id}")
        (cluster / f"broker-{node_id}.log").write_text("what the broker said")
    (cluster / "coordination.sqlite").write_bytes(b"SQLite format 3")
    assert "nothing is wrong" in run("--verify", cluster / "broker-1")
    (summary,) = run.json("--verify", cluster)
    assert (summary["findings"], summary["batches"]) == (0, 2 * (BATCHES + 2))
    flip(segment(cluster / "broker-2" / "t-0"), 100)
    assert run.findings(cluster)


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_start_within_a_segment_is_no_damage(
    run: Run, logs: Path, partition: Path, clean: bool
) -> None:
    """What DeleteRecords leaves: the epochs below the log start are gone, the batches are not."""
    (partition / "leader-epoch-checkpoint").write_text("0\n1\n1 70\n")
    if clean:
        (logs / "log-start-offset-checkpoint").write_text("0\n1\nt 0 70\n")
    else:  # killed before the next checkpoint
        (logs / ".kafka_cleanshutdown").unlink()
    assert "nothing is wrong" in run("--verify", logs)
    assert "nothing is wrong" in run("--verify", partition)
    (logs / "log-start-offset-checkpoint").write_text("0\n1\nt 0 67\n")
    (logs / ".kafka_cleanshutdown").touch()
    assert "batch 65 has it already" in run("--verify", logs, status=1)


@pytest.mark.parametrize("name", [f"{777:020d}.index", f"{FIRST}.log.cleaned", "leader-epoch-checkpoint.tmp"])
def test_what_a_kill_leaves_for_the_next_start_is_no_damage(
    name: str, run: Run, logs: Path, partition: Path
) -> None:
    (partition / name).write_bytes(b"")
    assert name in run("--verify", logs, status=1)
    (logs / ".kafka_cleanshutdown").unlink()
    assert "nothing is wrong" in run("--verify", logs)
    assert "nothing is wrong" in run("--verify", partition)


def test_kraft_and_prepared_compactions_are_no_damage(run: Run, logs: Path, partition: Path) -> None:
    metadata = logs / "__cluster_metadata-0"
    metadata.mkdir()
    (metadata / "quorum-state").write_text("{}")
    (metadata / f"{FIRST}-0000000000.checkpoint").touch()
    (partition / "compaction").mkdir()
    assert "nothing is wrong" in run("--verify", logs)


Damage = Callable[[Path], None]


def flip(path: Path, position: int) -> None:
    data = path.read_bytes()
    patch(path, position, bytes([data[position] ^ 0x40]))


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def segment(partition: Path, number: int = 0) -> Path:
    return partition / f"{bases(partition)[number]:020d}.log"


def index(partition: Path, suffix: str, number: int = 0) -> Path:
    return segment(partition, number).with_suffix(suffix)


def bad_record_count(partition: Path) -> None:
    patch_batch(segment(partition), 1, 57, struct.pack(">i", 2))


def swapped_offsets(partition: Path) -> None:
    """Offset deltas 0, 2, 1."""
    path = segment(partition)
    position, size = batches_of(path)[0]
    data = bytearray(path.read_bytes()[position + 61 : position + size])
    second = 1 + data[0] // 2  # each record: its length (one zigzag byte), attributes, timestamp, offset
    third = second + 1 + data[second] // 2
    data[second + 3], data[third + 3] = data[third + 3], data[second + 3]
    patch_batch(path, 0, 61, bytes(data))


SEGMENT_DAMAGE: dict[str, tuple[Damage, str]] = {
    "a flipped bit in a record": (lambda p: flip(segment(p), 100), "the CRC of batch 0"),
    "cut in a header": (lambda p: append(segment(p, -1), b"\1" * 30), "too few for a batch"),
    "cut in the records": (
        lambda p: append(segment(p, -1), segment(p).read_bytes()[:100]),
        "was cut short",
    ),
    "zero tail": (lambda p: append(segment(p, -1), bytes(5000)), "5000 zero bytes"),
    "old magic": (lambda p: patch(segment(p), 16, b"\1"), "magic 1"),
    "garbage": (lambda p: patch(segment(p), 0, b"\xaa" * 61), "magic 170"),
    "impossible length": (lambda p: patch(segment(p), 8, struct.pack(">i", 10)), "length 10"),
    "negative length": (lambda p: patch(segment(p), 8, struct.pack(">i", -1)), "length -1"),
    "offsets go back": (
        lambda p: patch(segment(p), batches_of(segment(p))[2][0], bytes(8)),
        "have to ascend",
    ),
    "below the base offset": (
        lambda p: patch(segment(p, 1), 0, struct.pack(">q", 3)),
        "below the segment's base offset",
    ),
    "beyond the relative offsets": (
        lambda p: patch(segment(p, -1), batches_of(segment(p, -1))[-1][0], struct.pack(">q", 1 << 40)),
        "more than 2^31",
    ),
    "negative offset delta": (
        lambda p: patch_batch(segment(p), 1, 23, struct.pack(">i", -5)) and None,
        "last offset delta -5",
    ),
    "more records than offsets": (
        lambda p: patch_batch(segment(p), 1, 57, struct.pack(">i", 9)) and None,
        "announces 9 records for 3 offsets",
    ),
    "fewer records than there are": (bad_record_count, "cannot be read"),
    "records out of order": (swapped_offsets, "holds offset 1 behind 2"),
    "wrong max timestamp": (
        lambda p: patch_batch(segment(p), 1, 35, struct.pack(">q", 1_800_000_000_000)) and None,
        "has max timestamp 1800000000000, its records 1700000000020",
    ),
    "unknown compression": (
        lambda p: patch_batch(segment(p), 1, 21, struct.pack(">h", 6)) and None,
        "compression 6",
    ),
    "damaged compressed bytes": (
        lambda p: patch_batch(segment(p), 5, 65, b"\0\0\0\0") and None,
        "cannot be read",
    ),
    "leader epoch goes back": (
        lambda p: patch(segment(p), batches_of(segment(p))[1][0] + 12, struct.pack(">i", 3)),
        "behind a batch of epoch 3",
    ),
}


@pytest.mark.parametrize("name", SEGMENT_DAMAGE)
def test_damaged_segments_are_found(name: str, run: Run, partition: Path) -> None:
    damage, word = SEGMENT_DAMAGE[name]
    damage(partition)
    found = [f for f in run.findings(partition) if word in f["what"]]
    assert found, name
    assert found[0]["file"].endswith(".log") and found[0]["position"] is not None and found[0]["advice"]
    text = run("--verify", partition, status=1)
    assert f"DAMAGE {found[0]['file']} at {found[0]['position']}: " in text and word in text


@pytest.mark.parametrize("name", ["a flipped bit in a record", "zero tail", "cut in the records", "garbage"])
def test_damage_is_also_seen_when_a_segment_is_only_shown(name: str, run: Run, partition: Path) -> None:
    SEGMENT_DAMAGE[name][0](partition)
    assert of_type(run.json(partition, status=1), "finding")


def test_the_position_is_that_of_the_batch(run: Run, partition: Path) -> None:
    position, size = batches_of(segment(partition))[3]
    flip(segment(partition), position + size - 1)
    (finding,) = run.findings(partition)
    assert finding["position"] == position
    shown = of_type(run.json(segment(partition), status=1), "batch")
    assert [batch["is_valid"] for batch in shown[:5]] == [True, True, True, False, True]


def offset_entries(partition: Path, *entries: tuple[int, int]) -> None:
    index(partition, ".index").write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries))


def time_entries(partition: Path, *entries: tuple[int, int]) -> None:
    index(partition, ".timeindex").write_bytes(b"".join(struct.pack(">qi", *entry) for entry in entries))


def txn_entries(partition: Path, *entries: tuple[int, int, int, int, int]) -> None:
    index(partition, ".txnindex").write_bytes(b"".join(struct.pack(">hqqqq", *entry) for entry in entries))


def starts(partition: Path) -> list[int]:
    return [position for position, _ in batches_of(segment(partition))]


T0 = 1_700_000_000_000

INDEX_DAMAGE: dict[str, tuple[Damage, str, str]] = {
    "index not whole": (lambda p: append(index(p, ".index"), b"\0\0\1"), ".index", "not a whole number"),
    "timeindex not whole": (lambda p: append(index(p, ".timeindex"), b"\0\0\1"), ".timeindex", "not a whole"),
    "txnindex not whole": (lambda p: append(index(p, ".txnindex"), b"\0"), ".txnindex", "not a whole"),
    "between batches": (
        lambda p: offset_entries(p, (5, starts(p)[1] + 1)),
        ".index",
        "points to where no batch begins",
    ),
    "wrong offset": (lambda p: offset_entries(p, (4, starts(p)[1])), ".index", "a batch that ends at 5"),
    "no batch's last offset": (
        lambda p: offset_entries(p, (7, starts(p)[1])),
        ".index",
        "the last offset of no batch",
    ),
    "behind the segment": (lambda p: offset_entries(p, (5, 100_000)), ".index", "beyond the segment's end"),
    "offset behind the segment": (
        lambda p: offset_entries(p, (5000, starts(p)[1])),
        ".index",
        "beyond the segment's last offset",
    ),
    "offsets descend": (
        lambda p: offset_entries(p, (5, starts(p)[1]), (2, starts(p)[2])),
        ".index",
        "does not ascend",
    ),
    "positions descend": (
        lambda p: offset_entries(p, (5, starts(p)[1]), (8, starts(p)[0])),
        ".index",
        "does not ascend",
    ),
    "zeros in a closed index": (lambda p: append(index(p, ".index"), bytes(80)), ".index", "10 zero entries"),
    "wrong time": (lambda p: time_entries(p, (T0 + 19, 5)), ".timeindex", "max timestamp is 1700000000020"),
    "time of no batch": (
        lambda p: time_entries(p, (T0 + 20, 900)),
        ".timeindex",
        "beyond the segment's last offset",
    ),
    "times descend": (
        lambda p: time_entries(p, (T0 + 20, 5), (T0 + 10, 8)),
        ".timeindex",
        "does not ascend",
    ),
    "time offsets descend": (
        lambda p: time_entries(p, (T0 + 20, 5), (T0 + 30, 2)),
        ".timeindex",
        "does not ascend",
    ),
    "last time missing": (
        lambda p: time_entries(p, (T0 + 20, 5)),
        ".timeindex",
        "the last entry has timestamp 1700000000020",
    ),
    "no time at all": (lambda p: time_entries(p), ".timeindex", "the last entry has timestamp -1"),
    "abort of no marker": (lambda p: txn_entries(p, (0, 8, 12, 13, 14)), ".txnindex", "where no marker is"),
    "abort of another producer": (
        lambda p: txn_entries(p, (0, 9, 12, 16, 17)),
        ".txnindex",
        "the marker of producer 8",
    ),
    "aborts descend": (
        lambda p: txn_entries(p, (0, 8, 12, 16, 17), (0, 8, 12, 16, 17)),
        ".txnindex",
        "does not ascend",
    ),
    "abort behind the segment": (
        lambda p: txn_entries(p, (0, 8, 12, 16, 17), (0, 8, 12, 4000, 17)),
        ".txnindex",
        "beyond the segment's last offset",
    ),
    "abort of version 3": (lambda p: txn_entries(p, (3, 8, 12, 16, 17)), ".txnindex", "unknown version 3"),
    "abort backwards": (lambda p: txn_entries(p, (0, 8, 17, 16, 17)), ".txnindex", "no transaction"),
}


@pytest.mark.parametrize("name", INDEX_DAMAGE)
def test_damaged_indexes_are_found(name: str, run: Run, partition: Path) -> None:
    damage, suffix, word = INDEX_DAMAGE[name]
    damage(partition)
    found = run.findings(partition)
    assert {Path(f["file"]).suffix for f in found} == {suffix}  # and nothing else is blamed
    assert any(word in f["what"] and "rebuilt" in f["advice"] for f in found), found
    alone = run.findings(index(partition, suffix))  # the index as the only argument
    assert [f["what"] for f in alone] == [f["what"] for f in found]


def test_a_marker_that_commits_is_no_abort(run: Run, partition: Path) -> None:
    path = segment(partition)
    number = next(
        i for i, (position, _) in enumerate(batches_of(path)) if path.read_bytes()[position + 22] & 0x20
    )
    position, _ = batches_of(path)[number]
    key = path.read_bytes().index(struct.pack(">hh", 0, 0), position + 61)
    patch_batch(path, number, key - position, struct.pack(">hh", 0, 1))
    (finding,) = run.findings(partition)
    assert "no abort" in finding["what"] and finding["file"].endswith(".txnindex")


def test_a_time_that_is_not_the_largest_so_far(run: Run, tmp_path: Path) -> None:
    path = tmp_path / f"{FIRST}.log"
    for offset, timestamp in enumerate((100, 300, 200)):
        append(path, build_batch([Record(offset, timestamp, None, b"", ())], base_offset=offset))
    path.with_suffix(".index").touch()
    path.with_suffix(".timeindex").write_bytes(struct.pack(">qi", 200, 2))
    (finding,) = run.findings(path)
    assert "an earlier batch has 300" in finding["what"]


def test_one_entry_for_an_append_of_several_batches_is_right(run: Run, partition: Path) -> None:
    offset_entries(partition, (8, starts(partition)[1]))  # Kafka before 4.0, on a follower
    assert "nothing is wrong" in run("--verify", partition)


def test_reserved_space_in_the_active_segments_indexes_is_no_damage(run: Run, partition: Path) -> None:
    append(index(partition, ".index", -1), bytes(800))
    append(index(partition, ".timeindex", -1), bytes(1200))
    assert "nothing is wrong" in run("--verify", partition)


def test_an_entry_behind_a_hole_of_reserved_space_is_found(run: Run, partition: Path) -> None:
    path = index(partition, ".index", -1)
    os.truncate(path, 80_000)  # nothing is written there, so the file has a hole
    assert "nothing is wrong" in run("--verify", partition)
    append(path, struct.pack(">ii", 1, 1) + bytes(800))
    assert run.findings(partition)


def test_a_garbage_index_does_not_drown_the_rest(run: Run, partition: Path) -> None:
    index(partition, ".index").write_bytes(b"\xff" * 8 * 5000)
    found = run.findings(partition)
    assert len(found) == FINDINGS_MAX + 1 and "4900 more" in found[-1]["what"]


def test_an_unreadable_segment_does_not_make_its_indexes_wrong(run: Run, partition: Path) -> None:
    path = segment(partition)
    patch(path, starts(partition)[2] + 16, b"\7")
    found = run.findings(path)
    assert len(found) == 1 and "magic 7" in found[0]["what"]


FILE_DAMAGE: dict[str, tuple[Damage, str, str]] = {
    "index without segment": (
        lambda p: (p / f"{777:020d}.index").write_bytes(b"") and None,
        f"{777:020d}.index",
        "belongs to no segment",
    ),
    "txnindex without segment": (
        lambda p: (p / f"{777:020d}.txnindex").write_bytes(b"") and None,
        f"{777:020d}.txnindex",
        "belongs to no segment",
    ),
    "stray snapshot": (
        lambda p: shutil.copy(sorted(p.glob("*.snapshot"))[0], p / f"{1:020d}.snapshot") and None,
        f"{1:020d}.snapshot",
        "belongs to no segment",
    ),
    "snapshot CRC": (lambda p: flip(sorted(p.glob("*.snapshot"))[0], 12), ".snapshot", "CRC"),
    "snapshot cut": (
        lambda p: sorted(p.glob("*.snapshot"))[0].write_bytes(b"\0\1\0") and None,
        ".snapshot",
        "few",
    ),
    "snapshot of the future": (
        lambda p: shutil.copy(sorted(p.glob("*.snapshot"))[-1], sorted(p.glob("*.snapshot"))[0]) and None,
        ".snapshot",
        "not below",
    ),
    "index missing": (lambda p: index(p, ".index").unlink(), ".log", "has no .index"),
    "timeindex missing": (lambda p: index(p, ".timeindex").unlink(), ".log", "has no .timeindex"),
    "interrupted compaction": (
        lambda p: (p / f"{FIRST}.log.swap").touch(),
        ".swap",
        "interrupted compaction",
    ),
    "half a checkpoint": (
        lambda p: (p / "leader-epoch-checkpoint.tmp").touch(),
        ".tmp",
        "no file of a log",
    ),
    "unknown file": (lambda p: (p / "photo.jpg").touch(), "photo.jpg", "no file of a log"),
    "epochs do not increase": (
        lambda p: (p / "leader-epoch-checkpoint").write_text("0\n2\n1 62\n0 0\n") and None,
        "leader-epoch-checkpoint",
        "does not follow",
    ),
    "epochs cut": (
        lambda p: (p / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n") and None,
        "leader-epoch-checkpoint",
        "announces 2 entries",
    ),
    "epoch missing": (
        lambda p: (p / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n") and None,
        "leader-epoch-checkpoint",
        "epoch 1 of batch 62 is not in it",
    ),
    "epoch too late": (
        lambda p: (p / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 70\n") and None,
        "leader-epoch-checkpoint",
        "batch 62 has it already",
    ),
    "epoch above the end": (
        lambda p: (p / "leader-epoch-checkpoint").write_text("0\n3\n0 0\n1 62\n2 5000\n") and None,
        "leader-epoch-checkpoint",
        "the log ends at 92",
    ),
    "no epochs": (
        lambda p: (p / "leader-epoch-checkpoint").unlink(),
        "t-0",
        "there is no leader-epoch-checkpoint",
    ),
    "topic id": (
        lambda p: (p / "partition.metadata").write_text("version: 0\ntopic_id: ?") and None,
        "partition.metadata",
        "line 2",
    ),
    "overlapping segments": (
        lambda p: shutil.copy(segment(p), p / f"{2:020d}.log") and None,
        f"{2:020d}.log",
        "it begins below",
    ),
}


@pytest.mark.parametrize("name", FILE_DAMAGE)
def test_damage_around_the_segments_is_found(name: str, run: Run, partition: Path) -> None:
    damage, ending, word = FILE_DAMAGE[name]
    damage(partition)
    found = run.findings(partition)
    assert any(f["file"].endswith(ending) and word in f["what"] and f["advice"] for f in found), found


def test_deleted_files_that_wait_are_no_damage(run: Run, partition: Path) -> None:
    (partition / f"{FIRST}.log.deleted").write_bytes(b"")
    assert "nothing is wrong" in run("--verify", partition)


DIRECTORY_DAMAGE: dict[str, tuple[Damage, str, str]] = {
    "recovery point": (
        lambda d: (d / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 93\n") and None,
        "recovery-point-offset-checkpoint",
        "its log ends at 92",
    ),
    "high watermark": (
        lambda d: (d / "replication-offset-checkpoint").write_text("0\n1\nt 0 93\n") and None,
        "replication-offset-checkpoint",
        "its log ends at 92",
    ),
    "log start": (
        lambda d: (d / "log-start-offset-checkpoint").write_text("0\n1\nt 0 93\n") and None,
        "log-start-offset-checkpoint",
        "its log ends at 92",
    ),
    "checkpoint version": (
        lambda d: (d / "replication-offset-checkpoint").write_text("7\n0\n") and None,
        "replication-offset-checkpoint",
        "version 7",
    ),
    "meta.properties": (
        lambda d: (d / "meta.properties").write_text("version=1\nnode.id=1\n") and None,
        "meta.properties",
        "cluster.id is missing",
    ),
    "foreign directory": (lambda d: (d / "pictures").mkdir(), "pictures", "no partition's directory"),
    "a partition in it": (lambda d: flip(segment(d / "t-0"), 100), ".log", "CRC"),
}


@pytest.mark.parametrize("name", DIRECTORY_DAMAGE)
def test_damage_in_a_log_directory_is_found(name: str, run: Run, logs: Path) -> None:
    damage, ending, word = DIRECTORY_DAMAGE[name]
    damage(logs)
    (finding,) = run.findings(logs)
    assert finding["file"].endswith(ending) and word in finding["what"] and finding["advice"]


def test_partitions_that_are_gone_may_still_be_in_a_checkpoint(run: Run, logs: Path) -> None:
    (logs / "recovery-point-offset-checkpoint").write_text("0\n2\nt 0 92\nold 3 500\n")
    (logs / f"t-1.{'0' * 32}-delete").mkdir()
    assert "nothing is wrong" in run("--verify", logs)


def test_every_bit_of_a_segment_counts(run: Run, partition: Path) -> None:
    rng = random.Random(1)
    path = segment(partition)
    good = path.read_bytes()
    for _ in range(60):
        position = rng.randrange(len(good))
        in_batch = position - max(start for start in starts_of(good) if start <= position)
        if in_batch in range(8, 16):
            continue  # base offset and epoch are outside of the CRC; the tests above change them
        data = bytearray(good)
        data[position] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        assert run.findings(path), position
    path.write_bytes(good)


def starts_of(data: bytes) -> list[int]:
    found, position = [], 0
    while position < len(data):
        found.append(position)
        position += 12 + struct.unpack_from(">i", data, position + 8)[0]
    return found


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_no_damage_upsets_it(pristine: Path, tmp_path: Path, run: Run, data: st.DataObject) -> None:
    """Any file of a log directory, cut, grown and overwritten anywhere: a status of 0 or 1, nothing else."""
    logs = tmp_path / "fuzzed"
    shutil.rmtree(logs, ignore_errors=True)
    shutil.copytree(pristine, logs)
    names = sorted(str(path.relative_to(logs)) for path in logs.rglob("*") if path.is_file())
    for name in data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3)):
        content = bytearray((logs / name).read_bytes())
        position = data.draw(st.integers(0, len(content)))
        replacement = data.draw(st.binary(max_size=80))
        removed = data.draw(st.integers(0, 200))
        content[position : position + removed] = replacement
        (logs / name).write_bytes(content)
    assert main(["--verify", str(logs)]) in (0, 1)
    assert main(["--print-data-log", "--json", str(logs)]) in (0, 1)
