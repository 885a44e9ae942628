"""The purgatory: the sequence of rule 5, the purging of rule 4, completions that cause each other."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Hashable

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from minikafka.clock import ManualClock
from minikafka.errors import InvariantError
from minikafka.purgatory import DelayedOperation, DelayedOperationPurgatory, Timer


class Operation(DelayedOperation):
    """Completes when told that it may; answers through ``then``."""

    __slots__ = ("__weakref__", "answers", "expirations", "failures", "ready", "then", "tries")

    def __init__(self, delay_ms: int = 1_000, then: Callable[[], object] | None = None) -> None:
        super().__init__(delay_ms)
        self.ready: Callable[[], bool] = lambda: False
        self.then = then
        self.tries = 0
        self.answers = 0
        self.expirations = 0
        self.failures: list[Exception] = []

    def try_complete(self) -> bool:
        self.tries += 1
        return self.ready() and self.force_complete()

    def on_complete(self) -> None:
        self.answers += 1
        if self.then is not None:
            self.then()

    def on_expiration(self) -> None:
        self.expirations += 1

    def on_failure(self, error: Exception) -> None:
        self.failures.append(error)


class Fixture:
    def __init__(self, purge_interval: int = 1_000) -> None:
        self.clock = ManualClock()
        self.timer = Timer(self.clock)
        self.purgatory: DelayedOperationPurgatory[Operation] = DelayedOperationPurgatory(
            "Fetch", self.timer, purge_interval
        )

    def wait(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)
        for task in self.timer.advance(self.clock.monotonic_ms()):
            if not task.cancelled:
                task.run()
        self.purgatory.validate()


@pytest.fixture
def fixture() -> Fixture:
    return Fixture()


def now() -> bool:
    return True


def test_what_can_complete_at_once_is_never_watched(fixture: Fixture) -> None:
    operation = Operation()
    operation.ready = now
    assert fixture.purgatory.try_complete_else_watch(operation, ["a", "b"])
    assert (operation.tries, operation.answers) == (1, 1)
    assert (fixture.purgatory.watched, fixture.purgatory.delayed, fixture.timer.size) == (0, 0, 0)


def test_an_event_between_the_first_try_and_the_watching_is_not_missed(fixture: Fixture) -> None:
    operation = Operation()
    operation.ready = lambda: operation.tries == 2
    assert fixture.purgatory.try_complete_else_watch(operation, ["a"])
    assert operation.answers == 1
    assert fixture.timer.size == 0
    fixture.purgatory.validate()


def test_an_event_completes_those_that_are_ready_and_leaves_the_others(fixture: Fixture) -> None:
    purgatory = fixture.purgatory
    first, second, elsewhere = Operation(), Operation(), Operation()
    for operation, key in ((first, "a"), (second, "a"), (elsewhere, "b")):
        assert not purgatory.try_complete_else_watch(operation, [key])
    first.ready = elsewhere.ready = now
    assert purgatory.check_and_complete("a") == 1
    assert (first.answers, second.answers, elsewhere.answers) == (1, 0, 0)
    assert (purgatory.watched, purgatory.delayed, fixture.timer.size) == (2, 2, 2)
    assert purgatory.check_and_complete("no operation here") == 0
    purgatory.validate()


def test_expiry_completes_then_expires(fixture: Fixture) -> None:
    operation = Operation(delay_ms=200)
    fixture.purgatory.try_complete_else_watch(operation, ["a"])
    fixture.wait(199)
    assert operation.answers == 0
    fixture.wait(1)
    assert (operation.answers, operation.expirations) == (1, 1)
    assert fixture.purgatory.delayed == 0
    assert fixture.purgatory.check_and_complete("a") == 0
    assert fixture.purgatory.watched == 0


def test_no_time_to_wait_means_expired_at_once(fixture: Fixture) -> None:
    operation = Operation(delay_ms=0)
    assert not fixture.purgatory.try_complete_else_watch(operation, ["a"])
    assert (operation.answers, operation.expirations) == (1, 1)
    fixture.purgatory.validate()


def test_who_has_just_looked_is_watched_without_a_try(fixture: Fixture) -> None:
    operation, late = Operation(), Operation(delay_ms=0)
    fixture.purgatory.watch(operation, ["a"])
    assert (operation.tries, operation.answers) == (0, 0)
    operation.ready = now
    assert fixture.purgatory.check_and_complete("a") == 1
    assert (operation.tries, operation.answers, operation.expirations) == (1, 1, 0)
    fixture.purgatory.watch(late, ["a"])
    assert (late.tries, late.answers, late.expirations) == (0, 1, 1)
    with pytest.raises(InvariantError):
        fixture.purgatory.watch(Operation(), [])


def test_who_looks_sees_each_that_waits_once(fixture: Fixture) -> None:
    waiting, over = Operation(), Operation()
    fixture.purgatory.try_complete_else_watch(waiting, ["a", "b"])
    fixture.purgatory.try_complete_else_watch(over, ["b", "c"])
    assert fixture.purgatory.waiting() == [waiting, over]
    over.force_complete()  # and stays in its lists until a purge
    assert fixture.purgatory.watched == 4 and fixture.purgatory.waiting() == [waiting]


def test_an_operation_without_keys_is_our_bug(fixture: Fixture) -> None:
    with pytest.raises(InvariantError, match="without keys"):
        fixture.purgatory.try_complete_else_watch(Operation(), [])


def test_completed_ones_leave_their_other_keys_when_more_than_the_interval_have_completed() -> None:
    fixture = Fixture(purge_interval=10)
    purgatory = fixture.purgatory
    operations = [Operation() for _ in range(11)]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ["a", "b"])
    for operation in operations[:10]:
        operation.force_complete()
    assert purgatory.watched == 22, "ten have completed: not yet more than the interval"
    purgatory.validate()
    operations[10].force_complete()
    assert purgatory.watched == 0
    purgatory.validate()
    for _ in range(10):  # the estimate was reset: the next ten do not trigger it again
        operation = Operation()
        purgatory.try_complete_else_watch(operation, ["a"])
        operation.force_complete()
    assert purgatory.watched == 10


def test_interval_zero_purges_every_time() -> None:
    fixture = Fixture(purge_interval=0)
    operation = Operation()
    fixture.purgatory.try_complete_else_watch(operation, ["a", "b", "c"])
    operation.force_complete()
    assert fixture.purgatory.watched == 0


def test_what_a_key_completed_is_let_go_at_once(fixture: Fixture) -> None:
    operation = Operation()
    fixture.purgatory.try_complete_else_watch(operation, ["a"])
    operation.ready = now
    alive = weakref.ref(operation)
    gc.disable()
    try:
        assert fixture.purgatory.check_and_complete("a") == 1
        del operation
        assert alive() is None
    finally:
        gc.enable()


def test_completing_may_complete_others_on_the_same_key(fixture: Fixture) -> None:
    purgatory = fixture.purgatory
    last = Operation()
    last.ready = lambda: middle.is_completed
    middle = Operation(then=lambda: purgatory.check_and_complete("a"))
    first = Operation(then=lambda: purgatory.check_and_complete("a"))
    middle.ready = lambda: first.is_completed
    for operation in (last, middle, first):
        assert not purgatory.try_complete_else_watch(operation, ["a"])
    first.ready = now
    assert purgatory.check_and_complete("a") == 1, "the others were completed by nested events"
    assert [operation.answers for operation in (first, middle, last)] == [1, 1, 1]
    assert (purgatory.watched, purgatory.delayed) == (0, 0)
    purgatory.validate()


def test_completing_may_watch_again_on_the_same_key(fixture: Fixture) -> None:
    """A consumer's next fetch parks while the events of its last one are still being worked off."""
    purgatory = fixture.purgatory
    following = Operation()
    operation = Operation(then=lambda: purgatory.try_complete_else_watch(following, ["a"]))
    purgatory.try_complete_else_watch(operation, ["a"])
    operation.ready = now
    assert purgatory.check_and_complete("a") == 1
    assert (purgatory.watched, purgatory.delayed) == (1, 1)
    following.ready = now
    assert purgatory.check_and_complete("a") == 1


def test_one_that_fails_to_answer_fails_alone_and_does_not_stay_behind(
    fixture: Fixture, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither the event nor the others that wait for it notice."""

    def fail() -> None:
        raise OSError("connection lost")

    purgatory = fixture.purgatory
    broken, healthy = Operation(then=fail), Operation()
    for operation in (broken, healthy):
        purgatory.try_complete_else_watch(operation, ["a"])
        operation.ready = now
    assert purgatory.check_and_complete("a") == 1
    assert healthy.is_completed and broken.is_completed
    assert [str(error) for error in broken.failures] == ["connection lost"] and healthy.failures == []
    assert "connection lost" in caplog.text
    purgatory.validate()
    assert (purgatory.watched, purgatory.delayed) == (0, 0)


def test_one_that_cannot_be_tried_is_over_and_keeps_no_other(fixture: Fixture) -> None:
    purgatory = fixture.purgatory
    broken, healthy = Operation(), Operation()
    for operation in (broken, healthy):
        purgatory.try_complete_else_watch(operation, ["a", "b"])
    broken.ready = lambda: 1 // 0 > 0
    healthy.ready = now
    assert purgatory.check_and_complete("a") == 1
    assert broken.is_completed and broken.answers == 0 and len(broken.failures) == 1
    purgatory.validate()
    assert purgatory.delayed == 0


def test_one_that_cannot_even_be_tried_is_not_left_without_a_timer(fixture: Fixture) -> None:
    operation = Operation()

    def fail_when_watched() -> bool:
        if operation.tries == 2:
            raise KeyError("partition is gone")
        return False

    operation.ready = fail_when_watched
    with pytest.raises(KeyError):
        fixture.purgatory.try_complete_else_watch(operation, ["a", "b"])
    assert (fixture.purgatory.watched, fixture.purgatory.delayed) == (0, 0)
    fixture.purgatory.validate()


def test_who_waits_for_a_key_can_be_asked(fixture: Fixture) -> None:
    purgatory = fixture.purgatory
    first, second, over = Operation(), Operation(), Operation()
    for operation in (over, first, second):
        purgatory.try_complete_else_watch(operation, ["a", "b"])
    over.force_complete()
    assert purgatory.waiting_for("a", 10) == [first, second]
    assert purgatory.waiting_for("a", 1) == [first]
    assert purgatory.waiting_for("none", 10) == []


def test_cancelling_a_key_hands_its_operations_back(fixture: Fixture) -> None:
    purgatory = fixture.purgatory
    both, other = Operation(), Operation()
    purgatory.try_complete_else_watch(both, ["a", "b"])
    purgatory.try_complete_else_watch(other, ["b"])
    assert purgatory.cancel_for_key("a") == [both]
    assert (purgatory.watched, purgatory.delayed, fixture.timer.size) == (1, 1, 1)
    assert both.answers == 0
    fixture.wait(2_000)
    assert both.answers == 0 and other.expirations == 1
    assert both.force_complete() and both.answers == 1
    assert purgatory.cancel_for_key("a") == []
    purgatory.validate()


def test_one_that_is_cancelled_in_the_middle_of_an_event_is_not_completed_by_it(fixture: Fixture) -> None:
    purgatory = fixture.purgatory
    first = Operation(then=lambda: purgatory.cancel_for_key("a"))
    second = Operation()
    for operation in (first, second):
        purgatory.try_complete_else_watch(operation, ["a"])
        operation.ready = now
    assert purgatory.check_and_complete("a") == 1
    assert second.answers == 0 and not second.is_completed
    purgatory.validate()


def test_two_purgatories_may_share_a_timer() -> None:
    fixture = Fixture(purge_interval=5)
    produce = DelayedOperationPurgatory("Produce", fixture.timer, 5)
    for _ in range(20):
        produce.try_complete_else_watch(Operation(), ["a"])
    operation = Operation()
    fixture.purgatory.try_complete_else_watch(operation, ["a"])
    operation.force_complete()
    assert (fixture.purgatory.delayed, produce.delayed) == (0, 20)
    fixture.purgatory.validate()


KEYS = st.lists(st.integers(0, 5), min_size=1, max_size=4)


class PurgatoryAgainstModel(RuleBasedStateMachine):
    """Random traffic; the model is a list of (deadline, operation, keys).

    Every operation is answered exactly once: by an event on one of its keys when it was ready, by the end of
    its time, or never if it was cancelled.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fixture = Fixture(purge_interval=7)
        self.waiting: list[tuple[int, Operation, set[Hashable]]] = []
        self.all: list[Operation] = []
        self.cancelled: list[Operation] = []

    @rule(keys=KEYS, delay_ms=st.integers(0, 900), chain=st.booleans(), chain_key=st.integers(0, 5))
    def add(self, keys: list[int], delay_ms: int, chain: bool, chain_key: int) -> None:
        operation = Operation(delay_ms)
        if chain:
            operation.then = lambda: self.fixture.purgatory.check_and_complete(chain_key)
        self.all.append(operation)
        self.fixture.purgatory.try_complete_else_watch(operation, keys)
        if delay_ms == 0:
            assert operation.expirations == 1
        else:
            self.waiting.append((self.fixture.clock.monotonic_ms() + delay_ms, operation, set(keys)))
        self.forget_completed()  # one that expired at once may have completed others

    @rule(data=st.data())
    def make_ready(self, data: st.DataObject) -> None:
        if self.waiting:
            data.draw(st.sampled_from(self.waiting))[1].ready = now

    @rule(key=st.integers(0, 5))
    def event(self, key: int) -> None:
        ready = [entry[1] for entry in self.waiting if key in entry[2] and entry[1].ready is now]
        completed_before = sum(operation.is_completed for operation in self.all)
        completed = self.fixture.purgatory.check_and_complete(key)
        assert all(operation.is_completed for operation in ready)
        assert completed <= sum(operation.is_completed for operation in self.all) - completed_before
        self.forget_completed()

    @rule(data=st.data())
    def complete_from_outside(self, data: st.DataObject) -> None:
        if self.waiting:
            data.draw(st.sampled_from(self.waiting))[1].force_complete()
            self.forget_completed()

    @rule(key=st.integers(0, 5))
    def cancel(self, key: int) -> None:
        expected = [entry[1] for entry in self.waiting if key in entry[2]]
        assert sorted(map(id, self.fixture.purgatory.cancel_for_key(key))) == sorted(map(id, expected))
        self.cancelled += expected
        self.waiting = [entry for entry in self.waiting if entry[1] not in expected]

    @rule(data=st.data(), delay_ms=st.integers(0, 900))
    def postpone(self, data: st.DataObject, delay_ms: int) -> None:
        if not self.waiting:
            return
        entry = data.draw(st.sampled_from(self.waiting))
        deadline_ms, operation, keys = entry
        new_deadline_ms = self.fixture.clock.monotonic_ms() + delay_ms
        is_later = new_deadline_ms >= deadline_ms
        assert self.fixture.purgatory.postpone(operation, delay_ms) == is_later
        if is_later:
            self.waiting[self.waiting.index(entry)] = (new_deadline_ms, operation, keys)

    @rule(step_ms=st.integers(0, 500))
    def wait(self, step_ms: int) -> None:
        self.fixture.wait(step_ms)
        now_ms = self.fixture.clock.monotonic_ms()
        assert all(entry[1].is_completed for entry in self.waiting if entry[0] <= now_ms)
        self.forget_completed()

    def forget_completed(self) -> None:
        self.waiting = [entry for entry in self.waiting if not entry[1].is_completed]

    @invariant()
    def agrees(self) -> None:
        purgatory = self.fixture.purgatory
        purgatory.validate()
        self.fixture.timer.validate()
        assert purgatory.delayed == self.fixture.timer.size == len(self.waiting)
        assert purgatory.watched >= sum(len(keys) for _, _, keys in self.waiting)
        assert all(operation.answers == operation.is_completed for operation in self.all)
        assert not any(operation.is_completed for operation in self.cancelled)


TestPurgatoryAgainstModel = PurgatoryAgainstModel.TestCase
TestPurgatoryAgainstModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_what_waits_is_listed_once_whatever_its_keys_and_without_what_is_over() -> None:
    fixture = Fixture()
    both, one, over = Operation(), Operation(), Operation()
    for operation, keys in ((both, ["a", "b"]), (one, ["b"]), (over, ["a", "c"])):
        fixture.purgatory.try_complete_else_watch(operation, keys)
    over.force_complete()
    assert fixture.purgatory.waiting(100) == [both, one]
    assert fixture.purgatory.waiting(1) == [both]
    assert (fixture.purgatory.keys, both.watch_keys) == (3, ("a", "b"))
