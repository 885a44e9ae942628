"""``minikafka import`` as its user has it: what it prints, and one clear line when something is wrong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from minikafka.cli import import_
from minikafka.cli.main import main
from tests.spark.conftest import CONF
from tests.spark.import_support import files_below, records_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.parquet"
    columns = {"user": [1, 2, 1, None], "at": [5, 6, 7, 8], "body": ["a", "b", None, "d"]}
    pq.write_table(pa.table(columns), path)
    return path


def test_what_it_says(shared_session: SparkSession, table: Path, tmp_path: Path, capsys: Capture) -> None:
    data = tmp_path / "data"
    given = ["import", str(table), "--data-dir", str(data), "--topic", "events", "--partitions", "2"]
    given += ["--key-column", "user", "--key-format", "string", "--timestamp-column", "at"]
    given += ["--value-format", "json"]
    assert main([*given, "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "4 rows would go to the new topic events, 2 partitions, from these offsets",
        "value: the whole row; order: as the table has them",
    ]
    assert not data.exists()
    assert main([*given, "--compression", "zstd", "--config", "compression.zstd.level=9"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["PARTITION", "OFFSETS", "SEGMENTS", "BYTES"]
    assert lines[-1].startswith("4 records of ") and "2 segments of the new topic events" in lines[-1]
    found = [each for partition in (0, 1) for each in records_of(data, "events", partition)]
    rows = {(each.key, each.timestamp): json.loads(each.value or b"") for each in found}
    assert rows[b"1", 7] == {"user": 1, "at": 7, "body": None} and rows[None, 8]["body"] == "d"
    assert main([*given, "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["records"] == 4 and not done["is_new_topic"]
    assert sum(each["first_offset"] for each in done["partitions"]) == 4


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["{tmp}/absent"], "{tmp}/absent does not exist"),
        (["{tmp}/t.parquet"], "has no column value: name one with --value-column"),
        (["{tmp}/t.parquet", "--value-column", "*"], "whole rows are json, avro or protobuf: give"),
        (["{tmp}/t.parquet", "--value-column", "body", "--data-dir", "/proc/data"], "/proc/data"),
        (["{tmp}/t.parquet", "--value-column", "body", "--data-dir", "{tmp}/t.parquet"], "{tmp}/t.parquet: "),
        (["{tmp}/t.parquet", "--value-column", "body", "--topic", "a b"], "'a b' is no topic's name"),
        (["{tmp}/t.parquet", "--value-format", "avro", "--value-schema", "no"], "cannot read the schema no"),
        (["{tmp}/t.parquet", "--value-format", "avro", "--value-schema", "{tmp}/t.parquet"], "is not Avro"),
        (["{tmp}/t.parquet", "--config", "segment.bytes=1"], "segment.bytes"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(
    shared_session: SparkSession,
    table: Path,
    tmp_path: Path,
    capsys: Capture,
    arguments: list[str],
    says: str,
) -> None:
    places = {"tmp": str(tmp_path)}
    given = [text.format_map(places) for text in arguments]
    for name, value in (("--data-dir", str(tmp_path / "data")), ("--topic", "events")):
        if name not in given:
            given += [name, value]
    assert import_.main(given) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("plan: ")]
    assert len(lines) == 1 and lines[0].startswith("minikafka import: "), lines
    assert says.format_map(places) in lines[0]
    assert not (tmp_path / "data").exists() or not files_below(tmp_path / "data")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "required"),
        (["t", "--data-dir", "d"], "--topic"),
        (["--partitions", "0"], "'0' is not a number from 1 to 100000"),
        (["--value-schema-id", "-1"], "is not a number from 0 to 2147483647"),
        (["--value-format", "avro"], "--value-format avro needs --value-schema FILE"),
        (["--key-schema", "x.avsc"], "--key-schema x.avsc: the format bytes needs no schema"),
        (["--batch-size", "2MiB"], "--batch-size 2097152: must be from 1024 to 1048588"),
        (["--batch-size", "many"], "many: must be a number of bytes"),
        (["--config", "segment.bytes"], "'segment.bytes' is not NAME=VALUE"),
        (["--compression", "lzma"], "invalid choice"),
    ],
)
def test_bad_usage(capsys: Capture, arguments: list[str], says: str) -> None:
    if arguments and arguments[0].startswith("--"):
        arguments = ["t", "--data-dir", "d", "--topic", "o", *arguments]
    with pytest.raises(SystemExit) as caught:
        import_.main(arguments)
    assert caught.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="util-linux is not installed")
def test_a_disk_that_takes_no_more_leaves_nothing(java: None, tmp_path: Path) -> None:
    """A limit of files' size stands for a full disk: the same error of the same call."""
    values = pa.array([os.urandom(1_000) for _ in range(8_000)])
    pq.write_table(pa.table({"value": values}), tmp_path / "t.parquet", use_dictionary=False)
    conf = [part for pair in CONF.items() for part in ("--conf", "=".join(pair))]
    command = ["prlimit", "--fsize=4000000", sys.executable, "-m", "minikafka.cli.main", "import"]
    command += [str(tmp_path / "t.parquet"), "--data-dir", str(tmp_path / "data"), "--topic", "o", *conf]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    expected = f"minikafka import: {tmp_path}/data: File too large; nothing was imported"
    assert done.stderr.splitlines()[-1] == expected
    assert [path.name for path in (tmp_path / "data").iterdir()] == [".lock"]
