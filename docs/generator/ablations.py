"""The page of what the simulation finds of the deliberate defects in ``tests/sim/ablations``."""

from __future__ import annotations

from collections.abc import Iterator

from docs.generator.markdown import code, page, table, text
from tests.sim.ablations import Ablation, load, names
from tests.sim.ablations.results import Result, read_results, what_was_broken

HEADER = ("defect", "what it breaks", "scenarios, or story", "seeds", "what was found")


def ablations() -> str:
    """The page's text."""
    results = read_results()
    found = sum(result.is_found for result in results.values())
    return page(
        "Ablations",
        "Each of these patches takes one safeguard out of the broker, and the simulation runs with it, seed "
        f"after seed, until one fails. {found} of {len(names())} are found. Where a defect needs a course of "
        "events that dice bring about too seldom, a story that tells it finds it, after so many seeds that "
        "did not. One that is not found says what the simulation lacks: a fault, a client or a check. "
        "`python -m tests.sim.ablations` tries them, and goes on where it was; the patches are in "
        "`tests/sim/ablations`.",
        table(HEADER, (_row(load(name), results.get(name)) for name in _in_order(results))),
    )


def _in_order(results: dict[str, Result]) -> Iterator[str]:
    """Those that seeds have found, the soonest first, those that stories have found, then the others."""

    def place(name: str) -> tuple[bool, bool, int]:
        result = results.get(name)
        if result is None or not result.is_found:
            return True, False, 0
        return False, result.is_of_a_story, 0 if result.is_of_a_story else result.seeds

    return iter(sorted(names(), key=place))


def _row(ablation: Ablation, result: Result | None) -> tuple[str, ...]:
    """How many seeds of each scenario were tried is how many it took, where one of them found it."""
    tried, seeds = ablation.scenarios, ""
    what = "not tried yet"
    if result is not None:
        tried = (result.scenario.rpartition("/")[2],) if result.is_found else ablation.scenarios
        what = what_was_broken(result) if result.is_found else "nothing yet"
        seeds = f"not in {result.seeds}" if result.is_of_a_story else str(result.seeds)
        if not ablation.scenarios:  # only stories look for it
            seeds = ""
    return code(ablation.name), text(ablation.story), ", ".join(map(code, tried)), seeds, text(what)
