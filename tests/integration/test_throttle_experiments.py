"""The throttle's experiments of ``tests/sim`` with broker processes, in real time, at a fortieth of the size.

A move takes 17 seconds, so two clusters work side by side: all that they do is wait for a quota.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from minikafka.units import format_bytes
from tests.conftest import Report
from tests.integration.conftest import StartCluster, assert_no_traceback
from tests.integration.support import confluent
from tests.integration.support.clients import Client
from tests.integration.support.cluster import ProcessCluster, SqliteEngine
from tests.integration.support.load import Load
from tests.integration.support.process import bytes_of
from tests.integration.support.records import Record
from tests.support.throttle_experiments import (
    FULL_SIZE_BYTES,
    NOTHING_SHARED,
    ONE_MOVE,
    RATE,
    SAME_SOURCE,
    SAME_TARGET,
    TOPIC,
    Experiment,
    Outcome,
    plan_of,
    table,
)

pytestmark = pytest.mark.minikafka_only

SIZE_BYTES = FULL_SIZE_BYTES // 40
RECORD_BYTES = 32 * 1024
BATCH_BYTES = 128 * 1024
"""Two of them are what a follower that catches up gets at once."""
BROKERS = 4
LANES = (ONE_MOVE, SAME_SOURCE), (NOTHING_SHARED, SAME_TARGET)
"""What each of the two clusters does, one after the other."""
OF_ESTIMATE = (0.9, 1.3)
TWICE = (1.5, 2.2)
ONCE = (0.8, 1.25)
"""In real time the command has to start, and looks once a second whether all is done; a machine is busy."""
FIRST_FETCH_BYTES_MAX = 300_000
"""``CATCH_UP_BYTES_MAX``, and the fields around it."""
LOAD_S = 10.0


def make_topic(cluster: ProcessCluster, topic: str, *replicas: Sequence[int]) -> int:
    """Partitions of ``SIZE_BYTES``. Returns how large they are indeed."""
    client = confluent.admin(cluster.bootstrap)
    wanted = NewTopic(topic, len(replicas), replica_assignment=list(map(list, replicas)))
    client.create_topics([wanted])[topic].result(confluent.DEADLINE_S)
    records = [Record(None, bytes(RECORD_BYTES))] * (SIZE_BYTES // RECORD_BYTES)
    for partition, each in enumerate(replicas):
        cluster.wait_until_moved(topic, *each, partition=partition)
        confluent.write(cluster.bootstrap, topic, records, partition=partition, batch_size=BATCH_BYTES)
    return log_bytes(cluster, replicas[0][0], topic)


def log_bytes(cluster: ProcessCluster, node_id: int, topic: str) -> int:
    """The size of partition 0 on a broker."""
    return bytes_of(cluster.brokers[node_id].files(topic, ".log"))


def execute(cluster: ProcessCluster, plan: str, *options: str) -> str:
    """What ``minikafka reassign execute`` says; it must end well."""
    command = [sys.executable, "-m", "minikafka.cli.main", "reassign", "execute", "-b", cluster.bootstrap]
    done = subprocess.run(
        [*command, "--reassignment-json-file=-", *options],
        input=plan,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_experiment(cluster: ProcessCluster, experiment: Experiment) -> Outcome:
    topic = experiment.name.replace(" ", "-")
    size_bytes = make_topic(cluster, topic, *([source] for source, _ in experiment.moves))
    started = time.perf_counter()
    said = execute(cluster, experiment.plan(topic), f"--throttle={RATE}")
    took_ms = (time.perf_counter() - started) * 1000
    assert f"from {len({source for source, _ in experiment.moves})} leader" in said
    estimate = experiment.estimate(size_bytes)
    for partition, (_, target) in enumerate(experiment.moves):
        cluster.wait_until_moved(topic, target, partition=partition)
    return Outcome(experiment, estimate, took_ms)


@pytest.fixture
def two_clusters(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[ProcessCluster]]:
    made = []
    for name in ("one", "other"):
        directory = tmp_path / name
        directory.mkdir()
        properties = {"min.insync.replicas": 1}
        made.append(
            ProcessCluster(directory, SqliteEngine(directory), brokers=BROKERS, properties=properties)
        )
    request.node.brokers = [broker for cluster in made for broker in cluster.brokers.values()]
    try:
        yield [cluster.start() for cluster in made]
    finally:
        for cluster in made:
            cluster.close()
    for broker in request.node.brokers:
        assert_no_traceback(broker)


@pytest.mark.timing
def test_throttled_moves_take_as_long_as_was_said_beforehand(
    two_clusters: list[ProcessCluster], report_at_the_end: Report
) -> None:
    def run(cluster: ProcessCluster, lane: Sequence[Experiment]) -> list[Outcome]:
        return [run_experiment(cluster, experiment) for experiment in lane]

    with ThreadPoolExecutor(len(LANES)) as pool:
        outcomes = [each for lane in pool.map(run, two_clusters, LANES) for each in lane]
    report_at_the_end("throttled moves in real time", table(outcomes))
    took_ms = {outcome.experiment: outcome.took_ms for outcome in outcomes}
    for outcome in outcomes:
        assert OF_ESTIMATE[0] <= outcome.took_ms / outcome.estimate_ms <= OF_ESTIMATE[1], outcome
    for experiment, (least, most) in ((SAME_SOURCE, TWICE), (SAME_TARGET, TWICE), (NOTHING_SHARED, ONCE)):
        assert least <= took_ms[experiment] / took_ms[ONE_MOVE] <= most, experiment.name


def bytes_of_the_first_fetch(cluster: ProcessCluster) -> int:
    """When all of it is in the file: a busy machine lets a look at it come in between two writes."""
    confluent.wait_until(lambda: log_bytes(cluster, 3, TOPIC) > 0, "the first fetch has begun")
    written = 0
    while written != (written := log_bytes(cluster, 3, TOPIC)):
        time.sleep(1)
    return written


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_at_one_byte_a_second_a_move_stands_still_and_nothing_else_does(
    start_cluster: StartCluster, clients: dict[str, Client], report_at_the_end: Report
) -> None:
    cluster = start_cluster()
    make_topic(cluster, TOPIC, [1, 2])
    plan = plan_of([1, 3])
    execute(cluster, plan, "--throttle=1", "--no-wait")
    first_bytes = bytes_of_the_first_fetch(cluster)
    assert first_bytes <= FIRST_FETCH_BYTES_MAX

    with Load(cluster.bootstrap, [TOPIC]) as load:
        time.sleep(LOAD_S)  # what is shown is that nothing happens
    assert log_bytes(cluster, 3, TOPIC) == first_bytes
    assert cluster.isr(TOPIC) == (1, 2)
    assert load.longest_gap_s() < 1
    load.check(cluster.bootstrap, clients["aiokafka"])

    started = time.perf_counter()
    execute(cluster, plan, "--throttle=100MB", "--additional")
    cluster.wait_until_moved(TOPIC, 1, 3)
    lines = [
        f"the first fetch        {format_bytes(first_bytes)}",
        f"then, under load       nothing in {LOAD_S:.0f} s; {len(load.acked[TOPIC])} records acked with "
        f"acks=all, {load.longest_gap_s() * 1000:.0f} ms between two at most",
        f"then, at 100 MB/s      done in {time.perf_counter() - started:.1f} s",
    ]
    report_at_the_end("a throttle of 1 byte/s, in real time", lines)
