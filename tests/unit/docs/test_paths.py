"""The modules that the explanation pages name are there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted((ROOT / "docs" / "explanation").glob("*.md"))

FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
MODULE = re.compile(r"`([a-z_]+(?:/[a-z_]+)+)/?`")


def modules(text: str) -> Iterator[str]:
    """The paths in a page's text, without those in its drawings and commands."""
    yield from dict.fromkeys(MODULE.findall(FENCED.sub("", text)))


def named() -> list[Any]:
    return [
        pytest.param(module, id=f"{page.name}: {module}")
        for page in PAGES
        for module in modules(page.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize("module", named())
def test_a_named_module_is_there(module: str) -> None:
    places = [ROOT / "minikafka" / f"{module}.py", ROOT / "minikafka" / module, ROOT / module]
    assert any(place.exists() for place in places)


def test_modules_are_found_in_the_text_only() -> None:
    text = "`log/segment` and `log/`, `/brokers/ids`\n```\n`a/b`\n```\n`tests/sim`, `UnifiedLog`"
    assert list(modules(text)) == ["log/segment", "tests/sim"]
