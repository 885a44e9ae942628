"""A file gets its new bytes at one moment, and nothing else stays behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka import exchange
from minikafka.files import OsFiles


def test_two_files_have_each_others_name(tmp_path: Path) -> None:
    one, other = tmp_path / "ä one", tmp_path / "other"
    one.write_text("1")
    other.write_text("2")
    assert exchange.exchange(str(one), str(other))
    assert (one.read_text(), other.read_text()) == ("2", "1")


def test_without_the_other_file_nothing_changes(tmp_path: Path) -> None:
    one = tmp_path / "one"
    one.write_text("1")
    assert not exchange.exchange(str(one), str(tmp_path / "nowhere"))
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
    assert one.read_text() == "1"


@pytest.mark.parametrize("can_exchange", [True, False], ids=["exchanged", "renamed over"])
def test_a_file_is_replaced_whether_it_was_there_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool
) -> None:
    if not can_exchange:
        monkeypatch.setattr(exchange, "_renameat2", lambda: None)
    path = tmp_path / "checkpoint"
    for content in (b"new", b"newer", b"s"):
        OsFiles().replace(str(path), content)
        assert path.read_bytes() == content
        assert [each.name for each in tmp_path.iterdir()] == ["checkpoint"]


def test_a_reader_never_finds_the_file_missing_or_torn(tmp_path: Path) -> None:
    """An open file of before keeps the bytes of before: the new ones are another file."""
    path = tmp_path / "checkpoint"
    OsFiles().replace(str(path), b"old")
    with open(path, "rb") as before:
        OsFiles().replace(str(path), b"new bytes")
        assert before.read() == b"old"
    assert path.read_bytes() == b"new bytes"
