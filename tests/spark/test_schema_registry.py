"""Schemas are fetched from a registry, by Confluent's API, and what is wrong with one is said in one line."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from minikafka.spark.export.decoding import Format, Kind
from minikafka.spark.export.registry import fetch_schema, fetched
from minikafka.spark.runtime.session import JobError

AVRO = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
ANSWERS = {
    "/subjects/orders-value/versions/latest": {"schema": json.dumps(AVRO), "version": 3, "id": 7},
    "/schemas/ids/7": {"schema": json.dumps(AVRO)},
    "/subjects/proto/versions/2": {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"},
    "/subjects/refers/versions/latest": {"schema": "{}", "references": [{"name": "a"}]},
    "/subjects/other/versions/latest": ["no schema"],
}


class Handler(BaseHTTPRequestHandler):
    """Answers as Confluent's registry does."""

    asked: list[str | None] = []  # noqa: RUF012 of the one server of a test

    def do_GET(self) -> None:
        self.asked.append(self.headers["Authorization"])
        found = ANSWERS.get(self.path)
        data = json.dumps(found or {"error_code": 40401, "message": "Subject not found."}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Not on the terminal."""


@pytest.fixture
def registry() -> Iterator[str]:
    Handler.asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
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
    assert found[None] == Format(Kind.AVRO, f"{tmp_path}/subjects-orders-value.avsc")
    assert json.loads((tmp_path / "subjects-orders-value.avsc").read_text()) == AVRO
    assert json.loads((tmp_path / "schemas-ids-7.avsc").read_text()) == AVRO
    assert found["proto"] == Format(Kind.PROTOBUF, f"{tmp_path}/subjects-proto-versions-2.proto#shop.Order")
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
