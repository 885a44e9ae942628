"""How log lines look: ``key=value`` for people, or one JSON object a line.

The code logs through the standard library: a short constant message, and what varies as ``extra`` fields:
``logger.info("segment rolled", extra={"partition": "orders-0", "base_offset": 42})``. Both formats show the
fields, so that nothing has to be parsed out of sentences. Lines go to standard error.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from minikafka.security.acl import AUDIT_LOGGER

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
"""What every record has; the rest of a record's attributes are its ``extra`` fields."""

_PACKAGE = "minikafka."


def configure_logging(*, level: str, format: str, stream: TextIO | None = None) -> None:
    """Send the log to ``stream`` (standard error): minikafka's from ``level`` on, others' from warnings on.

    Called again it replaces what it did before.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    for name in ("minikafka", AUDIT_LOGGER):
        logging.getLogger(name).setLevel(level.upper())
    logging.raiseExceptions = False  # a closed pipe at the other end of the log is no reason for more output


def extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    """What the caller passed as ``extra``, in its order."""
    return {name: value for name, value in record.__dict__.items() if name not in _STANDARD}


def _timestamp(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"


class TextFormatter(logging.Formatter):
    """``TIME LEVEL logger: message key=value key="two words"``, and a traceback below when there is one."""

    def format(self, record: logging.LogRecord) -> str:
        name = record.name.removeprefix(_PACKAGE)
        fields = "".join(f" {key}={_quoted(value)}" for key, value in extra_fields(record).items())
        line = f"{_timestamp(record)} {record.levelname:<7} {name}: {one_line(record.getMessage())}{fields}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    """One object a line: ``time``, ``level``, ``logger``, ``message``, the fields, ``exception``."""

    def __init__(self) -> None:
        super().__init__()
        self._encoder = msgspec.json.Encoder(enc_hook=str)

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for key, value in extra_fields(record).items():
            line[f"field_{key}" if key in line or key == "exception" else key] = value
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        try:
            return self._encoder.encode(line).decode()
        except (TypeError, ValueError, UnicodeError):  # keys or texts that JSON has no place for
            return self._encoder.encode({str(key): repr(value) for key, value in line.items()}).decode()


def _quoted(value: object) -> str:
    text = one_line(str(value))
    if text and not any(character in ' "=' for character in text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def one_line(text: str) -> str:
    """``text`` with control characters escaped: a client's bytes cannot forge or break log lines."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
