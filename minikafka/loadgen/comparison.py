"""Two targets that took turns: ratios of neighbouring turns, and how far they spread.

A ratio is of two turns next to each other, so that it holds while the machine's speed drifts; what is said of
many is their median, the least and the greatest, and a bootstrap interval of the median.

Two targets, run by run in turns: A B A B …, so that a machine that slows down slows both.

A target that fails in a turn loses that turn: it has no value there, and the problem is told.
"""

from __future__ import annotations

import contextlib
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from minikafka.errors import ConfigError, MinikafkaError
from minikafka.loadgen.recipes import Address, MockRecipe, Recipe, prepare, running
from minikafka.loadgen.report import Result
from minikafka.loadgen.runner import Target, finish, run
from minikafka.loadgen.suites import START, Entry
from minikafka.loadgen.workload import Kind, checked

RESAMPLES = 2000
CONFIDENCE = 0.95
SEED = 8


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


class Contestant(msgspec.Struct, frozen=True):
    """A target by its name."""

    name: str
    recipe: Recipe


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
        prepare(contestant.recipe)
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


def _is_impossible(entry: Entry, recipe: Recipe) -> bool:
    """The mock lacks things, and brokers that run already cannot be restarted."""
    return (isinstance(recipe, MockRecipe) and not entry.is_for_mock) or (
        isinstance(recipe, Address) and entry.is_fresh
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
        targets = [stack.enter_context(_started(each, entry.brokers)) for each in contestants]
        for number in range(rounds + 1):
            for contestant, (target, start_s) in zip(contestants, targets, strict=True):
                yield _turn(name, number, contestant, entry, target, start_s, duration_s)


def _started(contestant: Contestant, brokers: int) -> contextlib.AbstractContextManager[tuple[Target, float]]:
    return running(contestant.recipe, contestant.name, brokers=brokers)


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
    target: Target,
    start_s: float,
    duration_s: float,
) -> Turn:
    if entry.workload is None:
        return Turn(name, number, contestant.name, start_result(target.name, start_s), None)
    workload = msgspec.structs.replace(entry.workload, duration_s=duration_s)
    if workload.kind is Kind.CONSUME:
        workload = msgspec.structs.replace(workload, warmup_s=duration_s / 4)
    try:
        result = finish(run(checked(workload), target))
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
