"""Committed offsets of the groups of one shard. Kafka: ``OffsetMetadataManager``.

A commit is one append. Its offsets are seen when the high watermark has passed it, unless a newer commit of
the partition has come first. A request whose partitions are all refused writes nothing. The offsets of a
transaction are seen when the high watermark has passed its marker.

Kafka 4 keeps the newest state with snapshots of older ones and reads at the high watermark; ``OffsetsLog``
keeps apart what the log holds and what of it may be seen:

- ``visible``: below the high watermark, what a fetch sees.
- unsettled: commits that are in the log and not (yet) visible. One whose append failed after it was written
  stays here, because it may still pass the high watermark, and will be there when the log is read again: it
  counts wherever the question is what must be removed from the log, until a newer commit or a tombstone.
- transactional: in the log, waiting for the marker of their producer, and then for the high watermark to pass
  that. Until then the partition counts as being in a transaction. A marker that was written counts, whatever
  was told to who sent it: some later write shows that the high watermark has passed it.

A tombstone takes effect when it is written. A commit that was written before it does not come back with the
high watermark.

Where it differs: offsets that are deleted are not seen any more as soon as their tombstone is written; a
retention time that ends after the end of time is for ever, where Kafka's sum overflows into the past.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Generic, TypeVar
from uuid import UUID

import msgspec

from minikafka.config.definition import LONG_MAX
from minikafka.coordinator.effects import BatchOfTransaction
from minikafka.coordinator.group.environment import GroupCounts, GroupSettings
from minikafka.coordinator.group.group import FencesOldCommits, Group
from minikafka.coordinator.group.messages import (
    Answer,
    Append,
    Effects,
    EndTransaction,
    FetchedOffset,
    OffsetCommit,
    OffsetCommitResult,
    OffsetFetchGroup,
    OffsetFetchResult,
    OffsetToCommit,
    Ticket,
    TxnOffsetCommit,
    coordinator_error,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.internal.group_records import GroupRecord, OffsetCommitKey, OffsetCommitValue
from minikafka.protocol.records.records import ControlRecordType, EndTransactionMarker
from minikafka.types import TopicPartition

T = TypeVar("T")

NO_PRODUCER_ID = -1
_TRANSACTIONAL_VERSION_WITH_GROUP_ERRORS = 6
"""Of TxnOffsetCommit, KIP-1319: GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH instead of ILLEGAL_GENERATION."""

DEFAULT_RETENTION_TIME_MS = -1
"""Of a request that leaves the retention to the broker (``OffsetCommitRequest.DEFAULT_RETENTION_TIME``)."""

DEFAULT_TIMESTAMP_MS = -1
"""Of an offset that leaves its time to the broker (``OffsetCommitRequest.DEFAULT_TIMESTAMP``)."""


class CommittedOffset(msgspec.Struct, frozen=True, gc=False):
    """Kafka: ``OffsetAndMetadata``. ``order`` tells which of two commits of a partition is the newer one in
    the log.

    A shard may hold hundreds of thousands of these, so one keeps what is asked for again and no more.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None
    order: int
    topic_id: UUID | None = None

    @classmethod
    def of(cls, value: OffsetCommitValue, *, order: int) -> CommittedOffset:
        return cls(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp_ms,
            value.expire_timestamp_ms,
            order,
            value.topic_id,
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
    """What the log holds of the offsets of a shard, and what of it may be seen: see the module header."""

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

    def entries(self, group_id: str, topic: str, partition: int) -> Iterator[CommittedOffset]:
        """What the log holds of a partition: the newest commit, and those of transactions."""
        newest = self.newest(group_id, topic, partition)
        if newest is not None:
            yield newest
        for transaction in self._transactions.get(group_id, topic, partition) or ():
            entry = transaction.offsets.get(group_id, topic, partition)
            if entry is not None:
                yield entry

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


class _OffsetsAppend(Append):
    """Records that one request writes; it is answered when they are committed."""

    __slots__ = ("_log", "_result", "_ticket")

    def __init__(
        self,
        log: OffsetsLog,
        records: list[GroupRecord],
        result: OffsetCommitResult,
        ticket: Ticket,
        transaction: BatchOfTransaction | None = None,
    ) -> None:
        super().__init__(records, transaction=transaction)
        self._log = log
        self._result = result
        self._ticket = ticket

    def committed(self, now_ms: int) -> Effects:
        return [Answer(self._ticket, self._result)]

    def failed(self, error: KafkaError, now_ms: int) -> Effects:
        return [Answer(self._ticket, coordinator_error(error))]


class OffsetsCommit(_OffsetsAppend):
    """The offsets of one request."""

    __slots__ = ("_entries",)

    def __init__(
        self, log: OffsetsLog, records: list[GroupRecord], result: OffsetCommitResult, ticket: Ticket
    ) -> None:
        super().__init__(log, records, result, ticket)
        self._entries: list[tuple[OffsetCommitKey, CommittedOffset]] = []

    def written(self, now_ms: int) -> Effects:
        for record in self.records:
            key, value = record.key, record.value
            assert isinstance(key, OffsetCommitKey) and isinstance(value, OffsetCommitValue)
            self._entries.append((key, self._log.written(key, value)))
        return []

    def committed(self, now_ms: int) -> Effects:
        self._settle(committed=True)
        return super().committed(now_ms)

    def failed(self, error: KafkaError, now_ms: int) -> Effects:
        self._settle(committed=False)
        return super().failed(error, now_ms)

    def _settle(self, *, committed: bool) -> None:
        for key, entry in self._entries:
            self._log.settled(key, entry, committed=committed)


class OffsetsDelete(_OffsetsAppend):
    """The tombstones of one OffsetDelete."""

    __slots__ = ()

    def written(self, now_ms: int) -> Effects:
        for record in self.records:
            assert isinstance(record.key, OffsetCommitKey)
            self._log.replay(record.key, None)
        return []


class TransactionalOffsetsCommit(_OffsetsAppend):
    """The offsets of one TxnOffsetCommit: they are not seen before the marker of their transaction."""

    __slots__ = ()

    def written(self, now_ms: int) -> Effects:
        assert self.transaction is not None
        for record in self.records:
            key, value = record.key, record.value
            assert isinstance(key, OffsetCommitKey) and isinstance(value, OffsetCommitValue)
            self._log.replay(key, value, producer_id=self.transaction.producer_id)
        return []


class MarkerAppend(Append):
    """The marker that ends a transaction with offsets here. Answered with None, or with the log's error."""

    __slots__ = ("_is_commit", "_log", "_order", "_ticket")

    def __init__(self, log: OffsetsLog, request: EndTransaction, ticket: Ticket) -> None:
        kind = ControlRecordType.COMMIT if request.is_commit else ControlRecordType.ABORT
        super().__init__(
            (),
            timeout_ms=request.timeout_ms,
            transaction=BatchOfTransaction(
                request.producer_id,
                request.producer_epoch,
                marker=EndTransactionMarker(kind, request.coordinator_epoch),
                transaction_version=request.transaction_version,
            ),
        )
        self._log = log
        self._is_commit = request.is_commit
        self._ticket = ticket
        self._order = 0

    def written(self, now_ms: int) -> Effects:
        assert self.transaction is not None
        self._order = self._log.marker_written(self.transaction.producer_id, committed=self._is_commit)
        return []

    def committed(self, now_ms: int) -> Effects:
        self._log.passed(self._order)
        return [Answer(self._ticket, None)]

    def failed(self, error: KafkaError, now_ms: int) -> Effects:
        """Where it was written, it counts once the high watermark has passed it all the same."""
        return [Answer(self._ticket, error)]


class GroupOffsets:
    """Works on the groups of a shard; ``groups`` is shared with the shard's other parts."""

    def __init__(
        self,
        groups: dict[str, Group],
        *,
        settings: GroupSettings,
        make_simple: Callable[[str, int], Group],
        counts: GroupCounts,
    ) -> None:
        """``make_simple(group_id, now_ms)`` makes a group for a commit of a client that is no member."""
        self._groups = groups
        self._settings = settings
        self._counts = counts
        self._log = OffsetsLog(groups, make_simple)

    # Requests

    def commit(self, request: OffsetCommit, ticket: Ticket, now_ms: int) -> Effects:
        """Answered with an OffsetCommitResult when the append is committed.

        Raises:
            KafkaError: the group is unknown or refuses it (``Group.check_offset_commit``).
        """
        effects = self._admit(request)
        expire_timestamp_ms = None
        if request.retention_time_ms != DEFAULT_RETENTION_TIME_MS:
            expire_timestamp_ms = min(now_ms + request.retention_time_ms, LONG_MAX)
        records, result = self._records(request.group_id, request.offsets, expire_timestamp_ms, now_ms)
        self._counts.offset_commits += len(records)
        if records:
            effects.append(OffsetsCommit(self._log, records, result, ticket))
        else:
            effects.append(Answer(ticket, result))
        return effects

    def _admit(self, request: OffsetCommit) -> Effects:
        """Kafka: ``validateOffsetCommit``."""
        group = self._groups.get(request.group_id)
        if group is not None:
            group.check_offset_commit(
                member_id=request.member_id,
                group_instance_id=request.group_instance_id,
                generation_or_member_epoch=request.generation_or_member_epoch,
                version=request.version,
            )
            if isinstance(group, FencesOldCommits):
                committed = ((each.topic, each.partition) for each in request.offsets)
                group.check_committed(request.member_id, request.generation_or_member_epoch, committed)
            return list(group.heard_of(request.member_id))
        if request.generation_or_member_epoch < 0:
            return []  # it becomes a simple group when its first offset is written
        if request.version >= 9:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)

    def commit_transactional(self, request: TxnOffsetCommit, ticket: Ticket, now_ms: int) -> Effects:
        """As part of a transaction that was checked. Answered with an OffsetCommitResult when the append is
        committed; the offsets are visible after ``end_transaction``.

        Raises:
            KafkaError: the group is unknown or refuses it (``Group.check_offset_commit``).
        """
        self._admit_transactional(request)
        records, result = self._records(request.group_id, request.offsets, None, now_ms)
        self._counts.offset_commits += len(records)
        if not records:
            return [Answer(ticket, result)]
        transaction = BatchOfTransaction(
            request.producer_id, request.producer_epoch, request.verification_guard
        )
        return [TransactionalOffsetsCommit(self._log, records, result, ticket, transaction)]

    def _admit_transactional(self, request: TxnOffsetCommit) -> None:
        """Kafka: ``validateTransactionalOffsetCommit``."""
        group = self._groups.get(request.group_id)
        if group is None:
            if request.generation >= 0:
                if request.version >= _TRANSACTIONAL_VERSION_WITH_GROUP_ERRORS:
                    raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
            return  # it becomes a simple group when its first offset is written
        try:
            group.check_offset_commit(
                member_id=request.member_id,
                group_instance_id=request.group_instance_id,
                generation_or_member_epoch=request.generation,
                version=request.version,
                is_transactional=True,
            )
            if isinstance(group, FencesOldCommits):
                committed = ((each.topic, each.partition) for each in request.offsets)
                group.check_committed(request.member_id, request.generation, committed)
        except KafkaError as error:
            if (
                error.code is ErrorCode.STALE_MEMBER_EPOCH
                and request.version < _TRANSACTIONAL_VERSION_WITH_GROUP_ERRORS
            ):
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION, error.message) from error
            raise

    def _records(
        self, group_id: str, offsets: Iterable[OffsetToCommit], expire_timestamp_ms: int | None, now_ms: int
    ) -> tuple[list[GroupRecord], OffsetCommitResult]:
        metadata_max = self._settings.offset_metadata_max_bytes
        records = []
        errors = []
        for offset in offsets:
            if _java_length(offset.metadata) > metadata_max:
                errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            errors.append(ErrorCode.NONE)
            key = OffsetCommitKey(group_id, offset.topic, offset.partition)
            records.append(GroupRecord(key, _value(offset, expire_timestamp_ms, now_ms)))
        return records, OffsetCommitResult(tuple(errors))

    def end_transaction(self, request: EndTransaction, ticket: Ticket) -> Effects:
        """A transaction coordinator has decided: write the marker. Answered with None when it is committed;
        from then on a committed transaction's offsets are visible."""
        return [MarkerAppend(self._log, request, ticket)]

    def fetch(self, request: OffsetFetchGroup) -> OffsetFetchResult:
        """What is visible; of an unknown group nothing is.

        Raises:
            KafkaError: the group refuses it (``Group.check_offset_fetch``).
        """
        group = self._groups.get(request.group_id)
        if group is not None:
            try:
                group.check_offset_fetch(member_id=request.member_id, member_epoch=request.member_epoch)
            except KafkaError as error:
                if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                    raise
                group = None
        if group is None:
            return OffsetFetchResult(
                tuple(FetchedOffset(topic_partition=each) for each in request.partitions or ())
            )
        wanted = request.partitions
        if wanted is None:
            wanted = tuple(
                TopicPartition(topic, partition)
                for topic, partitions in self._log.visible.of_group(request.group_id).items()
                for partition in partitions
            )
        return OffsetFetchResult(tuple(self._fetched(request, each) for each in wanted))

    def _fetched(self, request: OffsetFetchGroup, topic_partition: TopicPartition) -> FetchedOffset:
        topic, partition = topic_partition
        if request.require_stable and self._log.is_in_transaction(request.group_id, topic, partition):
            return FetchedOffset(topic_partition=topic_partition, error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
        found = self._log.visible.get(request.group_id, topic, partition)
        if found is None or _is_of_other_topic(found.topic_id, request.topic_ids.get(topic)):
            return FetchedOffset(topic_partition=topic_partition)
        return FetchedOffset(
            topic_partition=topic_partition,
            offset=found.offset,
            leader_epoch=found.leader_epoch,
            metadata=found.metadata,
        )

    def delete(
        self, group_id: str, partitions: Collection[TopicPartition], ticket: Ticket, now_ms: int
    ) -> Effects:
        """OffsetDelete (KIP-496), answered with an OffsetCommitResult.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, or the group refuses it (``Group.check_offset_delete``).
        """
        group = self._groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        group.check_offset_delete()
        records = []
        errors = []
        for topic, partition in partitions:
            if group.is_subscribed_to(topic):
                errors.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
                continue
            errors.append(ErrorCode.NONE)
            if self._log.holds(group_id, topic, partition):
                records.append(_tombstone(group_id, topic, partition))
        self._counts.offset_deletions += len(records)
        result = OffsetCommitResult(tuple(errors))
        return [OffsetsDelete(self._log, records, result, ticket) if records else Answer(ticket, result)]

    # What is not needed any more

    def delete_groups_offsets(self, group_id: str) -> list[GroupRecord]:
        """Tombstones of all offsets of a group that is being deleted."""
        return [_tombstone(group_id, *each) for each in self._log.partitions(group_id)]

    def has_offsets(self, group_id: str) -> bool:
        """Whether the log holds any, visible or not."""
        return bool(self._log.partitions(group_id))

    @property
    def committed_count(self) -> int:
        return len(self._log.visible)

    def committed(self) -> Iterator[tuple[str, str, int, CommittedOffset]]:
        """Group, topic, partition and offset of all that are visible, as they are now."""
        return self._log.visible.items()

    def committed_of(self, group_id: str) -> Mapping[str, Mapping[int, CommittedOffset]]:
        """What is visible of one group, by topic and partition. A view."""
        return self._log.visible.of_group(group_id)

    def expired_records(self, now_ms: int) -> list[GroupRecord]:
        """Tombstones of offsets whose retention is over, and of groups that are empty and have none left."""
        records: list[GroupRecord] = []
        for group in self._groups.values():
            has_left = self._expire(group, records, now_ms)
            if not has_left and group.is_empty and group.should_expire:
                records += group.tombstones()
        return records

    def _expire(self, group: Group, records: list[GroupRecord], now_ms: int) -> bool:
        """Whether offsets are left (``cleanupExpiredOffsets``)."""
        group_id = group.group_id
        has_left = self._log.has_transactions(group_id)
        for topic, partition in self._log.partitions(group_id):
            newest = self._log.newest(group_id, topic, partition)
            if newest is None:
                continue  # only a transaction has it
            if (
                group.is_subscribed_to(topic)
                or self._log.is_in_transaction(group_id, topic, partition)
                or not self._is_expired(group, newest, now_ms)
            ):
                has_left = True
            else:
                records.append(_tombstone(group_id, topic, partition))
                self._counts.offset_expirations += 1
        return has_left

    def _is_expired(self, group: Group, offset: CommittedOffset, now_ms: int) -> bool:
        """Kafka: ``OffsetExpirationConditionImpl``."""
        since_ms = group.offsets_expire_after(commit_timestamp_ms=offset.commit_timestamp_ms)
        if since_ms is None:
            return False
        if offset.expire_timestamp_ms is not None:
            return now_ms >= offset.expire_timestamp_ms
        return now_ms - since_ms >= self._settings.offsets_retention_minutes * 60_000

    def topics_deleted(self, topics: Mapping[str, UUID]) -> list[GroupRecord]:
        """Tombstones of the offsets of deleted topics, name → id. Those of another topic of the name, which
        may have been made before the news of the deletion came, stay (``onTopicsDeleted``)."""
        return [
            _tombstone(group_id, topic, partition)
            for group_id in self._groups
            for topic, partition in self._log.partitions(group_id, topics)
            if any(
                entry.topic_id is None or entry.topic_id == topics[topic]
                for entry in self._log.entries(group_id, topic, partition)
            )
        ]

    # The log

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None, *, producer_id: int = -1) -> None:
        """``producer_id``: of a transactional batch, whose offsets are pending until its marker."""
        self._log.replay(key, value, producer_id=producer_id)

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """The newest commit of a partition wins, as in the log: a transaction's is as old as its record."""
        self._log.replay_marker(producer_id, committed=committed)


def _is_of_other_topic(committed: UUID | None, wanted: UUID | None) -> bool:
    """Whether an offset was committed for a topic of the same name that is gone. None: not known.
    ``OffsetMetadataManager.isMismatchedTopicId``."""
    return committed is not None and wanted is not None and committed != wanted


def _java_length(text: str | None) -> int:
    """Kafka compares ``String.length()``, UTF-16 units, with offset.metadata.max.bytes."""
    if text is None:
        return 0
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _value(offset: OffsetToCommit, expire_timestamp_ms: int | None, now_ms: int) -> OffsetCommitValue:
    """Kafka: ``OffsetAndMetadata.fromRequest``."""
    return OffsetCommitValue(
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata or "",
        commit_timestamp_ms=now_ms if offset.timestamp_ms == DEFAULT_TIMESTAMP_MS else offset.timestamp_ms,
        expire_timestamp_ms=expire_timestamp_ms,
        topic_id=offset.topic_id,
    )


def _tombstone(group_id: str, topic: str, partition: int) -> GroupRecord:
    return GroupRecord(OffsetCommitKey(group_id, topic, partition), None)
