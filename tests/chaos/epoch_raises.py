"""Duplicates that librdkafka makes when it raises its producer epoch after a legal answer.

With up to five requests in flight, a leader may refuse the first for a passing reason (NOT_ENOUGH_REPLICAS)
and then, when that has passed, look at a later one, whose sequence number is not the next in its log:
OUT_OF_ORDER_SEQUENCE_NUMBER. Java's client tries both again (``TransactionManager.canRetry``). librdkafka
raises its epoch (``rd_kafka_handle_idempotent_Produce_error``, "skipped sequence numbers") and sends in the
new one, from sequence 0 on, all that it has no answer for. What of that had been written, and whose answer
was lost with the connection, is there twice (confluentinc/librdkafka#4953).
``tests/integration/test_raised_epochs.py`` has it happen on Apache Kafka alone.

Java's producer has a fault of the same kind: a leader that was just elected refuses its first batches, then
takes one from behind them, since it knows nothing of the producer and any first sequence will do. What is
before that is out of order from then on, and tried again for delivery.timeout.ms. That is no duplicate: the
run ends because the producer does not end (seed 5 on SQLite).

``known_duplicates`` finds those of a run. A duplicate is known only when all of this holds:

- both copies have the same producer id, and the second a higher epoch;
- what the client was told is the second copy's offset, so that it never got the first one's;
- the client is an idempotent producer of librdkafka;
- a broker of Apache Kafka says in its log that it refused a batch of that producer id, behind a gap; and
  what it took for the last batch of the producer is that batch in the log, in the first copy's epoch: its
  state was right.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from minikafka.protocol.records.batch import BatchHeader, iterate_headers
from minikafka.testing.history.operations import Kind, Operation, Outcome, Partition

_REFUSED = re.compile(
    r"OutOfOrderSequenceException: Out of order sequence number for producer (?P<producer_id>\d+) "
    r"at offset (?P<log_end_offset>\d+) in partition (?P<topic>\S+)-(?P<number>\d+): "
    r"(?P<sequence>\d+) \(incoming seq\. number\), (?P<last_sequence>\d+) \(current end sequence number\)"
)
"""``ProducerAppendInfo.checkSequence`` of Kafka 3.9, for a batch of the epoch that the leader knows."""
_LIBRDKAFKA = re.compile(r"producer-\d+-confluent-idempotent(\.\d+)?")
"""What its processes are called in a history (``producers``)."""


class Refusal(msgspec.Struct, frozen=True):
    """A leader of Apache Kafka has answered OUT_OF_ORDER_SEQUENCE_NUMBER."""

    broker: int
    partition: Partition
    producer_id: int
    log_end_offset: int
    """Where the batch would have been."""
    sequence: int
    """The batch's first."""
    last_sequence: int
    """The last one of this producer in the log, as the leader knew it."""

    @property
    def is_behind_gap(self) -> bool:
        return self.sequence > self.last_sequence + 1


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
        why = self.refusal
        return (
            f"known: the client raised its epoch: {self.value} is at {self.first_offset} "
            f"(epoch {self.first_epoch}) and at {self.second_offset} (epoch {self.second_epoch}) of "
            f"{self.partition}: broker {why.broker}, of Apache Kafka, refused sequence {why.sequence} of "
            f"producer {why.producer_id} after {why.last_sequence} at {why.log_end_offset} of {why.partition}"
        )


class _Log:
    """The batches of one partition, by offset."""

    def __init__(self, batches: Sequence[BatchHeader]) -> None:
        self._batches = batches
        self._bases = [each.base_offset for each in batches]

    def batch_at(self, offset: int) -> BatchHeader | None:
        index = bisect_right(self._bases, offset) - 1
        return self._batches[index] if index >= 0 and self._batches[index].last_offset >= offset else None

    def last_of(self, producer_id: int, *, below: int) -> BatchHeader | None:
        """A producer's last batch of records below an offset."""
        for batch in reversed(self._batches[: bisect_left(self._bases, below)]):
            if batch.producer_id == producer_id and not batch.is_control:
                return batch
        return None


def refusals_of(broker: int, lines: Iterable[str]) -> Iterator[Refusal]:
    """What a broker of Apache Kafka says in its log."""
    for line in lines:
        if (found := _REFUSED.search(line)) is not None:
            partition = Partition(found["topic"], int(found["number"]))
            counts = ("producer_id", "log_end_offset", "sequence", "last_sequence")
            yield Refusal(broker, partition, *(int(found[name]) for name in counts))


def known_duplicates(
    operations: Iterable[Operation], directory: Path, *, of_kafka: Collection[int]
) -> list[KnownDuplicate]:
    """Of a run whose brokers have ended, and whose partitions were whole then.

    ``directory`` has the brokers' logs and log directories, ``of_kafka`` are the brokers of Apache Kafka.
    Reads logs only of partitions that have duplicates or refusals.

    Raises:
        CorruptBatch: in a log.
    """
    places, told = _places(operations)
    twice = {key: sorted(offsets) for key, offsets in places.items() if len(offsets) > 1}
    if not twice:
        return []
    refusals = [
        refusal
        for broker in sorted(of_kafka)
        for refusal in refusals_of(broker, _lines(directory / f"broker-{broker}.log"))
    ]
    partitions = {partition for partition, _ in twice} | {each.partition for each in refusals}
    logs = {each: _read_log(directory, each) for each in partitions}
    known = []
    for (partition, value), offsets in twice.items():
        send = told.get((partition, value))
        if (
            send is None
            or not _LIBRDKAFKA.fullmatch(send.process)
            or _told_offset(send, value) != offsets[-1]
        ):
            continue
        pairs = [_explained(partition, value, pair, refusals, logs) for pair in pairwise(offsets)]
        known += [each for each in pairs if each is not None]
    return known


def _explained(
    partition: Partition,
    value: str,
    offsets: tuple[int, int],
    refusals: Sequence[Refusal],
    logs: dict[Partition, _Log],
) -> KnownDuplicate | None:
    first, second = (logs[partition].batch_at(offset) for offset in offsets)
    if first is None or second is None or first.producer_id != second.producer_id:
        return None
    if second.producer_epoch <= first.producer_epoch:
        return None
    for refusal in refusals:
        if refusal.producer_id != first.producer_id or not refusal.is_behind_gap:
            continue
        if refusal.partition == partition and not offsets[0] < refusal.log_end_offset <= offsets[1]:
            continue
        last = logs[refusal.partition].last_of(refusal.producer_id, below=refusal.log_end_offset)
        if last is None or last.producer_epoch != first.producer_epoch:
            continue
        if last.base_sequence + last.record_count - 1 == refusal.last_sequence:
            epochs = first.producer_epoch, second.producer_epoch
            return KnownDuplicate(partition, value, *offsets, first.producer_id, *epochs, refusal)
    return None


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


def _lines(path: Path) -> Iterator[str]:
    with path.open(errors="replace") as file:
        yield from file


def _read_log(directory: Path, partition: Partition) -> _Log:
    """The longest of its replicas: one that a reassignment has left behind may end before."""
    replicas = [
        [header for path in sorted(replica.glob("*.log")) for _, header in iterate_headers(path.read_bytes())]
        for replica in directory.glob(f"broker-*/{partition}")
    ]
    return _Log(max(replicas, key=lambda batches: batches[-1].next_offset if batches else 0, default=[]))
