"""How ``dump-log`` shows things: text like Kafka's tool, coloured on a terminal, or JSON lines."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any, Protocol, TextIO

from minikafka.cli.dump_log.files import Item
from minikafka.cli.dump_log.segment import Finding

_KAFKA_NAMES = {"compression": "compresscodec", "is_valid": "isvalid", "value": "payload"}
"""Where Kafka's tool has a name of its own."""

_SNAKE = re.compile(r"_([a-z])")


class Output(Protocol):
    """Where items go."""

    def item(self, item: Item) -> None: ...

    def finding(self, finding: Finding) -> None: ...

    def summary(self, summary: Item) -> None: ...

    def close(self) -> None: ...


def open_output(stream: TextIO, *, as_json: bool) -> Output:
    """JSON lines, or text that is coloured when ``stream`` is a terminal."""
    if as_json:
        return JsonOutput(stream)
    return TerminalOutput(stream) if stream.isatty() else TextOutput(stream)


class JsonOutput:
    """One object a line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def item(self, item: Item) -> None:
        self._stream.write(json.dumps(item) + "\n")

    def finding(self, finding: Finding) -> None:
        self.item({"type": "finding", **finding._asdict()})

    def summary(self, summary: Item) -> None:
        self.item(summary)

    def close(self) -> None:
        self._stream.flush()


class TextOutput:
    """Plain text. What came from a log is escaped, so that it cannot play tricks on a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def item(self, item: Item) -> None:
        if item["type"] == "file":
            self._write(f"Dumping {item['file']} ({item['size']} bytes)", "bold cyan")
        elif item["type"] == "record":
            self._write(f"| {_fields(item)}", "")
        else:
            self._write(_fields(item), "green" if item["type"] == "batch" else "")

    def finding(self, finding: Finding) -> None:
        where = finding.file if finding.position is None else f"{finding.file} at {finding.position}"
        self._write(f"DAMAGE {where}: {_printable(finding.what)}", "bold red")
        self._write(f"       what to do: {finding.advice}", "yellow")

    def summary(self, summary: Item) -> None:
        read = ""
        if "files" in summary:
            read = f"{summary['files']} files, {summary['batches']} batches, {summary['records']} records: "
        count = summary["findings"]
        if count:
            self._write(f"{read}{count} finding{'s' if count > 1 else ''}", "bold red")
        else:
            self._write(f"{read}nothing is wrong", "bold green")

    def close(self) -> None:
        self._stream.flush()

    def _write(self, line: str, style: str) -> None:
        self._stream.write(f"{line}\n")


class TerminalOutput(TextOutput):
    """The same text in colours, through rich."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console  # only where there is a terminal: it costs 50 ms

        super().__init__(stream)
        self._console = Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=True)

    def _write(self, line: str, style: str) -> None:
        self._console.print(line, style=style or None)


def _fields(item: Item) -> str:
    parts = []
    timestamp_name = item.get("timestamp_type")
    for name, value in item.items():
        if name in ("type", "file", "timestamp_type"):
            continue
        if name == "max_timestamp" and timestamp_name is not None:
            name = str(timestamp_name)
        elif name == "headers":
            if value:
                parts.append(f"headers: [{', '.join(map(_header, value))}]")
            continue
        elif name == "value" and value is None and isinstance(item.get("key"), dict):
            value = "<DELETE>"
        parts.append(f"{_kafka_name(name)}: {_text(value)}")
    return " ".join(parts)


@cache
def _kafka_name(name: str) -> str:
    return _KAFKA_NAMES.get(name) or _SNAKE.sub(lambda match: match[1].upper(), name)


def _header(header: Item) -> str:
    value = header["value"] if "value" in header else f"base64:{header['value_base64']}"
    return f"{_printable(header['key'])}={_text(value)}"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        value = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return "null" if value is None else _printable(str(value))


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
