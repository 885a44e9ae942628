"""What ``minikafka why`` answers: reasons, each a sentence with its evidence, and how they are shown.

A reason is made by a pure function from facts that were gathered before, so that each can be tested without a
cluster. Its ``code`` is for programs and stays; its sentence is for people and may become a better one. Its
page is where ``docs/`` explains the mechanism; a test checks that each is there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, TextIO

import msgspec
from rich.console import Console

from minikafka.units import format_duration

_MILLISECONDS = re.compile(r" ms\b")
"""In the name of what is a duration."""

_EXPLANATION = "docs/explanation"
_HOW_TO = "docs/how-to"

_OUR_WORDS = ("a", "broker", "group", "no", "nothing", "read_committed", "the", "topic", "waiting", "what")
"""With which sentences begin, and names mostly do not."""


class Page(StrEnum):
    """Where a mechanism is explained: a file below the repository's root, and the anchor of a heading."""

    THREE_OFFSETS = f"{_EXPLANATION}/replication.md#three-offsets"
    ISR = f"{_EXPLANATION}/replication.md#the-in-sync-replicas"
    WHO_MAY_LEAD = f"{_EXPLANATION}/replication.md#who-may-lead"
    PREFERRED_LEADER = f"{_HOW_TO}/electing-leaders.md#electing-leaders"
    PURGATORY = f"{_EXPLANATION}/purgatory.md#who-waits-and-what-wakes-them"
    RETENTION = f"{_EXPLANATION}/retention.md#when-a-segment-is-deleted"
    COMPACTION = f"{_EXPLANATION}/retention.md#when-a-log-is-compacted"
    REBALANCE = f"{_EXPLANATION}/consumer-groups.md#a-rebalance"
    LOST_MEMBERS = f"{_EXPLANATION}/consumer-groups.md#how-a-member-is-lost"
    LAG = f"{_EXPLANATION}/consumer-groups.md#lag"
    IDEMPOTENCE = f"{_EXPLANATION}/transactions.md#a-batch-that-comes-twice"
    REFUSED = f"{_HOW_TO}/why.md#when-a-produce-is-refused"
    THROTTLES = f"{_EXPLANATION}/quotas.md#throttle-time-and-mute"
    ENDING_TRANSACTIONS = f"{_EXPLANATION}/transactions.md#what-ends-a-transaction"
    REASSIGNMENT = f"{_EXPLANATION}/reassignment.md#the-twelve-steps"
    REASSIGNMENT_THROTTLES = f"{_EXPLANATION}/reassignment.md#throttles"
    TOPIC_DELETION = f"{_EXPLANATION}/controller.md#how-a-topic-is-deleted"
    LOGINS = f"{_HOW_TO}/sasl.md#when-a-login-fails"
    AUTHORIZATION = f"{_EXPLANATION}/security.md#how-a-decision-is-made"
    BROKER_DIES = f"{_EXPLANATION}/controller.md#what-happens-when-a-broker-dies"
    SLOW_BROKER = f"{_HOW_TO}/why.md#when-a-broker-is-slow"
    TABLE_BEHIND = f"{_HOW_TO}/tables.md#why-a-table-lacks-records"
    TABLE_EXACTLY_ONCE = f"{_HOW_TO}/tables.md#exactly-once"
    TABLE_SCHEMAS = f"{_HOW_TO}/tables.md#schemas"
    LAST_STABLE_OFFSET = f"{_EXPLANATION}/transactions.md#the-last-stable-offset"


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why something is as it is."""

    code: str
    sentence: str
    """Whole, with what it is about, without a full stop."""
    page: Page
    evidence: Mapping[str, Any] = {}
    """What it rests on, by name: numbers, texts, lists of them, or rows as mappings."""
    remedy: str = ""
    """What changes it; a command where there is one."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one question."""

    subject: str
    sentence: str
    """Of the reason that weighs most; or that all is well."""
    reasons: Sequence[Reason]
    """The one that weighs most first."""
    unknown: Sequence[str] = ()
    """What could not be known, and why."""


def answer(subject: str, reasons: Sequence[Reason], *, otherwise: str, unknown: Sequence[str] = ()) -> Answer:
    """``otherwise``: the sentence when there is no reason."""
    sentence = reasons[0].sentence if reasons else otherwise
    return Answer(subject=subject, sentence=sentence, reasons=reasons, unknown=list(dict.fromkeys(unknown)))


def counted(count: int, one: str, more: str = "") -> str:
    """``1 produce``, ``2 batches``; without ``more`` an s is added."""
    return f"{count} {one}" if count == 1 else f"{count} {more or one + 's'}"


def show(found: Answer, stream: TextIO) -> None:
    """For people: the sentence, what it rests on, then the other reasons in the same way."""
    console = Console(file=stream, highlight=False, soft_wrap=True)
    if not found.reasons:
        console.print(f"{_capitalised(found.sentence)}.", style="bold", markup=False)
    for count, reason in enumerate(found.reasons):
        if count:
            console.print()
        console.print(f"{_capitalised(reason.sentence)}.", style="bold", markup=False)
        for line in _evidence_lines(reason.evidence):
            console.print(f"  {line}", markup=False)
        if reason.remedy:
            console.print(f"  To change it: {reason.remedy}", markup=False, style="green")
        console.print(f"  Explained in {reason.page}", markup=False, style="dim")
    if found.unknown:
        console.print()
    for unknown in found.unknown:
        console.print(f"Not known: {unknown}.", markup=False, style="yellow")


def _capitalised(sentence: str) -> str:
    """Names of topics and groups stay as they are: only a sentence that begins with a word of ours."""
    first, _, rest = sentence.partition(" ")
    return f"{first.capitalize()} {rest}" if first in _OUR_WORDS else sentence


def _evidence_lines(evidence: Mapping[str, Any]) -> list[str]:
    width = max((len(_head(name)) for name, value in evidence.items() if not _is_rows(value)), default=0)
    lines = []
    for name, value in evidence.items():
        if _is_rows(value):
            lines += [f"{name}:", *(f"  {line}" for line in _table(value))]
        else:
            lines.append(f"{_head(name):<{width}}  {_text(name, value)}")
    return lines


def _head(name: str) -> str:
    """Programs get milliseconds; people get durations, whose unit is beside the number."""
    return _MILLISECONDS.sub("", name)


def _is_rows(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    names = list(rows[0])
    lines = [[_head(name) for name in names], *([_text(name, row[name]) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def _text(name: str, value: object) -> str:
    match value:
        case int() | float() if _MILLISECONDS.search(name):
            return format_duration(value)
        case None | "" | []:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.3g}"
        case list() | tuple():
            return ", ".join(_text(name, each) for each in value)
    return str(value)
