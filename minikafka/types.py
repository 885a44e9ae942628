"""The nouns that every layer shares. Nothing here does anything; it only names things.

Kafka's own classes: ``TopicPartition``, ``ReplicaAssignment``, ``LeaderIsrAndControllerEpoch``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NewType

import msgspec

from minikafka.named_tuple import NamedTuple

Buffer = bytes | bytearray | memoryview
"""Anything with bytes that can be sent or written without a copy."""

BrokerId = NewType("BrokerId", int)
Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)

NO_EPOCH = LeaderEpoch(-1)
"""Kafka's NO_PARTITION_LEADER_EPOCH (RecordBatch.java): the epoch is not known."""
NO_OFFSET = Offset(-1)
NO_TIMESTAMP = -1
NO_PRODUCER_ID = ProducerId(-1)
NO_PRODUCER_EPOCH = ProducerEpoch(-1)
NO_SEQUENCE = -1
NO_LEADER = BrokerId(-1)

TOPIC_NAME_LENGTH_MAX = 249
"""``Topic.MAX_NAME_LENGTH``: a directory ``<topic>-<partition>`` fits into 255 bytes."""

TOPIC_NAME_PATTERN = rf"^(?!\.{{1,2}}\Z)[a-zA-Z0-9._-]{{1,{TOPIC_NAME_LENGTH_MAX}}}\Z"
"""``Topic.validate``: what may be a topic's name, and so a directory and a node of the store."""

_TOPIC_NAME = re.compile(TOPIC_NAME_PATTERN)


def joined(items: Iterable[object]) -> str:
    """Broker ids, partitions and the like as Kafka's log lines have them: ``1,2,3``."""
    return ",".join(map(str, items))


def is_topic_name(text: str) -> bool:
    """Whether a topic may be called that."""
    return _TOPIC_NAME.match(text) is not None


"""Kafka's ``LeaderAndIsr.NoLeader``; the controller id is also -1 while there is none."""


class TopicPartition(NamedTuple):
    """One partition of one topic; prints as Kafka names its directory."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ReplicaAssignment(msgspec.Struct, frozen=True):
    """The brokers of one partition, the preferred leader first. ``replicas`` includes those being added and
    removed by a reassignment."""

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()

    @property
    def is_being_reassigned(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def origin(self) -> tuple[BrokerId, ...]:
        """The replicas before the reassignment: what cancelling it goes back to (OAR)."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    @property
    def target(self) -> tuple[BrokerId, ...]:
        """The replicas after the reassignment, the preferred leader first (RAR)."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    def reassign_to(self, target: Sequence[BrokerId]) -> ReplicaAssignment:
        """On the way to ``target``, or to another target than before (``ReplicaAssignment.reassignTo``).

        Every replica that is there is named until it was stopped: one that the new target gives up is
        both adding and removing. Kafka drops it from the list at once, so a controller that dies then leaves
        its log behind. ``reassign_to(origin)`` cancels.
        """
        replicas = (*target, *(each for each in self.replicas if each not in target))
        origin = self.origin
        return ReplicaAssignment(
            replicas,
            adding=tuple(each for each in replicas if each not in origin),
            removing=tuple(each for each in replicas if each not in target),
        )


class ElectionType(IntEnum):
    """What ElectLeaders asks for (KIP-460)."""

    PREFERRED = 0
    """The first of the assignment is to lead, if it is in the ISR."""
    UNCLEAN = 1
    """Any live replica is to lead a partition without a leader, even if acked records are lost by it."""


class PartitionState(msgspec.Struct, frozen=True):
    """Who leads a partition since which election, and who is in sync: Kafka's LeaderIsrAndControllerEpoch.

    What ``/brokers/topics/T/partitions/P/state`` says.
    """

    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    controller_epoch: int
    leader_recovering: bool = False
    """Elected uncleanly and not yet recovered (``LeaderRecoveryState.RECOVERING``)."""
    eligible: tuple[BrokerId, ...] = ()
    """Out of the ISR, and sure to hold all that is committed (KIP-966's eligible leader replicas)."""
    last_known_leader: BrokerId = NO_LEADER
    """While there is no leader: the one that led last (what Kafka keeps in ``lastKnownElr``)."""

    def __str__(self) -> str:
        eligible = f", eligible replicas {joined(self.eligible)}" if self.eligible else ""
        led = "" if self.last_known_leader == NO_LEADER else f", last led by {self.last_known_leader}"
        return f"leader {self.leader} in epoch {self.leader_epoch}, ISR {joined(self.isr)}{eligible}{led}"
