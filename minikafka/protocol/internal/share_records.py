"""What the records of ``__share_group_state`` say, as keys and values of Kafka's names (KIP-932).

Kafka: ``share-coordinator/src/main/resources/common/message/*.json``. A snapshot says all of a share
partition, an update what has changed since its snapshot. A snapshot without a value is a tombstone. Bytes:
``share_record_codec``.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from minikafka.named_tuple import NamedTuple


class StateBatch(NamedTuple):
    """The state of the records of ``first_offset`` to ``last_offset``, both included. ``delivery_state`` is
    the id of a ``RecordState``: 0 available, 2 acknowledged, 3 on its way to the dead letter queue,
    4 archived."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class SharePartitionKey(NamedTuple):
    """A partition as one group consumes it."""

    group_id: str
    topic_id: UUID
    partition: int

    def __str__(self) -> str:
        return f"{self.group_id}:{self.topic_id}:{self.partition}"


class ShareSnapshotValue(msgspec.Struct, frozen=True, kw_only=True):
    """All of a share partition's state. Times are milliseconds since the Unix epoch."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int = -1
    create_timestamp: int
    write_timestamp: int
    state_batches: tuple[StateBatch, ...]


class ShareUpdateValue(msgspec.Struct, frozen=True, kw_only=True):
    """What has changed. ``start_offset``, ``leader_epoch`` and ``delivery_complete_count`` -1: not these."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int = -1
    state_batches: tuple[StateBatch, ...]


class ShareRecord(NamedTuple):
    """One record of ``__share_group_state``. A value of None is a tombstone, with the key of a snapshot."""

    key: SharePartitionKey
    value: ShareSnapshotValue | ShareUpdateValue | None
