"""What the log holds of the offsets of a shard, and what of it may be seen.

Kafka: the state of ``OffsetMetadataManager`` and its ``replay`` methods. Kafka 4 keeps the newest state with
snapshots of older ones and reads at the high watermark; here the two are kept apart:

- ``visible``: below the high watermark, what a fetch sees.
- unsettled: commits that are in the log and not (yet) visible. One whose append failed after it was written
  stays here, because it may still pass the high watermark, and will be there when the log is read again: it
  counts wherever the question is what must be removed from the log, until a newer commit or a tombstone.
- transactional: in the log, waiting for the marker of their producer.

A tombstone takes effect when it is written. A commit that was written before it does not come back with the
high watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from minikafka.coordinator.group.group import Group
from minikafka.coordinator.group.offsets_store import CommittedOffset, PartitionMap
from minikafka.protocol.internal.group_records import OffsetCommitKey, OffsetCommitValue

NO_PRODUCER_ID = -1


class _Unsettled:
    """The commits of one partition that were written. Kept while one is in flight or ``newest`` is there."""

    __slots__ = ("deleted_order", "in_flight", "newest")

    def __init__(self) -> None:
        self.in_flight = 0
        """Written, and neither committed nor failed."""
        self.newest: CommittedOffset | None = None
        """What the log says of the partition, where that is not visible."""
        self.deleted_order = 0
        """Commits up to this one are gone: a tombstone follows them."""


class OffsetsLog:
    """See the module header."""

    def __init__(self, groups: dict[str, Group], make_simple: Callable[[str, int], Group]) -> None:
        self.visible: PartitionMap[CommittedOffset] = PartitionMap()
        self._groups = groups
        self._make_simple = make_simple
        self._order = 0
        self._unsettled: PartitionMap[_Unsettled] = PartitionMap()
        self._transactional: dict[int, PartitionMap[CommittedOffset]] = {}
        self._producers: PartitionMap[dict[int, None]] = PartitionMap()
        """The producers whose transactions have offsets of a partition."""

    # Commits of this shard

    def written(self, key: OffsetCommitKey, value: OffsetCommitValue) -> CommittedOffset:
        """A commit is in the leader's log; ``settled`` follows."""
        self._have_group(key.group_id, value.commit_timestamp_ms)
        entry = self._entry(value)
        unsettled = self._unsettled.get(key.group_id, key.topic, key.partition)
        if unsettled is None:
            unsettled = _Unsettled()
            self._unsettled.put(key.group_id, key.topic, key.partition, unsettled)
        unsettled.in_flight += 1
        unsettled.newest = entry
        return entry

    def settled(self, key: OffsetCommitKey, entry: CommittedOffset, *, committed: bool) -> None:
        """The high watermark has passed a commit, or has not in time."""
        unsettled = self._unsettled.get(key.group_id, key.topic, key.partition)
        assert unsettled is not None, f"{key} is in flight"
        unsettled.in_flight -= 1
        if committed:
            if entry.order > unsettled.deleted_order:
                self._show(key.group_id, key.topic, key.partition, entry)
            if unsettled.newest is entry:
                unsettled.newest = None
        if not unsettled.in_flight and unsettled.newest is None:
            self._unsettled.remove(key.group_id, key.topic, key.partition)

    # The log

    def replay(
        self, key: OffsetCommitKey, value: OffsetCommitValue | None, *, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """``producer_id``: of a transactional batch."""
        group_id, topic, partition = key.group_id, key.topic, key.partition
        if value is None:
            self._remove(group_id, topic, partition)
            return
        self._have_group(group_id, value.commit_timestamp_ms)
        entry = self._entry(value)
        if producer_id == NO_PRODUCER_ID:
            self.visible.put(group_id, topic, partition, entry)
            return
        self._transactional.setdefault(producer_id, PartitionMap()).put(group_id, topic, partition, entry)
        producers = self._producers.get(group_id, topic, partition)
        if producers is None:
            producers = {}
            self._producers.put(group_id, topic, partition, producers)
        producers[producer_id] = None

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        pending = self._transactional.pop(producer_id, None)
        if pending is None:
            return
        for group_id, topic, partition, entry in pending.items():
            producers = self._producers.get(group_id, topic, partition)
            assert producers is not None, f"{topic}-{partition} of {group_id} has an open transaction"
            del producers[producer_id]
            if not producers:
                self._producers.remove(group_id, topic, partition)
            if committed:
                self._show(group_id, topic, partition, entry)

    # Questions

    def newest(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """The newest commit in the log, visible or not, transactions aside."""
        unsettled = self._unsettled.get(group_id, topic, partition)
        if unsettled is not None and unsettled.newest is not None:
            return unsettled.newest
        return self.visible.get(group_id, topic, partition)

    def is_in_transaction(self, group_id: str, topic: str, partition: int) -> bool:
        return self._producers.get(group_id, topic, partition) is not None

    def has_transactions(self, group_id: str) -> bool:
        return group_id in self._producers

    def holds(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether the log holds an offset of the partition, of whatever kind."""
        return self.newest(group_id, topic, partition) is not None or self.is_in_transaction(
            group_id, topic, partition
        )

    def partitions(self, group_id: str, topics: Collection[str] | None = None) -> list[tuple[str, int]]:
        """Topics and partitions, of all topics or of some, of which the log holds an offset, of whatever
        kind."""
        found: dict[tuple[str, int], None] = {}
        for maps in (self.visible, self._producers):
            of_group = maps.of_group(group_id)
            for topic in of_group if topics is None else topics:
                for partition in of_group.get(topic, ()):
                    found[topic, partition] = None
        for topic, unsettled in self._unsettled.of_group(group_id).items():
            if topics is None or topic in topics:
                for partition, commits in unsettled.items():
                    if commits.newest is not None:
                        found[topic, partition] = None
        return list(found)

    def _entry(self, value: OffsetCommitValue) -> CommittedOffset:
        self._order += 1
        return CommittedOffset.of(value, order=self._order)

    def _have_group(self, group_id: str, now_ms: int) -> None:
        """Whoever commits without being a member makes a simple group."""
        if group_id not in self._groups:
            self._groups[group_id] = self._make_simple(group_id, now_ms)

    def _show(self, group_id: str, topic: str, partition: int, entry: CommittedOffset) -> None:
        visible = self.visible.get(group_id, topic, partition)
        if visible is None or visible.order < entry.order:
            self.visible.put(group_id, topic, partition, entry)

    def _remove(self, group_id: str, topic: str, partition: int) -> None:
        self.visible.remove(group_id, topic, partition)
        unsettled = self._unsettled.get(group_id, topic, partition)
        if unsettled is not None:
            unsettled.newest = None
            unsettled.deleted_order = self._order
            if not unsettled.in_flight:
                self._unsettled.remove(group_id, topic, partition)
        for producer_id in self._producers.get(group_id, topic, partition) or ():
            self._transactional[producer_id].remove(group_id, topic, partition)
        self._producers.remove(group_id, topic, partition)
