"""The repository keeps the project's rules (``rules.py``), and its scripts are in order."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from minikafka.server.apis import HANDLERS
from tests.style import rules

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "minikafka").rglob("*.py"))
GENERATORS = sorted(path for folder in ("docs", "grafana") for path in (ROOT / folder).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
CORE = [path for path in SOURCES if path.relative_to(ROOT).with_suffix("").parts[1] in rules.CORE_PACKAGES]
SHELL = [path for path in SOURCES if path.relative_to(ROOT).parts[1] in rules.SHELL_PACKAGES]
SCRIPTS = [ROOT / "bin" / name for name in ("bench", "check", "minikafka", "minikafka-broker", "test")]


def findings(rule: Callable[[str], list[str]], paths: list[Path]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{finding}"
        for path in paths
        for finding in rule(path.read_text(encoding="utf-8"))
    ]


def test_no_module_and_no_function_is_too_long() -> None:
    assert findings(rules.size, SOURCES + GENERATORS) == []


def test_every_module_says_what_it_is_for() -> None:
    assert findings(rules.documented, SOURCES + GENERATORS + TESTS) == []


ONLY_FOR_TESTS = {
    "ManualClock": "the clock of tests, beside the real one",
    "first_undecided_offset": "no request shows it",
    "has_offsets": "no request shows whether a group without visible offsets has pending ones",
    "state_of": "what a fetcher knows of a partition; only its requests show it",
}
CALLED_BY_OTHERS = {
    "dispatch_callback": "kazoo",
    "getDefaultReadLimit": "Spark",
    "initialOffset": "Spark",
    "latestOffset": "Spark",
    "prepareForTriggerAvailableNow": "Spark",
    "pushFilters": "Spark",
    "reportLatestOffset": "Spark",
    "streamReader": "Spark",
}


def test_no_name_is_there_only_for_tests() -> None:
    """What nothing in the product uses goes, unless it is listed above with a reason. ``minikafka.testing``
    is for the tests of others."""
    product = [path for path in SOURCES if path.relative_to(ROOT).parts[1] != "testing"]
    scripts = [path.read_text(encoding="utf-8") for path in SCRIPTS]
    handlers = {f"handle_{key.name.lower()}" for key in HANDLERS}  # which finds them by these names
    used = set[str]().union(
        *(rules.used_names(path.read_text(encoding="utf-8")) for path in SOURCES + GENERATORS),
        *(re.findall(r"\w+", script) for script in scripts),
        handlers,
    )
    dead = {
        f"{path.relative_to(ROOT)}:{line} {name}": name
        for path in product
        for line, name in rules.defined_names(path.read_text(encoding="utf-8"))
        if name not in used
    }
    allowed = ONLY_FOR_TESTS | CALLED_BY_OTHERS
    assert [where for where, name in dead.items() if name not in allowed] == []
    assert allowed.keys() - dead.values() == set(), "these are used, or gone"


def test_nothing_is_left_to_do() -> None:
    assert (
        findings(
            rules.finished, [*SOURCES, *GENERATORS, *(path for path in TESTS if "style" not in path.parts)]
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
