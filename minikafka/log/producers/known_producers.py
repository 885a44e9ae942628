"""The producers and open transactions of a partition in memory: what appends do to them, and how the newest
appends are taken back.

The lower layer of ``ProducerStateManager``, which adds the checks, expiry and the snapshot files.

A follower whose leader changes truncates the newest records, practically always above the high watermark.
Kafka goes back to the snapshot at the segment's start and replays the batches behind it, in a thread; here
the event loop and every other partition would wait for that (100 MB: 0.5 s in batches of 1 KB, 60 ms in
batches of 16 KB). An entry is never changed in place, so the appends above the high watermark are kept, each
with the entry that it replaced. Taken back from the newest on, they leave the state as it was: with all of a
producer's last batches, where a snapshot has one.

Invariants
- ``_undo`` has every append whose last offset is at or above ``_undo_start``, unless it is full: then every
  one behind its first.
- Ongoing transactions are ordered by first offset, unreplicated ones by last offset: both are insertion
  order, because offsets only grow.
"""

from __future__ import annotations

from collections import deque

from minikafka.errors import InvariantError
from minikafka.log.producers.append import CompletedTransaction, ProducerAppend, ProducerStateEntry
from minikafka.log.producers.verification_state import VerificationStates
from minikafka.types import TopicPartition

UNDO_MAX = 1000
"""Appends that can be taken back, about 450 KB: 1 MiB of a fetch in batches of 1 KB. A high watermark that
stands still for longer makes a truncation replay the log."""

_NEVER = 1 << 63
"""Above every offset."""


class KnownProducers:
    """The producers of one partition and their transactions."""

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.verifications = VerificationStates()
        self._producers: dict[int, ProducerStateEntry] = {}
        self._ongoing: dict[int, int] = {}  # first offset -> producer id, by first offset
        self._unreplicated: dict[int, int] = {}  # first offset -> last offset, by last offset
        self._first_unstable: int | None = None
        self._undo: deque[ProducerAppend] | None = None  # an empty one has 600 bytes; most have no producers
        self._undo_start = 0

    @property
    def is_empty(self) -> bool:
        return not self._producers and not self._unreplicated

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of a transaction that is open, or whose marker is above the high watermark."""
        return self._first_unstable

    @property
    def first_undecided_offset(self) -> int | None:
        """The first offset of an open transaction."""
        return next(iter(self._ongoing), None)

    def update(self, prepared: ProducerAppend) -> None:
        """The prepared append has happened."""
        entry, _, _, started, _ = prepared
        self._producers[entry[0]] = entry
        if self._undo is None:
            self._undo = deque(maxlen=UNDO_MAX)
        self._undo.append(prepared)
        if self.verifications:
            self.verifications.forget(entry[0])
        if started is not None:
            self._ongoing[started] = entry[0]
            if self._first_unstable is None:
                self._first_unstable = started

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """The LSO as it will be after ``completed``: what the transaction index records."""
        for first_offset, producer_id in self._ongoing.items():
            if producer_id != completed.producer_id:
                return first_offset
        return completed.last_offset + 1

    def complete_transaction(self, completed: CompletedTransaction) -> None:
        """Its marker is in the log; it stays unstable until the high watermark has passed the marker."""
        if self._ongoing.pop(completed.first_offset, None) is None:
            raise InvariantError(f"{self.topic_partition}: {completed} was never begun")
        self._unreplicated[completed.first_offset] = completed.last_offset

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        undo = self._undo
        while undo and undo[0].last_offset < high_watermark:
            self._undo_start = undo.popleft().last_offset + 1
        if self._unreplicated:
            self._forget_unreplicated_below(high_watermark)

    def take_back(self, log_end_offset: int) -> bool:
        """Forget the appends at and above ``log_end_offset``, which no batch reaches across. False, and
        nothing has changed, when they are not all known any more."""
        undo = self._undo
        if undo is not None and len(undo) == UNDO_MAX:
            self._undo_start = undo[0].last_offset + 1
        if log_end_offset < self._undo_start:
            return False
        reopened = False
        while undo and undo[-1].last_offset >= log_end_offset:
            entry, replaced, _, started, completed = undo.pop()
            producer_id = entry.producer_id
            if replaced == ProducerStateEntry(producer_id):  # nothing was known of it
                self._producers.pop(producer_id, None)  # it may have expired since
            else:
                self._producers[producer_id] = replaced
            if started is not None:
                del self._ongoing[started]
            if completed is not None:
                self._unreplicated.pop(completed.first_offset, None)
                self._ongoing[completed.first_offset] = producer_id
                reopened = True
        if reopened:
            self._ongoing = dict(sorted(self._ongoing.items()))
        self._find_first_unstable()
        return True

    def _begin_at(self, offset: int) -> None:
        """Know of no producer, and of nothing below ``offset``."""
        self._producers.clear()
        self._ongoing.clear()
        self._unreplicated = {}
        self._first_unstable = None
        self._undo = None
        self._undo_start = offset

    def _forget_unreplicated_below(self, offset: int) -> None:
        gone = []
        for first_offset, last_offset in self._unreplicated.items():
            if last_offset >= offset:
                break
            gone.append(first_offset)
        for first_offset in gone:
            del self._unreplicated[first_offset]
        if gone:
            self._find_first_unstable()

    def _find_first_unstable(self) -> None:
        first = min(next(iter(self._ongoing), _NEVER), min(self._unreplicated, default=_NEVER))
        self._first_unstable = None if first == _NEVER else first
