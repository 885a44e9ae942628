"""Tables of a Hive metastore, the one that PySpark's jars hold: each offset once by it, too."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from minikafka.cli import export as command
from minikafka.spark.tables.iceberg import IcebergTables
from tests.spark.logs import LogDir, batch
from tests.spark.servers import HiveMetastore
from tests.spark.tables_support import export, files_below, lose_to_another_export, offsets, progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def hive(java: None, tmp_path: Path) -> Iterator[HiveMetastore]:
    server = HiveMetastore(tmp_path / "hive")
    try:
        yield server
    finally:
        server.close()


def test_a_hive_metastores_table_grows_and_of_two_exports_at_once_one_loses(
    spark: SparkSession, hive: HiveMetastore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg import catalog
    from pyiceberg.utils.config import Config

    monkeypatch.setenv("PYICEBERG_CATALOG__HIVE__HIVE__HIVE2_COMPATIBLE", "true")  # PySpark's is Hive 2
    monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())  # it is read when the module is loaded
    uri = f"hive=thrift://127.0.0.1:{hive.port}"
    tables = IcebergTables(uri, warehouse=str(hive.warehouse))
    logs = LogDir(tmp_path / "logs")
    logs.segment("t", [batch(0, 10)])
    export(spark, logs.path, tables)
    logs.segment("t", [batch(10, 5)], base_offset=10)
    lose_to_another_export(spark, logs, tables, monkeypatch)
    assert offsets(tables, "t") == [*range(15)] and progress(tables, "t").number == 2
    assert len(files_below(hive.warehouse)) == 2, "the loser's files are gone"
    assert export(spark, logs.path, tables) == []


def test_a_metastore_that_is_away_is_one_line(
    shared_session: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    uri = f"thrift://127.0.0.1:{closed}"
    assert command.main([str(tmp_path), "--format", "iceberg", "--catalog", uri, "-o", str(tmp_path)]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"minikafka export: the catalog {uri} cannot be used: "), said
    assert "connect" in said
