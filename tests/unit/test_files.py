"""The real file system's adapter opens regular files and nothing else."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from minikafka.files import SECTOR_BYTES, OsFiles

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
    "overwriting": lambda path: FILES.overwrite(path, CONTENT),
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


# What is made here is its owner's


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


MAKING: dict[str, Callable[[str], object]] = {
    "create": lambda path: FILES.open(path, create=True).close(),
    "lock": lambda path: FILES.lock(path).release(),
    "checkpoint": lambda path: FILES.write_atomically(path, b"0\n0\n"),
    "replacement": lambda path: FILES.replace(path, b"0\n0\n"),
}


@pytest.mark.usefixtures("no_umask")
@pytest.mark.parametrize("operation", MAKING)
def test_a_new_file_is_its_owners_alone(operation: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    MAKING[operation](str(tmp_path / "file"))
    assert mode(tmp_path / "file") == 0o600


@pytest.mark.usefixtures("no_umask")
def test_a_new_directory_and_its_parents_are_their_owners_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    FILES.make_directory(f"{tmp_path}/a/b/c/")
    assert [mode(tmp_path / each) for each in ("a", "a/b", "a/b/c")] == [0o700] * 3
    assert mode(tmp_path) == 0o755


@pytest.mark.usefixtures("no_umask")
@pytest.mark.parametrize("operation", MAKING)
def test_in_a_directory_that_a_group_shares_it_may_read(operation: str, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o2750)
    FILES.make_directory(f"{shared}/topic-0")
    MAKING[operation](f"{shared}/topic-0/file")
    assert mode(shared / "topic-0") == 0o2750
    assert mode(shared / "topic-0" / "file") == 0o640


@pytest.mark.usefixtures("no_umask")
def test_what_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir(mode=0o755)
    (tmp_path / "file").touch(mode=0o644)
    FILES.make_directory(str(tmp_path / "directory"))
    FILES.open(str(tmp_path / "file"), create=True).close()
    assert (mode(tmp_path / "directory"), mode(tmp_path / "file")) == (0o755, 0o644)


def test_a_directory_is_made_once_and_not_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    FILES.make_directory("relative/one")
    FILES.make_directory("relative/one")
    assert (tmp_path / "relative" / "one").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(OSError):
        FILES.make_directory("file")
    with pytest.raises(OSError):
        FILES.make_directory("file/below")


def test_a_hole_is_skipped_and_zeros_that_were_written_may_not_be(tmp_path: Path) -> None:
    path = str(tmp_path / "index")
    file = FILES.open(path, create=True)
    file.write([b"entry"], 0)
    file.truncate(10_000_000)
    assert file.skip_hole(2) == 2
    assert file.skip_hole(9_000_000) == 10_000_000
    assert file.skip_hole(11_000_000) == 11_000_000
    file.write([b"entry"], 9_999_000)
    assert 9_000_000 <= file.skip_hole(9_000_000) <= 9_999_000
    file.close()


def test_a_short_file_is_overwritten_in_place(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    FILES.overwrite(str(path), b"first")
    inode = path.stat().st_ino
    FILES.overwrite(str(path), b"other, longer")
    assert path.read_bytes() == b"other, longer"
    assert path.stat().st_ino == inode


@pytest.mark.parametrize("data", [b"shorter", b"x" * (SECTOR_BYTES + 1)], ids=["shorter", "over a sector"])
def test_what_could_be_left_in_part_is_not_overwritten(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_bytes(b"longer than that")
    with open(path, "rb") as before:
        FILES.overwrite(str(path), data)
        assert path.read_bytes() == data
        assert before.read() == b"longer than that"
