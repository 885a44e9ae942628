"""``python -m tests.fuzz``: fuzzing guided by coverage (atheris, which is libFuzzer for Python).

    run [TARGET…] --minutes M --jobs N    fuzz, keep what covers more, write findings
    minimize [TARGET…]                    keep of each corpus the least that covers as much
    replay TARGET FILE…                   run inputs once, without atheris
    list                                  the targets, and how large their corpora are

The corpus of a run is in ``--work``, beside the findings; ``minimize`` brings it into ``tests/fuzz/corpus``,
which ``test_corpus`` replays. The input of a finding goes there by hand, once its cause is mended.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.fuzz import campaign
from tests.fuzz.target import judge
from tests.fuzz.targets import TARGETS


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.split("\n")[0])
    actions = parser.add_subparsers(dest="action", required=True)
    for name in ("run", "minimize"):
        action = actions.add_parser(name)
        action.add_argument("targets", nargs="*", metavar="TARGET", help="by default all")
        action.add_argument(
            "--work", type=Path, default=campaign.WORK, help="where corpora and findings grow"
        )
        if name == "run":
            action.add_argument("--minutes", type=float, default=10, help="for all targets together")
            action.add_argument("--jobs", type=int, default=1, help="targets side by side")
        else:
            action.add_argument(
                "--bytes", type=int, default=campaign.CORPUS_BYTES_MAX, help="at most, a target"
            )
    replay = actions.add_parser("replay")
    replay.add_argument("target", choices=sorted(TARGETS))
    replay.add_argument("files", nargs="+", type=Path, metavar="FILE")
    actions.add_parser("list")
    return parser


def main() -> int:
    """Returns the exit status: 1 when there are findings."""
    parser = _parser()
    arguments = parser.parse_args()
    if arguments.action == "list":
        for name in TARGETS:
            files = campaign.corpus_files(campaign.CORPUS / name)
            print(f"{name:20} {len(files):4} inputs {sum(len(path.read_bytes()) for path in files):7} bytes")
        return 0
    if arguments.action == "replay":
        return _replay(arguments.target, arguments.files)
    unknown = sorted(set(arguments.targets) - set(TARGETS))
    if unknown:
        parser.error(f"there is no target {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    names = arguments.targets or list(TARGETS)
    if arguments.action == "minimize":
        return campaign.minimize(names, work=arguments.work, bytes_max=arguments.bytes)
    return campaign.run(names, work=arguments.work, minutes=arguments.minutes, jobs=arguments.jobs)


def _replay(name: str, files: list[Path]) -> int:
    findings = 0
    for path in files:
        finding = judge(TARGETS[name], path.read_bytes(), with_memory=True)
        findings += finding is not None
        print(
            f"{path}: as it should" if finding is None else f"{path}: {finding.signature}\n{finding.details}"
        )
    return int(findings > 0)


if __name__ == "__main__":
    sys.exit(main())
