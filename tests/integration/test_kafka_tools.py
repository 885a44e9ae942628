"""Kafka's tools against a cluster, one after another in one JVM: the cheap ones that no other test has.

What each tool of ``bin/`` does is in ``docs/reference/kafka-tools.md``, as those of 4.3.1 and 4.4.0 showed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from minikafka.cli.main import main as minikafka
from minikafka.testing import ThreadedCluster
from tests.integration.support import java

pytestmark = [pytest.mark.java, pytest.mark.minikafka_only]

PACKAGE = "org.apache.kafka.tools"


class Run(NamedTuple):
    """A tool, what it is asked to do, and what it says. Its exit status is not looked at: a few catch what
    stands for the end of the process (``Tools``)."""

    tool: str
    arguments: str
    says: str


RUNS = [
    Run("TopicCommand", "--create --topic t --partitions 2 --replication-factor 2", "Created topic t."),
    Run("VerifiableProducer", "--topic t --max-messages 5", '"name":"startup_complete"'),
    Run("GetOffsetShell", "--topic t", "t:0:"),
    Run("consumer.ConsoleConsumer", "--topic t --from-beginning --max-messages 5 --group g", "messages"),
    Run("consumer.group.ConsumerGroupCommand", "--describe --group g --state", "Empty"),
    Run("GroupsCommand", "--list", "Classic"),
    Run("DeleteRecordsCommand", "--offset-json-file {files}/delete.json", "low_watermark: 0"),
    Run("TopicCommand", "--describe --topic t", "ReplicationFactor: 2"),
    Run("TransactionsCommand", "find-hanging --broker-id 1", "ProducerId"),
    Run("TransactionsCommand", "list", "TransactionalId"),
    Run(
        "LeaderElectionCommand",
        "--election-type preferred --path-to-json-file {files}/elect.json",
        "Valid replica already elected for partitions t-0",
    ),
    Run("LogDirsCommand", "--describe --topic-list t", '"partition":"t-0"'),
    Run("BrokerApiVersionsCommand", "", "Produce(0): 0 to 13"),
    Run("ClusterTool", "cluster-id", "Cluster ID:"),
    Run("ClusterTool", "unregister --id 7", "Broker ID 7 is not currently registered"),
    Run("ClusterTool", "unregister --id 2", "Broker ID 2 is alive"),
    Run("FeatureCommand", "describe", "metadata.version\tSupportedMinVersion: 3.3-IV3\t"),
    Run(
        "FeatureCommand", "upgrade --feature transaction.version=2", "transaction.version was upgraded to 2."
    ),
    Run("FeatureCommand", "downgrade --feature transaction.version=1", "was downgraded to 1."),
    Run("FeatureCommand", "upgrade --dry-run --feature transaction.version=2", "can be upgraded to 2."),
    Run("FeatureCommand", "upgrade --feature transaction.version=3", "only supports versions 0-2"),
    Run("FeatureCommand", "downgrade --feature metadata.version=27", "it might delete metadata information."),
    Run("FeatureCommand", "disable --feature group.version", "group.version was disabled."),
    Run("ClientMetricsCommand", "--alter --name m --metrics org.apache.kafka.", "Altered client metrics"),
    Run("MetadataQuorumCommand", "describe --replication", "Leader"),
    Run("StreamsResetter", "--application-id app --input-topics t", "Topic: t Partition: 1 Offset: 0"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadedCluster]:
    config = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}
    with ThreadedCluster(2, config=config) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tools(java_class_path: str) -> Iterator[java.Tools]:
    tools = java.Tools(java_class_path)
    yield tools
    tools.close()


def test_each_tool_says_what_it_says_of_kafka(
    cluster: ThreadedCluster, tools: java.Tools, tmp_path: Path
) -> None:
    partition = {"topic": "t", "partition": 0}
    (tmp_path / "delete.json").write_text(
        json.dumps({"partitions": [partition | {"offset": 0}], "version": 1})
    )
    (tmp_path / "elect.json").write_text(json.dumps({"partitions": [partition]}))
    wrong = []
    for tool, arguments, says in RUNS:
        words = arguments.format(files=tmp_path).split()
        command = words[:1] if words and not words[0].startswith("-") else []
        bootstrap = ["--bootstrap-server", cluster.bootstrap_servers]
        subcommand_last = tool in ("TransactionsCommand", "FeatureCommand", "MetadataQuorumCommand")
        asked = [*bootstrap, *words] if subcommand_last else [*command, *bootstrap, *words[len(command) :]]
        ended = tools.run(f"{PACKAGE}.{tool}", *asked)
        printed = ended.out + ended.err
        if says not in printed:
            wrong.append(f"{tool} {arguments}: {printed[-1000:]}")
    assert wrong == [], "\n".join(wrong)


def test_levels_that_kafkas_tool_has_set_hold_on_every_broker(
    cluster: ThreadedCluster, tools: java.Tools, capsys: pytest.CaptureFixture[str]
) -> None:
    """After ``test_each_tool…``, or alone; and our own tool says and does the same."""

    def features(*arguments: str) -> int:
        return minikafka(["features", *arguments, "--bootstrap-server", cluster.bootstrap_servers])

    def level(node_id: int, name: str) -> int:
        capsys.readouterr()
        assert features("describe", "--node-id", str(node_id), "--json") == 0
        found = {each["name"]: each["level"] for each in json.loads(capsys.readouterr().out)}
        return int(found[name])

    def is_everywhere(name: str, wanted: int) -> bool:
        return any(all(level(each, name) == wanted for each in (1, 2)) for _ in range(200))

    bootstrap = ["--bootstrap-server", cluster.bootstrap_servers]
    tools.run(f"{PACKAGE}.FeatureCommand", *bootstrap, "disable", "--feature", "group.version")
    assert is_everywhere("group.version", 0)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "new",
            "group.protocol": "consumer",
        }
    )
    consumer.subscribe(["t"])
    message = consumer.poll(30)
    assert message is not None and message.error().code() == KafkaError._FATAL
    assert "ConsumerGroupHeartbeat fatal error: Broker: API version not supported" in str(message.error())
    consumer.close()

    assert features("upgrade", "--feature", "group.version=1") == 0
    assert capsys.readouterr().out == "group.version was upgraded to 1.\n"
    assert is_everywhere("group.version", 1)
    assert features("upgrade", "--feature", "group.version=2", "--dry-run") == 1
    assert "group.version: can not upgrade to 2: The update failed" in capsys.readouterr().err
    assert features("downgrade", "--feature", "transaction.version=0") == 0
    assert is_everywhere("transaction.version", 0)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "at-level-0"})
    producer.init_transactions(30)
    for ends in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce("t", b"at level 0", partition=0)
        # Only then has it begun: librdkafka also aborts where the partition was refused, because the markers
        # of the one before are being written, and takes Kafka's INVALID_TXN_STATE for fatal.
        assert producer.flush(30) == 0
        ends(30)
    assert features("upgrade", "--feature", "transaction.version=2") == 0


def test_a_broker_that_is_gone_is_fenced_until_it_is_unregistered(
    cluster: ThreadedCluster, tools: java.Tools
) -> None:
    cluster.stop(2)

    def run(*arguments: str) -> str:
        command, *options = arguments
        asked = [command, "--bootstrap-server", cluster.bootstrap_servers, *options]
        return tools.run(f"{PACKAGE}.ClusterTool", *asked).out

    def fenced() -> list[str]:
        listed = run("list-endpoints", "--include-fenced-brokers").splitlines()
        return [line.split()[0] for line in listed if " fenced" in line]

    assert any(fenced() == ["2"] for _ in range(50)), "the controller tells the others"
    assert "Broker 2 is no longer registered." in run("unregister", "--id", "2")
    assert fenced() == []
