"""``minikafka compact`` on directories: the same files as the broker's own cleaner, and what it refuses."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from minikafka.files import OsFiles
from minikafka.log.checkpoint import lock_directory, read_offsets
from minikafka.protocol.records.batch import CompressionType
from minikafka.protocol.records.records import ControlRecordType
from minikafka.spark.runtime.session import explain
from tests.spark.compaction_logs import CONFIG, TOPIC, LogDirectory, Writer
from tests.unit.log.cleaner_helpers import compacted_config
from tests.unit.log.log_helpers import NOW_MS

COMMIT, ABORT = ControlRecordType.COMMIT, ControlRecordType.ABORT


def fill(writer: Writer) -> None:
    """A little of everything that a cleaner knows rules for."""
    log = writer.log
    for number in range(12):
        writer.write(
            (b"k%d" % (number % 3), b"%d" % number),
            (b"gone" if number < 10 else b"k2", b"x" * number),
            compression=list(CompressionType)[number % 5],
        )
        writer.write((b"idempotent", b"%d" % number), producer_id=1)
        writer.write((b"t%d" % (number % 2), b"in %d" % number), producer_id=2, transactional=True)
        if number % 4 == 2:
            log.roll()
        writer.end(2, ABORT if number % 3 else COMMIT)
        if number == 10:
            writer.write((b"gone", None), (b"k1", None))
    writer.write((b"only once", b"y"))
    writer.write((b"t0", b"across"), producer_id=3, transactional=True)
    log.roll()
    writer.write((b"k0", b"young"))
    writer.end(3, ABORT)


def filled(path: Path, *, partitions: int = 1) -> LogDirectory:
    directory = LogDirectory(path)
    for number in range(partitions):
        log = directory.open(number)
        fill(Writer(log))
        directory.close(log)
    return directory


def snapshot(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()}


@contextmanager
def modes_seen(directory: LogDirectory, modes: dict[str, int]) -> Iterator[None]:
    """Adds the modes of all that is in the partitions at the end of a phase."""
    yield
    for partition in directory.path.glob(f"{TOPIC}-*"):
        modes |= {str(path): stat.S_IMODE(path.stat().st_mode) for path in (partition, *partition.rglob("*"))}


def test_the_job_leaves_the_files_that_the_brokers_cleaner_leaves(
    spark: SparkSession, tmp_path: Path
) -> None:
    ours = filled(tmp_path / "job", partitions=2)
    theirs = ours.copy(tmp_path / "broker")
    batches = [ours.closed_batches(number) for number in (0, 1)]
    modes: dict[str, int] = {}
    done = ours.compact(spark, phase=lambda name: modes_seen(ours, modes))
    assert any("attempt-" in name for name in modes) and any(name.endswith(".cleaned") for name in modes)
    assert {*modes.values()} == {0o600, 0o700}, "no phase leaves what others may read"
    assert [each.batches for each in done] == batches
    assert [(each.topic, each.partition, each.skipped) for each in done] == [(TOPIC, 0, ""), (TOPIC, 1, "")]
    for number, each in enumerate(done):
        theirs.compact_in_broker(number)
        assert dict(ours.segment_files(number)) == dict(theirs.segment_files(number))
        assert ours.contents(number) == theirs.contents(number)
        assert each.bytes_after < each.bytes_before and each.records_dropped > 0
        assert not (ours.partition(number) / "compaction").exists()
    checkpoint = read_offsets(OsFiles(), str(ours.path / "cleaner-offset-checkpoint"))
    assert {at.partition: offset for at, offset in checkpoint.items()} == {
        each.partition: each.end_offset for each in done
    }


def test_a_second_round_drops_what_the_delete_horizon_has_passed(spark: SparkSession, tmp_path: Path) -> None:
    ours = filled(tmp_path / "job")
    theirs = ours.copy(tmp_path / "broker")
    for wait_ms in (0, CONFIG.delete_retention_ms + 1, CONFIG.delete_retention_ms + 1):
        for each in (ours, theirs):
            each.clock.advance(wait_ms)
        ours.compact(spark)
        theirs.compact_in_broker(0)
        assert ours.contents(0) == theirs.contents(0)
    kept = [record.key for _, *records in ours.contents(0) for record in records]
    assert b"gone" not in kept and b"only once" in kept


def test_a_dry_run_says_what_the_run_then_does_and_writes_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    directory = filled(tmp_path / "job")
    before = snapshot(directory.path)
    foreseen = directory.compact(spark, dry_run=True)
    assert snapshot(directory.path) == before
    assert directory.compact(spark) == foreseen


@pytest.mark.parametrize("codec", [CompressionType.ZSTD, CompressionType.NONE])
def test_another_codec(spark: SparkSession, tmp_path: Path, codec: CompressionType) -> None:
    ours = filled(tmp_path / "job")
    theirs = ours.copy(tmp_path / "same")
    ours.compact(spark, codec=codec)
    theirs.compact(spark)
    end = read_offsets(OsFiles(), str(ours.path / "cleaner-offset-checkpoint"))
    (end_offset,) = end.values()
    found, expected = ours.contents(0), theirs.contents(0)
    assert [records for _, *records in found if records] == [records for _, *records in expected if records]
    for header, *records in found:
        if records and not header.is_control and header.base_offset < end_offset:
            assert header.compression == codec


batches = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b", b"c", b"a longer key, of a digest"]), st.none() | st.binary(max_size=9)
    ),
    min_size=1,
    max_size=4,
)
steps = st.one_of(
    st.tuples(
        st.just("write"), batches, st.sampled_from(list(CompressionType)), st.sampled_from([-1, 1, 2, 3])
    ),
    st.tuples(st.just("write"), batches, st.sampled_from(list(CompressionType)), st.sampled_from([-1, 2, 3])),
    st.tuples(st.just("end"), st.sampled_from([2, 3]), st.sampled_from([COMMIT, ABORT])),
    st.tuples(st.just("roll")),
)
TRANSACTIONAL = (2, 3)


def build(
    directory: LogDirectory, number: int, commands: list[tuple]
) -> dict[bytes, tuple[int, bytes | None]]:  # type: ignore[type-arg]
    """Write a log; returns the newest committed record of each key below the first open transaction."""
    log = directory.open(number)
    writer = Writer(log)
    written: list[tuple[int, bytes, bytes | None, int]] = []
    current: dict[int, int] = {}
    aborted: set[int] = set()
    transactions = 0
    for command in commands:
        match command:
            case ("write", records, codec, producer_id):
                if producer_id in TRANSACTIONAL and producer_id not in current:
                    transactions += 1
                    current[producer_id] = transactions
                base = writer.write(
                    *records,
                    producer_id=producer_id,
                    transactional=producer_id in TRANSACTIONAL,
                    compression=codec,
                )
                for index, (key, value) in enumerate(records):
                    written.append((base + index, key, value, current.get(producer_id, 0)))
            case ("end", producer_id, kind):
                if producer_id in current:
                    transaction = current.pop(producer_id)
                    writer.end(producer_id, kind)
                    if kind is ABORT:
                        aborted.add(transaction)
            case ("roll",):
                if log.segments.active.size:
                    log.roll()
    if log.segments.active.size:
        log.roll()
    bound = log.last_stable_offset
    directory.close(log)
    return {
        key: (offset, value)
        for offset, key, value, transaction in written
        if offset < bound and transaction not in aborted
    }


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(logs=st.lists(st.lists(steps, max_size=25), min_size=6, max_size=12))
def test_any_logs_against_a_model_and_the_brokers_cleaner(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    logs: list[list[tuple]],  # type: ignore[type-arg]
) -> None:
    """Many logs at a time: a job of Spark costs seconds, whatever it does."""
    root = tmp_path_factory.mktemp("logs")
    ours = LogDirectory(root / "job")
    newest = [build(ours, number, commands) for number, commands in enumerate(logs)]
    theirs = ours.copy(root / "broker")
    done = ours.compact(spark)
    for number, (each, model) in enumerate(zip(done, newest, strict=True)):
        theirs.compact_in_broker(number)
        assert dict(ours.segment_files(number)) == dict(theirs.segment_files(number))
        found = {
            record.offset: (record.key, record.value)
            for header, *records in ours.contents(number)
            for record in records
            if not header.is_control
        }
        for key, (offset, value) in model.items():
            assert found[offset] == (key, value)
        if not each.skipped:
            below = {offset for offset in found if offset < each.end_offset}
            newest_below = {offset for offset, _ in model.values() if offset < each.end_offset}
            assert newest_below <= below


def test_nothing_young_is_touched(spark: SparkSession, tmp_path: Path) -> None:
    directory = LogDirectory(tmp_path)
    log = directory.open(0)
    writer = Writer(log)
    for age_ms in (5000, 4000, 100, 50):
        writer.write((b"k", b"v"), timestamp=NOW_MS - age_ms)
        log.roll()
    directory.close(log)
    config = compacted_config(min_compaction_lag_ms=1000)
    (done,) = directory.compact(spark, config=lambda topic: config)
    assert (done.end_offset, done.records_kept, done.records_dropped) == (2, 1, 1)
    (again,) = directory.compact(spark, config=lambda topic: compacted_config(min_compaction_lag_ms=10_000))
    assert again.end_offset == 2  # what was compacted before is old enough


class TestRefusals:
    """Whatever is wrong, the directory stays as it was."""

    @pytest.fixture
    def directory(self, tmp_path: Path) -> LogDirectory:
        return filled(tmp_path / "logs")

    def refused(self, spark: SparkSession, directory: LogDirectory, **changes: object) -> str:
        before = snapshot(directory.path)
        with pytest.raises(Exception) as caught:
            directory.compact(spark, **changes)
        after = snapshot(directory.path)
        after.pop(".lock", None)
        before.pop(".lock", None)
        assert after == before
        return explain(caught.value)

    def test_no_log_directory(self, spark: SparkSession, tmp_path: Path) -> None:
        (tmp_path / "etc").mkdir()
        (tmp_path / "etc" / "passwd").write_text("x")
        message = self.refused(spark, LogDirectory(tmp_path / "etc"))
        assert "is not a log directory" in message
        assert sorted(path.name for path in (tmp_path / "etc").iterdir()) == ["passwd"]

    def test_an_unknown_topic(self, spark: SparkSession, directory: LogDirectory) -> None:
        message = self.refused(spark, directory, wanted=(("nope", None),))
        assert "has no topic nope; it has t" in message
        assert "has no partition t-7" in self.refused(spark, directory, wanted=((TOPIC, 7),))

    def test_a_directory_in_the_place_of_an_index(self, spark: SparkSession, directory: LogDirectory) -> None:
        """It could not be removed after the swap."""
        (index, *_) = sorted(directory.partition(0).glob("*.index"))
        index.unlink()
        index.mkdir()
        message = self.refused(spark, directory)
        assert message == f"{index} is a directory where a file should be: move it away"

    def test_a_directory_that_a_broker_holds(self, spark: SparkSession, directory: LogDirectory) -> None:
        lock = lock_directory(OsFiles(), str(directory.path))
        try:
            message = self.refused(spark, directory)
            assert f"{directory.path} is held by a broker, to be named with --bootstrap-server" in message
            assert directory.compact(spark, dry_run=True)[0].records_dropped
        finally:
            lock.release()

    def test_damage(self, spark: SparkSession, directory: LogDirectory) -> None:
        segment = sorted(directory.partition(0).glob("*.log"))[0]
        data = bytearray(segment.read_bytes())
        data[-3] ^= 1
        segment.write_bytes(data)
        message = self.refused(spark, directory)
        assert segment.name in message and "position" in message

    def test_a_truncated_segment(self, spark: SparkSession, directory: LogDirectory) -> None:
        segment = sorted(directory.partition(0).glob("*.log"))[0]
        segment.write_bytes(segment.read_bytes()[:-7])
        message = self.refused(spark, directory)
        assert segment.name in message and "position" in message

    def test_an_unknown_high_watermark(self, spark: SparkSession, directory: LogDirectory) -> None:
        (directory.path / "replication-offset-checkpoint").unlink()
        before = snapshot(directory.path)
        (done,) = directory.compact(spark)
        assert "its high watermark is not known" in done.skipped
        assert {name for name in snapshot(directory.path) if name != ".lock"} == set(before) - {".lock"}
