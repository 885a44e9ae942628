"""Loading a log from whatever a crash, a bad disk or a careless hand has left."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minikafka.errors import KafkaError
from minikafka.log.unified_log import UnifiedLog
from minikafka.protocol.records.batch import iterate_headers
from minikafka.protocol.records.records import ControlRecordType
from tests.unit.log.log_helpers import (
    COMMITTED,
    NOW_MS,
    FailingFiles,
    append,
    append_marker,
    batch,
    idempotent,
    open_log,
    read_all,
    small_config,
)

Records = list[tuple[int, bytes | None]]


def write_log(directory: Path, count: int = 40) -> Records:
    """A log of several segments, epochs and a producer; closed cleanly."""
    log = open_log(directory, config=small_config(segment_bytes=1000))
    for number in range(count):
        append(log, batch([b"%d" % number * 8], timestamps=[NOW_MS + number]), epoch=number // 15)
        if number % 10 == 0:
            append(log, idempotent(number // 10), epoch=number // 15)
    everything = read_all(log)
    log.validate()
    log.close()
    return everything


def files_of(directory: Path, suffix: str) -> list[Path]:
    return sorted(directory.glob(f"*{suffix}"))


def check(log: UnifiedLog) -> Records:
    log.validate()
    found = read_all(log)
    for offset, _ in found[:: max(1, len(found) // 7)]:
        at = log.offset_for_timestamp(NOW_MS + offset // 2)
        assert at is None or at.offset >= 0
    return found


@pytest.mark.parametrize("clean", [True, False])
def test_a_reload_finds_everything(tmp_path: Path, clean: bool) -> None:
    directory = tmp_path / "t-0"
    everything = write_log(directory)
    before = {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix != ".snapshot"}
    log = open_log(directory, clean=clean, recovery_point=0)
    assert check(log) == everything
    assert log.leader_epoch == 2 and log.end_offset_for_epoch(1) == (1, 33)
    assert log.recovery_point == (log.log_end_offset if clean else 0)
    log.close()
    # Kafka builds the same files from the same batches, and so do recovery and append.
    after = {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix != ".snapshot"}
    assert after == before


def test_a_torn_tail_is_cut_off(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    everything = write_log(directory)
    tail = files_of(directory, ".log")[-1]
    tail.write_bytes(tail.read_bytes()[:-3])
    log = open_log(directory)
    assert check(log) == everything[:-1]
    append(log, batch([b"next"]), epoch=2)
    assert check(log) == [*everything[:-1], (len(everything) - 1, b"next")]
    log.close()


def test_nothing_survives_behind_the_first_bad_batch(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    everything = write_log(directory)
    second = files_of(directory, ".log")[1]
    data = bytearray(second.read_bytes())
    data[len(data) // 2] ^= 0x10
    second.write_bytes(data)
    log = open_log(directory)
    found = check(log)
    assert found == everything[: len(found)]
    assert len(log.segments) == 2 and log.log_end_offset == len(found) < len(everything)
    assert len(files_of(directory, ".log")) == 2
    log.close()


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_segment_that_the_power_cut_has_shortened_ends_the_log(tmp_path: Path, policy: str) -> None:
    """The next one had reached the disk. Behind a gap, this replica would lead without what is committed."""
    for left in (1, 0):  # batches of a segment
        directory = tmp_path / f"t-{left}"
        everything = write_log(directory)
        segments = files_of(directory, ".log")
        data = segments[1].read_bytes()
        segments[1].write_bytes(data[: left and next(iterate_headers(data))[1].size])
        log = open_log(directory, config=small_config(cleanup_policy=(policy,)))
        end = int(segments[1].stem) + left
        assert check(log) == everything[:end]
        assert log.log_end_offset == end
        assert files_of(directory, ".log") == segments[:2]
        log.close()


@pytest.mark.parametrize("killed_before_the_checkpoint", [False, True])
def test_a_segment_that_kafka_has_compacted_does_not_end_the_log(
    tmp_path: Path, killed_before_the_checkpoint: bool
) -> None:
    """Kafka's cleaner keeps no batch at a segment's end, unless it is the last of a round."""
    directory = tmp_path / "t-0"
    everything = write_log(directory)
    segment = files_of(directory, ".log")[1]
    data = segment.read_bytes()
    (_, first), (at, second), *_ = iterate_headers(data)
    segment.write_bytes(data[at : at + second.size] if killed_before_the_checkpoint else data[: first.size])
    checkpoint = None if killed_before_the_checkpoint else len(everything) - 1
    config = small_config(cleanup_policy=("compact",))
    log = open_log(directory, config=config, first_dirty_offset=checkpoint)
    assert log.log_end_offset == len(everything)
    log.close()


def test_what_was_flushed_is_not_read_again(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    everything = write_log(directory)
    first = files_of(directory, ".log")[0]
    data = bytearray(first.read_bytes())
    data[-1] ^= 1  # the value of the last record: only the CRC could tell
    first.write_bytes(data)
    log = open_log(directory, recovery_point=len(everything) - 2)
    assert log.log_end_offset == len(everything)
    log.close()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "empty", "torn", "zeros", "noise", "shifted"])
def test_a_damaged_index_is_rebuilt(tmp_path: Path, clean: bool, suffix: str, damage: str) -> None:
    directory = tmp_path / "t-0"
    everything = write_log(directory)
    good = {path.name: path.read_bytes() for path in files_of(directory, suffix)}
    for path in files_of(directory, suffix):
        data = path.read_bytes()
        match damage:
            case "missing":
                path.unlink()
            case "empty":
                path.write_bytes(b"")
            case "torn":
                path.write_bytes(data[:-1])
            case "zeros":
                path.write_bytes(bytes(960))
            case "noise":
                path.write_bytes(bytes(range(1, 121)) + bytes(range(100, 220)))
            case "shifted":
                path.write_bytes(bytes(byte ^ 0x11 for byte in data))
    log = open_log(directory, clean=clean, recovery_point=len(everything) if clean else 0)
    assert read_all(log) == everything
    for start in range(0, len(everything), 5):
        assert read_all(log, start) == everything[start:]
    if damage != "empty" or not clean:
        for offset in (0, 20, 39):
            log.offset_for_timestamp(NOW_MS + offset)
    if damage != "empty":  # an empty one is a possible one: it is only slow
        log.close()
        rebuilt = {path.name: path.read_bytes() for path in files_of(directory, suffix)}
        assert {name: data for name, data in rebuilt.items() if data} == {
            name: data for name, data in good.items() if rebuilt[name]
        }
    else:
        log.close()


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_the_indexes_of_a_segment_that_was_flushed_before_it_was_rolled_are_looked_at(
    tmp_path: Path, suffix: str
) -> None:
    """The power failed between the roll and their fsync: the length was there, the last entry was zeros
    (``tests.power``)."""
    directory = tmp_path / "t-0"
    everything = write_log(directory)
    segments = files_of(directory, ".log")
    rolled = segments[-2].with_suffix(suffix)
    whole = rolled.read_bytes()
    entry_bytes = 8 if suffix == ".index" else 12
    rolled.write_bytes(whole[:-entry_bytes] + bytes(entry_bytes))
    log = open_log(directory, recovery_point=int(segments[-1].stem))
    assert rolled.read_bytes() == whole
    assert check(log) == everything
    log.close()


def test_index_files_without_a_segment_are_removed(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    everything = write_log(directory)
    for suffix in (".index", ".timeindex", ".txnindex"):
        (directory / f"{999:020d}{suffix}").write_bytes(bytes(24))
    (directory / "notes.txt").write_text("not ours")
    log = open_log(directory, clean=True)
    assert check(log) == everything
    assert not list(directory.glob(f"{999:020d}*"))
    assert (directory / "notes.txt").exists()
    log.close()


def test_a_truncation_that_a_power_cut_undid_is_done_again(tmp_path: Path) -> None:
    """The segment was cut to where the next one begins, its truncated size had not reached the disk, and the
    recovery point lies behind it, so that it is not read."""
    directory = tmp_path / "t-0"
    log = open_log(directory, config=small_config(segment_bytes=600))
    for number in range(12):
        append(log, batch([b"old %d" % number]), epoch=0)
    (first, *_) = files_of(directory, ".log")
    end_offset = log.segments[1].base_offset - 1
    before = first.read_bytes()
    log.truncate_to(end_offset)
    log.roll()
    for number in range(12):
        append(log, batch([b"new %d" % number]), epoch=1)
    everything = read_all(log)
    log.close()
    first.write_bytes(before)
    for recovery_point in (end_offset, end_offset + 3, end_offset + 12):  # the first is read, or is not
        recovered = open_log(directory, recovery_point=recovery_point)
        assert check(recovered) == everything
        recovered.close()
        assert first.read_bytes() == before[: len(first.read_bytes())] != before
        first.write_bytes(before)


def test_a_flush_makes_a_truncation_durable_before_another_segment_counts(tmp_path: Path) -> None:
    files = FailingFiles()
    log = open_log(tmp_path / "t-0", files=files)
    for _ in range(3):
        append(log, batch(), epoch=0)
    flush = log.begin_flush()
    assert flush is not None
    flush.run()
    log.complete_flush(flush)
    assert log.recovery_point == 3 and log.begin_flush() is None
    files.fsynced.clear()
    log.truncate_to(2)
    truncated = log.segments[0].path
    log.roll()  # its flush goes up to the recovery point, and no further
    flush = log.begin_flush(up_to=2)
    assert flush is not None and log.recovery_point == 2
    flush.run()
    assert truncated in files.fsynced
    log.complete_flush(flush)
    assert log.begin_flush(up_to=2) is None
    log.close()


def test_a_log_that_ends_below_its_start_starts_over_there(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    write_log(directory)
    log = open_log(directory, clean=True, log_start_offset=5000)
    assert (log.log_start_offset, log.log_end_offset, log.leader_epoch) == (5000, 5000, -1)
    append(log, batch([b"next"]))
    assert check(log) == [(5000, b"next")]
    log.close()


def test_the_log_start_of_the_checkpoint_holds(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    everything = write_log(directory)
    log = open_log(directory, clean=True, log_start_offset=7)
    assert check(log) == everything[7:]
    assert log.high_watermark == 7
    log.close()


def test_an_aborted_transaction_survives_a_crash(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    log = open_log(directory)
    append(log, idempotent(0, transactional=True))
    for _ in range(20):
        append(log, batch([b"x" * 100]))
    append_marker(log, ControlRecordType.ABORT)
    append(log, idempotent(1, transactional=True))
    end = log.log_end_offset
    # Killed: nothing is closed, the indexes are as long as they were preallocated.
    recovered = open_log(directory)
    recovered.update_high_watermark(end)
    assert (recovered.log_end_offset, recovered.last_stable_offset) == (end, end - 1)
    data = recovered.read(0, max_bytes=99_999, min_one_message=True, isolation=COMMITTED)
    assert data.aborted_transactions == [(7, 0)]
    recovered.validate()
    recovered.close()
    for path in directory.glob("*.txnindex"):
        path.write_bytes(path.read_bytes()[:-1] + b"\0\0")
    repaired = open_log(directory, clean=True)
    repaired.update_high_watermark(end)
    data = repaired.read(0, max_bytes=99_999, min_one_message=True, isolation=COMMITTED)
    assert data.aborted_transactions == [(7, 0)]
    repaired.close()


def test_damaged_epochs_are_read_from_the_batches(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    write_log(directory)
    (directory / "leader-epoch-checkpoint").write_text("0\n2\n7 1\n3 9\n")
    log = open_log(directory, clean=True)
    assert [log.epoch_for_offset(offset) for offset in (0, 20, 43)] == [0, 1, 2]
    log.close()


def test_producers_are_read_as_far_as_a_flushed_segment_can_be(tmp_path: Path) -> None:
    """Its first batch lies, and those after it were removed with their producers' snapshot."""
    directory = tmp_path / "t-0"
    write_log(directory)
    bases = [int(path.stem) for path in files_of(directory, ".log")]
    for path in directory.glob(f"{bases[-1]:020d}.*"):
        path.unlink()
    lying = directory / f"{bases[-2]:020d}.log"
    lying.write_bytes(b"\x01" + lying.read_bytes()[1:])
    log = open_log(directory, clean=True)
    assert log.log_end_offset == bases[-1]
    with pytest.raises(KafkaError, match="holds no valid batch at position 0"):
        read_all(log, bases[-2])
    log.close()


# ---- interrupted swaps


def compacted(directory: Path, tmp_path: Path) -> Path:
    """What a cleaner would put in place of the first two segments: one that lacks a few records."""
    other = tmp_path / "other-0"
    log = open_log(other, config=small_config(segment_bytes=1 << 20))
    for number in (3, 9):
        log.append_as_follower(batch([b"kept-%d" % number], base_offset=number, leader_epoch=0))
    log.close()
    return other


@pytest.mark.parametrize("step", ["cleaned", "swap", "half-deleted", "renamed"])
def test_a_swap_that_a_crash_interrupted_is_undone_or_finished(tmp_path: Path, step: str) -> None:
    directory = tmp_path / "t-0"
    everything = write_log(directory)
    other = compacted(directory, tmp_path)
    bases = [int(path.stem) for path in files_of(directory, ".log")]
    suffix = ".cleaned" if step == "cleaned" else ".swap"
    for path in other.glob(f"{0:020d}.*"):
        if path.suffix != ".snapshot":
            shutil.copy(path, directory / f"{path.name}{suffix}")
    if step == "half-deleted":
        for path in directory.glob(f"{bases[0]:020d}.*"):
            if path.suffix in (".log", ".index"):
                path.rename(f"{path}.deleted")
    if step == "renamed":
        for path in directory.glob(f"{0:020d}.*.swap"):
            path.rename(directory / path.name.removesuffix(".swap"))
    log = open_log(directory, clean=True)
    if step == "cleaned":
        assert check(log) == everything
    else:
        # The swapped segment ends at 9, inside of the first one: what followed in that one is gone with it.
        assert check(log) == [(3, b"kept-3"), (9, b"kept-9"), *everything[bases[1] :]]
    assert not [path for path in directory.iterdir() if path.suffix in (".cleaned", ".swap", ".deleted")]
    log.close()


def test_a_swap_beside_a_smaller_cleaned_file_never_happened(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    everything = write_log(directory)
    bases = [int(path.stem) for path in files_of(directory, ".log")]
    shutil.copy(directory / f"{bases[1]:020d}.log", directory / f"{bases[1]:020d}.log.swap")
    (directory / f"{bases[0]:020d}.log.cleaned").write_bytes(b"half")
    log = open_log(directory, clean=True)
    assert check(log) == everything
    assert not [path for path in directory.iterdir() if path.suffix in (".cleaned", ".swap")]
    log.close()


# ---- fuzz


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Records]:
    directory = tmp_path_factory.mktemp("written") / "t-0"
    return directory, write_log(directory, 30)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), clean=st.booleans())
def test_no_damage_whatever_breaks_the_loader(
    tmp_path_factory: pytest.TempPathFactory, written: tuple[Path, Records], data: st.DataObject, clean: bool
) -> None:
    """Flipped, random, cut or missing bytes anywhere: what is loaded was written, in that order, or (flushed,
    so that it is not checked on load) is damage that a read names."""
    source, everything = written
    directory = tmp_path_factory.mktemp("damaged") / "t-0"
    shutil.copytree(source, directory)
    kinds: set[str] = set()
    names = sorted(path.name for path in directory.iterdir())
    for _ in range(data.draw(st.integers(1, 3))):
        path = directory / data.draw(st.sampled_from(names))
        if not path.exists():
            continue
        content = bytearray(path.read_bytes())
        kind = data.draw(st.sampled_from(["flip", "noise", "cut", "remove", "append", "swap"]))
        kinds.add(kind)
        match kind:
            case "flip" if content:
                content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
            case "noise":
                at = data.draw(st.integers(0, len(content)))
                noise = data.draw(st.binary(min_size=1, max_size=200))
                content[at : at + len(noise)] = noise
            case "cut":
                del content[data.draw(st.integers(0, len(content))) :]
            case "append":
                content += data.draw(st.binary(min_size=1, max_size=300))
            case "remove":
                path.unlink()
                continue
            case "swap":
                path.rename(f"{path}.swap")
                continue
        path.write_bytes(content)
    log = open_log(directory, clean=clean)
    if clean:
        for start in range(log.log_start_offset, log.log_end_offset, 3):
            try:
                read_all(log, start)
                log.offset_for_timestamp(NOW_MS + start)
            except KafkaError:
                pass
    else:
        log.validate()
        found = read_all(log)
        start = log.log_start_offset
        # Base offsets lie outside of the CRC: a gap that a flipped bit makes before a segment's last batch
        # looks as if compaction had made it. The records are right, and in order.
        values = [value for offset, value in everything if offset >= start]
        if kinds <= {"flip", "noise", "append"}:
            assert [value for _, value in found] == values[: len(found)]
        remaining = iter(values)  # a file that ends too early, but behind a batch, could have been compacted
        assert all(value in remaining for _, value in found)
        append(log, batch([b"next"]), epoch=9)
        assert read_all(log)[-1][1] == b"next"
    log.close()


def test_snapshots_that_a_power_cut_has_emptied_go(tmp_path: Path) -> None:
    """They stayed, and were only named by ``dump-log --verify`` (``tests.power``)."""
    directory = tmp_path / "t-0"
    everything = write_log(directory)
    _, emptied, *_ = files_of(directory, ".snapshot")
    emptied.write_bytes(b"")
    assert check(open_log(directory, config=small_config(segment_bytes=1000))) == everything
    assert all(path.stat().st_size for path in files_of(directory, ".snapshot"))


def test_snapshots_that_recovery_writes_are_synced_with_the_next_flush(tmp_path: Path) -> None:
    """They were not, and a second power cut left them empty (``tests.power``)."""
    directory = tmp_path / "t-0"
    write_log(directory)
    for path in files_of(directory, ".snapshot"):
        path.unlink()
    log = open_log(directory, config=small_config(segment_bytes=1000))
    written = {str(path) for path in files_of(directory, ".snapshot")}
    flush = log.begin_flush()
    assert written and flush is not None and written <= set(flush.paths)
