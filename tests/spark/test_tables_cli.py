"""``minikafka export --format iceberg|delta`` as its user has it: what it prints, and one line of what is
wrong."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from minikafka.cli import export
from minikafka.cli.main import main
from tests.spark.logs import LogDir, batch
from tests.spark.tables_support import lake, offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Capture = pytest.CaptureFixture[str]


def test_a_continuous_export_goes_on_until_it_is_interrupted(
    shared_session: SparkSession, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = LogDir(tmp_path / "logs")
    logs.segment("t", [batch(0, 3)])
    waits: list[float] = []

    def pause(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 1:
            logs.segment("t", [batch(3, 2)], base_offset=3)
        if len(waits) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(export, "pause", pause)
    metrics = tmp_path / "export.prom"
    arguments = [str(logs.path), "--latest", "logEnd", "--format", "delta", "-o", str(tmp_path / "lake")]
    arguments += ["--continuous", "--interval", "1h", "--metrics-file", str(metrics)]
    assert main(["export", *arguments]) == 130
    table = f"{tmp_path}/lake/t"
    assert capsys.readouterr().out.splitlines() == [
        f"{table}: 3 records, commit 1",
        f"{table}: 2 records, commit 2",
        "nothing new",
    ]
    assert all(3500 < wait <= 3600 for wait in waits)
    assert offsets(lake("delta", tmp_path / "lake"), "t") == [*range(5)]
    text = metrics.read_text()
    assert 'minikafka_spark_lag{spark_job="export",topic="t"} 0.0' in text
    assert "minikafka_spark_last_success_timestamp_seconds" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--format", "iceberg", "-o", "out"], "--format iceberg needs --catalog, such as sqlite:////lake"),
        (["--format", "delta"], "arguments are required: --output"),
        (["--format", "delta", "-o", "out", "--catalog", "x"], "a Delta table is a directory"),
        (["--format", "delta", "-o", "out", "--by", "hour"], "tables take --partition-by"),
        (["--format", "delta", "-o", "out", "--on-error", "column"], "are in TABLE_errors"),
        (["-o", "out", "--upsert"], "--upsert is for --format iceberg or delta"),
        (["--format", "delta", "-o", "out", "--merge-mode", "copy-on-write"], "--merge-mode is for --upsert"),
        (
            ["--format", "delta", "-o", "out", "--upsert", "--merge-mode", "merge-on-read"],
            "delta-rs writes no deletion vectors",
        ),
        (["-o", "out", "--on-error", "table"], "--on-error table is for --format iceberg or delta"),
        (["-o", "out", "--interval", "soon"], "'soon' is not a time such as 500ms, 10s"),
        (["-o", "out", "--target-file-size", "big"], "big: must be a number of bytes"),
    ],
)  # fmt: skip
def test_bad_usage(capsys: Capture, arguments: list[str], says: str) -> None:
    with pytest.raises(SystemExit) as caught:
        export.main(["dir", *arguments])
    assert caught.value.code == 2
    assert says in capsys.readouterr().err


def test_catalogs_that_cannot_be_used_are_one_line_without_their_password(
    shared_session: SparkSession, tmp_path: Path, capsys: Capture
) -> None:
    logs = LogDir(tmp_path / "logs")
    logs.segment("t", [batch(0, 3)])
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    cases = {
        f"sqlite:///{tmp_path}/missing/catalog.db": "unable to open database file",
        f"http://me:secret@127.0.0.1:{closed}": "refused",
        "nowhere": "",
        "gopher://x": "",
    }
    for catalog, says in cases.items():
        arguments = [
            str(logs.path),
            "--format",
            "iceberg",
            "--catalog",
            catalog,
            "-o",
            str(tmp_path / "lake"),
        ]
        assert export.main(arguments) == 1
        said = capsys.readouterr().err.splitlines()[-1]
        assert re.match(r"minikafka export: the catalog .* cannot be used: .+", said), said
        assert says in said and "secret" not in said


@pytest.mark.parametrize(("kind", "module"), [("iceberg", "pyiceberg"), ("delta", "deltalake")])
def test_a_library_that_is_missing_is_named_with_its_extra(
    shared_session: SparkSession,
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    module: str,
) -> None:
    monkeypatch.setattr("minikafka.spark.tables.table.find_spec", lambda name: None)
    arguments = [str(tmp_path), "--format", kind, "-o", str(tmp_path)]
    arguments += ["--catalog", "sqlite:///x"] if kind == "iceberg" else []
    assert export.main(arguments) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == f"minikafka export: {module} is not installed: pip install 'minikafka[tables]'"
