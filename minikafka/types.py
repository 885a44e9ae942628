"""The nouns that every layer shares. Nothing here does anything; it only names things.

Kafka's own classes: ``TopicPartition``, ``TopicIdPartition``, ``LogOffsetMetadata``.
"""

from __future__ import annotations

from typing import NamedTuple, NewType

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


class TopicPartition(NamedTuple):
    """One partition of one topic; prints as Kafka names its directory."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
