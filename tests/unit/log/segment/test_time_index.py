"""The time index: the largest timestamp up to an offset; twelve bytes an entry."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from minikafka.errors import InvariantError
from minikafka.files import OsFiles
from minikafka.log.segment.indexes import TimeIndex
from tests.unit.log.log_helpers import NOW_MS, batch, open_log, small_config


def make_index(directory: Path, *, bytes_max: int = 1200) -> TimeIndex:
    return TimeIndex(
        str(directory / f"{100:020d}.timeindex"), base_offset=100, bytes_max=bytes_max, files=OsFiles()
    )


def test_only_a_later_time_gets_an_entry(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    index.reset()
    index.maybe_append(5000, 110)
    index.maybe_append(5000, 120)
    index.maybe_append(4000, 130)
    index.maybe_append(6000, 140)
    index.trim()
    assert Path(index.path).read_bytes() == struct.pack(">qiqi", 5000, 10, 6000, 40)


def test_lookup_and_truncation(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    index.reset()
    for number in range(1, 50):
        index.maybe_append(1000 * number, 100 + 10 * number)
    assert index.lookup(999) == (-1, 100)
    assert index.lookup(1000) == (1000, 110)
    assert index.lookup(30_999) == (30_000, 400)
    index.truncate_to(400)
    assert index.last_entry() == (29_000, 390)
    index.maybe_append(29_500, 395)  # later than what is left
    assert index.last_entry() == (29_500, 395)


def test_the_last_slot_is_kept_for_closing(tmp_path: Path) -> None:
    index = make_index(tmp_path, bytes_max=36)
    index.reset()
    index.maybe_append(1, 101)
    assert not index.is_full
    index.maybe_append(2, 102)
    assert index.is_full
    with pytest.raises(InvariantError, match="does not fit"):
        index.maybe_append(3, 103)
    index.maybe_append(3, 103, use_last_slot=True)
    assert index.entries == 3


def test_a_reopened_index_continues_where_it_was(tmp_path: Path) -> None:
    first = make_index(tmp_path)
    first.reset()
    first.maybe_append(5000, 110)
    first.trim()
    second = make_index(tmp_path)
    assert second.load()
    second.activate()
    second.maybe_append(5000, 120)
    second.maybe_append(7000, 130)
    assert [second.entry(slot) for slot in range(second.entries)] == [(5000, 110), (7000, 130)]


def test_the_largest_timestamp_is_found_behind_a_full_time_index(tmp_path: Path) -> None:
    """One append may fill it; what came after its last entry is then in no index."""
    config = small_config(segment_bytes=1 << 20, segment_index_bytes=120, index_interval_bytes=0)
    log = open_log(tmp_path / "t-0", config=config)
    times = [NOW_MS + number + (100 if number == 13 else 0) for number in range(20)]
    log.append_as_follower(
        b"".join(batch(timestamps=[time], base_offset=offset) for offset, time in enumerate(times))
    )
    segment = log.segments.active
    assert segment.time_index.is_full and segment.offset_index.last_entry().offset > 13
    log.truncate_to(18)
    assert segment.max_timestamp() == (NOW_MS + 113, 13)
    log.close()
