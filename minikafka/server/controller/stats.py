"""How often the controller has handled each kind of event, and how long that took.

Kafka: ``ControllerStats``, ``ControllerState`` and the ``state`` of each ``ControllerEvent``; ``KINDS`` are
its names. ``LeaderElection`` is the time that it takes until brokers that came or went are dealt with: the
name is older than the others.

Differs from Kafka: kinds without an event here (ControllerShutdown, ListPartitionReassignment,
UpdateFeatures, UpdateMetadataResponseReceived) are left out.
"""

from __future__ import annotations

from typing import Final

from minikafka.controller import events
from minikafka.metrics.timer import KafkaTimer

_KIND_OF: Final[dict[type[events.Event], str]] = {
    events.Elected: "ControllerChange",
    events.BrokersChanged: "LeaderElection",
    events.TopicsChanged: "TopicChange",
    events.PartitionsChanged: "TopicChange",
    events.TopicDeletionsChanged: "TopicDeletion",
    events.StopReplicaAnswered: "TopicDeletion",
    events.ReassignmentsAsked: "PartitionReassignment",
    events.ReassignmentIsrChanged: "PartitionReassignment",
    events.CaughtUpReassignmentsDue: "PartitionReassignment",
    events.LeaderRebalanceDue: "AutoLeaderBalance",
    events.PreferredElectionsAsked: "ManualLeaderBalance",
    events.LeaderElectionsAsked: "ManualLeaderBalance",
    events.ControlledShutdownAsked: "ControlledShutdown",
    events.IsrChangesAnnounced: "IsrChange",
    events.LeaderAndIsrAnswered: "LeaderAndIsrResponseReceived",
    events.LogDirEventsAnnounced: "LogDirChange",
}
_UNCLEAN_ELECTIONS: Final = {True: "UncleanLeaderElectionEnable", False: "TopicUncleanLeaderElectionEnable"}

KINDS: Final = tuple(dict.fromkeys((*_KIND_OF.values(), *_UNCLEAN_ELECTIONS.values())))


class ControllerStats:
    """A timer for each of ``KINDS``; they outlast a reign, as counters must."""

    def __init__(self) -> None:
        self.timers = {kind: KafkaTimer() for kind in KINDS}

    def __repr__(self) -> str:
        return (
            f"ControllerStats({ {kind: timer.count for kind, timer in self.timers.items() if timer.count} })"
        )

    def handled(self, event: events.Event, duration_ns: int) -> None:
        """An event's step is over, to its end or not."""
        if isinstance(event, events.UncleanElectionEnabled):
            self.timers[_UNCLEAN_ELECTIONS[event.topic is None]].update(duration_ns)
        else:
            self.timers[_KIND_OF[type(event)]].update(duration_ns)
