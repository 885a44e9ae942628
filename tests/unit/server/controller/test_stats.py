"""Every kind of event counts where Kafka counts it."""

from __future__ import annotations

from typing import get_args

import pytest

from minikafka.controller import events
from minikafka.metrics.names import CONTROLLER_EVENTS
from minikafka.server.controller.loop import _KIND_OF, KINDS, ControllerStats


def test_every_event_counts_somewhere() -> None:
    assert set(get_args(events.Event)) == {*_KIND_OF, events.UncleanElectionEnabled}
    assert set(KINDS) == set(CONTROLLER_EVENTS)


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (events.BrokersChanged(), "LeaderElection"),
        (events.PartitionsChanged("t"), "TopicChange"),
        (events.UncleanElectionEnabled(None), "UncleanLeaderElectionEnable"),
        (events.UncleanElectionEnabled("t"), "TopicUncleanLeaderElectionEnable"),
        (events.LeaderRebalanceDue(10), "AutoLeaderBalance"),
    ],
)
def test_an_event_counts_once_with_its_time(event: events.Event, kind: str) -> None:
    stats = ControllerStats()
    stats.handled(event, 3_000_000)
    assert {each: timer.count for each, timer in stats.timers.items() if timer.count} == {kind: 1}
    assert stats.timers[kind].quantiles_ms([0.5]) == [3]
