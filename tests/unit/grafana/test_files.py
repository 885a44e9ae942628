"""The committed dashboards and rules are those that the generator writes, and Prometheus takes the rules."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from grafana.generator.files import DASHBOARDS, ROOT, files

PROMETHEUS = ROOT / "prometheus"

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not there")


@pytest.mark.parametrize("path", files(), ids=lambda path: path.name)
def test_a_committed_file_is_what_the_generator_writes(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == files()[path], "run: python -m grafana.generator"


def test_no_dashboard_is_left_over() -> None:
    assert set(DASHBOARDS.iterdir()) == {path for path in files() if path.suffix == ".json"}


@needs_promtool
@pytest.mark.parametrize(
    "command",
    [
        ["check", "config", PROMETHEUS / "prometheus.yml"],
        ["check", "rules", PROMETHEUS / "rules.yml"],
        ["test", "rules", PROMETHEUS / "rules_test.yml"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_promtool_finds_nothing_wrong(command: list[str | Path]) -> None:
    done = subprocess.run(["promtool", *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
