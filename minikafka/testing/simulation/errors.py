"""What a simulation raises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minikafka.errors import MinikafkaError


class SimulationError(MinikafkaError):
    """The run, or what it simulates, is not in order."""


class StalledError(SimulationError):
    """Tasks wait, and nothing will ever happen: nothing is ready and no timer is set."""


class NondeterminismError(SimulationError):
    """minikafka's own code asked the real world for the time, for dice, for a thread or for a socket."""


class HostDiedError(SimulationError):
    """What was awaited of a host cannot come any more: its process was killed or lost power."""


class OrphanError(SimulationError):
    """Callbacks or tasks that are not awaited raised; ``causes`` has the event loop's reports.

    ``__cause__`` is the first of the exceptions, with its traceback.
    """

    def __init__(self, causes: Sequence[dict[str, Any]]) -> None:
        self.causes = tuple(causes)
        lines = [f"{report.get('message')}: {report.get('exception')!r}" for report in causes]
        super().__init__("\n".join([f"{len(lines)} failures that were not awaited:", *lines]))


class ProcessKilled(BaseException):
    """Raised inside a process that has just been killed, when it touches its disk: it does nothing more.

    Not an ``Exception``, so that no handler of the simulated code takes it for a fault that it can treat.
    """
