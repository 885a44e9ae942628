"""Samples of a process, as shares of its CPU by function.

py-spy's raw format: a line for each stack, ``outermost;…;innermost COUNT``, a frame ``name (file:line)``, or
``0xADDRESS (library)`` where a library was stripped of its symbols. What has no symbol counts for its
caller: a copy that C's library makes counts for the function that asked for it.

Samples that only wait are left out. py-spy leaves most of them out itself, but its own stops wake a sleeping
thread, which then looks busy until it sleeps again.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

WAITS = frozenset(
    {
        "PyThread_acquire_lock_timed",
        "epoll_pwait",
        "epoll_wait",
        "poll",
        "pthread_cond_timedwait",
        "pthread_cond_wait",
        "select",
    }
)
"""Innermost functions of a thread that sleeps: for work, for the interpreter's lock, for an event."""

_NO_SYMBOL = re.compile(r"0x[0-9a-f]+ \((.+)\)")
_LINE = re.compile(r":\d+\)$")


class Share(NamedTuple):
    function: str
    """``name (file)``."""
    itself: float
    """Share of the samples in which it is the innermost, 0 to 1."""
    inclusive: float
    """And in which it is anywhere."""


class Profile(NamedTuple):
    shares: list[Share]
    """Of every function, in no order that means anything."""
    busy: int
    """Samples that the shares are of."""
    waiting: int
    """Samples that were left out."""


def profile(folded: str) -> Profile:
    """What the samples say. Raises ValueError: a line is no folded stack."""
    itself: Counter[str] = Counter()
    inclusive: Counter[str] = Counter()
    busy = waiting = 0
    for line in folded.splitlines():
        stack, _, count = line.rpartition(" ")
        if not stack or not count.isdecimal():
            raise ValueError(f"no folded stack: {line!r}")
        samples = int(count)
        functions = _functions(stack.split(";"))
        if functions[-1].partition(" (")[0] in WAITS:
            waiting += samples
            continue
        busy += samples
        itself[functions[-1]] += samples
        inclusive.update(dict.fromkeys(functions, samples))  # once, however deep it calls itself
    shares = [Share(name, itself[name] / busy, inclusive[name] / busy) for name in inclusive]
    return Profile(shares, busy, waiting)


def _functions(frames: list[str]) -> list[str]:
    """At least one, without the numbers of lines."""
    named = [_LINE.sub(")", frame) for frame in frames if not _NO_SYMBOL.fullmatch(frame)]
    return named or [_NO_SYMBOL.sub(r"(no symbol) (\1)", frames[-1])]


def table(shares: list[Share], *, rows: int, by: str) -> list[str]:
    """The largest by ``itself`` or ``inclusive``; equals by name. Less than 0.05 % is nothing."""
    largest = sorted(shares, key=lambda share: (-getattr(share, by), share.function))[:rows]
    return [
        " itself  inclusive  function",
        *(
            f"{100 * share.itself:5.1f} %  {100 * share.inclusive:7.1f} %  {share.function}"
            for share in largest
            if getattr(share, by) >= 0.0005
        ),
    ]
