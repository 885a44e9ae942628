"""How the replication stories are played: each in a simulation of its own, under the invariant checker.

A story is a coroutine that is given a ``Cluster`` (``minikafka.testing.stories``). What it expects is a
picture of the logs, and so is what it says when it fails.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from minikafka.testing.broker import Property
from minikafka.testing.simulation.invariants import InvariantChecker
from minikafka.testing.simulation.simulation import Simulation
from minikafka.testing.stories import PARTITION, TOPIC, A, B, C, Cluster, D, E

__all__ = ["PARTITION", "TOPIC", "A", "B", "C", "Cluster", "D", "E", "play"]

SEED = 7
LAG_TIME_MAX_MS = 2_000
SESSION_TIMEOUT_MS = 6_000
CONFIG: Mapping[str, Property] = {
    "replica.lag.time.max.ms": LAG_TIME_MAX_MS,
    "replica.fetch.backoff.ms": 100,
    "controlled.shutdown.retry.backoff.ms": 500,
}

Story = Callable[["Cluster"], Awaitable[None]]


def play(
    story: Story,
    *,
    replicas: Sequence[int] = (A, B, C),
    min_isr: int = 1,
    unclean: bool = False,
    loses_committed: bool = False,
    controllers: Sequence[int] = (D,),
    config: Mapping[str, Property] | None = None,
    seed: int = SEED,
) -> list[str]:
    """Run ``story``. Returns the trace. What it raises carries a picture of the logs at that moment.

    Args:
        replicas: the assignment; the first leads.
        unclean: of the topic, ``unclean.leader.election.enable``.
        loses_committed: the story is about records that are lost although they were committed.
        controllers: brokers without replicas, the controller first.
        config: of all brokers, beside ``CONFIG``.
    """
    simulation = Simulation(seed, session_timeout_ms=SESSION_TIMEOUT_MS)

    async def run(simulation: Simulation) -> None:
        cluster = Cluster(simulation, replicas)
        for node_id in (*controllers, *sorted(replicas)):
            await simulation.start_broker(node_id, {**CONFIG, **(config or {})})
        configs = {
            "min.insync.replicas": str(min_isr),
            "unclean.leader.election.enable": str(unclean).lower(),
        }
        await cluster.client.create_topic(TOPIC, assignment=[replicas], configs=configs)
        await cluster.until_isr(*replicas)
        is_safe = not unclean and not loses_committed
        cluster.checker = InvariantChecker(simulation, clean_elections=is_safe)
        cluster.checker.start()
        try:
            await story(cluster)
            if is_safe:
                cluster.expect_acked()
        except Exception as error:
            error.add_note(cluster.picture())
            raise
        cluster.checker.look()

    simulation.run(run)
    return simulation.trace
