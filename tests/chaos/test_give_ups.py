"""When a record that Java's producer has given up is explained, and that a lost one is still found.

The story is one that happened. A new leader of records-2, broker 1, refused v0 and v1 (sequences 0 and 1) for
want of replicas, then took v2, and refused v0 from then on. After two minutes v0 was given up, and v1 and all
that was on its way came in the next epoch.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from minikafka.protocol.records.records import Record as LogRecord
from minikafka.protocol.records.records import build_batch
from minikafka.testing.history import AnomalyKind, Kind, Operation, Outcome, Record, write_history
from tests.chaos.give_ups import GivenUp, given_up
from tests.chaos.run import ChaosReport, judge

TOPIC, NUMBER = "records", 2
JAVA, OTHER = "producer-7-java-idempotent", "producer-3-aiokafka-idempotent"
PRODUCER_ID = 2000
BEGAN_MS, EXPIRED_MS = 1_000, 121_000
EXPIRED = (
    "org.apache.kafka.common.errors.TimeoutException: Expiring 1 record(s) for records-2:120000 ms has "
    "passed since batch creation"
)
ANSWERED_TOO_LATE = (
    "org.apache.kafka.common.errors.OutOfOrderSequenceException: The broker received an out of order "
    "sequence number."
)
REFUSED = (
    "Out of order sequence number: records-2: producer 2000 sends sequence 0 of epoch 0 for offset 1; "
    "its last one is 2; 59 times more since this was last said\n"
)
REFUSED_BY_KAFKA = (
    "org.apache.kafka.common.errors.OutOfOrderSequenceException: Out of order sequence number for producer "
    "2000 at offset 1 in partition records-2: 0 (incoming seq. number), 2 (current end sequence number)\n"
)


def sent(
    value: str,
    offset: int | None,
    *,
    process: str = JAVA,
    at_ms: float = BEGAN_MS,
    until_ms: float | None = None,
) -> Operation:
    """``offset`` None: it was given up."""
    ended_ms = (EXPIRED_MS if offset is None else at_ms + 5) if until_ms is None else until_ms
    return Operation(
        process=process,
        kind=Kind.SEND,
        invoked_ms=at_ms,
        completed_ms=ended_ms,
        outcome=Outcome.INFO if offset is None else Outcome.OK,
        records=(Record(TOPIC, NUMBER, offset, value),),
        error=EXPIRED if offset is None else "",
    )


class Run:
    """The files that a run has left behind: the log has v2 (sequence 2), then w0 of another producer, then v1
    in epoch 1."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        replica = directory / "broker-1" / f"{TOPIC}-{NUMBER}"
        replica.mkdir(parents=True)
        written = (
            ("v2", PRODUCER_ID, 0, 2),
            ("w0", 3000, 0, 0),
            ("v1", PRODUCER_ID, 1, 0),
        )
        batches = b"".join(
            build_batch(
                [LogRecord(offset, 0, None, value.encode(), ())],
                base_offset=offset,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
            )
            for offset, (value, producer_id, epoch, sequence) in enumerate(written)
        )
        (replica / f"{0:020}.log").write_bytes(batches)
        self.read = [Record(TOPIC, NUMBER, offset, value) for offset, (value, *_) in enumerate(written)]
        self.sends = [
            sent("v0", None),
            sent("v1", 2, process=f"{JAVA}.1", at_ms=BEGAN_MS + 50, until_ms=EXPIRED_MS + 100),
            sent("v2", 0, at_ms=BEGAN_MS + 100),
            sent("w0", 1, process=OTHER, at_ms=60_000),
        ]
        self.broker_says(REFUSED)

    def broker_says(self, text: str) -> None:
        (self.directory / "broker-1.log").write_text(f"something else\n{text}")

    @property
    def operations(self) -> list[Operation]:
        read = Operation(
            process="final",
            kind=Kind.POLL,
            invoked_ms=200_000,
            completed_ms=200_001,
            outcome=Outcome.OK,
            records=tuple(self.read),
        )
        return [*self.sends, read]

    def found(self, *, of_kafka: tuple[int, ...] = ()) -> GivenUp:
        (found,) = given_up(self.operations, self.directory, of_kafka=of_kafka)
        return found

    def judged(self) -> ChaosReport:
        write_history(self.directory / "all.jsonl", self.operations)
        return judge(self.directory, seed=1, store="sqlite", seconds=1, faults=Counter(), of_kafka=())


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_a_gap_that_nothing_fills_explains_it(run: Run) -> None:
    found = run.found()

    assert found.is_explained and found.value == "v0"
    assert str(found) == (
        "known: behind a gap, or before it: v0 was given up after 120 s in records-2: broker 1 refused "
        "sequence 0 of producer 2000 after 2 at 1 of records-2"
    )


def test_the_last_try_may_be_answered_after_the_time_out(run: Run) -> None:
    run.sends[0].error = ANSWERED_TOO_LATE

    assert run.found().is_explained
    run.broker_says("")
    assert not run.found().is_explained


def test_apache_kafka_says_it_in_other_words(run: Run) -> None:
    run.broker_says(REFUSED_BY_KAFKA)

    assert run.found(of_kafka=(1,)).is_explained
    assert not run.found().is_explained


@pytest.mark.parametrize(
    "refused",
    [
        "",
        REFUSED.replace("records-2", "records-1"),
        REFUSED.replace("producer 2000", "producer 3000"),
        REFUSED.replace("last one is 2", "last one is 3"),  # the leader knew of something that is not there
        REFUSED.replace("sequence 0", "sequence 3"),  # what comes next was refused: a defect of the broker
        REFUSED.replace("epoch 0", "epoch 1"),
        REFUSED.replace("last one is 2", "last one is 0")
        .replace("2000 sends sequence 0", "3000 sends sequence 9")
        .replace("offset 1", "offset 2"),  # right, and of another client
    ],
)
def test_no_refusal_explains_it(run: Run, refused: str) -> None:
    run.broker_says(refused)

    assert not run.found().is_explained
    assert str(run.found()) == (
        "given up: v0 was given up after 120 s in records-2, where others were answered, and no broker has "
        "refused it"
    )


def test_a_refusal_in_another_partition_explains_nothing(run: Run) -> None:
    """Sequence numbers are those of a partition."""
    shutil.copytree(run.directory / "broker-1" / "records-2", run.directory / "broker-1" / "records-1")
    run.broker_says(REFUSED.replace("records-2", "records-1"))

    assert not run.found().is_explained


def test_a_partition_that_answered_to_nothing_in_between_explains_it(run: Run) -> None:
    run.broker_says("")
    run.sends[3] = sent("w0", 1, process=OTHER, at_ms=EXPIRED_MS - 5_000)

    assert run.found().is_explained
    assert str(run.found()).startswith("known: no leader answered: v0 was given up after 120 s")


@pytest.mark.parametrize("process", [OTHER, "producer-0-java-plain", "producer-8-java-transactional"])
def test_others_give_up_when_they_are_told_to(run: Run, process: str) -> None:
    run.sends[0] = sent("v0", None, process=process)

    assert given_up(run.operations, run.directory, of_kafka=()) == []


def test_another_error_is_no_giving_up(run: Run) -> None:
    run.sends[0].error = "org.apache.kafka.common.KafkaException: The producer closed forcefully"

    assert given_up(run.operations, run.directory, of_kafka=()) == []


def test_a_run_with_an_explained_one_is_valid_and_says_so(run: Run) -> None:
    report = run.judged()

    assert report.is_valid, str(report)
    assert report.unknown == {"idempotent": 1}
    assert "unknown: 1 idempotent;" in str(report) and "no anomaly; known give-ups: 1" in str(report)


def test_a_run_with_an_unexplained_one_is_not(run: Run) -> None:
    run.broker_says("")
    report = run.judged()

    assert not report.is_valid
    assert "given up without a reason: 1" in str(report) and "v0 was given up after 120 s" in str(report)


def test_a_given_up_record_may_be_there(run: Run) -> None:
    run.read.append(Record(TOPIC, NUMBER, 3, "v0"))

    assert run.judged().is_valid


def test_an_acknowledged_record_that_is_not_there_is_lost_all_the_same(run: Run) -> None:
    del run.read[0]  # v2, acknowledged before anything was given up
    report = run.judged()

    assert not report.is_valid
    assert report.judged.counts == {AnomalyKind.LOST_WRITE: 1}


def test_one_that_was_acknowledged_after_the_giving_up_is_lost_as_well(run: Run) -> None:
    run.read.pop()  # v1
    report = run.judged()

    assert not report.is_valid
    assert report.judged.counts == {AnomalyKind.UNSEEN: 1}


def test_a_record_that_comes_twice_after_the_giving_up_is_no_known_duplicate(run: Run) -> None:
    run.read.append(Record(TOPIC, NUMBER, 3, "v1"))
    report = run.judged()

    assert not report.is_valid
    assert report.judged.counts == {AnomalyKind.DUPLICATE: 1} and report.known == []
