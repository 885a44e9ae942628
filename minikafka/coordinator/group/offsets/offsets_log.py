"""What the log holds of the offsets of a shard, and what of it may be seen.

Kafka: the state of ``OffsetMetadataManager`` and its ``replay`` methods. Kafka 4 keeps the newest state with
snapshots of older ones and reads at the high watermark; here the two are kept apart:

- ``visible``: below the high watermark, what a fetch sees.
- unsettled: commits that are in the log and not (yet) visible. One whose append failed after it was written
  stays here, because it may still pass the high watermark, and will be there when the log is read again: it
  counts wherever the question is what must be removed from the log, until a newer commit or a tombstone.
- transactional: in the log, waiting for the marker of their producer, and then for the high watermark to pass
  that. Until then the partition counts as being in a transaction. A marker that was written counts, whatever
  was told to who sent it: some later write shows that the high watermark has passed it.

A tombstone takes effect when it is written. A commit that was written before it does not come back with the
high watermark.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import NamedTuple

from minikafka.coordinator.group.group import Group
from minikafka.coordinator.group.offsets.store import CommittedOffset, PartitionMap
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


class _Transaction:
    """What a producer has committed in one transaction. Compared by identity."""

    __slots__ = ("offsets",)

    def __init__(self) -> None:
        self.offsets: PartitionMap[CommittedOffset] = PartitionMap()


class _DecidedTransaction(NamedTuple):
    """One whose marker is in the log."""

    order: int
    """Of the marker."""
    transaction: _Transaction
    committed: bool


class OffsetsLog:
    """See the module header."""

    def __init__(self, groups: dict[str, Group], make_simple: Callable[[str, int], Group]) -> None:
        self.visible: PartitionMap[CommittedOffset] = PartitionMap()
        self._groups = groups
        self._make_simple = make_simple
        self._order = 0
        self._unsettled: PartitionMap[_Unsettled] = PartitionMap()
        self._open: dict[int, _Transaction] = {}
        """By producer id."""
        self._decided: deque[_DecidedTransaction] = deque()
        """In the order of their markers."""
        self._transactions: PartitionMap[dict[_Transaction, None]] = PartitionMap()
        """Those that have offsets of a partition, open or decided."""

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
            self.passed(entry.order)
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
        transaction = self._open.get(producer_id)
        if transaction is None:
            transaction = self._open[producer_id] = _Transaction()
        transaction.offsets.put(group_id, topic, partition, entry)
        transactions = self._transactions.get(group_id, topic, partition)
        if transactions is None:
            transactions = {}
            self._transactions.put(group_id, topic, partition, transactions)
        transactions[transaction] = None

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """A marker that was read with the log."""
        self.passed(self.marker_written(producer_id, committed=committed))

    def marker_written(self, producer_id: int, *, committed: bool) -> int:
        """A marker is in the leader's log. Returns its order, for ``passed``."""
        self._order += 1
        transaction = self._open.pop(producer_id, None)
        if transaction is not None:
            self._decided.append(_DecidedTransaction(self._order, transaction, committed))
        return self._order

    def passed(self, order: int) -> None:
        """The high watermark has passed what has this order: the markers before it count."""
        while self._decided and self._decided[0].order <= order:
            self._end(self._decided.popleft())

    def _end(self, decided: _DecidedTransaction) -> None:
        for group_id, topic, partition, entry in decided.transaction.offsets.items():
            transactions = self._transactions.get(group_id, topic, partition)
            assert transactions is not None, f"{topic}-{partition} of {group_id} has an open transaction"
            del transactions[decided.transaction]
            if not transactions:
                self._transactions.remove(group_id, topic, partition)
            if decided.committed:
                self._show(group_id, topic, partition, entry)

    # Questions

    def newest(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """The newest commit in the log, visible or not, transactions aside."""
        unsettled = self._unsettled.get(group_id, topic, partition)
        if unsettled is not None and unsettled.newest is not None:
            return unsettled.newest
        return self.visible.get(group_id, topic, partition)

    def is_in_transaction(self, group_id: str, topic: str, partition: int) -> bool:
        return self._transactions.get(group_id, topic, partition) is not None

    def has_transactions(self, group_id: str) -> bool:
        return group_id in self._transactions

    def holds(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether the log holds an offset of the partition, of whatever kind."""
        return self.newest(group_id, topic, partition) is not None or self.is_in_transaction(
            group_id, topic, partition
        )

    def partitions(self, group_id: str, topics: Collection[str] | None = None) -> list[tuple[str, int]]:
        """Topics and partitions, of all topics or of some, of which the log holds an offset, of whatever
        kind."""
        found: dict[tuple[str, int], None] = {}
        for maps in (self.visible, self._transactions):
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
        """A commit of a client that is no member makes a simple group."""
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
        for transaction in self._transactions.get(group_id, topic, partition) or ():
            transaction.offsets.remove(group_id, topic, partition)
        self._transactions.remove(group_id, topic, partition)
