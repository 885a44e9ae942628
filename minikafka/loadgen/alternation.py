"""Two targets, run by run in turns: A B A B …, so that a machine that slows down slows both.

A target that fails in a turn loses that turn: it has no value there, and the problem is told.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from minikafka.errors import ConfigError, MinikafkaError
from minikafka.loadgen.comparison import Row, row
from minikafka.loadgen.recipes import Address, MockRecipe, Recipe, prepare, running
from minikafka.loadgen.report import Result
from minikafka.loadgen.runner import Target, finish, run
from minikafka.loadgen.suites import START, Entry
from minikafka.loadgen.workload import Kind, checked


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
    """The mock lacks things, and brokers that are there cannot be started anew."""
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
