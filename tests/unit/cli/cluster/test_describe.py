"""``minikafka cluster describe``: what is well, what is not, and why."""

from __future__ import annotations

import json
from typing import Any

import pytest

from minikafka.cli.cluster import command as cluster_command
from minikafka.types import ReplicaAssignment, TopicPartition
from tests.unit.cli.fake_cluster import CREATED_MS, FakeCluster

Output = pytest.CaptureFixture[str]
A0 = TopicPartition("a", 0)


def described(capsys: Output, *options: str) -> Any:
    assert cluster_command.main(["describe", "-b", "b:9001,b:9002", "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


def text(capsys: Output, *options: str) -> str:
    assert cluster_command.main(["describe", "-b", "b:9001,b:9002", *options]) == 0
    return "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())


def voter(broker: int, *, end: int, fetched_ms: int = -1, caught_up_ms: int = -1) -> dict[str, Any]:
    """A replica as its leader sees it; times in ms before the leader's now, -1: never."""
    return {
        "replica_id": broker,
        "replica_directory_id": None,
        "log_end_offset": end,
        "last_fetch_timestamp": -1 if fetched_ms < 0 else CREATED_MS - fetched_ms,
        "last_caught_up_timestamp": -1 if caught_up_ms < 0 else CREATED_MS - caught_up_ms,
    }


def test_a_cluster_that_is_well(cluster: FakeCluster, capsys: Output) -> None:
    cluster.topic("a", (1, 2), (2, 3))
    cluster.racks[2] = "east"
    assert text(capsys) == "\n".join(
        [
            "Cluster    the-cluster",
            "Controller broker 1, epoch 7",
            "Topics     1, with 2 partitions",
            "",
            "Brokers: 3",
            "  id  address  rack  leaders  replicas  log directories",
            "  1   b:9001   -     1        1         all online",
            "  2   b:9002   east  1        2         all online",
            "  3   b:9003   -     0        1         all online",
            "Offline partitions: none",
            "Under min.insync.replicas: none",
            "Under-replicated partitions: none",
            "Not led by their preferred leader: none",
            "Reassignments under way: none",
        ]
    )


def why(capsys: Output, number: int = 0) -> dict[str, Any]:
    (replica,) = described(capsys)["under_replicated"][number]["out_of_sync"]
    assert isinstance(replica, dict)
    return replica


def test_a_replica_that_is_behind(cluster: FakeCluster, capsys: Output) -> None:
    cluster.topic("a", (1, 2))
    cluster.partitions[A0].isr = [1]
    leader = voter(1, end=1000, fetched_ms=0, caught_up_ms=0)
    cluster.quorum[A0] = [leader, voter(2, end=400, fetched_ms=350, caught_up_ms=95_000)]
    assert why(capsys) == {
        "broker": 2,
        "why": "600 records behind, not caught up for 1 min 35 s, fetched last 350 ms ago",
        "records_behind": 600,
        "not_caught_up_for_ms": 95_000,
        "last_fetch_ms_ago": 350,
    }
    cluster.quorum[A0] = [leader, voter(2, end=999, fetched_ms=80)]
    assert why(capsys)["why"] == (
        "1 record behind, not caught up since its leader was elected, fetched last 80 ms ago"
    )
    cluster.quorum[A0] = [leader, voter(2, end=-1)]
    assert why(capsys)["why"] == "it has not fetched since its leader was elected"
    cluster.quorum[A0] = [leader, voter(2, end=1000, fetched_ms=5, caught_up_ms=5)]
    assert why(capsys)["why"] == "it has caught up, and is about to join"
    cluster.quorum.clear()
    assert why(capsys)["why"] == "its leader, broker 1, does not report it"
    assert [each["topic"] for each in described(capsys)["under_min_isr"]] == ["a"]


def test_a_broker_that_is_gone(cluster: FakeCluster, capsys: Output) -> None:
    cluster.topic("a", (3, 2), (3,))
    cluster.live.remove(3)
    a0, a1 = cluster.partitions.values()
    a0.leader, a0.isr = 2, [2]
    a1.leader, a1.isr = -1, [3]
    found = described(capsys)
    assert why(capsys)["why"] == "its broker is not registered"
    assert [(each["partition"], each["leader"]) for each in found["offline"]] == [(1, -1)]
    assert [each["partition"] for each in found["not_preferred"]] == [0]
    brokers = [(each["id"], each["is_registered"], each["replicas"]) for each in found["brokers"]]
    assert brokers == [(1, True, 0), (2, True, 1), (3, False, 2)]
    lines = text(capsys).splitlines()
    assert "Brokers: 3, 1 of them down" in lines
    assert "  3   -        -     0        2         DOWN: it is not registered" in lines
    assert "Offline partitions: 1" in lines
    assert "  a-0        2       3,2       2        2    3: its broker is not registered" in lines


def test_a_log_directory_that_failed(cluster: FakeCluster, capsys: Output) -> None:
    cluster.topic("a", (1, 2))
    cluster.partitions[A0].isr = [1]
    cluster.offline_dirs = [(2, "/a")]
    assert why(capsys)["why"] == "its log directory is offline: /a"
    assert "OFFLINE: /a" in text(capsys)
    cluster.offline_dirs = []
    cluster.partitions[A0].offline = [2]
    assert why(capsys)["why"].startswith("its log directory is offline")


def test_a_reassignment_is_shown_with_what_is_left(cluster: FakeCluster, capsys: Output) -> None:
    cluster.topic("a", (1, 2))
    cluster.is_stuck = True
    cluster.partitions[A0].assignment = ReplicaAssignment((3, 1, 2), (3,), (1,))  # type: ignore[arg-type]
    cluster.quorum[A0] = [voter(1, end=50, fetched_ms=0, caught_up_ms=0), voter(3, end=0, fetched_ms=9)]
    found = described(capsys)
    reason = {
        "broker": 3,
        "why": "50 records behind, not caught up since its leader was elected, fetched last 9 ms ago",
        "records_behind": 50,
        "not_caught_up_for_ms": None,
        "last_fetch_ms_ago": 9,
    }
    assert found["under_replicated"] == [], "a replica that is only coming is not missing"
    assert found["reassignments"] == [
        {
            "topic": "a",
            "partition": 0,
            "replicas": [3, 2],
            "adding": [3],
            "removing": [1],
            "left_bytes": 300,
            "out_of_sync": [reason],
        }
    ]
    assert found["not_preferred"] == [], "it will be, when it is done"
    assert "  a-0        3,2  3       1         300 B  3: 50 records behind" in text(capsys)


@pytest.mark.parametrize("there_is_one", [True, False])
def test_without_a_controller_that_answers_the_others_tell_what_they_know(
    cluster: FakeCluster, capsys: Output, there_is_one: bool
) -> None:
    cluster.topic("a", (3, 2), (3,))
    cluster.controller = 3 if there_is_one else -1
    cluster.silent.add(3)
    found = described(capsys, "--timeout-ms", "300")
    assert found["reassignments"] is None
    answers = {each["id"]: each["answers"] for each in found["brokers"]}
    assert answers == {1: True, 2: True, 3: False}
    last = text(capsys, "--timeout-ms", "300").splitlines()[-1]
    why = "the controller does not answer" if there_is_one else "there is no controller"
    assert last == f"Reassignments under way: not known, {why}"


def test_no_broker_there_is_one_line(cluster: FakeCluster, capsys: Output) -> None:
    cluster.live.clear()
    assert cluster_command.main(["describe", "-b", "b:9001"]) == 1
    assert capsys.readouterr().err == "minikafka cluster describe: broker b:9001: cannot connect\n"


def test_bad_usage_is_status_2(capsys: Output) -> None:
    with pytest.raises(SystemExit) as left:
        cluster_command.main(["describe", "--brokers=3"])
    assert left.value.code == 2
    assert "usage: minikafka cluster describe" in capsys.readouterr().err
    with pytest.raises(SystemExit) as left:
        cluster_command.main(["--help"])
    assert left.value.code == 0
    assert "minikafka cluster describe" in capsys.readouterr().out
