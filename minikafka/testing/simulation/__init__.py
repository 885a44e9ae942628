"""A whole cluster in one thread, under virtual time, from a seed.

The broker is the unchanged one; its event loop, network, disk, store, clock and dice are simulated. Minutes
pass in milliseconds, and one seed gives the same run each time::

    from minikafka.testing.simulation import Simulation, SimulatedClient
    from minikafka.testing.simulation.client import make_batch

    async def story(sim: Simulation) -> None:
        broker = await sim.start_broker(1, {"log.flush.interval.messages": 1})
        client = SimulatedClient([broker.address])
        await client.create_topic("orders")
        offset = await client.deliver("orders", 0, make_batch([b"one", b"two"]))
        broker.power_off()
        await asyncio.sleep(10)
        await broker.start()
        assert len(await client.read_all("orders")) == 2

    def test_story() -> None:
        Simulation(seed=7).run(story)

What can be done to the world, and where:

=====================================  =================================================================
brokers (``SimulatedBroker``)          ``start stop restart kill power_off pause resume``, ``server`` inside
the network (``sim.network``)          ``cut heal delay drop isolate rejoin heal_all``, each direction alone
the store (``sim.store``)              ``expire_session disconnect``, and cuts of its links (``"store"``)
disks (``broker.disk``)                ``fault`` (``simulation.disk``), ``power_lost``
clocks, disk speed (``broker.host``)   ``clock_skew_ms``, ``disk_delay_ms``
=====================================  =================================================================

A run fails when anything fails that is not awaited, when nothing can happen any more, and when the code
under test reads a real clock or throws real dice. ``sim.trace`` says what happened.

The modules, from the ground up: ``loop``; ``transport``, ``network``; ``disk``; ``store``;
``simulation``; ``client``; ``invariants``. Random faults from many seeds: ``scenarios`` and ``campaign``,
see ``docs/how-to/simulation.md``.
"""

from __future__ import annotations

from minikafka.testing.simulation.client import SimulatedClient, SimulatedProducer
from minikafka.testing.simulation.simulation import SimulatedBroker, Simulation

__all__ = ["SimulatedBroker", "SimulatedClient", "SimulatedProducer", "Simulation"]
