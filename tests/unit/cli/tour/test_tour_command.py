"""``minikafka tour``: lists, tells, waits for its reader; and what it costs those that do not ask for it."""

from __future__ import annotations

import gc
import io
import subprocess
import sys
from collections.abc import Callable

import pytest
from rich.console import Console

from minikafka.cli.tour import PICTURE_S, STORIES, WORDS_PER_SECOND, Entry, command, stage
from minikafka.cli.tour.drawing import render
from minikafka.cli.tour.stage import Replica, Span, Step, Supposition
from minikafka.errors import InvariantError
from tests.unit.cli.tour.steps import a_log, a_long_log, a_step


def text_of(step: Step) -> list[str]:
    console = Console(file=io.StringIO(), width=110)
    console.print(render(step))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_without_a_story_it_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([]) == 0
    out = capsys.readouterr().out
    assert all(f"  {each.name} " in out and each.summary in out for each in STORIES)


def test_the_list_loads_no_broker() -> None:
    code = "import sys; from minikafka.cli.main import main; main(['tour']); print(*sorted(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(result.stdout.splitlines()[-1].split())
    assert loaded.isdisjoint({"asyncio", "rich", "minikafka.server", "minikafka.testing"})


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["acks"], "there is no story 'acks': there are acks-all, "),
        (["--step"], "which story?"),
        (["acks-all", "--speed", "-1"], "'-1' is no number from 0 to 1000"),
        (["acks-all", "--speed", "nan"], "'nan' is no number from 0 to 1000"),
        (["acks-all", "--speed", "2", "--step"], "not allowed with"),
        (["acks-all", "--step"], "standard input is none"),
        (["acks-all", "--step", "--html", "page.html"], "not with --step"),
        (["--speed", "0", "--html", "page.html"], "a --speed above 0"),
    ],
)
def test_bad_usage_is_named(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(SystemExit) as raised:
        command.main(arguments)
    assert raised.value.code == 2
    assert complaint in capsys.readouterr().err


def test_a_line_for_each_replica_with_a_thick_line_at_its_high_watermark() -> None:
    leader = Replica(1, "leader", 0, a_log("m0", "m1", high_watermark=1), ((2, 1),))
    follower = Replica(2, "follower", 0, a_log("m0", high_watermark=0))
    dead = Replica(3, "down", log=a_log("m0", high_watermark=-1))
    lines = text_of(a_step(leader, follower, dead))
    assert lines[0].startswith("1. Something happens ")
    assert lines[1] == "Because it does."
    assert lines[3:] == [
        "  at 1.234 s · controller broker 4 (epoch 1) · broker 3 is down",
        "  story-0: broker 1 leads in epoch 0 · ISR 1 2 · replicas 1 2",
        "  offset               │0    │1    │",
        "  broker 1 leader e0   │m0 e0┃m1 e0│  HW 1 LEO 2",
        "  broker 2 follower e0 ┃m0 e0│        HW 0 LEO 1",
        "  broker 3 is down     │m0 e0│        LEO 1",
        "  broker 1 knows: broker 2 has all below 1",
        "  → a fact",
        "",
    ]


def test_who_leads_no_more_and_does_not_know_it_is_marked() -> None:
    lines = text_of(a_step(Replica(2, "leader", 0, a_log("m0", high_watermark=1))))
    assert "  broker 2 leader e0 (deposed) │m0 e0┃  HW 1 LEO 1" in lines


def test_a_log_of_many_records_is_a_bar() -> None:
    whole = a_long_log(Span(0, 0, 100), Span(1, 100, 200), high_watermark=150, size_bytes=2_000_000)
    half = a_long_log(Span(0, 0, 100), high_watermark=100, size_bytes=1_000_000)
    lines = text_of(a_step(Replica(1, "leader", 1, whole), Replica(2, "follower", 1, half)))
    bars = [line for line in lines if "█" in line]
    assert bars == [
        "  broker 1 leader e1   " + "█" * 20 + "▒" * 6 + "  e0[0..99] e1[100..199] HW 150 LEO 200, 2.00 MB",
        "  broker 2 follower e1 " + "█" * 13 + " " * 13 + "  e0[0..99] HW 100 LEO 100, 1.00 MB",
    ]


def test_what_would_have_been_stands_apart_and_says_so() -> None:
    log = a_log("m0", "m1", high_watermark=1)
    supposed = Supposition("if it cut to its HW", (Replica(2, "follower", 0, log.cut(1)),))
    lines = text_of(a_step(Replica(2, "follower", 0, log), suppositions=(supposed,)))
    at = lines.index("  if it cut to its HW")
    assert lines[at + 2] == "  broker 2 follower e0 │m0 e0┃  HW 1 LEO 1"


def telling(monkeypatch: pytest.MonkeyPatch, tell: Callable[[Entry, stage.OnStep], None]) -> None:
    """Stories are these, for the command."""
    monkeypatch.setattr(stage, "tell", tell)


def two_steps(entry: Entry, on_step: stage.OnStep) -> None:
    for _ in range(2):
        on_step(a_step(Replica(1, "leader", 0, a_log("m0", high_watermark=1))))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_it_pauses_as_long_as_one_reads_divided_by_the_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(command, "sleep", pauses.append)
    telling(monkeypatch, two_steps)
    assert command.main(["acks-all", "--speed", "2"]) == 0
    assert pauses == [(PICTURE_S + 3 / WORDS_PER_SECOND) / 2] * 2, "three words, and a picture"
    pauses.clear()
    assert command.main(["acks-all"]) == 0
    assert pauses == [], "output is no terminal: it is not read as it comes"


def test_it_waits_for_enter_and_ends_with_the_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    telling(monkeypatch, two_steps)
    monkeypatch.setattr(sys, "stdin", Terminal("\n\n"))
    assert command.main(["acks-all", "--step"]) == 0
    assert capsys.readouterr().out.count("Enter: go on") == 2
    monkeypatch.setattr(sys, "stdin", Terminal(""))
    assert command.main(["acks-all", "--step"]) == command.INTERRUPTED
    assert capsys.readouterr().out.count("1. Something happens") == 1


def test_brokers_that_do_otherwise_than_the_story_says_are_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def tell(entry: Entry, on_step: stage.OnStep) -> None:
        raise InvariantError("the story says that, and it is not so")

    telling(monkeypatch, tell)
    assert command.main(["acks-all"]) == 1
    assert "minikafka tour: acks-all: the story says that" in capsys.readouterr().err


def test_garbage_is_looked_for_again_when_the_story_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    meanwhile: list[bool] = []

    def tell(entry: Entry, on_step: stage.OnStep) -> None:
        meanwhile.append(gc.isenabled())
        raise InvariantError("even so")

    telling(monkeypatch, tell)
    assert command.main(["acks-all"]) == 1
    assert meanwhile == [False] and gc.isenabled()
