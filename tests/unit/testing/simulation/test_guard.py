"""While a simulation runs, the real world is out of reach."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import socket
import sys
import threading
import time
import types
import uuid
from typing import Any

import pytest

from minikafka.testing.simulation.loop import NondeterminismError, SimulationError
from minikafka.testing.simulation.simulation import START_MS, Simulation


def call_from(module: str, source: str) -> Any:
    """The value of an expression as if that module evaluated it."""
    names = {"__name__": module, "os": os, "random": random, "time": time, "uuid": uuid}
    return types.FunctionType(compile(source, module, "eval"), names)()


@pytest.mark.parametrize(
    "source", ["time.time()", "time.monotonic()", "random.random()", "random.choice([1])", "os.urandom(4)"]
)
def test_minikafkas_own_code_must_not_ask(source: str) -> None:
    async def scenario(sim: Simulation) -> None:
        with pytest.raises(NondeterminismError, match=r"minikafka\.server\.new calls"):
            call_from("minikafka.server.new", source)

    Simulation(1).run(scenario)


def test_others_get_virtual_time_and_seeded_dice() -> None:
    async def scenario(sim: Simulation) -> list[object]:
        await asyncio.sleep(3)
        assert time.monotonic() == time.perf_counter() == 3
        assert time.time() * 1000 == START_MS + 3000
        return [
            random.random(),
            random.sample(range(100), 5),
            os.urandom(8),
            uuid.uuid4(),
            secrets.token_bytes(4),
            random.SystemRandom().random(),
        ]

    first = Simulation(7).run(scenario)
    assert first == Simulation(7).run(scenario)
    other = Simulation(8).run(scenario)
    assert all(mine != theirs for mine, theirs in zip(first, other, strict=True))


def test_no_sleep_no_thread_and_no_socket() -> None:
    async def scenario(sim: Simulation) -> None:
        for call in (
            lambda: time.sleep(0),
            threading.Thread(target=print).start,
            lambda: socket.socket(),
        ):
            with pytest.raises(NondeterminismError):
                call()
        assert socket.getfqdn() == "client"

    Simulation(1).run(scenario)


def test_afterwards_everything_is_as_it_was() -> None:
    before = (
        time.time,
        time.sleep,
        random.random,
        os.urandom,
        socket.socket.__init__,
        threading.Thread.start,
    )
    kept: list[Any] = []

    async def scenario(sim: Simulation) -> None:
        kept.append(time.time)
        raise ValueError("even so")

    with pytest.raises(ValueError, match="even so"):
        Simulation(1).run(scenario)
    assert before == (
        time.time, time.sleep, random.random, os.urandom, socket.socket.__init__, threading.Thread.start,
    )  # fmt: skip
    assert abs(kept[0]() - time.time()) < 60, "also what was kept"


def test_a_scenario_that_never_ends_is_ended_and_says_where_it_was() -> None:
    async def scenario(sim: Simulation) -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(10)

    with pytest.raises(
        SimulationError, match=r"not done after 60000 ms(?s:.*)client: scenario: .*test_guard"
    ):
        Simulation(1).run(scenario, time_limit_ms=60_000)


def test_importing_the_kit_of_brokers_does_not_import_the_simulation() -> None:
    """A pytest run without simulations stays quick."""
    code = "import sys, minikafka.testing, minikafka.testing.pytest_plugin; print(*sys.modules)"
    import subprocess

    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "minikafka.testing.broker" in modules.split()
    assert not [name for name in modules.split() if name.startswith("minikafka.testing.simulation")]
