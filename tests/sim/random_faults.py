"""Faults drawn from a seed, one or two at a time, each of which ends."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from minikafka.testing.simulation.invariants import hosted_partitions
from minikafka.testing.simulation.simulation import SimulatedBroker, Simulation
from minikafka.types import TopicPartition
from tests.sim.cluster_run import ClusterRun

SESSION_TIMEOUT_MS = 6_000
FAULTS = 4
FAULT_MS_MAX = 9_000
"""Longer than a session, so that some faults are and some are not noticed as a death."""
POLL_MS = 5
"""A follower fetches the first record of an epoch some milliseconds after the election."""


async def random_faults(simulation: Simulation) -> int:
    """The scenario of one seed. Returns how many records were acked."""
    run = ClusterRun(simulation)
    await run.start()
    run.produce()
    await faults(run, simulation.rng("faults"))
    await run.finish()
    return len(run.acked)


async def faults(run: ClusterRun, rng: random.Random) -> None:
    """``FAULTS`` times something happens to one broker or two, and ends."""
    for _ in range(FAULTS):
        await asyncio.sleep(rng.uniform(0.2, 3))
        if rng.random() < 0.5:
            await run.until_whole()
            if rng.random() < 0.6:
                await rng.choice((_power_off, _power_off_in_new_epoch))(run, rng, rng.choice(run.brokers))
                continue
        victims = rng.sample(run.brokers, rng.choice((1, 1, 1, 2)))
        await asyncio.gather(*(_fault(run, rng, victim) for victim in victims))


async def _fault(run: ClusterRun, rng: random.Random, victim: int) -> None:
    kinds: list[Callable[[ClusterRun, random.Random, int], Awaitable[None]]] = [
        _kill, _pause, _isolate, _one_way, _without_store, _slow, _clean_restart, _drop_connections,
    ]  # fmt: skip
    await rng.choice(kinds)(run, rng, victim)


def _while(rng: random.Random) -> float:
    return rng.uniform(0.05, FAULT_MS_MAX / 1000)


async def _kill(run: ClusterRun, rng: random.Random, victim: int) -> None:
    broker = run.simulation.brokers[victim]
    broker.kill()
    await asyncio.sleep(_while(rng))
    await broker.start()


async def _power_off(run: ClusterRun, rng: random.Random, victim: int) -> None:
    """Only while all replicas have everything: what two machines lose at once, none can have."""
    broker = run.simulation.brokers[victim]
    broker.power_off()
    await asyncio.sleep(_while(rng))
    await broker.start()


async def _power_off_in_new_epoch(run: ClusterRun, rng: random.Random, leader: int) -> None:
    """Like ``_power_off``, of a follower that has fetched the first records of an epoch a moment ago.

    Its new leader epoch checkpoint is then not on the disk yet; all other faults leave it seconds to get
    there. The old leader is killed, which loses nothing: what was acked is on other machines than the victim.
    """
    brokers = run.simulation.brokers
    before = {node_id: _epochs_as_follower(brokers[node_id]) for node_id in run.brokers if node_id != leader}
    brokers[leader].kill()
    victim = None
    for _ in range(FAULT_MS_MAX // POLL_MS):
        victim = next((each for each in before if _has_new_epoch(brokers[each], before[each])), None)
        if victim is not None:
            break
        await asyncio.sleep(POLL_MS / 1000)
    await asyncio.sleep(rng.uniform(0, 0.2))
    if victim is not None:
        await _power_off(run, rng, victim)
    await brokers[leader].start()


def _has_new_epoch(broker: SimulatedBroker, before: dict[TopicPartition, int]) -> bool:
    now = _epochs_as_follower(broker)
    return any(now[partition] > epoch for partition, epoch in before.items() if partition in now)


def _epochs_as_follower(broker: SimulatedBroker) -> dict[TopicPartition, int]:
    """The latest epoch in each log that another broker leads."""
    return {
        each.topic_partition: each.log.leader_epoch
        for each in hosted_partitions(broker)
        if not each.is_leader
    }


async def _pause(run: ClusterRun, rng: random.Random, victim: int) -> None:
    broker = run.simulation.brokers[victim]
    broker.pause()
    await asyncio.sleep(_while(rng))
    broker.resume()


async def _isolate(run: ClusterRun, rng: random.Random, victim: int) -> None:
    run.simulation.isolate(victim)
    await asyncio.sleep(_while(rng))
    run.simulation.rejoin(victim)


async def _one_way(run: ClusterRun, rng: random.Random, victim: int) -> None:
    network, other = run.simulation.network, rng.choice([each for each in run.brokers if each != victim])
    network.cut(f"broker-{victim}", f"broker-{other}")
    await asyncio.sleep(_while(rng))
    network.heal(f"broker-{victim}", f"broker-{other}")


async def _without_store(run: ClusterRun, rng: random.Random, victim: int) -> None:
    run.simulation.cut_store(victim)
    await asyncio.sleep(_while(rng))
    run.simulation.heal_store(victim)


async def _slow(run: ClusterRun, rng: random.Random, victim: int) -> None:
    network, other = run.simulation.network, rng.choice([each for each in run.brokers if each != victim])
    network.delay(f"broker-{victim}", f"broker-{other}", 5, 300)
    await asyncio.sleep(_while(rng))
    network.delay(f"broker-{victim}", f"broker-{other}", 0.1, 1)


async def _clean_restart(run: ClusterRun, rng: random.Random, victim: int) -> None:
    await run.simulation.brokers[victim].restart()


async def _drop_connections(run: ClusterRun, rng: random.Random, victim: int) -> None:
    for other in run.brokers:
        if other != victim:
            run.simulation.network.drop(f"broker-{victim}", f"broker-{other}")


def run_seed(seed: int) -> int:
    """Run one seed. Returns how many records were acked; raises what went wrong."""
    return Simulation(seed, session_timeout_ms=SESSION_TIMEOUT_MS).run(random_faults)
