"""``bin/bench``: runs ``bench_*.py`` modules, shows their results as tables and keeps them as JSON.

A benchmark module has ``run(quick: bool) -> list[dict]``: one dict a row, the same keys in rows of one kind.
Each module runs in a process of its own, so that none measures what another left on the heap. The JSON
says which machine, which versions and which commit the numbers belong to.

``bin/bench profile`` takes profiles instead (``broker_profile``), ``bin/bench soak`` looks for two hours
whether a broker stays as it is (``soak``); they are none of the benchmarks.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS = ROOT / "bench-results"
PACKAGES = ("minikafka", "uvloop", "msgspec", "crc32c", "aiokafka", "confluent-kafka")

WIDTH = 160
"""Columns of a table that goes to a file."""
FIELDS_ACROSS = 14
"""Rows with more fields than that are columns of their table."""

Row = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the chosen benchmarks. Returns the exit status: 1 when one failed."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv[:1] == ["profile"]:
        from tests.benchmarks import broker_profile

        return broker_profile.main(argv[1:], machine())
    if argv[:1] == ["soak"]:
        from tests.benchmarks import soak

        return soak.main(argv[1:], machine())
    names = sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))
    options = argparse.ArgumentParser(
        prog="bin/bench",
        description=f"Benchmarks: {', '.join(names)}.",
        epilog="bin/bench profile [WORKLOAD ...] takes profiles of a broker under load; "
        "bin/bench soak runs one for hours.",
    )
    options.add_argument("names", nargs="*", metavar="NAME", help="which ones; all unless given")
    options.add_argument("--quick", action="store_true", help="shorter runs, rougher numbers")
    options.add_argument("--json", type=Path, metavar="FILE", help="where to keep the results")
    options.add_argument("--list", action="store_true", help="list the benchmarks and leave")
    options.add_argument("--one", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    arguments = options.parse_args(argv)
    if unknown := [name for name in arguments.names if name not in names]:
        options.error(f"there is no benchmark {unknown[0]}; there are {', '.join(names)}")
    if arguments.list:
        print("\n".join(names))
        return 0
    if arguments.one is not None:
        run_one(arguments.names[0], quick=arguments.quick, target=arguments.one)
        return 0
    return run_all(arguments.names or names, quick=arguments.quick, target=arguments.json)


def run_one(name: str, *, quick: bool, target: Path) -> None:
    """Run one benchmark here, and write its rows to ``target``."""
    module = importlib.import_module(f"tests.benchmarks.bench_{name}")
    target.write_text(json.dumps(module.run(quick=quick), default=str))


def run_all(names: Sequence[str], *, quick: bool, target: Path | None) -> int:
    """Run ``names`` one after the other, print tables, keep JSON. Returns the exit status."""
    report: dict[str, Any] = {"machine": machine(), "quick": quick, "results": {}}
    failed = []
    for name in names:
        rows, seconds = run_in_process(name, quick=quick)
        if rows is None:
            failed.append(name)
            continue
        report["results"][name] = {"seconds": round(seconds, 1), "rows": rows}
        show(name, rows, seconds)
    path = target or RESULTS / f"{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n")
    print(f"kept in {path}")
    if failed:
        print(f"bin/bench: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def run_in_process(name: str, *, quick: bool) -> tuple[list[Row] | None, float]:
    """The rows of one benchmark, None when it failed, and how long it took."""
    with tempfile.TemporaryDirectory() as directory:
        result = Path(directory) / "rows.json"
        command = [sys.executable, "-m", "tests.benchmarks", name, "--one", str(result)]
        started = time.perf_counter()
        status = subprocess.run([*command, *(["--quick"] if quick else [])], cwd=ROOT, check=False).returncode
        seconds = time.perf_counter() - started
        return (json.loads(result.read_text()) if status == 0 else None), seconds


def show(name: str, rows: list[Row], seconds: float) -> None:
    """One table for each kind of row (the same keys)."""
    from rich.console import Console
    from rich.table import Table

    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    kinds: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        kinds.setdefault(tuple(row), []).append(row)
    for index, (columns, members) in enumerate(kinds.items()):
        table = Table(title=f"{name} ({seconds:.0f} s)" if index == 0 else None, title_justify="left")
        if len(columns) > FIELDS_ACROSS:
            table.add_column(columns[0])
            for row in members:
                table.add_column(cell(row[columns[0]]), justify="right")
            for column in columns[1:]:
                table.add_row(column, *(cell(row[column]) for row in members))
            console.print(table)
            continue
        for column in columns:
            numeric = all(isinstance(row[column], int | float) for row in members)
            table.add_column(column, justify="right" if numeric else "left")
        for row in members:
            table.add_row(*(cell(row[column]) for column in columns))
        console.print(table)


def cell(value: Any) -> str:
    """A value as a table shows it."""
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


def machine() -> Row:
    """What the numbers depend on."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip() or "unknown",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": _cpu_model(),
        "cpus": os.cpu_count(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": versions,
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux
        return platform.processor() or "unknown"
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )


if __name__ == "__main__":
    sys.exit(main())
