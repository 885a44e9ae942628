"""Faults of a whole cluster: all brokers fall at once and return one after the other, or are restarted in
turn with another configuration; the store that they all use ends sessions late.

What was acknowledged with acks=all outlives a kill of every process, since the kernels have it, and with
``flush.messages=1`` a power cut of every machine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from minikafka.testing.simulation.ensemble import LATE_EXPIRY_MS
from minikafka.testing.simulation.errors import HostDiedError
from minikafka.testing.simulation.scenarios.plan import Fault

if TYPE_CHECKING:
    from minikafka.testing.simulation.scenarios.cluster_run import ClusterRun


async def kill_all(run: ClusterRun, fault: Fault) -> None:
    """SIGKILL, everywhere at the same moment."""
    for broker in run.simulation.brokers.values():
        if broker.is_running:
            broker.kill()
    await _return(run, fault)


async def power_off_all(run: ClusterRun, fault: Fault) -> None:
    """The data centre goes dark."""
    for broker in run.simulation.brokers.values():
        broker.power_off()
    await _return(run, fault)


async def _return(run: ClusterRun, fault: Fault) -> None:
    async with asyncio.TaskGroup() as starting:
        for node_id in fault.order:
            await asyncio.sleep(fault.lasts_ms / 1000)
            starting.create_task(run.simulation.brokers[node_id].start())


async def rolling_restart(run: ClusterRun, fault: Fault) -> None:
    """Each waits for the one before, and no longer: some are restarted while partitions are not whole."""
    for node_id in fault.order:
        broker = run.simulation.brokers[node_id]
        try:
            if broker.is_running:
                await broker.stop()
        except HostDiedError:  # it stopped by itself meanwhile
            pass
        await broker.start(fault.config)
        await asyncio.sleep(fault.lasts_ms / 1000)


async def late_expiry(run: ClusterRun, fault: Fault) -> None:
    """Who is dead is taken for alive: by up to ``amount`` ms longer than ZooKeeper's tick."""
    store = run.simulation.store
    store.late_expiry_ms = fault.amount
    await asyncio.sleep(fault.lasts_ms / 1000)
    store.late_expiry_ms = LATE_EXPIRY_MS
