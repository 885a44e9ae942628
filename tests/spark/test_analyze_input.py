"""``minikafka analyze`` told what it cannot do: one clear line each, exit status 1, nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from minikafka.cli import analyze
from tests.spark.logs import LogDir, batch


@pytest.fixture(autouse=True)
def spark_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> int:
        raise AssertionError("Spark would have been started")

    monkeypatch.setattr(analyze, "run_job", refuse)


@pytest.fixture
def logs(tmp_path: Path) -> LogDir:
    """A log directory with the topic "orders", and "empty", which has a segment without a byte."""
    made = LogDir(tmp_path / "logs")
    made.segment("orders", [batch(0, 3)])
    (made.partition("empty") / "00000000000000000000.log").touch()
    return made


def refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, *arguments: object) -> str:
    """What is said to these arguments, which are good for nothing."""
    status = analyze.main([*map(str, arguments), "--output", str(tmp_path / "out")])
    shown = capsys.readouterr()
    assert status == 1
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert line.startswith("minikafka analyze: ")
    assert not (tmp_path / "out").exists()
    return line.removeprefix("minikafka analyze: ")


def test_what_is_no_log_directory(capsys: pytest.CaptureFixture[str], tmp_path: Path, logs: LogDir) -> None:
    assert refused(capsys, tmp_path, tmp_path / "none") == f"{tmp_path}/none does not exist"
    assert "is not a log directory" in refused(capsys, tmp_path, tmp_path)
    segment = logs.path / "orders-0" / "00000000000000000000.log"
    assert "is a file, not a log directory" in refused(capsys, tmp_path, segment)
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "meta.properties").write_text("version=0\nbroker.id=1\n")
    assert refused(capsys, tmp_path, tmp_path / "bare") == f"{tmp_path}/bare: there are no partitions"
    (tmp_path / "bare" / "meta.properties").write_text("version=0\nbroker.id=one\n")
    assert "broker.id" in refused(capsys, tmp_path, tmp_path / "bare")


def test_topics_that_are_not_there_or_have_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, logs: LogDir
) -> None:
    assert refused(capsys, tmp_path, logs.path, "--topic", "payments").endswith(
        "there is no topic 'payments'"
    )
    assert refused(capsys, tmp_path, logs.path, "--topic", "empty").endswith("topic 'empty' has no data")
    (logs.path / "orders-0" / "00000000000000000000.log").write_bytes(b"")
    assert refused(capsys, tmp_path, logs.path).endswith("none of its topics has data")


def test_directories_that_do_not_go_together(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, logs: LogDir
) -> None:
    assert refused(capsys, tmp_path, logs.path, logs.path) == f"{logs.path} is named twice"
    other = LogDir(tmp_path / "other")
    other.segment("orders", [batch(0, 3)])
    assert "say whose they are: --brokers 1=DIR,2=DIR" in refused(capsys, tmp_path, logs.path, other.path)
    assert "belongs to broker 0, not to 4" in refused(capsys, tmp_path, "--brokers", f"4={other.path}")
    (other.path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=another\n")
    assert "belongs to cluster test" in refused(capsys, tmp_path, logs.path, other.path)


def test_settings_that_cannot_be(capsys: pytest.CaptureFixture[str], tmp_path: Path, logs: LogDir) -> None:
    assert "retention.ms" in refused(capsys, tmp_path, logs.path, "--retention-ms", "soon")
    assert "retention.mss" in refused(capsys, tmp_path, logs.path, "--config", "orders:retention.mss=1")
    assert "no such topic" in refused(capsys, tmp_path, logs.path, "--config", "payments:retention.ms=1")
    missing = tmp_path / "server.properties"
    assert str(missing) in refused(capsys, tmp_path, logs.path, "--broker-config", missing)


def test_results_that_cannot_be_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, logs: LogDir
) -> None:
    nowhere = tmp_path / "nowhere" / "report.html"
    assert (
        refused(capsys, tmp_path, logs.path, "--html", nowhere)
        == f"--html {nowhere}: there is no such directory"
    )
    file = tmp_path / "file"
    file.touch()
    assert refused(capsys, tmp_path, logs.path, "--parquet", file) == f"--parquet {file}: is not a directory"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["DIR", "--brokers", "one=DIR"],
        ["DIR", "--config", "retention.ms=1"],
        ["DIR", "--top-keys", "0"],
        ["DIR", "--conf", "driver.memory=1g"],
    ],
    ids=lambda arguments: " ".join(arguments) or "nothing",
)
def test_bad_usage_has_a_status_of_its_own(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        analyze.main(arguments)
    assert ended.value.code == 2
    assert "minikafka analyze: error: " in capsys.readouterr().err
