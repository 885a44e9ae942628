"""The files of a flight recorder: what a restart, a crash, a full file and another version make of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.clock import ManualClock
from minikafka.files import OsFiles
from minikafka.flight_recorder import (
    CURRENT_NAME,
    OLD_NAME,
    BrokerStopped,
    EventFile,
    EventRing,
    Line,
    UnreadableEventFile,
    read_event_file,
)

BYTES_MAX = 4096


def event_file(directory: Path, *, bytes_max: int = BYTES_MAX) -> EventFile:
    return EventFile(str(directory), files=OsFiles(), broker=3, bytes_max=bytes_max)


def lines(count: int, *, first_ms: int = 1000) -> list[Line]:
    ring = EventRing(ManualClock(start_ms=first_ms), bytes_max=1 << 20)
    for _ in range(count):
        ring.add(BrokerStopped())
    return ring.after(0)


def sequences(found: list[Line]) -> list[int]:
    return [line.sequence for line in found]


def test_what_was_written_is_there_after_a_restart_and_is_written_on(tmp_path: Path) -> None:
    first = event_file(tmp_path)
    assert first.load() == []
    first.append(lines(2))
    first.close()
    second = event_file(tmp_path)
    assert second.load() == lines(2)
    later = lines(1, first_ms=2000)
    second.append([*lines(2), *later])  # the first two again: they are there already
    assert event_file(tmp_path).load() == lines(2) + later


def test_the_first_line_says_what_the_file_is(tmp_path: Path) -> None:
    event_file(tmp_path).append(lines(1))
    header = (tmp_path / CURRENT_NAME).read_text().splitlines()[0]
    assert header == '{"format":"minikafka-events","version":1,"broker":3}'


@pytest.mark.parametrize("left", [1, 20])
def test_a_torn_tail_is_dropped_and_written_over(tmp_path: Path, left: int) -> None:
    event_file(tmp_path).append(lines(3))
    path = tmp_path / CURRENT_NAME
    data = path.read_bytes()
    path.write_bytes(data[: -len(lines(1)[0].data) - 1 + left])
    again = event_file(tmp_path)
    assert again.load() == lines(2)
    again.append(lines(3))
    assert path.read_bytes() == data


def test_a_damaged_line_costs_only_itself(tmp_path: Path) -> None:
    event_file(tmp_path).append(lines(3))
    path = tmp_path / CURRENT_NAME
    rows = path.read_bytes().split(b"\n")
    rows[2] = rows[2][:10] + b"\xff" + rows[2][11:]
    rows.insert(3, b'{"sequence":99999999999999999999,"at_ms":1}')  # nothing could come after it
    path.write_bytes(b"\n".join(rows))
    assert sequences(event_file(tmp_path).load()) == [1_000_000, 1_000_002]


def test_a_full_file_gives_way_and_the_two_stay_within_their_bytes(tmp_path: Path) -> None:
    file = event_file(tmp_path)
    written = lines(200)
    file.append(written)
    sizes = [(tmp_path / name).stat().st_size for name in (CURRENT_NAME, OLD_NAME)]
    assert all(size <= BYTES_MAX // 2 for size in sizes)
    kept = event_file(tmp_path).load()
    assert kept == written[-len(kept) :]
    assert len(kept) > BYTES_MAX // 2 // 80, "one file is full, the other one is not empty"


def test_a_file_of_a_later_version_is_left_unread_and_moved_out_of_the_way(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    theirs = b'{"format":"minikafka-events","version":2,"broker":3}\nwho knows\n'
    (tmp_path / CURRENT_NAME).write_bytes(theirs)
    file = event_file(tmp_path)
    assert file.load() == []
    assert "version 2" in caplog.text
    file.append(lines(1))
    assert (tmp_path / OLD_NAME).read_bytes() == theirs
    assert event_file(tmp_path).load() == lines(1)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "does not begin with the header"),
        (b"x" * 10_000, "does not begin with the header"),
        (b'{"format":"minikafka-events","version":1,"broker":1}', "does not begin with the header"),
        (b'{"format":"other","version":1,"broker":1}\n', "is a file of 'other'"),
        (b'{"format":"minikafka-events","version":9,"broker":1}\n', "has version 9 of the format"),
    ],
)
def test_what_is_no_file_of_events_is_named(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / CURRENT_NAME
    path.write_bytes(data)
    with pytest.raises(UnreadableEventFile, match=said) as raised:
        read_event_file(OsFiles(), str(path), bytes_max=BYTES_MAX)
    assert str(raised.value).startswith(str(path))


def test_of_a_file_that_is_too_large_the_end_is_read(tmp_path: Path) -> None:
    event_file(tmp_path, bytes_max=1 << 20).append(lines(100))
    kept = event_file(tmp_path, bytes_max=2000).load()
    assert kept == lines(100)[-len(kept) :]
    assert 5 < len(kept) < 20
