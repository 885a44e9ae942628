"""A few cuts of the power of a real file system. ``python -m tests.power --cuts 500`` makes many."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.power.__main__ import SKIPPED

ROOT = Path(__file__).resolve().parents[2]
CUTS = 3


def test_what_was_promised_is_there_after_a_power_cut(tmp_path: Path) -> None:
    """Needs root, loop devices and ``mkfs.ext4``; a container that has no privileges leaves it out."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.power", f"--cuts={CUTS}"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == SKIPPED:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
