"""``minikafka export`` as its user has it: what it prints, and one clear line when something is wrong."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from minikafka.cli import export
from minikafka.cli.main import main
from minikafka.spark.export.decoding import Kind
from minikafka.spark.runtime.job import JobCounters, JobProgress, PlainView, Status, TerminalView
from minikafka.spark.runtime.session import explain
from tests.integration.support.clients import Confluent
from tests.integration.support.process import BrokerProcess
from tests.integration.support.records import Record
from tests.spark.export_support import rows, wait_for_checkpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Capture = pytest.CaptureFixture[str]
AVRO = ["--value-format", "avro", "--value-schema", "no.avsc"]
TEXTS = [b'{"id": 1, "name": "a"}', b"\xff", None]


@pytest.fixture
def written(broker: BrokerProcess, topic: str) -> str:
    """A topic with three values: right, wrong, and null."""
    Confluent().write_all(broker.bootstrap, {topic: ("none", [Record(b"k", text) for text in TEXTS])})
    wait_for_checkpoint(broker, topic, len(TEXTS))
    return topic


def test_formats_and_the_rules_for_what_does_not_decode(
    shared_session: SparkSession, broker: BrokerProcess, written: str, tmp_path: Path, capsys: Capture
) -> None:
    schema = tmp_path / "schema.ddl"
    schema.write_text("id bigint, name string")
    formats = ["--key-format", "string", "--value-format", f"{written}=json", "--value-schema", str(schema)]
    given = [str(broker.data_dir), "--topics", written, *formats]
    assert main(["export", *given, "-o", str(tmp_path / "fail")]) == 1
    said = capsys.readouterr()
    expected = f"minikafka export: {written}-0, offset 1: the value is not JSON of the schema"
    assert said.err.splitlines()[-1] == expected
    assert [*(tmp_path / "fail" / "_minikafka" / "staging").iterdir()] == []
    assert main(["export", *given, "-o", str(tmp_path / "null"), "--on-error", "null"]) == 0
    assert capsys.readouterr().out == "3 records in 1 files, commit 0\n"
    found = rows(tmp_path / "null", written)
    assert [(row["key"], row["value"]) for row in found] == [
        ("k", {"id": 1, "name": "a"}),
        ("k", None),
        ("k", None),
    ]
    assert "value_error" not in found[0]
    assert main(["export", *given, "-o", str(tmp_path / "column"), "--on-error", "column"]) == 0
    errors = [row["value_error"] for row in rows(tmp_path / "column", written)]
    assert errors == [None, "is not JSON of the schema", None]
    capsys.readouterr()
    assert main(["export", *given, "-o", str(tmp_path / "null")]) == 0
    assert capsys.readouterr().out.startswith("nothing new below the checkpointed high watermark")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["{tmp}/missing", "-o", "{tmp}/out"], "{tmp}/missing does not exist"),
        (["{tmp}", "-o", "{tmp}/out"], "{tmp} is not a log directory"),
        (["{tmp}/file", "-o", "{tmp}/out"], "{tmp}/file is a file, not a log directory"),
        (["{data}", "-o", "{tmp}/file/out"], "the output {tmp}/file/out cannot be written: Not a directory"),
        (["{data}", "-o", "/proc/out"], "the output /proc/out cannot be written: "),
        (["{data}", "-o", "nowhere://host/out"], "the output nowhere://host/out cannot be written: "),
        (["{data}", "-o", "{tmp}/out", "--topics", "absent"], "absent: not in {data}"),
        (["{data}", "-o", "{tmp}/out", "--topics-pattern", "("], "subscribePattern"),
        (["{data}", "{data}", "-o", "{tmp}/out"], "{data} twice"),
        (["{data}", "-o", "{tmp}/out", *AVRO], "cannot read the schema no.avsc: No such file"),
        (["{data}", "-o", "{tmp}/damaged"], "{tmp}/damaged/_minikafka/commits/00000000000000000000.json is"),
        (["{data}", "-o", "{tmp}/out", "--metrics-file", "{tmp}"], "--metrics-file {tmp}: must be a file"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(
    shared_session: SparkSession,
    broker: BrokerProcess,
    written: str,
    tmp_path: Path,
    capsys: Capture,
    arguments: list[str],
    says: str,
) -> None:
    (tmp_path / "file").touch()
    commits = tmp_path / "damaged" / "_minikafka" / "commits"
    commits.mkdir(parents=True)
    (commits / "00000000000000000000.json").write_text("{}")
    places = {"tmp": str(tmp_path), "data": str(broker.data_dir)}
    assert export.main([text.format_map(places) for text in arguments]) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("plan: ")]
    assert len(lines) == 1 and lines[0].startswith("minikafka export: "), lines
    assert says.format_map(places) in lines[0]
    assert not [*tmp_path.rglob("*.parquet")]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "required"),
        (["dir"], "--output"),
        (["dir", "-o", "out", "--value-format", "xml"], "must be one of"),
        (["dir", "-o", "out", "--value-format", "json"], "needs --value-schema FILE"),
        (["dir", "-o", "out", "--conf", "memory=1"], "is not a setting"),
        (["dir", "-o", "out", "--topics", "a", "--topics-pattern", "b"], "not allowed with"),
    ],
)
def test_bad_usage(capsys: Capture, arguments: list[str], says: str) -> None:
    with pytest.raises(SystemExit) as caught:
        export.main(arguments)
    assert caught.value.code == 2
    assert says in capsys.readouterr().err


def test_one_line_out_of_a_workers_error() -> None:
    trace = 'Traceback (most recent call last):\n  File "worker.py", line 1, in main\n    read()\n'
    text = (
        f"[PYTHON] failed: {trace}minikafka.spark.source.split_reader.CorruptLog: a.log, position 7: torn\n\n"
    )
    assert explain(RuntimeError(text)) == "a.log, position 7: torn"
    assert explain(RuntimeError(f"x: {trace}ValueError: no\n")) == "ValueError: no"
    assert explain(RuntimeError("[WRONG] it is. SQLSTATE: 42000\n\nJVM stacktrace:\nx")) == "[WRONG] it is."
    assert explain(RuntimeError("calling None.x\n: java.io.IOException: disk full\n\tat x")) == "disk full"


def test_progress_is_lines_where_there_is_no_terminal(spark: SparkSession) -> None:
    out = io.StringIO()
    with JobProgress(spark, JobCounters("export"), out).phase("count"):
        spark.range(10).count()
    *meanwhile, end = out.getvalue().splitlines()  # a slow machine has lines meanwhile
    assert re.fullmatch(r"count: \d+\.\d s", end)
    assert all(re.match(r"count: \d+/\d+ tasks", line) for line in meanwhile)
    view = PlainView(out)
    view.show("count", Status(tasks=4, done=1, records=1000, size=2_500_000))
    assert out.getvalue().endswith("count: 1/4 tasks, 1,000 records, 2.5 MB\n")


def test_progress_is_a_bar_on_a_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    view = TerminalView(out)
    view.begin("write Parquet")
    view.show("write Parquet", Status(tasks=4, done=1, failed=1))
    view.end("write Parquet", 1.0)
    assert "write Parquet" in out.getvalue() and "━" in out.getvalue()
    assert "1/4 tasks, 1 failed" in out.getvalue()


def test_the_formats_that_help_names_are_those_that_there_are() -> None:
    """It names them without what an export needs."""
    assert tuple(Kind) == export.RECORD_FORMATS
