"""A start is divided into its parts, without a gap."""

from __future__ import annotations

from minikafka.clock import ManualClock
from minikafka.server.runtime.process import StartPhase, StartPhases


def test_each_part_is_what_passed_since_the_one_before() -> None:
    clock = ManualClock()
    phases = StartPhases(clock)
    clock.advance(30)
    phases.done("store")
    clock.advance(70)
    phases.done("logs")
    assert phases.phases == [StartPhase("store", 30), StartPhase("logs", 70)]
    assert phases.total_ms == 100
    clock.advance(5)
    assert phases.total_ms == 100, "what follows is no part of it"
