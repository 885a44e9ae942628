"""An operation completes exactly once, whichever path is first."""

from __future__ import annotations

from minikafka.clock import ManualClock
from minikafka.purgatory import DelayedOperation, Timer


class Recorded(DelayedOperation):
    """Writes down what is done to it."""

    __slots__ = ("events",)

    def __init__(self, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self.events: list[str] = []

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        self.events.append(f"complete, {'completed' if self.is_completed else 'waiting'}")
        assert not self.force_complete(), "completing it again from within must do nothing"

    def on_expiration(self) -> None:
        self.events.append("expired")


def test_completing_twice_does_it_once_and_stops_the_timer() -> None:
    clock = ManualClock()
    timer = Timer(clock)
    operation = Recorded(100)
    timer.add(operation)
    assert operation.force_complete()
    assert not operation.force_complete()
    assert operation.events == ["complete, completed"]
    assert timer.size == 0
    clock.advance(200)
    assert timer.advance(clock.monotonic_ms()) == []


def test_expiring_completes_first_and_says_so_after() -> None:
    clock = ManualClock()
    timer = Timer(clock)
    operation = Recorded(100)
    timer.add(operation)
    clock.advance(100)
    for task in timer.advance(clock.monotonic_ms()):
        task.run()
    assert operation.events == ["complete, completed", "expired"]


def test_an_expired_operation_that_completes_before_it_is_run_does_not_expire() -> None:
    clock = ManualClock()
    timer = Timer(clock)
    operation = Recorded(100)
    timer.add(operation)
    clock.advance(100)
    (expired,) = timer.advance(clock.monotonic_ms())
    operation.force_complete()
    expired.run()
    assert operation.events == ["complete, completed"]


def test_its_repr_tells_its_state() -> None:
    operation = Recorded(5)
    assert "WAITING" in repr(operation)
    operation.force_complete()
    assert "COMPLETED" in repr(operation)
