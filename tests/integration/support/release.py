"""The last release, out of this repository's history, to be run beside the present code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[3]
_RELEASE: Final = re.compile(
    r"^## \[(?P<version>\d[^\]]*)\].*\n\nCommit `(?P<commit>[0-9a-f]{40})`", re.MULTILINE
)


def unpack_last_release(directory: Path) -> Path:
    """The package of the newest release that ``CHANGELOG.md`` names a commit of, below ``directory``."""
    found = _RELEASE.search((ROOT / "CHANGELOG.md").read_text())
    assert found is not None, "CHANGELOG.md names no release with its commit"
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", found["commit"], "minikafka"]
    packed = subprocess.run(command, capture_output=True, check=False)
    if packed.returncode != 0 and _is_shallow():
        pytest.skip(f"this clone is shallow and has no release {found['version']}")
    assert packed.returncode == 0, (
        f"release {found['version']} is not here ({packed.stderr.decode().strip()}): "
        f"fetch the whole history, or git fetch --depth=1 origin {found['commit']}"
    )
    subprocess.run(["tar", "-x", "-C", str(directory)], input=packed.stdout, check=True)
    return directory


def _is_shallow() -> bool:
    command = ["git", "-C", str(ROOT), "rev-parse", "--is-shallow-repository"]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip() == "true"


def broker_command(root: Path) -> list[str]:
    """What runs the broker whose package is in ``root``, in its processes for compaction too."""
    return ["env", f"PYTHONPATH={root}", "PYTHONSAFEPATH=1", sys.executable, "-m", "minikafka.cli.broker"]
