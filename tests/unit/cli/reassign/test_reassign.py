"""``minikafka reassign``: what it asks a cluster, what it refuses, what it prints, what it leaves behind."""

from __future__ import annotations

import io
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from minikafka.cli.reassign import command as reassign
from minikafka.cli.reassign.plan import parse_plan
from minikafka.cli.reassign.verify import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    ProgressView,
    Seen,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.types import ReplicaAssignment, TopicPartition
from tests.unit.cli.fake_cluster import BROKER, TOPIC, FakeCluster

Output = pytest.CaptureFixture[str]
SERVER = ["-b", "b:9001"]


def run(*arguments: str) -> int:
    return reassign.main([arguments[0], *SERVER, *arguments[1:]])


@pytest.fixture
def plan_file(tmp_path: Path) -> Any:
    """Writes a plan: partitions of topic "a" by number → replicas, or whole partitions as JSON has them."""

    def write(*partitions: Any) -> str:
        file = tmp_path / "plan.json"
        whole = [
            each if isinstance(each, dict) else {"topic": "a", "partition": number, "replicas": each}
            for number, each in enumerate(partitions)
        ]
        file.write_text(json.dumps({"version": 1, "partitions": whole}))
        return f"--reassignment-json-file={file}"

    return write


def test_execute_moves_and_says_when_it_is_done(cluster: FakeCluster, plan_file: Any, capsys: Output) -> None:
    cluster.topic("a", (1, 2), (2, 1))
    assert run("execute", plan_file([3, 2], [2, 3])) == 0
    assert cluster.replicas("a") == [(3, 2), (2, 3)]
    out = capsys.readouterr().out
    assert "Save this to use as the --reassignment-json-file option during rollback" in out
    rollback = parse_plan(out.splitlines()[2])
    assert [each.replicas for each in rollback] == [(1, 2), (2, 1)]
    assert "Successfully started partition reassignments for a-0,a-1" in out
    assert "2 still moving, 400 B left" in out
    assert "Reassigned 2 partitions in " in out


def test_the_throttle_covers_what_moves_and_goes_at_the_end(
    cluster: FakeCluster, plan_file: Any, capsys: Output
) -> None:
    cluster.topic("a", (1, 2), (2, 1))
    cluster.topic("b", (1,))
    assert run("execute", plan_file([3, 2], [2, 1]), "--throttle", "50MB") == 0
    altered = [each.resources for each in cluster.requests(ApiKey.INCREMENTAL_ALTER_CONFIGS)]
    (topic,) = altered[0]
    assert (topic.resource_type, topic.resource_name) == (TOPIC, "a")
    assert {each.name: each.value for each in topic.configs} == {
        LEADER_REPLICAS: "0:1,0:2,1:2,1:1",
        FOLLOWER_REPLICAS: "0:3",
    }
    rates = {broker.resource_name: {each.value for each in broker.configs} for (broker,) in altered[1:4]}
    assert rates == {"1": {"50000000"}, "2": {"50000000"}, "3": {"50000000"}}
    assert cluster.changes().index(ApiKey.ALTER_PARTITION_REASSIGNMENTS) == 4, "throttled before it begins"
    assert not any(cluster.configs.values()), "nothing of it is left"
    out = capsys.readouterr().out
    assert "The inter-broker throttle limit was set to 50.0 MB/s" in out
    assert "Removed the throttle of brokers 1, 2, 3 and topics a." in out


def test_a_plan_is_looked_at_as_a_whole_before_anything_is_changed(
    cluster: FakeCluster, plan_file: Any, capsys: Output
) -> None:
    cluster.topic("a", (1, 2), (2, 1))
    plan = plan_file(
        [1, 2],
        [2, 2],
        {"topic": "a", "partition": 0, "replicas": [3]},
        {"topic": "a", "partition": 7, "replicas": [1]},
        {"topic": "nothing", "partition": 0, "replicas": [1]},
        {"topic": "a", "partition": 1, "replicas": []},
        {"topic": "a", "partition": 1, "replicas": [1, 9]},
        {"topic": "a", "partition": 1, "replicas": [1], "log_dirs": ["/c"]},
        {"topic": "a", "partition": 1, "replicas": [1], "log_dirs": ["any", "any"]},
    )
    assert run("execute", plan, "--throttle=1") == 1
    assert capsys.readouterr().err.splitlines() == [
        "minikafka reassign: the plan cannot be carried out, and nothing was changed:",
        "  a-0 is named more than once",
        "  a-1 is named more than once",
        "  a-1: broker 2 is named more than once",
        "  a-1: the list of replicas is empty",
        "  a-1: 1 replicas, but 2 log directories",
        "  there is no topic nothing",
        "  there is no partition a-7: the topic has 2",
        "  a-1: broker 9 is not registered",
        "  a-1: broker 1 has no log directory /c (it has /a, /b)",
    ]
    assert cluster.changes() == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "this is not a reassignment plan: Input data was truncated"),
        ("[]", "this is not a reassignment plan: Expected `object`, got `array`"),
        ('{"version": 2}', "version 2 is unknown"),
        ('{"version": 1, "partitions": []}', "it names no partition"),
        ('{"partitions": [{"topic": "a", "replicas": [1]}]}', "missing required field `partition`"),
        ('{"partitions": [{"topic": "a", "partition": "x", "replicas": [1]}]}', "$.partitions[0].partition"),
    ],
)
def test_what_is_no_plan_is_named(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, capsys: Output, text: str, said: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert run("execute", "--reassignment-json-file=-") == 1
    assert said in capsys.readouterr().err
    assert cluster.changes() == []


def test_a_second_reassignment_must_be_wanted(cluster: FakeCluster, plan_file: Any, capsys: Output) -> None:
    cluster.topic("a", (1, 2), (2, 1))
    cluster.topic("b", (1,))
    cluster.is_stuck = True
    cluster.partitions[TopicPartition("b", 0)].assignment = ReplicaAssignment(
        (3, 1), adding=(3,), removing=(1,)
    )
    assert run("execute", plan_file([3, 2])) == 1
    assert "b-0 is being reassigned already; --additional" in capsys.readouterr().err
    assert cluster.changes() == []
    assert run("execute", plan_file([3, 2]), "--additional", "--no-wait", "--throttle=1000") == 0
    assert cluster.configs[TOPIC, "b"] == {LEADER_REPLICAS: "0:1", FOLLOWER_REPLICAS: "0:3"}
    assert "minikafka reassign verify -b b:9001 --reassignment-json-file" in capsys.readouterr().out
    assert set(cluster.configs[BROKER, "3"]) == {LEADER_RATE, FOLLOWER_RATE}


def test_what_the_controller_refuses_is_named(cluster: FakeCluster, plan_file: Any, capsys: Output) -> None:
    cluster.topic("a", (1, 2), (2, 1))
    cluster.refuses[TopicPartition("a", 1)] = KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "No.")
    assert run("execute", plan_file([3, 2], [2, 3])) == 1
    error = capsys.readouterr().err
    assert "  a-1: No. (INVALID_REPLICA_ASSIGNMENT)\n1 of 2 partitions were started" in error


def test_an_interrupt_ends_the_watching_only(
    cluster: FakeCluster, plan_file: Any, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.topic("a", (1, 2))

    def interrupt() -> None:
        if cluster.partitions[TopicPartition("a", 0)].assignment.is_being_reassigned:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(cluster, "_copy", interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
    try:
        assert run("execute", plan_file([3, 2]), "--throttle=1000") == 130
    finally:
        signal.signal(signal.SIGINT, before)
    error = capsys.readouterr().err
    assert "Interrupted. The reassignment continues." in error
    for action in ("verify", "cancel"):
        assert f"minikafka reassign {action} -b b:9001 --reassignment-json-file" in error
    assert cluster.changes().count(ApiKey.ALTER_PARTITION_REASSIGNMENTS) == 1
    assert cluster.configs[BROKER, "3"], "the throttle stays with it"


def test_on_a_terminal_there_is_a_table(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "25")
    monkeypatch.setenv("COLUMNS", "100")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    cluster.topic("a", *[(1, 2)] * 30)
    for each in cluster.partitions.values():
        each.assignment = each.assignment.reassign_to((3, 2))  # type: ignore[arg-type]
    left: dict[TopicPartition, int | None] = dict.fromkeys(cluster.partitions, 2_000_000)
    under_way = {key: each.assignment for key, each in cluster.partitions.items()}
    screen = Terminal()
    view = ProgressView(cluster.partitions, screen)
    view.show(Seen({}, under_way, left, {}, frozenset(cluster.live)), now_ms=0)
    left |= dict.fromkeys(cluster.partitions, 1_000_000)
    view.show(Seen({}, under_way, left, {}, frozenset(cluster.live)), now_ms=1000)
    view.end()
    text = screen.getvalue()
    assert "30 still moving, 60.0 MB left" in text
    assert "30 still moving, 30.0 MB left, 30.0 MB/s, about 1.0 s" in text
    assert "replicas 3,2, adding 3, removing 1" in text and "1.00 MB" in text
    assert "and 12 more" in text, "25 lines are not enough for all"


def test_verify_tells_done_from_moving_from_different(
    cluster: FakeCluster, plan_file: Any, capsys: Output
) -> None:
    cluster.topic("a", (1, 2), (1, 2), (1, 2))
    cluster.is_stuck = True
    cluster.partitions[TopicPartition("a", 1)].assignment = ReplicaAssignment(
        (3, 1, 2), adding=(3,), removing=(1,)
    )
    cluster.sizes[TopicPartition("a", 1), 3] = 100
    cluster.configs[BROKER, "1"] = {LEADER_RATE: "5"}
    plan = plan_file([1, 2], [3, 2], [2, 3])
    assert run("verify", plan) == 1
    assert capsys.readouterr().out.splitlines() == [
        "Status of partition reassignment:",
        "Reassignment of partition a-0 is completed.",
        "Reassignment of partition a-1 is still in progress: replicas 3,2, adding 3, removing 1, 200 B left.",
        "There is no active reassignment of partition a-2, but replica set is 1,2 rather than 2,3.",
        "1 is still moving in the cluster, so the throttle is kept; `minikafka reassign verify` removes it "
        "when all is done.",
    ]
    assert cluster.configs[BROKER, "1"] == {LEADER_RATE: "5"}
    cluster.live.remove(3)
    run("list")
    assert "waiting for broker 3, which is not registered" in capsys.readouterr().out


def test_verify_can_wait(cluster: FakeCluster, plan_file: Any, capsys: Output) -> None:
    cluster.topic("a", (1, 2))
    assert run("execute", plan_file([3, 2]), "--no-wait", "--throttle=1MiB") == 0
    assert run("verify", plan_file([3, 2]), "--wait") == 0
    assert "Reassignment of partition a-0 is completed." in capsys.readouterr().out
    assert not any(cluster.configs.values())


def test_a_stale_throttle_is_named_and_goes_away_when_asked(
    cluster: FakeCluster, plan_file: Any, capsys: Output
) -> None:
    cluster.topic("a", (1, 2))
    cluster.topic("b", (1, 2))
    cluster.configs = {(TOPIC, "b"): {LEADER_REPLICAS: "0:1"}, (BROKER, ""): {FOLLOWER_RATE: "7"}}
    assert run("list") == 0
    stale = [
        "Stale: nothing is being reassigned, and yet there is a throttle:",
        f"  topic b: {LEADER_REPLICAS}=0:1",
        f"  all brokers: {FOLLOWER_RATE}=7",
        "`minikafka reassign remove-throttles` removes what is stale.",
    ]
    assert capsys.readouterr().out.splitlines() == ["No partition reassignments found.", *stale]
    assert run("execute", plan_file([2, 1]), "--preserve-throttles") == 0
    captured = capsys.readouterr()
    assert f"a throttle from before is still set, topic b: {LEADER_REPLICAS}=0:1" in captured.err
    assert captured.out.splitlines()[-4:] == stale
    assert "1 of these is not led by the preferred leader yet; `minikafka elect-leaders" in captured.out
    assert run("remove-throttles") == 0
    assert not any(cluster.configs.values())
    capsys.readouterr()
    assert run("remove-throttles") == 0
    assert capsys.readouterr().out == "There is no throttle.\n"


def test_cancel_takes_back_what_is_under_way(cluster: FakeCluster, plan_file: Any, capsys: Output) -> None:
    cluster.topic("a", (1, 2), (1, 2))
    cluster.is_stuck = True
    plan = plan_file([3, 2], [2, 3])
    assert run("execute", plan, "--no-wait", "--throttle=1000") == 0
    assert run("cancel", plan_file([3, 2]), "--preserve-throttles") == 0
    assert cluster.replicas("a")[0] == (2, 1)
    assert TopicPartition("a", 0) not in [
        key for key, each in cluster.partitions.items() if each.assignment.is_being_reassigned
    ]
    assert cluster.configs[BROKER, "1"]
    assert run("cancel", "--all") == 0
    assert cluster.replicas("a") == [(2, 1), (2, 1)]
    assert not any(cluster.configs.values())
    out = capsys.readouterr().out
    assert "Successfully cancelled partition reassignment for: a-0" in out
    assert "Successfully cancelled partition reassignment for: a-1" in out
    assert run("cancel", plan) == 0
    assert "None of the specified partition reassignments are active." in capsys.readouterr().out


def test_replicas_move_between_log_directories(cluster: FakeCluster, plan_file: Any, capsys: Output) -> None:
    cluster.topic("a", (1, 2))
    plan = plan_file(
        {"topic": "a", "partition": 0, "replicas": [1, 3], "log_dirs": ["/b", "/b"]},
    )
    assert run("execute", plan, "--replica-alter-log-dirs-throttle=1kB") == 0
    assert cluster.replicas("a") == [(1, 3)]
    assert {cluster.paths[TopicPartition("a", 0), broker] for broker in (1, 3)} == {"/b"}
    out = capsys.readouterr().out
    (rollback,) = parse_plan(out.splitlines()[2])
    assert rollback.replicas == (1, 2)
    assert "Successfully started moving a-0 on broker 1 to /b" in out
    assert not any(cluster.configs.values())
    assert run("verify", plan) == 0
    assert "Replica a-0 on broker 3 is in /b." in capsys.readouterr().out


def test_the_controller_is_found_again_when_it_moves(
    cluster: FakeCluster, plan_file: Any, capsys: Output
) -> None:
    cluster.topic("a", (1, 2))
    cluster.moves_controller_to = 2
    assert run("list") == 0
    assert capsys.readouterr().out == "No partition reassignments found.\n"
    cluster.live.remove(1)
    assert reassign.main(["--list", "--bootstrap-server", "b:9001,b:9003"]) == 0, "another broker answers"


def test_generate_prints_two_plans_that_can_be_carried_out(
    cluster: FakeCluster, plan_file: Any, tmp_path: Path, capsys: Output
) -> None:
    cluster.topic("a", (1, 2), (2, 1), (1, 2))
    cluster.topic("b", (1,))
    output = tmp_path / "proposed.json"
    assert run("generate", "--topics=a", "--broker-list=1,2,3", f"--output={output}") == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0] == "Current partition replica assignment"
    assert [each.replicas for each in parse_plan(lines[1])] == [(1, 2), (2, 1), (1, 2)]
    assert lines[3] == "Proposed partition reassignment configuration"
    assert lines[4] == output.read_text().rstrip("\n")
    assert "2 replicas are copied" in captured.err
    assert run("execute", f"--reassignment-json-file={output}") == 0
    held = [broker for replicas in cluster.replicas("a") for broker in replicas]
    assert sorted(held) == [1, 1, 2, 2, 3, 3]


def test_generate_takes_kafkas_file_and_everything_by_default(
    cluster: FakeCluster, tmp_path: Path, capsys: Output
) -> None:
    cluster.topic("a", (1,), (1,), (1,))
    cluster.topic("b", (2,))
    topics = tmp_path / "topics.json"
    topics.write_text('{"version": 1, "topics": [{"topic": "b"}]}')
    assert (
        reassign.main(
            ["--generate", *SERVER, "--topics-to-move-json-file", str(topics), "--broker-list", "3"]
        )
        == 0
    )
    (planned,) = parse_plan(capsys.readouterr().out.splitlines()[4])
    assert planned.replicas == (3,)
    assert run("generate", "--replication-factor=2") == 0
    assert [len(each.replicas) for each in parse_plan(capsys.readouterr().out.splitlines()[4])] == [2] * 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--topics=a,nothing"], "there is no topic nothing"),
        (["--broker-list=1,9"], "broker 9 is not registered"),
        (["--broker-list=1"], "a-0: 2 replicas on 1 brokers is not possible"),
    ],
)
def test_what_cannot_be_planned_is_named(
    cluster: FakeCluster, capsys: Output, arguments: list[str], said: str
) -> None:
    cluster.topic("a", (1, 2))
    assert run("generate", *arguments) == 1
    assert said in capsys.readouterr().err


def test_racks_must_be_known_of_all_or_left_aside(cluster: FakeCluster, capsys: Output) -> None:
    cluster.topic("a", (1, 2))
    cluster.racks[3] = "x"
    assert run("generate") == 1
    assert "broker 1, 2 has no rack, others have; --disable-rack-aware" in capsys.readouterr().err
    assert run("generate", "--disable-rack-aware") == 0


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["exeute"],
        ["execute"],
        ["verify"],
        ["cancel"],
        ["cancel", "--all", "--reassignment-json-file=x"],
        ["execute", "--reassignment-json-file=x", "--throttle=fast"],
        ["generate", "--broker-list=1,x"],
        ["generate", "--broker-list=1,1"],
        ["generate", "--topics=a", "--topics-to-move-json-file=x"],
        ["list", "-b", "localhost:x"],
        ["list", "--throttle=1"],
    ],
)
def test_bad_usage_is_status_2(arguments: list[str], capsys: Output) -> None:
    with pytest.raises(SystemExit) as left:
        reassign.main(arguments)
    assert left.value.code == 2
    assert "usage: minikafka reassign" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_one_line(cluster: FakeCluster, capsys: Output) -> None:
    assert run("verify", "--reassignment-json-file=/nowhere/plan.json") == 1
    assert capsys.readouterr().err == (
        "minikafka reassign: cannot read /nowhere/plan.json: No such file or directory\n"
    )
