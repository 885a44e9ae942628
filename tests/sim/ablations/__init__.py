"""Deliberate defects of the broker: that the simulation finds them gives weight to what it does not find.

Each ``*.diff`` here takes one safeguard out. Its text says which story that breaks, then where it is looked
for:

    Scenarios: faults, transactions

    Stories: tests/scenarios/test_isr.py::test_r11_a_broker_that_came_back_empty

(stories are tests that tell one precise course of events, for what dice bring about too seldom; they are
played when no seed has failed; a patch needs one of the two), then a unified diff against the repository's
root, in as few lines as show the defect. ``git apply`` takes it or the run fails: a patch
that no longer fits the code is mended, not skipped.

``python -m tests.sim.ablations`` tries them, each in a copy of the package (``__main__``, ``trial``), and
keeps what became of them (``results``).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[2]
COPIED: Final = ("minikafka", "tests/scenarios", "tests/sim", "tests/support", "tests/unit", "pyproject.toml")
"""What a run of a scenario needs, and of a story."""

SCENARIOS: Final = ("faults", "reassignments", "transactions", "shares", "swarm")
"""Of ``minikafka.testing.simulation.campaign``."""


class PatchError(Exception):
    """A patch does not apply, or says nothing of itself; names it."""


class Ablation(NamedTuple):
    """One file."""

    name: str
    story: str
    scenarios: tuple[str, ...]
    stories: tuple[str, ...]
    """Node ids of pytest."""
    files: tuple[str, ...]
    """What it changes, from the repository's root."""

    @property
    def path(self) -> Path:
        return HERE / f"{self.name}.diff"


def load(name: str) -> Ablation:
    """Raises PatchError: there is none of this name, or its text lacks something."""
    path = HERE / f"{name}.diff"
    if not path.exists():
        raise PatchError(f"there is no ablation {name}; there are {', '.join(names())}")
    head, _, patch = path.read_text().partition("\n--- ")
    story, *fields = [" ".join(paragraph.split()) for paragraph in head.strip().split("\n\n")]
    told = {name: text for name, _, text in (field.partition(": ") for field in fields)}
    scenarios, stories = (_listed(told.pop(field, "")) for field in ("Scenarios", "Stories"))
    unknown = sorted({*told, *(set(scenarios) - set(SCENARIOS))})
    if not (scenarios or stories) or unknown:
        raise PatchError(
            f"{path}: there must be stories, or Scenarios of {', '.join(SCENARIOS)}; also found: {unknown}"
        )
    files = [line.removeprefix("+++ b/").strip() for line in patch.splitlines() if line.startswith("+++ b/")]
    return Ablation(name, story, scenarios, stories, tuple(files))


def _listed(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",") if each.strip())


def names() -> list[str]:
    return sorted(path.stem for path in HERE.glob("*.diff"))


def copy_of_package(directory: Path) -> None:
    """Copy what scenarios need into ``directory``, with the compiled modules that there are."""
    for part in COPIED:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, directory / part)
        else:
            shutil.copy(ROOT / part, directory / part)


def apply(ablation: Ablation, directory: Path) -> None:
    """Patch the copy in ``directory``.

    Raises:
        PatchError: the patch does not fit the code any more, or leaves what is no Python.
    """
    # The copy may lie inside of a repository, which git would take its paths from.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(directory.parent)}
    command = ["git", "apply", "--whitespace=nowarn", str(ablation.path)]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise PatchError(f"{ablation.path} does not apply: {done.stderr.strip()}")
    for name in ablation.files:
        path = directory / name
        try:
            compile(path.read_text(), str(path), "exec")
        except SyntaxError as error:
            raise PatchError(f"{ablation.path} leaves what is no Python: {error}") from error
