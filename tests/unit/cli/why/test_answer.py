"""Answers: each page that a reason names is there, and how an answer is shown."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from minikafka.cli.why.answer import Page, Reason, answer, show

ROOT = Path(__file__).resolve().parents[4]
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
NOT_IN_ANCHOR = re.compile(r"[^\w\- ]")


def anchors(page: str) -> set[str]:
    """Of a page's headings, as GitHub and mkdocs make them."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return {NOT_IN_ANCHOR.sub("", heading.lower()).replace(" ", "-") for heading in HEADING.findall(text)}


@pytest.mark.parametrize("page", Page)
def test_a_page_and_its_heading_are_there(page: Page) -> None:
    path, _, anchor = page.partition("#")
    assert anchor in anchors(path)


def reason(code: str, sentence: str, **evidence: object) -> Reason:
    return Reason(code=code, sentence=sentence, page=Page.ISR, evidence=evidence, remedy="wait")


def shown(*reasons: Reason, otherwise: str = "all is well", unknown: tuple[str, ...] = ()) -> str:
    stream = io.StringIO()
    show(answer("this", reasons, otherwise=otherwise, unknown=unknown), stream)
    return stream.getvalue()


def test_the_first_reason_is_the_answer() -> None:
    found = answer("this", [reason("a", "it is so"), reason("b", "or so")], otherwise="well")
    assert found.sentence == "it is so"
    assert answer("this", [], otherwise="well").sentence == "well"


def test_evidence_is_shown_in_columns_with_durations_for_people() -> None:
    rows = [{"client": "a", "heard ms ago": 14_000, "late": True}, {"client": "bb", "heard ms ago": None}]
    rows[1]["late"] = False
    text = shown(reason("a", "group g waits", **{"open ms": 90_000, "isr": [1, 2], "waits for": rows}))
    assert text.splitlines() == [
        "Group g waits.",
        "  open  1 min 30 s",
        "  isr   1, 2",
        "  waits for:",
        "    client  heard ago  late",
        "    a       14 s       yes",
        "    bb      -          no",
        "  To change it: wait",
        f"  Explained in {Page.ISR}",
    ]


def test_names_keep_their_letters_and_what_is_not_known_is_said_once() -> None:
    text = shown(otherwise="orders-0 is well", unknown=("whom it waits for", "whom it waits for"))
    assert text == "orders-0 is well.\n\nNot known: whom it waits for.\n"
