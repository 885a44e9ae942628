"""The end of what `.ci/run` prints: why its parts failed, and what each of them took.

    summary.py DIRECTORY PART...

DIRECTORY has for each part ``PART.result`` ("wall user sys" in seconds, then the exit status; absent while it
runs), ``PART.log`` (its output) and, where the part ran pytest, ``PART.xml`` (JUnit's report). The summary
fits into the last hundred lines of a log, which may be all that is kept of it.
"""

from __future__ import annotations

import sys
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

REASON_LINES = 60
"""For the tracebacks of all failed tests, and the ends of logs of parts that failed without a failed test."""
FEWEST_LINES = 7
NAMED = 10
"""Of those that failed, in a line each."""
LINE_LENGTH = 220


class Failure(NamedTuple):
    what: str
    lines: list[str]


class Part(NamedTuple):
    name: str
    wall_s: float
    cpu_s: float
    status: str
    failures: list[Failure]


def read_part(directory: Path, name: str) -> Part:
    try:
        wall, user, system, status = (directory / f"{name}.result").read_text().split()[-4:]
    except (OSError, ValueError):
        return Part(
            name, 0, 0, "not ended", [Failure(f"{name}: the end of its output", log_of(directory, name))]
        )
    failures = []
    if status != "0":
        failures = failed_tests(directory / f"{name}.xml") or [
            Failure(f"{name}: the end of its output", log_of(directory, name))
        ]
    return Part(name, float(wall), float(user) + float(system), status, failures)


def log_of(directory: Path, name: str) -> list[str]:
    try:
        return (directory / f"{name}.log").read_text(errors="replace").splitlines()
    except OSError:
        return []


def failed_tests(report: Path) -> list[Failure]:
    try:
        cases = ElementTree.parse(report).iter("testcase")
        return [
            failure_of(case, found) for case in cases for found in case if found.tag in ("failure", "error")
        ]
    except (OSError, ElementTree.ParseError):
        return []  # killed before it could report


def failure_of(case: ElementTree.Element, found: ElementTree.Element) -> Failure:
    message = (found.get("message") or "").split("\n")[0]
    return Failure(f"{case.get('classname')}::{case.get('name')}: {message}", (found.text or "").splitlines())


def print_summary(parts: list[Part]) -> None:
    # The first of each part, then the second of each: one broken part does not hide the others.
    rounds = zip_longest(*(part.failures for part in parts))
    failures = [failure for each in rounds for failure in each if failure is not None]
    explained = failures[: REASON_LINES // FEWEST_LINES]
    for failure in explained:
        print(f"== failed: {failure.what}"[:LINE_LENGTH])
        lines = [line for line in failure.lines if line.strip()]
        for line in lines[-(REASON_LINES // len(explained) - 1) :]:
            print(line[:LINE_LENGTH])
    for part in parts:
        state = part.status if part.status == "not ended" else f"exit status {part.status}"
        print(f"== {part.name:24} {part.wall_s:6.0f} s, {part.cpu_s:6.0f} s of CPU, {state}")
    # Once more, in a line each: the tracebacks above may have been cut out of the middle.
    for failure in failures[:NAMED]:
        print(f"== failed: {failure.what}"[:LINE_LENGTH])
    if len(failures) > NAMED:
        print(f"== and {len(failures) - NAMED} more")


if __name__ == "__main__":
    print_summary([read_part(Path(sys.argv[1]), name) for name in sys.argv[2:]])
