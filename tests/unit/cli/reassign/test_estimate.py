"""What ``minikafka reassign execute`` says beforehand: how much there is to copy, and how long that takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minikafka.cli.reassign import command as reassign
from minikafka.cli.reassign.command import CopyEstimate, estimate
from minikafka.cli.reassign.plan import PlannedPartition
from minikafka.cli.shared.admin_client import AdminClient
from minikafka.types import ReplicaAssignment, TopicPartition
from tests.unit.cli.fake_cluster import FakeCluster

Output = pytest.CaptureFixture[str]
MEGABYTE = 1_000_000
GONE_OR_LEFT = ("a", 0), ("a", 1), ("a", 2), ("deleted", 0)


def execute(tmp_path: Path, replicas: list[list[int]], *options: str) -> int:
    file = tmp_path / "plan.json"
    partitions = [
        {"topic": "a", "partition": number, "replicas": each} for number, each in enumerate(replicas)
    ]
    file.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return reassign.main(["execute", "-b", "b:9001", f"--reassignment-json-file={file}", *options])


def said(capsys: Output) -> list[str]:
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith("To copy")]


@pytest.mark.parametrize(
    ("leaders", "followers", "seconds"), [(1, 1, 400), (1, 2, 400), (2, 1, 400), (2, 2, 200), (3, 2, 200)]
)
def test_the_side_with_fewer_brokers_is_the_narrow_one(leaders: int, followers: int, seconds: int) -> None:
    assert CopyEstimate(400 * MEGABYTE, leaders, followers).duration_ms(MEGABYTE) == 1000 * seconds


def test_with_a_rate_of_nothing_it_never_ends_unless_there_is_nothing_to_copy() -> None:
    assert CopyEstimate(1, 1, 1).duration_ms(0) is None
    assert CopyEstimate(0, 0, 0).duration_ms(0) == 0
    assert CopyEstimate(5 * MEGABYTE, 1, 2).describe(0) == (
        "To copy: 5.00 MB, from 1 leader to 2 followers; it never ends at 0 B/s."
    )


def test_the_estimate_is_printed_before_anything_is_changed(
    cluster: FakeCluster, tmp_path: Path, capsys: Output
) -> None:
    cluster.topic("a", (1, 2), (1, 2), size_bytes=300)
    assert execute(tmp_path, [[1, 3], [1, 3]], "--throttle=10") == 0
    out = capsys.readouterr().out
    expected = "To copy: 600 B, from 1 leader to 1 follower; about 1 min at 10 B/s."
    assert expected in out
    assert out.index(expected) < out.index("throttle limit was set") < out.index("Successfully started")


def test_without_a_throttle_only_the_bytes_are_known(
    cluster: FakeCluster, tmp_path: Path, capsys: Output
) -> None:
    cluster.topic("a", (1, 2), (2, 1), size_bytes=300)
    assert execute(tmp_path, [[3, 2], [3, 1]]) == 0
    assert said(capsys) == ["To copy: 600 B, from 2 leaders to 1 follower."]


def test_replicas_that_only_go_away_are_not_copied(
    cluster: FakeCluster, tmp_path: Path, capsys: Output
) -> None:
    cluster.topic("a", (1, 2, 3))
    assert execute(tmp_path, [[3, 1]], "--throttle=10") == 0
    assert said(capsys) == []


def test_what_is_under_way_counts_as_far_as_it_is_left(
    cluster: FakeCluster, tmp_path: Path, capsys: Output
) -> None:
    cluster.topic("a", (1, 2), size_bytes=300)
    cluster.topic("b", (2, 1), size_bytes=300)
    cluster.is_stuck = True
    moving = TopicPartition("b", 0)
    cluster.partitions[moving].assignment = ReplicaAssignment((3, 2, 1), adding=(3,), removing=(1,))  # type: ignore[arg-type]
    cluster.sizes[moving, 3] = 250
    assert execute(tmp_path, [[3, 1]], "--additional", "--no-wait", "--throttle=10") == 0
    assert said(capsys) == ["To copy: 350 B, from 2 leaders to 1 follower; about 35 s at 10 B/s."]


def test_a_target_that_is_given_up_is_not_copied(
    cluster: FakeCluster, tmp_path: Path, capsys: Output
) -> None:
    cluster.topic("a", (1, 2), size_bytes=300)
    cluster.is_stuck = True
    cluster.partitions[TopicPartition("a", 0)].assignment = ReplicaAssignment(
        (3, 1, 2),
        adding=(3,),
        removing=(2,),  # type: ignore[arg-type]
    )
    assert execute(tmp_path, [[1, 2]], "--additional", "--no-wait", "--throttle=10") == 0
    assert said(capsys) == []


async def test_partitions_of_unknown_size_are_left_out(cluster: FakeCluster) -> None:
    cluster.topic("a", (1, 2), (2, 1), (3, 1), size_bytes=300)
    cluster.live.remove(2)
    cluster.partitions[TopicPartition("a", 2)].leader = -1
    plan = [PlannedPartition(TopicPartition(topic, number), (1, 3), ()) for topic, number in GONE_OR_LEFT]
    async with AdminClient([("b", 9001)], client_id="test", timeout_ms=100) as admin:
        assert await estimate(admin, plan, {}) == CopyEstimate(300, leaders=1, followers=1)
