"""The scenarios by name: how each is drawn from a seed, and how it is played.

``faults``         three brokers, two idempotent producers with acks=all, four steps of faults
``reassignments``  four brokers; an administrator moves the partitions meanwhile
``transactions``   three brokers, two transactional producers that write to both partitions, and a
                   read_committed consumer
``shares``         four brokers, whose partition a share group reads, and an administrator who moves it
``swarm``          each seed draws its own cluster, clients, administrator and kinds of faults (``swarm``)
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from minikafka.testing.broker import Property
from minikafka.testing.history.operations import Operation, write_history
from minikafka.testing.simulation.scenarios.administrator import (
    Administrator,
    check_hosts,
    draw_moves,
    until_moved,
)
from minikafka.testing.simulation.scenarios.cluster_run import CONFIG, SESSION_TIMEOUT_MS, ClusterRun
from minikafka.testing.simulation.scenarios.faults import FETCH_BYTES, carry_out, draw_steps
from minikafka.testing.simulation.scenarios.plan import TOPIC, Consumer, Plan, Producer
from minikafka.testing.simulation.scenarios.share_group import ShareRun, draw_shares
from minikafka.testing.simulation.scenarios.swarm import TIMEOUTS_MS, SwarmRun, draw_swarm
from minikafka.testing.simulation.scenarios.transactions import CONFIG as TRANSACTIONS_CONFIG
from minikafka.testing.simulation.scenarios.transactions import TransactionRun, draw_transactor
from minikafka.testing.simulation.simulation import Simulation

PARTITIONS = 2
REPLICAS = 3
TIME_LIMIT_MS = 600_000
"""Ten times what a plan takes, so that one that waits for ever ends soon."""


class Scenario(NamedTuple):
    """``draw`` makes a plan of a seed's dice, ``run`` carries one out and raises what is wrong."""

    draw: Callable[[int, random.Random], Plan]
    run: type[ClusterRun]


class Played(NamedTuple):
    """What a run that went well was."""

    acked: int
    """Records, or transactions, that were acknowledged."""
    virtual_ms: int
    faults: Counter[str]
    """How many of each kind."""
    history: list[Operation]
    """What clients did and were told, in the order of the answers."""
    trace: list[str]


def _draw_config(seed: int) -> dict[str, Property]:
    return {**CONFIG, "replica.fetch.max.bytes": random.Random(f"{seed}/config").choice(FETCH_BYTES)}


def _draw_faults(seed: int, rng: random.Random) -> Plan:
    brokers = range(1, 4)
    producers = tuple(
        Producer(partition=each, timeout_ms=rng.choice(TIMEOUTS_MS)) for each in range(PARTITIONS)
    )
    return Plan(
        scenario="faults", seed=seed, brokers=len(brokers), partitions=PARTITIONS, replicas=REPLICAS,
        config=_draw_config(seed), producers=producers, steps=draw_steps(rng, brokers),
    )  # fmt: skip


def _draw_reassignments(seed: int, rng: random.Random) -> Plan:
    brokers = range(1, 5)
    producers = tuple(
        Producer(partition=each, timeout_ms=rng.choice(TIMEOUTS_MS)) for each in range(PARTITIONS)
    )
    return Plan(
        scenario="reassignments", seed=seed, brokers=len(brokers), partitions=PARTITIONS, replicas=REPLICAS,
        config=_draw_config(seed), producers=producers, steps=draw_steps(rng, brokers),
        actions=draw_moves(rng, brokers, PARTITIONS),
    )  # fmt: skip


def _draw_transactions(seed: int, rng: random.Random) -> Plan:
    brokers = range(1, 4)
    return Plan(
        scenario="transactions", seed=seed, brokers=len(brokers), partitions=PARTITIONS, replicas=REPLICAS,
        config={**_draw_config(seed), **TRANSACTIONS_CONFIG},
        transactors=tuple(draw_transactor(rng) for _ in range(2)), consumers=(Consumer(read_committed=True),),
        steps=draw_steps(rng, brokers),
    )  # fmt: skip


class ReassignmentRun(ClusterRun):
    """With an administrator who moves the partitions."""

    async def play(self) -> None:
        await self.start()
        self.produce()
        administrator = Administrator(self)
        working = asyncio.create_task(administrator.work())
        await carry_out(self, self.plan.steps)
        await working
        await until_moved(self, [TOPIC])
        await self.finish()
        check_hosts(self, TOPIC)
        assert administrator.accepted or not self.plan.actions, (
            "no move was ever accepted: this has shown nothing"
        )


SCENARIOS: dict[str, Scenario] = {
    "faults": Scenario(_draw_faults, ClusterRun),
    "reassignments": Scenario(_draw_reassignments, ReassignmentRun),
    "transactions": Scenario(_draw_transactions, TransactionRun),
    "shares": Scenario(draw_shares, ShareRun),
    "swarm": Scenario(draw_swarm, SwarmRun),
}


def draw(scenario: str, seed: int) -> Plan:
    """The plan of a seed. Raises KeyError: there is no such scenario."""
    return SCENARIOS[scenario].draw(seed, random.Random(f"{seed}/plan of {scenario}"))


def play(plan: Plan, simulation: Simulation | None = None, *, history: Path | None = None) -> Played:
    """Carry out a plan. Raises what went wrong: AssertionError and InvariantError for what must hold.

    Args:
        history: where to write what clients did and were told, also when something goes wrong.
    """
    simulation = simulation or simulation_of(plan)
    run = SCENARIOS[plan.scenario].run(simulation, plan)

    async def scenario(simulation: Simulation) -> None:
        await run.play()

    try:
        simulation.run(scenario, time_limit_ms=TIME_LIMIT_MS)
    finally:
        if history is not None:
            write_history(history, run.recorder.history())
    virtual_ms = simulation.loop.now_ns // 1_000_000
    return Played(run.acked, virtual_ms, run.faults_done, run.recorder.history(), simulation.trace)


def simulation_of(plan: Plan) -> Simulation:
    """A world for it."""
    return Simulation(plan.seed, session_timeout_ms=SESSION_TIMEOUT_MS)
