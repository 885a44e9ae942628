"""The real file system's adapter opens regular files and nothing else."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from minikafka.files import OsFiles

FILES = OsFiles()
CONTENT = b"another file's content"

OPENING: dict[str, Callable[[str], object]] = {
    "append": FILES.open,
    "create": lambda path: FILES.open(path, create=True),
    "read": lambda path: FILES.open(path, read_only=True),
    "read all": FILES.read_bytes,
    "size": FILES.size,
    "lock": FILES.lock,
    "checkpoint": lambda path: FILES.write_atomically(path.removesuffix(".tmp"), b"0\n0\n"),
    "replacement": lambda path: FILES.replace(path.removesuffix(".tmp"), b"0\n0\n"),
}


@pytest.mark.parametrize("operation", OPENING)
def test_nothing_is_done_through_a_link(operation: str, tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "file.tmp"
    target.write_bytes(CONTENT)
    link.symlink_to(target)
    with pytest.raises(OSError, match="a symbolic link; only regular files are used") as raised:
        OPENING[operation](str(link))
    assert (raised.value.errno, raised.value.filename) == (errno.ELOOP, str(link))
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize("operation", OPENING)
def test_no_link_makes_a_new_file_elsewhere(operation: str, tmp_path: Path) -> None:
    link = tmp_path / "file.tmp"
    link.symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="a symbolic link"):
        OPENING[operation](str(link))
    assert os.listdir(tmp_path) == ["file.tmp"]


@pytest.mark.parametrize("operation", OPENING)
def test_a_fifo_does_not_block(operation: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "file.tmp")
    with pytest.raises(OSError):
        OPENING[operation](str(tmp_path / "file.tmp"))


@pytest.mark.parametrize("operation", OPENING)
def test_a_directory_is_called_one(operation: str, tmp_path: Path) -> None:
    (tmp_path / "file.tmp").mkdir()
    with pytest.raises(IsADirectoryError):
        OPENING[operation](str(tmp_path / "file.tmp"))


def test_a_checkpoint_takes_the_place_of_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "checkpoint"
    target.write_bytes(CONTENT)
    for write in (FILES.write_atomically, FILES.replace):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        write(str(link), b"0\n0\n")
        assert not link.is_symlink() and link.read_bytes() == b"0\n0\n"
    assert target.read_bytes() == CONTENT
