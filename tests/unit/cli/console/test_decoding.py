"""Bytes as text for a page: what they are taken for, where they are cut, and that no bytes take the process
with them."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

from minikafka.cli.console.decoding import (
    HEX_BYTES_MAX,
    TEXT_LENGTH_MAX,
    Cut,
    Decoded,
    Format,
    Reader,
    avro_reader,
    decode,
    protobuf_reader,
    read_format,
)
from minikafka.cli.console.exchange import Refusal

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "raw", "type": "bytes"}],
}
LIST = {
    "type": "record",
    "name": "Link",
    "fields": [{"name": "next", "type": ["null", "Link"]}],
}


def shown(data: bytes, format: Format = "auto", **readers: Any) -> Decoded:
    found = decode(Cut(data, len(data)), format, readers.get("readers", {}))
    assert found is not None
    return found


def framed(number: int, data: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + data


def avro(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def test_null_is_null() -> None:
    assert decode(None, "auto", {}) is None


@pytest.mark.parametrize(
    ("data", "format", "text"),
    [
        (b"hello", "text", "hello"),
        ("größe\n".encode(), "text", "größe\n"),
        (b"", "text", ""),
        (b'{"a": 1}', "json", '{"a": 1}'),
        (b" [1, 2]", "json", " [1, 2]"),
        (b"{not json", "text", "{not json"),
        (b"12", "text", "12"),
        (b"\x00\x00\x00\x07", "hex", "00000007"),
        (b"\xff\xfe", "hex", "fffe"),
    ],
)
def test_what_bytes_are_taken_for(data: bytes, format: str, text: str) -> None:
    assert shown(data) == Decoded(text, format, len(data), False)


def test_a_format_that_is_asked_for_is_taken_as_far_as_it_goes() -> None:
    assert shown(b"hi", "hex").text == "6869"
    assert shown(b"\xffhi", "text").text == "\ufffdhi"
    found = shown(b"hi", "json")
    assert (found.text, found.format, found.why_not) == ("hi", "text", "it is not JSON")
    with pytest.raises(Refusal):
        read_format("xml")


def test_long_texts_are_cut_and_say_so() -> None:
    text = shown(b"x" * (TEXT_LENGTH_MAX + 1))
    assert (len(text.text), text.bytes, text.is_cut) == (TEXT_LENGTH_MAX, TEXT_LENGTH_MAX + 1, True)
    raw = shown(b"\xff" * (HEX_BYTES_MAX + 1))
    assert (len(raw.text), raw.is_cut) == (2 * HEX_BYTES_MAX, True)
    beginning = decode(Cut("größe".encode()[:3], 7), "auto", {})  # cut in the middle of a character
    assert beginning == Decoded("gr", "text", 7, True)


def test_json_of_a_million_brackets_is_text() -> None:
    assert shown(b"[" * 200_000).format == "text"


def test_avro_is_read_by_its_schema() -> None:
    readers = {5: avro_reader(ORDER)}
    found = shown(framed(5, avro(ORDER, {"id": 7, "raw": b"\xff"})), readers=readers)
    assert (json.loads(found.text), found.format) == ({"id": 7, "raw": "ff"}, "avro")
    other = shown(framed(5, b"\x0e"), "avro", readers=readers)
    assert other.format == "hex" and "schema 5 does not read it" in str(other.why_not)
    assert "left behind" in str(
        shown(framed(5, avro(ORDER, {"id": 7, "raw": b""}) + b"x"), "avro", readers=readers).why_not
    )
    assert "does not begin" in str(shown(b"plain", "avro", readers=readers).why_not)
    assert (
        shown(framed(6, b"x"), "avro", readers={6: "the registry says 404"}).why_not
        == "the registry says 404"
    )
    assert shown(framed(5, b""), "protobuf", readers=readers).why_not == "schema 5 is avro"


def test_a_recursive_schema_reads_few_levels_and_not_so_many_that_the_stack_ends() -> None:
    """Twenty thousand bytes of this end the process in fastavro's compiled reader."""
    readers = {1: avro_reader(LIST)}
    few = shown(framed(1, b"\2" * 10 + b"\0"), "avro", readers=readers)
    assert few.format == "avro"
    many = shown(framed(1, b"\2" * 200_000 + b"\0"), "avro", readers=readers)
    assert "recursive" in str(many.why_not)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "array", "items": "null"}, "items without bytes"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, "items without bytes"),
        (
            {
                "type": "record",
                "name": "R",
                "fields": [
                    {"name": "first", "type": {"type": "record", "name": "Nothing", "fields": []}},
                    {"name": "all", "type": {"type": "array", "items": "Nothing"}},
                ],
            },
            "items without bytes",
        ),
        ({"type": "record", "name": "R", "fields": [{"name": "self", "type": "R"}]}, "without end"),
        ({"type": "nonsense"}, "no Avro schema"),
        (7, "no Avro schema"),
    ],
)
def test_schemas_whose_messages_cost_more_than_their_bytes_are_refused(schema: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        avro_reader(schema)


def protobuf_schema() -> bytes:
    file = FileDescriptorProto(name="orders.proto", syntax="proto3")
    for name in ("First", "Order"):
        message = file.message_type.add(name=name)
        message.field.add(name="id", number=1, type=FieldDescriptorProto.TYPE_INT32)
    inner = file.message_type[1].nested_type.add(name="Line")
    inner.field.add(name="item", number=1, type=FieldDescriptorProto.TYPE_STRING)
    return FileDescriptorSet(file=[file]).SerializeToString()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\0" + b"\x08\x07", {"id": 7}),  # the first
        (b"\2\2" + b"\x08\x07", {"id": 7}),  # [1]
        (b"\4\2\0" + b"\x0a\x03pen", {"item": "pen"}),  # [1, 0]
    ],
)
def test_protobuf_is_read_by_the_message_that_it_names(data: bytes, message: dict[str, Any]) -> None:
    readers: dict[int, Reader | str] = {9: protobuf_reader(protobuf_schema(), "orders.proto")}
    found = shown(framed(9, data), readers=readers)
    assert (json.loads(found.text), found.format) == (message, "protobuf")


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x80" * 20, b"\4\x09\0", b"\1\0", b"\0\xff\xff"])
def test_bytes_that_are_no_such_message_say_why(data: bytes) -> None:
    readers: dict[int, Reader | str] = {9: protobuf_reader(protobuf_schema(), "orders.proto")}
    found = shown(framed(9, data), "protobuf", readers=readers)
    assert found.format == "hex" and found.why_not
    assert shown(framed(9, data), readers=readers).why_not is None
