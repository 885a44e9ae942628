"""The nouns that every layer shares. Nothing here does anything; it only names things.

Kafka's own classes: ``TopicPartition``, ``ReplicaAssignment``, ``LeaderIsrAndControllerEpoch``.
"""

from __future__ import annotations

from typing import NamedTuple, NewType

import msgspec

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
