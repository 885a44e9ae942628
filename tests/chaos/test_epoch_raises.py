"""Which duplicates are known to be librdkafka's doing, and that no others are.

The story is one that happened. Producer 2000 wrote the values v0 and v1 (sequences 0 and 1) into records-2,
and the answer for v1 never came, because its leader went. The next leader, broker 1, refused v1 for want of
replicas when it came again, and v4 behind it with OUT_OF_ORDER_SEQUENCE_NUMBER. So v1 came once more, in
epoch 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

from minikafka.clock import ManualClock
from minikafka.files import OsFiles
from minikafka.flight_recorder import BrokerStarted, EpochBegan, Event, EventFile, EventRing, not_recorded
from minikafka.log.producers.append import (
    AppendOrigin,
    BatchMetadata,
    OutOfOrderSequence,
    ProducerStateEntry,
    check_data_batch,
)
from minikafka.protocol.records.batch import read_header
from minikafka.protocol.records.records import Record as LogRecord
from minikafka.protocol.records.records import build_batch
from minikafka.server.replica.refused_sequences import RefusedSequences
from minikafka.testing.history import Kind, Operation, Outcome, Partition, Record, write_history
from minikafka.types import TopicPartition
from tests.chaos.epoch_raises import known_duplicates
from tests.chaos.refusals import Refusal, refusals_of
from tests.chaos.run import judge

TOPIC, NUMBER = "records", 2
LIBRDKAFKA = "producer-2-confluent-idempotent"
KAFKA = 1
REFUSAL = (
    "org.apache.kafka.common.errors.OutOfOrderSequenceException: Out of order sequence number for producer "
    "{} at offset {} in partition {}: {} (incoming seq. number), {} (current end sequence number)\n"
)
REFUSAL_OF_OURS = (
    "Out of order sequence number: {2}: producer {0} sends sequence {3} of epoch {5} for offset {1}; "
    "its last one is {4}\n"
)
"""With the same numbers, and the epoch."""


class Written(NamedTuple):
    """A batch, with an offset for each of its values."""

    offset: int
    values: tuple[str, ...]
    producer_epoch: int
    sequence: int
    producer_id: int = 2000


FIRST = (Written(10, ("v0",), 0, 0), Written(11, ("v1",), 0, 1))
OTHERS = Written(12, ("w0", "w1"), 0, 0, producer_id=3000)
AGAIN = Written(14, ("v1", "v2", "v3", "v4"), 1, 0)
LOG = (*FIRST, OTHERS, AGAIN)
REFUSED = REFUSAL.format(2000, 14, "records-2", 4, 1)
REFUSED_BY_OURS = REFUSAL_OF_OURS.format(2000, 14, "records-2", 4, 1, 0)


class Run:
    """The files that a run has left behind."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.values: dict[tuple[int, int], str] = {}
        self.write_log(LOG)
        self.broker_says(KAFKA, REFUSED)

    def write_log(self, log: Iterable[Written], *, number: int = NUMBER, broker: int = KAFKA) -> None:
        self.values = {at: value for at, value in self.values.items() if at[0] != number}
        replica = self.directory / f"broker-{broker}" / f"{TOPIC}-{number}"
        replica.mkdir(parents=True, exist_ok=True)
        batches = b""
        for each in log:
            at = dict(enumerate(each.values, start=each.offset))
            batches += build_batch(
                [LogRecord(offset, 0, None, value.encode(), ()) for offset, value in at.items()],
                base_offset=each.offset,
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                base_sequence=each.sequence,
            )
            self.values |= {(number, offset): value for offset, value in at.items()}
        (replica / f"{0:020}.log").write_bytes(batches)

    def broker_says(self, broker: int, text: str) -> None:
        (self.directory / f"broker-{broker}.log").write_text(f"2026-11-27 ERROR something else\n{text}")

    def operations(self, *, process: str = LIBRDKAFKA, told: int | None = 14) -> list[Operation]:
        """What clients told: each value was sent once and acknowledged, v1 at the offset ``told``."""
        last = {(number, value): offset for (number, offset), value in self.values.items()}
        sends = [
            Operation(
                process=process,
                kind=Kind.SEND,
                invoked_ms=index,
                completed_ms=1_000 + index,
                outcome=Outcome.OK,
                records=(Record(TOPIC, number, told if value == "v1" else offset, value),),
            )
            for index, ((number, value), offset) in enumerate(last.items())
        ]
        records = tuple(
            Record(TOPIC, number, offset, value) for (number, offset), value in self.values.items()
        )
        read = Operation(
            process="final",
            kind=Kind.POLL,
            invoked_ms=2_000,
            completed_ms=2_001,
            outcome=Outcome.OK,
            records=records,
        )
        return [*sends, read]

    def known(self, *, of_kafka: Iterable[int] = (KAFKA,), **told: object) -> list[tuple[str, int, int]]:
        found = known_duplicates(self.operations(**told), self.directory, of_kafka=list(of_kafka))  # type: ignore[arg-type]
        return [(each.value, each.first_offset, each.second_offset) for each in found]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_a_client_that_raised_its_epoch_after_a_refusal_is_known(run: Run) -> None:
    assert run.known() == [("v1", 11, 14)]


def test_a_refusal_for_one_partition_explains_a_duplicate_in_another(run: Run) -> None:
    """The epoch is the producer's, and all that it has no answer for goes into the next one."""
    run.write_log([Written(0, ("x0", "x1"), 0, 0), Written(2, ("x2",), 1, 0)], number=0)
    run.broker_says(KAFKA, REFUSAL.format(2000, 2, "records-0", 5, 1))

    assert run.known() == [("v1", 11, 14)]


def test_a_producer_that_was_written_down_under_another_life_is_the_same(run: Run) -> None:
    assert run.known(process=f"{LIBRDKAFKA}.3") == [("v1", 11, 14)]


def test_the_longest_replica_is_looked_at(run: Run) -> None:
    run.write_log(LOG, broker=3)
    run.write_log(FIRST, broker=KAFKA)
    run.write_log(LOG, broker=2)

    assert run.known() == [("v1", 11, 14)]


@pytest.mark.parametrize(
    "process",
    ["producer-7-java-idempotent", "producer-3-aiokafka-idempotent", "producer-5-confluent-transactional"],
)
def test_another_client_has_made_an_unknown_one(run: Run, process: str) -> None:
    assert run.known(process=process) == []


@pytest.mark.parametrize("told", [11, None])
def test_a_client_that_was_or_may_have_been_told_of_the_first_copy(run: Run, told: int | None) -> None:
    assert run.known(told=told) == []


def test_the_leader_that_refused_was_not_apache_kafkas(run: Run) -> None:
    run.broker_says(2, "")

    assert run.known(of_kafka=[2]) == []
    assert run.known(of_kafka=[]) == []


def test_a_broker_of_this_project_that_refused_explains_as_much(run: Run) -> None:
    run.broker_says(KAFKA, "")
    run.broker_says(3, REFUSED_BY_OURS)

    assert run.known() == run.known(of_kafka=[]) == [("v1", 11, 14)]
    assert run.known(of_kafka=[3]) == [], "no broker of Apache Kafka says it so"


def test_each_kind_of_broker_is_understood_in_its_own_words(run: Run) -> None:
    run.broker_says(KAFKA, REFUSED_BY_OURS)

    assert run.known() == []
    assert run.known(of_kafka=[]) == [("v1", 11, 14)]


@pytest.mark.parametrize(
    "refused",
    [
        (2001, 14, "records-2", 4, 1, 0),  # not this producer
        (2000, 14, "records-1", 4, 1, 0),  # not this partition, which has nothing of the producer
        (2000, 14, "records-2", 4, 0, 0),  # the leader did not know of v1, which was in its log
        (2000, 14, "records-2", 1, 1, 0),  # no gap
        (2000, 14, "records-2", 2, 1, 0),  # none either: what came next was refused, a defect of the broker
        (2000, 11, "records-2", 4, 0, 0),  # before the first copy was written
        (2000, 18, "records-2", 9, 3, 1),  # after the second, in its epoch
        (2000, 14, "records-2", 4, 1, 1),  # the leader took the batch in the log for one of another epoch
    ],
)
def test_no_refusal_of_this_projects_brokers_explains_it(run: Run, refused: tuple[object, ...]) -> None:
    run.broker_says(KAFKA, REFUSAL_OF_OURS.format(*refused))

    assert run.known(of_kafka=[]) == []


@pytest.mark.parametrize(
    "again",
    [
        Written(14, ("v1",), 0, 1),  # the leader took twice what it should have known
        Written(14, ("v1",), 1, 0, producer_id=2001),  # it was sent by another producer
    ],
)
def test_the_second_copy_is_of_no_higher_epoch_of_the_same_producer(run: Run, again: Written) -> None:
    run.write_log([*FIRST, OTHERS, again])

    assert run.known() == []


@pytest.mark.parametrize(
    "refused",
    [
        "",  # nobody refused anything
        REFUSAL.format(2001, 14, "records-2", 4, 1),  # not this producer
        REFUSAL.format(3000, 14, "records-2", 4, 1),  # nor that, of which the log has batches
        REFUSAL.format(2000, 14, "records-2", 4, 0),  # the leader did not know of v1, which was in its log
        REFUSAL.format(2000, 14, "records-2", 1, 1),  # no gap: what came next was refused
        REFUSAL.format(2000, 11, "records-2", 4, 0),  # before the first copy was written
        REFUSAL.format(2000, 18, "records-2", 9, 3),  # after the second, in its epoch
    ],
)
def test_no_refusal_explains_it(run: Run, refused: str) -> None:
    run.broker_says(KAFKA, refused)

    assert run.known() == []


def test_a_refusal_in_a_later_epoch_explains_nothing(run: Run) -> None:
    run.write_log([Written(0, ("x0", "x1"), 1, 0)], number=0)
    run.broker_says(KAFKA, REFUSAL.format(2000, 2, "records-0", 5, 1))

    assert run.known() == []


def test_a_third_copy_of_the_same_epoch_is_not_known(run: Run) -> None:
    run.write_log([*LOG, Written(18, ("v1",), 1, 4)])

    assert run.known(told=18) == [("v1", 11, 14)]


def test_without_a_duplicate_nothing_is_known(run: Run) -> None:
    run.write_log([*FIRST, OTHERS])

    assert run.known(told=11) == []


def test_what_a_broker_of_kafka_says_is_read() -> None:
    seen = REFUSAL.format(2000, 2446, "my-records-2", 480, 476)
    assert list(refusals_of(1, ["org.apache.kafka.common.errors.NotEnoughReplicasException: …", seen])) == [
        Refusal(1, Partition("my-records", 2), 2000, 2446, 480, 476)
    ]


def test_what_a_broker_of_this_project_says_is_read() -> None:
    seen = "WARN " + REFUSAL_OF_OURS.format(2000, 2446, "my-records-2", 480, 476, 3)
    more = seen.rstrip() + "; 12 times more since this was last said; 3 lines like this one were left out\n"
    unfinished = [seen[:-5], seen.replace("476", "4762026-11-27 INFO starts")]  # the broker was killed
    expected = Refusal(1, Partition("my-records", 2), 2000, 2446, 480, 476, 3)
    assert list(refusals_of(1, [seen, more, *unfinished], is_kafka=False)) == [expected, expected]


def test_what_this_projects_brokers_say_is_what_is_read(caplog: pytest.LogCaptureFixture) -> None:
    """From the check of a batch to the words that a run is judged by."""
    entry = ProducerStateEntry(2000, 3, batches=(BatchMetadata(476, 2445, 0, 0),))
    header = read_header(
        build_batch([LogRecord(0, 0, None, b"x", ())], producer_id=2000, producer_epoch=3, base_sequence=480)
    )
    with pytest.raises(OutOfOrderSequence) as refused:
        check_data_batch(entry, header, 2446, AppendOrigin.CLIENT, TopicPartition("my-records", 2))
    RefusedSequences(ManualClock(), not_recorded).note(refused.value)

    assert list(refusals_of(1, [caplog.messages[-1]], is_kafka=False)) == [
        Refusal(1, Partition("my-records", 2), 2000, 2446, 480, 476, 3)
    ]


def judged_valid(run: Run, *, of_kafka: Iterable[int] = (KAFKA,), told: int = 14) -> tuple[bool, str]:
    write_history(run.directory / "all.jsonl", run.operations(told=told))
    report = judge(
        run.directory,
        seed=1,
        store="zookeeper",
        seconds=1,
        faults=Counter(),
        of_kafka=list(of_kafka),
    )
    return report.is_valid, str(report)


def test_a_run_with_known_duplicates_is_valid_and_says_so(run: Run) -> None:
    is_valid, text = judged_valid(run)

    assert is_valid
    assert "no anomaly; known duplicates: 1" in text
    assert (
        "known: the client raised its epoch: v1 is at 11 (epoch 0) and at 14 (epoch 1) of records-2" in text
    )


def test_a_run_with_one_more_duplicate_is_not(run: Run) -> None:
    run.write_log([*LOG, Written(18, ("v1",), 1, 4)])

    is_valid, text = judged_valid(run, told=18)

    assert not is_valid
    assert "duplicate: v1 is at 11 and at 14" in text and "duplicate: v1 is at 11 and at 18" in text
    assert "known: the client raised its epoch" in text


def test_without_a_broker_of_kafka_the_same_run_is_not_valid(run: Run) -> None:
    assert not judged_valid(run, of_kafka=())[0]


def test_with_a_refusal_by_this_projects_broker_it_is_valid_and_says_whose(run: Run) -> None:
    run.broker_says(KAFKA, REFUSED_BY_OURS)

    is_valid, text = judged_valid(run, of_kafka=())

    assert is_valid
    assert "of records-2: broker 1 refused sequence 4 of producer 2000 after 1 at 14 of records-2" in text


JAVA = "producer-7-java-idempotent"
REFUSED_AGAIN = REFUSAL_OF_OURS.format(2000, 14, "records-2", 0, 1, 0)
"""v0, when it was in the log, and v1 behind it."""


class Restarted:
    """What a broker has recorded: it follows, then it starts again, and leads."""

    def __init__(self, run: Run, *, broker: int = KAFKA) -> None:
        self._path = run.directory / f"broker-{broker}"
        run.write_log([*FIRST, OTHERS, Written(14, ("v0",), 1, 0), Written(15, ("v1",), 1, 1)])
        run.broker_says(KAFKA, "")
        run.broker_says(broker, REFUSED_AGAIN)

    def records(self, *events: Event) -> None:
        file = EventFile(str(self._path), files=OsFiles(), broker=KAFKA, bytes_max=100_000)
        ring = EventRing(ManualClock(), bytes_max=100_000)
        for each in events:
            ring.add(each)
        file.append(ring.after(0))
        file.close()


def started(*, was_clean: bool | None) -> Event:
    return BrokerStarted(version="1", was_clean=was_clean)


def epoch(log_end_offset: int, *, number: int = NUMBER) -> Event:
    return EpochBegan(
        topic=TOPIC,
        partition=number,
        leader=1,
        leader_epoch=1,
        is_leader=True,
        log_end_offset=log_end_offset,
        high_watermark=0,
    )


@pytest.mark.parametrize("process", [JAVA, LIBRDKAFKA])
@pytest.mark.parametrize("was_clean", [True, False])
def test_a_batch_that_a_snapshot_does_not_have_is_not_known_to_the_leader(
    run: Run, process: str, was_clean: bool
) -> None:
    """Both of a producer's batches were in flight, and in the log of a broker that then started again."""
    Restarted(run).records(started(was_clean=None), epoch(0), started(was_clean=was_clean), epoch(14))

    both = [("v0", 10, 14), ("v1", 11, 15)]
    assert run.known(of_kafka=[], process=process, told=15) == both, "all that was in flight is sent again"


@pytest.mark.parametrize(
    "events",
    [
        (),
        (started(was_clean=None), epoch(14)),  # it has not been down since
        (started(was_clean=None), started(was_clean=True), epoch(10)),  # v0 came after that
        (started(was_clean=True), epoch(14, number=1)),  # another partition
    ],
)
def test_a_leader_that_was_up_knows_what_is_in_its_log(run: Run, events: tuple[Event, ...]) -> None:
    Restarted(run).records(*events)

    assert run.known(of_kafka=[], process=JAVA, told=15) == []


def test_that_another_broker_was_down_explains_nothing(run: Run) -> None:
    restarted = Restarted(run)
    restarted.records(started(was_clean=True), epoch(14))
    run.broker_says(KAFKA, "")
    run.broker_says(3, REFUSED_AGAIN)

    assert run.known(of_kafka=[], process=JAVA, told=15) == []


def test_what_was_refused_was_not_in_the_log(run: Run) -> None:
    Restarted(run).records(started(was_clean=True), epoch(14))
    run.write_log([FIRST[1], OTHERS, Written(14, ("v0",), 1, 0), Written(15, ("v1",), 1, 1)])

    assert run.known(of_kafka=[], process=JAVA, told=15) == []


def test_javas_producer_does_not_raise_its_epoch_behind_a_gap(run: Run) -> None:
    Restarted(run).records(started(was_clean=True), epoch(14))
    run.broker_says(KAFKA, REFUSED_BY_OURS)

    assert run.known(of_kafka=[], process=JAVA, told=15) == []
    assert run.known(of_kafka=[], process=LIBRDKAFKA, told=15) == [("v0", 10, 14), ("v1", 11, 15)]
