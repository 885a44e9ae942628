"""What a throttle does to moves of 200 MiB, as it was published for Kafka 2.5, under virtual time.

``minikafka reassign execute`` runs inside the simulation, so its estimate is tested too. Estimates and
outcomes are printed as a table at the end of the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from minikafka.testing.simulation import SimulatedClient, Simulation
from minikafka.testing.simulation.client import make_batch
from minikafka.units import format_bytes
from tests.conftest import Report
from tests.sim.throttled_moves import (
    LARGE_VALUE_BYTES,
    SEED,
    SMALL_VALUE_BYTES,
    MovingCluster,
    run_experiment,
)
from tests.support.throttle_experiments import (
    FULL_SIZE_BYTES,
    NOTHING_SHARED,
    ONCE,
    ONE_MOVE,
    RATE,
    SAME_SOURCE,
    SAME_TARGET,
    TOPIC,
    TWICE,
    Experiment,
    Outcome,
    plan_of,
    table,
)

ANSWER_BYTES_MAX = 2 * (SMALL_VALUE_BYTES + 100)
"""What a follower that catches up gets at once: two batches."""
LOAD_S = 300
QUOTA_WINDOWS_S = 11
"""``replication.quota.window.num`` windows of ``replication.quota.window.size.seconds``."""


class Pieces(NamedTuple):
    """How large the answers are that a follower gets, and what a move may take then, measured in the
    estimate."""

    name: str
    value_bytes: int
    of_estimate: tuple[float, float]


SMALL_PIECES = Pieces("pieces of 254 kB", SMALL_VALUE_BYTES, (0.97, 1.06))
"""As in Kafka, a follower that is held back asks again after a second (``replica.fetch.backoff.ms``), one
that waits at the leader after half of one (``replica.fetch.wait.max.ms``), and what is not used of the quota
meanwhile is forgotten with its window, after eleven seconds. That costs two to four percent; with 50 ms for
both it costs nothing."""
LARGE_PIECES = Pieces("pieces of 1 MB", LARGE_VALUE_BYTES, (0.88, 1.0))
"""The quota is asked before a fetch is recorded: it is overdrawn by so much."""


class Experiments:
    """The outcome of each experiment, which is run when it is first asked for."""

    def __init__(self, pieces: Pieces, directory: Path) -> None:
        self.pieces = pieces
        self._directory = directory
        self._outcomes: dict[Experiment, Outcome] = {}

    def outcome(self, experiment: Experiment) -> Outcome:
        if experiment not in self._outcomes:
            self._outcomes[experiment] = run_experiment(
                experiment,
                self._directory,
                size_bytes=FULL_SIZE_BYTES,
                bytes_per_s=RATE,
                value_bytes=self.pieces.value_bytes,
            )
        return self._outcomes[experiment]

    def table(self) -> list[str]:
        return table(list(self._outcomes.values()))


@pytest.fixture(scope="module", params=[SMALL_PIECES, LARGE_PIECES], ids=lambda pieces: pieces.name)
def experiments(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, report_at_the_end: Report
) -> Iterator[Experiments]:
    experiments = Experiments(request.param, tmp_path_factory.mktemp("plans"))
    experiments.outcome(ONE_MOVE)  # whatever else is asked for is compared with it
    yield experiments
    report_at_the_end(f"throttled moves under virtual time, {request.param.name}", experiments.table())


@pytest.mark.parametrize(
    "experiment", [ONE_MOVE, SAME_SOURCE, SAME_TARGET, NOTHING_SHARED], ids=lambda experiment: experiment.name
)
def test_a_throttled_move_takes_as_long_as_was_said_beforehand(
    experiments: Experiments, experiment: Experiment
) -> None:
    outcome = experiments.outcome(experiment)
    least, most = experiments.pieces.of_estimate
    assert least * outcome.estimate_ms <= outcome.took_ms <= most * outcome.estimate_ms


@pytest.mark.parametrize("experiment", [SAME_SOURCE, SAME_TARGET], ids=lambda experiment: experiment.name)
def test_two_moves_that_share_a_broker_take_about_twice_as_long_as_one(
    experiments: Experiments, experiment: Experiment
) -> None:
    least, most = TWICE
    one_ms = experiments.outcome(ONE_MOVE).took_ms
    assert least * one_ms <= experiments.outcome(experiment).took_ms <= most * one_ms


def test_two_moves_with_nothing_in_common_take_as_long_as_one(experiments: Experiments) -> None:
    least, most = ONCE
    one_ms = experiments.outcome(ONE_MOVE).took_ms
    assert least * one_ms <= experiments.outcome(NOTHING_SHARED).took_ms <= most * one_ms


class Load:
    """A producer with acks=all and a consumer that follows it; how long each record takes."""

    PAUSE_S = 0.2

    def __init__(self, cluster: MovingCluster, seconds: int) -> None:
        self._producer = cluster.client
        self._consumer = SimulatedClient(cluster.addresses, client_id="consumer")
        self._count = round(seconds / self.PAUSE_S)
        self._sent_s: dict[int, float] = {}
        self.produce_s: list[float] = []
        self.consume_s: list[float] = []

    async def run(self, first_offset: int) -> None:
        consuming = asyncio.create_task(self._consume(first_offset))
        loop = asyncio.get_running_loop()
        for number in range(self._count):
            sent_s = loop.time()
            self._sent_s[first_offset + number] = sent_s
            offset = await self._producer.produce(TOPIC, 0, make_batch([b"while it stands still"]))
            assert offset == first_offset + number
            self.produce_s.append(loop.time() - sent_s)
            await asyncio.sleep(self.PAUSE_S)
        await consuming

    async def _consume(self, offset: int) -> None:
        end = offset + self._count
        while offset < end:
            fetched = await self._consumer.fetch(TOPIC, 0, offset, max_wait_ms=500)
            now_s = asyncio.get_running_loop().time()
            for record in fetched.records:
                self.consume_s.append(now_s - self._sent_s[record.offset])
                offset = record.offset + 1


def test_at_one_byte_a_second_a_move_stands_still_and_no_other_client_notices(
    tmp_path: Path, report_at_the_end: Report
) -> None:
    """The first fetch passes, because the quota is asked before it is recorded. While records come, those
    that the in-sync follower gets keep the leader's quota exceeded: it is listed too. When none come, the
    quota forgets after its windows, and one more fetch passes; Kafka's does the same."""
    plan = plan_of([1, 3])
    lines: list[str] = []

    async def story(simulation: Simulation) -> None:
        cluster = MovingCluster(simulation, tmp_path)
        await cluster.start([1, 2])
        await cluster.fill(FULL_SIZE_BYTES)
        await cluster.until_isr(1, 1, 2)
        said = (await cluster.reassign(plan, "--throttle=1", "--no-wait")).said
        assert "to 1 follower; about 2426 d" in said, said
        await asyncio.sleep(5)
        first_bytes = cluster.log_bytes(3)
        assert 0 < first_bytes <= ANSWER_BYTES_MAX, "one fetch has passed"

        load = Load(cluster, seconds=LOAD_S)
        await load.run(await cluster.client.log_end(TOPIC, 0))
        assert cluster.log_bytes(3) == first_bytes, "and no other"
        assert max(load.produce_s) < 0.1 and max(load.consume_s) < 0.1
        await cluster.until_isr(1, 1, 2)

        await asyncio.sleep(6 * QUOTA_WINDOWS_S)
        crept_bytes = cluster.log_bytes(3) - first_bytes
        assert 0 < crept_bytes <= 6 * ANSWER_BYTES_MAX

        done = await cluster.reassign(plan, "--throttle=100MB", "--additional")
        assert done.took_ms < 10_000
        await cluster.until_isr(1, 1, 3)
        assert cluster.log_bytes(3) == cluster.log_bytes(1)
        produce_ms, consume_ms = (1000 * max(each) for each in (load.produce_s, load.consume_s))
        lines.extend(
            (
                f"the first fetch        {format_bytes(first_bytes)}",
                f"then, under load       nothing in {LOAD_S} s; produce with acks=all within "
                f"{produce_ms:.0f} ms, consume within {consume_ms:.0f} ms",
                f"then, without load     {format_bytes(crept_bytes)} in {6 * QUOTA_WINDOWS_S} s",
                f"then, at 100 MB/s      done in {done.took_ms / 1000:.1f} s",
            )
        )

    Simulation(SEED).run(story)
    report_at_the_end("a throttle of 1 byte/s", lines)
