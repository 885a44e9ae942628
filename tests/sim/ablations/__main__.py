"""``python -m tests.sim.ablations [NAME…] --seeds 0-300 --jobs 2``: which defects are found, and when.

Each ablation runs in a copy of the package of its own until the first seed fails. Exit status 1 when one
survives that must not, 2 when a patch does not apply.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.sim.ablations import Ablation, PatchError, apply, copy_of_package, load, names

ERROR_WIDTH = 90


class Verdict(NamedTuple):
    """What became of one ablation."""

    ablation: Ablation
    seed: int | None
    """The first that failed; None: all went well."""
    scenario: str
    error: str

    @property
    def is_surprise(self) -> bool:
        """Whether it survived, and nothing says that it would."""
        return self.seed is None and not self.ablation.survives

    def line(self) -> str:
        name = f"{self.ablation.name:48}"
        if self.seed is not None:
            return f"{name} {self.scenario:14} seed {self.seed:<6} {self.error[:ERROR_WIDTH]}"
        return f"{name} {self.scenario:14} survived    {self.ablation.survives[:ERROR_WIDTH]}"


def try_ablation(ablation: Ablation, first: int, last: int) -> Verdict:
    """Patch a copy and run seeds ``first`` to ``last`` of each scenario with it. Raises PatchError."""
    with tempfile.TemporaryDirectory(prefix="ablation-") as name:
        directory = Path(name)
        copy_of_package(directory)
        apply(ablation, directory)
        command = [sys.executable, "-m", f"{__package__}.trial", str(first), str(last), *ablation.scenarios]
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    at = [line.split() for line in lines if line.startswith("at ")]
    if not at:
        raise PatchError(f"{ablation.path}: nothing could be run: {done.stderr[-2000:]}")
    if done.returncode == 0 and lines[-1] == "survived":
        return Verdict(ablation, None, ", ".join(ablation.scenarios), "")
    error = lines[-1] if done.returncode == 0 else "it does not end"
    return Verdict(ablation, int(at[-1][1]), at[-1][2], error)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.ablations", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which; all when none is named")
    parser.add_argument("--seeds", default="0-300", help="from and to, both included")
    parser.add_argument("--jobs", type=int, default=1, help="how many at the same time")
    parser.add_argument("--scenario", action="append", help="instead of those that the patch names")
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition("-")
    try:
        ablations = [load(name) for name in arguments.names or names()]
        if arguments.scenario:
            ablations = [each._replace(scenarios=tuple(arguments.scenario)) for each in ablations]
        with ThreadPoolExecutor(arguments.jobs) as pool:
            tried = [pool.submit(try_ablation, each, int(first), int(last or first)) for each in ablations]
            verdicts = []
            for each in tried:
                verdicts.append(each.result())
                print(verdicts[-1].line(), flush=True)
    except PatchError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    found = [each for each in verdicts if each.seed is not None]
    print(f"{len(found)} of {len(verdicts)} were found")
    sys.exit(any(each.is_surprise for each in verdicts))


if __name__ == "__main__":
    main()
