"""How long one looks at a step."""

from __future__ import annotations

from typing import Final

WORDS_PER_SECOND: Final = 4.0
"""Of a reader. The picture is looked at before and after."""
PICTURE_S: Final = 3.0


def seconds_to_read(text: str) -> float:
    """At the speed 1."""
    return PICTURE_S + len(text.split()) / WORDS_PER_SECOND
