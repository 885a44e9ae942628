"""How long a bystander waits during each attack of ``tests/hostile``, in full and on a fresh broker.

Asked: no record of the bystander later than 250 ms, in the median of three runs.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from tests.benchmarks.broker import COMMAND
from tests.hostile.attack import Attack, Outcome, all_attacks, run_beside_bystander
from tests.integration.support.process import BrokerProcess

RUNS = 3
WORST_MS_MAX = 250


def run(quick: bool) -> list[dict[str, Any]]:
    """One row an attack. ``ATTACK=text`` keeps to those with the text in their name."""
    wanted = os.environ.get("ATTACK", "")
    return [row(attack, quick=quick) for attack in all_attacks() if wanted in attack.name]


def row(attack: Attack, *, quick: bool) -> dict[str, Any]:
    outcomes = [attacked_once(attack, short=quick) for _ in range(1 if quick else RUNS)]
    worst = [outcome.bystander.worst_ms for outcome in outcomes]
    return {
        "attack": attack.name,
        "worst ms, median": statistics.median(worst),
        "worst ms of all": max(worst),
        "p99 ms, median": statistics.median(outcome.bystander.p99_ms for outcome in outcomes),
        "asked": f"≤ {WORST_MS_MAX}",
        "met": statistics.median(worst) <= WORST_MS_MAX,
        "records": sum(outcome.bystander.sent for outcome in outcomes),
        "failed": sum(outcome.bystander.failed for outcome in outcomes),
        "attacker got": outcomes[-1].said,
    }


def attacked_once(attack: Attack, *, short: bool) -> Outcome:
    with tempfile.TemporaryDirectory() as directory:
        broker = BrokerProcess(
            Path(directory) / "data",
            properties=attack.properties,
            command=COMMAND,
            descriptors_max=attack.descriptors_max,
            port=attack.port,
        )
        broker.start()
        try:
            return run_beside_bystander(attack, broker, short=short)
        finally:
            broker.kill()
