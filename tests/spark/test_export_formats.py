"""Keys and values decoded in every format, and what becomes of those that do not decode."""

from __future__ import annotations

import datetime
import io
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from minikafka.spark.export.decoding import Format, Kind, format_of, parse_formats
from minikafka.spark.runtime.session import JobError, explain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC = datetime.UTC
SCHEMA = "key binary, value binary, topic string, partition int, offset long"

JSON_SCHEMA = {
    "$defs": {"line": {"properties": {"sku": {"type": "string"}, "count": {"type": "integer"}}}},
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "paid": {"type": ["boolean", "null"]},
        "price": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        "tags": {"type": "object", "additionalProperties": {"type": "string"}},
        "kind": {"enum": ["a", "b"]},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
}

AVRO_SCHEMA = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "before", "type": ["null", "State"]},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [
                        {"name": "sku", "type": "string"},
                        {"name": "sizes", "type": {"type": "map", "values": ["null", "int"]}},
                    ],
                },
            },
        },
        {"name": "note", "type": ["null", "string"]},
        {"name": "number", "type": ["int", "long"]},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}

INSIDE_ITSELF = {"type": "record", "name": "A", "fields": [{"name": "a", "type": ["null", "A"]}]}

PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
enum State { NEW = 0; PAID = 1; }
message Line { string sku = 1; map<string, int32> sizes = 2; }
message Order {
  int64 id = 1;
  google.protobuf.Timestamp at = 2;
  State state = 3;
  repeated Line lines = 4;
  optional string note = 5;
  uint64 big = 6;
  bytes raw = 7;
  oneof payment { string card = 8; Line cash = 9; }
}
"""


def decoded(
    spark: SparkSession,
    values: list[bytes | None],
    wanted: Format,
    *,
    on_error: str = "column",
    confluent: bool = False,
) -> list[dict[str, Any]]:
    """The column ``value`` and why it is null, of records with these values."""
    from minikafka.spark.export.decoding import BytesDecoder, OnError, decode
    from minikafka.spark.export.job import make_decoder

    frame = spark.createDataFrame(
        [(None, value, "orders", 0, offset) for offset, value in enumerate(values)], SCHEMA
    )
    decoder = make_decoder(wanted, confluent=confluent)
    rows = decode(frame, BytesDecoder(), decoder, OnError(on_error)).orderBy("offset").collect()
    return [row.asDict(recursive=True) for row in rows]


def values(rows: list[dict[str, Any]]) -> list[Any]:
    return [row["value"] for row in rows]


def errors(rows: list[dict[str, Any]]) -> list[Any]:
    return [row["value_error"] for row in rows]


def schema_file(directory: Path, name: str, text: str) -> str:
    path = directory / name
    path.write_text(text)
    return str(path)


def test_strings_are_utf8(spark: SparkSession) -> None:
    rows = decoded(spark, ["välue".encode(), b"\xff\xfe", None, b""], Format(Kind.STRING))
    assert values(rows) == ["välue", None, None, ""]
    assert errors(rows) == [None, "is not UTF-8", None, None]


def test_the_rule_fail_names_the_record(spark: SparkSession) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        decoded(spark, [b"fine", b"\xff"], Format(Kind.STRING), on_error="fail")
    assert explain(caught.value) == "orders-0, offset 1: the value is not UTF-8"


def test_json_with_a_json_schema(spark: SparkSession, tmp_path: Path) -> None:
    whole = {
        "id": 1,
        "paid": True,
        "price": 9.5,
        "at": "2026-11-22T07:00:00Z",
        "lines": [{"sku": "a", "count": 2}],
        "tags": {"x": "y"},
        "kind": "a",
        "note": None,
        "unknown": 5,
    }
    texts = [json.dumps(whole), '{"id": 2}', '{"id": "many"}', "not json", '{"id": 3', "[1]"]
    wanted = Format(Kind.JSON, schema_file(tmp_path, "orders.json", json.dumps(JSON_SCHEMA)))
    rows = decoded(spark, [*(text.encode() for text in texts), None], wanted)
    expected = {name: value for name, value in whole.items() if name != "unknown"}
    expected["at"] = datetime.datetime(2026, 11, 22, 7)  # noqa: DTZ001 Spark's collect gives the session's zone
    first, second, *others = values(rows)
    first["at"] = first["at"].astimezone(UTC).replace(tzinfo=None)
    assert first == expected
    assert second["id"] == 2 and set(second.values()) == {2, None}
    assert others == [None] * 5
    assert errors(rows) == [None, None, *["is not JSON of the schema"] * 4, None]


def test_json_with_columns_as_spark_writes_them(spark: SparkSession, tmp_path: Path) -> None:
    wanted = Format(Kind.JSON, schema_file(tmp_path, "orders.ddl", "id bigint, inner struct<a: int>\n"))
    prefixed = b"\x00\x00\x00\x00\x07" + b'{"id": 1, "inner": {"a": 2}}'
    rows = decoded(spark, [prefixed, b'{"id": 1}', b"\x00", b""], wanted, confluent=True)
    assert values(rows) == [{"id": 1, "inner": {"a": 2}}, None, None, None]
    assert errors(rows) == [None, *["does not begin with a schema id"] * 3]


def test_avro(spark: SparkSession, tmp_path: Path) -> None:
    order = {
        "id": 7,
        "at": datetime.datetime(2026, 11, 22, 7, tzinfo=UTC),
        "price": Decimal("12.50"),
        "state": "PAID",
        "before": None,
        "tags": {"x": "y"},
        "lines": [{"sku": "a", "sizes": {"s": 1, "m": None}}],
        "note": "now",
        "number": 2**40,
        "uuid": "6a3c5f0e-6dd0-4b0e-9a3c-0d2c3c4d5e6f",
    }
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO_SCHEMA), order)
    data = out.getvalue()
    wanted = Format(Kind.AVRO, schema_file(tmp_path, "orders.avsc", json.dumps(AVRO_SCHEMA)))
    rows = decoded(spark, [data, data + b"x", data[:-3], None], wanted)
    first = values(rows)[0]
    first["at"] = first["at"].astimezone(UTC)
    assert first == order
    assert values(rows)[1:] == [None] * 3
    assert errors(rows)[0] is errors(rows)[3] is None
    assert "1 bytes are left" in errors(rows)[1] and "does not decode" in errors(rows)[2]
    rows = decoded(spark, [b"\x00\x00\x00\x00\x01" + data], wanted, confluent=True)
    assert values(rows)[0]["id"] == 7


@pytest.fixture(scope="module")
def descriptor_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("proto")
    (directory / "orders.proto").write_text(PROTO)
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{directory}", "--include_imports"]
    path = directory / "orders.desc"
    subprocess.run([*command, f"--descriptor_set_out={path}", str(directory / "orders.proto")], check=True)
    return path


def proto_order(descriptor_set: Path) -> bytes:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    for each in descriptor_pb2.FileDescriptorSet.FromString(descriptor_set.read_bytes()).file:
        pool.Add(each)
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))()
    order.id, order.state, order.big, order.raw = 7, 1, 2**64 - 1, b"\xff"
    order.at.FromSeconds(1_700_000_000)
    order.lines.add(sku="a").sizes["s"] = 3
    order.cash.sku = "b"
    return bytes(order.SerializeToString())


def test_protobuf(spark: SparkSession, descriptor_set: Path) -> None:
    data = proto_order(descriptor_set)
    for file in (descriptor_set, descriptor_set.with_suffix(".proto")):
        rows = decoded(spark, [data, b"\xff\xff", None, b""], Format(Kind.PROTOBUF, f"{file}#shop.Order"))
        first, wrong, null, empty = values(rows)
        assert first.pop("at").astimezone(UTC) == datetime.datetime.fromtimestamp(1_700_000_000, UTC)
        assert first == {
            "id": 7,
            "state": "PAID",
            "lines": [{"sku": "a", "sizes": {"s": 3}}],
            "note": None,
            "big": Decimal(2**64 - 1),
            "raw": b"\xff",
            "card": None,
            "cash": {"sku": "b", "sizes": {}},
        }
        assert wrong is null is None and empty["id"] == 0 and empty["at"] is None
        assert errors(rows)[0] is errors(rows)[2] is errors(rows)[3] is None
        assert "DecodeError" in errors(rows)[1]


def test_what_no_column_can_hold_spoils_only_its_own_record(
    spark: SparkSession, descriptor_set: Path
) -> None:
    year_40_000_000 = b"\x12\x0a\x08" + b"\xff" * 8 + b"\x0f"  # field 2, 10 bytes: seconds = 2**60 - 1
    rows = decoded(
        spark, [b"\x08\x07", year_40_000_000], Format(Kind.PROTOBUF, f"{descriptor_set}#shop.Order")
    )
    assert values(rows)[0]["id"] == 7 and values(rows)[1] is None
    assert errors(rows)[0] is None and "does not decode" in errors(rows)[1]


def test_protobuf_of_a_schema_registry(spark: SparkSession, descriptor_set: Path) -> None:
    data, wanted = proto_order(descriptor_set), Format(Kind.PROTOBUF, f"{descriptor_set}#shop.Order")
    prefix = b"\x00\x00\x00\x00\x01"
    rows = decoded(spark, [prefix + b"\x00" + data, prefix + b"\x02\x02" + data], wanted, confluent=True)
    assert [value["id"] for value in values(rows)] == [7, 7]


@pytest.mark.parametrize(
    ("kind", "name", "text", "says"),
    [
        (Kind.JSON, "a.json", "{nonsense", "is not JSON"),
        (Kind.JSON, "a.json", '{"type": "string"}', "must describe an object"),
        (Kind.JSON, "a.json", '{"properties": {"a": {"type": ["string", "integer"]}}}', "/a has several"),
        (Kind.JSON, "a.json", '{"properties": {"a": {"$ref": "#"}}}', "inside itself"),
        (Kind.JSON, "a.json", '{"properties": {"a": {"$ref": "#/$defs/b"}}}', "not there"),
        (Kind.JSON, "a.ddl", "id bigint,,", "is no list of columns"),
        (Kind.AVRO, "a.avsc", '{"type": "record"}', "is not Avro"),
        (Kind.AVRO, "a.avsc", json.dumps(INSIDE_ITSELF), "inside itself"),
        (Kind.AVRO, "a.avsc", '["string", "int"]', "several types"),
        (Kind.PROTOBUF, "a.desc", "nonsense", "descriptor set"),
        (Kind.PROTOBUF, "a.proto", "message {", "is not Protobuf"),
        (Kind.PROTOBUF, "a.proto", PROTO, "name one with"),
        (Kind.PROTOBUF, "a.proto#shop.Nothing", PROTO, "has no message shop.Nothing; it has shop.Line"),
        (Kind.PROTOBUF, "a.proto", 'syntax = "proto3"; message A { A a = 1; }', "inside itself"),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_says_where(
    spark: SparkSession, tmp_path: Path, kind: Kind, name: str, text: str, says: str
) -> None:
    from minikafka.spark.export.job import make_decoder

    schema_file(tmp_path, name.partition("#")[0], text)
    with pytest.raises(JobError) as caught:
        make_decoder(Format(kind, str(tmp_path / name)), confluent=False)
    assert says in str(caught.value) and name.partition("#")[0] in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [Kind.JSON, Kind.AVRO, Kind.PROTOBUF])
def test_a_schema_file_that_is_not_there(spark: SparkSession, tmp_path: Path, kind: Kind) -> None:
    from minikafka.spark.export.job import make_decoder

    with pytest.raises(JobError, match=r"cannot read the schema .*missing: No such file"):
        make_decoder(Format(kind, str(tmp_path / "missing")), confluent=False)


def test_formats_by_topic() -> None:
    found = parse_formats(["string", "orders=avro", "old=bytes"], ["orders=o.avsc"], "value")
    assert format_of("anything", found, "value") == Format(Kind.STRING)
    assert format_of("orders", found, "value") == Format(Kind.AVRO, "o.avsc")
    assert format_of("old", found, "value") == Format(Kind.BYTES)
    assert parse_formats(["json"], ["a.json", "b=b.json"], "key")["b"] == Format(Kind.JSON, "b.json")


@pytest.mark.parametrize(
    ("formats", "schemas", "says"),
    [
        (["xml"], [], "--value-format xml: must be one of bytes, string, json, avro, protobuf"),
        (["json"], [], "--value-format json needs --value-schema FILE"),
        (["string", "bytes"], [], "--value-format is given twice for all topics"),
        (["string"], ["a=a.json"], "--value-schema a.json: the format string needs no schema"),
    ],
)
def test_formats_that_cannot_be(formats: list[str], schemas: list[str], says: str) -> None:
    with pytest.raises(JobError, match=f"^{says}$"):
        parse_formats(formats, schemas, "value")


def test_a_topic_without_its_schema() -> None:
    found = parse_formats(["json"], ["orders=a.json"], "value")
    with pytest.raises(JobError, match="of topic other needs --value-schema other=FILE"):
        format_of("other", found, "value")
