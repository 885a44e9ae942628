"""A minute of chaos on each store, on ZooKeeper with two brokers of Apache Kafka 3.9 among the five.
``bin/chaos --hours 8`` is the long form."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.chaos.run import ENOUGH, ChaosReport
from tests.support import commands, zookeeper

ROOT = Path(__file__).resolve().parents[2]
FAULTS_S = 45
KINDS = 3
"""At least so many kinds of faults, on a machine that has much else to do; a dozen on one that has not."""


@pytest.mark.parametrize(("store", "seed", "of_kafka"), [("sqlite", 7, 0), ("zookeeper", 2, 2)])
def test_what_clients_see_under_faults_is_what_a_log_can_do(
    store: str, seed: int, of_kafka: int, tmp_path: Path
) -> None:
    for command in ("java", "mvn", "faketime"):
        commands.skip_if_missing(command)
    zookeeper.skip_if_missing()

    options = {
        "run-seconds": FAULTS_S,
        "seed": seed,
        "store": store,
        "kafka": of_kafka,
        "dir": tmp_path,
    }
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.chaos", "--hurried"),
            *(f"--{name}={value}" for name, value in options.items()),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
    directory = tmp_path / f"seed-{seed}"
    report = msgspec.json.decode((directory / "report.json").read_bytes(), type=ChaosReport)
    assert report.is_valid
    assert report.acknowledged.keys() == {"plain", "idempotent", "transactional"}
    assert min(report.acknowledged.values()) >= ENOUGH, report
    assert report.transactions and report.polled, report
    faults = [json.loads(line) for line in (directory / "faults.jsonl").read_text().splitlines()]
    begun, ended = ({each["fault"] for each in faults if each["what"] == what} for what in ("begins", "ends"))
    assert begun == ended == report.faults.keys()
    assert len(ended) >= KINDS, report
