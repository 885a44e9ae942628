"""What read_committed needs to know of a log: up to where all transactions are decided, and which of them
were aborted. Kafka: ``UnifiedLog.lastStableOffset``, ``collectAbortedTransactions``, ``LogLoader``.

The newest producer snapshot says which transactions were open at its offset; the batch headers behind it,
and the markers among them, say what became of these and which began since. Transactions aborted before
the snapshot stand in the transaction indexes. A segment without an offset index has lost its indexes:
Kafka builds them anew from the segment, and here the walk begins early enough to see its markers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from minikafka.errors import KafkaError
from minikafka.log.files.names import SNAPSHOT_SUFFIX, TXN_INDEX_SUFFIX
from minikafka.log.producers.replay import read_marker
from minikafka.log.producers.snapshot import CorruptSnapshot, decode_snapshot
from minikafka.log.segment.txn_index import AbortedTransaction, decode_aborted
from minikafka.protocol.records.batch import CONTROL_MASK, TRANSACTIONAL_MASK, BatchHeader
from minikafka.spark.source.log_files import PartitionLog, SegmentFiles
from minikafka.spark.source.log_index import read_offset_index
from minikafka.spark.source.segment_scan import DamagedSegment, scan
from minikafka.spark.source.storage import LogFile

_UNDECIDED: Final = -1


@dataclass(slots=True)
class Transactions:
    """The transactions of a log below some bound."""

    end: int
    """The end of what was looked at."""
    open: dict[int, int] = field(default_factory=dict)
    """Producer ids with the first offset of their open transaction."""
    aborted: list[AbortedTransaction] = field(default_factory=list)
    """By their last offsets. Every one that reaches into what was asked about is there."""

    @property
    def last_stable_offset(self) -> int:
        return min([self.end, *self.open.values()])


def read_transactions(
    log: PartitionLog, *, first: int, bound: int, goes_past_damage: bool = False
) -> Transactions:
    """The transactions that matter to a reader of the offsets from ``first`` to ``bound``, where no more than
    the log has is looked at.

    Going past damage, what a damaged piece said is not known: a transaction whose marker was there counts as
    open until the next marker of its producer, which then seems to be its own.

    Raises:
        DamagedSegment: a segment that has to be walked through is damaged, and may not be gone past.
        CorruptTransactionIndex, OSError: a file that has to be read cannot be.
    """
    stripped = [
        segment.base_offset
        for segment, following in _with_next(log.segments)
        if segment.offset_index_bytes is None and (following is None or following > first)
    ]
    start, transactions = _snapshot(log, min([bound, *stripped]))
    for segment, following in _with_next(log.segments):
        if following is not None and following <= first:
            continue
        if segment.base_offset < min(start, bound) and segment.txn_index_bytes:
            path = log.file(segment.base_offset, TXN_INDEX_SUFFIX)
            shown = log.shown(segment.base_offset, TXN_INDEX_SUFFIX)
            found = decode_aborted(log.storage.read_bytes(path), shown)
            transactions.aborted += [each for each in found if first <= each.last_offset < start]
    for segment, following in _with_next(log.segments):
        if (following is None or following > start) and segment.base_offset < bound:
            walk = _Walk(log, segment, following is None, start, bound, goes_past_damage)
            walk.follow(transactions)
    return transactions


def _with_next(segments: tuple[SegmentFiles, ...]) -> list[tuple[SegmentFiles, int | None]]:
    """Each segment with the base offset of the next."""
    following = [*(segment.base_offset for segment in segments[1:]), None]
    return list(zip(segments, following, strict=True)) if segments else []


def _snapshot(log: PartitionLog, offset_max: int) -> tuple[int, Transactions]:
    """The newest snapshot at or below ``offset_max`` that can be read: its offset and what it says."""
    for offset in reversed(log.snapshots):
        if log.log_start_offset <= offset <= offset_max:
            try:
                entries = decode_snapshot(log.storage.read_bytes(log.file(offset, SNAPSHOT_SUFFIX)))
            except (CorruptSnapshot, FileNotFoundError):  # being written, or removed since: an older one does
                continue
            still_open = {
                entry.producer_id: entry.current_txn_first_offset
                for entry in entries
                if entry.current_txn_first_offset >= 0
            }
            return offset, Transactions(offset, still_open)
    start = log.segments[0].base_offset if log.segments else 0
    return start, Transactions(start)


@dataclass(frozen=True, slots=True)
class _Walk:
    """A way through one segment, from the offset ``start`` to ``bound``."""

    log: PartitionLog
    segment: SegmentFiles
    is_last: bool
    start: int
    bound: int
    goes_past_damage: bool

    def follow(self, into: Transactions) -> None:
        """Follow the transactions."""
        index = read_offset_index(self.log, self.segment)
        file = self.log.storage.open(self.log.file(self.segment.base_offset))
        position: int | None = index.position_of(self.start)
        try:
            while position is not None:
                try:
                    self._follow_from(position, file, into)
                    return
                except DamagedSegment as damage:
                    if damage.is_tail and self.is_last:
                        return
                    if not self.goes_past_damage:
                        shown = self.log.shown(self.segment.base_offset)
                        raise DamagedSegment(damage.position, f"{shown}: {damage.reason}") from None
                    position = index.next_position(damage.position)
        finally:
            file.close()

    def _follow_from(self, position: int, file: LogFile, into: Transactions) -> None:
        blocks = scan(
            file,
            position=position,
            end=self.segment.size,
            base_offset=self.segment.base_offset,
            read_bytes=self.log.storage.scan_bytes,
            whole_batches=False,
            stop_offset=self.bound,
        )
        for block in blocks:
            last = block.headers[-1]
            transactional = (block.headers["attributes"] & (TRANSACTIONAL_MASK | CONTROL_MASK)) != 0
            for index in transactional.nonzero()[0].tolist():
                header = BatchHeader(*block.headers[index].item())
                if header.base_offset < self.start:
                    continue
                try:
                    _follow(file, header, block.file_position + int(block.positions[index]), into)
                except DamagedSegment:  # one marker
                    if not self.goes_past_damage:
                        raise
            into.end = max(into.end, int(last["base_offset"]) + int(last["last_offset_delta"]) + 1)


def _follow(file: LogFile, header: BatchHeader, position: int, into: Transactions) -> None:
    if not header.is_control:
        into.open.setdefault(header.producer_id, header.base_offset)
        return
    try:
        marker = read_marker(header, file.read(position, header.size))
    except KafkaError as error:
        raise DamagedSegment(position, f"a marker that cannot be read: {error.message}") from None
    if marker is None:
        return
    first = into.open.pop(header.producer_id, None)
    if marker.is_abort and first is not None:
        into.aborted.append(AbortedTransaction(header.producer_id, first, header.last_offset, _UNDECIDED))
