"""What happens to a controller. Kafka: ``ControllerEvent`` and its subclasses.

The shell turns watches, answers and questions of brokers into these, puts them into one queue, and has the
controller step through one after the other.
"""

from __future__ import annotations

import msgspec

from minikafka.protocol.control.messages import (
    LeaderAndIsrResponse,
    StopReplicaPartition,
    StopReplicaResponse,
)
from minikafka.types import BrokerId


class Elected(msgspec.Struct, frozen=True):
    """This broker has become the controller (``KafkaController.onControllerFailover``)."""

    controller_epoch: int


class BrokersChanged(msgspec.Struct, frozen=True):
    """Something under ``/brokers/ids`` came, went or was written anew."""


class TopicsChanged(msgspec.Struct, frozen=True):
    """A topic was created, or is gone."""


class PartitionsChanged(msgspec.Struct, frozen=True):
    """A topic's node was written: it may have more partitions."""

    topic: str


class TopicDeletionsChanged(msgspec.Struct, frozen=True):
    """Somebody wants a topic deleted."""


class IsrChangesAnnounced(msgspec.Struct, frozen=True):
    """Leaders have written new ISRs and left a notification."""


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
    """``unclean.leader.election.enable`` was switched on for a topic; None: for all brokers."""

    topic: str | None


Event = (
    Elected
    | BrokersChanged
    | TopicsChanged
    | PartitionsChanged
    | TopicDeletionsChanged
    | IsrChangesAnnounced
    | LogDirEventsAnnounced
    | LeaderAndIsrAnswered
    | StopReplicaAnswered
    | ControlledShutdownAsked
    | UncleanElectionEnabled
)
