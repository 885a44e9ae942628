"""Fuzzing of several targets, each in a process of its own (``worker``), and what comes of it.

Findings are kept by what is wrong (``Finding.signature``), one input each. What a worker takes for slow it
has run with the counters of coverage in it, so this process judges once more without them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.fuzz.target import Finding, judge
from tests.fuzz.targets import TARGETS

ROOT: Final = Path(__file__).resolve().parents[2]
CORPUS: Final = Path(__file__).resolve().parent / "corpus"
WORK: Final = ROOT / ".fuzz"
CORPUS_BYTES_MAX: Final = 6 * 1024
"""Of one target, in the repository."""


def corpus_files(directory: Path) -> list[Path]:
    """Its inputs, the smallest first; none when there is no such directory."""
    if not directory.is_dir():
        return []
    return sorted(
        (path for path in directory.iterdir() if path.is_file()), key=lambda path: (path.stat().st_size, path)
    )


def run(names: list[str], *, work: Path, minutes: float, jobs: int) -> int:
    """Fuzz, an equal share of the time for each. Prints a line a target; 1 when there are findings."""
    seconds = max(2, round(minutes * 60 * jobs / len(names)))
    with ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(lambda name: _fuzzed(name, work, seconds), names))
    print(f"{sum(executions for executions, _ in found):,} executions", flush=True)
    return int(any(count for _, count in found))


def _fuzzed(name: str, work: Path, seconds: int) -> tuple[int, int]:
    """Executions, and how many findings stand."""
    counted = re.search(r"number_of_executed_units: (\d+)", _worker(name, work, "fuzz", str(seconds)))
    executions = int(counted[1]) if counted else 0
    kept = 0
    for path in corpus_files(work / name / "findings"):
        if path.suffix:
            continue
        finding = judge(TARGETS[name], path.read_bytes(), with_memory=True)
        if finding is None:
            path.unlink()
            path.with_suffix(".txt").unlink(missing_ok=True)
            continue
        kept += 1
        _tell(name, path, finding)
    print(f"{name:20} {executions:>12,} executions, {kept} findings", flush=True)
    return executions, kept


def _tell(name: str, path: Path, finding: Finding) -> None:
    last = finding.details.strip().splitlines()[-1]
    print(f"  {name}: {finding.signature}: {last[:200]}\n    {path}", flush=True)


def minimize(names: list[str], *, work: Path, bytes_max: int) -> int:
    """Bring into the repository what covers most with the fewest bytes. Inputs of findings stay
    (``finding-…``)."""
    for name in names:
        chosen = json.loads(_worker(name, work, "cover", str(bytes_max)).splitlines()[-1])
        directory = CORPUS / name
        directory.mkdir(parents=True, exist_ok=True)
        contents = [Path(path).read_bytes() for path in chosen]
        for path in corpus_files(directory):
            if not path.name.startswith("finding-"):
                path.unlink()
        for place, content in enumerate(contents):
            (directory / f"{place:03}").write_bytes(content)
        print(f"{name:20} {len(contents)} inputs, {sum(map(len, contents))} bytes", flush=True)
    return 0


def _worker(name: str, work: Path, *arguments: str) -> str:
    """Run it; what it printed. What it prints last says how it went."""
    (work / name / "corpus").mkdir(parents=True, exist_ok=True)
    (work / name / "findings").mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tests.fuzz.worker", name, str(work / name), *arguments]
    log = work / name / "log"
    with log.open("w") as file:
        ended = subprocess.run(command, cwd=ROOT, stdout=file, stderr=file, check=False)
    printed = log.read_text(errors="replace")
    if ended.returncode and "libFuzzer" not in printed:
        raise SystemExit(f"{name}: the worker ended with {ended.returncode}: {log}")
    return printed
