"""Our own modules as processes: the same interpreter, and the same package wherever it was imported from."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PACKAGE_PARENT = Path(__file__).resolve().parents[2]


def command(module: str) -> list[str]:
    """What runs a module of ours; with ``environment``."""
    return [sys.executable, "-P", "-m", module]


def environment() -> dict[str, str]:
    """Ours, and a checkout that is not installed is found from any directory."""
    paths = [str(PACKAGE_PARENT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
