"""Work in steps: a generator that yields whenever other work may have a turn, and returns what came of it.

Arrays of a request are decoded, answered and encoded so; ``server.runtime.work_scheduler`` runs the
steps on the event loop and lets others in between when a slice of time is over. The work itself knows no
clock. A step that yields a future continues when that is done: it has left something to a thread.

Invariant: the loop's state may be another after each yield, so check-then-act never spans one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeVar

from minikafka.errors import InvariantError

T = TypeVar("T")
U = TypeVar("U")

Steps = Generator[Any, None, T]
"""Yields None or a future."""

ELEMENTS_A_STEP = 64
"""Array elements decoded or encoded between two yields: at 0.3 to 2 µs each about 0.1 ms, and a yield is lost
among them."""

BYTES_A_STEP = 4096
"""Encoded between two yields where elements have arrays of their own: 64 topics with 30 properties each took
17 ms. As many bytes take about 0.2 ms."""


def finish(steps: Steps[T]) -> T:
    """All steps at once; they leave nothing to a thread."""
    while True:
        try:
            if next(steps) is not None:
                raise InvariantError("work that waits for a thread cannot be done at once")
        except StopIteration as end:
            result: T = end.value
            return result


def each(work: Callable[[U], T], elements: Iterable[U], *, a_step: int = 1) -> Steps[list[T]]:
    """What ``work`` makes of every element, ``a_step`` of them in a step."""
    results = []
    for count, element in enumerate(elements, start=1):
        results.append(work(element))
        if count % a_step == 0:
            yield
    return results
