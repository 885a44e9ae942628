"""Leader epochs: where each began and ended, and that the file never knows less than memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.errors import InvariantError
from minikafka.files import OsFiles
from minikafka.log.checkpoint import CorruptCheckpoint
from minikafka.log.leader_epoch_cache import UNDEFINED, EpochEntry, LeaderEpochCache


class CountingFiles(OsFiles):
    """Counts what waits for the disk, and fails when told to."""

    def __init__(self) -> None:
        self.durable_writes = 0
        self.fail = False

    def write_atomically(self, path: str, data: bytes) -> None:
        if self.fail:
            raise OSError(5, "Input/output error")
        self.durable_writes += 1
        super().write_atomically(path, data)

    def replace(self, path: str, data: bytes) -> None:
        if self.fail:
            raise OSError(5, "Input/output error")
        super().replace(path, data)

    def overwrite(self, path: str, data: bytes) -> None:
        if self.fail:
            raise OSError(5, "Input/output error")
        super().overwrite(path, data)


@pytest.fixture
def files() -> CountingFiles:
    return CountingFiles()


@pytest.fixture
def cache(tmp_path: Path, files: CountingFiles) -> LeaderEpochCache:
    return LeaderEpochCache(str(tmp_path), files)


def fill(cache: LeaderEpochCache, *entries: tuple[int, int]) -> LeaderEpochCache:
    for epoch, start_offset in entries:
        cache.assign(epoch, start_offset)
    return cache


def saved(directory: Path) -> str:
    return (directory / "leader-epoch-checkpoint").read_text()


def test_the_file_is_kafkas(cache: LeaderEpochCache, tmp_path: Path) -> None:
    fill(cache, (0, 0), (2, 17))
    assert saved(tmp_path) == "0\n2\n0 0\n2 17\n"


def test_an_epoch_is_in_the_file_when_assigned_and_its_fsync_is_left_to_the_disk_thread(
    cache: LeaderEpochCache, tmp_path: Path, files: CountingFiles
) -> None:
    assert cache.take_unsynced() is None
    assert cache.assign(3, 0)
    assert files.durable_writes == 0  # the loop did not wait for the disk
    assert cache.take_unsynced() == str(tmp_path / "leader-epoch-checkpoint")
    assert not cache.assign(3, 10)  # the epoch goes on, nothing is written
    assert cache.take_unsynced() is None
    again = LeaderEpochCache(str(tmp_path), files)
    assert again.entries() == [EpochEntry(3, 0)] and again.latest_epoch == 3


def test_an_epoch_that_cannot_be_written_is_not_assigned(
    cache: LeaderEpochCache, files: CountingFiles
) -> None:
    cache.assign(1, 0)
    files.fail = True
    with pytest.raises(OSError, match="Input/output"):
        cache.assign(2, 5)
    assert cache.entries() == [(1, 0)]


def test_back_to_back_elections_leave_the_last_epoch(cache: LeaderEpochCache) -> None:
    # KAFKA-7415: epochs without a record begin at the same offset; only the last one counts.
    fill(cache, (1, 0), (2, 10), (3, 10), (4, 10))
    assert cache.entries() == [(1, 0), (4, 10)]


def test_a_new_epoch_drops_what_contradicts_it(cache: LeaderEpochCache) -> None:
    # KAFKA-10706: a follower truncates at its end, but had entries that its leader does not have.
    fill(cache, (1, 0), (2, 10), (3, 20), (5, 30))
    assert cache.assign(4, 15)
    assert cache.entries() == [(1, 0), (2, 10), (4, 15)]
    assert cache.assign(4, 12)  # the same epoch, earlier
    assert cache.entries() == [(1, 0), (2, 10), (4, 12)]


@pytest.mark.parametrize(("epoch", "offset"), [(-1, 0), (0, -1)])
def test_what_is_no_epoch_is_our_bug(cache: LeaderEpochCache, epoch: int, offset: int) -> None:
    with pytest.raises(InvariantError):
        cache.assign(epoch, offset)


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (-1, UNDEFINED),
        (0, (0, 11)),  # before all: those records are gone
        (2, (2, 20)),
        (3, (2, 20)),  # unknown: the largest smaller one
        (4, (4, 30)),
        (6, (6, 99)),  # the latest ends with the log
        (7, UNDEFINED),
    ],
)
def test_where_an_epoch_ends(cache: LeaderEpochCache, epoch: int, expected: tuple[int, int]) -> None:
    fill(cache, (2, 11), (4, 20), (6, 30))
    assert cache.end_offset_for(epoch, 99) == expected


def test_an_empty_cache_knows_nothing(cache: LeaderEpochCache) -> None:
    assert cache.end_offset_for(0, 5) == UNDEFINED
    assert cache.latest_epoch is None and cache.earliest_entry is None
    assert cache.epoch_for_offset(0) is None and not cache


def test_the_epoch_of_an_offset(cache: LeaderEpochCache) -> None:
    fill(cache, (2, 11), (4, 20), (6, 30))
    assert [cache.epoch_for_offset(o) for o in (10, 11, 19, 20, 29, 30, 1000)] == [None, 2, 2, 4, 4, 6, 6]
    assert cache.earliest_entry == (2, 11)


def test_truncating_the_end_is_on_disk_and_waits_for_its_fsync(
    cache: LeaderEpochCache, tmp_path: Path, files: CountingFiles
) -> None:
    fill(cache, (2, 11), (4, 20), (6, 30))
    writes = files.durable_writes
    assert not cache.truncate_from_end(31)
    cache.take_unsynced()
    assert cache.truncate_from_end(30)
    assert cache.entries() == [(2, 11), (4, 20)]
    assert saved(tmp_path) == "0\n2\n2 11\n4 20\n" and files.durable_writes == writes
    assert cache.take_unsynced() is not None
    assert cache.take_unsynced() is None
    assert cache.truncate_from_end(0) and not cache


def test_a_loader_leaves_the_file_to_the_next_epoch(
    cache: LeaderEpochCache, tmp_path: Path, files: CountingFiles
) -> None:
    fill(cache, (2, 11), (4, 20))
    files.fail = True  # nothing may be written
    cache.begin_before(21)
    assert cache.written_epoch == cache.latest_epoch == 4, "nothing begins at or above 21"
    cache.begin_before(20)
    assert cache.entries() == [(2, 11)] and cache.latest_epoch == 2 and cache.written_epoch is None
    files.fail = False
    assert cache.assign(5, 20)
    assert saved(tmp_path) == "0\n2\n2 11\n5 20\n" and cache.written_epoch == 5


def test_a_record_of_the_epoch_before_brings_the_file_up_to_date(
    cache: LeaderEpochCache, tmp_path: Path, files: CountingFiles
) -> None:
    fill(cache, (2, 11), (4, 20))
    cache.begin_before(20)
    files.fail = True
    with pytest.raises(OSError, match="Input/output"):
        cache.assign(2, 20)
    assert cache.written_epoch is None, "it is still to be written"
    files.fail = False
    cache.take_unsynced()
    assert not cache.assign(2, 20)
    assert saved(tmp_path) == "0\n1\n2 11\n" and cache.written_epoch == 2
    assert cache.take_unsynced() is not None


def test_a_file_that_is_behind_is_cleared_and_replaced_too(cache: LeaderEpochCache, tmp_path: Path) -> None:
    fill(cache, (4, 20))
    cache.begin_before(20)
    cache.replace([])
    assert saved(tmp_path) == "0\n0\n"
    fill(cache, (4, 20))
    cache.begin_before(20)
    cache.clear()
    assert saved(tmp_path) == "0\n0\n"


def test_truncating_the_start_keeps_the_epoch_that_is_cut(cache: LeaderEpochCache, tmp_path: Path) -> None:
    fill(cache, (2, 11), (4, 20), (6, 30))
    assert not cache.truncate_from_start(5)
    assert not cache.truncate_from_start(11)
    assert cache.truncate_from_start(15)
    assert cache.entries() == [(2, 15), (4, 20), (6, 30)]
    assert cache.truncate_from_start(30)
    assert cache.entries() == [(6, 30)]
    assert cache.truncate_from_start(45)
    assert cache.entries() == [(6, 45)] and saved(tmp_path) == "0\n1\n6 45\n"


def test_clearing_is_durable(cache: LeaderEpochCache, tmp_path: Path, files: CountingFiles) -> None:
    fill(cache, (2, 11))
    cache.clear()
    cache.clear()
    assert saved(tmp_path) == "0\n0\n" and files.durable_writes == 1
    assert cache.take_unsynced() is None


def test_it_moves_with_its_directory(cache: LeaderEpochCache, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    cache.update_directory(str(elsewhere))
    cache.assign(1, 0)
    assert saved(elsewhere) == "0\n1\n1 0\n"


def test_a_damaged_file_is_refused_and_can_be_reset(tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n2\n4 20\n3 30\n")
    with pytest.raises(CorruptCheckpoint, match="line 4"):
        LeaderEpochCache(str(tmp_path), OsFiles())
    LeaderEpochCache.reset(str(tmp_path), OsFiles())
    assert not LeaderEpochCache(str(tmp_path), OsFiles())


steps = st.lists(
    st.one_of(
        st.tuples(st.just("assign"), st.integers(0, 8), st.integers(0, 40)),
        st.tuples(st.just("end"), st.integers(0, 40)),
        st.tuples(st.just("load"), st.integers(0, 40)),
        st.tuples(st.just("start"), st.integers(0, 40)),
    ),
    max_size=25,
)


@given(steps)
def test_epochs_and_offsets_always_increase_and_the_file_agrees(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, ...]]
) -> None:
    directory = str(tmp_path_factory.mktemp("e"))
    cache = LeaderEpochCache(directory, OsFiles())
    log_end_offset = 0
    for step in steps:
        match step:
            case ("assign", int(epoch), int(offset)):
                cache.assign(epoch, offset)
                assert cache.latest_epoch == epoch
            case ("end", int(offset)):
                cache.truncate_from_end(offset)
            case ("load", int(offset)):
                cache = LeaderEpochCache(directory, OsFiles())
                cache.begin_before(offset)
                log_end_offset = offset
            case ("start", int(offset)):
                cache.truncate_from_start(offset)
        entries = cache.entries()
        assert entries == sorted(entries)
        assert len({e.epoch for e in entries}) == len({e.start_offset for e in entries}) == len(entries)
        found = LeaderEpochCache(directory, OsFiles())
        if cache.written_epoch != cache.latest_epoch or not entries:
            found.begin_before(log_end_offset)  # it is behind until a record comes
        assert found.entries() == entries
