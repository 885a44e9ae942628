"""Duplicates that librdkafka makes when it raises its producer epoch after a legal answer.

With up to five requests in flight, a leader may refuse the first for a passing reason (NOT_ENOUGH_REPLICAS)
and then, when that has passed, look at a later one, whose sequence number is not the next in its log:
OUT_OF_ORDER_SEQUENCE_NUMBER. Java's client tries both again (``TransactionManager.canRetry``). librdkafka
raises its epoch (``rd_kafka_handle_idempotent_Produce_error``, "skipped sequence numbers") and sends in the
new one, from sequence 0 on, all that it has no answer for. What of that had been written, and whose answer
was lost with the connection, is there twice (confluentinc/librdkafka#4953).
``tests/integration/test_raised_epochs.py`` has it happen on Apache Kafka alone.

``known_duplicates`` finds those of a run. A duplicate is known only when all of this holds:

- both copies have the same producer id, and the second a higher epoch;
- what the client was told is the second copy's offset, so that it never got the first one's;
- the client is an idempotent producer of librdkafka, or of Java;
- a broker says in its log that it refused a batch of that producer id, behind a gap, and where the batch is
  of the same partition, between the two copies; and what it took for the last batch of the producer is that
  batch in the log, in the first copy's epoch: its state was right (``refusals``). Brokers of this project say
  the epoch, too;
- of librdkafka only, it was behind a gap. Or the batch was in the log, and not the producer's last one, and
  the broker, one of this project, has read it from its disk. A snapshot has the last batch of each producer
  and no more, in Kafka as here (``test_raised_epochs``), so that one that was in flight before it is not
  known to be a duplicate. Java's producer raises its epoch then, too (seed 110 on SQLite).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from minikafka.protocol.records.batch import BatchHeader
from minikafka.testing.history import Kind, Operation, Outcome, Partition
from tests.chaos.refusals import BrokersOfRun, Refusal

_LIBRDKAFKA = re.compile(r"producer-\d+-confluent-idempotent(\.\d+)?")
_JAVA = re.compile(r"producer-\d+-java-idempotent(\.\d+)?")
"""What their processes are called in a history."""


class KnownDuplicate(msgspec.Struct, frozen=True):
    """One value, twice in a partition, because its client has raised its epoch."""

    partition: Partition
    value: str
    first_offset: int
    second_offset: int
    producer_id: int
    first_epoch: int
    second_epoch: int
    refusal: Refusal

    def __str__(self) -> str:
        return (
            f"known: the client raised its epoch: {self.value} is at {self.first_offset} "
            f"(epoch {self.first_epoch}) and at {self.second_offset} (epoch {self.second_epoch}) of "
            f"{self.partition}: {self.refusal}"
        )


def known_duplicates(
    operations: Iterable[Operation], directory: Path, *, of_kafka: Collection[int]
) -> list[KnownDuplicate]:
    """Of a run whose brokers have ended, and whose partitions were whole then.

    ``directory`` has the brokers' logs and log directories, ``of_kafka`` are the brokers of Apache Kafka.
    Reads nothing of them where there are no duplicates.

    Raises:
        CorruptBatch: in a log.
    """
    places, told = _places(operations)
    twice = {key: sorted(offsets) for key, offsets in places.items() if len(offsets) > 1}
    if not twice:
        return []
    brokers = BrokersOfRun(directory, of_kafka=of_kafka)
    refusals = brokers.refusals()
    known = []
    for (partition, value), offsets in twice.items():
        send = told.get((partition, value))
        if send is None or _told_offset(send, value) != offsets[-1]:
            continue
        is_librdkafka = _LIBRDKAFKA.fullmatch(send.process) is not None
        if not is_librdkafka and not _JAVA.fullmatch(send.process):
            continue
        of_client = [each for each in refusals if is_librdkafka or not each.is_behind_gap]
        pairs = [explained(partition, value, pair, of_client, brokers) for pair in pairwise(offsets)]
        known += [each for each in pairs if each is not None]
    return known


def explained(
    partition: Partition,
    value: str,
    offsets: tuple[int, int],
    refusals: Sequence[Refusal],
    brokers: BrokersOfRun,
) -> KnownDuplicate | None:
    """Why ``value`` is at both ``offsets``, if one of ``refusals`` says so: what ``known_duplicates`` asks of
    the batches and of the refusal."""
    first, second = (brokers.partition(partition).batch_at(offset) for offset in offsets)
    if first is None or second is None or first.producer_id != second.producer_id:
        return None
    if second.producer_epoch <= first.producer_epoch:
        return None
    for refusal in refusals:
        if refusal.producer_id != first.producer_id:
            continue
        if refusal.partition == partition and not offsets[0] < refusal.log_end_offset <= offsets[1]:
            continue
        last = brokers.confirmed(refusal)
        if last is None or last.producer_epoch != first.producer_epoch:
            continue
        if refusal.is_behind_gap or _was_forgotten(refusal, last, brokers):
            epochs = first.producer_epoch, second.producer_epoch
            return KnownDuplicate(partition, value, *offsets, first.producer_id, *epochs, refusal)
    return None


def _was_forgotten(refusal: Refusal, last: BatchHeader, brokers: BrokersOfRun) -> bool:
    """Whether what was refused was in the log, before the producer's last batch, and a snapshot may be all
    that the leader knew of it."""
    refused = brokers.partition(refusal.partition).with_sequence(
        refusal.producer_id, epoch=last.producer_epoch, sequence=refusal.sequence
    )
    return (
        refused is not None
        and refused.last_offset < last.base_offset
        and brokers.has_read_from_disk(refusal.broker, refusal.partition, refused.last_offset)
    )


_Key = tuple[Partition, str]


def _places(operations: Iterable[Operation]) -> tuple[dict[_Key, set[int]], dict[_Key, Operation]]:
    """At which offsets a value was seen or told to be; and its send, where that was acknowledged."""
    places: dict[_Key, set[int]] = defaultdict(set)
    told: dict[_Key, Operation] = {}
    for operation in operations:
        is_sent = operation.kind is Kind.SEND and operation.outcome is Outcome.OK
        if not is_sent and operation.kind is not Kind.POLL:
            continue
        for record in operation.records:
            if record.value is not None:
                key = Partition(record.topic, record.partition), record.value
                if is_sent:
                    told[key] = operation
                if record.offset is not None:
                    places[key].add(record.offset)
    return places, told


def _told_offset(send: Operation, value: str) -> int | None:
    return next(record.offset for record in send.records if record.value == value)
