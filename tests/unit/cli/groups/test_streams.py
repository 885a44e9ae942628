"""``minikafka streams``: what it shows, what it changes, what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from minikafka.cli.groups import main as groups_main
from minikafka.cli.streams import main
from minikafka.clock import ManualClock
from minikafka.errors import ErrorCode
from minikafka.types import TopicPartition
from tests.unit.cli.conftest import cells
from tests.unit.cli.fake_groups import FakeGroups

T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
AGAIN = "idle-again-repartition"


@pytest.fixture
def cluster(talk_to: Callable[[FakeGroups], None]) -> FakeGroups:
    """A topic with two partitions; a streams group with two members, one that is empty, a classic group."""
    fake = FakeGroups()
    fake.topic("orders", (1, 2), (2, 1))
    fake.topic("busy-again-repartition", (1, 2), (2, 1))
    fake.topic(AGAIN, (1, 2))
    fake.logs = {T0: (10, 100, 90), T1: (5, 50, -1), TopicPartition(AGAIN, 0): (0, 9, -1)}
    fake.group("busy", kind="streams", m1={"0": [0, 1]}, m2={"1": [0]}).committed = {T0: 95}
    fake.group("idle", kind="streams", coordinator=1).committed = {T0: 40, TopicPartition(AGAIN, 0): 3}
    fake.group("classic", m={"orders": [0]})
    fake.internal_topics = {AGAIN}
    talk_to(fake)
    return fake


@pytest.fixture
def streams(cluster: FakeGroups, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the command: exit status, standard output's lines, standard error."""

    def run(*arguments: str, tool: Callable[..., int] = main) -> tuple[int, list[str], str]:
        status = tool([*arguments, "-b", "b:9001"], clock=ManualClock())
        output = capsys.readouterr()
        return status, output.out.splitlines(), output.err

    return run


def test_streams_groups_alone_are_listed(streams: Any) -> None:
    assert cells(streams("list")[1]) == [["GROUP", "STATE"], ["busy", "Stable"], ["idle", "Empty"]]
    assert [each[0] for each in cells(streams("--list", "--state", "Empty")[1])] == ["GROUP", "idle"]


def test_the_lag_counts_from_the_first_record_where_nothing_is_committed(streams: Any) -> None:
    _, lines, _ = streams("describe", "--group", "busy", "--verbose")
    heads = "GROUP TOPIC PARTITION CURRENT-OFFSET LEADER-EPOCH LOG-END-OFFSET OFFSET-LAG"
    assert cells(lines) == [
        heads.split(),
        ["busy", "busy-again-repartition", "0", "-", "-", "-", "-"],
        ["busy", "orders", "0", "95", "-", "100", "5"],
        ["busy", "orders", "1", "-", "-", "50", "45"],
    ]
    lines = streams("--describe", "--group", "idle")[1]
    assert lines[0] == "Streams group idle has no members."
    assert cells(lines)[1:] == [
        ["GROUP", "TOPIC", "PARTITION", "OFFSET-LAG"],
        ["idle", AGAIN, "0", "6"],
        ["idle", "orders", "0", "60"],
    ]


def test_members_are_shown_with_the_tasks_that_they_have_and_shall_have(streams: Any) -> None:
    _, lines, _ = streams("describe", "--group", "busy", "--members")
    assert [line.split(maxsplit=4) for line in lines[1:]] == [
        ["busy", "m1", "process", "app", "ACTIVE: 0:[0,1];"],
        ["busy", "m2", "process", "app", "ACTIVE: 1:[0];"],
    ]
    _, lines, _ = streams("describe", "--group", "busy", "--members", "--verbose")
    assert lines[1].split(maxsplit=8) == [
        *("busy", "2", "0", "m1", "streams", "2", "process", "app"),
        "ACTIVE: 0:[0,1]; TARGET-ACTIVE: 0:[0];",
    ]
    assert streams("describe", "--group", "idle", "--members")[1] == ["Streams group idle has no members."]
    state = cells(streams("describe", "--group", "busy", "--state", "--verbose")[1])[1]
    assert state[-5:] == ["sticky", "Stable", "3", "2", "2"]
    described = json.loads("".join(streams("describe", "--all-groups", "--json")[1]))
    assert [each["group"]["group"] for each in described] == ["busy", "idle"]


def test_a_group_of_another_kind_is_none_for_every_action(streams: Any, cluster: FakeGroups) -> None:
    for name in ("classic", "nowhere"):
        for action in (
            ["describe", "--group", name],
            ["reset-offsets", "--group", name, "--input-topic", "orders", "--to-latest", "--execute"],
            ["delete-offsets", "--group", name, "--input-topic", "orders"],
            ["delete", "--group", name],
        ):
            status, lines, error = streams(*action)
            assert (status, lines) == (1, []) and "GROUP_ID_NOT_FOUND" in error, action
    assert cluster.groups.keys() == {"busy", "idle", "classic"}


def test_a_reset_moves_input_topics_and_deletes_internal_ones_when_asked(
    streams: Any, cluster: FakeGroups
) -> None:
    reset = ["reset-offsets", "--group", "idle", "--all-input-topics", "--to-earliest"]
    status, lines, error = streams(*reset)
    assert (status, cells(lines)[1:]) == (0, [["idle", "orders", "0", "40", "10"]])
    assert error == "minikafka streams: nothing was changed: --execute does it\n"
    with pytest.raises(SystemExit):
        streams(*reset, "--delete-all-internal-topics")
    status, lines, error = streams(*reset, "--execute", "--delete-internal-topic", "orders")
    assert status == 1 and "orders: not an internal topic of the group" in error
    assert cluster.groups["idle"].committed[T0] == 40, "nothing is reset when the whole cannot be done"
    assert streams(*reset, "--execute", "--delete-internal-topic", AGAIN)[1][-1] == f"Deleted topic {AGAIN}."
    assert cluster.groups["idle"].committed[T0] == 10 and cluster.internal_topics == set()
    status, _, error = streams(*reset, "--execute", "--delete-all-internal-topics")
    assert status == 1 and f"{AGAIN}: there is no such topic" in error
    status, _, error = streams(*reset[:2], "busy", *reset[3:], "--execute")
    assert status == 1 and "while the group has no members; it is Stable" in error


def test_offsets_and_groups_are_deleted(streams: Any, cluster: FakeGroups) -> None:
    forget = ["delete-offsets", "--group", "idle"]
    cluster.refuses_commits = {T1: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    status, lines, error = streams(*forget, "--input-topic", "orders")
    assert (status, cells(lines)[1:]) == (1, [["idle", "orders", "0"]])
    assert "idle: orders-1: " in error and "GROUP_SUBSCRIBED_TO_TOPIC" in error
    assert cluster.groups["idle"].committed.keys() == {TopicPartition(AGAIN, 0)}
    assert streams(*forget, "--all-input-topics") == (0, [], ""), "there is nothing left"
    status, lines, error = streams("delete", "--all-groups", "--delete-all-internal-topics")
    assert (status, lines) == (1, ["Deleted group idle.", f"Deleted topic {AGAIN}."])
    assert "busy: " in error and "NON_EMPTY_GROUP" in error, "nor are its topics deleted"


def test_all_groups_of_the_consumers_tool_are_no_streams_groups(streams: Any, cluster: FakeGroups) -> None:
    cluster.group("old").committed = {T0: 1}
    streams("delete", "--all-groups", tool=groups_main)
    assert cluster.groups.keys() == {"busy", "idle", "classic"}
