"""The aborted transactions of a segment: found by range, truncated with it, distrusted when damaged."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.errors import InvariantError
from minikafka.files import OsFiles
from minikafka.log.segment.indexes import (
    AbortedTransaction,
    CorruptTransactionIndex,
    TransactionIndex,
)

BASE_OFFSET = 100
NAME = f"{BASE_OFFSET:020d}.txnindex"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / NAME


def index_at(path: Path) -> TransactionIndex:
    return TransactionIndex(str(path), OsFiles())


A = AbortedTransaction(1, 100, 105, 103)
B = AbortedTransaction(2, 103, 110, 106)
C = AbortedTransaction(1, 106, 120, 121)
D = AbortedTransaction(3, 121, 130, 131)


@pytest.fixture
def filled(path: Path) -> TransactionIndex:
    index = index_at(path)
    for transaction in (A, B, C, D):
        index.append(transaction)
    return index


def test_there_is_no_file_until_a_transaction_aborts(path: Path) -> None:
    index = index_at(path)
    assert index.all_aborted() == [] and index.collect_aborted(0, 2**60) == ([], False)
    index.truncate_to(0)
    index.reset()
    index.sanity_check()
    assert not path.exists() and not index.exists
    index.append(A)
    assert path.exists() and index.exists


def test_the_file_is_kafkas_byte_for_byte(path: Path) -> None:
    index_at(path).append(A)
    assert path.read_bytes() == struct.pack(">hqqqq", 0, 1, 100, 105, 103)


def test_it_is_read_back_after_a_restart_and_continued(filled: TransactionIndex, path: Path) -> None:
    filled.close()
    index = index_at(path)
    index.sanity_check()
    assert index.all_aborted() == [A, B, C, D]
    with pytest.raises(InvariantError):
        index.append(AbortedTransaction(9, 125, 130, 131))  # ends where the last one did
    index.append(AbortedTransaction(9, 125, 131, 132))
    assert index.entry_count == 5


@pytest.mark.parametrize(
    ("fetch_offset", "upper_bound", "expected", "complete"),
    [
        (100, 101, [A], True),  # B is in, its first offset is not below 101
        (104, 108, [A, B, C], True),
        (106, 107, [B, C], True),
        (111, 121, [C], True),
        (111, 122, [C, D], True),
        (125, 131, [D], True),  # everything below 131 was decided when D ended
        (120, 140, [C, D], False),  # the next segment may know more
        (131, 140, [], False),
    ],
)
def test_a_fetch_gets_what_overlaps_its_range(
    filled: TransactionIndex,
    fetch_offset: int,
    upper_bound: int,
    expected: list[AbortedTransaction],
    complete: bool,
) -> None:
    assert filled.collect_aborted(fetch_offset, upper_bound) == (expected, complete)


def scan(
    transactions: list[AbortedTransaction], fetch: int, upper: int
) -> tuple[list[AbortedTransaction], bool]:
    """Kafka's search, from the beginning of the file."""
    found = []
    for t in transactions:
        if t.last_offset >= fetch and t.first_offset < upper:
            found.append(t)
        if t.last_stable_offset >= upper:
            return found, True
    return found, False


@given(
    lengths=st.lists(st.tuples(st.integers(1, 20), st.integers(0, 40)), max_size=60),
    fetch=st.integers(0, 400),
    size=st.integers(1, 100),
)
def test_the_bisection_finds_what_a_scan_would(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[tuple[int, int]], fetch: int, size: int
) -> None:
    index = index_at(tmp_path_factory.mktemp("t") / f"{0:020d}.txnindex")
    transactions = []
    last = 0
    stable = 0
    for step, length in lengths:
        last += step
        stable = max(stable, last - length)
        transactions.append(AbortedTransaction(1, max(0, last - length), last, stable))
        index.append(transactions[-1])
    found, complete = index.collect_aborted(fetch, fetch + size)
    expected, expected_complete = scan(transactions, fetch, fetch + size)
    # The scan may stop before the range begins, having seen that all of it is stable: then nothing is in it.
    assert found == expected or (expected_complete and not expected)
    assert complete == expected_complete or not found
    index.close()


def test_truncation_drops_what_ended_at_or_above(filled: TransactionIndex, path: Path) -> None:
    filled.truncate_to(131)
    assert filled.entry_count == 4
    filled.truncate_to(120)
    assert filled.all_aborted() == [A, B] and path.stat().st_size == 68
    filled.append(C)
    filled.reset()
    assert filled.all_aborted() == [] and path.stat().st_size == 0
    filled.append(A)


def entry(producer_id: int, first: int, last: int, stable: int, *, version: int = 0) -> bytes:
    return struct.pack(">hqqqq", version, producer_id, first, last, stable)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (entry(1, 100, 105, 103) + b"\0", "whole number"),
        (entry(1, 100, 105, 103, version=1), "version 1"),
        (entry(1, 90, 99, 99), "before the segment's 100"),
        (entry(1, 100, 105, 103) + entry(1, 104, 105, 106), "the one before at 105"),
        (entry(1, 106, 105, 103), "not a transaction"),
        (entry(1, -1, 105, 103), "not a transaction"),
        (entry(-1, 100, 105, 103), "not a transaction"),
        (bytes(34), "before the segment's 100"),
    ],
    ids=["torn", "version", "early", "not increasing", "backwards", "negative", "no producer", "zeros"],
)
def test_damage_is_named(path: Path, content: bytes, word: str) -> None:
    path.write_bytes(content)
    index = index_at(path)
    with pytest.raises(CorruptTransactionIndex, match=word) as error:
        index.sanity_check()
    assert str(path) in str(error.value)
    index.reset()  # what a rebuild does
    index.append(A)
    index.sanity_check()


@given(content=st.binary(max_size=34 * 6), fetch=st.integers(0, 2**62))
def test_no_bytes_upset_it(tmp_path_factory: pytest.TempPathFactory, content: bytes, fetch: int) -> None:
    path = tmp_path_factory.mktemp("t") / NAME
    path.write_bytes(content)
    index = index_at(path)
    try:
        index.sanity_check()
    except CorruptTransactionIndex:
        pass
    else:
        assert content == b""  # random bytes have no version 0 worth mentioning
    try:
        index.collect_aborted(fetch, fetch + 10)
        index.truncate_to(fetch)
    except CorruptTransactionIndex:
        pass
    index.close()


def test_a_file_that_shrank_behind_our_back_is_damage(filled: TransactionIndex, path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(40)
    with pytest.raises(CorruptTransactionIndex, match="cut short"):
        filled.all_aborted()


def test_the_name_has_to_be_a_segments(tmp_path: Path) -> None:
    with pytest.raises(InvariantError):
        index_at(tmp_path / "x.txnindex")
