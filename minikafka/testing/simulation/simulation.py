"""``Simulation``: a world from a seed, and what a scenario does in it; with ``SimulatedBroker``, a node of
the cluster: its host, its disk, and the broker process that may run on it.

One seed makes one sequence of delays, losses and choices; the same scenario with the same seed does the same
thing in each run and on each machine, which ``trace`` shows. Every subsystem has dice of its own, so that one
more message here does not change what a disk loses there.

The process is the unchanged ``minikafka.server.broker.Broker``; only what it takes as arguments is simulated,
such as the clock of its host (``HostClock``). A broker that finds that it cannot continue
(``Broker.failure``) is stopped, as ``minikafka-broker`` does.

While a simulation runs, no code reads a real clock, throws real dice, starts a thread or opens a socket.
minikafka's own code takes all of these as arguments, so when it asks the real world it is a mistake, which is
raised where it happens (``NondeterminismError``). Other code (aiokafka, logging, uuid) cannot be changed: it
gets virtual time and seeded dice from the functions that it knows. What took a function out of its module
before the run (``from time import monotonic``) escapes; of asyncio's that is nothing that matters. What takes
one out during the run (a module imported then) has the real function again when the run is over.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from itertools import chain
from typing import Any, TypeVar

from minikafka.clock import Clock
from minikafka.config.broker import broker_config
from minikafka.coordination.store import CoordinationStore
from minikafka.deferred import own_modules
from minikafka.protocol.records import record_codec
from minikafka.server.apis import HANDLERS
from minikafka.server.broker import Broker
from minikafka.testing.broker import Property, property_text
from minikafka.testing.simulation.disk import SimulatedDisk, Survival
from minikafka.testing.simulation.loop import (
    NS_PER_MS,
    Host,
    NondeterminismError,
    Process,
    SimulationError,
    VirtualTimeLoop,
    current_process,
    describe_tasks,
)
from minikafka.testing.simulation.network import SimulatedNetwork, Trace
from minikafka.testing.simulation.store import SESSION_TIMEOUT_MS, SimulatedEnsemble, SimulatedStore, Wire
from minikafka.testing.simulation.transport import HARDWARE, Channel

START_MS = 1_700_000_000_000
"""The wall-clock time at which every simulation begins."""

_OWN = "minikafka."
_FREE = ("minikafka.testing.",)
_DICE = (
    "betavariate", "choice", "choices", "expovariate", "gauss", "getrandbits", "normalvariate", "randbytes",
    "randint", "random", "randrange", "sample", "shuffle", "triangular", "uniform",
)  # fmt: skip

PORT = 9092
LOG_DIRECTORY = "/data"

DEFAULTS: dict[str, Property] = {
    "log.dirs": LOG_DIRECTORY,
    # 8,000 entries; the default of 10 MiB would be most of a simulation's memory.
    "log.index.size.max.bytes": 64 * 1024,
}

COLLECT_EVERY = 200_000
"""New objects between two garbage collections while a simulation runs, a few of which are in half a minute of
a cluster's time. With Python's 700 it is a tenth of the run."""

T = TypeVar("T")

CLIENT = "client"
"""The host on which the scenario itself runs."""
STORE = "store"
"""The host of the coordination store."""

TIME_LIMIT_MS = 3_600_000
"""An hour of virtual time: more than any scenario needs, so that one that waits for ever ends."""

CLOSING_ROUNDS = 10
"""``finally`` blocks may start further tasks."""


# What is not allowed, and what is in its place


class HostClock:
    """The loop's time, as the host sees it: its wall clock may be wrong, its monotonic one is not."""

    def __init__(self, loop: VirtualTimeLoop, host: Host) -> None:
        self._loop = loop
        self._host = host

    def now_ms(self) -> int:
        return START_MS + self._loop.now_ns // NS_PER_MS + self._host.clock_skew_ms

    def monotonic_ms(self) -> int:
        return self._loop.now_ns // NS_PER_MS

    def monotonic_ns(self) -> int:
        return self._loop.now_ns


@contextmanager
def guarded(loop: VirtualTimeLoop, rng: random.Random) -> Iterator[None]:
    """Keep the real world out until the block ends."""
    originals: list[tuple[Any, str, Any]] = []
    is_over = False

    def patch(module: Any, name: str, function: Callable[..., Any]) -> None:
        original = getattr(module, name)

        def guarded_function(*args: Any, **options: Any) -> Any:
            if is_over:
                return original(*args, **options)
            caller = sys._getframe(1).f_globals.get("__name__", "")
            if caller.startswith(_OWN) and not caller.startswith(_FREE):
                raise NondeterminismError(f"{caller} calls {module.__name__}.{name}(): it is an argument")
            return function(*args, **options)

        originals.append((module, name, original))
        setattr(module, name, guarded_function)

    def forbid(owner: Any, name: str, what: str) -> None:
        def forbidden(*args: Any, **options: Any) -> Any:
            raise NondeterminismError(f"{what} in a simulation")

        originals.append((owner, name, getattr(owner, name)))
        setattr(owner, name, forbidden)

    try:
        _patch_clocks(patch, loop)
        for name in _DICE:
            patch(random, name, getattr(rng, name))
        patch(os, "urandom", rng.randbytes)
        patch(random, "_urandom", rng.randbytes)  # where SystemRandom and secrets get theirs
        forbid(time, "sleep", "time.sleep(): real time passes")
        forbid(threading.Thread, "start", "Thread.start(): threads run in no order")
        forbid(socket.socket, "__init__", "socket.socket(): a real socket")
        originals.append((socket, "getfqdn", socket.getfqdn))
        socket.getfqdn = lambda name="": current_process().host.name
        originals.append((socket, "has_dualstack_ipv6", socket.has_dualstack_ipv6))
        socket.has_dualstack_ipv6 = lambda: False
        yield
    finally:
        is_over = True
        for owner, name, original in reversed(originals):
            setattr(owner, name, original)


def _patch_clocks(patch: Callable[[Any, str, Callable[..., Any]], None], loop: VirtualTimeLoop) -> None:
    start_ns = START_MS * NS_PER_MS
    patch(time, "time", lambda: (start_ns + loop.now_ns) / 1e9)
    patch(time, "time_ns", lambda: start_ns + loop.now_ns)
    patch(time, "monotonic", loop.time)
    patch(time, "monotonic_ns", lambda: loop.now_ns)
    patch(time, "perf_counter", loop.time)
    patch(time, "perf_counter_ns", lambda: loop.now_ns)
    patch(time, "clock_gettime", lambda clock: loop.time())
    patch(time, "clock_gettime_ns", lambda clock: loop.now_ns)


# Brokers


class SimulatedBroker:
    """Made by ``Simulation.start_broker``. Everything but ``start`` and ``stop`` takes effect at once."""

    def __init__(self, simulation: Simulation, node_id: int) -> None:
        self.node_id = node_id
        self.host = simulation.network.host(f"broker-{node_id}")
        self.clock = HostClock(simulation.loop, self.host)
        self.disk = SimulatedDisk(
            rng=simulation.rng(f"disk of {self.host.name}"),
            now_ms=self.clock.now_ms,
            note=partial(simulation.notes.add, self.host.name),
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
        return self.started_server is not None

    @property
    def started_server(self) -> Broker | None:
        """The running broker itself; None until it has come up."""
        process = self.host.process
        return None if process is None or process.is_dead else self._server

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
        """SIGKILL: no more code runs. Its kernel closes its connections; what was written is kept."""
        process = self.process
        self._note("killed")
        process.kept.append(self._server)
        self._exit(process)

    def power_off(self, survival: Survival | None = None) -> None:
        """The machine goes dark: unsynced data may be lost (by dice, or as ``survival`` says), and no peer
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


# The simulation


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let garbage wait for longer until the block ends."""
    thresholds = gc.get_threshold()
    gc.set_threshold(COLLECT_EVERY, 10, 10)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


class Simulation:
    """A cluster's world. One run each.

    Args:
        seed: everything that is left to chance.
        session_timeout_ms: of the brokers' store sessions.
    """

    def __init__(self, seed: int, *, session_timeout_ms: int = SESSION_TIMEOUT_MS) -> None:
        self.seed = seed
        self.loop = VirtualTimeLoop(rng=self.rng("executors"))
        self.notes = Trace(self.loop)
        self.network = SimulatedNetwork(self.loop, rng=self.rng("network"), trace=self.notes)
        self.brokers: dict[int, SimulatedBroker] = {}
        """By node id, running or not."""
        self.store = SimulatedEnsemble(
            clock=HostClock(self.loop, self.network.host(STORE)),
            rng=self.rng("store"),
            note=self.notes.add,
            context=HARDWARE,
        )
        self._session_timeout_ms = session_timeout_ms
        self._processes: list[Process] = []
        self._overdue: str | None = None

    def __repr__(self) -> str:
        return f"Simulation(seed {self.seed}, {self.loop.time():.3f} s, {list(self.brokers.values())})"

    @property
    def trace(self) -> list[str]:
        """What has happened so far, a line each."""
        return self.notes.lines()

    def rng(self, purpose: str) -> random.Random:
        """Dice of their own for ``purpose``; the same ones whenever the seed is the same."""
        return random.Random(f"{self.seed}/{purpose}")

    def run(
        self, scenario: Callable[[Simulation], Coroutine[Any, Any, T]], *, time_limit_ms: int = TIME_LIMIT_MS
    ) -> T:
        """Run ``scenario(self)`` to its end, on the host ``client``, and return what it returns.

        Whatever still runs then is gone without a trace, as after a power cut.

        Raises:
            OrphanError: a callback or a task that is not awaited failed.
            StalledError: nothing can happen any more.
            SimulationError: it is not done after ``time_limit_ms`` of virtual time.
            Exception: what the scenario raises.
        """
        # Before the guard: what is imported later might keep a simulated clock. And all of it: a broker that
        # found something left to load would draw other numbers than the brokers of later simulations.
        record_codec.load()
        for name in chain(HANDLERS.modules(), own_modules()):
            import_module(name)
        process = self.boot(CLIENT)
        try:
            with guarded(self.loop, self.rng("other people's code")), rare_collections():
                main = process.start(scenario(self), name="scenario")
                self.loop.call_later(
                    time_limit_ms / 1000, self._is_overdue, main, time_limit_ms, context=HARDWARE
                )
                try:
                    result = self.loop.run_until_complete(main)
                except asyncio.CancelledError:
                    if self._overdue is None:
                        raise
                    raise SimulationError(self._overdue) from None
                self.loop.check_orphans()
        except Exception as error:
            error.add_note(f"simulation with seed {self.seed}, after {self.loop.time():.6f} s")
            raise
        finally:
            self._take_down()
        return result

    def boot(self, name: str) -> Process:
        """A new process on a host, for clients: ``await sim.boot("client-2").run(work())``."""
        process = self.network.host(name).boot(self.loop)
        self._processes.append(process)
        return process

    def kill(self, process: Process) -> None:
        """SIGKILL for a client; brokers have a ``kill`` of their own."""
        process.kill()
        self.network.process_killed(process)

    # Brokers

    async def start_broker(
        self, node_id: int, config: Mapping[str, Property] | None = None
    ) -> SimulatedBroker:
        """Start a broker, a new one or one that is down. Raises StartError."""
        broker = self.brokers.get(node_id)
        if broker is None:
            broker = self.brokers[node_id] = SimulatedBroker(self, node_id)
        await broker.start(config)
        return broker

    async def open_store(self, host: Host, clock: Clock, *, rng: random.Random) -> CoordinationStore:
        """A client of the store for the process that calls. Raises ConnectionLossError."""
        return await SimulatedStore.open(
            self.store,
            client=host.name,
            wiring=_NetworkWiring(self.network, host.name),
            clock=clock,
            rng=rng,
            session_timeout_ms=self._session_timeout_ms,
        )

    # Links. ``self.network`` has the rest.

    def isolate(self, node_id: int) -> None:
        """Cut a broker off from all others."""
        self.network.isolate(self.brokers[node_id].host.name)

    def rejoin(self, node_id: int) -> None:
        """End what ``isolate`` did."""
        self.network.rejoin(self.brokers[node_id].host.name)

    def cut_store(self, node_id: int) -> None:
        """Cut a broker off from the store, both ways."""
        name = self.brokers[node_id].host.name
        self.network.cut(name, STORE)
        self.network.cut(STORE, name)

    def heal_store(self, node_id: int) -> None:
        """End what ``cut_store`` did."""
        name = self.brokers[node_id].host.name
        self.network.heal(name, STORE)
        self.network.heal(STORE, name)

    # The end

    def _is_overdue(self, main: asyncio.Task[Any], time_limit_ms: int) -> None:
        if not main.done():
            waiting = describe_tasks(self.loop.unfinished_tasks())
            self._overdue = f"not done after {time_limit_ms} ms of virtual time. Waiting:\n{waiting}"
            main.cancel()

    def _take_down(self) -> None:
        """End all processes. Their ``finally`` blocks run now, when there is nothing left to touch."""
        self.loop.is_over = True
        for process in [*self._processes, *(b.host.process for b in self.brokers.values())]:
            if process is not None:
                process.kill()
        for broker in self.brokers.values():
            broker.disk.process_killed()
        logging_was = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        asyncio._set_running_loop(self.loop)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for _ in range(CLOSING_ROUNDS):
                    for task in self.loop.unfinished_tasks():
                        self.loop.abandon(task)
        finally:
            asyncio._set_running_loop(None)
            logging.disable(logging_was)
            self.loop.close()


class _NetworkWiring:
    """A store client's connections, on the links between its host and the store's."""

    def __init__(self, network: SimulatedNetwork, host: str) -> None:
        self._network = network
        self._host = host

    def connect(
        self, to_server: Callable[[Any], None], to_client: Callable[[Any], None]
    ) -> tuple[Wire, Wire]:
        network, loop = self._network, self._network.loop
        return (
            Channel(network.link(self._host, STORE), to_server, loop=loop),
            Channel(network.link(STORE, self._host), to_client, loop=loop),
        )
