"""What a coordinator remembers of its groups is bounded, whatever clients send."""

from __future__ import annotations

from minikafka.coordinator.group import environment
from minikafka.coordinator.group.environment import GroupEventKind, GroupHistory

KIND = GroupEventKind.REBALANCE


def test_the_last_events_of_a_group_are_kept() -> None:
    found = GroupHistory()
    for number in range(environment.HISTORY_EVENTS_MAX + 3):
        found.note("g", KIND, f"reason {number}", now_ms=number)
    events = found.of("g")
    assert [each.at_ms for each in events] == list(range(3, environment.HISTORY_EVENTS_MAX + 3))
    assert found.of("other") == ()


def test_the_group_without_events_for_the_longest_time_is_forgotten() -> None:
    found = GroupHistory()
    for number in range(environment.HISTORIES_MAX):
        found.note(f"g{number}", KIND, "", now_ms=0)
    found.note("g0", KIND, "again", now_ms=1)
    found.note("new", KIND, "", now_ms=2)
    assert len(found.of("g0")) == 2 and found.of("new")
    assert found.of("g1") == (), "g0 had something to tell meanwhile"


def test_no_text_is_longer_than_it_has_to_be() -> None:
    found = GroupHistory()
    long = "x" * 30_000
    found.note("g", KIND, long, now_ms=0, member_id=long, client_id=long)
    (event,) = found.of("g")
    assert {len(event.why), len(event.member_id), len(event.client_id)} == {environment.HISTORY_TEXT_MAX}
