"""Which batches the brokers of a run have refused out of order, as their logs say; and what is in partitions.

A refusal explains what a client does afterwards (``epoch_raises``, ``give_ups``) only when it was right: what
the leader took for the producer's last batch is that batch in the partition, below where the leader's log
ended.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from minikafka.files import OsFiles
from minikafka.flight_recorder import (
    CURRENT_NAME,
    OLD_NAME,
    BrokerStarted,
    EpochBegan,
    Event,
    decode_event,
    read_event_file,
)
from minikafka.protocol.records.batch import BatchHeader, iterate_headers
from minikafka.testing.history import Partition

_OF_KAFKA = re.compile(
    r"OutOfOrderSequenceException: Out of order sequence number for producer (?P<producer_id>\d+) "
    r"at offset (?P<log_end_offset>\d+) in partition (?P<topic>\S+)-(?P<number>\d+): "
    r"(?P<sequence>\d+) \(incoming seq\. number\), (?P<last_sequence>\d+) \(current end sequence number\)"
)
"""``ProducerAppendInfo.checkSequence`` of Kafka 3.9, for a batch of the epoch that the leader knows."""
_OF_OURS = re.compile(
    r"Out of order sequence number: (?P<topic>\S+)-(?P<number>\d+): producer (?P<producer_id>\d+) sends "
    r"sequence (?P<sequence>\d+) of epoch (?P<producer_epoch>\d+) for offset (?P<log_end_offset>\d+); "
    r"its last one is (?P<last_sequence>\d+)(;|$)"
)
"""The same of this project's brokers (``RefusedSequences``, ``check_data_batch``)."""


class Refusal(msgspec.Struct, frozen=True):
    """A leader has answered OUT_OF_ORDER_SEQUENCE_NUMBER."""

    broker: int
    partition: Partition
    producer_id: int
    log_end_offset: int
    """Where the batch would have been."""
    sequence: int
    """The batch's first."""
    last_sequence: int
    """The last one of this producer in the log, as the leader knew it."""
    producer_epoch: int | None = None
    """Of both; None: Apache Kafka does not say."""

    @property
    def is_behind_gap(self) -> bool:
        return self.sequence > self.last_sequence + 1

    @property
    def is_out_of_order(self) -> bool:
        """Whether it is one at all: what comes next is to be taken."""
        return self.sequence != self.last_sequence + 1

    @property
    def who(self) -> str:
        return f"broker {self.broker}" + (", of Apache Kafka," if self.producer_epoch is None else "")

    def __str__(self) -> str:
        return (
            f"{self.who} refused sequence {self.sequence} of producer {self.producer_id} after "
            f"{self.last_sequence} at {self.log_end_offset} of {self.partition}"
        )


def refusals_of(broker: int, lines: Iterable[str], *, is_kafka: bool = True) -> Iterator[Refusal]:
    """What a broker, ``is_kafka``: of Apache Kafka, says in its log."""
    for line in lines:
        if (found := (_OF_KAFKA if is_kafka else _OF_OURS).search(line.rstrip("\n"))) is not None:
            partition = Partition(found["topic"], int(found["number"]))
            counts = ("producer_id", "log_end_offset", "sequence", "last_sequence")
            numbers = [int(found[name]) for name in counts]
            epoch = None if is_kafka else int(found["producer_epoch"])
            yield Refusal(broker, partition, *numbers, producer_epoch=epoch)


class PartitionLog:
    """The batches of one partition, by offset."""

    def __init__(self, batches: Sequence[BatchHeader]) -> None:
        self._batches = batches
        self._bases = [each.base_offset for each in batches]

    def batch_at(self, offset: int) -> BatchHeader | None:
        index = bisect_right(self._bases, offset) - 1
        return self._batches[index] if index >= 0 and self._batches[index].last_offset >= offset else None

    def with_sequence(self, producer_id: int, *, epoch: int, sequence: int) -> BatchHeader | None:
        """A producer's first batch that begins so."""
        wanted = (producer_id, epoch, sequence)
        for batch in self._batches:
            if (batch.producer_id, batch.producer_epoch, batch.base_sequence) == wanted:
                return batch
        return None

    def last_of(self, producer_id: int, *, below: int) -> BatchHeader | None:
        """A producer's last batch of records below an offset."""
        for batch in reversed(self._batches[: bisect_left(self._bases, below)]):
            if batch.producer_id == producer_id and not batch.is_control:
                return batch
        return None


EVENTS_BYTES_MAX = 8 * 1024 * 1024
"""Twice what a broker keeps (``event.recorder.max.bytes``)."""


class BrokersOfRun:
    """What the brokers of a run that is over have left behind in its directory: their logs and partitions.

    A partition is read when it is asked for, and kept.
    """

    def __init__(self, directory: Path, *, of_kafka: Collection[int]) -> None:
        """``of_kafka``: which of the brokers are Apache Kafka's."""
        self._directory = directory
        self._of_kafka = of_kafka
        self._partitions: dict[Partition, PartitionLog] = {}

    def refusals(self) -> list[Refusal]:
        """Of all brokers, those of one in the order of its log."""
        found: list[Refusal] = []
        for path in sorted(self._directory.glob("broker-*.log")):
            if (number := path.stem.removeprefix("broker-")).isdecimal():
                broker = int(number)
                with path.open(errors="replace") as lines:
                    found += refusals_of(broker, lines, is_kafka=broker in self._of_kafka)
        return found

    def has_read_from_disk(self, broker: int, partition: Partition, offset: int) -> bool:
        """Whether a broker of this project has started when a batch at ``offset`` was in its log already, so
        that a snapshot may be all that it knows of the producer. Its events say so, whatever its clock said.

        Raises:
            UnreadableEventFile: there are events, and they cannot be read.
        """
        is_restarted = False
        for event in self.events(broker):
            if isinstance(event, BrokerStarted):
                is_restarted = event.was_clean is not None
            elif (
                is_restarted
                and isinstance(event, EpochBegan)
                and (event.topic, event.partition) == partition
                and event.log_end_offset > offset
            ):
                return True
        return False

    def events(self, broker: int) -> Iterator[Event]:
        """What a broker of this project noted. Raises UnreadableEventFile."""
        for name in (OLD_NAME, CURRENT_NAME):
            path = self._directory / f"broker-{broker}" / name
            if path.exists():
                for line in read_event_file(OsFiles(), str(path), bytes_max=EVENTS_BYTES_MAX).lines:
                    if (recorded := decode_event(line)) is not None:
                        yield recorded.event

    def partition(self, partition: Partition) -> PartitionLog:
        """The longest of its replicas: one that a reassignment has left behind may end before. Raises
        CorruptBatch."""
        if partition not in self._partitions:
            replicas = [
                [
                    header
                    for path in sorted(at.glob("*.log"))
                    for _, header in iterate_headers(path.read_bytes())
                ]
                for at in self._directory.glob(f"broker-*/{partition}")
            ]
            longest = max(replicas, key=lambda batches: batches[-1].next_offset if batches else 0, default=[])
            self._partitions[partition] = PartitionLog(longest)
        return self._partitions[partition]

    def confirmed(self, refusal: Refusal) -> BatchHeader | None:
        """What was the producer's last batch when the leader refused another, if the leader was right about
        it; None: it was not."""
        last = self.partition(refusal.partition).last_of(refusal.producer_id, below=refusal.log_end_offset)
        if last is None or last.base_sequence + last.record_count - 1 != refusal.last_sequence:
            return None
        return last if refusal.producer_epoch in (None, last.producer_epoch) else None
