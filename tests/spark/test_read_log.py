"""From directories to rows, without Spark: what is planned, what tasks read, and what becomes of logs that
are damaged or change meanwhile.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.fs
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from minikafka.log.segment.indexes import AbortedTransaction
from minikafka.protocol.records.batch import iterate_headers, read_header
from minikafka.protocol.records.compression import CompressionType
from minikafka.protocol.records.records import ControlRecordType, Record, build_batch
from minikafka.spark.runtime.storage import ArrowStorage, Location, UnusableLocation
from minikafka.spark.source.datasource import BatchHeaderReader, limited
from minikafka.spark.source.log_files import (
    IndexEntries,
    NotALogDirectory,
    PartitionLog,
    UnfinishedSwap,
    find_logs,
)
from minikafka.spark.source.options import BadOption, Reading, ReadOptions, Search, parse_options
from minikafka.spark.source.planning import (
    BadOffsets,
    UnknownTopic,
    log_end_offset,
    offset_of_timestamp,
    selected_logs,
    splits_of,
    wanted_of,
)
from minikafka.spark.source.split_reader import CorruptLog, DataLoss, Split, SplitReader, cut
from minikafka.types import TopicPartition
from tests.spark.logs import NOW_MS, LogDir, batch, marker

T0 = TopicPartition("t", 0)
BASE_OFFSET, LEADER_EPOCH = range(8), range(12, 16)
"""Bytes of a batch that its checksum does not cover; the length and the magic are the others."""
ABORT, COMMIT = ControlRecordType.ABORT, ControlRecordType.COMMIT


@pytest.fixture
def logs(tmp_path: Path) -> LogDir:
    return LogDir(tmp_path / "logs")


def options_of(logs: LogDir, **more: str) -> ReadOptions:
    return parse_options({"path": str(logs.path), **more})


def planned(options: ReadOptions, search: Search | None = None) -> list[Split]:
    return [
        split
        for log in selected_logs(options)
        for split in splits_of(wanted_of(log, options), options, search or Search())
    ]


def rows_of(
    splits: Sequence[Split], options: ReadOptions, columns: Sequence[str] = ("offset", "value")
) -> list[dict[str, Any]]:
    return [
        row
        for split in splits
        for rows in SplitReader(split, columns, options).record_batches()
        for row in rows.to_pylist()
    ]


def offsets(logs: LogDir, columns: Sequence[str] = ("offset", "value"), **more: str) -> list[int]:
    options = options_of(logs, **more)
    return [row["offset"] for row in rows_of(planned(options), options, columns)]


# Splits


@given(
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=60),
    interval=st.sampled_from([0, 200, 1000, 10**6]),
    split_bytes=st.integers(1, 6000),
    wanted=st.tuples(st.integers(0, 800), st.integers(1, 900)),
    spoilt=st.none() | st.integers(0, 10**6),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_each_offset_lies_in_exactly_one_split(
    tmp_path: Path,
    counts: list[int],
    interval: int,
    split_bytes: int,
    wanted: tuple[int, int],
    spoilt: int | None,
) -> None:
    """Whatever the index looks like; one that is wrong costs parallelism, not records."""
    batches, base = [], 0
    for count in counts:
        batches.append(batch(base, count))
        base += count
    shutil.rmtree(tmp_path / "logs", ignore_errors=True)
    logs = LogDir(tmp_path / "logs")
    path = logs.segment("t", batches, index_interval_bytes=interval)
    index = path.with_suffix(".index")
    if spoilt is not None and index.stat().st_size:
        data = bytearray(index.read_bytes())
        data[spoilt % len(data)] ^= 1 << spoilt % 7
        index.write_bytes(data)
    first, length = wanted
    first = min(first, base)
    end = min(base, first + length)
    more = {
        "startingOffsets": f'{{"t":{{"0":{first}}}}}',
        "endingOffsets": f'{{"t":{{"0":{end}}}}}',
        "splitBytes": str(split_bytes),
    }
    for columns in (("offset", "value"), ("offset",)):
        assert offsets(logs, columns, **more) == list(range(first, end))


def test_a_large_partition_is_cut_at_batches(logs: LogDir) -> None:
    data = [batch(base, 10, size=100) for base in range(0, 3000, 10)]
    logs.segment("t", data)
    options = options_of(logs, splitBytes="40000")
    splits = planned(options)
    starts = {position: header.base_offset for position, header in iterate_headers(b"".join(data))}
    assert len(splits) == 9
    assert [starts[split.position] for split in splits] == [split.first_offset for split in splits]
    assert [row["offset"] for row in rows_of(splits, options)] == list(range(3000))


def test_an_index_entry_that_leads_to_no_batch_is_passed_over() -> None:
    index = IndexEntries(np.array([9, 19, 24, 29]), np.array([100, 205, 250, 300]))
    headers = {
        100: batch(5, 5)[:61],
        205: bytes(61),  # no batch
        250: batch(28, 5)[:61],  # bytes that look like one, of offsets that the entry rules out
        300: batch(25, 5)[:61],
    }
    chunks, end = cut(
        index,
        segment_size=400,
        first_offset=0,
        end_offset=100,
        split_bytes=50,
        header_at=headers.__getitem__,
    )
    assert [(chunk.position, chunk.offset) for chunk in chunks] == [(0, 0), (100, 5), (300, 25)]
    assert end == 400


# Live directories


def test_a_tail_that_is_still_being_written_ends_the_read(logs: LogDir) -> None:
    path = logs.segment("t", [batch(0, 5), batch(5, 5)])
    whole = path.read_bytes()
    for missing in (1, 30, len(batch(5, 5)) - 10):
        path.write_bytes(whole[:-missing])
        assert offsets(logs) == offsets(logs, ["offset"]) == [0, 1, 2, 3, 4]
    path.write_bytes(whole + bytes(100))  # log.preallocate
    assert offsets(logs) == list(range(10))
    logs.high_watermarks({T0: 10})
    path.write_bytes(whole + whole[:30])
    assert offsets(logs, latest="highWatermark") == list(range(10))
    path.write_bytes(whole[:-1])
    with pytest.raises(CorruptLog, match=r"position \d+: a batch of"):  # it was committed: this is no tail
        offsets(logs, latest="highWatermark")
    path.write_bytes(b"")
    assert offsets(logs) == []


def test_a_segment_that_retention_took_is_read_while_its_file_is_there(logs: LogDir) -> None:
    for base in (0, 10, 20):
        logs.segment("t", [batch(base, 10)])
    options = options_of(logs)
    splits = planned(options)
    first = logs.partition("t") / f"{0:020d}.log"
    first.rename(first.with_name(first.name + ".deleted"))
    assert [row["offset"] for row in rows_of(splits, options)] == list(range(30))
    first.with_name(first.name + ".deleted").unlink()
    with pytest.raises(DataLoss, match=r"t-0/0{20}\.log: offsets 0 to 9 are no longer there.*failOnDataLoss"):
        rows_of(splits, options)
    careless = options_of(logs, failOnDataLoss="false")
    assert [row["offset"] for row in rows_of(splits, careless)] == list(range(10, 30))
    shutil.rmtree(logs.partition("t"))
    with pytest.raises(DataLoss, match="the log is gone"):
        rows_of(splits[1:], options)


def test_segments_that_the_cleaner_replaced_are_found_by_their_offsets(logs: LogDir) -> None:
    """Planned over three segments; two of them became one, with every other record gone."""
    for base in (0, 100, 200):
        logs.segment("t", [batch(base + each, 10, size=50) for each in range(0, 100, 10)])
    options = options_of(logs, splitBytes="2000")
    splits = planned(options)
    cleaned = [
        build_batch(
            [Record(offset, NOW_MS, b"k", b"%d" % offset) for offset in range(base + 1, base + 10, 2)],
            base_offset=base + 1,
        )
        for base in range(0, 200, 10)
    ]
    for base in (0, 100):
        old = logs.partition("t") / f"{base:020d}.log"
        old.rename(old.with_name(old.name + ".gone"))
    logs.segment("t", cleaned, base_offset=0)
    expected = [*range(1, 200, 2), *range(200, 300)]
    assert [row["offset"] for row in rows_of(splits, options)] == expected
    assert [row["offset"] for row in rows_of(splits, options, ["offset"])] == expected


def test_records_that_are_appended_after_planning_are_not_read(logs: LogDir) -> None:
    path = logs.segment("t", [batch(0, 10)])
    options = options_of(logs)
    splits = planned(options)
    with path.open("ab") as file:
        file.write(batch(10, 10))
    assert len(rows_of(splits, options)) == 10
    assert len(offsets(logs)) == 20


def test_a_directory_in_the_middle_of_a_swap_is_refused(logs: LogDir) -> None:
    logs.segment("t", [batch(0, 10)])
    (logs.partition("t") / f"{0:020d}.log.swap").write_bytes(b"")
    with pytest.raises(UnfinishedSwap, match=r"t-0: .*0\.log\.swap.*start a broker"):
        offsets(logs)


# Damage


def test_damage_names_file_and_position_and_skips_no_more_than_it_must(logs: LogDir) -> None:
    data = [batch(base, 10, size=200, codec=CompressionType(base // 10 % 5)) for base in range(0, 200, 10)]
    path = logs.segment("t", data, index_interval_bytes=0)
    logs.segment("t", [batch(200, 5)])
    whole = path.read_bytes()
    position = sum(len(each) for each in data[:7])
    for place, reason in (
        (position + 100, "its CRC is not that of its bytes"),
        (position + 16, "no batch: its magic would be 30"),
        (position + 8, "a batch of 21307"),
    ):
        spoilt = bytearray(whole)
        spoilt[place] = 30 if place == position + 16 else spoilt[place] ^ 0x7F
        path.write_bytes(spoilt)
        with pytest.raises(CorruptLog, match=rf"t-0/0{{20}}\.log, position {position}: {reason}"):
            offsets(logs)
        kept = [*range(70), *range(80, 205)]
        assert offsets(logs, onCorrupt="skip") == kept
        options = options_of(logs, onCorrupt="column")
        rows = rows_of(planned(options), options, ["offset", "topic", "value", "error"])
        assert [row["offset"] for row in rows if row["error"] is None] == kept
        (damage,) = [row for row in rows if row["error"] is not None]
        assert (damage["topic"], damage["offset"], damage["value"]) == ("t", None, None)
        assert f"0.log, position {position}: {reason}" in damage["error"]
    path.write_bytes(whole[: position + 3])
    with pytest.raises(CorruptLog, match=f"position {position}: 3 bytes are too few"):
        offsets(logs)
    assert offsets(logs, onCorrupt="skip") == [*range(70), *range(200, 205)]


def test_what_cannot_be_decompressed_or_is_not_supported_is_named(logs: LogDir) -> None:
    bomb = build_batch([Record(0, 0, None, bytes(10_000_000))], compression=CompressionType.ZSTD)
    path = logs.segment("t", [bomb, batch(1, 1)])
    with pytest.raises(CorruptLog, match=r"position 0: ZSTD records of more than 1000000 bytes"):
        offsets(logs, maxDecompressedBytes="1000000")
    assert offsets(logs, maxDecompressedBytes="1000000", onCorrupt="skip") == [1]
    assert offsets(logs) == [0, 1]
    unknown = bytearray(batch(0, 1))
    header = read_header(unknown)
    from minikafka.protocol.records.batch import HEADER_SIZE, pack_header

    unknown[:HEADER_SIZE] = pack_header(header._replace(attributes=6), unknown[HEADER_SIZE:])
    path.write_bytes(unknown)
    with pytest.raises(CorruptLog, match="position 0: unknown compression type 6"):
        offsets(logs)
    old = bytearray(batch(0, 1))
    old[16] = 1
    path.write_bytes(old)
    with pytest.raises(CorruptLog, match=r"position 0: a message of format v1; only v2, Kafka's since 0\.11"):
        offsets(logs)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80)
@given(seed=st.integers(0, 2**32))
@example(seed=835)  # the base offset of a batch: 248 instead of 240
@example(seed=41)  # a batch of records becomes one of control records
def test_no_damage_gets_past_and_none_costs_undamaged_batches_before_it(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    shutil.rmtree(tmp_path / "logs", ignore_errors=True)
    logs = LogDir(tmp_path / "logs")
    data = [batch(base, 10, codec=CompressionType(base // 10 % 5)) for base in range(0, 300, 10)]
    path = logs.segment("t", data, index_interval_bytes=300)
    logs.segment("t", [batch(300, 1)])
    spoilt = bytearray(path.read_bytes())
    place = dice.randrange(len(spoilt))
    spoilt[place] ^= 1 << dice.randrange(8)
    path.write_bytes(spoilt)
    split_bytes = str(dice.randrange(1, 5000))
    positions = [position for position, _ in iterate_headers(b"".join(data))]
    spoilt_batch = max(index for index, position in enumerate(positions) if position <= place)
    field = place - positions[spoilt_batch]
    is_harmless = field in LEADER_EPOCH
    options = options_of(logs, splitBytes=split_bytes)
    if is_harmless:
        assert len(rows_of(planned(options), options)) == 301
    else:
        with pytest.raises(CorruptLog):
            rows_of(planned(options), options)
    options = options_of(logs, onCorrupt="skip", splitBytes=split_bytes)
    rows = rows_of(planned(options), options)
    found = {row["offset"]: row["value"] for row in rows}
    assert len(found) == len(rows)
    before = spoilt_batch
    if field in BASE_OFFSET:
        # No checksum covers it, and two batches that overlap do not say which of them is wrong: it is named
        # (above), but here its records may be those of the neighbour, and the batch before it left out.
        before = max(before - 1, 0)
        own = {f"value {offset}".encode() for offset in range(spoilt_batch * 10, spoilt_batch * 10 + 10)}
        found = {offset: value for offset, value in found.items() if value not in own}
    for offset, value in found.items():
        assert value == f"value {offset}".encode()
    assert set(range(before * 10)) <= set(found)


# Bounds


def test_latest_is_what_a_consumer_would_see(logs: LogDir) -> None:
    path = logs.segment("t", [batch(0, 10), batch(10, 10)])
    assert len(offsets(logs)) == 20
    logs.high_watermarks({T0: 10})
    at_rest, in_use = (1_000, 1_000), (2**31, 2**31)
    os.utime(path, at_rest)
    assert offsets(logs) == list(range(10))  # nothing was written since: the rest was never committed
    assert len(offsets(logs, latest="logEnd")) == 20
    os.utime(path, in_use)
    assert len(offsets(logs)) == 20
    assert offsets(logs, latest="highWatermark") == list(range(10))
    logs.high_watermarks({TopicPartition("other", 0): 5})
    assert len(offsets(logs)) == 20
    assert offsets(logs, latest="highWatermark") == []
    logs.log_starts({T0: 7})
    assert offsets(logs) == list(range(7, 20))


def test_offsets_and_timestamps_say_where_to_start_and_end(logs: LogDir) -> None:
    for base in (0, 100, 200):
        logs.segment("t", [batch(base + each, 10) for each in range(0, 100, 10)], index_interval_bytes=500)
    assert offsets(logs, startingOffsets='{"t":{"0":205}}', endingOffsets='{"t":{"0":-1}}') == [
        *range(205, 300)
    ]
    assert offsets(logs, startingTimestamp=str(NOW_MS + 95), endingTimestamp=str(NOW_MS + 103)) == [
        *range(95, 103)
    ]
    assert offsets(logs, startingOffsetsByTimestamp=f'{{"t":{{"0":{NOW_MS + 299}}}}}') == [299]
    with pytest.raises(BadOffsets, match=r"startingTimestamp: no record of t-0 is as young as \d+"):
        offsets(logs, startingTimestamp=str(NOW_MS + 300))
    late = {"startingTimestamp": str(NOW_MS + 300), "startingOffsetsByTimestampStrategy": "latest"}
    assert offsets(logs, **late) == []
    with pytest.raises(DataLoss, match=r"t-0: endingOffsets is 301, but the log ends at 300"):
        offsets(logs, endingOffsets='{"t":{"0":301}}')
    assert len(offsets(logs, endingOffsets='{"t":{"0":301}}', failOnDataLoss="false")) == 300
    logs.log_starts({T0: 50})
    with pytest.raises(DataLoss, match=r"offsets 10 to 49 are no longer there"):
        offsets(logs, startingOffsets='{"t":{"0":10}}')
    with pytest.raises(BadOffsets, match="says nothing of t-0"):
        offsets(logs, startingOffsets='{"u":{"0":10}}')
    (log,) = selected_logs(options_of(logs))
    assert log_end_offset(log) == 300
    assert offset_of_timestamp(log, NOW_MS + 150, 1 << 20) == 150


# Transactions


class Model:
    """A log with transactions, and what a read_committed consumer sees of it."""

    def __init__(self, dice: random.Random, steps: int) -> None:
        self.batches: list[bytes] = []
        self.open: dict[int, int] = {}
        self.aborted: list[AbortedTransaction] = []
        self.states: list[tuple[int, dict[int, int]]] = [(0, {})]
        """Offset and open transactions behind each batch."""
        pending: dict[int, list[int]] = {}
        committed: list[int] = []
        offset = 0
        for _ in range(steps):
            producer_id = dice.randrange(4)
            count = 1
            if dice.random() < 0.3 and producer_id in self.open:
                kind = dice.choice([ABORT, COMMIT])
                self.batches.append(marker(offset, producer_id, kind))
                first, records = self.open.pop(producer_id), pending.pop(producer_id)
                if kind is ABORT:
                    self.aborted.append(AbortedTransaction(producer_id, first, offset, -1))
                else:
                    committed += records
            else:
                count = dice.randrange(1, 5)
                is_transactional = producer_id > 0
                its_id = producer_id if is_transactional else -1
                self.batches.append(batch(offset, count, producer_id=its_id, transactional=is_transactional))
                if is_transactional:
                    self.open.setdefault(producer_id, offset)
                    pending.setdefault(producer_id, []).extend(range(offset, offset + count))
                else:
                    committed += range(offset, offset + count)
            offset += count
            self.states.append((offset, dict(self.open)))
        self.last_stable_offset = min([offset, *self.open.values()])
        self.seen = sorted(each for each in committed if each < self.last_stable_offset)
        self.markers = [
            header.base_offset for each in self.batches if (header := read_header(each)).is_control
        ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80)
@given(
    seed=st.integers(0, 2**32),
    steps=st.integers(1, 80),
    roll=st.integers(1, 30),
    has_indexes=st.booleans(),
    has_snapshots=st.booleans(),
    split_bytes=st.sampled_from([1, 700, 10**6]),
)
def test_read_committed_sees_what_a_consumer_sees(
    tmp_path: Path, seed: int, steps: int, roll: int, has_indexes: bool, has_snapshots: bool, split_bytes: int
) -> None:
    """Segments as a broker leaves them, or stripped of their indexes, or without producer snapshots."""
    model = Model(random.Random(seed), steps)
    shutil.rmtree(tmp_path / "logs", ignore_errors=True)
    logs = LogDir(tmp_path / "logs")
    for start in range(0, steps, roll):
        its_batches = model.batches[start : start + roll]
        base, end = model.states[start][0], model.states[min(steps, start + roll)][0]
        logs.segment("t", its_batches, with_indexes=has_indexes, index_interval_bytes=200)
        ended = [each for each in model.aborted if base <= each.last_offset < end]
        if ended and has_indexes:
            logs.aborted("t", base, ended)
        if has_snapshots and start:
            logs.snapshot("t", base, model.states[start][1])
    more = {"isolation": "read_committed", "splitBytes": str(split_bytes)}
    assert offsets(logs, **more) == offsets(logs, ["offset"], **more) == model.seen
    with_markers = offsets(logs, includeControlBatches="true", **more)
    assert with_markers == sorted(
        {*model.seen, *(each for each in model.markers if each < model.last_stable_offset)}
    )
    everything = offsets(logs, splitBytes=str(split_bytes))
    assert sorted({*everything, *model.markers}) == list(range(model.states[-1][0]))


# Filters, storage, options


def test_read_committed_goes_past_damage_where_it_may(logs: LogDir) -> None:
    """A header that is no header and a marker that cannot be read: what lies behind them is found."""
    unreadable = bytearray(marker(4, 7, COMMIT))
    unreadable[-1] ^= 1
    behind = [batch(6, 2, producer_id=8, transactional=True), marker(8, 8, ABORT), batch(9, 1)]
    batches = [batch(0, 2), batch(2, 2), bytes(unreadable), batch(5, 1), *behind]
    path = logs.segment("t", batches, index_interval_bytes=0)
    data = bytearray(path.read_bytes())
    data[len(batches[0]) + 16] = 9  # the magic of the second
    path.write_bytes(data)
    committed = {"isolation": "read_committed"}
    with pytest.raises(CorruptLog, match=r"magic would be 9 \(position \d+\)"):
        offsets(logs, **committed)
    assert offsets(logs, onCorrupt="skip", **committed) == [0, 1, 5, 9]
    options = options_of(logs, onCorrupt="column", **committed)
    rows = rows_of(planned(options), options, ("offset", "key", "error"))
    assert [row["offset"] for row in rows] == [0, 1, None, None, 5, 9]
    assert "magic would be 9" in rows[2]["error"]
    assert "CRC" in rows[3]["error"]


def test_a_marker_in_damage_leaves_its_transaction_open(logs: LogDir) -> None:
    unreadable = bytearray(marker(3, 7, COMMIT))
    unreadable[-1] ^= 1
    logs.segment(
        "t", [batch(0, 1), batch(1, 2, producer_id=7, transactional=True), bytes(unreadable), batch(4, 1)]
    )
    with pytest.raises(CorruptLog, match="a marker that cannot be read"):
        offsets(logs, isolation="read_committed")
    assert offsets(logs, isolation="read_committed", onCorrupt="skip") == [0]


def test_headers_alone_say_nothing_of_damaged_records(logs: LogDir) -> None:
    """Deliberately: a CRC takes the whole batch, and these columns take a page of it."""
    damaged = bytearray(batch(2, 2))
    damaged[-1] ^= 1
    logs.segment("t", [batch(0, 2), bytes(damaged), batch(4, 1)])
    assert offsets(logs, ("offset", "batch_offset", "codec")) == [0, 1, 2, 3, 4]
    with pytest.raises(CorruptLog, match="CRC"):
        offsets(logs, ("offset", "key"))
    assert offsets(logs, ("offset", "key"), onCorrupt="skip") == [0, 1, 4]


def test_searches_skip_partitions_segments_and_batches(logs: LogDir, monkeypatch: pytest.MonkeyPatch) -> None:
    for partition in (0, 1):
        for base in (0, 100, 200):
            logs.segment("t", [batch(base, 100)], partition=partition)
    options = options_of(logs)
    everything = planned(options)
    assert len(everything) == 6
    for search, expected in (
        (Search(topics=frozenset({"other"})), []),
        (Search(partitions=frozenset({1})), [(1, 0), (1, 100), (1, 200)]),
        (Search(first_offset=150, end_offset=160), [(0, 100), (1, 100)]),
        (Search(timestamp_ms_min=NOW_MS + 200), [(0, 200), (1, 200)]),
    ):
        found = planned(options, search)
        assert [(each.topic_partition.partition, each.base_offset) for each in found] == expected
    (split,) = planned(options, Search(first_offset=150, end_offset=160, partitions=frozenset({0})))
    assert [row["offset"] for row in rows_of([split], options)] == list(range(150, 160))


def test_any_file_system_of_pyarrow_will_do(logs: LogDir) -> None:
    for base in (0, 100):
        logs.segment("t", [batch(base + each, 10) for each in range(0, 100, 10)], index_interval_bytes=100)
    logs.high_watermarks({T0: 150})
    options = options_of(logs, latest="highWatermark", splitBytes="1000")
    local = rows_of(planned(options), options)
    uri = parse_options({"path": f"file://{logs.path}", "latest": "highWatermark", "splitBytes": "1000"})
    assert rows_of(planned(uri), uri) == local
    assert len(local) == 150
    sub_tree = pyarrow.fs.SubTreeFileSystem(str(logs.path.parent), pyarrow.fs.LocalFileSystem())
    in_memory = pyarrow.fs._MockFileSystem()
    in_memory.create_dir("logs/t-0")
    for file in [*logs.path.rglob("*")]:
        if file.is_file():
            with in_memory.open_output_stream(str(file.relative_to(logs.path.parent))) as out:
                out.write(file.read_bytes())
    for file_system in (sub_tree, in_memory):
        storage = ArrowStorage(file_system)
        (log,) = find_logs(Location("mock://logs"), storage, "logs")
        assert log.high_watermark == 150
        splits = splits_of(wanted_of(log, options), options, Search())
        assert len(splits) == 4
        found = [
            row
            for split in splits
            for rows in SplitReader(
                split, ["offset", "value"], options, store=(storage, "logs")
            ).record_batches()
            for row in rows.to_pylist()
        ]
        assert found == local


def test_which_directories_are_logs(logs: LogDir, tmp_path: Path) -> None:
    logs.segment("t", [batch(0, 1)])
    for name in ("t-1.0123456789abcdef0123456789abcdef-delete", "t-2.00-future", "t-3.00-stray", "odd"):
        (logs.path / name).mkdir()
        (logs.path / name / f"{0:020d}.log").write_bytes(batch(0, 1))
    for suffix in (".deleted", ".cleaned"):
        (logs.partition("t") / f"{5:020d}.log{suffix}").write_bytes(b"")
    logs.partition("empty")
    found = selected_logs(options_of(logs))
    assert [(str(log.topic_partition), len(log.segments)) for log in found] == [("empty-0", 0), ("t-0", 1)]
    (alone,) = selected_logs(parse_options({"path": str(logs.partition("t"))}))
    assert (alone.topic_partition, alone.log_dir.text) == (T0, str(logs.path))
    (tmp_path / "nothing").mkdir()
    (tmp_path / "file").write_bytes(b"")
    for name, error, message in (
        ("missing", UnusableLocation, "missing does not exist"),
        ("nothing", NotALogDirectory, "nothing is not a log directory: no meta.properties"),
        ("file", NotALogDirectory, "file is a file"),
    ):
        with pytest.raises(error, match=message):
            selected_logs(parse_options({"path": str(tmp_path / name)}))


def test_what_may_not_be_read_is_named(logs: LogDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory, a partition's own, a segment, an index: one line with its path. (Root may read whatever it
    likes, so the operating system's answer is given here.)"""
    segment = str(logs.segment("t", [batch(0, 2), batch(2, 2)], index_interval_bytes=1))
    options = options_of(logs)
    splits = planned(options)
    really_scan, really_open = os.scandir, os.open
    refused = ""

    def refuse(path: Any) -> None:
        if str(path) == refused:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    def scandir(path: Any) -> Any:
        refuse(path)
        return really_scan(path)

    def opened(path: Any, flags: int, *more: Any, **named: Any) -> int:
        refuse(path)
        return really_open(path, flags, *more, **named)

    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr(os, "open", opened)
    for refused in (str(logs.path), f"{logs.path}/t-0"):
        with pytest.raises(UnusableLocation, match=f"^{refused} cannot be listed: Permission denied$"):
            planned(options)
    refused = segment
    for attempt in (lambda: planned(options), lambda: rows_of(splits, options)):
        with pytest.raises(UnusableLocation, match=f"^{segment} cannot be read: Permission denied; run as "):
            attempt()
    refused = segment.replace(".log", ".index")
    with pytest.raises(UnusableLocation, match=f"^{refused} cannot be read: Permission denied; run as "):
        planned(options)


def test_replicas_of_one_partition_are_not_mixed_by_accident(tmp_path: Path) -> None:
    one, two = LogDir(tmp_path / "one"), LogDir(tmp_path / "two")
    for each in (one, two):
        each.segment("t", [batch(0, 3)])
    path = f"{one.path},{two.path}"
    with pytest.raises(BadOffsets, match=r"t-0 is in .*one and in .*two: replicas.*replicas=all"):
        selected_logs(parse_options({"path": path}))
    options = parse_options({"path": path, "replicas": "all"})
    rows = rows_of(planned(options), options, ["offset", "log_dir"])
    assert [(row["offset"], Path(row["log_dir"]).name) for row in rows] == [
        (offset, name) for name in ("one", "two") for offset in range(3)
    ]


def test_topics_are_selected_as_in_sparks_own_source(logs: LogDir) -> None:
    for topic in ("orders", "orders-eu", "__consumer_offsets"):
        for partition in (0, 1):
            logs.segment(topic, [batch(0, 1)], partition=partition)

    def selected(**more: str) -> list[str]:
        return [str(log.topic_partition) for log in selected_logs(options_of(logs, **more))]

    assert selected() == ["orders-0", "orders-1", "orders-eu-0", "orders-eu-1"]
    assert selected(subscribe="orders , __consumer_offsets")[:2] == [
        "__consumer_offsets-0",
        "__consumer_offsets-1",
    ]
    assert selected(subscribePattern="orders.+") == ["orders-eu-0", "orders-eu-1"]
    assert selected(assign='{"orders":[1]}') == ["orders-1"]
    with pytest.raises(UnknownTopic, match=r"bills: not in .*; there are __consumer_offsets, orders"):
        selected(subscribe="orders,bills")
    with pytest.raises(UnknownTopic, match=r"orders-7: not in"):
        selected(assign='{"orders":[1,7]}')


@pytest.mark.parametrize(
    ("given_options", "message"),
    [
        ({"path": ""}, "path is missing"),
        ({"strartingOffsets": "earliest"}, "there is no option 'strartingOffsets'"),
        ({"subscribe": "a", "assign": "{}"}, "subscribe and assign contradict each other"),
        ({"startingOffsets": "latest"}, "startingOffsets: a batch cannot start at the latest"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets: a batch cannot start at the latest"),
        ({"endingOffsets": "earliest"}, "endingOffsets: a batch cannot end at the earliest"),
        ({"startingOffsets": "5"}, r"startingOffsets is '5'; it may be earliest, latest or JSON"),
        ({"startingOffsets": '{"t":[5]}'}, "startingOffsets: 't' is not understood"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "startingOffsets: t-0 is -3; the least is -2"),
        ({"startingOffsets": "{"}, "startingOffsets is no JSON"),
        ({"startingOffsets": "earliest", "startingTimestamp": "5"}, "contradict each other"),
        ({"endingTimestamp": "yesterday"}, "endingTimestamp is 'yesterday'; it may be a whole number"),
        ({"isolation": "committed"}, "isolation is 'committed'; it may be read_uncommitted, read_committed"),
        ({"onCorrupt": "ignore"}, "onCorrupt is 'ignore'; it may be fail, skip, column"),
        ({"includeHeaders": "yes"}, "includeHeaders is 'yes'; it may be true or false"),
        ({"splitBytes": "0"}, "splitBytes is '0'"),
        ({"maxDecompressedBytes": str(2**31)}, "maxDecompressedBytes is '2147483648'"),
        ({"assign": '{"t":["0"]}'}, "assign: 't' has no list of partitions"),
        ({"subscribePattern": "("}, "subscribePattern is no regular expression"),
        ({"path": "/a,/a"}, "path names /a twice"),
        ({"columns": ","}, "columns names nothing"),
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger cannot be given: only a stream"),
    ],
)
def test_options_that_cannot_be_are_named(given_options: dict[str, str], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        parse_options({"path": "/logs", **given_options})


def test_a_stream_and_a_read_of_headers_have_options_of_their_own() -> None:
    with pytest.raises(BadOption, match="endingOffsets cannot be given: a stream has no end"):
        parse_options({"path": "/logs", "endingOffsets": "latest"}, Reading.STREAM)
    with pytest.raises(BadOption, match="replicas is 'all'; the offsets of a stream"):
        parse_options({"path": "/logs", "replicas": "all"}, Reading.STREAM)
    with pytest.raises(BadOption, match="isolation cannot be given: no records are read"):
        parse_options({"path": "/logs", "isolation": "read_committed"}, Reading.HEADERS)
    options = parse_options({"PATH": "/logs", "maxoffsetspertrigger": "7"}, Reading.STREAM)
    assert (options.offsets_per_trigger_max, options.paths[0].text) == (7, "/logs")


def test_a_micro_batch_is_shared_out_by_what_there_is() -> None:
    a, b, c = (TopicPartition("t", each) for each in range(3))
    starts, ends = {a: 0, b: 100, c: 5}, {a: 1000, b: 101, c: 5}
    assert limited(starts, ends, 10_000) == ends
    assert limited(starts, ends, 100) == {a: 99, b: 101, c: 5}


# Batch headers


def test_headers_of_batches_are_rows(logs: LogDir) -> None:
    data = [
        batch(0, 3, codec=CompressionType.GZIP, leader_epoch=4),
        batch(3, 1, producer_id=7, transactional=True),
        marker(4, 7, ABORT),
    ]
    path = logs.segment("t", data)
    options = parse_options({"path": str(logs.path)}, Reading.HEADERS)
    columns = ["position", "size", "base_offset", "last_offset", "codec", "records", "is_control", "crc_ok"]

    def rows() -> list[dict[str, Any]]:
        return [
            row
            for split in planned(options)
            for found in BatchHeaderReader(split, [*columns, "error"], options).record_batches()
            for row in found.to_pylist()
        ]

    found = rows()
    starts = [0, len(data[0]), len(data[0]) + len(data[1])]
    assert [tuple(row[name] for name in columns) for row in found] == [
        (starts[0], len(data[0]), 0, 2, "gzip", 3, False, True),
        (starts[1], len(data[1]), 3, 3, "none", 1, False, True),
        (starts[2], len(data[2]), 4, 4, "none", 1, True, True),
    ]
    spoilt = bytearray(path.read_bytes())
    spoilt[starts[1] + 65] ^= 1
    spoilt[starts[2] + 16] = 9
    path.write_bytes(spoilt)
    found = rows()
    assert [row["crc_ok"] for row in found] == [True, False, None]
    assert found[2]["position"] == starts[2]
    assert found[2]["error"].endswith(f"position {starts[2]}: no batch: its magic would be 9")


def test_headers_are_read_without_the_records(logs: LogDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read of a megabyte of large batches is a page a batch."""
    logs.segment("t", [batch(base, 50, size=1000) for base in range(0, 1000, 50)])
    options = parse_options({"path": str(logs.path)}, Reading.HEADERS)
    splits = planned(options)
    read = _bytes_read(monkeypatch)
    rows = [
        row
        for split in splits
        for found in BatchHeaderReader(split, ["records"], options).record_batches()
        for row in found.to_pylist()
    ]
    assert sum(row["records"] for row in rows) == 1000
    assert sum(read) <= 20 * 4096


def _bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    sizes: list[int] = []
    real = os.pread

    def counted(fd: int, size: int, position: int) -> bytes:
        sizes.append(size)
        return real(fd, size, position)

    monkeypatch.setattr(os, "pread", counted)
    return sizes


def test_the_logs_of_a_directory_can_be_iterated(logs: LogDir) -> None:
    """What the jobs ask of ``log_files``: names, sizes, snapshots, checkpoints."""
    logs.segment("t", [batch(0, 3)])
    logs.snapshot("t", 3, {})
    found: Iterator[PartitionLog] = iter(selected_logs(options_of(logs)))
    log = next(found)
    assert log.name == f"{logs.path}/t-0"
    assert log.segments[0].name == f"{0:020d}.log"
    assert log.snapshots == (3,)
    assert log.high_watermark is None and log.checkpoint_ms is None
