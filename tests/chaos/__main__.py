"""``bin/chaos``: a cluster of five processes under faults, and a judgement of what its clients saw."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.chaos.evidence import evidence
from tests.chaos.nemesis import HURRIED, UNHURRIED
from tests.chaos.run import history_of, run

RUN_S = 180


def main() -> int:
    parser = argparse.ArgumentParser(prog="bin/chaos", description=__doc__)
    parser.add_argument("--hours", type=float, default=0.0, help="run after run, for so long")
    parser.add_argument("--minutes", type=float, default=0.0, help="the same in minutes (default: one run)")
    parser.add_argument(
        "--run-seconds", type=float, default=RUN_S, help="how long each run has faults (default: %(default)s)"
    )
    parser.add_argument("--hurried", action="store_true", help="faults are shorter, and more of them")
    parser.add_argument("--seed", type=int, default=1, help="of the first run (default: %(default)s)")
    parser.add_argument(
        "--store",
        choices=("sqlite", "zookeeper", "both"),
        default="both",
        help="both: in turn (default: %(default)s)",
    )
    parser.add_argument(
        "--dir",
        type=Path,
        help="where histories and logs are kept (default: those of a failure, in a temporary one)",
    )
    parser.add_argument(
        "--kafka",
        type=int,
        default=0,
        metavar="N",
        help="so many of the five brokers are Apache Kafka 3.9's (on ZooKeeper; default: none)",
    )
    options = parser.parse_args()
    if options.kafka and options.store != "zookeeper":
        parser.error("Apache Kafka's brokers need --store zookeeper")
    keep = options.dir is not None
    base = options.dir or Path(tempfile.mkdtemp(prefix="minikafka-chaos-"))
    ends = time.monotonic() + options.hours * 3600 + options.minutes * 60
    pace = HURRIED if options.hurried else UNHURRIED
    stores = ("sqlite", "zookeeper") if options.store == "both" else (options.store,)
    seed, failed = options.seed, 0
    while True:
        store, directory = stores[seed % len(stores)], base / f"seed-{seed}"
        try:
            report = run(
                directory,
                seed=seed,
                seconds=options.run_seconds,
                store=store,
                pace=pace,
                of_kafka=options.kafka,
            )
        except AssertionError as error:
            print(f"seed {seed}, {store}: {error}\n  kept in {directory}", flush=True)
            failed += 1
        except Exception:  # noqa: BLE001 one that cannot be gone on with is told, and the next seed begins
            print(f"seed {seed}, {store}: {traceback.format_exc()}\n  kept in {directory}", flush=True)
            failed += 1
        else:
            print(report, flush=True)
            if not report.is_valid:
                failed += 1
                print(*evidence(report.anomalies(), history_of(directory), directory), sep="\n")
                print(f"  kept in {directory}", flush=True)
            elif not keep:
                shutil.rmtree(directory)
        seed += 1
        if time.monotonic() >= ends:
            break
    print(f"{seed - options.seed} runs, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
