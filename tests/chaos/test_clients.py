"""What a client of a chaos run does when its library can go on no more: it says so, and another begins."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from minikafka.testing.history.operations import Kind, read_history
from tests.integration.support import confluent
from tests.integration.support.process import BrokerProcess

TOPIC = "records"


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
