"""What is read of a table: the rows that live in its snapshot now, and never only its files."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from minikafka.errors import MinikafkaError
from minikafka.spark.load.tables import TableFormat, find_table
from tests.spark.import_support import records_of, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "orders"


def values(log_directory: Path) -> list[bytes | None]:
    return [each.value for each in records_of(log_directory, TOPIC)]


def rows(first: int, count: int) -> pa.Table:
    return pa.table(
        {
            "value": [f"v{number}" for number in range(first, first + count)],
            "day": [number % 2 for number in range(count)],
        }
    )


def test_an_iceberg_table_by_its_directory_and_by_its_catalog(spark: SparkSession, tmp_path: Path) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    uri = f"sqlite:///{tmp_path}/catalog.db"
    catalog = SqlCatalog("lake", uri=uri, warehouse=f"file://{tmp_path}/warehouse")
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.orders", schema=rows(0, 1).schema)
    table.append(rows(0, 50))
    table.append(rows(50, 50))
    table.delete("value = 'v7'")
    table.append(rows(100, 5))
    alive = {f"v{number}".encode() for number in range(105)} - {b"v7"}
    directory = tmp_path / "warehouse" / "shop" / "orders"
    assert find_table(str(directory)).format is TableFormat.ICEBERG
    done = run(spark, directory, tmp_path / "a", TOPIC)
    assert done.records == 104 and set(values(tmp_path / "a")) == alive
    assert values(tmp_path / "a")[-5:] == [f"v{number}".encode() for number in range(100, 105)]
    run(spark, "shop.orders", tmp_path / "b", TOPIC, catalog=f"lake={uri}")
    assert values(tmp_path / "b") == values(tmp_path / "a")
    with pytest.raises(MinikafkaError, match=r"the Iceberg table shop\.none cannot be read: .*not exist"):
        find_table("shop.none", catalog=f"lake={uri}")


def test_a_delta_table_with_partitions_and_a_rewritten_file(spark: SparkSession, tmp_path: Path) -> None:
    from deltalake import DeltaTable, write_deltalake

    path = tmp_path / "delta"
    write_deltalake(path, rows(0, 20), partition_by=["day"])
    write_deltalake(path, rows(20, 5), mode="append", partition_by=["day"])
    DeltaTable(path).delete("value = 'v3'")
    write_deltalake(path, rows(25, 1), mode="append", partition_by=["day"])
    assert len(list(path.rglob("*.parquet"))) > len(DeltaTable(path).file_uris()), (
        "a file that counts no more"
    )
    run(spark, path, tmp_path / "data", TOPIC, partition="day", partitions=2)
    there = [{each.value for each in records_of(tmp_path / "data", TOPIC, day)} for day in (0, 1)]
    alive = [{f"v{number}".encode() for number in range(day, 20, 2)} - {b"v3"} for day in (0, 1)]
    for number in range(5):
        alive[number % 2].add(f"v{20 + number}".encode())
    alive[0].add(b"v25")
    assert there == alive


def z85(data: bytes) -> str:
    """As Delta writes bytes into its log."""
    ours = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    pythons = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
    return base64.b85encode(data).decode().translate(str.maketrans(pythons, ours))


def deletion_vector(deleted: list[int]) -> dict[str, Any]:
    """Inline, as Delta's protocol has it: a magic number and a portable array of one Roaring bitmap."""
    container = struct.pack(f"<{len(deleted)}H", *deleted)
    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(deleted) - 1, 16) + container
    data = struct.pack("<IqI", 1681511377, 1, 0) + bitmap
    padded = data + bytes(-len(data) % 4)
    return {
        "storageType": "i",
        "pathOrInlineDv": z85(padded),
        "sizeInBytes": len(data),
        "cardinality": len(deleted),
    }


def test_a_delta_tables_deletion_vectors_are_applied(spark: SparkSession, tmp_path: Path) -> None:
    """The table as Spark leaves it after a DELETE: the file is as it was. delta-rs writes none itself."""
    path = tmp_path / "delta"
    (path / "_delta_log").mkdir(parents=True)
    pq.write_table(rows(0, 100), path / "part-0.parquet", row_group_size=30)
    schema = {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in (("value", "string"), ("day", "long"))
        ],
    }
    deleted = [0, 29, 30, 64, 99, 3]
    deleted.sort()
    add = {
        "path": "part-0.parquet",
        "partitionValues": {},
        "size": (path / "part-0.parquet").stat().st_size,
        "modificationTime": 1_700_000_000_000,
        "dataChange": True,
        "stats": json.dumps({"numRecords": 100}),
        "deletionVector": deletion_vector(deleted),
    }
    features = {"minReaderVersion": 3, "minWriterVersion": 7}
    features |= {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}  # type: ignore[dict-item]
    metadata = {
        "id": "1f2e3d4c-0000-4000-8000-000000000000",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": [],
        "configuration": {"delta.enableDeletionVectors": "true"},
        "createdTime": 1_700_000_000_000,
    }
    lines = [{"protocol": features}, {"metaData": metadata}, {"add": add}]
    (path / "_delta_log" / f"{0:020d}.json").write_text("\n".join(map(json.dumps, lines)))
    done = run(spark, path, tmp_path / "data", TOPIC)
    assert done.records == 94
    assert values(tmp_path / "data") == [f"v{n}".encode() for n in range(100) if n not in deleted]
    features |= {"readerFeatures": ["columnMapping"], "writerFeatures": ["columnMapping"]}  # type: ignore[dict-item]
    lines[2]["add"].pop("deletionVector")
    (path / "_delta_log" / f"{0:020d}.json").write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(MinikafkaError, match="features that are not read here: columnMapping"):
        find_table(str(path))


@pytest.mark.parametrize(
    ("files", "options", "says"),
    [
        ({}, {"source": "absent"}, "absent does not exist"),
        ({}, {}, " has no data files"),
        ({"t.parquet": b"PAR1 and no more"}, {}, "t.parquet is not a Parquet file that can be read: "),
        ({"_delta_log/x": b""}, {}, " cannot be read: "),
        ({"metadata/v1.metadata.json": b"{}"}, {}, "the Iceberg table "),
        ({}, {"kind": TableFormat.ICEBERG}, "is not an Iceberg table: it has no metadata/*.metadata.json"),
        ({}, {"kind": TableFormat.DELTA, "catalog": "c"}, "--catalog is for Iceberg tables, not for delta"),
        ({}, {"source": "nowhere://host/t"}, "no store can be opened for it"),
    ],
)  # fmt: skip
def test_what_is_no_table_is_one_line(
    tmp_path: Path, files: dict[str, bytes], options: dict[str, Any], says: str
) -> None:
    for name, content in files.items():
        (tmp_path / "t" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "t" / name).write_bytes(content)
    (tmp_path / "t").mkdir(exist_ok=True)
    source = options.pop("source", str(tmp_path / "t"))
    with pytest.raises(MinikafkaError) as caught:
        find_table(source if "://" in source else str(tmp_path / source), **options)
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_one_topic_of_an_export_of_several(tmp_path: Path) -> None:
    for topic in ("orders", "refunds"):
        directory = tmp_path / f"topic={topic}" / "date=2026-01-01"
        directory.mkdir(parents=True)
        pq.write_table(rows(0, 10), directory / "part-0.parquet")
    hidden = tmp_path / "_minikafka" / "staging" / "x.parquet"
    hidden.parent.mkdir(parents=True)
    hidden.write_bytes(b"of a run that writes")
    table = find_table(str(tmp_path), topic="refunds")
    assert [unit.rows for unit in table.units] == [10]
    assert table.columns == {"value", "day", "topic", "date"}
    with pytest.raises(
        MinikafkaError, match="an export of several topics: name one with --source-topic: orders"
    ):
        find_table(str(tmp_path), topic="absent")
