"""``python -m tests.sim SEED [reassignments | transactions]``: one seed of random faults, or of an operator
or transactions during faults, with what the brokers log and its trace."""

from __future__ import annotations

import logging
import sys

from minikafka.testing.simulation.simulation import Simulation
from tests.sim.random_faults import SESSION_TIMEOUT_MS, random_faults
from tests.sim.random_reassignments import random_reassignments
from tests.sim.random_transactions import random_transactions

SCENARIOS = {"reassignments": random_reassignments, "transactions": random_transactions}


def main() -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(name)s %(levelname)s %(message)s")
    simulation = Simulation(int(sys.argv[1]), session_timeout_ms=SESSION_TIMEOUT_MS)
    try:
        acked = simulation.run(SCENARIOS.get(sys.argv[-1], random_faults))
    finally:
        print("\n".join(simulation.trace))
    print(f"{acked} records acked")


if __name__ == "__main__":
    main()
