"""``minikafka produce`` and ``minikafka consume``: lines in, lines out; more is in the integration tests."""

from __future__ import annotations

import json
import os
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaTimeoutError, TopicAuthorizationFailedError

from minikafka.cli.shared.commands import CommandError
from minikafka.cli.terminal import (
    RecordFormat,
    client_errors,
    consume,
    produce,
    read_lines,
    split_line,
    unescape,
    with_properties,
)

RECORD = SimpleNamespace(
    topic="t",
    partition=3,
    offset=7,
    timestamp=1_700_000_000_000,
    timestamp_type=0,
    key=b"k",
    value=b"v\xff",
    headers=(("a", b"1"), ("b", None)),
)


@pytest.mark.parametrize(
    ("line", "separator", "empty_is_null", "expected"),
    [
        (b"a:b", None, False, (None, b"a:b")),
        (b"a:b:c", ":", False, (b"a", b"b:c")),
        (b"plain", ":", False, (None, b"plain")),
        (b":", ":", False, (b"", b"")),
        (b"k:", ":", True, (b"k", None)),
        (b"", None, True, (None, None)),
        (b"k\tv", r"\t", False, (b"k", b"v")),
        ("k→v".encode(), "→", False, (b"k", b"v")),
    ],
)
def test_a_line_is_a_value_or_key_and_value(
    line: bytes, separator: str | None, empty_is_null: bool, expected: Any
) -> None:
    assert split_line(line, separator, empty_is_null=empty_is_null) == expected


async def test_lines_are_whole_however_they_arrive() -> None:
    source, sink = os.pipe()
    parts = [b"one\ntw", b"o\r\n", b"\n", b"x" * 100_000, b"\nno end"]

    def write() -> None:
        with open(sink, "wb", buffering=0) as stream:
            for part in parts:
                stream.write(part)

    writer = threading.Thread(target=write)
    writer.start()
    lines = [line async for line in read_lines(source)]
    writer.join()
    os.close(source)
    assert lines == [b"one", b"two", b"", b"x" * 100_000, b"no end"]


def test_fields_come_in_kafkas_order_and_shape() -> None:
    assert RecordFormat().line(RECORD) == b"v\xff\n"
    everything = RecordFormat(fields=("value", "key", "headers", "offset", "partition", "timestamp"))
    assert everything.line(RECORD) == (
        b"CreateTime:1700000000000\tPartition:3\tOffset:7\ta:1,b:null\tk\tv\xff\n"
    )
    bare = SimpleNamespace(**vars(RECORD) | {"key": None, "value": None, "headers": ()})
    assert (
        RecordFormat(fields=("key", "value", "headers"), separator="|").line(bare)
        == b"NO_HEADERS|null|null\n"
    )


def test_kafkas_properties_mean_the_same() -> None:
    changed = with_properties(RecordFormat(), ["print.key=true", "key.separator=:", "print.value=false"])
    assert changed.line(RECORD) == b"k\n"
    assert (
        with_properties(RecordFormat(), ["print.key=true", r"key.separator=\t"]).line(RECORD) == b"k\tv\xff\n"
    )
    for wrong in ("print.color=true", "print.key=maybe", "line"):
        with pytest.raises(ValueError, match=wrong):
            with_properties(RecordFormat(), [wrong])


def test_json_has_one_line_a_record_and_bytes_that_are_no_text_in_base64() -> None:
    line = RecordFormat(is_json=True).line(RECORD)
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "topic": "t",
        "partition": 3,
        "offset": 7,
        "timestamp": 1_700_000_000_000,
        "key": "k",
        "value": {"base64": "dv8="},
        "headers": [["a", "1"], ["b", None]],
    }


def test_escapes_are_read_once() -> None:
    assert unescape(r"\t|\n|\0|\\t|\x") == "\t|\n|\0|\\t|\\x"


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (produce, []),
        (produce, ["t", "--acks", "2"]),
        (produce, ["t", "--compression", "rar"]),
        (produce, ["t", "--header", "no value"]),
        (produce, ["t", "--key-separator", ""]),
        (produce, ["t", "-b", "host:0"]),
        (consume, []),
        (consume, ["t", "--offset", "soon"]),
        (consume, ["t", "--offset", "1", "--from-beginning"]),
        (consume, ["t", "--print", "colour"]),
        (consume, ["t", "--property", "print.colour=true"]),
        (consume, ["t", "--group", "g", "--partition", "0"]),
        (consume, ["t", "--group", "g", "--until-end"]),
        (consume, ["t", "--max-messages", "0"]),
    ],
)
def test_bad_usage(command: Any, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        command(arguments)
    assert caught.value.code == 2


@pytest.mark.parametrize("command", [produce, consume])
def test_no_broker_there_is_one_line(command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["t", "-b", "127.0.0.1:1"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "127.0.0.1:1" in error


def test_who_may_not_is_told_how_to_find_out_why() -> None:
    with pytest.raises(CommandError, match=r"orders .*minikafka why-denied"), client_errors():
        raise TopicAuthorizationFailedError("orders")
    with pytest.raises(CommandError) as raised, client_errors():
        raise KafkaTimeoutError("orders")
    assert "why-denied" not in str(raised.value)
