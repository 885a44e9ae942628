"""The controller: an event in, effects out, one event after the other.

Kafka: ``KafkaController.process``; the shell's queue is Kafka's ``ControllerEventManager``.

A ``Controller`` is made when its broker is elected, its first event is ``Elected``, and it is dropped when
the broker is the controller no more. A step that is closed in the middle is the end of it too: what it
remembers may not be true then, and only the store counts.

KIP-903 (a broker that died and came back empty must not be taken into an ISR by a leader that does not know)
is the controller's as far as that: a broker with a new epoch is taken out of all ISRs before it is told
anything, and wherever a replica goes away, the state is written at a new leader epoch, so a leader's
conditional write that was decided before fails. The leader's part is to decide anew after that from fetches
of the new leader epoch only. While no controller is elected nobody watches: a leader should not expand an ISR
with a broker whose registration is newer than what it has fetched.
"""

from __future__ import annotations

from typing import assert_never

from minikafka.controller.broker_changes import broker_change
from minikafka.controller.context import ControllerContext
from minikafka.controller.controlled_shutdown import controlled_shutdown
from minikafka.controller.effects import Step
from minikafka.controller.elections import leader_elections, leader_rebalance, preferred_elections
from minikafka.controller.events import (
    BrokersChanged,
    CaughtUpReassignmentsDue,
    ControlledShutdownAsked,
    Elected,
    Event,
    IsrChangesAnnounced,
    LeaderAndIsrAnswered,
    LeaderElectionsAsked,
    LeaderRebalanceDue,
    LogDirEventsAnnounced,
    PartitionsChanged,
    PreferredElectionsAsked,
    ReassignmentIsrChanged,
    ReassignmentsAsked,
    StopReplicaAnswered,
    TopicDeletionsChanged,
    TopicsChanged,
    UncleanElectionEnabled,
)
from minikafka.controller.failover import controller_failover
from minikafka.controller.machines import Machines
from minikafka.controller.reassignment import finish_those_that_waited, reassignment_isr_change
from minikafka.controller.reassignment_wishes import reassignments_asked
from minikafka.controller.replica_answers import (
    leader_and_isr_answered,
    log_dir_event_notification,
    stop_replica_answered,
)
from minikafka.controller.topic_changes import (
    isr_change_notification,
    partitions_change,
    topic_change,
    topic_deletions_change,
)
from minikafka.errors import InvariantError
from minikafka.types import BrokerId


class Controller:
    """One broker's reign as the controller. See the module header."""

    def __init__(self, controller_id: BrokerId, *, delete_topic_enable: bool = True) -> None:
        self._controller_id = controller_id
        self._delete_topic_enable = delete_topic_enable
        self._machines: Machines | None = None
        self._ended = False

    def __repr__(self) -> str:
        state = (
            "ended" if self._ended else "not elected" if self._machines is None else self._machines.context
        )
        return f"Controller({self._controller_id}, {state})"

    @property
    def context(self) -> ControllerContext | None:
        """What is known, to be looked at; None before the election."""
        return None if self._machines is None else self._machines.context

    def step(self, event: Event) -> Step[object]:
        """Handle one event; the step before has to be finished. Returns what the event's docstring says.

        Raises:
            InvariantError: the first event is not Elected, a later one is, or a step before was closed.
        """
        if self._ended or isinstance(event, Elected) != (self._machines is None):
            raise InvariantError(f"{self!r} cannot handle {event}")
        if isinstance(event, Elected):
            self._machines = Machines.of_epoch(
                event.controller_epoch, delete_topic_enable=self._delete_topic_enable
            )
        assert self._machines is not None
        try:
            return (yield from _handled(self._machines, event))
        except BaseException:
            self._ended = True
            raise

    def validate(self) -> None:
        """Check what is remembered between two steps. Raises InvariantError."""
        if self._machines is not None and not self._ended:
            self._machines.context.validate()


def _handled(machines: Machines, event: Event) -> Step[object]:
    match event:
        case Elected():
            yield from controller_failover(machines)
        case BrokersChanged():
            yield from broker_change(machines)
        case TopicsChanged():
            yield from topic_change(machines)
        case PartitionsChanged(topic):
            yield from partitions_change(machines, topic)
        case TopicDeletionsChanged():
            yield from topic_deletions_change(machines)
        case IsrChangesAnnounced():
            yield from isr_change_notification(machines)
        case LogDirEventsAnnounced():
            yield from log_dir_event_notification(machines)
        case LeaderAndIsrAnswered():
            yield from leader_and_isr_answered(machines, event)
        case StopReplicaAnswered():
            yield from stop_replica_answered(machines, event)
        case ControlledShutdownAsked(broker, broker_epoch):
            return (yield from controlled_shutdown(machines, broker, broker_epoch))
        case UncleanElectionEnabled(topic):
            yield from machines.partitions.trigger_online_state_change(topic)
        case ReassignmentsAsked():
            yield from reassignments_asked(machines)
        case ReassignmentIsrChanged(topic_partition):
            yield from reassignment_isr_change(machines, topic_partition)
        case CaughtUpReassignmentsDue():
            yield from finish_those_that_waited(machines)
        case PreferredElectionsAsked():
            yield from preferred_elections(machines)
        case LeaderElectionsAsked(partitions, election_type):
            return (yield from leader_elections(machines, partitions, election_type))
        case LeaderRebalanceDue(imbalance_max_percent):
            yield from leader_rebalance(machines, imbalance_max_percent)
        case _:
            assert_never(event)
    return None
