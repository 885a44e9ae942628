"""What ``__consumer_offsets`` says about a group: who owned which partitions, generation by generation."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from uuid import UUID

from minikafka.protocol.internal.group_record_codec import decode_record
from minikafka.protocol.internal.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
)
from minikafka.protocol.records.batch import iterate_headers
from minikafka.protocol.records.records import iterate_records
from tests.integration.support.cluster import ProcessCluster

OFFSETS_TOPIC = "__consumer_offsets"


def group_records(cluster: ProcessCluster) -> Iterator[GroupRecord]:
    """All records, partition by partition in the order of the leader's log."""
    for partition in range(len(cluster.store.partitions(OFFSETS_TOPIC))):
        state = cluster.store.state(OFFSETS_TOPIC, partition)
        assert state is not None
        for path in cluster.brokers[int(state.leader)].files(OFFSETS_TOPIC, ".log", partition):
            data = path.read_bytes()
            for position, header in iterate_headers(data):
                for record in iterate_records(data[position : position + header.size]):
                    assert record.key is not None
                    yield decode_record(record.key, record.value)


def owners_by_generation(cluster: ProcessCluster, group_id: str) -> dict[int, dict[tuple[str, int], str]]:
    """Generation → (topic, partition) → member, of a group of the classic protocol. Fails where a generation
    gives a partition to two, or generations go back."""
    found: dict[int, dict[tuple[str, int], str]] = {}
    last = -1
    for record in group_records(cluster):
        if record.key != GroupMetadataKey(group_id) or record.value is None:
            continue
        assert isinstance(record.value, GroupMetadataValue)
        generation = record.value.generation
        assert generation >= last, f"generation {generation} after {last}"
        last = generation
        owners: dict[tuple[str, int], str] = {}
        for member in record.value.members:
            for owned in assigned_partitions(member.assignment):
                assert owned not in owners, (
                    f"generation {generation} gives {owned} to {owners[owned]} and {member.member_id}"
                )
                owners[owned] = member.member_id
        found[generation] = owners
    return found


def assigned_partitions(assignment: bytes) -> list[tuple[str, int]]:
    """The partitions in an assignment of the consumer protocol (``ConsumerProtocolAssignment``)."""
    found = []
    if not assignment:
        return []
    (topics,), position = struct.unpack_from(">i", assignment, 2), 6
    for _ in range(topics):
        (size,) = struct.unpack_from(">h", assignment, position)
        topic = assignment[position + 2 : position + 2 + size].decode()
        position += 2 + size
        (count,) = struct.unpack_from(">i", assignment, position)
        found += [(topic, each) for each in struct.unpack_from(f">{count}i", assignment, position + 4)]
        position += 4 + 4 * count
    return found


def owners_over_time(cluster: ProcessCluster, group_id: str) -> int:
    """Goes through every assignment of a KIP-848 group, and fails where a partition has two owners at once.
    Returns how many changes there were."""
    owned: dict[str, frozenset[tuple[UUID, int]]] = {}
    changes = 0
    for record in group_records(cluster):
        key = record.key
        if not isinstance(key, ConsumerGroupCurrentMemberAssignmentKey) or key.group_id != group_id:
            continue
        changes += 1
        value = record.value
        if value is None:
            owned.pop(key.member_id, None)
            continue
        assert isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
        owned[key.member_id] = frozenset(
            (topic_id, partition)
            for part in (value.assigned_partitions, value.partitions_pending_revocation)
            for topic_id, partitions in part.items()
            for partition in partitions
        )
        everything = [each for partitions in owned.values() for each in partitions]
        assert len(everything) == len(set(everything)), f"owned twice: {owned}"
    return changes
