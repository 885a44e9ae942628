"""What goes wrong only where executors are other machines: a disk that they do not share, and attempts at
tasks that still write when they no longer count."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import msgspec
import pyarrow as pa

from minikafka.files import OsFiles
from minikafka.spark.compact.plan import CopyOutcome, CopyTask, copy_group
from minikafka.spark.export.job import STAGING, ExportOutput, LocalStore, export, open_store
from minikafka.spark.runtime.job import REMOVALS_MAX, remove_attempts
from minikafka.spark.runtime.session import JobError
from minikafka.spark.runtime.storage import UnusableLocation
from minikafka.spark.source.options import Search, parse_options
from minikafka.spark.source.planning import selected_logs, splits_of, wanted_of
from minikafka.spark.source.split_reader import DataLoss, SplitReader
from minikafka.types import TopicPartition
from tests.spark.export_support import make_job, options
from tests.spark.logs import LogDir, batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class AnotherMachinesDisk:
    """A store of which this machine sees all but one of the files that executors write."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def files_under(self, directory: str) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = self._inner.files_under(directory)
        return [each for each in found if each[0].endswith(".parquet")][1:]


@pytest.mark.parametrize("kind", ["path", "uri"])
def test_an_output_that_executors_do_not_share_is_refused_and_nothing_is_committed(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    logs = LogDir(tmp_path / "logs")
    for partition in (0, 1):
        logs.segment("t", [batch(0, 5)], partition=partition)
    logs.high_watermarks({TopicPartition("t", partition): 5 for partition in (0, 1)})
    output = tmp_path / "out"
    wanted = options(logs.path, output if kind == "path" else output.as_uri())
    with pytest.raises(
        JobError, match=r"10 records were written, and \d+ of them are in .*a file system that all"
    ):
        export(make_job(spark), wanted, open_store=lambda *given: AnotherMachinesDisk(open_store(*given)))
    assert not [*output.rglob("*.parquet")] and not [*output.rglob("*.json")]
    commit = export(make_job(spark), wanted)
    assert commit is not None and commit.records == 10


def test_what_an_attempt_writes_after_the_job_has_ended_is_no_part_of_the_export(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, "_minikafka/lock")
    for name in (
        "topic=t/date=2026-01-01/part-0.parquet",
        "_temporary/0/_temporary/attempt_1/topic=t/part-0.parquet",
    ):
        path = tmp_path / STAGING / "id" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"PAR1")
    output = ExportOutput(store, by="date")
    assert output.staged("id") == [("topic=t/date=2026-01-01/part-0.parquet", 4)]


class BusyDirectory(OsFiles):
    """Into which another process writes whenever it is removed, ``times`` times."""

    def __init__(self, times: int) -> None:
        self.times = times

    def remove_tree(self, path: str) -> None:
        if self.times:
            self.times -= 1
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        super().remove_tree(path)


def test_a_directory_in_which_an_attempt_still_writes_is_removed(tmp_path: Path) -> None:
    (tmp_path / "attempt-1").mkdir()
    remove_attempts(BusyDirectory(2), str(tmp_path / "attempt-1"))
    assert not (tmp_path / "attempt-1").exists()
    remove_attempts(OsFiles(), str(tmp_path / "attempt-1"))
    with pytest.raises(OSError, match="not empty"):
        remove_attempts(BusyDirectory(REMOVALS_MAX), str(tmp_path / "attempt-2"))


def test_a_late_attempt_at_a_copy_makes_no_staging_directory(tmp_path: Path) -> None:
    staging = tmp_path / "t-0" / "compaction"
    job: Any = None  # it does not come so far
    made = CopyTask(
        group=0, job=job, sources=(), end_offset=0, aborted=(), seen=(), staging=str(staging), codec=None
    )
    rows = pa.RecordBatch.from_pydict({"group": [0], "offset": [-1]})
    (answer,) = copy_group({0: made})([rows])
    outcome = msgspec.json.decode(answer.column("outcome")[0].as_py(), type=CopyOutcome)
    assert outcome.error is not None and f"{staging} is not on " in outcome.error
    assert not staging.exists()


@pytest.mark.parametrize("is_mounted", [False, True], ids=["missing", "empty"])
def test_a_log_directory_that_an_executor_does_not_have_is_no_log_that_was_deleted(
    tmp_path: Path, is_mounted: bool
) -> None:
    logs = LogDir(tmp_path / "logs")
    logs.segment("t", [batch(0, 5)])
    read = parse_options({"path": str(logs.path), "latest": "logEnd", "failOnDataLoss": "false"})
    (log,) = selected_logs(read)
    (split,) = splits_of(wanted_of(log, read), read, Search())
    columns = ["offset"]
    assert next(SplitReader(split, columns, read).record_batches()).num_rows == 5
    shutil.rmtree(logs.path / "t-0")
    assert [*SplitReader(split, columns, read).record_batches()] == [], "retention, or the topic is deleted"
    shutil.rmtree(logs.path)
    if is_mounted:
        logs.path.mkdir()
    with pytest.raises(UnusableLocation, match=rf"^{logs.path} is not on .*at the same path") as caught:
        [*SplitReader(split, columns, read).record_batches()]
    assert not isinstance(caught.value, DataLoss)


def test_the_python_that_is_asked_for_runs_on_the_workers(tmp_path: Path, java: None) -> None:
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    script = (
        "import sys\n"
        "from minikafka.spark.runtime.session import open_session\n"
        f"conf = [('spark.pyspark.python', {str(python)!r}), ('spark.driver.memory', '512m')]\n"
        "with open_session('which', master='local[1]', conf=conf) as spark:\n"
        "    print(spark.sparkContext.parallelize([1], 1).map(lambda _: sys.executable).collect())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == f"[{str(python)!r}]\n", done.stderr
