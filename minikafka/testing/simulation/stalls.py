"""What tasks wait for, in words: for the errors that say why a run cannot go on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minikafka.testing.simulation.handles import SimulatedTask

TASKS_MAX = 50
"""Tasks named in an error; a broker has some twenty."""


def describe_tasks(tasks: Iterable[SimulatedTask[Any]]) -> str:
    """A line per task: whose it is, its name, and the line that it waits in."""
    lines = [f"  {_host(task)}: {task.get_name()}: {_place(task.get_coro())}" for task in tasks]
    more = len(lines) - TASKS_MAX
    if more > 0:
        lines[TASKS_MAX:] = [f"  and {more} more"]
    return "\n".join(lines) or "  nobody"


def _host(task: SimulatedTask[Any]) -> str:
    return "nobody" if task.process is None else task.process.host.name


def _place(awaitable: Any) -> str:
    """The innermost line of our own code that is suspended: where asyncio's begins, the question ends."""
    place = "not started"
    while awaitable is not None:
        frame = getattr(awaitable, "cr_frame", None) or getattr(awaitable, "ag_frame", None)
        if frame is None:
            break
        code = frame.f_code
        if place != "not started" and "/asyncio/" in code.co_filename:
            break
        place = f"{code.co_filename}:{frame.f_lineno} in {code.co_qualname}"
        awaitable = getattr(awaitable, "cr_await", None) or getattr(awaitable, "ag_await", None)
    return place
