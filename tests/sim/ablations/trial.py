"""``python -m tests.sim.ablations.trial FIRST LAST SCENARIO…``, run in a patched copy: seeds until one fails.

Prints ``at SEED SCENARIO`` before each, and what went wrong with the first that fails. A seed that takes more
CPU time than ``SEED_CPU_S_MAX`` ends the process: its last line names the seed.
"""

from __future__ import annotations

import logging
import resource
import sys
import warnings
from typing import Final

from minikafka.testing.simulation.campaign import ACKED_MIN, draw, play

SEED_CPU_S_MAX: Final = 100
"""Many times what a seed takes: with a defect the code may run in circles."""


def main() -> None:
    first, last, *scenarios = sys.argv[1:]
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")  # tasks of a run that has failed, of which nothing waits any more
    for seed in range(int(first), int(last) + 1):
        for scenario in scenarios:
            print(f"at {seed} {scenario}", flush=True)
            _limit_cpu_time()
            try:
                acked = play(draw(scenario, seed)).acked
            except BaseException as error:  # noqa: BLE001 whatever it is, it is what was looked for
                print(" | ".join(f"{type(error).__name__}: {error}".splitlines()[:2]), flush=True)
                return
            if acked < ACKED_MIN[scenario]:  # in a sound run there is always more
                print(f"only {acked} were acknowledged", flush=True)
                return
    print("survived", flush=True)


def _limit_cpu_time() -> None:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(usage.ru_utime + usage.ru_stime) + SEED_CPU_S_MAX, hard))


if __name__ == "__main__":
    main()
