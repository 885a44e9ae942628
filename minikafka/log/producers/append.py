"""What one producer appends next, and which of its transactions are verified. Pure.

**A producer's state and the checks on its next batch**: an entry in, a prepared append out. Kafka's classes:
``ProducerStateEntry``, ``ProducerAppendInfo``, ``BatchMetadata``, ``CompletedTxn`` (KIP-98, KIP-360,
KIP-890). ``ProducerStateManager`` keeps the entries and calls these checks.

Invariants
- An entry is never changed in place: a prepared append holds its successor, installed by ``update``.
- Sequence numbers continue at 0 after 2^31-1; all arithmetic on them is modulo 2^31.

**Verification**: which producers are about to begin a transaction in a partition, while their coordinator is
asked. Kafka's classes: ``VerificationStateEntry``, ``VerificationGuard`` (KIP-890). The first batch of a
transaction is appended only when its coordinator has said that the partition belongs to it. Between that
answer and the append the transaction may have ended, by a marker that the partition has got meanwhile; the
answer is then about nothing. So a check begins with a guard, which the append has to show, and any
transactional append or marker of the producer takes the guard away.

The lowest sequence is kept, because batches behind one whose check has failed must not overtake it.

**Where an append comes from** (``AppendOrigin``, as in Kafka) decides how much has to be checked.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import Final

import msgspec

from minikafka.errors import ErrorCode, KafkaError
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.records.batch import BatchHeader
from minikafka.types import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, Buffer, TopicPartition

_log = logging.getLogger(__name__)

TRANSACTION_VERSION_UNKNOWN: Final = -1
"""A marker whose transaction version is not known: replicated, or read back from the log."""

BATCHES_TO_RETAIN = 5
"""Kafka's NUM_BATCHES_TO_RETAIN: a producer has at most 5 requests in flight, so a retry is one of these."""

_new = tuple.__new__
"""Makes a named tuple in half the time of calling its class; for what every idempotent batch needs."""


class VerificationGuard:
    """One check of one producer's transaction. Compared by identity."""

    __slots__ = ()


class VerificationStateEntry:
    """A producer whose transaction is being checked, or was."""

    __slots__ = ("begun_ms", "epoch", "guard", "lowest_sequence", "supports_epoch_bump")

    def __init__(self, *, sequence: int, epoch: int, supports_epoch_bump: bool, begun_ms: int) -> None:
        self.guard = VerificationGuard()
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.supports_epoch_bump = supports_epoch_bump
        self.begun_ms = begun_ms

    def __repr__(self) -> str:
        return f"VerificationStateEntry(epoch={self.epoch}, lowest_sequence={self.lowest_sequence})"

    def saw(self, *, sequence: int, epoch: int) -> None:
        """Another batch of the producer is to be checked."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


class VerificationStates(dict[int, VerificationStateEntry]):
    """Those of a partition, by producer id. A dictionary, because every idempotent append asks whether there
    are any."""

    __slots__ = ()

    def begin(
        self, producer_id: int, *, sequence: int, epoch: int, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard:
        """A batch is to be checked. Batches that wait at the same time share one guard."""
        entry = self.get(producer_id)
        if entry is None:
            entry = self[producer_id] = VerificationStateEntry(
                sequence=sequence, epoch=epoch, supports_epoch_bump=supports_epoch_bump, begun_ms=now_ms
            )
        entry.saw(sequence=sequence, epoch=epoch)
        return entry.guard

    def has(self, producer_id: int, guard: VerificationGuard | None) -> bool:
        """Whether ``guard`` still counts."""
        entry = self.get(producer_id)
        return entry is not None and entry.guard is guard

    def forget(self, producer_id: int) -> None:
        """Its transaction has begun here, or ended: an earlier confirmation no longer counts."""
        self.pop(producer_id, None)

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Forget those that never came to an append."""
        for producer_id, entry in list(self.items()):
            if now_ms - entry.begun_ms >= expiration_ms:
                del self[producer_id]


class AppendOrigin(Enum):
    """The source of an append."""

    REPLICATION = "replication"
    """A follower copies what its leader has validated, or recovery replays the log: nothing is refused for
    its sequence, and a stale epoch is tolerated."""

    COORDINATOR = "coordinator"
    """A group or transaction coordinator of this broker: epochs are checked, sequences are not (offset
    commits have none)."""

    CLIENT = "client"
    """A producer: everything is checked."""


class CheckedBatch(msgspec.Struct, frozen=True, gc=False):
    """One whole batch in the topic's codec, whose records are as they should be."""

    records: Buffer
    header: BatchHeader
    max_timestamp: int
    """Of its records, as they have it."""


class AppendTerms(NamedTuple):
    """What else a leader is told with a batch."""

    origin: AppendOrigin
    verification_guard: VerificationGuard | None = None
    """Of the check that lets a transaction begin here (KIP-890)."""
    transaction_version: int = TRANSACTION_VERSION_UNKNOWN
    """Of a marker, where its coordinator has told."""
    checked: CheckedBatch | None = None
    """The batch, where it was checked before."""


BY_CLIENT: Final = AppendTerms(AppendOrigin.CLIENT)
BY_COORDINATOR: Final = AppendTerms(AppendOrigin.COORDINATOR)


_MAX_SEQUENCE = 0x7FFF_FFFF
_TRANSACTIONAL = 0x10
"""The attribute bit of a transactional batch."""
_CLIENT = AppendOrigin.CLIENT
_REPLICATION = AppendOrigin.REPLICATION


class BatchMetadata(NamedTuple):
    """One batch that a producer has appended."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        # Sequences continue at 0 after 2^31-1, so the subtraction is modulo 2^31.
        return (self.last_sequence - self.offset_delta) & _MAX_SEQUENCE

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerStateEntry(NamedTuple):
    """The state of one producer id. ``batches`` are its last ones, oldest first."""

    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = -1
    last_timestamp: int = NO_TIMESTAMP
    current_txn_first_offset: int | None = None
    batches: tuple[BatchMetadata, ...] = ()

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1

    @property
    def last_offset_delta(self) -> int:
        return self.batches[-1].offset_delta if self.batches else 0

    def is_in_transaction(self, epoch: int) -> bool:
        """Whether one of this epoch is open. With a newer epoch the open one may have ended since."""
        return self.current_txn_first_offset is not None and self.producer_epoch == epoch


class CompletedTransaction(NamedTuple):
    """A transaction that a marker has ended; ``last_offset`` is the marker's (Kafka's ``CompletedTxn``)."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class EndTransactionMarker(NamedTuple):
    """What an append needs of the single record of an end-transaction marker batch."""

    is_abort: bool
    coordinator_epoch: int
    timestamp: int
    transaction_version: int = TRANSACTION_VERSION_UNKNOWN
    """2 demands an epoch above the producer's (KIP-890). Unknown counts as 0."""


class ProducerAppend(NamedTuple):
    """A checked append that has not happened yet (Kafka's ``ProducerAppendInfo``)."""

    entry: ProducerStateEntry
    """The producer's state once it has."""
    replaced: ProducerStateEntry
    """Its state before; a new entry when nothing was known of it."""
    last_offset: int
    """Of the batch."""
    started_txn_first_offset: int | None = None
    """Where a transaction began with this append."""
    completed: CompletedTransaction | None = None
    """The transaction that this marker ends: after ``update`` the log writes the transaction index (when it
    was aborted), then calls ``complete_transaction``."""


class OutOfOrderSequence(KafkaError):
    """A client's batch whose sequence is not the one that its producer's state allows next (Kafka's
    ``OutOfOrderSequenceException``)."""

    def __init__(
        self, message: str, *, header: BatchHeader, topic_partition: TopicPartition, last_sequence: int
    ) -> None:
        """``last_sequence``: what ``header``'s was compared with; -1 where nothing is known in its epoch."""
        super().__init__(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)
        self.topic_partition = topic_partition
        self.producer_id = header.producer_id
        self.producer_epoch = header.producer_epoch
        self.sequence = header.base_sequence
        self.last_sequence = last_sequence


def find_duplicate(entry: ProducerStateEntry, header: BatchHeader) -> BatchMetadata | None:
    """The retained batch with exactly the sequences of ``header``."""
    if entry.producer_epoch != header.producer_epoch:
        return None
    batches = entry.batches
    first_sequence = header.base_sequence
    if not batches or first_sequence == (batches[-1].last_sequence + 1) & _MAX_SEQUENCE:
        return None  # it continues where the last one ended: the usual case
    delta = header.last_offset_delta
    last_sequence = (first_sequence + delta) & _MAX_SEQUENCE
    for batch in batches:
        if batch.last_sequence == last_sequence and batch.offset_delta == delta:
            return batch
    return None


def check_epoch_is_not_stale(entry: ProducerStateEntry, epoch: int, topic_partition: TopicPartition) -> None:
    """Raises:
    KafkaError: INVALID_PRODUCER_EPOCH.
    """
    if epoch < entry.producer_epoch:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"{topic_partition}: producer {entry.producer_id} has epoch {epoch}, which is stale: its last "
            f"seen epoch is {entry.producer_epoch}",
        )


def check_verified(
    entry: ProducerStateEntry,
    header: BatchHeader,
    verification: VerificationStateEntry | None,
    guard: VerificationGuard | None,
    origin: AppendOrigin,
    topic_partition: TopicPartition,
) -> None:
    """Whether a transactional batch belongs to a transaction that its coordinator knows (KIP-890).

    Raises:
        KafkaError: INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE; OutOfOrderSequence.
    """
    if entry.is_in_transaction(header.producer_epoch):
        return
    check_epoch_is_not_stale(entry, header.producer_epoch, topic_partition)
    if verification is None or guard is not verification.guard:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"{topic_partition}: producer {header.producer_id} writes outside of a transaction that its "
            f"coordinator has confirmed",
        )
    if origin is not _CLIENT:
        return
    sequence = header.base_sequence
    if sequence > verification.lowest_sequence:
        raise OutOfOrderSequence(
            f"{topic_partition}: producer {header.producer_id} sends sequence {sequence}, and has tried "
            f"{verification.lowest_sequence} before",
            header=header,
            topic_partition=topic_partition,
            last_sequence=verification.lowest_sequence,
        )
    if verification.supports_epoch_bump and sequence != 0 and not entry.batches:
        raise OutOfOrderSequence(
            f"{topic_partition}: producer {header.producer_id}, of which nothing is known here, begins its "
            f"transaction at sequence {sequence}, not at 0",
            header=header,
            topic_partition=topic_partition,
            last_sequence=NO_SEQUENCE,
        )


def check_data_batch(
    entry: ProducerStateEntry,
    header: BatchHeader,
    first_offset: int,
    origin: AppendOrigin,
    topic_partition: TopicPartition,
) -> ProducerAppend:
    """Check a data batch that follows ``entry``.

    Raises:
        KafkaError: INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE; OutOfOrderSequence.
    """
    producer_id, current_epoch, coordinator_epoch, _, txn_first_offset, batches = entry
    epoch = header.producer_epoch
    first_sequence = header.base_sequence
    if epoch != current_epoch:
        if epoch < current_epoch:
            _stale_epoch(entry, epoch, first_offset, origin, topic_partition)
        if origin is _CLIENT and first_sequence != 0 and current_epoch != NO_PRODUCER_EPOCH:
            raise OutOfOrderSequence(
                f"{topic_partition}: producer {producer_id} begins its epoch {epoch} at sequence "
                f"{first_sequence} for offset {first_offset}, not at 0 after epoch {current_epoch}",
                header=header,
                topic_partition=topic_partition,
                last_sequence=NO_SEQUENCE,
            )
        batches = ()
    elif origin is _CLIENT:
        last_sequence = batches[-1].last_sequence if batches else NO_SEQUENCE
        if first_sequence != (last_sequence + 1) & _MAX_SEQUENCE:
            raise OutOfOrderSequence(
                f"{topic_partition}: producer {producer_id} sends sequence {first_sequence} of epoch {epoch} "
                f"for offset {first_offset}; its last one is {last_sequence}",
                header=header,
                topic_partition=topic_partition,
                last_sequence=last_sequence,
            )

    started = None
    if header.attributes & _TRANSACTIONAL:
        if txn_first_offset is None:
            started = txn_first_offset = first_offset
    elif txn_first_offset is not None:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"{topic_partition}: producer {producer_id} writes to offset {first_offset} outside of its "
            f"transaction, which is open since offset {txn_first_offset}",
        )
    delta = header.last_offset_delta
    timestamp = header.max_timestamp
    # A coordinator's batches have no sequence.
    last_sequence = NO_SEQUENCE if first_sequence < 0 else (first_sequence + delta) & _MAX_SEQUENCE
    last_offset = first_offset + delta
    batch = _new(BatchMetadata, (last_sequence, last_offset, delta, timestamp))
    if len(batches) >= BATCHES_TO_RETAIN:
        batches = batches[1 - BATCHES_TO_RETAIN :]
    fields = (producer_id, epoch, coordinator_epoch, timestamp, txn_first_offset, (*batches, batch))
    return _new(ProducerAppend, (_new(ProducerStateEntry, fields), entry, last_offset, started, None))


def check_marker(
    entry: ProducerStateEntry,
    marker: EndTransactionMarker,
    *,
    producer_epoch: int,
    offset: int,
    origin: AppendOrigin,
    topic_partition: TopicPartition,
) -> ProducerAppend:
    """Check an end-transaction marker that follows ``entry``.

    Raises:
        KafkaError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
    """
    current_epoch = entry.producer_epoch
    txn_first_offset = entry.current_txn_first_offset
    # From transaction version 2 on the coordinator raises the epoch with each marker, so one with the epoch
    # of an open transaction is late; with none open it is the last marker sent again, and harmless
    # (KAFKA-19999).
    repeats_epoch = marker.transaction_version >= 2 and producer_epoch == current_epoch
    if producer_epoch < current_epoch or (repeats_epoch and txn_first_offset is not None):
        _stale_epoch(entry, producer_epoch, offset, origin, topic_partition)
    if marker.coordinator_epoch < entry.coordinator_epoch:
        message = (
            f"{topic_partition}: the marker for producer {entry.producer_id} at offset {offset} is from "
            f"coordinator epoch {marker.coordinator_epoch}; epoch {entry.coordinator_epoch} has written since"
        )
        if origin is not _REPLICATION:
            raise KafkaError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, message)
        _log.info("%s", message)
    completed = None
    if txn_first_offset is not None:
        # A marker without data before it moves no LSO and belongs in no index.
        completed = CompletedTransaction(entry.producer_id, txn_first_offset, offset, marker.is_abort)
    batches = entry.batches if producer_epoch == current_epoch else ()
    successor = ProducerStateEntry(
        entry.producer_id, producer_epoch, marker.coordinator_epoch, marker.timestamp, None, batches
    )
    return ProducerAppend(successor, entry, offset, None, completed)


def _stale_epoch(
    entry: ProducerStateEntry, epoch: int, offset: int, origin: AppendOrigin, topic_partition: TopicPartition
) -> None:
    message = (
        f"{topic_partition}: producer {entry.producer_id} has epoch {epoch} at offset {offset}, which is "
        f"stale: its last seen epoch is {entry.producer_epoch}"
    )
    if origin is not _REPLICATION:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, message)
    _log.warning("%s", message)  # its leader took it
