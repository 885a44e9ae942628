"""How ``minikafka consume`` shows a record: as Kafka's ``DefaultMessageFormatter`` does, or as JSON.

Fields come in Kafka's order whatever the order they are asked for in. In JSON, bytes that are not UTF-8 are
``{"base64": …}``.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import msgspec

from minikafka.cli.console.terminal_client import unescape

FIELDS = ("timestamp", "partition", "offset", "headers", "key", "value")
_TIMESTAMP_TYPES = {0: "CreateTime", 1: "LogAppendTime"}
_encode = msgspec.json.Encoder().encode


class RecordFormat(msgspec.Struct, frozen=True, kw_only=True):
    """Raises ValueError for a field that there is not."""

    fields: tuple[str, ...] = ("value",)
    separator: str = "\t"
    is_json: bool = False

    def __post_init__(self) -> None:
        for each in self.fields:
            if each not in FIELDS:
                raise ValueError(f"there is no field {each!r}: there are {', '.join(FIELDS)}")

    def line(self, record: Any) -> bytes:
        """An aiokafka ``ConsumerRecord`` as a line, with its end."""
        if self.is_json:
            return _json(record) + b"\n"
        cells = [_cell(record, each) for each in FIELDS if each in self.fields]
        return self.separator.encode().join(cells) + b"\n"


def with_properties(form: RecordFormat, properties: Sequence[str]) -> RecordFormat:
    """``form`` changed by Kafka's properties: ``print.<field>=true``, ``key.separator=…``.

    Raises:
        ValueError: there is no such property.
    """
    fields, separator = list(form.fields), form.separator
    for text in properties:
        name, _, value = text.partition("=")
        field = name.removeprefix("print.")
        if name == "key.separator":
            separator = unescape(value)
        elif name == f"print.{field}" and field in FIELDS and value in ("true", "false"):
            fields = [each for each in fields if each != field] + ([field] if value == "true" else [])
        else:
            known = ", ".join(f"print.{each}=true" for each in FIELDS)
            raise ValueError(f"--property {text}: there are {known} and key.separator=TEXT")
    return msgspec.structs.replace(form, fields=tuple(fields), separator=separator)


def _cell(record: Any, field: str) -> bytes:
    match field:
        case "timestamp":
            kind = _TIMESTAMP_TYPES.get(record.timestamp_type)
            return f"{kind}:{record.timestamp}".encode() if kind else b"NO_TIMESTAMP"
        case "partition":
            return f"Partition:{record.partition}".encode()
        case "offset":
            return f"Offset:{record.offset}".encode()
        case "headers":
            pairs = (name.encode() + b":" + _bytes(value) for name, value in record.headers)
            return b",".join(pairs) or b"NO_HEADERS"
        case "key":
            return _bytes(record.key)
        case _:
            return _bytes(record.value)


def _bytes(value: bytes | None) -> bytes:
    return b"null" if value is None else value


def _json(record: Any) -> bytes:
    return _encode(
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": _text(record.key),
            "value": _text(record.value),
            "headers": [[name, _text(value)] for name, value in record.headers],
        }
    )


def _text(value: bytes | None) -> str | dict[str, str] | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
