"""What is told of batches that come out of order: each of them, and no more for who repeats it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.clock import ManualClock
from minikafka.errors import ErrorCode, KafkaError
from minikafka.flight_recorder import BatchRefused, Event
from minikafka.log.producers.append import AppendOrigin, AppendTerms, OutOfOrderSequence
from minikafka.protocol.records.batch import read_header
from minikafka.protocol.records.records import Record, build_batch
from minikafka.server.replica import refused_sequences
from minikafka.server.replica.refused_sequences import (
    LINE_INTERVAL_MS,
    LINES_AT_ONCE_MAX,
    REMEMBERED_MAX,
    REPEAT_INTERVAL_MS,
    RefusedSequences,
)
from tests.unit.server.replicas import OTHER, TP, Replicas

PRODUCER_ID = 2000


class Told:
    """Events and lines."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.clock = ManualClock()
        self.events: list[Event] = []
        self.refused = RefusedSequences(self.clock, self.events.append)
        self._caplog = caplog

    def note(self, sequence: int, *, last: int = 1, producer_id: int = PRODUCER_ID, offset: int = 14) -> None:
        header = read_header(numbered(sequence, producer_id=producer_id))
        message = f"sequence {sequence} for offset {offset}; its last one is {last}"
        self.refused.note(OutOfOrderSequence(message, header=header, topic_partition=TP, last_sequence=last))

    @property
    def lines(self) -> list[str]:
        return lines_of(self._caplog)


def numbered(sequence: int, *, producer_id: int = PRODUCER_ID, epoch: int = 0, count: int = 1) -> bytes:
    return build_batch(
        [Record(index, 1_700_000_000_000, None, b"x", ()) for index in range(count)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        each.getMessage()
        for each in caplog.records
        if each.name == refused_sequences.__name__ and each.levelno == logging.WARNING
    ]


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Told:
    return Told(caplog)


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    made = Replicas(tmp_path)
    yield made
    made.close()


# From an append to what is told


def test_a_leader_tells_of_a_batch_behind_a_gap(replicas: Replicas, caplog: pytest.LogCaptureFixture) -> None:
    replicas.lead(TP)
    manager = replicas.manager
    manager.append(TP, numbered(0, count=2), required_acks=1)
    with pytest.raises(KafkaError) as caught:
        manager.append(TP, numbered(4), required_acks=1)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert lines_of(caplog) == [
        "Out of order sequence number: orders-0: producer 2000 sends sequence 4 of epoch 0 for offset 2; "
        "its last one is 1"
    ]
    manager.append(TP, numbered(2), required_acks=1)
    assert len(lines_of(caplog)) == 1, "nothing is told of what is taken"


def test_each_way_to_be_out_of_order_is_told(replicas: Replicas, caplog: pytest.LogCaptureFixture) -> None:
    replicas.lead(TP)
    replicas.manager.append(TP, numbered(28), required_acks=1)  # any is the first of a producer not known
    for sequence, epoch in ((0, 0), (40, 0), (3, 1)):
        with pytest.raises(OutOfOrderSequence):
            replicas.manager.append(TP, numbered(sequence, epoch=epoch), required_acks=1)
    assert [line.partition("producer 2000 ")[2] for line in lines_of(caplog)] == [
        "sends sequence 0 of epoch 0 for offset 1; its last one is 28",
        "sends sequence 40 of epoch 0 for offset 1; its last one is 28",
        "begins its epoch 1 at sequence 3 for offset 1, not at 0 after epoch 0",
    ]


def test_other_refusals_and_retries_are_not_told(
    replicas: Replicas, caplog: pytest.LogCaptureFixture
) -> None:
    replicas.lead(TP)
    replicas.lead(OTHER, isr=[])
    append = replicas.manager.append
    append(TP, numbered(0, epoch=1), required_acks=1)
    append(TP, numbered(0, epoch=1), required_acks=1)  # comes again, and is answered as the first time
    with pytest.raises(KafkaError, match="INVALID_PRODUCER_EPOCH"):
        append(TP, numbered(1), required_acks=1)
    with pytest.raises(KafkaError, match="NOT_ENOUGH_REPLICAS"):
        append(OTHER, numbered(0), required_acks=-1)
    append(OTHER, numbered(7), required_acks=1, terms=AppendTerms(AppendOrigin.COORDINATOR))
    assert lines_of(caplog) == []


# How much is told


def test_an_event_has_what_the_line_has(told: Told) -> None:
    told.note(4)
    (event,) = told.events
    assert event == BatchRefused(
        topic="orders",
        partition=0,
        producer_id=PRODUCER_ID,
        producer_epoch=0,
        sequence=4,
        last_sequence=1,
        cause="sequence 4 for offset 14; its last one is 1",
    )
    assert (event.subject, event.kind) == ("orders-0", "refused_batch")
    assert event.text == "a batch is refused, out of order: sequence 4 for offset 14; its last one is 1"


def test_who_tries_the_same_again_is_told_of_once_a_minute(told: Told) -> None:
    for offset in range(14, 614):  # the log grows meanwhile by others
        told.note(0, last=28, offset=offset)
        told.clock.advance(100)
    assert len(told.lines) == len(told.events) == 1
    told.note(0, last=28)
    assert told.lines[1:] == [
        "Out of order sequence number: sequence 0 for offset 14; its last one is 28; "
        "599 times more since this was last said"
    ]
    assert [event.repeats for event in told.events if isinstance(event, BatchRefused)] == [0, 599]
    told.clock.advance(REPEAT_INTERVAL_MS)
    told.note(0, last=28)
    assert told.lines[2].endswith("its last one is 28"), "nothing came in between"


def test_another_batch_state_or_producer_is_told_at_once(told: Told) -> None:
    told.note(4)
    told.note(5)
    told.note(4, last=2)
    told.note(4, producer_id=3000)
    assert len(told.lines) == len(told.events) == 4


def test_a_flood_of_different_ones_is_bounded_and_counted(told: Told) -> None:
    for sequence in range(10, 10 + LINES_AT_ONCE_MAX + 50):
        told.note(sequence)
    assert len(told.lines) == LINES_AT_ONCE_MAX
    told.clock.advance(LINE_INTERVAL_MS)
    told.note(9000)
    told.note(9001)
    assert len(told.lines) == LINES_AT_ONCE_MAX + 1
    assert told.lines[-1].endswith("; 50 lines like this one were left out before it")
    told.clock.advance(LINE_INTERVAL_MS)
    told.note(9002)
    assert told.lines[-1].endswith("; 1 lines like this one were left out before it"), "since the last line"
    told.clock.advance(3600_000)
    for sequence in range(10_000, 10_000 + 2 * LINES_AT_ONCE_MAX):
        told.note(sequence)
    assert len(told.lines) == 2 * LINES_AT_ONCE_MAX + 2, "a quiet hour saves up no more"


def test_what_is_remembered_is_bounded(told: Told) -> None:
    for sequence in range(10, 10 + 3 * REMEMBERED_MAX):
        told.note(sequence)
    assert len(told.refused._told) == REMEMBERED_MAX
    told.note(10 + 3 * REMEMBERED_MAX - 1)
    assert len(told.events) == 3 * REMEMBERED_MAX, "the last one is remembered"
    told.note(10)
    assert len(told.events) == 3 * REMEMBERED_MAX + 1, "the first is forgotten, and told again"
