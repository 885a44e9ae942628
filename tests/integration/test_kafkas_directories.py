"""A log directory that Apache Kafka wrote: minikafka starts on it and serves every record."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from tests.integration.conftest import StartBroker
from tests.integration.support import confluent
from tests.integration.support.process import KafkaProcess
from tests.integration.support.records import EPOCH_MS, Record
from tests.integration.support.verified import assert_undamaged

pytestmark = [pytest.mark.java, pytest.mark.minikafka_only]

COUNT = 2_000


@pytest.fixture(scope="module")
def kafka_directory(tmp_path_factory: pytest.TempPathFactory, java_class_path: str) -> Iterator[Path]:
    """Two topics, written by several segments and codecs and stopped cleanly."""
    directory = tmp_path_factory.mktemp("kafka") / "data"
    broker = KafkaProcess(directory, classpath=java_class_path, properties={"log.segment.bytes": 1 << 20})
    try:
        broker.start()
        for topic in ("orders", "payments"):
            confluent.make_topic(broker.bootstrap, topic, config={"retention.ms": -1})
            confluent.write_one_batch_each(broker.bootstrap, topic, records())
        broker.stop(deadline_s=60)
    finally:
        broker.close()
    assert_undamaged(directory)
    yield directory


def records() -> list[Record]:
    """Three segments' worth, each of them years old."""
    return [Record(b"%d" % i, b"%d " % i * 300, (), EPOCH_MS + i) for i in range(COUNT)]


@pytest.mark.parametrize("shutdown", ["clean", "unclean"])
def test_minikafka_goes_on_with_kafkas_directory(
    start_broker: StartBroker, tmp_path: Path, kafka_directory: Path, shutdown: str
) -> None:
    data = tmp_path / "data"
    shutil.copytree(kafka_directory, data)
    if shutdown == "unclean":
        (data / ".kafka_cleanshutdown").unlink()
    fast = {"log.retention.check.interval.ms": 50, "log.initial.task.delay.ms": 0, "log.retention.ms": 1}
    broker = start_broker(data_dir=data, properties=fast)
    for topic in ("orders", "payments"):
        found = confluent.read(broker.bootstrap, topic, COUNT)
        assert [(r.offset, r.key, r.value) for r in found] == [
            (i, record.key, record.value) for i, record in enumerate(records())
        ]
    assert "adopted topic orders" in broker.log_text()
    assert not list(data.glob("*-stray")) and (data / "__cluster_metadata-0").is_dir()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert admin.list_topics(timeout=60).cluster_id == KafkaProcess.CLUSTER_ID
    resource = ConfigResource(ConfigResource.Type.TOPIC, "orders")
    described = admin.describe_configs([resource])[resource].result(timeout=60)
    assert described["retention.ms"].value == "-1"

    # It is our topic now: records are added, and both are there after a restart.
    confluent.write_one_batch_each(broker.bootstrap, "orders", [Record(None, b"new", (), EPOCH_MS)])
    assert broker.stop() == 0
    broker.start()
    found = confluent.read(broker.bootstrap, "orders", COUNT + 1)
    assert len(found) == COUNT + 1 and found[-1].value == b"new"
