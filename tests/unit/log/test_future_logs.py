"""What a start makes of half-moved replicas."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from minikafka.errors import InvariantError
from minikafka.log.files import delete_directory_name, future_directory_name
from minikafka.log.log_directories import Fate, FoundLog, decide_fates
from minikafka.log.log_manager import LogManager
from minikafka.log.segment.fetch_data import FetchIsolation
from minikafka.types import TopicPartition
from tests.unit.log.test_log_manager import A0, A1, DELAY_MS, TOPIC_ID, Broker, broker, flush

__all__ = ["broker"]

ONE, TWO = "1" * 32, "2" * 32


def future(at: TopicPartition, unique: str, log_directory: str = "/two") -> FoundLog:
    directory = f"{log_directory}/{future_directory_name(at, unique)}"
    return FoundLog(directory, at, unique, None, True, 0, 0, 0)


def deleted(at: TopicPartition, unique: str) -> str:
    return f"/one/{delete_directory_name(at, unique)}"


def fates(
    *futures: FoundLog,
    current: tuple[TopicPartition, ...] = (),
    removed: tuple[str, ...] = (),
    live: bool = True,
) -> dict[str, Fate]:
    decided = decide_fates(futures, current=current, waiting_for_removal=removed, all_are_live=live)
    return {found.directory: fate for found, fate in decided}


def test_the_table_of_fates() -> None:
    copy = future(A0, ONE)
    assert fates(copy, current=(A0,)) == {copy.directory: Fate.CONTINUE}
    assert fates(copy, removed=(deleted(A0, ONE),)) == {copy.directory: Fate.BECOME_CURRENT}
    assert fates(copy, live=False) == {copy.directory: Fate.LEAVE}
    assert fates(copy) == {copy.directory: Fate.SET_ASIDE}
    assert fates() == {}


def test_digits_of_another_move_prove_nothing() -> None:
    copy = future(A0, ONE)
    for path in (deleted(A0, TWO), deleted(A1, ONE)):
        assert fates(copy, removed=(path,)) == {copy.directory: Fate.SET_ASIDE}
    assert fates(copy, current=(A0,), removed=(deleted(A0, ONE),)) == {copy.directory: Fate.CONTINUE}


def test_of_two_copies_one_continues() -> None:
    """The move got another target, and power went before the first copy was out of the way."""
    first, second = future(A0, ONE, "/two"), future(A0, TWO, "/three")
    assert fates(first, second, current=(A0,)) == {
        first.directory: Fate.CONTINUE,
        second.directory: Fate.REMOVE,
    }
    assert fates(first, second, removed=(deleted(A0, TWO),)) == {
        second.directory: Fate.BECOME_CURRENT,
        first.directory: Fate.CONTINUE,
    }, "it was asked to move on before its directory had its name"


# On the disk


def begin(broker: Broker) -> tuple[LogManager, Path]:
    """A replica in "one" with 3 records, on its way to "two". Returns the future directory."""
    manager = broker.start("one", "two")
    manager.prefer_directory(A0, str(broker.root / "one"))
    broker.append(manager.get_or_create(A0, topic_id=TOPIC_ID, is_new=True), records=3)
    manager.start_move(A0, str(broker.root / "two"))
    return manager, Path(manager.future_logs[A0].directory)


def copy_all(broker: Broker, manager: LogManager) -> None:
    data = manager.logs[A0].read(0, max_bytes=10_000, min_one_message=True, isolation=FetchIsolation.LOG_END)
    manager.future_logs[A0].append_as_follower(data.records)


def test_a_copy_is_found_again_with_its_checkpoints(broker: Broker) -> None:
    manager, _ = begin(broker)
    copy_all(broker, manager)
    manager.shutdown()
    again = broker.start("one", "two")
    copy = again.future_logs[A0]
    assert (copy.log_end_offset, copy.recovery_point, copy.topic_id) == (3, 3, TOPIC_ID)
    assert again.directory_of(again.logs[A0]) == str(broker.root / "one") and copy.is_future
    assert [log.topic_partition for log in again.logs_in(str(broker.root / "two"))] == [A0]


def test_a_copy_of_a_replica_on_a_disk_that_is_away_is_left_alone(broker: Broker) -> None:
    manager, directory = begin(broker)
    manager.shutdown()
    broker.disk.failing.add(str(broker.root / "one"))
    again = broker.start("one", "two")
    assert not again.logs and not again.future_logs and directory.exists()
    again.shutdown()
    broker.disk.failing.clear()
    assert A0 in broker.start("one", "two").future_logs


def test_a_copy_that_is_all_that_is_left_is_kept_and_not_used(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    manager, directory = begin(broker)
    copy_all(broker, manager)
    manager.shutdown()
    (broker.root / "one").rename(broker.root / "a-disk-that-was-replaced")
    again = broker.start("one", "two")
    assert not again.logs and not again.future_logs and not directory.exists()
    (stray,) = (broker.root / "two").glob("a-0.*-stray")
    assert (stray / f"{0:020d}.log").stat().st_size > 0
    assert f"{directory} is half of a moved replica whose other directory is gone" in caplog.text


def test_a_copy_of_a_replica_that_is_not_here_any_more_is_a_stray_too(broker: Broker) -> None:
    begin(broker)[0].shutdown()
    again = broker.start("one", "two", is_stray=lambda at, topic_id: True)
    assert not again.logs and not again.future_logs
    assert len(list(broker.root.glob("*/a-0.*-stray"))) == 2


def test_a_replacement_takes_place_at_once_and_its_name_comes_later(broker: Broker) -> None:
    manager, directory = begin(broker)
    with pytest.raises(InvariantError, match="cannot take the place"):
        manager.begin_replacement(A0)
    copy_all(broker, manager)
    flush(manager.future_logs[A0])
    log = manager.future_logs[A0]
    replacement = manager.begin_replacement(A0)
    assert manager.logs[A0] is log and not manager.future_logs and log.directory == str(directory)
    assert replacement.source == str(broker.root / "one")
    broker.append(log, records=2)
    pending = log.begin_flush()
    work = manager.rename_replacement(replacement)
    assert work is not None and log.directory == str(broker.root / "two" / "a-0")
    work.run()
    assert pending is not None
    pending.run()
    log.complete_flush(pending)
    assert pending.missing_paths and log.recovery_point == 3, "this flush did not find its files"
    flush(log)
    assert log.recovery_point == 5
    broker.append(log)
    log.roll()
    broker.append(log)
    log.validate()
    broker.clock.advance(DELAY_MS)
    assert manager.take_removals() == [], "not before the new name is durable"
    manager.end_replacement(replacement)
    broker.clock.advance(DELAY_MS)
    (removal,) = manager.take_removals()
    assert removal.directory == replacement.removed and manager.replacements == ()


def test_a_copy_whose_topic_id_a_power_cut_took_gets_it_with_its_place(broker: Broker) -> None:
    """Its ``partition.metadata`` was empty, and stayed so in the partition's directory (``tests.power``)."""
    manager, directory = begin(broker)
    copy_all(broker, manager)
    manager.shutdown()
    (directory / "partition.metadata").write_bytes(b"")
    again = broker.start("one", "two")
    assert again.future_logs[A0].topic_id is None
    sync = again.rename_replacement(again.begin_replacement(A0))
    assert sync is not None and again.logs[A0].topic_id == TOPIC_ID
    sync.run()
    again.shutdown()
    assert broker.start("one", "two").logs[A0].topic_id == TOPIC_ID


@pytest.mark.parametrize("left", ["nothing", "zeros"])
def test_what_a_power_cut_leaves_of_a_copy_is_made_again(broker: Broker, left: str) -> None:
    """Its first segment was empty and the second was there: the hole took the place of sound records. Or
    there were zeros where the records had been, and the broker did not start (``tests.power``)."""
    manager, directory = begin(broker)
    copy_all(broker, manager)
    manager.future_logs[A0].roll()
    manager.shutdown()
    for log_directory in ("one", "two"):  # the recovery point may be of an earlier replica
        (broker.root / log_directory / ".kafka_cleanshutdown").unlink()
    file = directory / f"{0:020d}.log"
    file.write_bytes(b"" if left == "nothing" else bytes(file.stat().st_size))
    again = broker.start("one", "two")
    copy = again.future_logs[A0]
    assert (copy.log_start_offset, copy.log_end_offset) == (0, 0)
    assert copy.directory == str(directory)
    copy_all(broker, again)
    assert [segment.base_offset for segment in copy.segments] == [0] and copy.log_end_offset == 3


def test_a_copy_that_cannot_be_made_again_ends_its_move_and_no_start(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, _ = begin(broker)
    manager.shutdown()
    for log_directory in ("one", "two"):
        (broker.root / log_directory / ".kafka_cleanshutdown").unlink()

    make_directory = type(broker.disk).make_directory

    def refuse(disk: Any, path: str) -> None:
        if path.endswith("-future"):
            raise OSError(errno.EMFILE, "too many open files", path)
        make_directory(disk, path)

    monkeypatch.setattr(type(broker.disk), "make_directory", refuse)
    again = broker.start("one", "two")
    assert not again.future_logs and again.logs[A0].log_end_offset == 3


def test_deleted_segments_do_not_stay_behind_when_their_directory_gets_its_name(broker: Broker) -> None:
    manager, _ = begin(broker)
    copy_all(broker, manager)
    log = manager.future_logs[A0]
    replacement = manager.begin_replacement(A0)
    log.roll()
    log.increment_log_start_offset(3)
    log.delete_old_segments()  # the taker of these knows their old names
    manager.rename_replacement(replacement)
    (deleted,) = manager.cleanup([log]).deleted
    assert all(Path(path).parent.name == "a-0" for path in deleted.paths)
    deleted.remove(broker.disk)
    assert not list(Path(log.directory).glob("*.deleted"))


def test_a_stop_between_the_renames_is_settled_by_the_next_start(broker: Broker) -> None:
    manager, _ = begin(broker)
    copy_all(broker, manager)
    manager.begin_replacement(A0)
    manager.shutdown()
    again = broker.start("one", "two")
    assert again.logs[A0].directory == str(broker.root / "two" / "a-0")
    assert again.logs[A0].log_end_offset == 3 and not again.future_logs
    broker.clock.advance(DELAY_MS)
    assert [each.log_directory for each in again.take_removals()] == [str(broker.root / "one")]


@pytest.mark.parametrize("was_replaced", [False, True])
def test_a_copy_for_which_no_descriptor_is_left_waits_for_the_next_start(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, was_replaced: bool
) -> None:
    manager, _ = begin(broker)
    copy_all(broker, manager)
    if was_replaced:
        manager.begin_replacement(A0)
    manager.shutdown()
    opened = type(broker.disk).open

    def refuse(disk: object, path: str, **kwargs: object) -> object:
        if path.startswith(str(broker.root / "two" / "a-0")):
            raise OSError(errno.EMFILE, "no descriptor", path)
        return opened(disk, path, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(type(broker.disk), "open", refuse)
    again = broker.start("one", "two")
    assert not again.offline_directories and not again.future_logs
    assert again.is_offline(A0) is was_replaced and (A0 in again.logs) is not was_replaced
    again.shutdown()
    monkeypatch.undo()
    healed = broker.start("one", "two")
    copy = healed.logs[A0] if was_replaced else healed.future_logs[A0]
    assert copy.log_end_offset == 3
