"""Exports to tables as tests run them, and the tables as other programs read them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from minikafka.protocol.records.records import Record, build_batch
from minikafka.spark.runtime.session import JobError
from minikafka.spark.tables.table import Change, Progress, Table, Tables, parse_partitions
from tests.spark.export_support import make_job, options
from tests.spark.logs import NOW_MS, LogDir

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from minikafka.spark.tables.job import TopicCommit

KINDS = ["iceberg", "delta"]


def lake(kind: str, root: Path) -> Tables:
    """The tables below ``root``, with an SQLite catalog beside them where they need one."""
    root.mkdir(exist_ok=True)
    if kind == "delta":
        from minikafka.spark.tables.delta import DeltaTables

        return DeltaTables(str(root))
    from minikafka.spark.tables.iceberg import IcebergTables

    return IcebergTables(f"sqlite:///{root}/catalog.db", warehouse=str(root))


def export(
    spark: SparkSession,
    logs: Path,
    tables: Tables,
    *,
    partition_by: str | None = None,
    upsert: bool = False,
    merge_mode: str | None = None,
    target_bytes: int = 1 << 20,
    expire_after_ms: int | None = None,
    keeps_errors: bool = True,
    job: Any = None,
    **changed: Any,
) -> list[TopicCommit]:
    """One run over the whole log directory."""
    from minikafka.spark.export.decoding import OnError
    from minikafka.spark.tables.job import TableOptions, export_tables

    on_error = OnError.COLUMN if keeps_errors else OnError.FAIL
    wanted = TableOptions(
        export=options(logs, "", latest="logEnd", **({"on_error": on_error} | changed)),
        partitions=None if partition_by is None else parse_partitions(partition_by),
        is_upsert=upsert,
        merge_mode=merge_mode,
        keeps_errors=keeps_errors,
        target_bytes=target_bytes,
        expire_after_ms=expire_after_ms,
    )
    return export_tables(job or make_job(spark), wanted, tables)


def open_table(tables: Tables, topic: str, *, errors: bool = False) -> Table:
    """As it is now."""
    table = tables.table(topic, errors=errors)
    assert table.load()
    return table


def arrow(tables: Tables, topic: str, *, errors: bool = False) -> pa.Table:
    """The table as pyiceberg or delta-rs reads it."""
    table: Any = open_table(tables, topic, errors=errors)
    if type(table).__name__ == "IcebergTable":
        return table._table.scan().to_arrow()
    return table._table.to_pyarrow_table()


def rows(tables: Tables, topic: str, *, errors: bool = False) -> list[dict[str, Any]]:
    """Every row, by partition and offset."""
    found: list[dict[str, Any]] = arrow(tables, topic, errors=errors).to_pylist()
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))


def offsets(tables: Tables, topic: str, partition: int = 0) -> list[int]:
    """Of one partition, ascending."""
    found = arrow(tables, topic)
    chosen = found.filter(pc.equal(found["partition"], partition))
    return sorted(chosen["offset"].to_pylist())


def progress(tables: Tables, topic: str) -> Progress:
    found = open_table(tables, topic).progress()
    assert found is not None
    return found


def files_below(root: Path) -> set[Path]:
    """Data files, and marks of runs."""
    return {path for path in root.rglob("*") if path.is_file() and path.parent.parent.name == "data"}


def written(base_offset: int, *records: tuple[bytes | None, bytes | None]) -> bytes:
    """A batch of these keys and values, offset n at NOW_MS + n."""
    found = [
        Record(base_offset + index, NOW_MS + base_offset + index, key, value)
        for index, (key, value) in enumerate(records)
    ]
    return build_batch(found, base_offset=base_offset)


def lose_to_another_export(
    spark: SparkSession, logs: LogDir, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Export the topic "t", while another export comes in between before the commit: the first is refused."""
    table_type = type(tables.table("t"))
    commit = table_type.commit

    def late(self: Any, change: Change) -> None:
        monkeypatch.setattr(table_type, "commit", commit)
        assert len(export(spark, logs.path, tables)) == 1  # the other one, from start to end
        commit(self, change)

    monkeypatch.setattr(table_type, "commit", late)
    with pytest.raises(JobError, match=r"another export has written to the table .* committed nothing"):
        export(spark, logs.path, tables)
