"""The committed reference pages are those that the generator writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.generator.files import REFERENCE, files


@pytest.mark.parametrize("path", files(), ids=lambda path: path.name)
def test_a_committed_page_is_what_the_generator_writes(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == files()[path], "run: python -m docs.generator"


def test_no_page_is_left_over() -> None:
    assert set(REFERENCE.iterdir()) == set(files())
