"""``minikafka events``: events of several brokers in one order, from their files and from themselves."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from minikafka.cli.events import main, parse_since
from minikafka.clock import ManualClock
from minikafka.files import OsFiles
from minikafka.flight_recorder import CURRENT_NAME, Event, EventFile, EventRing, GroupRebalanced, IsrChanged
from minikafka.testing import Broker

NOW_MS = 1_767_225_600_000


def isr(*members: int, topic: str = "orders") -> IsrChanged:
    return IsrChanged(
        topic=topic, partition=0, isr=members, previous_isr=(1, 2), leader_epoch=5, cause="broker 2 lags"
    )


def write(directory: Path, broker: int, *events: tuple[int, Event]) -> str:
    """Events of a broker that is down; each at some milliseconds after ``NOW_MS``."""
    directory.mkdir()
    clock = ManualClock(start_ms=NOW_MS)
    ring = EventRing(clock, bytes_max=1 << 20)
    for at_ms, event in events:
        clock._now_ms = NOW_MS + at_ms
        ring.add(event)
    file = EventFile(str(directory), files=OsFiles(), broker=broker, bytes_max=1 << 20)
    file.append(ring.after(0))
    file.close()
    return str(directory)


def rows(text: str) -> list[list[str]]:
    return [re.split(r"  +", line) for line in text.splitlines()]


def test_events_of_several_brokers_are_in_one_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = write(tmp_path / "1", 1, (10, isr(1)), (30, isr(1, 2)))
    # The clock of broker 2 goes back by 20 ms between its events: they stay in their order.
    two = write(tmp_path / "2", 2, (25, isr(2)), (5, isr(2, 3)), (40, isr(2, 3, 1)))
    assert main(["--log-dir", one, "--log-dir", two]) == 0
    head, *lines = rows(capsys.readouterr().out)
    assert head == ["TIME", "BROKER", "KIND", "SUBJECT", "WHAT"]
    assert [(line[1], line[4].split(":")[0]) for line in lines] == [
        ("1", "ISR 1 after 1,2"),
        ("2", "ISR 2 after 1,2"),
        ("2", "ISR 2,3 after 1,2"),
        ("1", "ISR 1,2 after 1,2"),
        ("2", "ISR 2,3,1 after 1,2"),
    ]
    assert lines[0][0] == "2026-01-01T00:00:00.010Z"


def test_filters_choose_and_json_has_the_fields(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rebalance = GroupRebalanced(group="app", generation=3, members=2, cause="member a\x1b[2J joins")
    one = write(tmp_path / "1", 1, (0, isr(1)), (1, isr(1, topic="payments")), (2, rebalance))
    assert main(["--log-dir", one, "--topic", "payments", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    event = json.loads(line)
    assert (event["broker"], event["kind"], event["event"]["isr"]) == (1, "isr", [1])
    assert main(["--log-dir", one, "--kind", "rebalance"]) == 0
    assert r"member a\x1b[2J joins" in capsys.readouterr().out, "a client's bytes do not reach the terminal"
    assert main(["--log-dir", one, "--broker", "2"]) == 0
    assert capsys.readouterr() == ("", "There is no such event in the files.\n")


def test_a_directory_without_events_and_a_file_of_another_version_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--log-dir", str(tmp_path)]) == 1
    assert f"there is no {CURRENT_NAME} in {tmp_path}" in capsys.readouterr().err
    (tmp_path / CURRENT_NAME).write_text('{"format":"minikafka-events","version":7,"broker":1}\n')
    assert main(["--log-dir", str(tmp_path)]) == 1
    assert "has version 7 of the format" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--kind", "elections"], "there is no such kind; there are started"),
        (["--since", "yesterday"], "must be like 90s, 15m"),
        (["--broker", "x"], "must be broker ids"),
        (["--log-dir", "/tmp", "--follow"], "--log-dir reads files once"),
    ],
)
def test_bad_usage_says_what_is_right(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2
    assert said in capsys.readouterr().err


def test_since_is_a_duration_or_a_time() -> None:
    assert parse_since("90s", now_ms=NOW_MS) == NOW_MS - 90_000
    assert parse_since("2h", now_ms=NOW_MS) == NOW_MS - 7_200_000
    assert parse_since("2026-01-01T01:00:00+01:00", now_ms=0) == NOW_MS


async def test_a_broker_tells_what_it_did_since_it_started(capsys: pytest.CaptureFixture[str]) -> None:
    async with Broker() as broker:
        arguments = ["-b", f"127.0.0.1:{broker.port}", "--kind", "started,controller"]
        assert await asyncio.to_thread(main, arguments) == 0
    lines = rows(capsys.readouterr().out)[1:]
    assert [(line[2], line[4]) for line in lines] == [
        ("started", lines[0][4]),
        ("controller", "is the controller of epoch 1"),
    ]


async def test_a_broker_that_records_nothing_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    async with Broker(config={"event.recorder.max.bytes": 0}) as broker:
        assert await asyncio.to_thread(main, ["-b", f"127.0.0.1:{broker.port}"]) == 1
    assert "it records nothing (event.recorder.max.bytes=0)" in capsys.readouterr().err
