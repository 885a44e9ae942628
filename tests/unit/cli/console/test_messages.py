"""Through batches in search of messages: what is found, where it stops, and that nothing has no end."""

from __future__ import annotations

import pytest

from minikafka.cli.console.decoding import KEPT_BYTES_MAX
from minikafka.cli.console.messages import Bounds, Filter, Scanned, Skipped, scan
from minikafka.protocol.records.compression import CompressionType
from minikafka.protocol.records.records import (
    ControlRecordType,
    EndTransactionMarker,
    Record,
    build_batch,
    marker_batch,
)

ANY = Filter()
ENOUGH = Bounds(1_000, 1_000, 1 << 30, 1 << 30, lambda: False)


def batch(first: int, *values: bytes, **options: object) -> bytes:
    records = [Record(first + index, 1_000 + index, b"key", value, ()) for index, value in enumerate(values)]
    return build_batch(records, base_offset=first, **options)


def look(
    data: bytes,
    *,
    position: int = 0,
    end: int = 1_000,
    filter: Filter = ANY,
    bounds: Bounds = ENOUGH,
    aborted: list[tuple[int, int]] | None = None,
) -> Scanned:
    return scan(
        data,
        partition=3,
        position=position,
        end=end,
        filter=filter,
        bounds=bounds,
        aborted=aborted or [],
    )


def values(scanned: Scanned) -> list[bytes]:
    return [each.value.data for each in scanned.found if each.value is not None]


@pytest.mark.parametrize("compression", list(CompressionType))
def test_messages_come_with_all_that_they_have(compression: CompressionType) -> None:
    records = [
        Record(7, 1_234, b"k", b"v", (("trace", b"1"), ("none", None))),
        Record(8, 1_235, None, None, ()),
    ]
    scanned = look(build_batch(records, base_offset=7, compression=compression))
    first, second = scanned.found
    assert (first.partition, first.offset, first.timestamp_ms, first.timestamp_type) == (
        3,
        7,
        1_234,
        "CREATE_TIME",
    )
    assert first.key is not None and first.key.data == b"k"
    assert [(name, cut and cut.data) for name, cut in first.headers] == [("trace", b"1"), ("none", None)]
    assert (second.key, second.value, second.size) == (None, None, 0)
    assert (scanned.next_offset, scanned.records, scanned.bytes) == (9, 2, 12)


def test_a_look_begins_and_ends_in_the_middle_of_a_batch() -> None:
    data = batch(0, b"a", b"b", b"c", b"d") + batch(4, b"e")
    assert values(look(data, position=1, end=3)) == [b"b", b"c"]
    two = look(data, position=1, bounds=ENOUGH._replace(messages=2))
    assert (values(two), two.next_offset) == ([b"b", b"c"], 3)
    assert values(look(data, position=two.next_offset)) == [b"d", b"e"]


@pytest.mark.parametrize(
    ("filter", "found"),
    [
        (Filter(contains=b"ell"), [b"hello"]),
        (Filter(contains=b"ke"), [b"hello", b"world"]),
        (Filter(key=b"key2"), [b"world"]),
        (Filter(key=b"key"), []),
        (Filter(header="h"), [b"hello", b"world"]),
        (Filter(header="h", header_value=b"2"), [b"world"]),
        (Filter(header="h", header_value=b"2", contains=b"hello"), []),
    ],
)
def test_a_filter_lets_through_what_has_all_of_it(filter: Filter, found: list[bytes]) -> None:
    records = [
        Record(0, 1, b"key1", b"hello", (("h", b"1"),)),
        Record(1, 1, b"key2", b"world", (("h", b"2"),)),
    ]
    scanned = look(build_batch(records), filter=filter)
    assert values(scanned) == found
    assert (scanned.records, scanned.next_offset) == (2, 2)


@pytest.mark.parametrize(
    "bounds",
    [
        ENOUGH._replace(records=2),
        ENOUGH._replace(bytes=8),
        ENOUGH._replace(kept_bytes=8),
        ENOUGH._replace(messages=2),
    ],
)
def test_each_bound_ends_it_and_the_next_look_goes_on(bounds: Bounds) -> None:
    scanned = look(batch(0, b"a", b"b", b"c"), bounds=bounds)
    assert (values(scanned), scanned.next_offset) == ([b"a", b"b"], 2)


def test_the_clock_ends_it_within_a_few_hundred_records() -> None:
    looks = iter([False] * 3 + [True] * 1_000)
    data = batch(0, *[b"x"] * 5_000)
    scanned = look(
        data, end=5_000, bounds=ENOUGH._replace(records=10_000, messages=10_000, is_over=lambda: next(looks))
    )
    assert 0 < scanned.next_offset < 1_000


def test_what_read_committed_does_not_see() -> None:
    abort = marker_batch(
        EndTransactionMarker(ControlRecordType.ABORT, 0), producer_id=9, producer_epoch=0, timestamp_ms=1
    )
    marker = b"".join((b"\0" * 7, b"\2", abort[8:]))  # at offset 2
    data = (
        batch(0, b"aborted", transactional=True, producer_id=9)
        + batch(1, b"another's", transactional=True, producer_id=8)
        + marker
        + batch(3, b"committed", transactional=True, producer_id=9)
    )
    assert values(look(data)) == [b"aborted", b"another's", b"committed"]
    scanned = look(data, aborted=[(9, 0)])
    assert (values(scanned), scanned.next_offset) == ([b"another's", b"committed"], 4)


def test_a_batch_that_cannot_be_read_is_told_and_left_behind() -> None:
    broken = bytearray(batch(0, b"a", b"b", compression=CompressionType.GZIP))
    broken[70:80] = bytes(10)
    scanned = look(bytes(broken) + batch(2, b"c"))
    assert values(scanned) == [b"c"]
    ((partition, offset, last_offset, why),) = scanned.skipped
    assert (partition, offset, last_offset) == (3, 0, 1) and "GZIP" in why


def test_a_batch_that_grows_beyond_the_bound_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minikafka.cli.console.messages.BATCH_BYTES_MAX", 10_000)
    scanned = look(batch(0, bytes(20_000), compression=CompressionType.GZIP) + batch(1, b"after"))
    assert values(scanned) == [b"after"]
    assert [each._replace(why="") for each in scanned.skipped] == [Skipped(3, 0, 0, "")]


def test_bytes_that_are_no_batch_end_the_partition() -> None:
    scanned = look(bytes(100), position=5, end=9)
    assert (scanned.found, scanned.next_offset) == ([], 9)
    assert scanned.skipped[0][1:3] == (5, 8)


def test_of_a_large_value_the_beginning_is_kept() -> None:
    scanned = look(batch(0, b"x" * (KEPT_BYTES_MAX + 5)))
    (found,) = scanned.found
    assert found.value is not None
    assert (len(found.value.data), found.value.size) == (KEPT_BYTES_MAX, KEPT_BYTES_MAX + 5)
    assert found.kept_bytes == KEPT_BYTES_MAX + 3
