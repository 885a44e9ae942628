"""A schema registry is asked once for each schema, for no more than it should, and leads nowhere else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from minikafka.cli.console import decoding
from minikafka.cli.console.decoding import LOOKUPS_MAX, TOO_MANY, Reader, Registry
from tests.support.schema_registry import SchemaRegistry

PROTO = """syntax = "proto3";
import "parts/item.proto";
import "google/protobuf/timestamp.proto";
message Order { Item item = 1; google.protobuf.Timestamp at = 2; }
"""
ITEM = 'syntax = "proto3"; message Item { string name = 1; }'
ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string"}]}
PERSON = {
    "type": "record",
    "name": "Person",
    "fields": [{"name": "home", "type": "Address"}, {"name": "work", "type": ["null", "Address"]}],
}


@pytest.fixture
def served() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as made:
        yield made


async def reader_of(registry: Registry, number: int) -> Reader:
    found = (await registry.readers([number]))[number]
    assert isinstance(found, Reader), found
    return found


async def test_an_avro_schema_with_what_it_refers_to(served: SchemaRegistry) -> None:
    served.pages["/schemas/ids/3"] = {
        "schema": json.dumps(PERSON),
        "references": [{"name": "Address", "subject": "addresses/a", "version": 2}],
    }
    served.pages["/subjects/addresses%2Fa/versions/2"] = {"schema": json.dumps(ADDRESS)}
    registry = Registry(served.url + "/")
    reader = await reader_of(registry, 3)
    assert json.loads(reader.read(b"\x04Ax\x02\x02B")) == {"home": {"city": "Ax"}, "work": {"city": "B"}}
    assert await reader_of(registry, 3) is reader
    assert len(served.asked) == 2


async def test_a_protobuf_schema_is_compiled_with_what_it_imports(served: SchemaRegistry) -> None:
    served.pages["/schemas/ids/4"] = {
        "schemaType": "PROTOBUF",
        "schema": PROTO,
        "references": [{"name": "parts/item.proto", "subject": "item", "version": 1}],
    }
    served.pages["/subjects/item/versions/1"] = {"schemaType": "PROTOBUF", "schema": ITEM}
    reader = await reader_of(Registry(served.url), 4)
    assert reader.format == "protobuf"
    assert json.loads(reader.read(b"\0\x0a\x05\x0a\x03pen\x12\x02\x08\x01")) == {
        "item": {"name": "pen"},
        "at": "1970-01-01T00:00:01Z",
    }


@pytest.mark.parametrize("name", ["../../etc/cron.d/evil.proto", "/etc/evil.proto", "a/../../b.proto", ""])
async def test_a_reference_writes_no_file_elsewhere(served: SchemaRegistry, name: str) -> None:
    served.pages["/schemas/ids/4"] = {
        "schemaType": "PROTOBUF",
        "schema": ITEM,
        "references": [{"name": name, "subject": "item", "version": 1}],
    }
    served.pages["/subjects/item/versions/1"] = {"schema": ITEM}
    found = (await Registry(served.url).readers([4]))[4]
    assert "no name of a file" in str(found)


async def test_a_json_schema_leaves_the_message_as_it_is(served: SchemaRegistry) -> None:
    served.pages["/schemas/ids/5"] = {"schemaType": "JSON", "schema": "{}"}
    reader = await reader_of(Registry(served.url), 5)
    assert (reader.format, reader.read(b'{"a":1}')) == ("json", '{"a":1}')


async def test_it_is_asked_with_the_password_that_it_wants(served: SchemaRegistry) -> None:
    await Registry(served.url, "ann:se:cret").readers([1])
    assert served.authorizations == {"Basic YW5uOnNlOmNyZXQ="}
    assert "se:cret" not in repr(Registry(served.url, "ann:se:cret"))


async def test_a_redirect_is_not_followed(served: SchemaRegistry) -> None:
    served.pages["/schemas/ids/1"] = f"{served.url}/elsewhere"
    served.pages["/elsewhere"] = {"schema": '"string"'}
    found = (await Registry(served.url).readers([1]))[1]
    assert found == "schema 1: the registry says 302"
    assert served.asked == ["/schemas/ids/1"]


@pytest.mark.parametrize(
    ("page", "why"),
    [
        (404, "the registry says 404"),
        (b"x" * 1_100_000, "larger than 1048576 bytes"),
        (b"not json", "Expecting value"),
        ({}, "has no 'schema'"),
        ([], "list"),
        ({"schema": '{"type": "array", "items": "null"}'}, "items without bytes"),
        ({"schema": "message {", "schemaType": "PROTOBUF"}, "it is not Protobuf"),
        ({"schema": '"int"', "references": [{}]}, "has no 'name'"),
    ],
)
async def test_what_is_no_schema_says_why_and_is_not_asked_for_again_at_once(
    served: SchemaRegistry, page: Any, why: str
) -> None:
    served.pages["/schemas/ids/1"] = page
    registry = Registry(served.url)
    for _ in range(2):
        assert why in str((await registry.readers([1]))[1])
    assert len(served.asked) == 1


async def test_references_in_a_circle_and_too_many_schemas_have_an_end(served: SchemaRegistry) -> None:
    served.pages["/schemas/ids/1"] = served.pages["/subjects/a/versions/1"] = {
        "schema": '"int"',
        "references": [{"name": "a", "subject": "a", "version": 1}],
    }
    registry = Registry(served.url)
    assert "refers to more than" in str((await registry.readers([1]))[1])
    before = len(served.asked)
    found = await registry.readers(range(100, 100 + LOOKUPS_MAX + 5))
    assert len(served.asked) - before == LOOKUPS_MAX
    assert [*found.values()].count(TOO_MANY) == 5


async def test_a_slow_registry_holds_a_request_for_a_bounded_time(
    served: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "LOOKUPS_S", 0.0)
    for number in (1, 2):
        served.pages[f"/schemas/ids/{number}"] = {"schema": '"int"'}
    assert set((await Registry(served.url).readers([1, 2])).values()) == {TOO_MANY}
    assert served.asked == []


async def test_a_registry_that_is_not_there_says_so() -> None:
    found = (await Registry("http://127.0.0.1:9").readers([1]))[1]
    assert "the registry cannot be asked" in str(found)


async def test_without_the_extra_it_says_what_to_install(
    served: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.pages["/schemas/ids/1"] = {"schemaType": "PROTOBUF", "schema": ITEM}
    monkeypatch.setattr(decoding, "find_spec", lambda name: None)
    found = (await Registry(served.url).readers([1]))[1]
    assert found == "schema 1: grpcio-tools is not installed: pip install 'minikafka[console]'"
