"""Full collections of garbage go through what is new, and through everything once in ten minutes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from minikafka.clock import ManualClock
from minikafka.server.runtime.process import EVERYTHING_AFTER_MS, FullCollections


class Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def clock() -> Iterator[ManualClock]:
    clock = ManualClock()
    collections = FullCollections(clock)
    collections.begin()
    yield clock
    collections.end()


def test_what_lived_through_a_full_collection_is_not_gone_through_again(clock: ManualClock) -> None:
    kept = [[number] for number in range(100_000)]
    gc.collect()
    assert len(gc.get_objects()) < len(kept)
    assert gc.get_freeze_count() > len(kept)


def test_a_new_cycle_is_found_by_the_next_full_collection(clock: ManualClock) -> None:
    gc.collect()
    cycle = weakref.ref(Cycle())
    gc.collect()
    assert cycle() is None


def test_a_cycle_that_was_set_aside_is_found_ten_minutes_later(clock: ManualClock) -> None:
    long_used = Cycle()
    cycle = weakref.ref(long_used)
    gc.collect()
    del long_used
    clock.advance(EVERYTHING_AFTER_MS - 1)
    gc.collect()
    assert cycle() is not None
    clock.advance(1)
    gc.collect()
    assert cycle() is None


def test_when_it_ends_nothing_is_set_aside(clock: ManualClock) -> None:
    collections = FullCollections(clock)
    collections.begin()
    collections.end()
    assert gc.get_freeze_count() == 0
