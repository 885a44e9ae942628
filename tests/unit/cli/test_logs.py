"""Log lines: fields as key=value or JSON, one line each whatever a client sends."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from minikafka.cli.logs import JsonFormatter, TextFormatter, configure_logging
from minikafka.types import TopicPartition


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("minikafka")
    before = (root.handlers[:], root.level, ours.level, logging.raiseExceptions)
    yield
    root.handlers[:], root.level, ours.level, logging.raiseExceptions = before


def record(message: str, **fields: object) -> logging.LogRecord:
    made = logging.makeLogRecord(
        {
            "name": "minikafka.log.segment",
            "levelno": 20,
            "levelname": "INFO",
            "msg": message,
            "created": 1.0625,
        }
    )
    made.__dict__.update(fields)
    return made


def test_a_text_line_has_time_level_place_message_and_fields() -> None:
    line = TextFormatter().format(record("rolled", partition=TopicPartition("a", 0), why="size is 5", base=7))
    assert line == '1970-01-01T00:00:01.062Z INFO    log.segment: rolled partition=a-0 why="size is 5" base=7'


def test_a_clients_text_cannot_forge_a_line() -> None:
    line = TextFormatter().format(record("client\nx", client_id='a"b\r\n\x1b[31mERROR\\'))
    assert "\n" not in line and "\x1b" not in line
    assert line.endswith('client\\nx client_id="a\\"b\\\\r\\\\n\\\\x1b[31mERROR\\\\"')


def test_a_json_line_has_the_fields_as_members() -> None:
    line = json.loads(
        JsonFormatter().format(record("rolled", partition=TopicPartition("a", 0), level="mine"))
    )
    assert line == {
        "time": "1970-01-01T00:00:01.062Z",
        "level": "info",
        "logger": "minikafka.log.segment",
        "message": "rolled",
        "partition": ["a", 0],
        "field_level": "mine",
    }


def test_what_json_has_no_place_for_is_shown_all_the_same() -> None:
    line = json.loads(JsonFormatter().format(record("x", odd={1: object}, broken="\ud800")))
    assert "ud800" in line["broken"]


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_traceback_is_kept(format: str) -> None:
    stream = io.StringIO()
    configure_logging(level="info", format=format, stream=stream)
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("minikafka.x").exception("failed")
    assert "ValueError: why" in stream.getvalue()
    assert len(stream.getvalue().splitlines()) == (1 if format == "json" else 5)


def test_levels_are_ours_and_only_warnings_of_others_pass() -> None:
    stream = io.StringIO()
    configure_logging(level="warning", format="text", stream=io.StringIO())
    configure_logging(level="debug", format="text", stream=stream)
    logging.getLogger("minikafka.x").debug("ours")
    logging.getLogger("asyncio").info("theirs")
    logging.getLogger("asyncio").warning("their warning")
    assert [line.split(": ")[-1] for line in stream.getvalue().splitlines()] == ["ours", "their warning"]
