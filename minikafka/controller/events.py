"""What happens to a controller. Kafka: ``ControllerEvent`` and its subclasses.

The shell turns watches, answers and questions of brokers into these, puts them into one queue, and has the
controller step through one after the other.
"""

from __future__ import annotations

import msgspec

from minikafka.protocol.control import LeaderAndIsrResponse, StopReplicaPartition, StopReplicaResponse
from minikafka.types import BrokerId, ElectionType, TopicPartition


class Elected(msgspec.Struct, frozen=True):
    """This broker has become the controller (``KafkaController.onControllerFailover``)."""

    controller_epoch: int


class BrokersChanged(msgspec.Struct, frozen=True):
    """Something under ``/brokers/ids`` came, went or was written again."""


class TopicsChanged(msgspec.Struct, frozen=True):
    """A topic was created, or is gone."""


class PartitionsChanged(msgspec.Struct, frozen=True):
    """A topic's node was written: it may have more partitions, or some are to be reassigned."""

    topic: str


class TopicDeletionsChanged(msgspec.Struct, frozen=True):
    """A topic is to be deleted."""


class IsrChangesAnnounced(msgspec.Struct, frozen=True):
    """Leaders have written new ISRs and left a notification."""


class IsrsAltered(msgspec.Struct, frozen=True):
    """This controller has written new ISRs, as their leaders asked."""

    partitions: tuple[TopicPartition, ...]


class LogDirEventsAnnounced(msgspec.Struct, frozen=True):
    """Brokers have lost log directories and left a notification."""


class LeaderAndIsrAnswered(msgspec.Struct, frozen=True):
    """A broker has done what LeaderAndIsr said. ``broker_epoch``: of the incarnation that was asked."""

    broker_id: BrokerId
    broker_epoch: int
    response: LeaderAndIsrResponse


class StopReplicaAnswered(msgspec.Struct, frozen=True):
    """A broker has done what StopReplica said. ``asked`` is what it said: only a request to delete can have
    deleted, and the response does not tell."""

    broker_id: BrokerId
    broker_epoch: int
    asked: tuple[StopReplicaPartition, ...]
    response: StopReplicaResponse


class ControlledShutdownAsked(msgspec.Struct, frozen=True):
    """A broker wants to stop. The step returns the ``ControlledShutdownResponse``."""

    broker_id: BrokerId
    broker_epoch: int


class UncleanElectionEnabled(msgspec.Struct, frozen=True):
    """A topic was configured, and ``unclean.leader.election.enable`` is on; None: for all topics."""

    topic: str | None


class ReassignmentsAsked(msgspec.Struct, frozen=True):
    """``/admin/reassign_partitions`` was written."""


class ReassignmentIsrChanged(msgspec.Struct, frozen=True):
    """The state of a partition that is being reassigned was written: its ISR may have grown."""

    topic_partition: TopicPartition


class CaughtUpReassignmentsDue(msgspec.Struct, frozen=True):
    """What is caught up has waited for others long enough (``reassignment.TOGETHER_MS``)."""


class PreferredElectionsAsked(msgspec.Struct, frozen=True):
    """``/admin/preferred_replica_election`` was written."""


class LeaderElectionsAsked(msgspec.Struct, frozen=True):
    """ElectLeaders (KIP-460). ``partitions`` is None for all. The step returns a
    ``dict[TopicPartition, KafkaError | None]``: what became of each partition that was asked about, of all
    partitions only those for which there was something to do."""

    partitions: tuple[TopicPartition, ...] | None
    election_type: ElectionType


class LeaderRebalanceDue(msgspec.Struct, frozen=True):
    """It is time to look whether brokers lead what they are preferred for
    (``leader.imbalance.check.interval.seconds``)."""

    imbalance_max_percent: int
    """``leader.imbalance.per.broker.percentage``."""


Event = (
    Elected
    | BrokersChanged
    | TopicsChanged
    | PartitionsChanged
    | TopicDeletionsChanged
    | IsrChangesAnnounced
    | IsrsAltered
    | LogDirEventsAnnounced
    | LeaderAndIsrAnswered
    | StopReplicaAnswered
    | ControlledShutdownAsked
    | UncleanElectionEnabled
    | ReassignmentsAsked
    | ReassignmentIsrChanged
    | CaughtUpReassignmentsDue
    | PreferredElectionsAsked
    | LeaderElectionsAsked
    | LeaderRebalanceDue
)
