"""``minikafka share``: what it shows, what it changes, what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from minikafka.cli.groups import main as groups_main
from minikafka.cli.share import main
from minikafka.clock import ManualClock
from minikafka.errors import ErrorCode
from minikafka.types import TopicPartition
from tests.unit.cli.conftest import cells
from tests.unit.cli.fake_groups import FakeGroups

T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def cluster(talk_to: Callable[[FakeGroups], None]) -> FakeGroups:
    """A topic with two partitions; a share group with two members, one that is empty, a classic group."""
    fake = FakeGroups()
    fake.topic("orders", (1, 2), (2, 1))
    fake.logs = {T0: (10, 100, 90), T1: (0, 50, -1)}
    fake.group("busy", kind="share", m1={"orders": [0, 1]}, m2={"orders": [0]}).committed = {T0: 95, T1: -1}
    fake.group("idle", kind="share", coordinator=1).committed = {T0: 40, T1: -1}
    fake.group("classic", m={"orders": [0]})
    talk_to(fake)
    return fake


@pytest.fixture
def share(cluster: FakeGroups, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the command: exit status, standard output's lines, standard error."""

    def run(*arguments: str, tool: Callable[..., int] = main) -> tuple[int, list[str], str]:
        status = tool([*arguments, "-b", "b:9001"], clock=ManualClock())
        output = capsys.readouterr()
        return status, output.out.splitlines(), output.err

    return run


def test_share_groups_alone_are_listed(share: Any) -> None:
    assert [each[:2] for each in cells(share("list")[1])[1:]] == [["busy", "share"], ["idle", "share"]]
    assert [each[0] for each in cells(share("--list", "--state", "Empty")[1])] == ["GROUP", "idle"]


def test_a_group_is_described_by_offsets_members_and_state(share: Any) -> None:
    _, lines, _ = share("describe", "--group", "busy")
    assert cells(lines) == [
        ["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"],
        ["busy", "orders", "0", "95", "5"],
        ["busy", "orders", "1", "-", "-"],
    ]
    assert cells(share("--describe", "--group", "busy", "--verbose")[1])[1] == [
        "busy", "orders", "0", "4", "95", "5",
    ]  # fmt: skip
    assert share("describe", "--group", "idle")[1][0] == "Share group idle has no members."
    members = cells(share("describe", "--group", "busy", "--members", "--verbose")[1])
    assert [each[-1] for each in members[1:]] == ["orders(0,1)", "orders(0)"]
    assert cells(share("describe", "--group", "busy", "--state")[1])[1][-3:] == ["simple", "Stable", "2"]
    described = json.loads("".join(share("describe", "--all-groups", "--json")[1]))
    assert [each["group"]["group"] for each in described] == ["busy", "idle"]


def test_a_group_of_another_kind_is_none(share: Any) -> None:
    for name in ("classic", "nowhere"):
        status, _, error = share("describe", "--group", name)
        assert status == 1 and "GROUP_ID_NOT_FOUND" in error


def test_a_reset_shows_first_and_changes_only_with_execute(share: Any, cluster: FakeGroups) -> None:
    reset = ["reset-offsets", "--group", "idle", "--all-topics", "--to-earliest"]
    status, lines, error = share(*reset)
    assert (status, cluster.groups["idle"].committed) == (0, {T0: 40, T1: -1})
    assert error == "minikafka share: nothing was changed: --execute does it\n"
    assert cells(lines)[1:] == [["idle", "orders", "0", "40", "10"], ["idle", "orders", "1", "-", "0"]]
    assert share(*reset, "--execute") == (0, lines, "")
    assert cluster.groups["idle"].committed == {T0: 10, T1: 0}
    cluster.refuses_commits = {T1: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    status, _, error = share(*reset[:3], "--topic", "orders", "--to-latest", "--execute")
    assert status == 1 and "orders-1: COORDINATOR_NOT_AVAILABLE" in error


def test_a_group_with_members_is_left_alone(share: Any) -> None:
    status, _, error = share("reset-offsets", "--group", "busy", "--all-topics", "--to-latest", "--execute")
    assert status == 1 and "while the group has no members; it is Stable" in error
    status, _, error = share("delete", "--group", "busy")
    assert status == 1 and "NON_EMPTY_GROUP" in error


def test_offsets_of_topics_and_groups_are_deleted(share: Any, cluster: FakeGroups) -> None:
    status, lines, error = share("delete-offsets", "--group", "idle", "--topic", "orders", "--topic", "sales")
    assert (status, lines) == (1, ["Deleted the offsets of orders of share group idle."])
    assert "idle: sales: there is no such topic (UNKNOWN_TOPIC_OR_PARTITION)" in error
    assert cluster.groups["idle"].committed == {}
    assert share("--delete", "--group", "idle")[:2] == (0, ["Deleted group idle."])
    assert share("delete-offsets", "--group", "idle", "--topic", "orders")[0] == 1


def test_all_groups_of_the_consumers_tool_are_no_share_groups(share: Any, cluster: FakeGroups) -> None:
    cluster.group("old").committed = {T0: 1}
    status, lines, _ = share("delete", "--all-groups", tool=groups_main)
    assert (status, lines) == (1, ["Deleted group old."])
    assert cluster.groups.keys() == {"busy", "idle", "classic"}
