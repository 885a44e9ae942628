"""Requests are counted exactly, timed by their stations, and summed up in quantiles."""

from __future__ import annotations

import pytest

from minikafka.metrics.request_metrics import (
    RESERVOIR_SIZE,
    TIMED_ONE_IN,
    Phase,
    ProduceTally,
    RequestChannelMetrics,
    RequestCounter,
    RequestMetrics,
    RequestTiming,
    Reservoir,
    TimedRequests,
    quantiles,
)

MS = 1_000_000


class Nanoseconds:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def advance(self, duration_ms: int) -> None:
        self.now += duration_ms * MS


def milliseconds(metrics: RequestMetrics) -> dict[Phase, float]:
    """The median of each phase."""
    return {phase: quantiles(metrics.timed.of(phase), [0.5])[0] for phase in Phase}


def test_a_request_that_passes_all_stations_shows_how_long_it_was_in_each() -> None:
    clock, metrics = Nanoseconds(), RequestMetrics("Produce")
    clock.advance(1)
    arrived_ns = clock()
    clock.advance(1)
    timing = RequestTiming(metrics, clock, arrived_ns=arrived_ns, size_bytes=100)
    clock.advance(2)
    timing.handled()
    clock.advance(30)
    timing.completed()
    clock.advance(4)
    timing.left()
    clock.advance(5)
    timing.sent()
    assert milliseconds(metrics) == {
        Phase.REQUEST_QUEUE: 1,
        Phase.LOCAL: 2,
        Phase.REMOTE: 30,
        Phase.RESPONSE_QUEUE: 4,
        Phase.RESPONSE_SEND: 5,
    }
    assert metrics.timed.totals() == [42]


def test_a_request_that_is_answered_at_once_has_no_remote_time() -> None:
    clock, metrics = Nanoseconds(), RequestMetrics("Metadata")
    timing = RequestTiming(metrics, clock, arrived_ns=0, size_bytes=100)
    clock.advance(7)
    timing.handled()
    timing.left()
    timing.sent()
    assert milliseconds(metrics)[Phase.LOCAL] == 7
    assert milliseconds(metrics)[Phase.REMOTE] == 0
    assert milliseconds(metrics)[Phase.RESPONSE_QUEUE] == 0


def test_a_request_that_is_completed_within_its_handler_was_local_until_then() -> None:
    clock, metrics = Nanoseconds(), RequestMetrics("JoinGroup")
    timing = RequestTiming(metrics, clock, arrived_ns=0, size_bytes=100)
    clock.advance(3)
    timing.completed()
    timing.handled()
    timing.left()
    timing.sent()
    assert (milliseconds(metrics)[Phase.LOCAL], milliseconds(metrics)[Phase.REMOTE]) == (3, 0)


def test_a_request_that_is_never_sent_leaves_no_times() -> None:
    metrics = RequestMetrics("Fetch")
    RequestTiming(metrics, Nanoseconds(), arrived_ns=0, size_bytes=100).handled()
    assert len(metrics.timed) == 0


def test_every_request_counts_and_of_many_some_are_timed_beginning_with_the_first() -> None:
    metrics = RequestMetrics("Fetch", timed_one_in=TIMED_ONE_IN)
    timed = [number for number in range(TIMED_ONE_IN * 3) if metrics.note(12)]
    assert timed == [0, TIMED_ONE_IN, TIMED_ONE_IN * 2]
    assert metrics.counts == {12: TIMED_ONE_IN * 3}


def test_a_request_that_has_just_arrived_was_not_queued() -> None:
    clock, metrics = Nanoseconds(), RequestMetrics("Metadata")
    clock.advance(1000)
    timing = RequestTiming(metrics, clock, arrived_ns=0, size_bytes=100)
    timing.handled()
    timing.sent()
    assert milliseconds(metrics)[Phase.REQUEST_QUEUE] == 0


def test_versions_are_counted_apart() -> None:
    metrics = RequestMetrics("Metadata")
    for version in (1, 12, 12):
        metrics.note(version)
    assert metrics.counts == {1: 1, 12: 2}
    assert metrics.count == 3


def serve(tally: ProduceTally) -> bool:
    """As who serves a request of one record does. Whether it was one to be timed."""
    is_timed = tally.until_timed <= 0
    tally.until_timed -= 1
    if is_timed:
        tally.note_timed()
    return is_timed


def test_a_tally_counts_for_its_version_too() -> None:
    metrics = RequestMetrics("Produce", timed_one_in=TIMED_ONE_IN)
    metrics.note(9)
    tally = metrics.counter(12).tally()
    for count in range(1, 2 * TIMED_ONE_IN):
        serve(tally)
        assert (metrics.counts, metrics.count) == ({9: 1, 12: count}, count + 1)


def test_a_settled_tally_leaves_what_it_had() -> None:
    counter = RequestCounter()
    tallies = [counter.tally(), counter.tally()]
    for tally, requests in zip(tallies, (300, 7), strict=True):
        for _ in range(requests):
            serve(tally)
    counter.settle(tallies[0])
    assert (counter.count, counter.total) == (300, 307)
    serve(tallies[1])
    assert counter.total == 308


def test_of_many_tallies_no_more_are_timed_than_of_one() -> None:
    """Each goes on in the round that the API is in; the first requests of all would else be timed."""
    metrics = RequestMetrics("Produce", timed_one_in=TIMED_ONE_IN)
    timed = 0
    for _ in range(TIMED_ONE_IN):
        timed += metrics.note(12)  # the first request of each producer takes the slow path
        tally = metrics.counter(12).tally()
        timed += sum(serve(tally) for _ in range(20))
    assert metrics.count == 21 * TIMED_ONE_IN
    assert timed == 21


def test_fetches_of_consumers_and_followers_are_fetches_too() -> None:
    metrics = RequestChannelMetrics({0: "Produce", 1: "Fetch", 3: "Metadata"}, produce_key=0, fetch_key=1)
    metrics.fetch_consumer.note(13)
    metrics.fetch_follower.note(13)
    metrics.fetch_follower.note_error(6)
    metrics.fetch_follower.add((1, 2, 3, 4, 5))
    metrics.fetch_follower.note_throttle(7)
    fetch = metrics.of(1)
    assert (fetch.counts, fetch.errors) == ({13: 2}, {6: 1})
    assert fetch.timed.totals() == [15]
    assert (fetch.throttled, metrics.fetch_consumer.throttled) == (1, 0)
    assert metrics.fetch_consumer.errors == {}
    assert [each.name for each in metrics] == [
        "Produce", "Fetch", "Metadata", "FetchConsumer", "FetchFollower",
    ]  # fmt: skip


def test_throttled_requests_are_counted_by_themselves() -> None:
    metrics = RequestMetrics("Produce")
    metrics.note_throttle(250)
    assert metrics.throttled == 1
    assert metrics.throttle_ms.quantiles([0.5]) == [250]


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (0.5, 50), (0.99, 99), (1.0, 100)])
def test_quantiles_are_those_of_the_values(share: float, expected: float) -> None:
    reservoir = Reservoir()
    for value in range(101):
        reservoir.add(value)
    assert reservoir.quantiles([share]) == [pytest.approx(expected)]


def test_an_empty_reservoir_says_zero_as_kafkas_histograms_do() -> None:
    assert Reservoir().quantiles([0.5, 0.99]) == [0.0, 0.0]


def test_only_the_latest_requests_count_for_their_times() -> None:
    timed = TimedRequests()
    for row in [(9.0, 9.0, 9.0, 9.0, 9.0)] * RESERVOIR_SIZE + [(1.0, 2.0, 3.0, 4.0, 5.0)] * RESERVOIR_SIZE:
        timed.add(row)
    assert len(timed) == RESERVOIR_SIZE
    assert set(timed.of(Phase.REMOTE)) == {3.0}
    assert set(timed.totals()) == {15.0}


def test_only_the_latest_values_count_for_quantiles() -> None:
    reservoir = Reservoir()
    for value in [1_000_000.0] * RESERVOIR_SIZE + [1.0] * RESERVOIR_SIZE:
        reservoir.add(value)
    assert reservoir.quantiles([0.999]) == [1.0]
