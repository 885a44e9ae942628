"""200 seeds of faults, 100 with an operator who moves partitions meanwhile, 60 with transactions: no acked
record is lost, no invariant breaks, the cluster heals, every move ends, and transactions are all or nothing;
reproducibly.

A seed that fails is run again alone with ``python -m tests.sim SEED [reassignments | transactions]``, which
prints its trace.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial

import pytest

from minikafka.testing.simulation.simulation import Simulation
from tests.sim import random_faults, random_reassignments, random_transactions
from tests.sim.random_faults import SESSION_TIMEOUT_MS

SEEDS = 200
SEEDS_OF_REASSIGNMENTS = 100
SEEDS_OF_TRANSACTIONS = 60
SEEDS_PER_TEST = 20
ACKED_MIN = 20
"""A run in which next to nothing was acked has shown nothing."""


def _outcome(run_seed: Callable[[int], int], seed: int) -> str | None:
    """None: the seed went well; else what went wrong."""
    logging.disable(logging.CRITICAL)
    try:
        acked = run_seed(seed)
    except BaseException as error:  # noqa: BLE001 it is reported where the seeds are counted
        return f"seed {seed}: {error!r}"
    return None if acked >= ACKED_MIN else f"seed {seed}: only {acked} records were acked"


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_whatever_fails_no_acked_record_is_lost(pool: Executor, first: int) -> None:
    assert _failures(pool, random_faults.run_seed, first) == []


@pytest.mark.parametrize("first", range(0, SEEDS_OF_REASSIGNMENTS, SEEDS_PER_TEST))
def test_partitions_that_move_during_faults_lose_nothing_and_arrive(pool: Executor, first: int) -> None:
    assert _failures(pool, random_reassignments.run_seed, first) == []


@pytest.mark.parametrize("first", range(0, SEEDS_OF_TRANSACTIONS, SEEDS_PER_TEST))
def test_transactions_during_faults_are_all_or_nothing(pool: Executor, first: int) -> None:
    assert _failures(pool, random_transactions.run_seed, first) == []


@pytest.fixture(scope="module")
def pool() -> Iterator[Executor]:
    """One for all tests: a new process takes as long to load the broker as a seed takes."""
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as started:
        yield started


def _failures(pool: Executor, run_seed: Callable[[int], int], first: int) -> list[str]:
    outcomes = list(pool.map(partial(_outcome, run_seed), range(first, first + SEEDS_PER_TEST)))
    return [outcome for outcome in outcomes if outcome is not None]


@pytest.mark.parametrize("seed", [3, 14])
def test_a_seed_does_the_same_thing_twice(seed: int) -> None:
    traces = []
    for _ in range(2):
        simulation = Simulation(seed, session_timeout_ms=SESSION_TIMEOUT_MS)
        simulation.run(random_faults.random_faults)
        traces.append(simulation.trace)
    assert traces[0] == traces[1]
    assert len(traces[0]) > 500
