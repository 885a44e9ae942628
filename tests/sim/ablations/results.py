"""``results.jsonl``: what became of each ablation, so that a run goes on where the one before ended.

A result is of a patch as it was: one that is changed is tried from the beginning, one that survived with more
seeds goes on after those that it has survived. ``docs.generator`` makes a page of them.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from minikafka.testing.history import PERMITTED
from tests.sim.ablations import HERE, Ablation

FILE: Final = HERE / "results.jsonl"
_HEADERS: Final = ("--- ", "+++ ")


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of one ablation, one line."""

    name: str
    patch: int
    """The CRC of the lines that the patch changes, and of those around them."""
    seeds: int
    """How many of each scenario were tried, from 0 on; the last one failed, if a scenario has found it."""
    scenario: str = ""
    """In which it was found, or the story, of pytest; empty: it survived."""
    error: str = ""

    @property
    def is_found(self) -> bool:
        return bool(self.scenario)

    @property
    def is_of_a_story(self) -> bool:
        """No seed of ``seeds`` has found it."""
        return "::" in self.scenario


def patch_crc(ablation: Ablation) -> int:
    """Of what it does: neither its text nor the file that the lines are in today make it another patch."""
    _, _, patch = ablation.path.read_text().partition("\n--- ")
    lines = [line for line in patch.splitlines() if line[:1] in (" ", "+", "-") and line[:4] not in _HEADERS]
    return zlib.crc32("\n".join(lines).encode())


def read_results(path: Path = FILE) -> dict[str, Result]:
    """By name. Raises OSError, msgspec.MsgspecError."""
    if not path.exists():
        return {}
    lines = path.read_bytes().splitlines()
    return {each.name: each for each in (msgspec.json.decode(line, type=Result) for line in lines)}


def write_results(results: Iterable[Result], path: Path = FILE) -> None:
    """In the order of their names. Raises OSError."""
    ordered = sorted(results, key=lambda each: each.name)
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in ordered))


def what_was_broken(result: Result) -> str:
    """The anomalies that clients saw, an invariant's name, or the type of the error."""
    seen = re.search(r"clients saw: \d+ operations: ([^|]*)", result.error)
    if seen is not None:
        return ", ".join(sorted({*re.findall(r"× ([a-z ]*[a-z])", seen.group(1))} - PERMITTED))
    invariant = re.search(r"\b[IS]\d+\b", result.error)
    if invariant is not None:
        return invariant.group()
    error = result.error.partition(":")[0].rpartition(".")[2]
    return "AssertionError" if error.startswith("assert ") else error
