"""What a broker says when it is ready: where it listens, where its data is, how to try it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from minikafka import __version__
from minikafka.network.addresses import format_address

LAST_LABEL = "stop it"
STATUS_PAGE_LABEL = "status page"


def banner_lines(
    *,
    node_id: int,
    listening: Sequence[str],
    addresses: Sequence[str],
    unprotected: Sequence[str] = (),
    directories: Sequence[str],
    temporary: bool,
    status_page: str | None = None,
    metrics: str | None = None,
) -> list[tuple[str, str]]:
    """The banner as (label, text); an empty label continues the line above.

    ``listening``: what the sockets are bound to; ``addresses``: what clients are told to connect to,
    ``host:port``. ``unprotected``: those of ``listening`` that other machines reach without authentication.
    ``status_page``: where it is. ``metrics``: where they are, or why nowhere.
    """
    data = ", ".join(directories)
    lines = [
        ("", f"minikafka {__version__}, broker {node_id}"),
        ("listening on", ", ".join(listening)),
        ("advertised as", ", ".join(addresses)),
        ("data in", f"{data} (temporary: gone when the broker stops)" if temporary else data),
        ("try it", f"echo hello | kcat -b {addresses[0]} -t greetings -P"),
        ("", f"kcat -b {addresses[0]} -t greetings -C -e"),
        (LAST_LABEL, "Ctrl-C"),
    ]
    if metrics is not None:
        lines.insert(4, ("metrics", metrics))
    if status_page is not None:
        lines.insert(4, (STATUS_PAGE_LABEL, status_page))
    if unprotected:
        where = ", ".join(unprotected)
        told = f"no authentication: anyone who can reach {where} can read and delete everything"
        lines.insert(3, ("warning", told))
    return lines


def http_url(address: tuple[str, int] | None, path: str) -> str | None:
    """A page of the HTTP server at ``address``, as one asks for it on this machine; None: there is none."""
    if address is None:
        return None
    host, port = address
    return f"http://{format_address(host or 'localhost', port)}{path}"


def told_status_page(lines: Sequence[str]) -> str | None:
    """Where the status page is, by the banner among what a broker has printed.

    Returns None when it has none.

    Raises:
        LookupError: the banner is not there, or not whole yet.
    """
    if not any(line.startswith(f"{LAST_LABEL} ") for line in lines):
        raise LookupError("there is no banner")
    found = [line for line in lines if line.startswith(f"{STATUS_PAGE_LABEL} ")]
    return found[-1].removeprefix(STATUS_PAGE_LABEL).strip() if found else None


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
