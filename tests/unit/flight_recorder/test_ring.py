"""The ring of events: its bounds, the order of its numbers, and what it makes of clients that cause many."""

from __future__ import annotations

from minikafka.clock import ManualClock
from minikafka.flight_recorder import (
    BY_CLIENTS_MAX,
    BrokerStopped,
    ClientThrottled,
    EventRing,
    Line,
    LogTruncated,
    cut,
    decode_event,
)


def truncation(to: int) -> LogTruncated:
    return LogTruncated(
        topic="orders", partition=0, from_offset=100, to_offset=to, leader=2, leader_epoch=5, cause="epoch 4"
    )


def throttle(client_id: str = "app") -> ClientThrottled:
    return ClientThrottled(
        user="ANONYMOUS", client_id=client_id, quota="producer_byte_rate", throttle_time_ms=9, cause="fast"
    )


def texts(lines: list[Line]) -> list[str]:
    return [event.event.text for line in lines if (event := decode_event(line)) is not None]


def test_the_oldest_leave_when_the_bytes_are_used_up() -> None:
    ring = EventRing(ManualClock(), bytes_max=1000)
    for to in range(10, 60):
        assert ring.add(truncation(to))
    assert ring.size_bytes <= 1000
    kept = texts(ring.after(0))
    assert kept == [f"truncated from 100 to {to}: epoch 4" for to in range(60 - len(kept), 60)]
    assert 3 <= len(kept) < 50


def test_an_event_that_is_larger_than_the_ring_is_not_kept() -> None:
    ring = EventRing(ManualClock(), bytes_max=40)
    assert not ring.add(truncation(1))
    assert (len(ring), ring.size_bytes, ring.first) == (0, 0, None)


def test_numbers_rise_within_a_millisecond_and_when_the_clock_goes_back() -> None:
    clock = ManualClock(start_ms=5000)
    ring = EventRing(clock, bytes_max=10_000)
    ring.add(BrokerStopped())
    ring.add(BrokerStopped())
    ring._clock = ManualClock(start_ms=3000)
    ring.add(BrokerStopped())
    assert [line.sequence for line in ring.after(0)] == [5_000_000, 5_000_001, 5_000_002]
    last = decode_event(ring.after(5_000_001)[0])
    assert last is not None and last.at_ms == 3000


def test_only_so_many_of_what_clients_cause_are_kept_of_a_second_and_the_next_says_how_many_were_not() -> (
    None
):
    clock = ManualClock()
    ring = EventRing(clock, bytes_max=100_000)
    kept = [ring.add(throttle()) for _ in range(BY_CLIENTS_MAX + 7)]
    assert kept.count(True) == BY_CLIENTS_MAX
    assert ring.add(truncation(1)), "what the broker decides is not held back by what clients do"
    clock.advance(1000)
    assert ring.add(throttle())
    last = decode_event(ring.after(0)[-1])
    assert last is not None and last.left_out == 7


def test_what_was_restored_comes_before_and_numbers_go_on_after_it() -> None:
    clock = ManualClock(start_ms=1000)
    before = EventRing(clock, bytes_max=10_000)
    before.add(truncation(1))
    before.add(truncation(2))
    ring = EventRing(ManualClock(start_ms=0), bytes_max=10_000)
    ring.restore(before.after(0))
    ring.add(truncation(3))
    assert [line.sequence for line in ring.after(0)] == [1_000_000, 1_000_001, 1_000_002]


def test_an_event_of_a_later_release_is_passed_over() -> None:
    assert decode_event(Line(7, b'{"sequence":7,"at_ms":1,"event":{"kind":"teleported"}}')) is None


def test_long_texts_of_others_are_cut() -> None:
    assert cut("short") == "short"
    assert len(cut("x" * 30_000)) == 200
