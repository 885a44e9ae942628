"""A seed is one story, wherever it is told."""

from __future__ import annotations

import subprocess
import sys

TOLD_TWICE = """
import asyncio
from minikafka.testing.simulation.simulation import Simulation

async def scenario(simulation):
    await simulation.start_broker(1)
    await asyncio.sleep(5)  # of virtual time: until all that was deferred is loaded

def trace():
    simulation = Simulation(7)
    simulation.run(scenario)
    return simulation.trace

first, second = trace(), trace()
assert len(first) > 10 and first == second
"""


def test_the_first_of_a_process_is_as_any_other() -> None:
    """Nothing that is loaded once in a process takes part in it."""
    done = subprocess.run([sys.executable, "-c", TOLD_TWICE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
