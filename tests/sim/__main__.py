"""``python -m tests.sim SEED``: one seed of the random faults, with what the brokers log and its trace."""

from __future__ import annotations

import logging
import sys

from minikafka.testing.simulation.simulation import Simulation
from tests.sim.random_faults import SESSION_TIMEOUT_MS, random_faults


def main() -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(name)s %(levelname)s %(message)s")
    simulation = Simulation(int(sys.argv[1]), session_timeout_ms=SESSION_TIMEOUT_MS)
    try:
        acked = simulation.run(random_faults)
    finally:
        print("\n".join(simulation.trace))
    print(f"{acked} records acked")


if __name__ == "__main__":
    main()
