"""``python -m tests.sim SEED [reassignments]``: one seed of random faults, or of an operator
during faults, with what the brokers log and its trace."""

from __future__ import annotations

import logging
import sys

from minikafka.testing.simulation.simulation import Simulation
from tests.sim.random_faults import SESSION_TIMEOUT_MS, random_faults
from tests.sim.random_reassignments import random_reassignments


def main() -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(name)s %(levelname)s %(message)s")
    simulation = Simulation(int(sys.argv[1]), session_timeout_ms=SESSION_TIMEOUT_MS)
    try:
        acked = simulation.run(random_reassignments if "reassignments" in sys.argv else random_faults)
    finally:
        print("\n".join(simulation.trace))
    print(f"{acked} records acked")


if __name__ == "__main__":
    main()
