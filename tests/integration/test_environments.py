"""The commands in bin/ set up what they need, and no more; and say so while it takes its time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(__file__).resolve().parents[2] / "bin"
TOLD = "import sys; print(*[each.rpartition('/')[2] for each in sys.argv[2:]]); sys.exit(1)"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """With bin/ and nothing else: no environment is made there yet."""
    shutil.copytree(BIN, tmp_path / "bin")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("topics", ".venv zookeeper"),
        ("bench", ".venv-bench bench,zookeeper"),
        ("analyze", ".venv-spark spark,tables"),
        ("compact", ".venv-spark spark,tables"),
        ("export", ".venv-spark spark,tables"),
        ("import", ".venv-spark spark,tables"),
        ("why", ".venv zookeeper"),
        ("why table", ".venv-spark spark,tables"),
    ],
)
def test_a_command_asks_for_the_extras_that_it_needs(checkout: Path, command: str, wanted: str) -> None:
    (checkout / "bin" / ".environment.py").write_text(TOLD)
    done = subprocess.run(
        ["sh", checkout / "bin" / "minikafka", *command.split()],
        env={"PATH": os.environ["PATH"], "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout == f"{wanted}\n", done.stderr


@pytest.mark.parametrize(
    ("extras", "says", "is_quiet"),
    [
        ("bench,zookeeper", "with what the load generator (a few MB) needs", False),
        ("spark,tables", "with what Spark (about 550 MB to download) needs", False),
        ("zookeeper", "setting up .venv-x (once)…", True),
    ],
)
def test_what_takes_a_while_is_announced_and_shows_progress(
    checkout: Path, extras: str, says: str, is_quiet: bool
) -> None:
    """The environment's Python is there already, and tells how pip is called instead of calling it."""
    python = checkout / ".venv-x" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\ncase "$*" in *install*) echo "called: $*"; exit 1 ;; esac\n')
    python.chmod(0o755)
    (checkout / "pyproject.toml").write_text("")
    done = subprocess.run(
        [sys.executable, checkout / "bin" / ".environment.py", checkout, python.parents[1], extras],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert says in done.stderr
    (called,) = (line for line in done.stderr.splitlines() if line.startswith("called: "))
    assert called.endswith(f"--editable {checkout}[{extras}]")
    assert ("--quiet" in called) is is_quiet
