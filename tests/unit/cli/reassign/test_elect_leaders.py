"""``minikafka elect-leaders``: whom it asks for what, and how it says what came of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.cli.reassign.command import elect_leaders
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.types import TopicPartition
from tests.unit.cli.fake_cluster import FakeCluster

Output = pytest.CaptureFixture[str]


def run(*arguments: str) -> int:
    return elect_leaders(["-b", "b:9002", *arguments])


@pytest.fixture
def cluster(cluster: FakeCluster) -> FakeCluster:
    cluster.topic("a", (1, 2), (2, 1), (3, 1))
    cluster.partitions[TopicPartition("a", 0)].leader = 2
    cluster.partitions[TopicPartition("a", 2)].leader = 1
    return cluster


def test_one_partition_or_a_whole_topic(cluster: FakeCluster, capsys: Output) -> None:
    assert run("--election-type", "preferred", "--topic", "a", "--partition", "0") == 0
    assert cluster.partitions[TopicPartition("a", 0)].leader == 1
    assert capsys.readouterr().out == (
        "Successfully completed leader election (PREFERRED) for partitions a-0\n"
    )
    assert run("--election-type", "PREFERRED", "--topic", "a") == 0
    assert capsys.readouterr().out.splitlines() == [
        "Successfully completed leader election (PREFERRED) for partitions a-2",
        "Valid replica already elected for partitions a-0, a-1",
    ]


def test_all_partitions(cluster: FakeCluster, capsys: Output) -> None:
    assert run("--election-type=unclean", "--all-topic-partitions") == 0
    (request,) = cluster.requests(ApiKey.ELECT_LEADERS)
    assert (request.election_type, request.topic_partitions) == (1, None)
    assert "(UNCLEAN) for partitions a-0, a-2" in capsys.readouterr().out
    assert run("--election-type=preferred", "--all-topic-partitions") == 0
    assert capsys.readouterr().out == "Valid replica already elected for partitions (all)\n"


def test_a_file_of_partitions_and_what_fails(cluster: FakeCluster, tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / "elect.json"
    file.write_text('{"partitions": [{"topic": "a", "partition": 0}, {"topic": "a", "partition": 9}]}')
    cluster.refuses[TopicPartition("a", 0)] = KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "Not now.")
    assert run("--election-type=preferred", f"--path-to-json-file={file}") == 1
    assert capsys.readouterr().err.splitlines() == [
        "minikafka elect-leaders: a-0: Not now. (PREFERRED_LEADER_NOT_AVAILABLE)",
        "minikafka elect-leaders: a-9: The partition does not exist. (UNKNOWN_TOPIC_OR_PARTITION)",
    ]
    file.write_text('{"partitions": [{"topic": "a", "partition": 0}, {"topic": "a", "partition": 0}]}')
    assert run("--election-type=preferred", f"--path-to-json-file={file}") == 1
    assert "names a-0 more than once" in capsys.readouterr().err


def test_the_controller_is_asked_again_when_it_has_moved(cluster: FakeCluster) -> None:
    cluster.moves_controller_to = 3
    assert run("--election-type=preferred", "--all-topic-partitions") == 0
    assert [node_id for node_id, key, _ in cluster.asked if key == ApiKey.ELECT_LEADERS] == [1, 3]


def test_a_topic_that_is_not_there(cluster: FakeCluster, capsys: Output) -> None:
    assert run("--election-type=preferred", "--topic=nothing") == 1
    assert capsys.readouterr().err == "minikafka elect-leaders: there is no topic nothing\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--topic=a"],
        ["--election-type=preferred"],
        ["--election-type=other", "--topic=a"],
        ["--election-type=preferred", "--topic=a", "--all-topic-partitions"],
        ["--election-type=preferred", "--partition=1", "--all-topic-partitions"],
    ],
)
def test_bad_usage_is_status_2(arguments: list[str], capsys: Output) -> None:
    with pytest.raises(SystemExit) as left:
        elect_leaders(arguments)
    assert left.value.code == 2
    assert "usage: minikafka elect-leaders" in capsys.readouterr().err
