"""Iceberg and Delta tables in S3, found by the environment alone: each offset once there, too."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from minikafka.cli.main import main
from minikafka.errors import MinikafkaError
from minikafka.spark.load.tables import find_table
from minikafka.spark.runtime import storage
from minikafka.spark.runtime.session import JobError
from minikafka.spark.runtime.storage import delta_errors, location
from minikafka.spark.tables import job
from minikafka.spark.tables.columns import as_spark
from minikafka.spark.tables.delta import DeltaTables
from minikafka.spark.tables.files import ORPHAN_AGE_MS, RUNNING
from minikafka.spark.tables.table import Change, Conflict, Tables, place_of
from tests.spark.logs import LogDir, batch
from tests.spark.object_store import CREDENTIALS, ObjectStore
from tests.spark.tables_support import (
    KINDS,
    export,
    lose_to_another_export,
    offsets,
    open_table,
    progress,
    rows,
    written,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Capture = pytest.CaptureFixture[str]
every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with pytest.MonkeyPatch.context() as environment:
        for name, value in CREDENTIALS.items():
            environment.setenv(name, value)
        made = ObjectStore(tmp_path_factory.mktemp("store") / "store.log")
        try:
            yield made
        finally:
            made.close()


@pytest.fixture
def place(store: ObjectStore, topic: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where in the bucket a test has its tables. The environment knows the store, and nothing else does."""
    for name, value in store.environment().items():
        monkeypatch.setenv(name, value)
    return topic


def lake(kind: str, store: ObjectStore, place: str, tmp_path: Path) -> Tables:
    return tables_at(kind, store.table_uri(place), tmp_path)


def tables_at(kind: str, uri: str, tmp_path: Path) -> Tables:
    if kind == "delta":
        return DeltaTables(uri)
    from minikafka.spark.tables.iceberg import IcebergTables

    return IcebergTables(f"sqlite:///{tmp_path}/catalog.db", warehouse=uri)


def data_files(store: ObjectStore, place: str) -> set[str]:
    """Data files and the marks of runs."""
    return {name for name in store.names(place) if "/data/" in f"/{name}"}


@every_kind
def test_a_table_in_s3_is_made_grows_and_is_imported_again(
    shared_session: SparkSession, store: ObjectStore, place: str, tmp_path: Path, capsys: Capture, kind: str
) -> None:
    logs = LogDir(tmp_path / "logs")
    logs.segment("orders", [batch(0, 20)])
    catalog = f"sqlite:///{tmp_path}/catalog.db"
    arguments = [str(logs.path), "--latest", "logEnd", "--format", kind, "-o", store.table_uri(place)]
    arguments += ["--catalog", catalog] if kind == "iceberg" else []
    assert main(["export", *arguments]) == 0
    logs.segment("orders", [batch(20, 10)], base_offset=20)
    assert main(["export", *arguments]) == 0
    tables = lake(kind, store, place, tmp_path)
    assert offsets(tables, "orders") == [*range(30)]
    assert progress(tables, "orders").number == 2
    assert capsys.readouterr().out.splitlines()[-1].endswith(": 10 records, commit 2")
    assert len(data_files(store, place)) == 2, "of the runs nothing is left but their files"

    name = f"{store.table_uri(place)}/orders" if kind == "delta" else "kafka.orders"
    table = find_table(name, catalog=catalog if kind == "iceberg" else None)
    read = [row for unit in table.units for batch in unit.read(["offset"]) for row in batch.to_pylist()]
    assert [row["offset"] for row in read] == [*range(30)]


@every_kind
def test_a_run_that_was_killed_is_named_and_its_files_go_when_they_are_a_day_old(
    spark: SparkSession,
    store: ObjectStore,
    place: str,
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    class Killed(BaseException):
        """Nothing catches it, as nothing catches SIGKILL."""

    def killed(*_: object) -> None:
        raise Killed

    logs = LogDir(tmp_path / "logs")
    logs.segment("t", [batch(0, 10)])
    tables = lake(kind, store, place, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(type(tables.table("t")), "commit", killed)
        with pytest.raises(Killed):
            export(spark, logs.path, tables)
    left = data_files(store, place)
    assert len(left) == 2 and any(name.endswith(RUNNING) for name in left)
    assert offsets(tables, "t") == []
    assert len(export(spark, logs.path, tables)) == 1
    assert "goes on, or was killed" in capsys.readouterr().err
    assert offsets(tables, "t") == [*range(10)]
    assert data_files(store, place) > left
    now_ms = job._now_ms()
    monkeypatch.setattr(job, "_now_ms", lambda: now_ms + ORPHAN_AGE_MS + 1)
    assert export(spark, logs.path, tables) == []
    assert "which was killed" in capsys.readouterr().err
    (only,) = data_files(store, place)
    assert only not in left
    assert offsets(tables, "t") == [*range(10)]


@every_kind
def test_of_two_exports_at_once_one_loses_and_removes_its_files(
    spark: SparkSession,
    store: ObjectStore,
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    logs = LogDir(tmp_path / "logs")
    logs.segment("t", [batch(0, 10)])
    tables = lake(kind, store, place, tmp_path)
    lose_to_another_export(spark, logs, tables, monkeypatch)
    assert offsets(tables, "t") == [*range(10)]
    assert len(data_files(store, place)) == 1


@every_kind
def test_upserts_small_files_and_old_snapshots_are_looked_after_in_s3(
    spark: SparkSession,
    store: ObjectStore,
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    monkeypatch.setattr(job, "SMALL_FILES_MIN", 2)
    logs = LogDir(tmp_path / "logs")
    tables = lake(kind, store, place, tmp_path)
    logs.segment("t", [written(0, (b"a", b"1"), (b"b", b"1"))])
    export(spark, logs.path, tables, upsert=True)
    logs.segment("t", [written(2, (b"a", b"2"), (b"c", b"2"), (b"b", None))], base_offset=2)
    export(spark, logs.path, tables, upsert=True)
    assert len(data_files(store, place)) > 1, "the first run's file is of an older snapshot"
    logs.segment("t", [written(5, (b"d", b"3"))], base_offset=5)
    monkeypatch.setattr(job, "_now_ms", lambda: 1 << 50)  # every snapshot is older, but for the newest
    export(spark, logs.path, tables, upsert=True, expire_after_ms=0)
    assert {row["key"]: row["value"] for row in rows(tables, "t")} == {b"a": b"2", b"c": b"2", b"d": b"3"}
    assert len(open_table(tables, "t").live_files()) == 1, "small files are one"
    assert len(data_files(store, place)) == 1


class Interposed:
    """Hands requests on to a store; ``before_commit`` is called when the first commit of a table comes."""

    def __init__(self, store: ObjectStore, before_commit: Callable[[], None]) -> None:
        self.conditions: list[str | None] = []
        served, calls = self, [before_commit]

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _handle(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"] or 0))
                if self.command == "PUT" and "/_delta_log/" in self.path:
                    served.conditions.append(self.headers["If-None-Match"])
                    if calls:
                        calls.pop()()
                connection = http.client.HTTPConnection("127.0.0.1", store.port)
                connection.request(self.command, self.path, body, dict(self.headers))
                response = connection.getresponse()
                found = response.read()
                self.send_response(response.status)
                for name, text in response.getheaders():
                    if name.lower() not in (
                        "content-length",
                        "transfer-encoding",
                        "connection",
                        "date",
                        "server",
                    ):
                        self.send_header(name, text)
                length = response.getheader("Content-Length", "0") if self.command == "HEAD" else len(found)
                self.send_header("Content-Length", str(length))
                self.end_headers()
                self.wfile.write(found)
                connection.close()

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _handle  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Not on the terminal."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def test_of_two_commits_of_one_version_the_store_itself_takes_the_first(
    spark: SparkSession, store: ObjectStore, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have seen that there is no such version yet; what decides is If-None-Match."""
    logs = LogDir(tmp_path / "logs")
    logs.segment("t", [batch(0, 10)])
    tables = lake("delta", store, place, tmp_path)
    export(spark, logs.path, tables)
    change = Change((), progress=progress(tables, "t"))
    first = open_table(tables, "t")
    between = Interposed(store, lambda: first.commit(change))
    try:
        monkeypatch.setenv("AWS_ENDPOINT_URL", between.url)
        second = open_table(tables, "t")
        with pytest.raises(Conflict):
            second.commit(change)
    finally:
        between.close()
    assert between.conditions == ["*"]


def test_what_the_store_refuses_is_one_line_in_its_own_words(place: str, tmp_path: Path) -> None:
    columns = as_spark(pa.schema([("offset", pa.int64())]))
    for kind in KINDS:
        table = tables_at(kind, "s3://pond", tmp_path).table("t")
        with pytest.raises(
            JobError, match=r"cannot be used: .*The specified bucket does not exist"
        ) as caught:
            table.load()
            table.create(columns, (), {})
        assert "\n" not in str(caught.value) and "\x1b" not in str(caught.value)


def test_of_causes_that_are_drawn_below_each_other_the_last_is_said() -> None:
    drawn = "Generic S3 error\n  \x1b[31m↳\x1b[0m HTTP error\n   \x1b[31m↳\x1b[0m Connection refused (111)\n"
    with (
        pytest.raises(JobError, match=r"^the table t: Generic S3 error: Connection refused \(111\)$"),
        delta_errors("the table t"),
    ):
        raise OSError(drawn)


def test_settings_of_the_store_are_checked_and_no_part_of_a_name(
    place: str, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        JobError, match=r"the output s3://lake/t cannot have settings behind \?: .*AWS_ENDPOINT_URL"
    ):
        place_of("s3://lake/t?scheme=http")
    files, _ = location(store.table_uri("none")).open()
    with pytest.raises(FileNotFoundError):
        files.list("lake/none")  # this store said so: no other has the bucket
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "minio:9000")
    with pytest.raises(MinikafkaError, match="AWS_ENDPOINT_URL_S3 must be a URL such as http://minio:9000"):
        location(store.table_uri("none")).open()
    with pytest.raises(JobError, match="cannot be used: AWS_ENDPOINT_URL_S3 must be a URL"):
        DeltaTables(store.table_uri(place)).table("t").load()
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://me:sesame@minio:9000")
    with pytest.raises(ValueError, match="must have no login") as caught:
        storage.endpoint()
    assert "sesame" not in str(caught.value)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://minio:9000/")
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    assert storage.endpoint() == ("https://minio:9000", "eu-central-1")
    assert storage.delta_options("s3a://lake/t") == {
        "aws_endpoint": "https://minio:9000",
        "aws_region": "eu-central-1",
    }
    assert storage.delta_options("/lake/t") is None
