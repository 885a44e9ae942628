"""A plan that fails, with less and less in it, for as long as it fails in the same way.

Greedy, as delta debugging is: large parts first, then single ones, then shorter times. A plan with less in it
is another run, in which the same dice fall elsewhere, so what is left need not be the smallest there is."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from minikafka.testing.simulation.scenarios.catalogue import play
from minikafka.testing.simulation.scenarios.plan import Fault, Plan, Step

SHORT_MS = 100
"""What a time is halved down to."""


def failure_of(plan: Plan) -> str:
    """How it fails: the invariant's name, or the type of the error; empty: it does not."""
    was_disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        play(plan)
    except Exception as error:  # noqa: BLE001 - that is the question
        named = re.search(r"\bI\d+\b", str(error))
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
        least = 1 if name == "producers" and not plan.transactions else 0
        for fewer in _fewer(getattr(plan, name)):
            if len(fewer) >= least:
                yield msgspec.structs.replace(plan, **{name: fewer})
    for name, least in (("keys", 0), ("log_dirs", 1), ("is_secured", False), ("racks", 0)):
        if getattr(plan, name) != least:
            yield msgspec.structs.replace(plan, **{name: least})
    if plan.transactions > 1:
        yield msgspec.structs.replace(plan, transactions=1)
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
