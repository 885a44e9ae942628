"""Schemas are fetched from a registry, by Confluent's API, and what is wrong with one is said in one line."""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fastavro
import pytest

from minikafka.spark.export.decoding import Format, Kind, RegistryUnavailable
from minikafka.spark.export.record_schemas import (
    UnusableSchema,
    avro_decoder,
    fetch_schema,
    fetched,
    schema_by_id,
)
from minikafka.spark.runtime.session import JobError

AVRO = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": list(fields)}


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
OLDER = record({"name": "id", "type": "int"}, {"name": "paid", "type": "int"})
NEWER = record(
    {"name": "id", "type": "long"},
    {"name": "at", "type": MILLIS},
    {"name": "spare", "type": ["null", "string"]},
    {"name": "price", "type": ["null", "double"], "default": None},
)
READERS = record(
    {"name": "id", "type": "long"},
    {"name": "at", "type": MILLIS, "default": 1_700_000_000_000},
    {"name": "price", "type": ["null", "double"], "default": None},
    {"name": "tag", "type": "bytes", "default": "\u00ff"},
    {"name": "paid_cents", "aliases": ["paid"], "type": "long", "default": 0},
)
OTHER = record({"name": "id", "type": "string"})
ANSWERS = {
    "/subjects/orders-value/versions/latest": {"schema": json.dumps(AVRO), "version": 3, "id": 7},
    "/schemas/ids/7": {"schema": json.dumps(AVRO)},
    "/subjects/proto/versions/2": {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"},
    "/subjects/refers/versions/latest": {"schema": "{}", "references": [{"name": "a"}]},
    "/subjects/other/versions/latest": ["no schema"],
    "/schemas/ids/8": {"schema": json.dumps(OLDER)},
    "/schemas/ids/9": {"schema": json.dumps(NEWER)},
    "/schemas/ids/10": {"schema": '{"type": "record"}'},
    "/schemas/ids/11": {"schema": "{}", "schemaType": "JSON"},
    "/schemas/ids/12": {"schema": json.dumps(OTHER)},
}
STATUSES = {"/schemas/ids/4294967295": 400, "/schemas/ids/13": 503, "/schemas/ids/14": 401}


class Handler(BaseHTTPRequestHandler):
    """Answers as Confluent's registry does."""

    asked: list[str | None] = []  # noqa: RUF012 of the one server of a test

    def do_GET(self) -> None:
        self.asked.append(self.headers["Authorization"])
        found = ANSWERS.get(self.path)
        data = json.dumps(found or {"error_code": 40401, "message": "Subject not found."}).encode()
        self.send_response(STATUSES.get(self.path, 200 if found else 404))
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Not on the terminal."""


@pytest.fixture
def registry() -> Iterator[str]:
    Handler.asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_url_in_the_place_of_a_file(registry: str, tmp_path: Path) -> None:
    formats = {
        None: Format(Kind.AVRO, f"http://{registry}/subjects/orders-value"),
        "old": Format(Kind.AVRO, f"http://me:pass%20word@{registry}/schemas/ids/7"),
        "proto": Format(Kind.PROTOBUF, f"http://{registry}/subjects/proto/versions/2#shop.Order"),
        "file": Format(Kind.AVRO, "orders.avsc"),
        "text": Format(Kind.STRING),
    }
    found = fetched(formats, tmp_path)
    assert found["file"] == formats["file"] and found["text"] == formats["text"]
    assert found[None] == Format(Kind.AVRO, f"{tmp_path}/subjects-orders-value.avsc", f"http://{registry}")
    assert found["old"].registry == f"http://me:pass%20word@{registry}"
    assert json.loads((tmp_path / "subjects-orders-value.avsc").read_text()) == AVRO
    assert json.loads((tmp_path / "schemas-ids-7.avsc").read_text()) == AVRO
    proto = f"{tmp_path}/subjects-proto-versions-2.proto#shop.Order"
    assert found["proto"] == Format(Kind.PROTOBUF, proto, f"http://{registry}")
    login = base64.b64encode(b"me:pass word").decode()
    assert Handler.asked == [None, f"Basic {login}", None]


@pytest.mark.parametrize(
    ("path", "kind", "says"),
    [
        (
            "subjects/absent",
            Kind.AVRO,
            "/subjects/absent/versions/latest: the registry answers 404 Not Found",
        ),
        ("subjects/orders-value", Kind.JSON, "/latest is avro, and the format json"),
        ("subjects/refers", Kind.AVRO, "/latest refers to others: give it as one file"),
        ("subjects/other", Kind.AVRO, "the answer is not a registry's: it has no schema"),
    ],
)
def test_a_schema_that_cannot_be_had(registry: str, path: str, kind: Kind, says: str) -> None:
    with pytest.raises(JobError) as caught:
        fetch_schema(f"http://me:secret@{registry}/{path}", kind)
    assert says in str(caught.value) and "secret" not in str(caught.value)


def test_a_registry_that_does_not_answer() -> None:
    with pytest.raises(JobError, match="refused"):
        fetch_schema("http://127.0.0.1:1/subjects/orders-value", Kind.AVRO)


def test_two_registries_with_the_same_subject_are_two_files(registry: str, tmp_path: Path) -> None:
    first = fetched({None: Format(Kind.AVRO, f"http://{registry}/schemas/ids/8")}, tmp_path)
    (tmp_path / "schemas-ids-8.avsc").write_text("of another registry")
    again = fetched({None: Format(Kind.AVRO, f"http://{registry}/schemas/ids/8")}, tmp_path)
    assert first[None].schema != again[None].schema
    assert json.loads(Path(str(again[None].schema)).read_text()) == OLDER


def framed(schema_id: int, schema: Any, value: Any) -> bytes:
    """As a registry's serializer writes it."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, value)
    return b"\0" + schema_id.to_bytes(4, "big") + stream.getvalue()


@pytest.fixture
def fresh_cache() -> Iterator[None]:
    """A worker keeps schemas for ever; each test has a registry of its own."""
    schema_by_id.cache_clear()
    yield
    schema_by_id.cache_clear()


def test_each_record_is_read_by_the_schema_that_wrote_it(registry: str, fresh_cache: None) -> None:
    read = avro_decoder(json.dumps(READERS), "orders", f"http://{registry}")._make()
    at = datetime(2026, 11, 28, tzinfo=UTC)
    then = datetime.fromtimestamp(1_700_000_000, tz=UTC)
    older, newer = framed(8, OLDER, {"id": 1, "paid": 250}), {"id": 2, "at": at, "spare": "x", "price": 2.5}
    for _ in range(3):
        expected = {"id": 1, "at": then, "price": None, "tag": b"\xff", "paid_cents": 250}
        assert read(older) == expected, "defaults, aliases, and int as long"
        expected = {"id": 2, "at": at, "price": 2.5, "tag": b"\xff", "paid_cents": 0}
        assert read(framed(9, NEWER, newer)) == expected
    assert len(Handler.asked) == 2, "each schema is fetched once"
    read = avro_decoder(json.dumps(AVRO), "orders", f"http://{registry}")._make()
    assert read(framed(7, AVRO, {"id": 5})) == {"id": 5}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (framed(99, AVRO, {"id": 5}), "ids/99: the registry answers 404 Not Found"),
        (framed(4294967295, AVRO, {"id": 5}), "ids/4294967295: the registry answers 400 Bad Request"),
        (framed(10, AVRO, {"id": 5}), "the schema 10 of the registry is not Avro"),
        (framed(11, AVRO, {"id": 5}), "ids/11 is json, and the format avro"),
        (framed(12, OTHER, {"id": "x"}), "mismatch"),
        (framed(8, OLDER, {"id": 1, "paid": 2}) + b"x", "1 bytes are left behind the record"),
        (framed(8, OLDER, {"id": 1, "paid": 2})[:-1], None),
    ],
)
def test_a_record_whose_schema_is_not_to_be_had_is_that_records_error(
    registry: str, fresh_cache: None, data: bytes, says: str | None
) -> None:
    read = avro_decoder(json.dumps(READERS), "orders", f"http://{registry}")._make()
    for _ in range(2):
        with pytest.raises(Exception, match=says) as caught:
            read(data)
        assert not isinstance(caught.value, RegistryUnavailable)
    assert len(Handler.asked) == 1, "what it does not have is asked for once"


def test_a_registry_that_is_away_is_no_records_error(registry: str, fresh_cache: None) -> None:
    read = avro_decoder(json.dumps(AVRO), "orders", "http://127.0.0.1:1")._make()
    with pytest.raises(RegistryUnavailable, match=r"ids/7: .*refused"):
        read(framed(7, AVRO, {"id": 5}))
    read = avro_decoder(json.dumps(AVRO), "orders", f"http://{registry}")._make()
    for schema_id, status in ((13, 503), (14, 401)):
        with pytest.raises(RegistryUnavailable, match=f"ids/{schema_id}: the registry answers {status}"):
            read(framed(schema_id, AVRO, {"id": 5}))
    assert issubclass(UnusableSchema, JobError) and not issubclass(UnusableSchema, RegistryUnavailable)
