"""``minikafka tour``: the stories that Kafka is taught with, told by brokers that run.

Minikafka's own. Each story is a cluster of its own in this process, under virtual time; every picture of its
logs is read from the brokers at that moment. A story is the same whenever it is told.

Exit status: 0 when the stories were told, 1 when brokers did not do what a story says, 2 for bad usage.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import sleep  # by name: while a simulation runs, the module has another one
from typing import TYPE_CHECKING

from minikafka.cli.tour import BY_NAME, STORIES, Entry, seconds_to_read
from minikafka.errors import MinikafkaError

if TYPE_CHECKING:
    from minikafka.cli.tour.stage import Step

PROG = "minikafka tour"
OK, FAILURE, INTERRUPTED = 0, 1, 130
STORY_ERRORS = (MinikafkaError, TimeoutError, AssertionError)
"""What a story raises when it did not come about."""
ALL = "all"
SPEED_MAX = 1_000.0
WIDTH_MAX = 110
"""Longer lines are hard to read."""


def parser() -> argparse.ArgumentParser:
    """The command line of ``minikafka tour``."""
    options = argparse.ArgumentParser(
        prog=PROG,
        description="Watch brokers replicate: stories in virtual time, with a picture of every log at each "
        "step. Without a story: list them.",
        allow_abbrev=False,
    )
    options.add_argument("stories", nargs="*", metavar="STORY", help=f"one or more of the list, or {ALL}")
    pace = options.add_mutually_exclusive_group()
    pace.add_argument(
        "--speed",
        type=parse_speed,
        metavar="FACTOR",
        help="how much faster than one reads; 0: without a pause, which is so where output is no terminal "
        "(default: 1)",
    )
    pace.add_argument("--step", action="store_true", help="wait for Enter after each step")
    options.add_argument(
        "--html",
        metavar="FILE",
        help="write the stories (all, unless some are named) as a page that plays them",
    )
    return options


def parse_speed(text: str) -> float:
    """Raises argparse.ArgumentTypeError."""
    try:
        speed = float(text)
    except ValueError:
        speed = -1.0
    if not 0 <= speed <= SPEED_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 to {SPEED_MAX:g}")
    return speed


def main(argv: Sequence[str] | None = None) -> int:
    """List the stories, or tell some. Returns the exit status."""
    options = parser()
    arguments = options.parse_args(argv)
    if not arguments.stories and arguments.html is None:
        if arguments.step or arguments.speed is not None:
            options.error("which story? `minikafka tour` lists them")
        print(catalogue())
        return 0
    try:
        entries = chosen(arguments.stories or [ALL])
    except ValueError as error:
        options.error(str(error))
    if arguments.html is not None and (arguments.step or arguments.speed == 0):
        options.error(
            "a page waits for its reader by itself: --html goes with a --speed above 0, not with --step"
        )
    if arguments.step and not sys.stdin.isatty():
        options.error("--step waits for Enter at a terminal, and standard input is none")
    try:
        with _garbage_left_alone():
            if arguments.html is not None:
                return _write_page(entries, arguments)
            return _tell(entries, arguments)
    except KeyboardInterrupt:
        return INTERRUPTED


@contextmanager
def _garbage_left_alone() -> Iterator[None]:
    """What is imported is kept; looking through it a hundred times on the way and twice at the end of the
    process were 0.2 of 1.6 s. Each story collects its own garbage when it is over."""
    was_enabled = gc.isenabled()
    gc.disable()
    atexit.register(gc.freeze)
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def catalogue() -> str:
    """A line for each story."""
    width = max(len(each.name) for each in STORIES)
    lines = [f"  {each.name:<{width}}  {each.summary}" for each in STORIES]
    return "\n".join(
        [
            "Stories, each told by brokers that run in this process, in virtual time:",
            "",
            *lines,
            "",
            f"minikafka tour {STORIES[0].name} tells one, minikafka tour all each of them; --help says how.",
        ]
    )


def chosen(names: Sequence[str]) -> list[Entry]:
    """Raises ValueError: there is no such story."""
    if ALL in names:
        return list(STORIES)
    for name in names:
        if name not in BY_NAME:
            raise ValueError(f"there is no story {name!r}: there are {', '.join(BY_NAME)}, and {ALL}")
    return [BY_NAME[name] for name in dict.fromkeys(names)]


def _tell(entries: Sequence[Entry], arguments: argparse.Namespace) -> int:
    teller = Teller(speed=arguments.speed, waits_for_enter=arguments.step)
    for entry in entries:
        teller.begin(entry)
        from minikafka.cli.tour.stage import tell  # brokers and all: there is something to read meanwhile

        try:
            tell(entry, teller.show)
        except STORY_ERRORS as error:
            return _failed(entry, error)
        teller.end(entry)
    return OK


def _write_page(entries: Sequence[Entry], arguments: argparse.Namespace) -> int:
    from minikafka.cli.shared.commands import CommandError, write_text
    from minikafka.cli.tour.drawing import page
    from minikafka.cli.tour.stage import tell

    told: dict[Entry, list[Step]] = {}
    for entry in entries:
        steps = told[entry] = []
        try:
            tell(entry, steps.append)
        except STORY_ERRORS as error:
            return _failed(entry, error)
    try:
        write_text(arguments.html, page(told, speed=1.0 if arguments.speed is None else arguments.speed))
    except CommandError as error:
        print(f"{PROG}: {error}", file=sys.stderr)
        return FAILURE
    count = sum(map(len, told.values()))
    print(f"{arguments.html}: {len(told)} {'story' if len(told) == 1 else 'stories'}, {count} steps")
    return OK


def _failed(entry: Entry, error: Exception) -> int:
    print(f"{PROG}: {entry.name}: {error}", file=sys.stderr)
    return FAILURE


class Teller:
    """Prints steps, and gives time to read each before the next."""

    def __init__(self, *, speed: float | None, waits_for_enter: bool) -> None:
        from rich.console import Console

        self._out = Console(highlight=False, emoji=False, markup=False)
        is_terminal = self._out.is_terminal
        self._out.width = min(self._out.width, WIDTH_MAX) if is_terminal else WIDTH_MAX
        self._speed = float(is_terminal) if speed is None else speed
        self._waits_for_enter = waits_for_enter
        self._to_read: Step | None = None

    def begin(self, entry: Entry) -> None:
        """The headline of a story."""
        from rich.text import Text

        self._out.print(Text.assemble((f" {entry.name} ", "bold reverse"), f" {entry.summary}\n"))

    def show(self, step: Step) -> None:
        """Print a step, when the one before has been read. Raises KeyboardInterrupt: it is enough."""
        from minikafka.cli.tour.drawing import render

        self._pause()
        self._out.print(render(step))
        self._to_read = step

    def end(self, entry: Entry) -> None:
        """Where one reads on."""
        self._pause()
        self._to_read = None
        self._out.print(f"Why it is so: docs/{entry.read}\n", style="dim")

    def _pause(self) -> None:
        """The time that one needs for what is on the screen. Virtual time stands still meanwhile."""
        step = self._to_read
        if step is None:
            return
        if self._waits_for_enter:
            self._out.print("Enter: go on ", end="", style="dim")
            if not sys.stdin.readline():
                raise KeyboardInterrupt
        elif self._speed:
            sleep(seconds_to_read(step.text) / self._speed)


if __name__ == "__main__":
    sys.exit(main())
