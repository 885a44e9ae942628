"""``minikafka groups``: what it shows, what it changes, what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minikafka.cli.groups import main, read_assignment
from minikafka.clock import ManualClock
from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.types import TopicPartition
from tests.unit.cli.conftest import cells
from tests.unit.cli.fake_groups import HOUR_MS, FakeGroups

T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def cluster(talk_to: Callable[[FakeGroups], None]) -> FakeGroups:
    """A topic with two partitions; a classic group with a member, one of KIP-848, and one that is empty."""
    fake = FakeGroups()
    fake.topic("orders", (1, 2), (2, 1))
    fake.logs = {T0: (10, 100, 90), T1: (0, 50, -1)}
    fake.group("busy", m1={"orders": [0]}, m2={"orders": [1]}).committed = {T0: 95}
    fake.group("modern", kind="consumer", coordinator=3, m3={"orders": [1, 0]}).committed = {T0: 100, T1: 20}
    fake.group("idle", coordinator=1).committed = {T0: 40, T1: 30}
    talk_to(fake)
    return fake


@pytest.fixture
def groups(cluster: FakeGroups, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the command: exit status, standard output's lines, standard error."""

    def run(*arguments: str) -> tuple[int, list[str], str]:
        status = main([*arguments, "-b", "b:9001"], clock=ManualClock())
        output = capsys.readouterr()
        return status, output.out.splitlines(), output.err

    return run


def test_groups_of_all_brokers_are_listed_with_type_and_state(groups: Any) -> None:
    status, lines, _ = groups("list")
    assert status == 0
    assert cells(lines) == [
        ["GROUP", "TYPE", "PROTOCOL", "STATE"],
        ["busy", "classic", "consumer", "Stable"],
        ["idle", "classic", "consumer", "Empty"],
        ["modern", "consumer", "consumer", "Stable"],
    ]
    assert [each[0] for each in cells(groups("--list", "--state", "Empty, Dead")[1])] == ["GROUP", "idle"]
    listed = json.loads("".join(groups("list", "--type", "consumer", "--json")[1]))
    assert [each["group"] for each in listed] == ["modern"]


def test_a_group_is_described_with_its_lag_and_who_reads(groups: Any) -> None:
    status, lines, _ = groups("describe", "--group", "busy")
    assert status == 0
    assert cells(lines)[1:] == [
        ["busy", "orders", "0", "95", "100", "5", "m1", "/10.0.0.1", "app"],
        ["busy", "orders", "1", "-", "50", "-", "m2", "/10.0.0.1", "app"],
    ]
    _, lines, _ = groups("describe", "--group", "idle")
    assert lines[0] == "Group idle has no members."
    assert cells(lines)[2] == ["idle", "orders", "0", "40", "100", "60", "-", "-", "-"]


def test_members_without_partitions_are_shown_too(groups: Any, cluster: FakeGroups) -> None:
    cluster.group("spare", m1={"orders": [0]}, m2={}).committed = {T0: 95}
    _, lines, _ = groups("describe", "--group", "spare")
    assert cells(lines)[1:] == [
        ["spare", "orders", "0", "95", "100", "5", "m1", "/10.0.0.1", "app"],
        ["spare", *["-"] * 5, "m2", "/10.0.0.1", "app"],
    ]


@pytest.mark.parametrize(("kind", "state"), [("classic", "PreparingRebalance"), ("consumer", "Assigning")])
def test_a_group_that_is_joining_shows_who_joins(
    groups: Any, cluster: FakeGroups, kind: str, state: str
) -> None:
    """No member owns a partition yet, and nothing is committed: there was no line at all."""
    cluster.group("new", kind=kind, m1={}, m2={}).is_joining = True
    status, lines, _ = groups("describe", "--group", "new")
    assert (status, lines[0]) == (0, f"Group new is rebalancing ({state}).")
    assert [each[6] for each in cells(lines)[2:]] == ["m1", "m2"]


def test_members_and_state_of_both_protocols(groups: Any) -> None:
    _, lines, _ = groups("describe", "--group", "modern", "--members", "--verbose")
    assert cells(lines)[1] == ["modern", "m3", "static", "/10.0.0.1", "app", "2", "orders(0,1)"]
    _, lines, _ = groups("describe", "--all-groups", "--state")
    assert [line.split()[-4:] for line in lines if "9" in line] == [
        ["(2)", "range", "Stable", "2"],
        ["(1)", "range", "Empty", "0"],
        ["(3)", "uniform", "Stable", "1"],
    ]
    (described,) = json.loads("".join(groups("describe", "--group", "modern", "--json")[1]))
    assert (described["group"]["state"], described["positions"][1]["lag"]) == ("Stable", 30)


def test_a_group_that_does_not_exist_is_one_clear_line(groups: Any) -> None:
    status, lines, error = groups("describe", "--group", "absent")
    assert (status, lines) == (1, [])
    assert error == "minikafka groups: absent: Group absent not found. (GROUP_ID_NOT_FOUND)\n"


@pytest.mark.parametrize(
    ("option", "new", "note"),
    [
        (["--to-earliest"], {T0: 10, T1: 0}, ""),
        (["--to-latest"], {T0: 100, T1: 50}, ""),
        (["--to-current"], {T0: 40, T1: 30}, ""),
        (["--shift-by", "5"], {T0: 45, T1: 35}, ""),
        (["--shift-by", "-35"], {T0: 10, T1: 0}, "before the log's start"),
        (["--shift-by", "30"], {T0: 70, T1: 50}, "behind the log's end"),
        (["--to-offset", "20"], {T0: 20, T1: 20}, ""),
        (["--to-offset", "60"], {T0: 60, T1: 50}, "60 is behind the log's end"),
        (["--to-datetime", "2023-11-14T22:13:20.000"], {T0: 90, T1: 50}, ""),
        (["--by-duration", "PT1H"], {T0: 90, T1: 50}, ""),
    ],
)
def test_a_reset_shows_first_and_changes_only_with_execute(
    groups: Any, cluster: FakeGroups, option: list[str], new: dict[TopicPartition, int], note: str
) -> None:
    before = dict(cluster.groups["idle"].committed)
    reset = ["reset-offsets", "--group", "idle", "--topic", "orders", *option]
    status, lines, error = groups(*reset)
    assert (status, cluster.groups["idle"].committed) == (0, before)
    assert "--execute does it" in error and note in "".join(lines)
    assert {int(line.split()[2]): int(line.split()[4]) for line in lines[1:]} == {0: new[T0], 1: new[T1]}
    status, executed, error = groups(*reset, "--execute")
    assert (status, executed, error) == (0, lines, "")
    assert cluster.groups["idle"].committed == new


def test_the_time_of_a_duration_is_counted_back_from_now(groups: Any, cluster: FakeGroups) -> None:
    groups("reset-offsets", "--group", "idle", "--topic", "orders:1", "--by-duration", "PT1H")
    asked = cluster.requests(ApiKey.LIST_OFFSETS)[-1].topics[0].partitions
    assert [(each.partition_index, each.timestamp) for each in asked] == [
        (1, ManualClock().now_ms() - HOUR_MS)
    ]


def test_a_group_with_members_is_left_alone(groups: Any, cluster: FakeGroups) -> None:
    for name in ("busy", "modern"):
        status, lines, error = groups(
            "reset-offsets", "--group", name, "--topic", "orders", "--to-latest", "--execute"
        )
        assert (status, lines) == (1, [])
        assert "while the group has no members; it is Stable" in error
        status, _, error = groups("delete", "--group", name)
        assert status == 1 and "NON_EMPTY_GROUP" in error
    assert cluster.requests(ApiKey.OFFSET_COMMIT) == []


def test_one_partition_all_topics_and_a_group_that_is_made(groups: Any, cluster: FakeGroups) -> None:
    groups("reset-offsets", "--group", "idle", "--topic", "orders:1", "--to-latest", "--execute")
    assert cluster.groups["idle"].committed == {T0: 40, T1: 50}
    groups("reset-offsets", "--group", "idle", "--all-topics", "--to-earliest", "--execute")
    assert cluster.groups["idle"].committed == {T0: 10, T1: 0}
    groups("reset-offsets", "--group", "new", "--topic", "orders", "--to-latest", "--execute")
    assert cluster.groups["new"].committed == {T0: 100, T1: 50}


def test_what_cannot_be_reset_is_said_and_nothing_of_the_group_is_changed(
    groups: Any, cluster: FakeGroups
) -> None:
    def refusal(*options: str) -> str:
        status, _, error = groups("reset-offsets", "--group", "new", *options, "--execute")
        assert status == 1
        return str(error)

    assert "nothing is committed that could be shifted" in refusal("--topic", "orders", "--shift-by", "1")
    assert "there is no topic sales" in refusal("--topic", "sales", "--to-latest")
    assert "there is no partition orders-7" in refusal("--topic", "orders:7", "--to-latest")
    del cluster.logs[T1]
    assert "orders-1: NOT_LEADER_OR_FOLLOWER" in refusal("--topic", "orders", "--to-latest")
    assert cluster.requests(ApiKey.OFFSET_COMMIT) == []


def test_a_partition_whose_commit_is_refused_is_named(groups: Any, cluster: FakeGroups) -> None:
    cluster.refuses_commits = {T1: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    status, lines, error = groups(
        "reset-offsets", "--group", "idle", "--topic", "orders", "--to-latest", "--execute"
    )
    assert status == 1 and "idle: orders-1: OFFSET_METADATA_TOO_LARGE" in error
    assert len(lines) == 2, "the other one was changed"


def test_a_coordinator_that_moves_is_asked_again(groups: Any, cluster: FakeGroups) -> None:
    cluster.moves = 3
    assert groups("delete", "--group", "idle")[:2] == (0, ["Deleted group idle."])
    cluster.moves = 1
    assert groups("describe", "--group", "busy")[0] == 0


def test_deleting_continues_after_a_refusal(groups: Any, cluster: FakeGroups) -> None:
    status, lines, error = groups("delete", "--group", "absent", "--group", "idle")
    assert (status, lines) == (1, ["Deleted group idle."])
    assert "absent: GROUP_ID_NOT_FOUND" in error
    assert "idle" not in cluster.groups


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["describe"],
        ["describe", "--group", "g", "--all-groups"],
        ["reset-offsets", "--group", "g", "--to-latest"],
        ["reset-offsets", "--group", "g", "--topic", "t"],
        ["reset-offsets", "--group", "g", "--topic", "t", "--to-latest", "--to-earliest"],
        ["reset-offsets", "--group", "g", "--topic", "t", "--to-datetime", "yesterday"],
        ["reset-offsets", "--group", "g", "--topic", "t", "--by-duration", "1h"],
        ["reset-offsets", "--group", "g", "--topic", "t", "--by-duration", "P"],
        ["reset-offsets", "--group", "g", "--topic", "t:x", "--to-latest"],
        ["reset-offsets", "--group", "g", "--topic", "t", "--to-latest", "--dry-run", "--execute"],
        ["list", "--bootstrap-server", "host:port"],
    ],
)
def test_bad_usage_is_told_before_anything_is_asked(arguments: list[str], cluster: FakeGroups) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert cluster.asked == []


def test_an_assignment_that_is_none_has_no_partitions() -> None:
    for data in (
        b"",
        b"\0",
        b"\0\0\0\0\0\1\0\5or",
        b"\0\0\x7f\xff\xff\xff",
        b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff",
    ):
        assert read_assignment(data) == {}


def test_what_was_exported_is_what_a_file_resets(groups: Any, cluster: FakeGroups, tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    one = ["reset-offsets", "--group", "idle"]
    status, lines, _ = groups(*one, "--all-topics", "--to-current", "--export")
    assert (status, lines) == (0, ["orders,0,40", "orders,1,30"])
    file.write_text("orders,1,7\n\n")
    status, lines, _ = groups(*one, "--from-file", str(file), "--execute")
    assert cells(lines)[1:] == [["idle", "orders", "1", "30", "7"]]
    assert cluster.groups["idle"].committed == {T0: 40, T1: 7}
    cluster.group("second").committed = {T0: 50}
    both = [*one, "--group", "second"]
    lines = groups(*both, "--all-topics", "--to-earliest", "--export")[1]
    assert lines == ["idle,orders,0,10", "idle,orders,1,0", "second,orders,0,10"]
    file.write_text("second,orders,0,60\nidle,orders,0,61\n")
    assert groups(*both, "--from-file", str(file), "--execute")[0] == 0
    assert [cluster.groups[name].committed[T0] for name in ("idle", "second")] == [61, 60]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("orders,0\n", "line 1: must be TOPIC,PARTITION,OFFSET"),
        ("orders,0,1\norders,one,2\n", "line 2: partition and offset must be numbers"),
        (None, "No such file or directory"),
    ],
)
def test_a_bad_file_of_offsets_is_refused_by_its_line(
    groups: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], written: str | None, said: str
) -> None:
    file = tmp_path / "offsets.csv"
    if written is not None:
        file.write_text(written)
    with pytest.raises(SystemExit):
        groups("reset-offsets", "--group", "idle", "--from-file", str(file))
    assert said in capsys.readouterr().err


def test_a_file_names_its_partitions_itself(
    groups: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text("orders,9,1\n")
    for more in (["--all-topics", "--from-file", str(file)], ["--to-latest"]):
        with pytest.raises(SystemExit):
            groups("reset-offsets", "--group", "idle", *more)
        assert "--topic or --all-topics, or --from-file" in capsys.readouterr().err
    status, _, error = groups("reset-offsets", "--group", "idle", "--from-file", str(file))
    assert status == 1 and "there is no partition orders-9" in error
