"""Records that Java's idempotent producer has given up after ``delivery.timeout.ms``, and why it had to.

Such a record may be there and may not: it is unknown, and the judge takes it as that. Yet no fault lasts so
long, so that there is something to explain. Two things do:

- a gap that nothing fills. A leader that knows nothing of the producer refused its first batches, as for want
  of replicas, and then took one from behind them, since any first sequence will do
  (``ProducerAppendInfo.checkSequence``). What is before that one is out of order from then on. The producer
  tries it again until its delivery time-out, because it is not what it expects an answer for next
  (``TransactionManager.canRetry``), and nothing else of the partition meanwhile. Seed 5 on SQLite did so.
  ``tests/integration/test_raised_epochs.py`` has it happen step by step. It counts where a broker says that
  it refused a batch of a producer id of this client in this partition, and was right (``refusals``);
- nothing was acknowledged in the partition in that time, to any client (``MARGIN_MS``).

A record that was given up without either is a finding, and fails the run.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import msgspec

from minikafka.testing.history import Kind, Operation, Outcome, Partition
from tests.chaos.refusals import BrokersOfRun, Refusal

_JAVA = re.compile(r"(producer-\d+-java-idempotent)(\.\d+)?")
"""What its processes are called in a history."""
_GIVEN_UP = ("TimeoutException: Expiring ", "OutOfOrderSequenceException: ")
"""How the error begins: the time-out came between two tries (``Sender.sendProducerData``), or while the last
was on its way, and then it is that one's answer (``Sender.canRetry``, which tries again before)."""
MARGIN_MS = 10_000
"""Who was answered after so much of the wait, and so long before its end, shows that the partition was there
for long enough."""


class GivenUp(msgspec.Struct, frozen=True):
    """One record, whose fate is not known."""

    partition: Partition
    value: str
    waited_s: float
    refusal: Refusal | None = None
    was_available: bool = True
    """Whether what was sent there meanwhile was acknowledged, to any client."""

    @property
    def is_explained(self) -> bool:
        return self.refusal is not None or not self.was_available

    def __str__(self) -> str:
        given_up = f"{self.value} was given up after {self.waited_s:.0f} s in {self.partition}"
        if self.refusal is not None:
            return f"known: behind a gap, or before it: {given_up}: {self.refusal}"
        if not self.was_available:
            return f"known: no leader answered: {given_up}, where nothing was acknowledged in that time"
        return f"given up: {given_up}, where others were answered, and no broker has refused it"


def given_up(operations: Sequence[Operation], directory: Path, *, of_kafka: Collection[int]) -> list[GivenUp]:
    """Of a run whose brokers have ended. ``directory`` and ``of_kafka`` as in ``known_duplicates``.

    Raises:
        CorruptBatch: in a log.
    """
    sends = [each for each in operations if is_given_up(each)]
    if not sends:
        return []
    brokers = BrokersOfRun(directory, of_kafka=of_kafka)
    refusals = [each for each in brokers.refusals() if each.is_out_of_order]
    answers = _answers(operations)
    producer_ids = _producer_ids(operations, brokers)
    found = []
    for send in sends:
        began_ms, ended_ms = send.invoked_ms, send.completed_ms or send.invoked_ms
        for record in send.records:
            partition = Partition(record.topic, record.partition)
            ids = producer_ids[_client_of(send)]
            explained = (
                each
                for each in refusals
                if each.partition == partition
                and each.producer_id in ids
                and brokers.confirmed(each) is not None
            )
            found.append(
                GivenUp(
                    partition,
                    str(record.value),
                    (ended_ms - began_ms) / 1000,
                    next(explained, None),
                    any(
                        began_ms + MARGIN_MS < other.invoked_ms
                        and (other.completed_ms or other.invoked_ms) < ended_ms - MARGIN_MS
                        for other in answers[partition]
                    ),
                )
            )
    return found


def is_given_up(operation: Operation) -> bool:
    """Whether its records are such."""
    return (
        operation.kind is Kind.SEND
        and operation.outcome is Outcome.INFO
        and _JAVA.fullmatch(operation.process) is not None
        and any(error in operation.error for error in _GIVEN_UP)
    )


def _client_of(operation: Operation) -> str:
    """Without the number of its life."""
    return operation.process.partition(".")[0]


def _answers(operations: Iterable[Operation]) -> dict[Partition, list[Operation]]:
    """What was acknowledged."""
    answers: dict[Partition, list[Operation]] = defaultdict(list)
    for operation in operations:
        if operation.kind is Kind.SEND and operation.outcome is Outcome.OK:
            for record in operation.records:
                answers[Partition(record.topic, record.partition)].append(operation)
    return answers


def _producer_ids(operations: Iterable[Operation], brokers: BrokersOfRun) -> dict[str, set[int]]:
    """Of Java's idempotent clients, by what the partitions say of their acknowledged records."""
    ids: dict[str, set[int]] = defaultdict(set)
    for operation in operations:
        if operation.kind is not Kind.SEND or operation.outcome is not Outcome.OK:
            continue
        if _JAVA.fullmatch(operation.process) is None:
            continue
        for record in operation.records:
            log = brokers.partition(Partition(record.topic, record.partition))
            batch = None if record.offset is None else log.batch_at(record.offset)
            if batch is not None and batch.producer_id >= 0:
                ids[_client_of(operation)].add(batch.producer_id)
    return ids
