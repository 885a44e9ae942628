"""The tests whose subject is time (marker ``timing``). They are no part of ``bin/test``: a busy machine makes
them fail. Each is run as it stands; a row says how long it took and what it asserts, where it failed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
NO_FAILURE, FAILURES = 0, 1  # pytest.ExitCode


def run(quick: bool) -> list[dict[str, Any]]:
    """One row a test; they have no shorter form.

    Raises:
        RuntimeError: pytest could not run them.
    """
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "timing", f"--junitxml={report}"]
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
        if status not in (NO_FAILURE, FAILURES):
            raise RuntimeError(f"pytest ended with {status}")
        return [row(case) for case in ElementTree.parse(report).iter("testcase")]


def row(case: ElementTree.Element) -> dict[str, Any]:
    failure = next(
        (case.find(kind) for kind in ("failure", "error", "skipped") if case.find(kind) is not None), None
    )
    return {
        "test": case.attrib["name"],
        "took s": round(float(case.attrib["time"]), 2),
        "met": failure is None,
        "said": "" if failure is None else failure.attrib.get("message", "").partition("\n")[0],
    }
