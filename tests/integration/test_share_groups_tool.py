"""What administrators do with share groups (KIP-932): Kafka's own tools, and ours, on one broker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.cli.share import main
from tests.integration.conftest import StartBroker
from tests.integration.support import confluent, java
from tests.integration.support.process import BrokerProcess
from tests.integration.support.sharing import ShareGroup, configure_group

pytestmark = [pytest.mark.java, pytest.mark.reference("4.4.0")]
TOOL = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
TOPIC, GROUP = "orders", "workers"


@pytest.fixture
def broker(tmp_path: Path, start_broker: StartBroker) -> BrokerProcess:
    found: BrokerProcess = start_broker(
        properties={
            "share.coordinator.state.topic.num.partitions": 1,
            "offsets.topic.num.partitions": 1,
            "group.share.heartbeat.interval.ms": 1_000,
            "group.share.min.heartbeat.interval.ms": 1_000,
        }
    )
    return found


@pytest.fixture
def tools(java_class_path: str) -> Iterator[java.Tools]:
    jvm = java.Tools(java_class_path)
    yield jvm
    jvm.close()


def shared(bootstrap: str, values: set[bytes]) -> None:
    """A member takes these, and nothing else."""
    members = ShareGroup(bootstrap, GROUP, TOPIC, members=1)
    members.wait_for(values)
    members.close()
    assert {each.value for each in members.deliveries} == values


def test_a_share_group_from_its_first_member_to_its_end(
    broker: BrokerProcess, tools: java.Tools, capsys: pytest.CaptureFixture[str]
) -> None:
    confluent.make_topic(broker.bootstrap, TOPIC)
    configure_group(broker.bootstrap, GROUP, share_auto_offset_reset="earliest")
    producer = confluent.make_producer(broker.bootstrap)
    values = [f"v{number}".encode() for number in range(5)]
    for value in values:
        producer.produce(TOPIC, value, partition=0)
    assert producer.flush(60) == 0
    member = ShareGroup(broker.bootstrap, GROUP, TOPIC, members=1)
    member.wait_for(set(values))

    def kafka(*arguments: str) -> list[list[str]]:
        ended = tools.run(TOOL, "--bootstrap-server", broker.bootstrap, *arguments)
        assert ended.status == 0, ended.out + ended.err
        return [line.split() for line in ended.out.splitlines() if line.strip()]

    def ours(*arguments: str) -> list[list[str]]:
        capsys.readouterr()
        assert main([*arguments, "-b", broker.bootstrap]) == 0
        return [line.split() for line in capsys.readouterr().out.splitlines()]

    assert [GROUP] in kafka("--list")
    assert ours("list")[1] == [GROUP, "share", "share", "Stable"]
    members = kafka("--describe", "--group", GROUP, "--members", "--verbose")
    assert members[-1][-1] == f"{TOPIC}:0"
    assert ours("describe", "--group", GROUP, "--members")[1][1] == members[-1][1]
    assert kafka("--describe", "--group", GROUP, "--state")[-1][-2:] == ["Stable", "1"]
    assert ours("describe", "--group", GROUP)[1][-1] == "0", "no lag"
    member.close()

    newest = java.class_path(java.CLIENT_VERSIONS[-1])
    reset = ("--reset-offsets", "--group", GROUP, "--topic", TOPIC, "--to-earliest", "--execute")
    java.run(newest, TOOL, "--bootstrap-server", broker.bootstrap, *reset)
    assert ours("describe", "--group", GROUP)[-1][-2:] == ["0", "5"], "all of them are to come again"
    ours("reset-offsets", "--group", GROUP, "--topic", TOPIC, "--to-offset", "3", "--execute")
    assert kafka("--describe", "--group", GROUP)[-1] == [GROUP, TOPIC, "0", "3"]
    shared(broker.bootstrap, set(values[3:]))

    assert [TOPIC, "Successful"] in kafka("--delete-offsets", "--group", GROUP, "--topic", TOPIC)
    assert len(ours("describe", "--group", GROUP)) == 1, "no offsets"
    shared(broker.bootstrap, set(values))
    assert "successful." in kafka("--delete", "--group", GROUP)[-1]
    assert ours("list") == []

    broker.stop()
    files = ",".join(map(str, broker.files("__consumer_offsets", ".log", 0)))
    ended = tools.run("kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", files)
    assert ended.status == 0
    printed = ended.out
    assert {int(number) for number in re.findall(r'key: \{"type":"(\d+)"', printed)} == set(range(10, 16))
    assert "could not" not in printed.lower() and '"initializedTopics":[{"topicId"' in printed
