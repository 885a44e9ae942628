"""The store's file is its owner's: credentials are in it."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from minikafka.coordination.sqlite import SqliteTree
from minikafka.system_clock import SystemClock


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(directory: Path) -> dict[str, int]:
    return {each.name: stat.S_IMODE(each.stat().st_mode) for each in directory.iterdir()}


def opened(path: Path) -> SqliteTree:
    return SqliteTree(str(path), clock=SystemClock(), durable=False, busy_timeout_ms=1_000)


def test_a_new_store_and_its_log_are_their_owners_alone(tmp_path: Path) -> None:
    with closing(opened(tmp_path / "store")):
        assert modes(tmp_path) == {"store": 0o600, "store-wal": 0o600, "store-shm": 0o600}


def test_an_old_store_that_others_could_read_is_closed_to_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with closing(opened(tmp_path / "store")):
        for each in tmp_path.iterdir():  # as an earlier version that was killed has left them
            each.chmod(0o644)
        with closing(opened(tmp_path / "store")):
            assert set(modes(tmp_path).values()) == {0o600}
    assert f"others could read {tmp_path / 'store'}: its mode was 0o644 and is 0o600 now" in caplog.text


def test_a_store_of_another_owner_is_used_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(opened(tmp_path / "store")):
        pass
    (tmp_path / "store").chmod(0o606)

    def chmod(path: str, mode: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "chmod", chmod)
        with closing(opened(tmp_path / "store")):
            assert f"chmod 600 {tmp_path / 'store'}" in caplog.text


def test_a_group_that_shares_the_store_keeps_it(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "store")) as connection:
        connection.execute("VACUUM")
    (tmp_path / "store").chmod(0o664)
    with closing(opened(tmp_path / "store")):
        assert modes(tmp_path)["store"] == 0o660
