"""``python -m tests.sim.ablations [NAME…] --seeds 0-300 --jobs 2``: which defects are found, and when.

Each ablation runs in a copy of the package of its own until the first seed fails, or one of its stories. What
became of it is kept in ``results.jsonl``: the next run leaves out what was found, and goes on with what
survived. Exit status 1 when one survives, 2 when a patch does not apply.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path

import msgspec

from tests.sim.ablations import Ablation, PatchError, apply, copy_of_package, load, names
from tests.sim.ablations.results import Result, patch_crc, read_results, write_results

ERROR_WIDTH = 90
NAME_WIDTH = 48
STORY_OPTIONS = ("--noconftest", "-p", "no:cacheprovider", "-x", "-rf", "--tb=no")
STORY_COLUMNS = "400"
"""So that pytest says all of an error."""


def try_ablation(ablation: Ablation, first: int, last: int) -> Result:
    """Patch a copy, and run seeds ``first`` to ``last`` of each scenario with it, then its stories, until one
    fails. Raises PatchError."""
    with tempfile.TemporaryDirectory(prefix="ablation-") as name:
        directory = Path(name)
        copy_of_package(directory)
        apply(ablation, directory)
        result = _try_seeds(ablation, first, last, directory)
        if not result.is_found and ablation.stories:
            result = _try_stories(ablation, result, directory)
    return result


def _try_seeds(ablation: Ablation, first: int, last: int, directory: Path) -> Result:
    command = [sys.executable, "-m", f"{__package__}.trial", str(first), str(last), *ablation.scenarios]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    if done.returncode == 0 and lines[-1] == "survived":
        return Result(name=ablation.name, patch=patch_crc(ablation), seeds=last + 1)
    at = [line.split() for line in lines if line.startswith("at ")]
    if not at:
        raise PatchError(f"{ablation.path}: nothing could be run: {done.stderr[-2000:]}")
    error = lines[-1] if done.returncode == 0 else "it does not end"
    _, seed, scenario = at[-1]
    return Result(
        name=ablation.name, patch=patch_crc(ablation), seeds=int(seed) + 1, scenario=scenario, error=error
    )


def _try_stories(ablation: Ablation, survived: Result, directory: Path) -> Result:
    command = [sys.executable, "-m", "pytest", *STORY_OPTIONS]
    environment = {**os.environ, "COLUMNS": STORY_COLUMNS}
    done = subprocess.run(
        [*command, *ablation.stories], cwd=directory, env=environment, capture_output=True, text=True
    )
    if done.returncode == 0:
        return survived
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    if not failed:
        raise PatchError(f"{ablation.path}: no story could be told: {(done.stdout + done.stderr)[-2000:]}")
    story, _, error = failed[0].removeprefix("FAILED ").partition(" - ")
    return msgspec.structs.replace(survived, scenario=story, error=error)


def line(result: Result) -> str:
    """For readers."""
    what = f"{result.scenario}: {result.error[:ERROR_WIDTH]}" if result.is_found else "survived"
    return f"{result.name:{NAME_WIDTH}} {result.seeds:4} seeds  {what}"


def seeds_left(ablation: Ablation, result: Result | None, first: int, last: int) -> range:
    """Of those that were asked for, what its result does not have yet."""
    if result is None or result.patch != patch_crc(ablation):
        return range(first, last + 1)
    if result.is_found:
        return range(0)
    begin = max(first, result.seeds)
    return range(begin, max(begin, last + 1))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.ablations", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which; all when none is named")
    parser.add_argument("--seeds", default="0-300", help="from and to, both included")
    parser.add_argument("--jobs", type=int, default=1, help="how many at the same time")
    parser.add_argument("--scenario", action="append", help="instead of those that the patch names")
    parser.add_argument("--again", action="store_true", help="also what was tried before")
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition("-")
    try:
        ablations = [load(name) for name in arguments.names or names()]
        if arguments.scenario:
            ablations = [each._replace(scenarios=tuple(arguments.scenario)) for each in ablations]
        results = {} if arguments.again else read_results()
        with ThreadPoolExecutor(arguments.jobs) as pool:
            trying = []
            for each in ablations:
                result = results.get(each.name)
                left = seeds_left(each, result, int(first), int(last or first))
                if left or (each.stories and result is not None and not result.is_found):
                    trying.append(pool.submit(try_ablation, each, left.start, left.stop - 1))
            broken = _note_results(trying)
    except PatchError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    results = read_results()
    found = [each for each in ablations if each.name in results and results[each.name].is_found]
    print(f"{len(found)} of {len(ablations)} are found; python -m docs.generator writes the page")
    sys.exit(2 if broken else len(found) < len(ablations))


def _note_results(trying: Iterable[Future[Result]]) -> bool:
    """Write each down when it is there. Returns whether a patch could not be tried, which is said."""
    broken = False
    for tried in as_completed(trying):
        try:
            result = tried.result()
        except PatchError as error:
            print(error, file=sys.stderr)
            broken = True
            continue
        print(line(result), flush=True)
        write_results({**read_results(), result.name: result}.values())
    return broken


if __name__ == "__main__":
    main()
