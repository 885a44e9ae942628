"""A prepared compaction is put into a directory without a broker; its process is killed at every step."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from minikafka.files import OsFiles
from minikafka.log.checkpoint import EpochEntry, read_offsets
from minikafka.log.staged_compaction import (
    CompactionManifest,
    CompactionResult,
    StaleManifest,
    finish_interrupted,
    is_interrupted,
    read_manifest,
    swap_offline,
    write_manifest,
)
from minikafka.log.unified_log import UnifiedLog
from minikafka.protocol.records.records import ControlRecordType
from minikafka.types import TopicPartition
from tests.unit.log.cleaner_helpers import (
    batches,
    compacted_config,
    contents,
    keyed,
    prepare,
    write,
)
from tests.unit.log.log_helpers import append, append_marker, open_log

CONFIG = compacted_config(segment_bytes=500, segment_index_bytes=600)
STEPS_MAX = 200


def fill(log: UnifiedLog) -> None:
    """Nine closed segments that become several: values, a tombstone, aborted records, and one that is kept
    although its transaction was aborted later."""
    for number in range(9):
        write(log, (b"k%d" % (number % 4), b"%d" % number), (b"gone", b"x" * number))
        if number == 4:
            write(log, (b"k1", None))
            txn = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
            append(log, keyed((b"k2", b"aborted"), **txn))
            append_marker(log, ControlRecordType.ABORT)
        log.roll()
    write(log, (b"k9", b"active"))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A log that was stopped cleanly, with a prepared compaction."""
    path = tmp_path / "data" / "t-0"
    path.mkdir(parents=True)
    log = open_log(path, config=CONFIG)
    fill(log)
    log.close()
    log = open_log(path, config=CONFIG, clean=True)
    log.update_high_watermark(log.log_end_offset)
    prepare(log)
    log.close()
    return path


class DyingFiles(OsFiles):
    """Kills the process before the change number ``left``; reading is no step."""

    def __init__(self, left: int) -> None:
        self._left = left

    def _step(self) -> None:
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1

    def rename(self, source: str, target: str) -> None:
        self._step()
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self._step()
        super().remove(path)

    def remove_tree(self, path: str) -> None:
        self._step()
        super().remove_tree(path)

    def sync_directory(self, path: str) -> None:
        self._step()
        super().sync_directory(path)

    def write_atomically(self, path: str, data: bytes) -> None:
        self._step()
        super().write_atomically(path, data)


def killed(step: Callable[[], None]) -> bool:
    """Do it in a process of its own; whether that one was killed."""
    child = os.fork()
    if child == 0:
        try:
            step()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def records_of(directory: Path, *, clean: bool) -> list[Any]:
    log = open_log(directory, config=CONFIG, clean=clean)
    log.validate()
    try:
        return [log.segments.base_offsets, batches(log)]
    finally:
        log.close()


def interruptions(directory: Path, tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A copy of the log for each step of the swap, whose process was killed before it."""
    for step in range(STEPS_MAX):
        copy = tmp_path / f"killed-{step}" / "t-0"
        shutil.copytree(directory, copy)
        manifest = read_manifest(OsFiles(), str(copy))
        if not killed(lambda s=step, c=copy, m=manifest: swap_offline(DyingFiles(s), str(c), m)):  # type: ignore[misc]
            return
        yield step, copy
        shutil.rmtree(copy)
    pytest.fail("the swap did not come to its end")


@pytest.mark.parametrize("next_one", ["broker", "job"])
def test_a_kill_at_any_step_leaves_all_old_or_all_new(
    directory: Path, tmp_path: Path, next_one: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: None)  # a killed process loses nothing that was written
    reference = tmp_path / "reference" / "t-0"
    shutil.copytree(directory, reference)
    old = records_of(reference, clean=True)
    swap_offline(OsFiles(), str(reference), read_manifest(OsFiles(), str(reference)))
    new = records_of(reference, clean=True)
    assert old != new and len(new[0]) > 2
    outcomes = []
    for step, copy in interruptions(directory, tmp_path):
        if next_one == "job":
            finish_interrupted(OsFiles(), str(copy), config=CONFIG)
            assert not is_interrupted(OsFiles(), str(copy))
        found = records_of(copy, clean=next_one != "broker")
        assert found in (old, new), step
        outcomes.append(found == new)
    assert outcomes == sorted(outcomes) and {True, False} == set(outcomes)  # first all old, then all new


def test_the_swap_replaces_the_files_and_tells_the_checkpoint(directory: Path) -> None:
    manifest = read_manifest(OsFiles(), str(directory))
    swap_offline(OsFiles(), str(directory), manifest)
    names = sorted(path.name for path in directory.iterdir())
    assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
    assert "compaction" not in names
    checkpoint = read_offsets(OsFiles(), str(directory.parent / "cleaner-offset-checkpoint"))
    assert checkpoint == {TopicPartition("t", 0): manifest.result.end_offset}
    log = open_log(directory, config=CONFIG, clean=True)
    assert [(key, value) for _, key, value in contents(log)][-1] == (b"k9", b"active")
    log.close()


def change(manifest: CompactionManifest, **changes: Any) -> CompactionManifest:
    return msgspec.structs.replace(manifest, **changes)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda d: (d / f"{0:020d}.log").unlink(), "is gone since it was read"),
        (lambda d: os.utime(d / f"{0:020d}.log", (1, 1)), "has changed since it was read"),
        (lambda d: (d / "compaction" / f"{0:020d}.index.cleaned").unlink(), "is missing"),
        (lambda d: (d / "compaction" / f"{0:020d}.log.cleaned").write_bytes(b""), "has 0 bytes"),
        (lambda d: (d / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 3\n"), "other leader epochs"),
        (
            lambda d: (d / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"),
            "of another topic",
        ),
    ],
)
def test_a_log_that_has_changed_is_left_alone(
    directory: Path, spoil: Callable[[Path], None], message: str
) -> None:
    manifest = read_manifest(OsFiles(), str(directory))
    spoil(directory)
    before = {path.name for path in directory.rglob("*")}
    with pytest.raises(StaleManifest, match=message):
        swap_offline(OsFiles(), str(directory), manifest)
    assert {path.name for path in directory.rglob("*")} == before


def test_a_manifest_that_is_none(directory: Path) -> None:
    files, path = OsFiles(), directory / "compaction" / "manifest.json"
    manifest = read_manifest(files, str(directory))
    nothing = CompactionResult((), 0, 0, 0, 0)
    for bad in (
        change(manifest, result=nothing),
        change(manifest, sources=manifest.sources[:-1]),
        change(manifest, result=msgspec.structs.replace(manifest.result, end_offset=0)),
    ):
        write_manifest(files, str(directory), bad)
        with pytest.raises(StaleManifest, match="do not replace exactly"):
            read_manifest(files, str(directory))
    write_manifest(files, str(directory), change(manifest, version=2))
    with pytest.raises(StaleManifest, match="has version 2, expected 1"):
        read_manifest(files, str(directory))
    path.write_text('{"version": 1')
    with pytest.raises(StaleManifest, match="cannot be read"):
        read_manifest(files, str(directory))
    path.unlink()
    with pytest.raises(StaleManifest, match="nothing is prepared"):
        read_manifest(files, str(directory))


def test_a_manifest_comes_back_as_it_was_written(directory: Path) -> None:
    manifest = read_manifest(OsFiles(), str(directory))
    epochs = change(manifest, leader_epochs=(EpochEntry(0, 0), EpochEntry(3, 7)), topic_id="x")
    write_manifest(OsFiles(), str(directory), epochs)
    assert read_manifest(OsFiles(), str(directory)) == epochs
