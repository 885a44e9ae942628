"""What a broker says when it is ready: where it listens, where its data is, how to try it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from minikafka import __version__


def banner_lines(
    *, node_id: int, addresses: Sequence[str], directories: Sequence[str], temporary: bool
) -> list[tuple[str, str]]:
    """The banner as (label, text); an empty label continues the line above. ``addresses``: ``host:port``."""
    data = ", ".join(directories)
    lines = [
        ("", f"minikafka {__version__}, broker {node_id}"),
        ("listening on", ", ".join(addresses)),
        ("data in", f"{data} (temporary: gone when the broker stops)" if temporary else data),
        ("try it", f"echo hello | kcat -b {addresses[0]} -t greetings -P"),
        ("", f"kcat -b {addresses[0]} -t greetings -C -e"),
        ("stop it", "Ctrl-C"),
    ]
    return lines


def print_banner(lines: Sequence[tuple[str, str]], stream: TextIO | None = None) -> None:
    """Print to ``stream`` (standard output): a panel on a terminal, plain lines elsewhere."""
    out = stream or sys.stdout
    texts = [
        text if not label and index == 0 else f"{label:<13} {text}"
        for index, (label, text) in enumerate(lines)
    ]
    if not out.isatty():
        print("\n".join(texts), file=out, flush=True)
        return
    from rich.console import Console
    from rich.panel import Panel
    from rich.text import Text

    body = Text("\n").join(
        Text.assemble((f"{label:<13} ", "dim"), (text, "bold" if label == "listening on" else ""))
        for label, text in lines[1:]
    )
    Console(file=out).print(Panel(body, title=lines[0][1], title_align="left", expand=False))
