"""What a broker remembers of what it has refused is bounded, and the newest comes first."""

from __future__ import annotations

from minikafka.metrics import broker_stats
from minikafka.metrics.broker_stats import Refusals, RefusedKind


def note(found: Refusals, about: str, *, now_ms: int, message: str = "no", client_id: str = "c") -> None:
    found.note(RefusedKind.PRODUCE, about, "INVALID_RECORD", message, client_id=client_id, now_ms=now_ms)


def test_equal_refusals_are_one_with_a_count() -> None:
    found = Refusals()
    note(found, "orders-0", now_ms=1, message="first")
    note(found, "orders-1", now_ms=2)
    note(found, "orders-0", now_ms=3, message="second")
    (last, refusal), (other, _) = found.newest_first()
    assert (last.about, other.about) == ("orders-0", "orders-1")
    assert (refusal.count, refusal.first_ms, refusal.last_ms, refusal.message) == (2, 1, 3, "second")


def test_the_one_that_did_not_come_again_is_forgotten() -> None:
    found = Refusals()
    for number in range(broker_stats.REFUSALS_MAX):
        note(found, f"t-{number}", now_ms=0)
    note(found, "t-0", now_ms=1)
    note(found, "new", now_ms=2)
    kept = [refused.about for refused, _ in found.newest_first()]
    assert len(kept) == broker_stats.REFUSALS_MAX
    assert kept[:2] == ["new", "t-0"] and "t-1" not in kept


def test_no_text_is_longer_than_it_has_to_be() -> None:
    found = Refusals()
    long = "x" * 30_000
    note(found, long, now_ms=0, message=long, client_id=long)
    ((refused, refusal),) = found.newest_first()
    assert {len(refused.about), len(refused.client_id), len(refusal.message)} == {
        broker_stats.REFUSAL_TEXT_MAX
    }
