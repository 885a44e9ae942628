"""Seeds in worker processes, a few ahead at a time, until all are run or the time is over.

The workers are forked from a server that has imported the broker once: a process of its own takes as long to
import it as ten seeds take.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool

from minikafka.testing.simulation.campaign.tally import Outcome, Tally
from minikafka.testing.simulation.scenarios.catalogue import draw, play

AHEAD = 2
"""Seeds that wait for each worker."""
SEEDS_A_WORKER = 400
"""Then another takes its place."""
ACKED_MIN = 10
"""A run of the small scenarios in which next to nothing was acked has shown nothing."""


def run_seed(scenario: str, seed: int) -> Outcome:
    """One seed, here. Whatever goes wrong is in the outcome."""
    logging.disable(logging.CRITICAL)
    began_s = time.process_time()
    try:
        played = play(draw(scenario, seed))
    except Exception as error:  # noqa: BLE001 - it is reported where the seeds are counted
        failure = f"{type(error).__name__}: {error}"
        return Outcome(scenario=scenario, seed=seed, cpu_s=time.process_time() - began_s, failure=failure)
    is_idle = scenario != "swarm" and played.acked < ACKED_MIN
    return Outcome(
        scenario=scenario,
        seed=seed,
        cpu_s=round(time.process_time() - began_s, 3),
        acked=played.acked,
        calls=len(played.history),
        virtual_ms=played.virtual_ms,
        faults=dict(played.faults),
        failure=f"only {played.acked} records were acked" if is_idle else "",
    )


def run_seeds(
    scenarios: Sequence[str],
    seeds: range,
    tally: Tally,
    *,
    jobs: int,
    minutes: float | None = None,
    tell: Callable[[Outcome], None],
) -> None:
    """Run those that the tally does not have, each scenario of a seed before the next seed.

    Args:
        minutes: after so many of real time no further seed is begun.
        tell: told of each outcome when it is written down.
    """
    deadline = None if minutes is None else time.monotonic() + minutes * 60
    left = (each for each in _all(scenarios, seeds) if each not in tally.outcomes)
    with worker_pool(jobs) as pool:
        running: set[Future[Outcome]] = set()
        while True:
            while len(running) < jobs * AHEAD and (deadline is None or time.monotonic() < deadline):
                following = next(left, None)
                if following is None:
                    break
                running.add(pool.submit(run_seed, *following))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                try:
                    outcome = future.result()
                except BrokenProcessPool as error:
                    raise BrokenProcessPool("a worker was killed: too little memory for --jobs?") from error
                tally.add(outcome)
                tell(outcome)


def worker_pool(jobs: int) -> ProcessPoolExecutor:
    """Workers that have all modules, and collect no garbage in them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return ProcessPoolExecutor(
        jobs, mp_context=context, initializer=gc.freeze, max_tasks_per_child=SEEDS_A_WORKER
    )


def _all(scenarios: Sequence[str], seeds: range) -> Iterator[tuple[str, int]]:
    return ((scenario, seed) for seed in seeds for scenario in scenarios)
