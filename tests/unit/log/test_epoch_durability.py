"""Leader epochs and power cuts: assigned without waiting for the disk, durable before they have to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.log.files import Flush
from minikafka.log.log_directories import run_all
from tests.unit.log.log_helpers import FailingFiles, append, batch, open_log, small_config

EPOCHS = "leader-epoch-checkpoint"


def names(paths: list[str]) -> list[str]:
    return [path.rpartition("/")[2] for path in paths]


def test_a_leader_that_never_writes_leaves_its_epoch_to_the_next_flush(tmp_path: Path) -> None:
    files = FailingFiles()
    log = open_log(tmp_path / "t-0", files=files)
    assert log.assign_epoch_start(4, 0)
    assert (tmp_path / "t-0" / EPOCHS).read_text() == "0\n1\n4 0\n" and files.fsynced == []
    flush = log.begin_flush()
    assert flush is not None
    assert run_all([flush]) == {}
    assert names(files.fsynced) == [EPOCHS]  # and not the segment, which is empty
    log.complete_flush(flush)
    assert not log.assign_epoch_start(4, 0)  # the same leader again
    assert log.begin_flush() is None
    log.close()


def test_the_recovery_point_passes_no_record_whose_epoch_is_not_durable(tmp_path: Path) -> None:
    files = FailingFiles()
    log = open_log(tmp_path / "t-0", files=files)
    append(log, batch(), epoch=1)
    flush = log.begin_flush()
    assert flush is not None
    append(log, batch(), epoch=2)  # assigned while the disk thread works
    flush.run()
    log.complete_flush(flush)
    assert EPOCHS in names(files.fsynced) and log.recovery_point == 1
    files.fsynced.clear()
    second = log.begin_flush()
    assert second is not None
    second.run()
    assert EPOCHS in names(files.fsynced)
    log.close()


def test_a_start_leaves_the_epoch_without_a_record_to_the_next_one(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    append(log, batch(), epoch=1)
    log.assign_epoch_start(2, 1)
    log.close()
    log = open_log(tmp_path / "t-0", clean=True)
    assert log.leader_epoch == 1
    assert (tmp_path / "t-0" / EPOCHS).read_text() == "0\n2\n1 0\n2 1\n", "a start writes no file for it"
    append(log, batch(), epoch=1)  # another leader's, which knew nothing of epoch 2
    assert (tmp_path / "t-0" / EPOCHS).read_text() == "0\n1\n1 0\n", "offset 1 is of epoch 1 now"
    flush = log.begin_flush()
    assert flush is not None and EPOCHS in names(list(flush.paths))
    again = open_log(tmp_path / "t-0")  # it was killed
    assert again.leader_epoch == 1 and again.log_end_offset == 2
    again.close()


def test_closing_makes_the_epoch_durable(tmp_path: Path) -> None:
    files = FailingFiles()
    log = open_log(tmp_path / "t-0", files=files)
    log.assign_epoch_start(0, 0)
    log.close()
    assert EPOCHS in names(files.fsynced)


@pytest.mark.parametrize("content", [b"", b"\0" * 20, b"0\n0\n", None])
@pytest.mark.parametrize("clean", [False, True])
def test_after_a_power_cut_epochs_come_back_from_the_batches(
    tmp_path: Path, content: bytes | None, clean: bool
) -> None:
    """The file system made the rename durable, but not what was in the file; or it was removed by hand."""
    directory = tmp_path / "t-0"
    log = open_log(directory, config=small_config(segment_bytes=300))
    for epoch in (0, 3, 3, 5):
        append(log, batch([b"v" * 100]), epoch=epoch)
    log.close()
    if content is None:
        (directory / EPOCHS).unlink()
    else:
        (directory / EPOCHS).write_bytes(content)
    recovered = open_log(directory, clean=clean, recovery_point=3)
    assert [recovered.epoch_for_offset(offset) for offset in range(4)] == [0, 3, 3, 5]
    recovered.close()


def test_an_epoch_whose_records_were_compacted_away_is_kept(tmp_path: Path) -> None:
    """Epochs 1 and 2 have no batch left; the file knows more than the batches do, and is not doubted."""
    directory = tmp_path / "t-0"
    log = open_log(directory, config=small_config(segment_bytes=300))
    for epoch, offset in ((0, 3), (0, 7), (3, 31), (3, 40)):
        log.append_as_follower(batch([b"v" * 100], base_offset=offset, leader_epoch=epoch))
    log.close()
    content = b"0\n4\n0 0\n1 9\n2 18\n3 25\n"
    (directory / EPOCHS).write_bytes(content)
    recovered = open_log(directory, clean=False, recovery_point=41)
    recovered.close()
    assert (directory / EPOCHS).read_bytes() == content


def test_an_epoch_that_was_lost_with_its_unflushed_records_is_no_contradiction(tmp_path: Path) -> None:
    """The old file is back, without the newest epoch: recovery reads it from the records that are there."""
    directory = tmp_path / "t-0"
    log = open_log(directory)
    append(log, batch(), epoch=0)
    before = (directory / EPOCHS).read_bytes()
    append(log, batch(), epoch=7)
    log.close()
    (directory / EPOCHS).write_bytes(before)
    recovered = open_log(directory, clean=False, recovery_point=1)
    assert recovered.leader_epoch == 7 and recovered.epoch_for_offset(0) == 0
    recovered.close()


def test_a_directory_that_failed_gets_no_more_work(tmp_path: Path) -> None:
    class Broken(FailingFiles):
        def sync_directory(self, path: str) -> None:
            self.fsynced.append(path)
            if "/bad/" in path:
                raise OSError(5, "Input/output error", path)

    files = Broken()

    def flush(path: Path) -> Flush:
        return Flush(files, paths=[], directory=str(path), has_new_files=True, up_to=0, generation=0)

    bad, good = tmp_path / "bad", tmp_path / "good"
    failed = run_all([flush(bad / "t-0"), flush(good / "t-1"), flush(bad / "t-2")])
    assert {path: error.errno for path, error in failed.items()} == {str(bad): 5}
    assert files.fsynced == [str(bad / "t-0"), str(good / "t-1")]
