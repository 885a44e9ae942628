"""``SimulatedBroker``: a node of the cluster: its host, its disk, and the broker process that may run on it.

The process is the unchanged ``minikafka.server.broker.Broker``; only what it takes as arguments is simulated.
A broker that finds that it cannot go on (``Broker.failure``) is stopped, as ``minikafka-broker`` does.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

from minikafka.config.broker import broker_config
from minikafka.server.broker import Broker
from minikafka.testing.broker import Property, property_text
from minikafka.testing.simulation.disk import SimulatedDisk
from minikafka.testing.simulation.errors import SimulationError
from minikafka.testing.simulation.host_clock import HostClock
from minikafka.testing.simulation.inodes import Survival
from minikafka.testing.simulation.process import Process

if TYPE_CHECKING:
    from minikafka.testing.simulation.simulation import Simulation

PORT = 9092
LOG_DIRECTORY = "/data"

DEFAULTS: dict[str, Property] = {
    "log.dirs": LOG_DIRECTORY,
    # 8,000 entries; the default of 10 MiB would be most of a simulation's memory.
    "log.index.size.max.bytes": 64 * 1024,
}


class SimulatedBroker:
    """Made by ``Simulation.start_broker``. Everything but ``start`` and ``stop`` takes effect at once."""

    def __init__(self, simulation: Simulation, node_id: int) -> None:
        self.node_id = node_id
        self.host = simulation.network.host(f"broker-{node_id}")
        self.clock = HostClock(simulation.loop, self.host)
        self.disk = SimulatedDisk(
            rng=simulation.rng(f"disk of {self.host.name}"),
            now_ms=self.clock.now_ms,
            note=lambda event, detail: simulation.notes.add(self.host.name, event, detail),
        )
        self.config: dict[str, Property] = {}
        self.failure: BaseException | None = None
        """Why the broker stopped by itself, if it did."""
        self._simulation = simulation
        self._server: Broker | None = None

    def __repr__(self) -> str:
        return f"SimulatedBroker({self.node_id}, {self.host.process})"

    @property
    def is_running(self) -> bool:
        """Whether there is a process, paused or not."""
        return self.host.process is not None and not self.host.process.is_dead

    @property
    def has_started(self) -> bool:
        """Whether there is a process, and it has come up."""
        return self.is_running and self._server is not None

    @property
    def process(self) -> Process:
        """The running process. Raises SimulationError when there is none."""
        if self.host.process is None or self.host.process.is_dead:
            raise SimulationError(f"broker {self.node_id} is not running")
        return self.host.process

    @property
    def server(self) -> Broker:
        """The running broker itself, to look inside. Raises SimulationError when it has not started."""
        if self._server is None or not self.is_running:
            raise SimulationError(f"broker {self.node_id} is not running")
        return self._server

    @property
    def address(self) -> tuple[str, int]:
        """Name and port that clients connect to."""
        return self.host.name, PORT

    async def start(self, config: Mapping[str, Property] | None = None) -> None:
        """Start a process; with the configuration of last time where ``config`` says nothing else.

        Raises:
            StartError: the broker does not want to.
            HostDiedError: it was killed meanwhile.
        """
        self.config |= config or {}
        self.failure = None
        self._server = None
        had_power = self.host.is_up
        process = self.host.boot(self._simulation.loop)
        if not had_power:
            self._simulation.network.power_restored(self.host)
        self._note("started", process.number)
        try:
            self._server = await process.run(self._start(process))
        except Exception:
            if not process.is_dead:
                self._exit(process)
            raise
        process.start(self._watch(self._server, process), name=f"watch broker {self.node_id}")

    async def stop(self) -> None:
        """Stop cleanly, as SIGTERM does."""
        process, server = self.process, self.server
        self._note("stopping")
        await process.run(server.stop())
        self._exit(process)

    async def restart(self) -> None:
        """Stop cleanly if it runs, and start."""
        if self.is_running:
            await self.stop()
        await self.start()

    def kill(self) -> None:
        """SIGKILL: no more code runs. Its kernel closes its connections; what was written stays written."""
        process = self.process
        self._note("killed")
        process.kept.append(self._server)
        self._exit(process)

    def power_off(self, survival: Survival | None = None) -> None:
        """The machine goes dark: unsynced data may be lost (by dice, or as ``survival`` says), and nobody
        hears anything."""
        process = self.process
        self._note("power off")
        process.kept.append(self._server)
        process.kill()
        self._simulation.network.power_lost(process)
        self.disk.power_lost(survival)

    def pause(self) -> None:
        """SIGSTOP: the process does nothing, its kernel still takes what comes."""
        self._note("paused")
        self.process.pause()

    def resume(self) -> None:
        """SIGCONT."""
        self._note("resumed")
        self.process.resume()

    async def _start(self, process: Process) -> Broker:
        """In the new process."""
        properties: dict[str, Property] = {
            "node.id": self.node_id,
            "listeners": f"PLAINTEXT://{self.host.name}:{PORT}",
            **DEFAULTS,
            **self.config,
        }
        server = Broker(
            broker_config({name: property_text(value) for name, value in properties.items()}),
            clock=self.clock,
            files=self.disk.mount(),
            rng=self._rng("broker", process),
            open_store=lambda config, clock: self._simulation.open_store(
                self.host, clock, rng=self._rng("store client", process)
            ),
        )
        process.kept.append(server)
        await server.start()
        return server

    async def _watch(self, server: Broker, process: Process) -> None:
        """In the broker's process, outside of the broker."""
        self.failure = await server.failure
        self._note("failed", repr(self.failure))
        await server.stop()
        self._exit(process)

    def _exit(self, process: Process) -> None:
        """The process is gone; the kernel tidies up behind it."""
        process.kill()
        self._simulation.network.process_killed(process)
        self.disk.process_killed()

    def _rng(self, purpose: str, process: Process) -> random.Random:
        return self._simulation.rng(f"{purpose} of {self.host.name} in life {process.number}")

    def _note(self, event: str, detail: object = "") -> None:
        self._simulation.notes.add(self.host.name, event, detail)
