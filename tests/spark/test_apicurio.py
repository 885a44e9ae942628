"""Schemas of a real registry, Apicurio, whose own storage is a topic of our broker's."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from minikafka.cli.main import main
from minikafka.spark.export import record_schemas
from minikafka.spark.export.decoding import Format
from minikafka.spark.export.record_schemas import fetched
from tests.integration.support import confluent
from tests.integration.support.process import BrokerProcess, java_is_there
from tests.spark.logs import LogDir
from tests.spark.servers import SchemaRegistry
from tests.spark.tables_support import files_below, lake, rows, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Capture = pytest.CaptureFixture[str]

FIRST = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
PRICE = {"name": "price", "type": ["null", "double"], "default": None}
SECOND = FIRST | {"fields": [{"name": "id", "type": "long"}, PRICE]}


@pytest.fixture(scope="module")
def registry(
    java: None, broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SchemaRegistry]:
    if not java_is_there():
        assert os.environ.get("CI") != "true", "Maven is missing"
        pytest.skip("java and mvn are not there")
    server = SchemaRegistry(tmp_path_factory.mktemp("registry") / "server", broker.bootstrap)
    try:
        yield server
    finally:
        server.close()


def framed(schema_id: int, schema: Any, value: Any) -> bytes:
    """As a registry's serializer writes it."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, value)
    return b"\0" + schema_id.to_bytes(4, "big") + stream.getvalue()


def test_records_of_several_schemas_of_a_real_registry(
    shared_session: SparkSession,
    registry: SchemaRegistry,
    broker: BrokerProcess,
    tmp_path: Path,
    capsys: Capture,
) -> None:
    first = registry.register("orders-value", FIRST)
    second = registry.register("orders-value", SECOND)
    assert first != second
    proto = 'syntax = "proto3"; package shop; message Refund { int64 id = 1; }'
    registry.register("refunds-value", proto, "PROTOBUF")
    logs = LogDir(tmp_path / "logs")
    values = [
        framed(first, FIRST, {"id": 1}),
        framed(second, SECOND, {"id": 8_589_934_592, "price": 2.5}),
        framed(987_654, FIRST, {"id": 3}),
        b"no registry's",
    ]
    logs.segment("orders", [written(0, *((b"k", value) for value in values))])
    logs.segment("refunds", [written(0, (b"k", b"\0\0\0\0\2\0\x08\x05"))])
    url = f"{registry.url}{registry.API}/subjects"
    command = [
        "export",
        str(logs.path),
        "--latest",
        "logEnd",
        "--format",
        "delta",
        "-o",
        str(tmp_path / "lake"),
    ]
    command += ["--value-format", "avro", "--value-schema", f"{url}/orders-value", "--confluent"]
    command += ["--value-format", "refunds=protobuf", "--value-schema", f"refunds={url}/refunds-value"]
    assert main(command) == 0, capsys.readouterr().err
    tables = lake("delta", tmp_path / "lake")
    assert [row["value"] for row in rows(tables, "orders")] == [
        {"id": 1, "price": None},
        {"id": 8_589_934_592, "price": 2.5},
    ]
    reasons = [row["reason"] for row in rows(tables, "orders", errors=True)]
    assert f"{url.removesuffix('/subjects')}/schemas/ids/987654: the registry answers 404" in reasons[0]
    assert reasons[1] == "the value does not begin with a schema id"
    assert [row["value"] for row in rows(tables, "refunds")] == [{"id": 5}]
    # What the registry has been told is in our broker's log.
    journal = broker.data_dir / "kafkasql-journal-0" / f"{0:020}.log"
    assert b"Order" in journal.read_bytes()


def test_a_registry_that_goes_away_ends_the_run_and_what_it_knew_is_in_our_broker(
    shared_session: SparkSession,
    registry: SchemaRegistry,
    broker: BrokerProcess,
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It answers when the run begins, and no longer when the first record wants its schema."""
    schema = FIRST | {"name": "Away"}
    away = registry.register("away-value", schema)
    logs = LogDir(tmp_path / "logs")
    logs.segment("away", [written(0, (b"k", framed(away, schema, {"id": 1})))])
    output = tmp_path / "lake"

    def command(server: SchemaRegistry) -> list[str]:
        url = f"{server.url}{server.API}/subjects/away-value"
        given = ["export", str(logs.path), "--latest", "logEnd", "--format", "delta", "-o", str(output)]
        return [*given, "--value-format", "avro", "--confluent", "--value-schema", url]

    def last_answer(formats: Mapping[str | None, Format], directory: Path) -> dict[str | None, Format]:
        found = fetched(formats, directory)
        if found[None].registry is not None:
            registry.close()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(record_schemas, "fetched", last_answer)
        assert main(command(registry)) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    where = f"{registry.url}{registry.API}/schemas/ids/{away}"
    assert said.startswith(f"minikafka export: the schema {where}: ") and "refused" in said, said
    assert rows(lake("delta", output), "away") == [] and not files_below(output)

    again = SchemaRegistry(tmp_path / "again", broker.bootstrap)
    try:
        # It answers before it has read the topic.
        subjects = f"{again.API}/subjects"
        confluent.wait_until(lambda: "away-value" in again.ask(subjects), "it knows what the first one knew")
        assert main(command(again)) == 0, capsys.readouterr().err
    finally:
        again.close()
    assert [row["value"] for row in rows(lake("delta", output), "away")] == [{"id": 1}]
