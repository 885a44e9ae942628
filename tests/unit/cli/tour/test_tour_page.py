"""The page of ``minikafka tour --html``: everything is in it, nothing is outside of it."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from minikafka.cli.tour import STORIES, Entry, command, stage
from minikafka.cli.tour.drawing import page
from minikafka.cli.tour.stage import Replica, Span, Supposition
from minikafka.errors import InvariantError
from tests.unit.cli.tour.steps import a_log, a_long_log, a_step

ENTRY = STORIES[0]


class Page(HTMLParser):
    """Cells of its tables, as their text and their classes; elements that name something outside."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.cells: list[tuple[str, set[str]]] = []
        self.steps: list[str] = []
        self.outside: list[str] = []
        self._in_cell = False
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attributes}
        self.outside += [
            value for name, value in named.items() if name in ("href", "src") and value[:1] != "#"
        ]
        if tag == "article":
            self.steps.append(named["id"])
        if tag in ("td", "th"):
            self.cells.append(("", set(named.get("class", "").split())))
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        self._in_cell = self._in_cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            text, classes = self.cells[-1]
            self.cells[-1] = (text + data, classes)

    def classes(self, text: str) -> list[set[str]]:
        """Of all cells with that text."""
        return [classes for each, classes in self.cells if each == text]


def test_each_record_has_a_cell_that_says_whether_it_is_committed_and_new() -> None:
    before = a_step(Replica(1, "leader", 0, a_log("m0", high_watermark=1)))
    after = a_step(Replica(1, "leader", 0, a_log("m0", "m1", high_watermark=1)), number=2)
    shown = Page(page({ENTRY: [before, after]}, speed=1))
    assert shown.steps == [f"{ENTRY.name}-1", f"{ENTRY.name}-2"]
    assert shown.classes("m0 e0") == [{"record", "e0", "hw"}] * 2
    assert shown.classes("m1 e0") == [{"record", "e0", "loose", "new"}]
    assert [text for text, _ in shown.cells if text.startswith("HW")] == ["HW 1 LEO 1", "HW 1 LEO 2"]


def test_an_empty_log_has_its_high_watermark_at_the_start() -> None:
    shown = Page(page({ENTRY: [a_step(Replica(2, "follower", 0, a_log("m0", high_watermark=0)))]}, speed=1))
    assert shown.classes("broker 2 follower e0") == [{"follower", "hw"}]


def test_a_log_of_many_records_is_a_bar_in_the_proportions_of_its_offsets() -> None:
    log = a_long_log(Span(0, 0, 100), Span(1, 100, 200), high_watermark=150, size_bytes=2_000_000)
    html = page({ENTRY: [a_step(Replica(1, "leader", 1, log))]}, speed=1)
    bars = re.findall(r'<rect x="([\d.]+)" y="0" width="([\d.]+)" height="10" class="([^"]+)"/>', html)
    assert bars == [("0.0", "500.0", "e0"), ("500.0", "250.0", "e1"), ("750.0", "250.0", "e1 loose")]
    assert "e0[0..99] e1[100..199] HW 150 LEO 200, 2.00 MB" in html


def test_what_would_have_been_stands_apart_and_says_so() -> None:
    log = a_log("m0", "m1", high_watermark=1)
    supposed = Supposition("computed, not run", (Replica(2, "follower", 0, log.cut(1)),))
    html = page({ENTRY: [a_step(Replica(2, "follower", 0, log), suppositions=(supposed,))]}, speed=1)
    apart = html.partition('<div class="supposed"><p>computed, not run</p>')[2].partition("</div>")[0]
    assert "m0" in apart and "m1" not in apart


def test_what_is_written_in_records_is_no_markup() -> None:
    html = page({ENTRY: [a_step(Replica(1, "leader", 0, a_log("<b>&", high_watermark=1)))]}, speed=1)
    assert "<b>" not in html
    assert "<b>& e0" in [text for text, _ in Page(html).cells]


def test_it_needs_no_other_file_and_allows_nothing_but_its_own_style_and_script() -> None:
    html = page({ENTRY: [a_step(Replica(1, "leader", 0, a_log("m0", high_watermark=1)))]}, speed=2)
    assert Page(html).outside == ["data:,"], "an icon without content, so that no browser asks for one"
    assert "url(" not in html and "@import" not in html and " style=" not in html
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', html)
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy
    for element in ("style", "script"):
        (content,) = re.findall(rf"<{element}>(.*?)</{element}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in policy
    assert '<body data-speed="2">' in html


def two_steps(entry: Entry, on_step: stage.OnStep) -> None:
    for number in (1, 2):
        on_step(a_step(Replica(1, "leader", 0, a_log("m0", high_watermark=1)), number=number))


def test_the_command_writes_all_stories_unless_some_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stage, "tell", two_steps)
    path = tmp_path / "tour.html"
    assert command.main(["--html", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: {len(STORIES)} stories, {len(STORIES) * 2} steps\n"
    assert Page(path.read_text("utf-8")).steps == [f"{each.name}-{n}" for each in STORIES for n in (1, 2)]
    assert command.main(["zombie", "--html", str(path)]) == 0
    assert Page(path.read_text("utf-8")).steps == ["zombie-1", "zombie-2"]


def test_what_cannot_be_told_or_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stage, "tell", two_steps)
    assert command.main(["zombie", "--html", str(tmp_path)]) == 1
    assert f"minikafka tour: cannot write {tmp_path}: Is a directory" in capsys.readouterr().err

    def fail(entry: Entry, on_step: stage.OnStep) -> None:
        raise InvariantError("it is not so")

    monkeypatch.setattr(stage, "tell", fail)
    path = tmp_path / "tour.html"
    assert command.main(["zombie", "--html", str(path)]) == 1
    assert "minikafka tour: zombie: it is not so" in capsys.readouterr().err and not path.exists()
