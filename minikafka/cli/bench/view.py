"""What ``minikafka bench`` shows during a run, and writes when it is over.

On a terminal one line is kept up to date; otherwise there is a plain line every few seconds. Both go to
standard error, so that standard output is the report.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from minikafka.cli.shared.commands import as_json, format_rate, write_text
from minikafka.errors import ConfigError
from minikafka.loadgen import runner
from minikafka.loadgen.report import Point, Result

PLAIN_INTERVAL_S = 5.0


def show(events: Iterator[runner.Progress | Result]) -> Result:
    """Follow a run to its end; returns its result."""
    console = Console(stderr=True)
    if not console.is_terminal:
        return _plain(events)
    with Live(console=console, transient=True, auto_refresh=False) as live:
        for event in events:
            if isinstance(event, Result):
                return event
            live.update(Text(line(event)), refresh=True)
    raise AssertionError("a run ends with a result")


def _plain(events: Iterator[runner.Progress | Result]) -> Result:
    shown_s, phase = 0.0, ""
    for event in events:
        if isinstance(event, Result):
            return event
        is_new = event.phase != phase or event.elapsed_s < shown_s
        if any(event.totals.values()) and (is_new or event.elapsed_s >= shown_s + PLAIN_INTERVAL_S):
            shown_s, phase = event.elapsed_s, event.phase
            print(line(event), file=sys.stderr, flush=True)
    raise AssertionError("a run ends with a result")


def line(progress: runner.Progress) -> str:
    """``run 12 s | produce 1,234,000: 103,000/s, 105 MB/s, p99 4.1 ms``."""
    flows = (_flow(name, point, progress.totals[name]) for name, point in progress.flows.items())
    return " | ".join([f"{progress.phase} {progress.elapsed_s:.0f} s", *flows])


def _flow(name: str, point: Point, total: int) -> str:
    text = f"{name} {total:,}: {point.records / runner.PROGRESS_S:,.0f}/s"
    if point.bytes:
        text += f", {format_rate(point.bytes / runner.PROGRESS_S)}"
    if point.p99_ms is not None:
        text += f", p50 {point.p50_ms:.1f} ms, p99 {point.p99_ms:.1f} ms"
    return text


def check_reports(*, json: str | None, html: str | None) -> None:
    """Before the work, not after it. Raises ConfigError: there is no directory for a report."""
    for option, name in (("--json", json), ("--html", html)):
        if name is not None and not Path(name).absolute().parent.is_dir():
            raise ConfigError(f"{option} {name}: there is no such directory")


def write_reports(results: Sequence[Result], *, document: object, json: str | None, html: str | None) -> None:
    """``document`` as JSON, ``results`` as a page. Raises CommandError."""
    if json == "-":
        print(as_json(document))
    elif json is not None:
        write_text(json, as_json(document) + "\n")
    if html is not None:
        from minikafka.loadgen.plot import page

        write_text(html, page(results))
