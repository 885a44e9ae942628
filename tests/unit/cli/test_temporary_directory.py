"""The directory behind --in-memory comes and goes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from minikafka.cli.broker import TemporaryDirectory
from minikafka.errors import StartError


def test_it_goes_with_its_content(tmp_path: Path) -> None:
    with TemporaryDirectory(str(tmp_path)) as directory:
        (Path(directory.path) / "orders-0").mkdir()
        (Path(directory.path) / "orders-0" / "log").write_bytes(b"x")
    assert list(tmp_path.iterdir()) == []


def test_it_goes_when_something_fails(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="why"), TemporaryDirectory(str(tmp_path)):
        raise ValueError("why")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_and_a_living_ones_is_not(tmp_path: Path) -> None:
    code = (
        "import os, sys; from minikafka.cli.broker import TemporaryDirectory\n"
        "TemporaryDirectory(sys.argv[1]).__enter__(); os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, check=False)
    assert killed.returncode == -9 and len(list(tmp_path.iterdir())) == 1
    (tmp_path / "minikafka-other").mkdir()  # not one of ours: no lock file
    with TemporaryDirectory(str(tmp_path)) as first, TemporaryDirectory(str(tmp_path)) as second:
        names = {path.name for path in tmp_path.iterdir()}
        assert names == {"minikafka-other", Path(first.path).name, Path(second.path).name}


def test_no_place_for_it_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="cannot make a temporary directory in"):
        TemporaryDirectory(str(tmp_path / "missing")).__enter__()
