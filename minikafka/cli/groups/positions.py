"""How far a group has come: its committed offsets beside the ends of the logs, and who reads what.

Kafka: ``ConsumerGroupCommand.collectGroupOffsets``.
"""

from __future__ import annotations

import msgspec

from minikafka.cli.groups.requests import LATEST, GroupAdmin, GroupDescription
from minikafka.errors import KafkaError
from minikafka.types import TopicPartition


class Position(msgspec.Struct, frozen=True):
    """One partition. None: nothing is committed, the log's end cannot be known, nobody reads it."""

    topic: str
    partition: int
    committed: int | None
    log_end: int | None
    lag: int | None
    """Records between the two."""
    member_id: str | None = None
    host: str | None = None
    client_id: str | None = None


async def positions(admin: GroupAdmin, group: GroupDescription, *, is_read_committed: bool) -> list[Position]:
    """Of all partitions for which something is committed or that a member is to read, sorted.

    ``is_read_committed``: for such consumers a log ends where an open transaction begins (its last stable
    offset). No broker knows how a group reads; Kafka's tool counts every record.
    """
    committed = await admin.committed(group.group)
    readers = {
        TopicPartition(topic, partition): member
        for member in group.members
        for topic, partitions in member.assignment.items()
        for partition in partitions
    }
    partitions = sorted(committed.keys() | readers.keys())
    ends = await admin.list_offsets(partitions, LATEST, is_read_committed=is_read_committed)
    found = []
    for each in partitions:
        end, offset, reader = ends[each], committed.get(each), readers.get(each)
        log_end = None if isinstance(end, KafkaError) else end.offset
        lag = None if log_end is None or offset is None else max(0, log_end - offset)
        who = (None, None, None) if reader is None else (reader.member_id, reader.host, reader.client_id)
        found.append(Position(each.topic, each.partition, offset, log_end, lag, *who))
    return found
