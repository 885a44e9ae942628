"""Workload and driver files of the OpenMessaging Benchmark."""

from __future__ import annotations

import pytest

from minikafka.errors import ConfigError
from minikafka.loadgen.workload import Kind, Workload, parse_workload

WORKLOAD = """\
name: 2 topics / 16 partitions / 1kb
topics: 2
partitionsPerTopic: 16
keyDistributor: "KEY_ROUND_ROBIN"
messageSize: 1024
payloadFile: "payload/payload-1Kb.data"
subscriptionsPerTopic: 3
consumerPerSubscription: 2
producersPerTopic: 4
producerRate: 50000
consumerBacklogSizeGB: 0.5
testDurationMinutes: 15
warmupDurationMinutes: 1
"""
DRIVER = """\
name: Kafka
driverClass: io.openmessaging.benchmark.driver.kafka.KafkaBenchmarkDriver
replicationFactor: 3
reset: true
topicConfig: |
  min.insync.replicas=2
commonConfig: |
  bootstrap.servers=somewhere:9092
  default.api.timeout.ms=600000
producerConfig: |
  # all of them
  acks=all
  linger.ms=1
consumerConfig: |
  auto.offset.reset=earliest
  max.partition.fetch.bytes=10485760
"""


def parse(text: str, driver: str | None = None) -> tuple[Workload, str | None]:
    def read_bytes(path: str) -> bytes:
        if path == "missing":
            raise FileNotFoundError(2, "No such file or directory")
        return b"p" * 2000

    return parse_workload(text, name="w.yaml", driver=driver, read_bytes=read_bytes)


def test_a_file_of_omb_is_a_workload() -> None:
    workload, bootstrap = parse(WORKLOAD, DRIVER)
    assert bootstrap == "somewhere:9092"
    assert workload.kind is Kind.STREAM
    assert (workload.topics, workload.partitions, workload.replication_factor) == (2, 16, 3)
    assert (workload.producers, workload.subscriptions, workload.consumers) == (8, 3, 4)
    assert (workload.rate, workload.duration_s, workload.warmup_s) == (50_000, 900, 60)
    assert workload.backlog_bytes == 512 * 1024 * 1024
    assert workload.payload == b"p" * 1024
    assert workload.keys == "sequential:10000"
    assert workload.producer_config == {"acks": "all", "linger.ms": "1"}
    assert workload.consumer_config == {"max.partition.fetch.bytes": "10485760"}
    assert workload.topic_config == {"min.insync.replicas": "2"}


def test_randomized_payloads_are_a_share_of_random_bytes() -> None:
    text = WORKLOAD + "useRandomizedPayloads: true\nrandomBytesRatio: 0.25\nrandomizedPayloadPoolSize: 100\n"
    workload, _ = parse(text)
    assert (workload.payload, workload.compressibility) == (None, "0.75")


def test_without_subscriptions_it_only_produces() -> None:
    assert parse("testDurationMinutes: 1\nsubscriptionsPerTopic: 0\n")[0].kind is Kind.PRODUCE


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("producerRates: 5\n", "there is no key producerRates; did you mean producerRate?"),
        ("topics: many\n", "topics many: must be a number from 1"),
        ("topics: 0\n", "topics 0: must be a number from 1"),
        ("topics: .nan\n", "topics nan: must be a number from 1"),
        ("producerRate: .inf\n", "producerRate inf: must be a number from 0"),
        ("topics: true\n", "topics True: must be"),
        ("producerRate: -1\n", "producerRate -1: must be a number from 0"),
        ("keyDistributor: RANDOM\n", "keyDistributor RANDOM: must be none,"),
        ("messageSize: big\n", "messageSize big: must be"),
        ("messageSize: 5000\npayloadFile: p\n", "payloadFile p has 2000 bytes, messageSize 5000"),
        ("payloadFile: missing\n", "payloadFile missing: No such file"),
        ("producerPauseBeforeDrain: 5\n", "producerPauseBeforeDrain 5 is not supported, only 0"),
        ("useRandomizedPayloads: 3\n", "useRandomizedPayloads 3: must be true or false"),
    ],
)
def test_a_bad_workload_is_said_with_its_key(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=r"^w\.yaml: ") as caught:
        parse("testDurationMinutes: 1\n" + text)
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("topics: 1\n", "w.yaml: testDurationMinutes is missing"),
        ("a: [\n", "w.yaml, line 2: is no YAML"),
        ("just text\n", "w.yaml: must be keys and values"),
    ],
)
def test_a_file_that_is_no_workload(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("driver", "complaint"),
    [
        ("replicationFactor: x\n", "replicationFactor x: must be a number"),
        ("producerConfigs: x=1\n", "there is no key producerConfigs"),
        ("producerConfig: acks\n", "producerConfig: acks: must be NAME=VALUE"),
    ],
)
def test_a_bad_driver_file_is_said_with_its_key(driver: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=r"^the driver file: ") as caught:
        parse(WORKLOAD, driver)
    assert complaint in str(caught.value)
