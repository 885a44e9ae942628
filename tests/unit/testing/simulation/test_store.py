"""The simulated store on a simulated network: what ZooKeeper's clients go through. (What a store must do in
any case is in ``tests/unit/coordination/test_store_contract.py``.)"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.coordination.store import (
    ConnectionLossError,
    CoordinationStore,
    CreateOp,
    EventType,
    NodeExistsError,
    SessionEvent,
    SessionExpiredError,
    SessionState,
    StoreError,
    WatchEvent,
)
from minikafka.testing.simulation.loop import Process
from minikafka.testing.simulation.simulation import STORE, HostClock, Simulation
from minikafka.testing.simulation.store import Hello, Request, Write

TIMEOUT_MS = 9_000
CONNECTED, DISCONNECTED, EXPIRED = SessionState.CONNECTED, SessionState.DISCONNECTED, SessionState.EXPIRED


class Member:
    """A host with a store client, which notes what it is told."""

    def __init__(self, sim: Simulation, name: str) -> None:
        self.name = name
        self.sim = sim
        self.process: Process = sim.boot(name)
        self.states: list[SessionState] = []
        self.events: list[WatchEvent] = []
        self.store: CoordinationStore

    async def open(self) -> Member:
        async def start() -> None:
            host = self.process.host
            clock = HostClock(self.sim.loop, host)
            self.store = await self.sim.open_store(host, clock, rng=self.sim.rng(f"store client {self.name}"))
            self.store.add_session_listener(self._changed)

        await self.process.run(start())
        return self

    def _changed(self, event: SessionEvent) -> None:
        self.states.append(event.state)

    async def call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return await self.process.run(coroutine)

    def cut(self, *, to_store: bool = True, from_store: bool = True) -> None:
        if to_store:
            self.sim.network.cut(self.name, STORE)
        if from_store:
            self.sim.network.cut(STORE, self.name)

    def heal(self) -> None:
        self.sim.network.heal(self.name, STORE)
        self.sim.network.heal(STORE, self.name)


def story(
    scenario: Callable[[Simulation, Member, Member], Coroutine[Any, Any, None]], *, seed: int = 1
) -> None:
    async def run(sim: Simulation) -> None:
        await scenario(sim, await Member(sim, "a").open(), await Member(sim, "b").open())

    Simulation(seed, session_timeout_ms=TIMEOUT_MS).run(run)


@pytest.mark.parametrize("seed", range(5))
def test_a_session_is_kept_by_pings_alone(seed: int) -> None:
    async def scenario(sim: Simulation, a: Member, b: Member) -> None:
        await a.call(a.store.create("/e", ephemeral=True))
        await asyncio.sleep(600)
        assert await b.call(b.store.exists("/e")) is not None
        assert a.states == []

    story(scenario, seed=seed)


def test_answers_take_their_time() -> None:
    async def scenario(sim: Simulation, a: Member, b: Member) -> None:
        sim.network.delay("a", STORE, 20)
        sim.network.delay(STORE, "a", 30)
        start = sim.loop.time()
        await a.call(a.store.create("/x"))
        assert sim.loop.time() - start == pytest.approx(0.05)

    story(scenario)


class TestCuts:
    def test_a_short_cut_is_not_noticed(self) -> None:
        async def scenario(sim: Simulation, a: Member, b: Member) -> None:
            await a.call(a.store.create("/e", ephemeral=True))
            a.cut()
            sim.loop.call_later(3, a.heal)
            start = sim.loop.time()
            await a.call(a.store.create("/x"))
            assert sim.loop.time() - start >= 3
            assert a.states == []

        story(scenario)

    @pytest.mark.parametrize("seed", range(5))
    def test_a_longer_one_is_a_lost_connection_and_then_a_new_one(self, seed: int) -> None:
        async def scenario(sim: Simulation, a: Member, b: Member) -> None:
            await a.call(a.store.create("/e", ephemeral=True))
            await asyncio.sleep(1)
            a.cut()
            with pytest.raises(ConnectionLossError):
                await a.call(a.store.get("/e"))
            assert a.states == [DISCONNECTED]
            with pytest.raises(ConnectionLossError):
                await a.call(a.store.get("/e"))
            a.heal()
            await asyncio.sleep(5)
            assert a.states == [DISCONNECTED, CONNECTED]
            assert await b.call(b.store.exists("/e")) is not None
            assert await a.call(a.store.start_session()) == a.store.session_id

        story(scenario, seed=seed)

    @pytest.mark.parametrize("seed", range(5))
    def test_a_long_one_ends_the_session_and_the_client_hears_of_it_last(self, seed: int) -> None:
        async def scenario(sim: Simulation, a: Member, b: Member) -> None:
            await a.call(a.store.create("/controller", b"a", ephemeral=True))
            await b.call(b.store.exists("/controller", watch=b.events.append))
            a.cut()
            await asyncio.sleep(TIMEOUT_MS / 1000 - 0.1 - 3)  # since the last ping at the latest
            assert b.events == []
            await asyncio.sleep(6)
            assert b.events == [WatchEvent(EventType.NODE_DELETED, "/controller")]
            assert a.states == [DISCONNECTED]
            a.heal()
            await asyncio.sleep(5)
            assert a.states == [DISCONNECTED, EXPIRED]
            with pytest.raises(SessionExpiredError):
                await a.call(a.store.create("/controller", b"a again", ephemeral=True))
            await a.call(a.store.start_session())
            assert a.states == [DISCONNECTED, EXPIRED, CONNECTED]

        story(scenario, seed=seed)

    def test_a_write_whose_answer_is_lost_has_happened(self) -> None:
        async def scenario(sim: Simulation, a: Member, b: Member) -> None:
            a.cut(to_store=False)
            with pytest.raises(ConnectionLossError):
                await a.call(a.store.create("/x"))
            assert await b.call(b.store.exists("/x")) is not None
            a.heal()
            await asyncio.sleep(5)
            with pytest.raises(NodeExistsError):
                await a.call(a.store.create("/x"))

        story(scenario)

    def test_one_that_was_lost_itself_may_happen_late_or_never(self) -> None:
        outcomes: set[tuple[bool, bool]] = set()

        async def scenario(sim: Simulation, a: Member, b: Member) -> None:
            a.cut(from_store=False)
            with pytest.raises(ConnectionLossError):
                await a.call(a.store.create("/x"))
            before = await b.call(b.store.exists("/x"))
            a.heal()
            await asyncio.sleep(5)
            outcomes.add((before is not None, await b.call(b.store.exists("/x")) is not None))

        for seed in range(12):
            story(scenario, seed=seed)
        assert outcomes == {(False, False), (False, True)}

    def test_watches_catch_up_with_what_happened_meanwhile(self) -> None:
        async def scenario(sim: Simulation, a: Member, b: Member) -> None:
            for path in ("/changed", "/same", "/deleted", "/parent"):
                await b.call(b.store.create(path))
                await a.call(a.store.get(path, watch=a.events.append))
            await a.call(a.store.children("/parent", watch=a.events.append))
            for path in ("/created", "/came-and-went"):
                await a.call(a.store.exists(path, watch=a.events.append))
            a.cut()
            await b.call(b.store.set("/changed", b"1"))
            await b.call(b.store.set("/changed", b"2"))
            await b.call(b.store.delete("/deleted"))
            await b.call(b.store.create("/parent/child"))
            await b.call(b.store.create("/created"))
            await b.call(b.store.create("/came-and-went"))
            await b.call(b.store.delete("/came-and-went"))
            await asyncio.sleep(7.6)
            assert a.states == [DISCONNECTED] and a.events == []
            a.heal()
            await asyncio.sleep(1.3)
            assert a.states == [DISCONNECTED, CONNECTED]
            assert sorted((event.path, event.type.value) for event in a.events) == [
                ("/changed", "NODE_DATA_CHANGED"),
                ("/created", "NODE_CREATED"),
                ("/deleted", "NODE_DELETED"),
                ("/parent", "NODE_CHILDREN_CHANGED"),
            ]
            await b.call(b.store.create("/came-and-went"))
            await b.call(b.store.set("/same", b""))
            await asyncio.sleep(1)
            assert [event.path for event in a.events[4:]] == ["/came-and-went", "/same"]

        story(scenario, seed=3)


def test_what_comes_on_a_connection_that_was_left_counts_until_the_next_one_stands() -> None:
    class Wires:
        def connect(self, to_server: Any, to_client: Any) -> tuple[Any, Any]:
            return SimpleNamespace(send=to_server), SimpleNamespace(send=to_client)

    async def scenario(sim: Simulation) -> None:
        def write(path: str) -> Request:
            return Request(1, Write([CreateOp(path)]))

        def forget(message: object) -> None:
            pass

        old = sim.store.connect("a", Wires(), forget)
        old.send(Hello(0, TIMEOUT_MS, 0, ()))
        old.send(write("/1"))
        new = sim.store.connect("a", Wires(), forget)
        old.send(write("/2"))
        new.send(Hello(1, TIMEOUT_MS, 0, ()))
        old.send(write("/3"))
        new.send(write("/4"))
        assert sim.store.tree.children("/") == ["1", "2", "4"]

    Simulation(1).run(scenario)


class TestScenarios:
    def test_a_session_can_be_expired_at_once(self) -> None:
        async def scenario(sim: Simulation, a: Member, b: Member) -> None:
            await a.call(a.store.create("/e", ephemeral=True))
            sim.store.expire_session(a.store.session_id)
            assert await b.call(b.store.exists("/e")) is None
            await asyncio.sleep(1)
            assert a.states == [EXPIRED]

        story(scenario)

    @pytest.mark.parametrize("seed", range(8))
    def test_a_broken_connection_comes_back_with_its_session(self, seed: int) -> None:
        async def scenario(sim: Simulation, a: Member, b: Member) -> None:
            await a.call(a.store.create("/e", ephemeral=True))
            sim.store.disconnect("a")
            with pytest.raises(ConnectionLossError):
                await a.call(a.store.create("/x"))
            await asyncio.sleep(2)
            assert a.states == [DISCONNECTED, CONNECTED]
            await a.call(a.store.set("/e", b"mine"))

        story(scenario, seed=seed)

    def test_a_paused_client_loses_its_session_and_cannot_write_after(self) -> None:
        async def scenario(sim: Simulation, a: Member, b: Member) -> None:
            await a.call(a.store.create("/controller", ephemeral=True))
            outcome: list[str] = []

            async def write_every_second() -> None:
                for number in range(100):
                    await asyncio.sleep(1)
                    try:
                        await a.store.create(f"/written-{number:03}")
                    except StoreError as error:
                        outcome.append(type(error).__name__)
                        return

            a.process.start(write_every_second())
            await asyncio.sleep(5)
            a.process.pause()
            await asyncio.sleep(30)
            written = await b.call(b.store.children("/"))
            assert "controller" not in written
            a.process.resume()
            await asyncio.sleep(10)
            assert outcome in (["SessionExpiredError"], ["ConnectionLossError"])
            assert a.states[-1] is EXPIRED
            assert await b.call(b.store.children("/")) == written

        story(scenario)

    def test_a_killed_client_leaves_its_session_to_time(self) -> None:
        async def scenario(sim: Simulation, a: Member, b: Member) -> None:
            await a.call(a.store.create("/e", ephemeral=True))
            sim.kill(a.process)
            await asyncio.sleep(5)
            assert await b.call(b.store.exists("/e")) is not None
            await asyncio.sleep(10)
            assert await b.call(b.store.exists("/e")) is None

        story(scenario)
