"""Scenarios by name, each drawn from a seed and played; seeds in worker processes, a few ahead at a time,
until all are run or the time is over; what came of them, and how a plan that fails is made smaller.

``faults``         three brokers, two idempotent producers with acks=all, four steps of faults
``reassignments``  four brokers; an administrator moves the partitions meanwhile
``transactions``   three brokers, two transactional producers that write to both partitions, and a
                   read_committed consumer
``shares``         four brokers, whose partition a share group reads, and an administrator who moves it
``swarm``          each seed draws its own cluster, clients, administrator and kinds of faults (``swarm``)

The workers are forked from a server that has imported the broker once: a process of its own takes as long to
import it as ten seeds take.

The tally has one JSON line for each seed that was run, in ``tally.jsonl`` of a directory. A run that is
interrupted leaves whole lines, but for the last; it goes on with the seeds that have none.

A plan that fails is shrunk: there is less and less in it, for as long as it fails in the same way. Greedy, as
delta debugging is: large parts first, then single ones, then shorter times. A plan with less in it is another
run, in which the same dice fall elsewhere, so what is left need not be the smallest there is.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import multiprocessing
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from minikafka.testing.broker import Property
from minikafka.testing.history import Operation, write_history
from minikafka.testing.simulation.scenarios.administrator import (
    Administrator,
    check_hosts,
    draw_moves,
    until_moved,
)
from minikafka.testing.simulation.scenarios.cluster_run import CONFIG, SESSION_TIMEOUT_MS, ClusterRun
from minikafka.testing.simulation.scenarios.faults import FETCH_BYTES, carry_out, draw_steps
from minikafka.testing.simulation.scenarios.plan import TOPIC, Consumer, Fault, Plan, Producer, Step
from minikafka.testing.simulation.scenarios.share_group import ShareRun, draw_shares
from minikafka.testing.simulation.scenarios.swarm import TIMEOUTS_MS, SwarmRun, draw_swarm
from minikafka.testing.simulation.scenarios.transactions import CONFIG as TRANSACTIONS_CONFIG
from minikafka.testing.simulation.scenarios.transactions import TransactionRun, draw_transactor
from minikafka.testing.simulation.simulation import Simulation

PARTITIONS = 2
REPLICAS = 3
TIME_LIMIT_MS = 600_000
"""Ten times what a plan takes, so that one that waits for ever ends soon."""

FILE = "tally.jsonl"

_encoder = msgspec.json.Encoder()

AHEAD = 2
"""Seeds that wait for each worker."""
SEEDS_A_WORKER = 400
"""Then another takes its place."""
ACKED_MIN = {"faults": 10, "transactions": 5, "reassignments": 10, "shares": 10, "swarm": 0}
"""A run of the small scenarios in which next to nothing was acked has shown nothing. Transactions are counted
whole; four come when the faults are over."""

SHORT_MS = 100
"""What a time is halved down to."""
OPTIONAL_SETTINGS: Final = frozenset(
    {
        "auto.leader.rebalance.enable",
        "controlled.shutdown.retry.backoff.ms",
        "group.initial.rebalance.delay.ms",
        "log.flush.offset.checkpoint.interval.ms",
        "log.roll.ms",
        "offsets.topic.num.partitions",
        "replica.fetch.max.bytes",
        "replica.selector.class",
        "transaction.state.log.num.partitions",
    }
)
"""Without any of the others a cluster promises less, or takes longer than the checks wait: another failure,
which is none of the broker's, would look like the one that is sought."""


class Scenario(NamedTuple):
    """``draw`` makes a plan of a seed's dice, ``run`` carries one out and raises what is wrong."""

    draw: Callable[[int, random.Random], Plan]
    run: type[ClusterRun]


class Played(NamedTuple):
    """What a run that went well was."""

    acked: int
    """Records, or transactions, that were acknowledged."""
    virtual_ms: int
    faults: Counter[str]
    """How many of each kind."""
    history: list[Operation]
    """What clients did and were told, in the order of the answers."""
    trace: list[str]


def _draw_config(seed: int) -> dict[str, Property]:
    return {**CONFIG, "replica.fetch.max.bytes": random.Random(f"{seed}/config").choice(FETCH_BYTES)}


def _draw_faults(seed: int, rng: random.Random) -> Plan:
    brokers = range(1, 4)
    producers = tuple(
        Producer(partition=each, timeout_ms=rng.choice(TIMEOUTS_MS)) for each in range(PARTITIONS)
    )
    return Plan(
        scenario="faults", seed=seed, brokers=len(brokers), partitions=PARTITIONS, replicas=REPLICAS,
        config=_draw_config(seed), producers=producers, steps=draw_steps(rng, brokers),
    )  # fmt: skip


def _draw_reassignments(seed: int, rng: random.Random) -> Plan:
    brokers = range(1, 5)
    producers = tuple(
        Producer(partition=each, timeout_ms=rng.choice(TIMEOUTS_MS)) for each in range(PARTITIONS)
    )
    return Plan(
        scenario="reassignments", seed=seed, brokers=len(brokers), partitions=PARTITIONS, replicas=REPLICAS,
        config=_draw_config(seed), producers=producers, steps=draw_steps(rng, brokers),
        actions=draw_moves(rng, brokers, PARTITIONS),
    )  # fmt: skip


def _draw_transactions(seed: int, rng: random.Random) -> Plan:
    brokers = range(1, 4)
    return Plan(
        scenario="transactions", seed=seed, brokers=len(brokers), partitions=PARTITIONS, replicas=REPLICAS,
        config={**_draw_config(seed), **TRANSACTIONS_CONFIG},
        transactors=tuple(draw_transactor(rng) for _ in range(2)), consumers=(Consumer(read_committed=True),),
        steps=draw_steps(rng, brokers),
    )  # fmt: skip


class ReassignmentRun(ClusterRun):
    """With an administrator who moves the partitions."""

    async def play(self) -> None:
        await self.start()
        self.produce()
        administrator = Administrator(self)
        working = asyncio.create_task(administrator.work())
        await carry_out(self, self.plan.steps)
        await working
        await until_moved(self, [TOPIC])
        await self.finish()
        check_hosts(self, TOPIC)
        assert administrator.accepted or not self.plan.actions, (
            "no move was ever accepted: this has shown nothing"
        )


SCENARIOS: dict[str, Scenario] = {
    "faults": Scenario(_draw_faults, ClusterRun),
    "reassignments": Scenario(_draw_reassignments, ReassignmentRun),
    "transactions": Scenario(_draw_transactions, TransactionRun),
    "shares": Scenario(draw_shares, ShareRun),
    "swarm": Scenario(draw_swarm, SwarmRun),
}


def draw(scenario: str, seed: int) -> Plan:
    """The plan of a seed. Raises KeyError: there is no such scenario."""
    return SCENARIOS[scenario].draw(seed, random.Random(f"{seed}/plan of {scenario}"))


def play(plan: Plan, simulation: Simulation | None = None, *, history: Path | None = None) -> Played:
    """Carry out a plan. Raises what went wrong: AssertionError and InvariantError for what must hold.

    Args:
        history: where to write what clients did and were told, also when something goes wrong.
    """
    simulation = simulation or simulation_of(plan)
    run = SCENARIOS[plan.scenario].run(simulation, plan)

    async def scenario(simulation: Simulation) -> None:
        await run.play()

    try:
        simulation.run(scenario, time_limit_ms=TIME_LIMIT_MS)
    finally:
        if history is not None:
            write_history(history, run.recorder.history())
    virtual_ms = simulation.loop.now_ns // 1_000_000
    return Played(run.acked, virtual_ms, run.faults_done, run.recorder.history(), simulation.trace)


def simulation_of(plan: Plan) -> Simulation:
    """A world for it."""
    return Simulation(plan.seed, session_timeout_ms=SESSION_TIMEOUT_MS)


# The tally
class TallyError(Exception):
    """The file is none of ours; says which line."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one seed."""

    scenario: str
    seed: int
    cpu_s: float
    acked: int = 0
    calls: int = 0
    """Operations in the history of its clients."""
    virtual_ms: int = 0
    faults: dict[str, int] = {}
    """By kind."""
    failure: str = ""
    """What went wrong, if anything did."""


_decoder = msgspec.json.Decoder(Outcome)


class Tally:
    """The outcomes in a directory, which is made when there is none.

    Raises:
        TallyError: the file there is none of these. OSError.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / FILE
        self.outcomes: dict[tuple[str, int], Outcome] = {}
        if self.path.exists():
            self.outcomes, whole_bytes = read_outcomes(self.path)
            with self.path.open("r+b") as file:  # an interrupted run's last line
                file.truncate(whole_bytes)

    def add(self, outcome: Outcome) -> None:
        """Write it down. Raises OSError."""
        with self.path.open("ab") as file:
            file.write(_encoder.encode(outcome) + b"\n")
        self.outcomes[outcome.scenario, outcome.seed] = outcome


def read_outcomes(path: Path) -> tuple[dict[tuple[str, int], Outcome], int]:
    """What is in a tally, which a run may be adding to, and how many bytes of it are whole lines.

    Raises:
        TallyError: the file is none of these. OSError.
    """
    outcomes: dict[tuple[str, int], Outcome] = {}
    whole_bytes = 0
    for number, (line, end) in enumerate(_lines(path.read_bytes()), start=1):
        try:
            outcome = _decoder.decode(line)
        except msgspec.MsgspecError as error:
            raise TallyError(f"{path}, line {number}: {error}; name another --dir") from error
        outcomes[outcome.scenario, outcome.seed] = outcome
        whole_bytes = end
    return outcomes, whole_bytes


def failure_line(outcome: Outcome) -> str:
    """What failed, and how to see it again."""
    what = outcome.failure.replace("\n", " ")[:400]
    again = f"python -m minikafka.testing.simulation replay {outcome.seed} --scenario {outcome.scenario}"
    return f"FAILED {outcome.scenario} seed {outcome.seed}: {what} [again: {again}]"


class Total(NamedTuple):
    """What some outcomes add up to."""

    seeds: int
    failed: int
    virtual_hours: float
    calls: int
    acked: int
    cpu_s: float
    faults: Counter[str]

    @property
    def fault_count(self) -> int:
        return sum(self.faults.values())

    @property
    def faults_by_kind(self) -> str:
        return ", ".join(f"{count} {kind}" for kind, count in self.faults.most_common())


def total_of(outcomes: Sequence[Outcome]) -> Total:
    faults: Counter[str] = Counter()
    for each in outcomes:
        faults.update(each.faults)
    return Total(
        seeds=len(outcomes),
        failed=sum(1 for each in outcomes if each.failure),
        virtual_hours=sum(each.virtual_ms for each in outcomes) / 3_600_000,
        calls=sum(each.calls for each in outcomes),
        acked=sum(each.acked for each in outcomes),
        cpu_s=sum(each.cpu_s for each in outcomes),
        faults=faults,
    )


def report(outcomes: Sequence[Outcome]) -> list[str]:
    """Two lines for each scenario, its sums and its faults, and one for each failure."""
    lines = []
    for scenario in sorted({each.scenario for each in outcomes}):
        total = total_of([each for each in outcomes if each.scenario == scenario])
        lines += [
            f"{scenario}: {total.seeds} seeds, {total.failed} failed, "
            f"{total.virtual_hours:.1f} virtual hours, "
            f"{total.calls} operations, {total.acked} acked, {total.cpu_s / total.seeds:.3f} CPU s a seed",
            f"  {total.fault_count} faults: {total.faults_by_kind}",
        ]
    return lines + [failure_line(each) for each in outcomes if each.failure]


def markdown(outcomes: Sequence[Outcome]) -> list[str]:
    """A table with a row for each scenario and one for all, and the faults of all."""
    lines = [
        "| scenario | seeds | failed | virtual hours | operations | acknowledged | faults |",
        "|---|---|---|---|---|---|---|",
    ]
    for scenario in (*sorted({each.scenario for each in outcomes}), "all"):
        total = total_of([each for each in outcomes if scenario in (each.scenario, "all")])
        lines.append(
            f"| {scenario} | {total.seeds:,} | {total.failed} | {total.virtual_hours:,.1f} | {total.calls:,} "
            f"| {total.acked:,} | {total.fault_count:,} |"
        )
    return [*lines, "", f"Faults by kind: {total_of(outcomes).faults_by_kind}."]


def _lines(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Whole lines, and where each ends."""
    start = 0
    while (end := data.find(b"\n", start)) >= 0:
        yield data[start:end], end + 1
        start = end + 1


# Running seeds
def run_seed(scenario: str, seed: int) -> Outcome:
    """One seed, here. Whatever goes wrong is in the outcome."""
    logging.disable(logging.CRITICAL)
    began_s = time.process_time()
    try:
        played = play(draw(scenario, seed))
    except Exception as error:  # noqa: BLE001 - it is reported where the seeds are counted
        failure = f"{type(error).__name__}: {error}"
        return Outcome(scenario=scenario, seed=seed, cpu_s=time.process_time() - began_s, failure=failure)
    is_idle = played.acked < ACKED_MIN[scenario]
    return Outcome(
        scenario=scenario,
        seed=seed,
        cpu_s=round(time.process_time() - began_s, 3),
        acked=played.acked,
        calls=len(played.history),
        virtual_ms=played.virtual_ms,
        faults=dict(played.faults),
        failure=f"only {played.acked} records were acked" if is_idle else "",
    )


def run_seed_in_worker(scenario: str, seed: int) -> Outcome:
    """``run_seed``, and then what the garbage collector would do in the middle of it: a world is garbage as a
    whole when it is over, and hardly any of it before. The next one has its memory, and needs no other."""
    outcome = run_seed(scenario, seed)
    gc.collect()
    return outcome


def _begin_worker() -> None:
    gc.freeze()
    gc.disable()


def run_seeds(
    scenarios: Sequence[str],
    seeds: range,
    tally: Tally,
    *,
    jobs: int,
    minutes: float | None = None,
    tell: Callable[[Outcome], None],
) -> None:
    """Run those that the tally does not have, each scenario of a seed before the next seed.

    Args:
        minutes: after so many of real time no further seed is begun.
        tell: told of each outcome when it is written down.
    """
    deadline = None if minutes is None else time.monotonic() + minutes * 60
    left = (each for each in _all(scenarios, seeds) if each not in tally.outcomes)
    with worker_pool(jobs) as pool:
        running: set[Future[Outcome]] = set()
        while True:
            while len(running) < jobs * AHEAD and (deadline is None or time.monotonic() < deadline):
                following = next(left, None)
                if following is None:
                    break
                running.add(pool.submit(run_seed_in_worker, *following))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                try:
                    outcome = future.result()
                except BrokenProcessPool as error:
                    raise BrokenProcessPool("a worker was killed: too little memory for --jobs?") from error
                tally.add(outcome)
                tell(outcome)


def worker_pool(jobs: int) -> ProcessPoolExecutor:
    """Workers that have all modules, and collect no garbage in them. Give them ``run_seed_in_worker``."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return ProcessPoolExecutor(
        jobs, mp_context=context, initializer=_begin_worker, max_tasks_per_child=SEEDS_A_WORKER
    )


def _all(scenarios: Sequence[str], seeds: range) -> Iterator[tuple[str, int]]:
    return ((scenario, seed) for seed in seeds for scenario in scenarios)


# Shrinking
def failure_of(plan: Plan) -> str:
    """How it fails: the invariant's name, or the type of the error; empty: it does not."""
    was_disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        play(plan)
    except Exception as error:  # noqa: BLE001 - that is the question
        named = re.search(r"\b[IS]\d+\b", str(error))
        return named.group() if named else type(error).__name__
    finally:
        logging.disable(was_disabled)
    return ""


def shrink(
    plan: Plan, tell: Callable[[Plan], None], *, failure_of: Callable[[Plan], str] = failure_of
) -> Plan:
    """The smallest plan found that fails as ``plan`` does; ``tell`` is told of each smaller one.

    Raises:
        ValueError: ``plan`` does not fail.
    """
    wanted = failure_of(plan)
    if not wanted:
        raise ValueError(f"seed {plan.seed} of {plan.scenario} does not fail")
    while True:
        smaller = next((each for each in _smaller(plan) if failure_of(each) == wanted), None)
        if smaller is None:
            return plan
        plan = smaller
        tell(plan)


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Plans with a little less, the most first."""
    for name in ("actions", "steps", "producers", "transactors", "consumers", "members"):
        others = {"producers": plan.transactors, "transactors": plan.producers}.get(name, (True,))
        least = 0 if others else 1  # something must write
        for fewer in _fewer(getattr(plan, name)):
            if len(fewer) >= least:
                yield msgspec.structs.replace(plan, **{name: fewer})
    for name, least in (("keys", 0), ("log_dirs", 1), ("is_secured", False), ("racks", 0)):
        if getattr(plan, name) != least:
            yield msgspec.structs.replace(plan, **{name: least})
    settings = tuple(name for name in plan.config if name in OPTIONAL_SETTINGS)
    for fewer in _fewer(settings):
        config = {name: plan.config[name] for name in plan.config if name in fewer or name not in settings}
        yield msgspec.structs.replace(plan, config=config)
    for index, step in enumerate(plan.steps):
        for smaller in _smaller_steps(step):
            steps = (*plan.steps[:index], smaller, *plan.steps[index + 1 :])
            yield msgspec.structs.replace(plan, steps=steps)


def _smaller_steps(step: Step) -> Iterator[Step]:
    for fewer in _fewer(step.faults):
        if fewer:
            yield msgspec.structs.replace(step, faults=fewer)
    if step.after_ms > SHORT_MS:
        yield msgspec.structs.replace(step, after_ms=step.after_ms // 2)
    for index, fault in enumerate(step.faults):
        if fault.config:
            unchanged: Fault = msgspec.structs.replace(fault, config={})
            yield msgspec.structs.replace(
                step, faults=(*step.faults[:index], unchanged, *step.faults[index + 1 :])
            )
        if fault.lasts_ms > SHORT_MS:
            shorter: Fault = msgspec.structs.replace(fault, lasts_ms=fault.lasts_ms // 2)
            yield msgspec.structs.replace(
                step, faults=(*step.faults[:index], shorter, *step.faults[index + 1 :])
            )


def _fewer(items: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Without all, without a half, without one."""
    if items:
        yield ()
    if len(items) > 2:
        middle = len(items) // 2
        yield items[:middle]
        yield items[middle:]
    if len(items) > 1:
        for index in range(len(items)):
            yield (*items[:index], *items[index + 1 :])
