"""A crash at any disk operation of a compaction, the swap included, leaves all old or all new."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from minikafka.clock import ManualClock
from minikafka.files import Files
from minikafka.log.cleanable_log import CleanableLog
from minikafka.log.unified_log import UnifiedLog
from minikafka.protocol.records.records import ControlRecordType
from minikafka.testing.simulation.disk import SimulatedDisk
from minikafka.testing.simulation.loop import ProcessKilled
from tests.unit.log.cleaner_helpers import (
    batches,
    compacted_config,
    contents,
    job_of,
    keyed,
    work_off,
    write,
)
from tests.unit.log.log_helpers import COMMITTED, NOW_MS, append, append_marker, open_log, read_all

DIRECTORY = "/data/t-0"
CONFIG = compacted_config(segment_bytes=500, segment_index_bytes=600)
OPERATIONS_MAX = 400


def fill(files: Files) -> UnifiedLog:
    """Nine closed segments, several of which become one: values, tombstones, aborted records."""
    log = open_log(DIRECTORY, config=CONFIG, files=files)
    for number in range(9):
        write(log, (b"k%d" % (number % 4), b"%d" % number), (b"gone", b"x" * number))
        if number == 4:
            write(log, (b"k1", None))
            txn = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
            append(log, keyed((b"k2", b"aborted"), **txn))
            append_marker(log, ControlRecordType.ABORT)
        log.roll()
    write(log, (b"k9", b"active"))
    return log


def compact_once(log: UnifiedLog, files: Files) -> None:
    """As the broker does it: the directory is made durable before the old files go."""
    cleanable = CleanableLog(log, now_ms=NOW_MS)
    deleted = []
    for new in work_off(job_of(cleanable), files).segments:
        deleted += cleanable.swap_in(new)
    files.sync_directory(DIRECTORY)
    for each in deleted:
        each.remove(files)
    files.sync_directory(DIRECTORY)


def groups(log: UnifiedLog, bases: list[int]) -> list[list[tuple[int, bytes | None, bytes | None]]]:
    """The log's records, cut where the compacted log's segments begin."""
    found = contents(log)
    ends = [*bases[1:], 1 << 60]
    return [[r for r in found if start <= r[0] < end] for start, end in zip(bases, ends, strict=True)]


def crash(disk: SimulatedDisk, after: int, die: Callable[[], None]) -> bool:
    """Compact, and die at the operation number ``after``. Returns whether it came to that."""
    left = after

    def fault(operation: str, path: str) -> int | None:
        nonlocal left
        if operation in ("open", "read", "list"):
            return None
        left -= 1
        if left < 0:
            disk.fault = None
            die()
        return None

    files = disk.mount()
    log = fill(files)
    log.close()
    disk.sync_all()
    log = open_log(DIRECTORY, config=CONFIG, files=files, clean=True)
    log.update_high_watermark(log.log_end_offset)
    disk.sync_all()
    disk.fault = fault
    try:
        compact_once(log, files)
    except ProcessKilled:
        return True
    disk.fault = None
    return False


def new_disk(seed: int) -> SimulatedDisk:
    disk = SimulatedDisk(rng=random.Random(seed), now_ms=lambda: NOW_MS)
    disk.mount().make_directory(DIRECTORY)
    return disk


@pytest.mark.parametrize("kind", ["process", "power"])
def test_a_crash_leaves_all_old_or_all_new(kind: str) -> None:
    disk = new_disk(0)
    old_log = fill(disk.mount())
    old, old_visible = contents(old_log), read_all(old_log, isolation=COMMITTED)
    disk = new_disk(0)
    assert not crash(disk, OPERATIONS_MAX, lambda: None)
    new_log = open_log(DIRECTORY, config=CONFIG, files=disk.mount(), clean=False)
    bases = new_log.segments.base_offsets
    new = groups(new_log, bases)
    newest = {key: value for _, key, value in contents(new_log)}
    assert 2 < len(bases) < 10 and sum(map(len, new)) < len(old)
    old_groups = [
        [r for r in old if s <= r[0] < e] for s, e in zip(bases, [*bases[1:], 1 << 60], strict=True)
    ]
    outcomes = set()
    for after in range(OPERATIONS_MAX):
        disk = new_disk(after)
        die = disk.process_killed if kind == "process" else disk.power_lost
        if not crash(disk, after, die):
            break
        log = open_log(DIRECTORY, config=CONFIG, files=disk.mount(), clean=False, clock=ManualClock(NOW_MS))
        log.update_high_watermark(log.log_end_offset)
        log.validate()
        states = [
            "new" if found == of_new else "old" if found == of_old else f"mixed: {found}"
            for found, of_new, of_old in zip(groups(log, bases), new, old_groups, strict=True)
        ]
        assert not any(state.startswith("mixed") for state in states), (after, states)
        swapped = states.index("old") if "old" in states else len(states)
        same = [of_new == of_old for of_new, of_old in zip(new, old_groups, strict=True)]
        assert all(s == "old" or e for s, e in zip(states[swapped:], same[swapped:], strict=True)), states
        outcomes.add(swapped)
        assert {key: value for _, key, value in contents(log) if value != b"aborted"} == newest
        assert dict(read_all(log, isolation=COMMITTED)).items() <= dict(old_visible).items()
        log.validate()
        compact_once(log, log._files)
        assert groups(log, bases) == new and batches(log)
    else:
        pytest.fail("the compaction did not come to its end")
    assert len(outcomes) == len(bases), outcomes  # every number of new segments was seen
