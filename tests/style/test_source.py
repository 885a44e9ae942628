"""The repository keeps the project's rules (``rules.py``), and its scripts are in order."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.style import rules

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "minikafka").rglob("*.py"))
DASHBOARDS = sorted((ROOT / "grafana").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
CORE = [path for path in SOURCES if path.relative_to(ROOT).parts[1] in rules.CORE_PACKAGES]
SHELL = [path for path in SOURCES if path.relative_to(ROOT).parts[1] in rules.SHELL_PACKAGES]
SCRIPTS = [ROOT / "bin" / name for name in ("bench", "check", "minikafka", "minikafka-broker", "test")]


def findings(rule: Callable[[str], list[str]], paths: list[Path]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{finding}"
        for path in paths
        for finding in rule(path.read_text(encoding="utf-8"))
    ]


def test_no_module_and_no_function_is_too_long() -> None:
    assert findings(rules.size, SOURCES + DASHBOARDS) == []


def test_every_module_says_what_it_is_for() -> None:
    assert findings(rules.documented, SOURCES + DASHBOARDS + TESTS) == []


def test_nothing_is_left_to_do() -> None:
    assert (
        findings(
            rules.finished, [*SOURCES, *DASHBOARDS, *(path for path in TESTS if "style" not in path.parts)]
        )
        == []
    )


def test_the_core_is_the_same_in_every_run() -> None:
    assert len(CORE) > 10
    assert findings(rules.deterministic, CORE) == []


def test_what_a_simulation_runs_has_one_order() -> None:
    assert len(SHELL) > 10
    assert findings(rules.ordered, SHELL) == []


def test_every_package_is_one() -> None:
    directories = {path.parent for path in SOURCES}
    assert [
        str(directory) for directory in sorted(directories) if not (directory / "__init__.py").exists()
    ] == []


@pytest.mark.parametrize("path", [*SCRIPTS, ROOT / ".ci" / "run"], ids=lambda path: path.name)
def test_scripts_can_be_run_and_parse(path: Path) -> None:
    assert os.access(path, os.X_OK), f"{path.name} is not executable"
    shell = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("#!").split()[-1].rpartition("/")[2]
    result = subprocess.run([shell, "-n", path], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_the_environment_helper_parses() -> None:
    result = subprocess.run(["sh", "-n", ROOT / "bin" / ".environment.sh"], capture_output=True, check=False)
    assert result.returncode == 0
