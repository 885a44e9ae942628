"""What a recorder writes down of clients that succeed, fail and try again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.records.records import Record as StoredRecord
from minikafka.protocol.records.records import build_batch
from minikafka.testing.history import AnomalyKind, Kind, Outcome, Record, check
from minikafka.testing.history_recorder import Recorder
from minikafka.testing.simulation.client import Fetched, visible


class Clock:
    """Goes on by one millisecond with each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


class Scripted:
    """A producer whose calls end as they are told."""

    def __init__(self, *results: int | Exception) -> None:
        self._results = list(results)
        self.sent: list[Any] = []

    def _next(self, sent: Any) -> int:
        self.sent.append(sent)
        result = self._results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    async def send(self, topic: str, partition: int, values: Sequence[bytes]) -> int:
        return self._next((topic, partition, values))


class ScriptedTransactions(Scripted):
    async def send(self, partition: int, value: bytes) -> int:  # type: ignore[override] # another producer's
        return self._next((partition, value))

    async def end(self, *, commit: bool) -> int:
        return self._next(commit)

    def name(self) -> str:
        return "theirs"


@pytest.fixture
def recorder() -> Recorder:
    return Recorder(Clock())


async def test_a_send_has_the_offsets_that_were_told(recorder: Recorder) -> None:
    producer = recorder.producer("p", Scripted(7))
    assert await producer.send("t", 0, [b"a", b"\xff"]) == 7
    (sent,) = recorder.history()
    assert (sent.process, sent.kind, sent.outcome) == ("p", Kind.SEND, Outcome.OK)
    assert sent.records == (Record("t", 0, 7, "a"), Record("t", 0, 8, "\\xff"))
    assert (sent.invoked_ms, sent.completed_ms) == (1, 2)


async def test_a_send_that_is_tried_again_is_one_operation(recorder: Recorder) -> None:
    gone, passing = BrokerUnavailable("gone"), KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    producer = recorder.producer("p", Scripted(gone, passing, -1))
    for error in (BrokerUnavailable, KafkaError):
        with pytest.raises(error):
            await producer.send("t", 0, [b"a"])
        (uncertain,) = recorder.history()
        assert uncertain.outcome is Outcome.INFO and uncertain.error
    await producer.send("t", 0, [b"a"])
    (sent,) = recorder.history()
    assert (sent.outcome, sent.error, sent.invoked_ms, sent.completed_ms) == (Outcome.OK, "", 1, 4)
    assert sent.records == (Record("t", 0, None, "a"),)


async def test_only_a_refusal_at_the_first_try_is_sure(recorder: Recorder) -> None:
    refusal = KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
    producer = recorder.producer("p", Scripted(refusal, BrokerUnavailable("gone"), refusal))
    for value in (b"a", b"b", b"b"):
        with pytest.raises((KafkaError, BrokerUnavailable)):
            await producer.send("t", 0, [value])
    assert [each.outcome for each in recorder.history()] == [Outcome.FAIL, Outcome.INFO]


async def test_without_acks_of_all_nothing_is_sure(recorder: Recorder) -> None:
    await recorder.producer("p", Scripted(3), is_durable=False).send("t", 0, [b"a"])
    (sent,) = recorder.history()
    assert sent.outcome is Outcome.INFO and sent.records == (Record("t", 0, 3, "a"),)


async def test_a_cancelled_call_is_uncertain(recorder: Recorder) -> None:
    class Hanging(Scripted):
        async def send(self, *wanted: Any) -> int:
            await asyncio.Event().wait()
            return 0

    task = asyncio.create_task(recorder.producer("p", Hanging()).send("t", 0, [b"a"]))
    await asyncio.sleep(0)
    assert recorder.history()[0].completed_ms is None
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert recorder.history()[0].error == "CancelledError"


async def test_each_transaction_has_a_name_of_its_own(recorder: Recorder) -> None:
    fenced = KafkaError(ErrorCode.PRODUCER_FENCED)
    producer = recorder.transactional("p", ScriptedTransactions(0, 0, fenced, 0, fenced), topic="t")
    await producer.send(1, b"a")
    await producer.end(commit=True)
    with pytest.raises(KafkaError):
        await producer.send(1, b"b")
    producer.give_up()
    await producer.send(1, b"c")
    with pytest.raises(KafkaError):
        await producer.end(commit=True)
    history = recorder.history()
    assert [each.outcome for each in history] == [
        Outcome.OK, Outcome.OK, Outcome.INFO, Outcome.OK, Outcome.INFO,
    ]  # fmt: skip
    first, end, failed, third, uncertain = (each.transaction for each in history)
    assert first == end and third == uncertain and len({first, failed, third}) == 3
    assert producer.name() == "theirs"


class Stored:
    """A client of one partition that has these batches."""

    def __init__(self, *batches: bytes, aborted: Sequence[tuple[int, int]] = ()) -> None:
        self._batches = batches
        self._aborted = [SimpleNamespace(producer_id=each, first_offset=offset) for each, offset in aborted]

    async def fetch(self, topic: str, partition: int, offset: int, **options: Any) -> Fetched:
        assert (topic, partition) == ("t", 0)
        answer = SimpleNamespace(records=b"".join(self._batches[offset:]), aborted_transactions=self._aborted)
        records, next_offset = visible(answer, offset)
        return Fetched(len(self._batches), 0, records, next_offset)


def batch(offset: int, value: bytes, **options: Any) -> bytes:
    return build_batch([StoredRecord(offset, 0, None, value, ())], base_offset=offset, **options)


def transactional(offset: int, producer_id: int) -> bytes:
    return batch(
        offset,
        b"%d" % offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=offset,
        transactional=True,
    )


async def test_reading_to_the_end_is_recorded_and_can_be_judged(recorder: Recorder) -> None:
    await recorder.producer("p", Scripted(0)).send("t", 0, [b"a"])
    await recorder.producer("p", Scripted(1)).send("t", 0, [b"b"])
    await recorder.read_to_end("final", Stored(batch(0, b"a"), batch(1, b"b")), [("t", 0)])
    polls = [each.records for each in recorder.history() if each.kind is Kind.POLL]
    assert polls == [(Record("t", 0, 0, "a"), Record("t", 0, 1, "b"))], "and not the poll at the end"
    assert check(recorder.history()).is_valid


async def test_what_was_acknowledged_is_counted(recorder: Recorder) -> None:
    await recorder.producer("p", Scripted(0)).send("t", 0, [b"a"])
    await recorder.producer("q", Scripted(0), is_durable=False).send("t", 0, [b"b"])
    producer = recorder.transactional("r", ScriptedTransactions(0, 0, 0), topic="t")
    await producer.send(0, b"c")
    await producer.end(commit=True)
    await producer.end(commit=False)
    assert recorder.acknowledged == 2, "a record for sure, and a transaction"


async def test_a_reader_goes_on_where_the_log_begins(recorder: Recorder) -> None:
    class Trimmed(Stored):
        async def fetch(self, topic: str, partition: int, offset: int, **options: Any) -> Fetched:
            if offset == 0:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
            return await super().fetch(topic, partition, offset, **options)

        def forget_leader(self, topic: str, partition: int) -> None:
            pass

        async def log_start(self, topic: str, partition: int) -> int:
            return 1

    await recorder.producer("p", Scripted(0)).send("t", 0, [b"a"])
    await recorder.producer("p", Scripted(1)).send("t", 0, [b"b"])
    await recorder.read_to_end("final", Trimmed(batch(0, b"a"), batch(1, b"b")), [("t", 0)])
    assert recorder.history()[-1].records == (Record("t", 0, 1, "b"),)
    assert [*check(recorder.history()).counts] == [AnomalyKind.LOST_WRITE], "nothing says that it was deleted"
    recorder.deleted_below("administrator", "t", 0, 1)
    assert check(recorder.history()).is_valid


def test_a_read_committed_consumer_leaves_out_what_was_aborted() -> None:
    answer = SimpleNamespace(
        records=transactional(0, 5) + transactional(1, 6) + batch(2, b"2") + transactional(3, 5),
        aborted_transactions=[SimpleNamespace(producer_id=5, first_offset=3)],
    )
    found, next_offset = visible(answer, 1)
    assert [(each.offset, each.value) for each in found] == [(1, b"1"), (2, b"2")]
    assert next_offset == 4
