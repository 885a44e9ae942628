"""The offset index: sparse, ordered, mapped; eight bytes an entry."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.errors import InvariantError
from minikafka.files import OsFiles
from minikafka.log.segment.fetch_data import ColdRead
from minikafka.log.segment.indexes import OffsetIndex
from tests.unit.log.log_helpers import FailingFiles


def make_index(directory: Path | str, *, base_offset: int = 100, bytes_max: int = 800) -> OffsetIndex:
    path = os.path.join(str(directory), f"{base_offset:020d}.index")
    return OffsetIndex(path, base_offset=base_offset, bytes_max=bytes_max, files=OsFiles())


def test_entries_are_relative_offset_and_position_big_endian(tmp_path: Path) -> None:
    index = make_index(tmp_path)
    index.reset()
    assert os.path.getsize(index.path) == 800  # preallocated while active
    index.append(105, 4200)
    index.append(110, 9000)
    index.trim()
    assert Path(index.path).read_bytes() == struct.pack(">iiii", 5, 4200, 10, 9000)


@given(st.sets(st.integers(100, 3000), max_size=99), st.integers(90, 3100))
def test_lookup_finds_the_last_entry_at_or_below(
    tmp_path_factory: pytest.TempPathFactory, offsets: set[int], target: int
) -> None:
    index = make_index(tmp_path_factory.mktemp("index"))
    index.reset()
    entries = [(offset, 10 * offset) for offset in sorted(offsets)]
    for offset, position in entries:
        index.append(offset, position)
    below = [entry for entry in entries if entry[0] <= target]
    assert index.lookup(target) == (below[-1] if below else (100, 0))
    above = [offset for offset, position in entries if position >= target * 10]
    assert index.upper_bound_offset(target * 10) == (above[0] if above else None)
    index.truncate_to(target)
    assert [index.entry(slot) for slot in range(index.entries)] == [e for e in entries if e[0] < target]
    index.release()
    kept = sum(offset < target for offset, _ in entries)
    assert not any(Path(index.path).read_bytes()[8 * kept :]), "who reads the file sees no dropped entry"


def test_a_large_index_is_searched_in_and_before_its_warm_section(tmp_path: Path) -> None:
    index = make_index(tmp_path, base_offset=0, bytes_max=8 * 5000)
    index.reset()
    for number in range(5000):
        index.append(2 * number + 1, 100 * number)
    for target in (0, 1, 2, 5000, 7900, 7951, 7953, 9998, 9999, 20000):
        expected = (
            (0, 0) if target < 1 else (min(target - 1, 9998) // 2 * 2 + 1, min(target - 1, 9998) // 2 * 100)
        )
        assert index.lookup(target) == expected


def test_full_and_disorderly_appends_are_our_bugs(tmp_path: Path) -> None:
    index = make_index(tmp_path, bytes_max=17)
    index.reset()
    index.append(105, 10)
    with pytest.raises(InvariantError, match="not above the last one"):
        index.append(105, 20)
    index.append(106, 20)
    assert index.is_full
    with pytest.raises(InvariantError, match="does not fit"):
        index.append(107, 30)


def test_a_full_disk_is_an_error_and_not_a_dead_process(tmp_path: Path) -> None:
    # A store into a hole of a mapped file on a full disk is SIGBUS: the page is written through the file.
    files = FailingFiles()
    index = OffsetIndex(str(tmp_path / f"{0:020d}.index"), base_offset=0, bytes_max=8 * 1024, files=files)
    index.reset()
    for number in range(512):
        index.append(number, number)
    files.failing_suffix = ".index"
    with pytest.raises(OSError, match="no space left"):
        index.append(512, 512)
    assert index.entries == 512
    files.failing_suffix = None
    index.append(512, 512)
    assert index.lookup(600) == (512, 512)


def test_a_cold_index_is_not_read_on_the_loop(tmp_path: Path) -> None:
    files = FailingFiles()
    index = OffsetIndex(str(tmp_path / f"{0:020d}.index"), base_offset=0, bytes_max=800, files=files)
    index.reset()
    index.append(5, 10)
    index.trim()
    files.is_cold = True
    with pytest.raises(ColdRead) as cold:
        index.open(cached_only=True)
    assert cold.value.file.read(cold.value.size, cold.value.position) == struct.pack(">ii", 5, 10)
    files.is_cold = False
    index.open(cached_only=True)
    assert index.lookup(7) == (5, 10)


def test_what_an_index_cannot_be(tmp_path: Path) -> None:
    def plausible(data: bytes, segment_bytes: int = 1000) -> bool:
        index = make_index(tmp_path)
        Path(index.path).write_bytes(data)
        return index.load() and index.is_plausible(segment_bytes)

    assert plausible(b"")
    assert plausible(struct.pack(">iiii", 1, 100, 2, 200))
    assert not plausible(struct.pack(">iii", 1, 100, 2))  # torn
    assert not plausible(struct.pack(">ii", -1, 100))
    assert not plausible(struct.pack(">ii", 1, 1000))  # outside of the segment
    assert not plausible(struct.pack(">iiii", 1, 100, 0, 0))  # never trimmed
