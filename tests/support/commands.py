"""Commands that a test needs and a machine may lack."""

from __future__ import annotations

import os
import shutil

import pytest


def skip_if_missing(command: str) -> None:
    """Skip the test where ``command`` is not installed; with CI=true that is a failure."""
    if shutil.which(command) is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"{command} is not installed")
