"""A virtual day. ``python -m minikafka.testing.simulation.scenarios.long_run --days 24`` is the long form."""

from __future__ import annotations

from minikafka.testing.simulation.scenarios.long_run import grown, play_days


def test_what_is_kept_is_forgotten_after_a_while() -> None:
    looks = play_days(1, look_hours=6)

    assert grown(looks) == []
    last = looks[-1].counts
    assert last["groups"] and last["transactional ids"] and last["producer ids"]  # so there was a load
