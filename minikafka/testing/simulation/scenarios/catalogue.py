"""The scenarios by name: how each is drawn from a seed, and how it is played.

``faults``         three brokers, two idempotent producers with acks=all, four steps of faults
``reassignments``  four brokers; an administrator moves the partitions meanwhile
``transactions``   three brokers, two transactional producers that write to both partitions
``swarm``          each seed draws its own cluster, clients, administrator and kinds of faults (``swarm``)
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from minikafka.testing.simulation.scenarios.administrator import (
    Administrator,
    check_hosts,
    draw_moves,
    until_moved,
)
from minikafka.testing.simulation.scenarios.cluster_run import CONFIG, SESSION_TIMEOUT_MS, Call, ClusterRun
from minikafka.testing.simulation.scenarios.faults import carry_out, draw_steps
from minikafka.testing.simulation.scenarios.plan import TOPIC, Plan, Producer
from minikafka.testing.simulation.scenarios.swarm import TIMEOUTS_MS, SwarmRun, draw_swarm
from minikafka.testing.simulation.scenarios.transactions import CONFIG as TRANSACTIONS_CONFIG
from minikafka.testing.simulation.scenarios.transactions import TransactionRun
from minikafka.testing.simulation.simulation import Simulation

PARTITIONS = 2
REPLICAS = 3
TIME_LIMIT_MS = 600_000
"""Ten times what a plan takes, so that one that waits for ever ends soon."""


class Scenario(NamedTuple):
    """``draw`` makes a plan of a seed's dice, ``play`` carries one out and raises what is wrong."""

    draw: Callable[[int, random.Random], Plan]
    play: Callable[[Simulation, Plan], Awaitable[ClusterRun]]


class Played(NamedTuple):
    """What a run that went well was."""

    acked: int
    """Records, or transactions, that were acknowledged."""
    virtual_ms: int
    faults: Counter[str]
    """How many of each kind."""
    calls: list[Call]
    trace: list[str]


def _draw_faults(seed: int, rng: random.Random) -> Plan:
    brokers = range(1, 4)
    producers = tuple(
        Producer(partition=each, timeout_ms=rng.choice(TIMEOUTS_MS)) for each in range(PARTITIONS)
    )
    return Plan(
        scenario="faults", seed=seed, brokers=len(brokers), partitions=PARTITIONS, replicas=REPLICAS,
        config=CONFIG, producers=producers, steps=draw_steps(rng, brokers),
    )  # fmt: skip


def _draw_reassignments(seed: int, rng: random.Random) -> Plan:
    brokers = range(1, 5)
    producers = tuple(
        Producer(partition=each, timeout_ms=rng.choice(TIMEOUTS_MS)) for each in range(PARTITIONS)
    )
    return Plan(
        scenario="reassignments", seed=seed, brokers=len(brokers), partitions=PARTITIONS, replicas=REPLICAS,
        config=CONFIG, producers=producers, steps=draw_steps(rng, brokers),
        actions=draw_moves(rng, brokers, PARTITIONS),
    )  # fmt: skip


def _draw_transactions(seed: int, rng: random.Random) -> Plan:
    brokers = range(1, 4)
    return Plan(
        scenario="transactions", seed=seed, brokers=len(brokers), partitions=PARTITIONS, replicas=REPLICAS,
        config={**CONFIG, **TRANSACTIONS_CONFIG}, transactions=2, steps=draw_steps(rng, brokers),
    )  # fmt: skip


async def _play_faults(simulation: Simulation, plan: Plan) -> ClusterRun:
    run = ClusterRun(simulation, plan)
    await run.start()
    run.produce()
    await carry_out(run, plan.steps)
    await run.finish()
    return run


async def _play_reassignments(simulation: Simulation, plan: Plan) -> ClusterRun:
    run = ClusterRun(simulation, plan)
    await run.start()
    run.produce()
    administrator = Administrator(run)
    working = asyncio.create_task(administrator.work())
    await carry_out(run, plan.steps)
    await working
    await until_moved(run, [TOPIC])
    await run.finish()
    check_hosts(run, TOPIC)
    assert administrator.accepted or not plan.actions, "no move was ever accepted: this has shown nothing"
    return run


async def _play_transactions(simulation: Simulation, plan: Plan) -> ClusterRun:
    run = TransactionRun(simulation, plan)
    await run.start()
    run.produce()
    await carry_out(run, plan.steps)
    await run.finish()
    return run


async def _play_swarm(simulation: Simulation, plan: Plan) -> ClusterRun:
    run = SwarmRun(simulation, plan)
    await run.play()
    return run


SCENARIOS: dict[str, Scenario] = {
    "faults": Scenario(_draw_faults, _play_faults),
    "reassignments": Scenario(_draw_reassignments, _play_reassignments),
    "transactions": Scenario(_draw_transactions, _play_transactions),
    "swarm": Scenario(draw_swarm, _play_swarm),
}


def draw(scenario: str, seed: int) -> Plan:
    """The plan of a seed. Raises KeyError: there is no such scenario."""
    return SCENARIOS[scenario].draw(seed, random.Random(f"{seed}/plan of {scenario}"))


def play(plan: Plan, simulation: Simulation | None = None) -> Played:
    """Carry out a plan. Raises what went wrong: AssertionError and InvariantError for what must hold."""
    simulation = simulation or simulation_of(plan)

    async def scenario(simulation: Simulation) -> ClusterRun:
        return await SCENARIOS[plan.scenario].play(simulation, plan)

    run = simulation.run(scenario, time_limit_ms=TIME_LIMIT_MS)
    virtual_ms = simulation.loop.now_ns // 1_000_000
    return Played(len(run.acked), virtual_ms, run.faults_done, run.calls, simulation.trace)


def simulation_of(plan: Plan) -> Simulation:
    """A world for it."""
    return Simulation(plan.seed, session_timeout_ms=SESSION_TIMEOUT_MS)
