"""How long each part of a broker's start took. Kafka has it in the times of its log lines."""

from __future__ import annotations

from minikafka.clock import Clock
from minikafka.named_tuple import NamedTuple


class StartPhase(NamedTuple):
    name: str
    duration_ms: int


class StartPhases:
    """One start, from the moment at which this is made. Each part is told of when it is done."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.began_ms = self._last_ms = clock.monotonic_ms()
        """On the monotonic clock."""
        self.phases: list[StartPhase] = []

    def __repr__(self) -> str:
        return f"StartPhases({', '.join(f'{name} {ms} ms' for name, ms in self.phases)})"

    def done(self, name: str) -> None:
        """Everything since the phase before."""
        now_ms = self._clock.monotonic_ms()
        self.phases.append(StartPhase(name, now_ms - self._last_ms))
        self._last_ms = now_ms

    @property
    def total_ms(self) -> int:
        """Of those that are done."""
        return self._last_ms - self.began_ms
