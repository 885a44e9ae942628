"""One partition of ``__share_group_state``: the states of the share partitions that belong to it. Pure.

Kafka: ``ShareCoordinatorShard``, ``ShareGroupOffset``, ``PersisterStateBatchCombiner``,
``ShareCoordinatorOffsetsManager`` (KIP-932). A state is begun by the group coordinator (Initialize), read and
written by the leader of the partition, and deleted with its group or topic. Epochs keep out those that are
late: the state epoch rises when a state is begun again, the leader epoch with each election. A write is an
update record, and after ``snapshot_update_records`` of them a snapshot; below the oldest of the last
snapshots the topic's records say nothing more, and are deleted.

The states here are those of the log up to its end; a request is answered when what it wrote is committed. A
read waits for that too where it writes a leader epoch.

Where it differs from Kafka:
- all partitions of a request are one append;
- within a state epoch a start offset does not go back: a write that was delayed by the network must not bring
  acknowledged records back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from heapq import heappop, heappush
from typing import Any, Final, Protocol
from uuid import UUID

from minikafka.coordinator.effects import Answer, Append, Ticket, coordinator_error
from minikafka.coordinator.share.messages import (
    DEFAULT_LEADER_EPOCH,
    UNINITIALIZED_DELIVERY_COMPLETE_COUNT,
    UNINITIALIZED_START_OFFSET,
    InitializeShareState,
    ReadShareState,
    SharePartitionError,
    SharePartitionKey,
    SharePartitionState,
    SharePartitionSummary,
    StateBatch,
    TopicIdPartition,
    WriteShareState,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.internal.share_records import ShareRecord, ShareSnapshotValue, ShareUpdateValue

_UNCHANGED: Final = -1
"""In the place of an epoch, a start offset or a count: it stays."""

Effects = list[Any]

_RECORDS_OF_APPEND: Final = 100


class ShareCoordinatorSettings(Protocol):
    """What the broker's configuration says."""

    @property
    def snapshot_update_records(self) -> int: ...
    @property
    def cold_snapshot_interval_ms(self) -> int: ...


class ShareState(NamedTuple):
    """What is known of a share partition (Kafka: ``ShareGroupOffset``)."""

    snapshot: ShareSnapshotValue
    """With all updates since it was written."""
    updates: int
    """Since the snapshot."""
    snapshot_offset: int
    """Where the snapshot is in the log."""


class _Write(Append[ShareRecord, Any]):
    """Records that change states when they are in the log, and an answer when they are committed."""

    __slots__ = ("_result", "_shard", "_ticket")

    def __init__(
        self, shard: ShareShard, records: Sequence[ShareRecord], ticket: Ticket | None, result: Any
    ) -> None:
        super().__init__(records)
        self._shard = shard
        self._ticket = ticket
        self._result = result

    def written(self, now_ms: int) -> Effects:
        begin = self.end_offset - len(self.records)
        for offset, record in enumerate(self.records, start=begin):
            self._shard.replay(record, offset)
        return []

    def committed(self, now_ms: int) -> Effects:
        return self._answer(self._result)

    def failed(self, error: KafkaError, now_ms: int) -> Effects:
        return self._answer(coordinator_error(error))

    def _answer(self, result: Any) -> Effects:
        ticket, self._ticket = self._ticket, None
        return [] if ticket is None else [Answer(ticket, result)]


class ShareShard:
    """See the module header. Each request answers its ticket with a list, an element for each partition in
    the order asked, or with a KafkaError for all of them."""

    def __init__(
        self, *, settings: ShareCoordinatorSettings, has_partition: Callable[[UUID, int], bool]
    ) -> None:
        """``has_partition``: whether the cluster has a topic of this id with this partition."""
        self._settings = settings
        self._has_partition = has_partition
        self._states: dict[SharePartitionKey, ShareState] = {}

    def __repr__(self) -> str:
        return f"ShareShard({len(self._states)} share partitions)"

    def __len__(self) -> int:
        return len(self._states)

    # What the shell tells

    def replay(self, record: ShareRecord, offset: int) -> None:
        """A record of the log, in its order."""
        key, value = record
        known = self._states.get(key)
        match value:
            case None:
                self._states.pop(key, None)
            case ShareSnapshotValue():
                self._states[key] = ShareState(value, 0, offset)
            case ShareUpdateValue() if known is not None:
                self._states[key] = known._replace(
                    snapshot=_updated(known.snapshot, value), updates=known.updates + 1
                )
            case _:  # its snapshot was damaged: what the update says is better than nothing
                snapshot = ShareSnapshotValue(
                    snapshot_epoch=value.snapshot_epoch,
                    state_epoch=0,
                    leader_epoch=value.leader_epoch,
                    start_offset=value.start_offset,
                    delivery_complete_count=value.delivery_complete_count,
                    create_timestamp=0,
                    write_timestamp=0,
                    state_batches=value.state_batches,
                )
                self._states[key] = ShareState(snapshot, 0, offset)

    def loaded(self, now_ms: int) -> Effects:
        return []

    def expired(self, operation: Any, now_ms: int, /) -> Effects:
        return []

    def waiting(self) -> list[Ticket]:
        """None: a request that waits for its write hears of that."""
        return []

    # Requests

    def initialize(
        self, group_id: str, partitions: Sequence[InitializeShareState], ticket: Ticket, now_ms: int
    ) -> Effects:
        """Begin states. Raises nothing; errors: FENCED_STATE_EPOCH, UNKNOWN_TOPIC_OR_PARTITION,
        INVALID_REQUEST."""
        errors, records = [], []
        for each in partitions:
            key = SharePartitionKey(group_id, each.topic_id, each.partition)
            state = self._states.get(key)
            error = self._why_not(each)
            if error is None and each.state_epoch < 0:
                error = _invalid("The state epoch cannot be a negative number.")
            if error is None and state is not None and state.snapshot.state_epoch > each.state_epoch:
                error = _fenced_state_epoch()
            if error is None:
                begins = each.start_offset != UNINITIALIZED_START_OFFSET
                snapshot = ShareSnapshotValue(
                    snapshot_epoch=0 if state is None else state.snapshot.snapshot_epoch + 1,
                    state_epoch=each.state_epoch,
                    leader_epoch=DEFAULT_LEADER_EPOCH if state is None else state.snapshot.leader_epoch,
                    start_offset=each.start_offset,
                    delivery_complete_count=0 if begins else UNINITIALIZED_DELIVERY_COMPLETE_COUNT,
                    create_timestamp=now_ms,
                    write_timestamp=now_ms,
                    state_batches=(),
                )
                records.append(ShareRecord(key, snapshot))
            errors.append(SharePartitionError(each.topic_id, each.partition, error))
        return self._write_and_answer(records, ticket, errors)

    def read(
        self, group_id: str, partitions: Sequence[ReadShareState], ticket: Ticket, now_ms: int
    ) -> Effects:
        """What leaders begin with. A leader epoch that is news is written. Errors: FENCED_LEADER_EPOCH,
        UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST."""
        answers, records = [], []
        for each in partitions:
            key = SharePartitionKey(group_id, each.topic_id, each.partition)
            state = self._states.get(key)
            error = self._why_not(each)
            if error is None and state is None:
                error = _invalid("Read operation on uninitialized share partition not allowed.")
            if error is not None or state is None:
                answers.append(SharePartitionState(each.topic_id, each.partition, error))
                continue
            snapshot = state.snapshot
            if 0 <= each.leader_epoch < snapshot.leader_epoch:
                answers.append(SharePartitionState(each.topic_id, each.partition, _fenced_leader_epoch()))
                continue
            answers.append(
                SharePartitionState(
                    each.topic_id,
                    each.partition,
                    None,
                    snapshot.state_epoch,
                    snapshot.start_offset,
                    snapshot.state_batches,
                )
            )
            if each.leader_epoch > snapshot.leader_epoch:
                write = WriteShareState(
                    each.topic_id, each.partition, _UNCHANGED, each.leader_epoch, _UNCHANGED, _UNCHANGED, ()
                )
                records.append(self._record(key, state, write, now_ms))
        return self._write_and_answer(records, ticket, answers)

    def write(
        self, group_id: str, partitions: Sequence[WriteShareState], ticket: Ticket, now_ms: int
    ) -> Effects:
        """What leaders have come to. Errors: FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH,
        UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST."""
        errors, records = [], []
        for each in partitions:
            key = SharePartitionKey(group_id, each.topic_id, each.partition)
            state = self._states.get(key)
            error = self._why_not(each)
            if error is None and state is None:
                error = _invalid("Write operation on uninitialized share partition not allowed.")
            if error is None and state is not None:
                if 0 <= each.leader_epoch < state.snapshot.leader_epoch:
                    error = _fenced_leader_epoch()
                elif 0 <= each.state_epoch < state.snapshot.state_epoch:
                    error = _fenced_state_epoch()
                else:
                    records.append(self._record(key, state, each, now_ms))
            errors.append(SharePartitionError(each.topic_id, each.partition, error))
        return self._write_and_answer(records, ticket, errors)

    def delete(
        self, group_id: str, partitions: Sequence[TopicIdPartition], ticket: Ticket, now_ms: int
    ) -> Effects:
        """Forget states. One that is not there is no error. Errors: UNKNOWN_TOPIC_OR_PARTITION,
        INVALID_REQUEST."""
        errors, records = [], []
        for each in partitions:
            key = SharePartitionKey(group_id, each.topic_id, each.partition)
            error = self._why_not(each)
            if error is None and key in self._states:
                records.append(ShareRecord(key, None))
            errors.append(SharePartitionError(each.topic_id, each.partition, error))
        return self._write_and_answer(records, ticket, errors)

    def read_summary(
        self, group_id: str, partitions: Sequence[ReadShareState], ticket: Ticket, now_ms: int
    ) -> Effects:
        """What the group coordinator shows of states; one that is not there has no start offset. Errors:
        UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST."""
        answers = []
        for each in partitions:
            state = self._states.get(SharePartitionKey(group_id, each.topic_id, each.partition))
            summary = SharePartitionSummary(each.topic_id, each.partition, self._why_not(each))
            if summary.error is None and state is not None:
                summary = summary._replace(
                    state_epoch=state.snapshot.state_epoch,
                    leader_epoch=state.snapshot.leader_epoch,
                    start_offset=state.snapshot.start_offset,
                    delivery_complete_count=state.snapshot.delivery_complete_count,
                )
            answers.append(summary)
        return [Answer(ticket, answers)]

    # Housekeeping

    def topics_deleted(self, topic_ids: Collection[UUID]) -> Effects:
        """Forget their states."""
        gone = [ShareRecord(key, None) for key in self._states if key.topic_id in topic_ids]
        return self._write_all(gone)

    def snapshot_cold(self, now_ms: int) -> Effects:
        """Write snapshots again that have become old, so that the records behind them can be deleted.
        Nothing, when all are old: then there is nothing behind them (``snapshotColdPartitions``)."""
        before_ms = now_ms - self._settings.cold_snapshot_interval_ms
        cold = {
            key: state for key, state in self._states.items() if state.snapshot.write_timestamp <= before_ms
        }
        if len(cold) == len(self._states):
            return []
        records = []
        for key, (snapshot, _, _) in cold.items():
            values = {name: getattr(snapshot, name) for name in snapshot.__struct_fields__}
            values |= {"snapshot_epoch": snapshot.snapshot_epoch + 1, "write_timestamp": now_ms}
            records.append(ShareRecord(key, ShareSnapshotValue(**values)))
        return self._write_all(records)

    def redundant_offset(self) -> int | None:
        """Below it no record is needed; None when there is no state."""
        return min((state.snapshot_offset for state in self._states.values()), default=None)

    def _write_all(self, records: list[ShareRecord]) -> Effects:
        """Appends of no more than so many records as fit into a batch."""
        return [
            _Write(self, records[begin : begin + _RECORDS_OF_APPEND], None, None)
            for begin in range(0, len(records), _RECORDS_OF_APPEND)
        ]

    def _write_and_answer(self, records: list[ShareRecord], ticket: Ticket, result: Any) -> Effects:
        return [_Write(self, records, ticket, result)] if records else [Answer(ticket, result)]

    def _why_not(
        self, asked: InitializeShareState | ReadShareState | WriteShareState | TopicIdPartition
    ) -> KafkaError | None:
        if asked.partition < 0:
            return _invalid("The partition id cannot be a negative number.")
        if not self._has_partition(asked.topic_id, asked.partition):
            return KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
            )
        return None

    def _record(
        self, key: SharePartitionKey, state: ShareState, write: WriteShareState, now_ms: int
    ) -> ShareRecord:
        """A snapshot when it is time for one, or when the state epoch rises, which an update cannot say."""
        snapshot = state.snapshot
        update = ShareUpdateValue(
            snapshot_epoch=snapshot.snapshot_epoch,
            leader_epoch=write.leader_epoch,
            start_offset=write.start_offset,
            delivery_complete_count=write.delivery_complete_count,
            state_batches=combine_batches((), write.batches, write.start_offset),
        )
        if (
            state.updates < self._settings.snapshot_update_records
            and write.state_epoch <= snapshot.state_epoch
        ):
            return ShareRecord(key, update)
        changed = _updated(snapshot, update)
        values = {name: getattr(changed, name) for name in changed.__struct_fields__}
        values |= {
            "snapshot_epoch": snapshot.snapshot_epoch + 1,
            "state_epoch": max(snapshot.state_epoch, write.state_epoch),
            "write_timestamp": now_ms,
        }
        return ShareRecord(key, ShareSnapshotValue(**values))


def _updated(snapshot: ShareSnapshotValue, update: ShareUpdateValue) -> ShareSnapshotValue:
    start_offset = max(snapshot.start_offset, update.start_offset)
    count = update.delivery_complete_count
    return ShareSnapshotValue(
        snapshot_epoch=snapshot.snapshot_epoch,
        state_epoch=snapshot.state_epoch,
        leader_epoch=max(snapshot.leader_epoch, update.leader_epoch),
        start_offset=start_offset,
        delivery_complete_count=snapshot.delivery_complete_count if count == _UNCHANGED else count,
        create_timestamp=snapshot.create_timestamp,
        write_timestamp=snapshot.write_timestamp,
        state_batches=combine_batches(snapshot.state_batches, update.state_batches, start_offset),
    )


def combine_batches(
    so_far: Iterable[StateBatch], new: Iterable[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """Batches without overlaps, in order, of what lies at ``start_offset`` or behind it (-1: of all). Where
    batches overlap the one with the higher delivery count says how it is, then the one with the higher state;
    neighbours that say the same are one (``PersisterStateBatchCombiner``)."""
    batches = sorted(
        batch if batch.first_offset >= start_offset else batch._replace(first_offset=start_offset)
        for batch in (*so_far, *new)
        if batch.last_offset >= start_offset
    )
    combined: list[StateBatch] = []
    open_batches: list[tuple[int, int, int]] = []  # the one that counts first: -count, -state, last offset
    following = 0
    at = 0
    while following < len(batches) or open_batches:
        if not open_batches:
            at = batches[following].first_offset
        while following < len(batches) and batches[following].first_offset <= at:
            _, last, state, count = batches[following]
            heappush(open_batches, (-count, -state, last))
            following += 1
        while open_batches and open_batches[0][2] < at:
            heappop(open_batches)
        if not open_batches:
            continue
        count, state, end = open_batches[0]
        if following < len(batches):
            end = min(end, batches[following].first_offset - 1)
        batch = StateBatch(at, end, -state, -count)
        if combined and combined[-1].last_offset + 1 == at and combined[-1][2:] == batch[2:]:
            combined[-1] = combined[-1]._replace(last_offset=end)
        else:
            combined.append(batch)
        at = end + 1
    return tuple(combined)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _fenced_state_epoch() -> KafkaError:
    return KafkaError(
        ErrorCode.FENCED_STATE_EPOCH,
        "The share coordinator rejected the request because the share-group state epoch did not match.",
    )


def _fenced_leader_epoch() -> KafkaError:
    return KafkaError(
        ErrorCode.FENCED_LEADER_EPOCH,
        "The leader epoch in the request is older than the epoch on the broker.",
    )
