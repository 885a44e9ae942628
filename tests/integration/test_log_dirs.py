"""Replicas move between the log directories of a broker, asked for by stock clients, under load."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import StartBroker
from tests.integration.support import confluent, java, wire
from tests.integration.support.clients import Client
from tests.integration.support.load import Load
from tests.integration.support.process import BrokerProcess

DISKS = ("one", "two", "three")
BATCH_BYTES = 900_000


def start(start_broker: StartBroker, root: Path) -> BrokerProcess:
    """A broker with three log directories."""
    first, *others = (root / name for name in DISKS)
    return start_broker(data_dir=first, more_dirs=others)


def replicas(broker: BrokerProcess) -> dict[tuple[str, str, bool], int]:
    """Directory's name, topic and whether it is a copy → its lag, as kafka-python sees it."""
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        (answer,) = admin.describe_log_dirs()
    finally:
        admin.close()
    return {
        (Path(directory["log_dir"]).name, topic["name"], partition["is_future_key"]): partition["offset_lag"]
        for directory in answer["log_dirs"]
        for topic in directory["topics"]
        for partition in topic["partitions"]
    }


def place(broker: BrokerProcess, topic: str) -> str:
    return next(name for name, of, is_copy in replicas(broker) if of == topic and not is_copy)


def elsewhere(broker: BrokerProcess, topic: str) -> str:
    return next(name for name in DISKS if name != place(broker, topic))


def ask(broker: BrokerProcess, topic: str, directory: Path | str) -> Any:
    """The error's class, as kafka-python names it."""
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        (error,) = admin.alter_replica_log_dirs({(topic, 0, 1): str(directory)}).values()
    finally:
        admin.close()
    return error.__name__


def wait_until_moved(broker: BrokerProcess, topic: str, to: str) -> None:
    confluent.wait_until(
        lambda: [key for key in replicas(broker) if key[1] == topic] == [(to, topic, False)],
        f"{topic} is in {to}",
    )


def test_replicas_move_under_load_and_no_acknowledged_record_is_lost(
    start_broker: StartBroker, tmp_path: Path, clients: dict[str, Client]
) -> None:
    broker = start(start_broker, tmp_path)
    topics = ["first", "second"]
    for topic in topics:
        confluent.make_topic(broker.bootstrap, topic, config={"segment.bytes": 1 << 20})
    load = Load(broker.bootstrap, topics)
    with load:
        for topic in topics * 2:
            target = elsewhere(broker, topic)
            assert ask(broker, topic, tmp_path / target) == "NoError"
            wait_until_moved(broker, topic, target)
    load.check(broker.bootstrap, clients["confluent-kafka"])
    load.check(broker.bootstrap, clients["kafka-python"])
    assert load.longest_gap_s() < 2


@pytest.mark.java
@pytest.mark.minikafka_only
def test_kafkas_admin_client_moves_and_kafkas_tool_sees_it(
    start_broker: StartBroker, tmp_path: Path, java_class_path: str, clients: dict[str, Client]
) -> None:
    broker = start(start_broker, tmp_path)
    topics = ["first", "second"]
    for topic in topics:
        confluent.make_topic(broker.bootstrap, topic)
    targets = {topic: elsewhere(broker, topic) for topic in topics}
    load = Load(broker.bootstrap, topics)
    with load:
        lines = "".join(f"{topic}\t0\t1\t{tmp_path / target}\n" for topic, target in targets.items())
        java.run(java_class_path, "Client", "move", broker.bootstrap, stdin=lines)
    load.check(broker.bootstrap, clients["confluent-kafka"])
    text = java.tool(
        java_class_path,
        "org.apache.kafka.tools.LogDirsCommand",
        *("--bootstrap-server", broker.bootstrap, "--describe", "--topic-list", ",".join(topics)),
    )
    found = json.loads(re.findall(r"^\{.*\}$", text, re.MULTILINE)[-1])
    seen = {
        replica["partition"]: Path(directory["logDir"]).name
        for each in found["brokers"]
        for directory in each["logDirs"]
        for replica in directory["partitions"]
    }
    assert seen == {f"{topic}-0": target for topic, target in targets.items()}


def wait_until_much_is_copied(directory: Path, topic: str) -> None:
    """Ten batches, or all: a look takes no time that the broker could use."""
    deadline = time.monotonic() + 30
    while not (directory / f"{topic}-0").exists():
        assert time.monotonic() < deadline, "the move does not begin"
        try:
            copied = sum(path.stat().st_size for path in directory.glob(f"{topic}-0.*-future/*.log"))
        except FileNotFoundError:  # it has just got its name
            continue
        if copied > 10 * BATCH_BYTES:
            return


@pytest.mark.minikafka_only
def test_a_move_goes_on_after_sigkill(start_broker: StartBroker, tmp_path: Path, topic: str) -> None:
    broker = start(start_broker, tmp_path)
    confluent.make_topic(broker.bootstrap, topic)
    count = 100
    with wire.RawClient(broker.port) as client:
        batch = wire.batch([b"x" * BATCH_BYTES])
        for _ in range(count):
            assert client.produce(topic, 0, batch).error == 0
    for _ in range(10):
        source, target = place(broker, topic), elsewhere(broker, topic)
        assert ask(broker, topic, tmp_path / target) == "NoError"
        wait_until_much_is_copied(tmp_path / target, topic)
        broker.kill()
        copies = list((tmp_path / target).glob(f"{topic}-0.*-future"))
        broker.start()
        wait_until_moved(broker, topic, target)
        assert not (tmp_path / source / f"{topic}-0").exists()
        if copies:
            break
    assert copies, "never killed in the middle of a move"
    assert f"the move of {topic}-0 to {tmp_path / target} begins again" in broker.log_text()
    assert confluent.latest(broker.bootstrap, topic) == count
    with wire.RawClient(broker.port) as client:
        for offset in range(count):
            fetched = client.fetch(topic, 0, offset)
            assert fetched.error == 0 and len(fetched.records) >= BATCH_BYTES


@pytest.mark.minikafka_only
def test_what_cannot_be_moved_is_refused(start_broker: StartBroker, tmp_path: Path, topic: str) -> None:
    broker = start(start_broker, tmp_path)
    confluent.make_topic(broker.bootstrap, topic)
    assert ask(broker, topic, "/nowhere") == "LogDirNotFoundError"
    assert ask(broker, "missing", tmp_path / "two") == "ReplicaNotAvailableError"
    confluent.make_topic(broker.bootstrap, "missing")
    assert place(broker, "missing") == "two", "it was asked for before it was there"
