"""What clients of a chaos run do when a library fails or can go on no more: they say so, and go on or begin
again. What they have sent and know nothing of is unknown, in their histories: it may be in a log."""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiokafka
import kafka
import msgspec
import pytest
from aiokafka.errors import LeaderNotAvailableError

from minikafka.testing.history import Kind, Operation, Outcome, Record, read_history
from tests.chaos import nemesis, run
from tests.chaos.consumers import Reading, by_kafka_python
from tests.chaos.producers import Producing, _end, by_aiokafka
from tests.chaos.producers import by_kafka_python as produce_by_kafka_python
from tests.integration.support import confluent
from tests.integration.support.process import BrokerProcess

TOPIC = "records"


STUCK = """
import signal, sys, threading
from tests.chaos.recording import tell_stacks_on_request

def commits_for_ever():
    threading.Event().wait()

tell_stacks_on_request()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", file=sys.stderr, flush=True)
commits_for_ever()
"""


def test_a_client_that_does_not_end_tells_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "CLIENTS_END_S", 0.2)
    client = run.Client(tmp_path, "member-1", [sys.executable, "-c", STUCK])
    try:
        errors = tmp_path / "member-1.err"
        confluent.wait_until(lambda: "ready" in errors.read_text(), "the client is there")
        client.ask_to_end()
        told = client.wait()
        assert told.startswith("member-1 does not end:")
        assert "in commits_for_ever" in told
    finally:
        client.kill()


def test_a_run_with_a_client_that_does_not_end_is_judged_and_fails(tmp_path: Path) -> None:
    records = (Record("plain", 0, 0, "one"),)
    for process, kind in (("producer-0-java-plain", Kind.SEND), ("final", Kind.POLL)):
        operation = Operation(
            process=process, kind=kind, invoked_ms=1, completed_ms=2, outcome=Outcome.OK, records=records
        )
        (tmp_path / f"{process}.jsonl").write_bytes(msgspec.json.encode(operation) + b"\n")

    def judged(*stuck: str) -> run.ChaosReport:
        return run.judge(
            tmp_path, seed=1, store="sqlite", seconds=1, faults=Counter(), of_kafka=(), stuck=stuck
        )

    assert judged().is_valid
    report = judged("member-1 does not end: in a commit")
    assert not report.is_valid
    assert report.acknowledged == {"plain": 1}
    assert str(report).endswith("no anomaly\nmember-1 does not end: in a commit")
    written = msgspec.json.decode((tmp_path / "report.json").read_bytes(), type=run.ChaosReport)
    assert written.stuck == report.stuck


@contextlib.contextmanager
def static_member(bootstrap: str, directory: Path) -> Iterator[tuple[Path, Path]]:
    """One with the instance id ``member-1``: its history, and its errors."""
    directory.mkdir()
    history, errors = directory / "member-1.jsonl", directory / "member-1.err"
    command = [sys.executable, "-m", "tests.chaos.consumers", "confluent-static", bootstrap, TOPIC, "static"]
    with errors.open("wb") as file, subprocess.Popen([*command, str(history)], stderr=file) as process:
        try:
            yield history, errors
            process.terminate()
            assert process.wait(confluent.DEADLINE_S) == 0, errors.read_text()
        finally:
            process.kill()


def polled(history: Path) -> list[str | None]:
    if not history.exists():
        return []
    return [
        record.value for each in read_history(history) if each.kind is Kind.POLL for record in each.records
    ]


def test_a_static_member_that_is_fenced_comes_back(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker-1", properties={"group.initial.rebalance.delay.ms": 0}).start()
    try:
        confluent.make_topic(broker.bootstrap, TOPIC)
        confluent.write(broker.bootstrap, TOPIC, [confluent.Record(None, b"first")])
        with static_member(broker.bootstrap, tmp_path / "a") as (history, errors):
            confluent.wait_until(lambda: "first" in polled(history), "the first record is read")
            with static_member(broker.bootstrap, tmp_path / "b"):
                told = "begins again after KafkaError{code=_FATAL"
                confluent.wait_until(lambda: told in errors.read_text(), "it is fenced, and says so")
            confluent.write(broker.bootstrap, TOPIC, [confluent.Record(None, b"second")])
            confluent.wait_until(lambda: "second" in polled(history), "it reads on")
            assert "unexpected" not in errors.read_text()
    finally:
        broker.close()


def producing(tmp_path: Path, role: str = "idempotent") -> Producing:
    return Producing([role, "localhost:1", TOPIC, "4", str(tmp_path / "producer-3.jsonl"), "1"])


def sends(tmp_path: Path) -> list[Operation]:
    return [each for each in read_history(tmp_path / "producer-3.jsonl") if each.kind is Kind.SEND]


class FakeAiokafka:
    """Producers of which the first fails its third record, and has no answer for the fourth."""

    made: list[FakeAiokafka]
    producing: Producing

    def __init__(self, **_: Any) -> None:
        self.made.append(self)
        self._sent = 0

    async def start(self) -> None: ...

    async def stop(self) -> None:
        await asyncio.sleep(0)

    async def send(self, *_: Any, partition: int) -> asyncio.Future[Any]:
        future = asyncio.get_running_loop().create_future()
        self._sent += 1
        if self is not self.made[0] or self._sent < 3:
            future.set_result(SimpleNamespace(offset=self._sent))
        elif self._sent == 3:
            asyncio.get_running_loop().call_later(0.08, future.set_exception, LeaderNotAvailableError())
        if (len(self.made) > 1 and self._sent == 2) or self._sent == 50:
            self.producing.stop.set()
        return future


def test_aiokafkas_producer_that_is_out_of_step_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeAiokafka.made, FakeAiokafka.producing = [], producing(tmp_path)
    monkeypatch.setattr(aiokafka, "AIOKafkaProducer", FakeAiokafka)
    monkeypatch.setattr("tests.chaos.producers.GIVE_UP_S", 0.3)

    asyncio.run(by_aiokafka(FakeAiokafka.producing))

    assert len(FakeAiokafka.made) == 2
    told = [(each.outcome, each.process) for each in sends(tmp_path)]
    unknown = [process for outcome, process in told if outcome is Outcome.INFO]
    assert told[:2] == [(Outcome.OK, "producer-3")] * 2
    assert len(unknown) >= 2 and unknown[0] == "producer-3", "also what had no answer"
    values = {each.records[0].value for each in sends(tmp_path)}
    assert values == {f"producer-3-{number}" for number in range(1, len(told) + 1)}, (
        "each is written down once"
    )
    assert told[-1][0] is Outcome.OK and told[-1][1] not in ("producer-3", *unknown), "in another life"


class FakeKafkaProducer:
    """The first fails in a way of its own."""

    made: list[FakeKafkaProducer]
    producing: Producing

    def __init__(self, **_: Any) -> None:
        self.made.append(self)

    def send(self, *_: Any, partition: int) -> Any:
        if len(self.made) == 1:
            raise ValueError("Unrecognized partition")
        self.producing.stop.set()
        return SimpleNamespace(get=lambda _: SimpleNamespace(offset=0))

    def close(self, timeout: float) -> None:
        raise AssertionError("an invariant of the library")


def test_kafka_pythons_producer_that_fails_in_another_way_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    FakeKafkaProducer.made, FakeKafkaProducer.producing = [], producing(tmp_path)
    monkeypatch.setattr(kafka, "KafkaProducer", FakeKafkaProducer)

    produce_by_kafka_python(FakeKafkaProducer.producing)

    assert [each.outcome for each in sends(tmp_path)] == [Outcome.INFO, Outcome.OK]
    told = capsys.readouterr().err
    assert "unexpected: send: ValueError('Unrecognized partition')" in told
    assert told.count("unexpected: close: AssertionError") == 2


class FakeKafkaConsumer:
    """Fails in a way of its own, then has a record whose position cannot be committed."""

    reading: Reading

    def __init__(self, **_: Any) -> None:
        self._polls = 0

    def subscribe(self, *_: Any, listener: Any) -> None: ...

    def poll(self, **_: Any) -> dict[str, list[Any]]:
        self._polls += 1
        if self._polls == 1:
            raise KeyError(3)
        self.reading.stop.set()
        return {"any": [SimpleNamespace(topic=TOPIC, partition=0, offset=7, value=b"v")]}

    def commit(self, *_: Any) -> None:
        raise AssertionError("not assigned")

    def close(self, **_: Any) -> None:
        raise RuntimeError("a thread is gone")


def test_kafka_pythons_member_that_fails_in_another_way_reads_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    history = tmp_path / "member-6.jsonl"
    FakeKafkaConsumer.reading = Reading(["localhost:1", TOPIC, "others", str(history)])
    monkeypatch.setattr(kafka, "KafkaConsumer", FakeKafkaConsumer)
    monkeypatch.setattr("tests.chaos.consumers.AGAIN_S", 0)

    by_kafka_python(FakeKafkaConsumer.reading)

    assert polled(history) == ["v"]
    (commit,) = [each for each in read_history(history) if each.kind is Kind.COMMIT]
    assert commit.outcome is Outcome.INFO
    told = capsys.readouterr().err
    for what in ("poll: KeyError(3)", "commit", "close"):
        assert told.count(f"unexpected: {what}") == 1


def test_what_librdkafka_cannot_deliver_at_the_end_is_written_down() -> None:
    calls: list[str] = []

    def flush(_: float) -> int:
        calls.append("flush")
        return 0 if "purge" in calls else 2

    _end(SimpleNamespace(flush=flush, purge=lambda: calls.append("purge")), 60)
    assert calls == ["flush", "purge", "flush"], "the last one calls back for what was purged"
    calls[:] = ["purge"]
    _end(SimpleNamespace(flush=flush, purge=lambda: calls.append("purge")), 60)
    assert calls == ["purge", "flush"], "nothing was left"


@pytest.mark.parametrize("error", [RuntimeError("Failed to find active controller id!"), TimeoutError()])
def test_an_operator_who_finds_no_controller_ends_no_run(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: Any) -> None:
        raise error

    noted: list[Any] = []
    run = SimpleNamespace(
        _topics=[TOPIC],
        _partitions=1,
        _cluster=SimpleNamespace(brokers={1: None, 2: None, 3: None}),
        _bootstrap="localhost:1",
        _note=lambda *what, **more: noted.append((*what, more)),
    )
    monkeypatch.setattr(nemesis, "KafkaAdminClient", refuse)

    nemesis.Nemesis.move_partition(cast(nemesis.Nemesis, run), random.Random(1))

    assert noted == [("operator", "refused", {"error": repr(error)})]
