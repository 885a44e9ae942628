"""The rules find what they are there for, and leave the rest alone."""

from __future__ import annotations

import pytest

from tests.style import rules


def test_a_long_module_and_a_long_function_are_found() -> None:
    body = "\n".join(f"    x{i} = {i}" for i in range(rules.FUNCTION_LINES_MAX))
    assert rules.size(f"def f():\n{body}\n") == ["1: f has 71 lines, more than 70"]
    assert rules.size("x = 1\n" * 1_000) == []
    assert rules.size("x = 1\n" * 1_001) == ["1: the module has 1001 lines, more than 1000"]
    reason = '"""A table.\n\nThis module is long because a table is one.\n"""\n'
    assert rules.size(reason + "x = 1\n" * 1_001) == []


def test_a_module_says_what_it_is_for() -> None:
    assert rules.documented('"""For this."""\nx = 1\n') == []
    assert len(rules.documented("x = 1\n")) == 1


def test_unfinished_work_is_found() -> None:
    note = "TO" + "DO"
    assert rules.finished(f"x = 1\ny = 2  # {note}: more\n") == [f"2: {note}"]


@pytest.mark.parametrize(
    "line",
    [
        "import time",
        "from random import choice",
        "open('x')",
        "datetime.now()",
        "datetime.datetime.now(UTC)",
        "uuid.uuid4()",
        "os.urandom(8)",
        "print('x')",
        "for x in {1, 2}: pass",
        "for x in set(y): pass",
        "z = [x for x in set(y)]",
        "z = list({1, 2})",
        "z = {x: 1 for x in frozenset(y)}",
        "a: set[int] = f()\nfor x in a: pass",
        "self.a: set[int] = f()\nfor x in self.a: pass",
        "a = set()\nz = tuple(a)",
        "def f(a: set[int]): return [x for x in a]",
        "for x in set(a) - set(b): pass",
    ],
)
def test_what_would_differ_from_run_to_run_is_found(line: str) -> None:
    assert len(rules.deterministic(line)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "for x in sorted({1, 2}): pass",
        "z = sorted(x for x in set(y))",
        "z = any(x for x in set(y))",
        "z = {x for x in set(y)}",
        "z = len(list(set(y)))",
        "for x in {1: 2}: pass",
        "self.files.open('x')",
        "clock.now_ms()",
        "for x in {1, 2}:  # any order: each only closes itself\n    x.close()",
        "if x in {1, 2}: pass",
    ],
)
def test_what_is_the_same_in_every_run_is_left_alone(line: str) -> None:
    assert rules.deterministic(line) == []
