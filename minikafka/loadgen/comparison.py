"""Two targets, run by run in turns: A B A B …, so that a machine that slows down slows both; and how their
turns compare.

A ratio is of two turns next to each other, so that it holds while the machine's speed drifts; what is said of
many is their median, the least and the greatest, and a bootstrap interval of the median. A target that fails
in a turn loses that turn: it has no value there, and the problem is told.

``SUITES`` are the workloads that ``minikafka bench compare`` knows by name, and what is compared of each: the
list of the table in ``docs/how-to/load.md``. Each turn gets fresh topics; a target lives for all rounds of a
workload, and its first turn does not count (a JVM compiles in it), but where ``is_fresh`` says otherwise.
"""

from __future__ import annotations

import contextlib
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from minikafka.deferred import deferred
from minikafka.errors import ConfigError, MinikafkaError
from minikafka.loadgen.report import Result
from minikafka.loadgen.workload import Kind, Workload, checked

if TYPE_CHECKING:
    from minikafka.loadgen import runner, targets
else:  # they import librdkafka; the command line, which has the names of the suites, is there without it
    targets = deferred("minikafka.loadgen.targets", at_start_or_never=True)
    runner = deferred("minikafka.loadgen.runner", at_start_or_never=True)

START = "seconds to start"
"""The fact of a result that says how long the target took to start, s."""

Value = Callable[[Result], float | None]

LINGER = {"acks": "1", "linger.ms": "5"}
ONE = {"acks": "1", "linger.ms": "0", "batch.num.messages": "1"}
AT_ONCE = {"acks": "1", "linger.ms": "0"}
MOCK_KEEPS_RECORDS = 4_000
"""Of 1 KB in a partition, out of the mock's 5 MiB; it gives a topic four partitions."""
TOPICS = 40
"""640 MB to read before it begins again."""

RESAMPLES = 2000
CONFIDENCE = 0.95
SEED = 8


# Suites


class Measure(msgspec.Struct, frozen=True):
    """One number of a result; ``value`` gives None where the result does not have it."""

    name: str
    unit: str
    value: Value


class Entry(msgspec.Struct, frozen=True):
    """``workload`` None: only the start is timed, again in every turn."""

    purpose: str
    measures: list[Measure]
    workload: Workload | None = None
    brokers: int = 1
    is_for_mock: bool = True
    """False: the mock has nothing like it."""
    is_fresh: bool = False
    """A new broker for every turn."""


def _rate(flow: str, unit: str = "records/s") -> Measure:
    return Measure("rate", unit, lambda result: result.flow(flow).records_per_s)


def _latency(flow: str, percentile: float) -> Measure:
    def value(result: Result) -> float | None:
        latency = result.flow(flow).latency
        return latency.at(percentile) if latency is not None else None

    return Measure(f"p{percentile:g}", "ms", value)


def _cpu(result: Result) -> float | None:
    return result.usage.cpu_share if result.usage is not None else None


def _idle(result: Result) -> float | None:
    return result.usage.resident_before_bytes / 1e6 if result.usage is not None else None


def _loaded(result: Result) -> float | None:
    return result.usage.resident_peak_bytes / 1e6 if result.usage is not None else None


def _producing(
    name: str, purpose: str, producer_config: dict[str, str], *, brokers: int = 1, **settings: Any
) -> Entry:
    """As fast as the target takes it. ``settings`` are the workload's."""
    workload = Workload(name=name, kind=Kind.PRODUCE, warmup_s=1, producer_config=producer_config, **settings)
    return Entry(purpose, [_rate("produce")], workload, brokers=brokers, is_for_mock=brokers == 1)


SUITES: dict[str, Entry] = {
    "produce-1k": _producing("produce-1k", "produce 1 KB, acks=1, linger 5 ms", LINGER),
    "produce-100": _producing("produce-100", "produce 100 B, acks=1, linger 5 ms", LINGER, record_size="100"),
    "consume-1k": Entry(
        "consume 1 KB, warm",
        [_rate("consume")],
        Workload(
            name="consume-1k",
            kind=Kind.CONSUME,
            topics=TOPICS,
            partitions=4,
            records=TOPICS * 4 * MOCK_KEEPS_RECORDS,
            producer_config=LINGER,
        ),
    ),
    "requests-1": _producing(
        "requests-1", "one record a request, 1 connection", ONE, record_size="100", in_flight_max=1000
    ),
    "requests-50": _producing(
        "requests-50",
        "one record a request, 50 connections",
        ONE,
        record_size="100",
        producers=50,
        in_flight_max=100,
    ),
    "acks-all": _producing(
        "acks-all",
        "3 brokers, acks=all, 1 KB",
        {"acks": "all", "linger.ms": "5"},
        brokers=3,
        partitions=3,
        replication_factor=3,
    ),
    "latency": Entry(
        "end to end at 2,000 records/s",
        [_latency("end-to-end", each) for each in (50, 99, 99.9)],
        Workload(name="latency", kind=Kind.STREAM, producer_config=AT_ONCE, rate=2000, warmup_s=2),
    ),
    "waiting": Entry(
        "100 consumers waiting on 100 partitions, one record each a second",
        [Measure("CPU", "cores", _cpu)],
        Workload(
            name="waiting",
            kind=Kind.STREAM,
            producer_config=AT_ONCE,
            partitions=100,
            consumers=100,
            rate=100,
            warmup_s=2,
        ),
        is_for_mock=False,
    ),
    "start": Entry(
        "start to first answered request",
        [Measure("time", "s", lambda result: result.facts[START])],
        is_fresh=True,
    ),
    "memory": Entry(
        "resident memory, fresh broker",
        [Measure("idle", "MB", _idle), Measure("under load", "MB", _loaded)],
        Workload(name="memory", kind=Kind.PRODUCE, producer_config=LINGER),
        is_fresh=True,
    ),
}


# Ratios


class Spread(msgspec.Struct, frozen=True):
    """Of several measurements of one thing. ``low`` and ``high``: the median's interval, of 95 %."""

    median: float
    least: float
    greatest: float
    low: float
    high: float

    def text(self) -> str:
        return f"{number(self.median)} ({number(self.least)} – {number(self.greatest)})"


class Row(msgspec.Struct, frozen=True):
    """One measure of one workload, for both targets; ``ratio`` is of the first to the second."""

    workload: str
    measure: str
    unit: str
    first: Spread | None
    second: Spread | None
    ratio: Spread | None
    first_values: list[float]
    second_values: list[float]


def spread(values: Sequence[float]) -> Spread | None:
    """None of nothing. The same values have the same interval: the dice are seeded."""
    if not values:
        return None
    rng = random.Random(SEED)
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(RESAMPLES))
    tail = (1 - CONFIDENCE) / 2
    return Spread(
        median=statistics.median(values),
        least=min(values),
        greatest=max(values),
        low=medians[int(tail * RESAMPLES)],
        high=medians[int((1 - tail) * RESAMPLES) - 1],
    )


def row(
    workload: str, measure: str, unit: str, first: Sequence[float | None], second: Sequence[float | None]
) -> Row:
    """``first[i]`` and ``second[i]`` are neighbours; None: that turn failed, and no ratio is made of it."""
    pairs = [
        (one, other)
        for one, other in zip(first, second, strict=True)
        if one is not None and other is not None and other > 0
    ]
    first_values = [value for value in first if value is not None]
    second_values = [value for value in second if value is not None]
    return Row(
        workload=workload,
        measure=measure,
        unit=unit,
        first=spread(first_values),
        second=spread(second_values),
        ratio=spread([one / other for one, other in pairs]),
        first_values=first_values,
        second_values=second_values,
    )


def number(value: float) -> str:
    """Three digits that count."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def lines(rows: Sequence[Row], names: tuple[str, str]) -> list[str]:
    """A table in Markdown."""
    table = [
        f"| workload | {names[0]} | {names[1]} | ratio (least – greatest) | 95 % interval |",
        "|---|---|---|---|---|",
    ]
    for each in rows:
        cells = [
            f"{each.workload}: {each.measure}, {each.unit}",
            *(number(one.median) if one is not None else "failed" for one in (each.first, each.second)),
            each.ratio.text() if each.ratio is not None else "–",
            f"{number(each.ratio.low)} – {number(each.ratio.high)}" if each.ratio is not None else "–",
        ]
        table.append("| " + " | ".join(cells) + " |")
    return table


# Turns


class Contestant(msgspec.Struct, frozen=True):
    """A target by its name."""

    name: str
    recipe: targets.Recipe


class Turn(msgspec.Struct, frozen=True):
    """One run of one contestant; ``result`` None when there is none. Round 0 does not count."""

    entry: str
    round: int
    contestant: str
    result: Result | None
    problem: str | None


class Comparison(msgspec.Struct, frozen=True):
    """All turns, and what they come to."""

    targets: tuple[str, str]
    rows: list[Row]
    turns: list[Turn]

    @property
    def is_ok(self) -> bool:
        return all(turn.problem is None for turn in self.turns)


def alternate(
    contestants: tuple[Contestant, Contestant],
    entries: Mapping[str, Entry],
    *,
    rounds: int,
    duration_s: float,
) -> Iterator[Turn | Comparison]:
    """Every entry, ``rounds`` times with each; entries that one of the two cannot run are left out.

    Raises:
        MinikafkaError: a target cannot be had at all, or no entry is left.
    """
    possible = {
        name: entry
        for name, entry in entries.items()
        if not any(_is_impossible(entry, contestant.recipe) for contestant in contestants)
    }
    if not possible:
        names = " and ".join(dict.fromkeys(contestant.name for contestant in contestants))
        raise ConfigError(f"--suite {','.join(entries)}: cannot be run with {names}")
    for contestant in contestants:
        targets.prepare(contestant.recipe)
    turns: list[Turn] = []
    rows: list[Row] = []
    for name, entry in possible.items():
        of_entry: list[Turn] = []
        for turn in take_turns(contestants, name, entry, rounds=rounds, duration_s=duration_s):
            of_entry.append(turn)
            yield turn
        turns += of_entry
        rows += _rows(contestants, entry, of_entry)
    yield Comparison((contestants[0].name, contestants[1].name), rows, turns)


def _is_impossible(entry: Entry, recipe: targets.Recipe) -> bool:
    """The mock lacks things, and brokers that run already cannot be restarted."""
    return (isinstance(recipe, targets.MockRecipe) and not entry.is_for_mock) or (
        isinstance(recipe, targets.Address) and entry.is_fresh
    )


def take_turns(
    contestants: Sequence[Contestant], name: str, entry: Entry, *, rounds: int, duration_s: float
) -> Iterator[Turn]:
    """One entry, ``rounds`` times with each of them, and a warm-up before where the targets live on.

    Raises:
        MinikafkaError: a target that is to live on does not start.
    """
    if entry.is_fresh:
        for number in range(1, rounds + 1):
            for contestant in contestants:
                yield _fresh_turn(name, number, contestant, entry, duration_s)
        return
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(_started(each, entry.brokers)) for each in contestants]
        for number in range(rounds + 1):
            for contestant, (target, start_s) in zip(contestants, started, strict=True):
                yield _turn(name, number, contestant, entry, target, start_s, duration_s)


def _started(
    contestant: Contestant, brokers: int
) -> contextlib.AbstractContextManager[tuple[targets.Target, float]]:
    return targets.running(contestant.recipe, contestant.name, brokers=brokers)


def _fresh_turn(name: str, number: int, contestant: Contestant, entry: Entry, duration_s: float) -> Turn:
    try:
        with _started(contestant, entry.brokers) as (target, start_s):
            return _turn(name, number, contestant, entry, target, start_s, duration_s)
    except MinikafkaError as error:  # it does not start
        return Turn(name, number, contestant.name, None, str(error))


def _turn(
    name: str,
    number: int,
    contestant: Contestant,
    entry: Entry,
    target: targets.Target,
    start_s: float,
    duration_s: float,
) -> Turn:
    if entry.workload is None:
        return Turn(name, number, contestant.name, start_result(target.name, start_s), None)
    workload = msgspec.structs.replace(entry.workload, duration_s=duration_s)
    if workload.kind is Kind.CONSUME:
        workload = msgspec.structs.replace(workload, warmup_s=duration_s / 4)
    try:
        result = runner.finish(runner.run(checked(workload), target))
    except MinikafkaError as error:
        return Turn(name, number, contestant.name, None, str(error))
    failed = [check.text() for check in result.checks if not check.holds]
    return Turn(name, number, contestant.name, result, "; ".join([*result.problems, *failed]) or None)


def start_result(target: str, start_s: float) -> Result:
    """A result that only says how long the target took to start."""
    return Result(
        workload="start",
        target=target,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=start_s,
        settings={},
        flows=[],
        checks=[],
        problems=[],
        usage=None,
        facts={START: start_s},
    )


def _rows(contestants: Sequence[Contestant], entry: Entry, turns: Sequence[Turn]) -> list[Row]:
    counted = [turn for turn in turns if turn.round > 0]
    firsts, seconds = counted[0::2], counted[1::2]
    rows = []
    for measure in entry.measures:
        values = [
            [
                measure.value(turn.result) if turn.result is not None and turn.problem is None else None
                for turn in of_one
            ]
            for of_one in (firsts, seconds)
        ]
        rows.append(row(entry.purpose, measure.name, measure.unit, values[0], values[1]))
    return rows
