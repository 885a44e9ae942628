"""Offsets by group, topic and partition. Kafka: ``OffsetAndMetadata``, ``OffsetMetadataManager.Offsets``.

A shard may hold hundreds of thousands of offsets, so an entry keeps what is asked for again and no more: the
topic id, which is in the record, is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

import msgspec

from minikafka.protocol.internal.group_records import OffsetCommitValue

T = TypeVar("T")


class CommittedOffset(msgspec.Struct, frozen=True, gc=False):
    """``order`` tells which of two commits of a partition is the newer one in the log."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None
    order: int

    @classmethod
    def of(cls, value: OffsetCommitValue, *, order: int) -> CommittedOffset:
        return cls(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp_ms,
            value.expire_timestamp_ms,
            order,
        )


class PartitionMap(Generic[T]):
    """A value for some partitions of some groups. A group or topic without any is not kept."""

    __slots__ = ("_groups", "_size")

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[int, T]]] = {}
        self._size = 0

    def __len__(self) -> int:
        """How many values there are."""
        return self._size

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._groups

    def get(self, group_id: str, topic: str, partition: int) -> T | None:
        topics = self._groups.get(group_id)
        if topics is None:
            return None
        partitions = topics.get(topic)
        return None if partitions is None else partitions.get(partition)

    def put(self, group_id: str, topic: str, partition: int, value: T) -> None:
        topics = self._groups.get(group_id)
        if topics is None:
            topics = self._groups[group_id] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
        self._size += partition not in partitions
        partitions[partition] = value

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._groups.get(group_id)
        partitions = None if topics is None else topics.get(topic)
        if topics is None or partitions is None or partition not in partitions:
            return
        del partitions[partition]
        self._size -= 1
        if not partitions:
            del topics[topic]
            if not topics:
                del self._groups[group_id]

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, T]]:
        """By topic and partition. A view: not to be held while the map changes."""
        return self._groups.get(group_id, {})

    def items(self) -> Iterator[tuple[str, str, int, T]]:
        """Group, topic, partition, value."""
        for group_id, topics in self._groups.items():
            for topic, partitions in topics.items():
                for partition, value in partitions.items():
                    yield group_id, topic, partition, value
