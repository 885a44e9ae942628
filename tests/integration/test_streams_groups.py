"""Kafka Streams 4.4 in streams groups (KIP-1071): the broker creates its internal topics and hands out its
tasks, and whatever becomes of an instance or a coordinator, each word is counted once.

The program is ``CountWords.java``: a repartition topic, a store with a changelog, exactly-once.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupState, TopicPartition

from minikafka.cli.streams import main
from tests.integration.conftest import StartBroker, StartCluster
from tests.integration.support import confluent, java
from tests.integration.support.sharing import configure_group

pytestmark = [pytest.mark.java, pytest.mark.reference("4.4.0")]

VERSION = "4.4.0"
TOOL = "org.apache.kafka.tools.streams.StreamsGroupCommand"
LINES, COUNTS, APPLICATION = "lines", "counts", "words"
PARTITIONS = 4
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon")
DEADLINE_S = 90.0
PROPERTIES = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "group.initial.rebalance.delay.ms": 0,
    "group.streams.initial.rebalance.delay.ms": 0,
    "group.streams.session.timeout.ms": 6_000,
    "group.streams.min.session.timeout.ms": 6_000,
    "group.streams.heartbeat.interval.ms": 1_000,
    "group.streams.min.heartbeat.interval.ms": 1_000,
}


class Instance:
    """A process of the application."""

    def __init__(self, bootstrap: str, directory: Path, *, protocol: str = "streams") -> None:
        directory.mkdir()
        self._output = directory / "output"
        settings = {
            "state.dir": directory / "state",
            "group.protocol": protocol,
            "processing.guarantee": "exactly_once_v2",
            "session.timeout.ms": 6_000 if protocol == "classic" else None,
        }
        given = [f"{name}={value}" for name, value in settings.items() if value is not None]
        with self._output.open("w") as output:
            self._process = subprocess.Popen(
                [
                    *java.command(java.class_path(VERSION)),
                    *("CountWords", bootstrap, APPLICATION, LINES, COUNTS, *given),
                ],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def output(self) -> str:
        return self._output.read_text()

    def wait_until_running(self) -> None:
        self._wait(lambda: self.output().rstrip().endswith("RUNNING"), "it runs")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        try:
            confluent.wait_until(condition, what, deadline_s=DEADLINE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output()}") from None

    def kill(self) -> None:
        """With SIGKILL; nothing when it has ended."""
        assert self._process.stdin is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(DEADLINE_S) == 0, self.output()
        assert "closed" in self.output().splitlines()


@pytest.fixture
def tools() -> Iterator[java.Tools]:
    jvm = java.Tools(java.class_path(VERSION))
    yield jvm
    jvm.close()


StartInstance = Callable[..., Instance]


@pytest.fixture
def start_instance(tmp_path: Path) -> Iterator[StartInstance]:
    """``start_instance(bootstrap, name)``; ended with the test."""
    started: list[Instance] = []

    def start(bootstrap: str, name: str, *, protocol: str = "streams") -> Instance:
        started.append(Instance(bootstrap, tmp_path / name, protocol=protocol))
        return started[-1]

    yield start
    for instance in started:
        instance.kill()


class Text:
    """What is written to the input, and what the application makes of it."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._rng = random.Random(1)
        self.written: Counter[str] = Counter()
        self._consumer = confluent.make_consumer(
            bootstrap, group_id="reader", isolation_level="read_committed", enable_auto_commit=False
        )
        self._consumer.assign([TopicPartition(COUNTS, number, 0) for number in range(PARTITIONS)])
        self.counts: dict[str, list[int]] = {}

    def write(self, lines: int) -> None:
        producer = confluent.make_producer(self._bootstrap)
        for number in range(lines):
            words = self._rng.choices(WORDS, k=3)
            self.written.update(words)
            producer.produce(LINES, " ".join(words).encode(), partition=number % PARTITIONS)
        assert producer.flush(60) == 0

    def wait_until_counted(self, *instances: Instance) -> None:
        """Each count of each word comes once and in order: 1, 2, 3 …"""
        until = time.monotonic() + DEADLINE_S
        while self._last() != self.written and time.monotonic() < until:
            message = self._consumer.poll(1)
            if message is not None and not message.error():
                word = (message.key() or b"").decode()
                self.counts.setdefault(word, []).append(int(message.value() or b"0"))
        outputs = "\n".join(each.output() for each in instances)
        assert self._last() == self.written, outputs
        for word, count in self.written.items():
            assert self.counts[word] == list(range(1, count + 1)), f"{word} is counted twice or not at all"

    def _last(self) -> dict[str, int]:
        return {word: counts[-1] for word, counts in self.counts.items()}

    def close(self) -> None:
        self._consumer.close()


Tool = Callable[..., list[list[str]]]
"""Runs a tool for streams groups; it must succeed. The words of each line that it prints."""


def test_an_instance_is_killed_and_another_one_has_its_counts(
    start_instance: StartInstance,
    start_broker: StartBroker,
    tools: java.Tools,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    broker = start_broker(properties=PROPERTIES)

    def kafka_tool(*arguments: str) -> list[list[str]]:
        ended = tools.run(TOOL, "--bootstrap-server", broker.bootstrap, *arguments)
        assert ended.status == 0, ended.out + ended.err
        return [line.split() for line in ended.out.splitlines() if line.strip()]

    def our_tool(*arguments: str) -> list[list[str]]:
        capsys.readouterr()
        status = main([*arguments, "-b", broker.bootstrap])
        output = capsys.readouterr()
        assert status == 0, output.err
        return [line.split() for line in output.out.splitlines()]

    for topic in (LINES, COUNTS):
        confluent.make_topic(broker.bootstrap, topic, partitions=PARTITIONS)
    configure_group(broker.bootstrap, APPLICATION, streams_num_standby_replicas="1")
    text = Text(broker.bootstrap)
    one, two = (start_instance(broker.bootstrap, name) for name in ("one", "two"))
    one.wait_until_running()
    two.wait_until_running()
    text.write(200)
    text.wait_until_counted(one, two)
    one.kill()
    text.write(200)
    text.wait_until_counted(two)
    broker.kill()
    broker.start()
    text.write(100)
    text.wait_until_counted(two)
    check_that_both_tools_describe_it_alike(kafka_tool, our_tool)
    two.close()
    check_that_offsets_are_reset_and_deleted(broker.bootstrap, kafka_tool, our_tool, tmp_path)
    text.close()


def check_that_both_tools_describe_it_alike(kafka: Tool, ours: Tool) -> None:
    group = ("--group", APPLICATION)
    assert ["words", "Stable"] in kafka("--list", "--state") and ["words", "Stable"] in ours("list")
    for what in ([], ["--members"], ["--state"], ["--offsets"]):
        for how in ([], ["--verbose"]):
            told = [sorted(tool("--describe", *group, *what, *how)) for tool in (kafka, ours)]
            assert told[0] == told[1], f"{what} {how}"
    assert {row[2] for row in ours("describe", *group)} == {"PARTITION", *map(str, range(PARTITIONS))}


def check_that_offsets_are_reset_and_deleted(bootstrap: str, kafka: Tool, ours: Tool, tmp_path: Path) -> None:
    group = ("--group", APPLICATION)
    earliest = ("--reset-offsets", *group, "--all-input-topics", "--to-earliest")
    starts = [["words", LINES, str(number), "0"] for number in range(PARTITIONS)]
    assert sorted(kafka(*earliest, "--dry-run"))[-PARTITIONS:] == starts
    exported = ours(*earliest, "--export")
    assert (
        exported
        == sorted(kafka(*earliest, "--dry-run", "--export"))
        == [[f"{LINES},{row[2]},0"] for row in starts]
    )
    file = tmp_path / "offsets.csv"
    file.write_text("".join(f"{line}\n" for (line,) in exported))
    from_file = [
        tool("--reset-offsets", *group, "--from-file", str(file), "--dry-run") for tool in (kafka, ours)
    ]
    assert sorted(from_file[0])[-PARTITIONS:] == [[*row[:3], row[4]] for row in from_file[1][1:]] == starts
    before = ours("describe", *group, "--verbose")
    shown = ours(*earliest)
    assert [[*row[:3], row[4]] for row in shown[1:]] == starts
    assert ours("describe", *group, "--verbose") == before, "nothing was executed"
    internal = {name for name in confluent.admin(bootstrap).list_topics().topics if name.startswith("words-")}
    assert len(internal) == 2
    assert ours(*earliest, "--execute", "--delete-all-internal-topics")[1 + PARTITIONS :] == [
        ["Deleted", "topic", f"{name}."] for name in sorted(internal)
    ]
    offsets = [row for row in ours("describe", *group, "--verbose") if row[1] == LINES]
    assert [row[3] for row in offsets] == ["0"] * PARTITIONS
    forget = ("--delete-offsets", *group, "--input-topic")
    assert [LINES, "0", "Successful"] in kafka(*forget, f"{LINES}:0")
    assert ours(*forget, f"{LINES}:1,2")[1:] == [["words", LINES, "1"], ["words", LINES, "2"]]
    left = [row[2] for row in ours("describe", *group, "--verbose") if row[1] == LINES]
    assert left == ["3"]
    assert ours("delete", *group) == [["Deleted", "group", "words."]]
    assert ["words"] not in kafka("--list")


def test_an_application_of_the_classic_protocol_goes_on_in_a_streams_group(
    start_instance: StartInstance, start_broker: StartBroker
) -> None:
    broker = start_broker(properties=PROPERTIES)
    for topic in (LINES, COUNTS):
        confluent.make_topic(broker.bootstrap, topic, partitions=PARTITIONS)
    text = Text(broker.bootstrap)
    for number, protocol in enumerate(("classic", "streams")):
        instance = start_instance(broker.bootstrap, str(number), protocol=protocol)
        instance.wait_until_running()
        text.write(100)
        text.wait_until_counted(instance)
        instance.close()
        if protocol == "classic":
            confluent.wait_until(lambda: is_empty(broker.bootstrap), "its member is gone", deadline_s=30)
    text.close()


def is_empty(bootstrap: str) -> bool:
    """A member of the classic protocol does not leave when it closes: its session ends."""
    client = confluent.admin(bootstrap)
    groups = client.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result()
    return APPLICATION in {each.group_id for each in groups.valid}


@pytest.mark.minikafka_only
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_the_groups_coordinator_is_killed(start_instance: StartInstance, start_cluster: StartCluster) -> None:
    cluster = start_cluster(properties=PROPERTIES | {"offsets.topic.num.partitions": 1})
    for topic in (LINES, COUNTS):
        confluent.make_topic(cluster.bootstrap, topic, partitions=PARTITIONS, replicas=3)
    text = Text(cluster.bootstrap)
    instance = start_instance(cluster.bootstrap, "instance")
    instance.wait_until_running()
    text.write(100)
    text.wait_until_counted(instance)
    victim = cluster.leader("__consumer_offsets")
    cluster.brokers[victim].kill()
    text.write(100)
    text.wait_until_counted(instance)
    cluster.brokers[victim].start()
    cluster.wait_until_whole(LINES, COUNTS)
    instance.close()
    text.close()
