"""Tables of an Iceberg REST catalog: the project's own server, and each offset once by it, too."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from minikafka.cli.main import main
from minikafka.spark.load.tables import find_table
from minikafka.spark.runtime.session import JobError
from minikafka.spark.tables.files import RunDirectory
from minikafka.spark.tables.iceberg import IcebergTables
from minikafka.spark.tables.table import CommitUnknown
from tests.integration.support.process import java_is_there
from tests.spark.logs import LogDir, batch
from tests.spark.object_store import CREDENTIALS, ObjectStore
from tests.spark.servers import IcebergRest
from tests.spark.tables_support import export, lose_to_another_export, offsets, open_table, rows, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def maven(java: None) -> None:
    if not java_is_there():
        assert os.environ.get("CI") != "true", "Maven is missing"
        pytest.skip("java and mvn are not there")


@pytest.fixture(scope="module")
def rest(maven: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergRest]:
    with contextlib.closing(IcebergRest(tmp_path_factory.mktemp("rest") / "server")) as server:
        yield server


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """The environment knows it, and nothing else does."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with contextlib.closing(ObjectStore(tmp_path / "store.log")) as made:
        for name, value in made.environment().items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.fixture
def tables(rest: IcebergRest, topic: str) -> IcebergTables:
    """A namespace of the test's own."""
    return IcebergTables(rest.url, warehouse=None, namespace=topic.replace("-", "_").replace(".", "_"))


def files_of(tables: IcebergTables, rest: IcebergRest) -> set[Path]:
    """Data files and marks of runs."""
    table: Any = open_table(tables, "t")
    data = Path(table._table.location().removeprefix("file://").removeprefix("file:")) / "data"
    assert rest.warehouse in data.parents
    return {path for path in data.rglob("*") if path.is_file()}


def test_a_table_of_a_rest_catalog_grows_with_its_schema(
    shared_session: SparkSession, rest: IcebergRest, tmp_path: Path, capsys: Capture
) -> None:
    logs = LogDir(tmp_path / "logs")
    values = [json.dumps({"id": number}).encode() for number in range(3)]
    logs.segment("orders", [written(0, *((b"k", value) for value in values))])
    command = ["export", str(logs.path), "--latest", "logEnd", "--format", "iceberg", "--catalog", rest.url]
    command += ["--partition-by", "day(timestamp)", "--value-format", "json", "--value-schema"]
    (tmp_path / "first.sql").write_text("id int")
    (tmp_path / "second.sql").write_text("id bigint, name string")
    assert main([*command, str(tmp_path / "first.sql")]) == 0
    more = [(b"k", b'{"id": 8589934592, "name": "x"}'), (b"k", b"not JSON")]
    logs.segment("orders", [written(3, *more)], base_offset=3)
    assert main([*command, str(tmp_path / "second.sql")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said == [
        f"kafka.orders of {rest.url}: 3 records, commit 1",
        f"kafka.orders of {rest.url}: 2 records, 1 of them into its errors table, commit 2",
    ]
    tables = IcebergTables(rest.url, warehouse=None)
    assert [row["value"] for row in rows(tables, "orders")] == [
        *({"id": number, "name": None} for number in range(3)),
        {"id": 8589934592, "name": "x"},
    ]
    (error,) = rows(tables, "orders", errors=True)
    assert (error["offset"], error["value"]) == (4, b"not JSON")
    # The server's own word: two snapshots, of which the newer says what it holds.
    there = rest.ask("/v1/namespaces/kafka/tables/orders")["metadata"]
    assert len(there["snapshots"]) == 2
    newest = next(each for each in there["snapshots"] if each["snapshot-id"] == there["current-snapshot-id"])
    assert json.loads(newest["summary"]["minikafka.commit"])["ranges"] == {"0": [3, 5]}


def test_icebergs_own_library_reads_what_upserts_leave(
    spark: SparkSession, rest: IcebergRest, tables: IcebergTables, tmp_path: Path
) -> None:
    """Merge on read: of 100 rows 5 are replaced and 5 are gone, in the same files as before; then, of newer
    rows, some are gone."""
    logs = LogDir(tmp_path / "logs")
    keys = [b"k%02d" % number for number in range(100)]
    logs.segment("t", [written(0, *((key, b"1") for key in keys))])
    export(spark, logs.path, tables, upsert=True)
    before = {each.path for each in open_table(tables, "t").live_files()}
    changes = [*((key, b"2") for key in keys[10:15]), *((key, None) for key in keys[20:25])]
    logs.segment("t", [written(100, *changes, (b"x", b"1"), (b"y", b"1"))], base_offset=100)
    export(spark, logs.path, tables, upsert=True)
    files = open_table(tables, "t").live_files()
    assert before <= {each.path for each in files}, "none is written again"
    assert sum(each.deleted for each in files) == 10
    expected = {**dict.fromkeys(keys, "1"), **dict.fromkeys(keys[10:15], "2"), b"x": "1", b"y": "1"}
    for key in keys[20:25]:
        del expected[key]

    def read_by_java() -> dict[bytes, str]:
        found = rest.read(f"{tables._namespace}.t")
        assert len({key for _, _, key, _ in found}) == len(found), "each key is there once"
        return {key.encode(): value for _, _, key, value in found}

    assert read_by_java() == expected
    logs.segment("t", [written(112, *((key, None) for key in (b"x", b"y", *keys[:3])))], base_offset=112)
    export(spark, logs.path, tables, upsert=True)
    for key in (b"x", b"y", *keys[:3]):
        del expected[key]
    assert read_by_java() == expected
    assert {row["key"]: row["value"].decode() for row in rows(tables, "t")} == expected


def test_a_rest_catalog_whose_warehouse_is_in_s3(
    shared_session: SparkSession, maven: None, store: ObjectStore, tmp_path: Path, capsys: Capture
) -> None:
    """As companies have it: the catalog says where tables lie, the environment how the store is reached. Rows
    are changed in place, and what an upsert leaves is read by Iceberg's own library and imported again."""
    logs = LogDir(tmp_path / "logs")
    logs.segment("orders", [written(0, *((b"k%d" % number, b"1") for number in range(10)))])
    with contextlib.closing(IcebergRest(tmp_path / "rest", store)) as rest:
        command = ["export", str(logs.path), "--latest", "logEnd", "--format", "iceberg", "--upsert"]
        command += ["--catalog", rest.url]
        assert main(command) == 0
        logs.segment("orders", [written(10, (b"k3", b"2"), (b"k4", None))], base_offset=10)
        assert main(command) == 0
        assert capsys.readouterr().out.splitlines()[-1].endswith("commit 2")
        found = {key: value for _, _, key, value in rest.read("kafka.orders")}
        assert found == {f"k{number}": "2" if number == 3 else "1" for number in range(10) if number != 4}
        table = find_table("kafka.orders", catalog=rest.url)
        read = [row for unit in table.units for batch in unit.read(["key"]) for row in batch.to_pylist()]
    assert {row["key"].decode() for row in read} == found.keys()
    names = store.names("warehouse")
    assert any("/metadata/" in name for name in names) and any(name.endswith(".parquet") for name in names)


def test_an_upsert_in_a_rest_catalog(spark: SparkSession, tables: IcebergTables, tmp_path: Path) -> None:
    logs = LogDir(tmp_path / "logs")
    logs.segment("t", [written(0, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"))])
    export(spark, logs.path, tables, upsert=True)
    logs.segment("t", [written(3, (b"a", b"2"), (b"b", None))], base_offset=3)
    export(spark, logs.path, tables, upsert=True, expire_after_ms=0)
    assert {row["key"]: row["value"] for row in rows(tables, "t")} == {b"a": b"2", b"c": b"1"}
    table: Any = open_table(tables, "t")
    assert len(table._table.snapshots()) == 1, "the older one has expired"


def test_of_two_exports_at_once_the_server_refuses_one(
    spark: SparkSession,
    rest: IcebergRest,
    tables: IcebergTables,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logs = LogDir(tmp_path / "logs")
    logs.segment("t", [batch(0, 10)])
    lose_to_another_export(spark, logs, tables, monkeypatch)
    assert offsets(tables, "t") == [*range(10)]
    assert len(files_of(tables, rest)) == 1, "the loser's files are gone"


@pytest.mark.parametrize("moment", ["before the commit", "before the end"])
def test_killed_the_next_run_has_each_offset_once_and_removes_the_files(
    spark: SparkSession,
    rest: IcebergRest,
    tables: IcebergTables,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
) -> None:
    class Killed(BaseException):
        """Nothing catches it, as nothing catches SIGKILL."""

    def killed(*_: object) -> None:
        raise Killed

    logs = LogDir(tmp_path / "logs")
    logs.segment("t", [batch(0, 10)])
    is_committed = moment == "before the end"
    with monkeypatch.context() as patch:
        patch.setattr(
            *((RunDirectory, "end") if is_committed else (type(tables.table("t")), "commit")), killed
        )
        with pytest.raises(Killed):
            export(spark, logs.path, tables)
    assert offsets(tables, "t") == ([*range(10)] if is_committed else [])
    assert len(files_of(tables, rest)) == 2, "a data file and the mark of the run"
    assert bool(export(spark, logs.path, tables)) != is_committed
    assert offsets(tables, "t") == [*range(10)]
    (file,) = files_of(tables, rest)
    assert file.suffix == ".parquet"


class Gate:
    """Hands requests with the token ``sesame`` on to the catalog."""

    def __init__(self, rest: IcebergRest) -> None:
        self.loses_commits = False
        """Whether the answer to a commit is lost on the way."""
        gate = self

        class Handler(BaseHTTPRequestHandler):
            def _handle(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"] or 0))
                if self.headers["Authorization"] != "Bearer sesame":
                    return self._answer(401, "NotAuthorizedException")
                connection = http.client.HTTPConnection("127.0.0.1", rest.port)
                headers = {"Content-Type": "application/json"}
                connection.request(self.command, self.path, body or None, headers)
                response = connection.getresponse()
                found = response.read()
                connection.close()
                if gate.loses_commits and self.command == "POST" and self.path.endswith("/tables/t"):
                    return self._answer(504, "GatewayTimeout")
                self._send(response.status, found)

            do_GET = do_POST = do_HEAD = do_DELETE = _handle  # noqa: N815

            def _answer(self, status: int, kind: str) -> None:
                error = {"message": "by the gate", "type": kind, "code": status}
                self._send(status, json.dumps({"error": error}).encode())

            def _send(self, status: int, found: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(found)))
                self.end_headers()
                self.wfile.write(found)

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


@pytest.fixture
def gate(rest: IcebergRest) -> Iterator[Gate]:
    made = Gate(rest)
    yield made
    made.close()


@pytest.fixture
def configured(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyiceberg knows two catalogs, the right token for ``prod``."""
    from pyiceberg import catalog
    from pyiceberg.utils.config import Config

    for name, token in (("PROD", "sesame"), ("DEFAULT", "wrong")):
        monkeypatch.setenv(f"PYICEBERG_CATALOG__{name}__URI", gate.url)
        monkeypatch.setenv(f"PYICEBERG_CATALOG__{name}__TOKEN", token)
    monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())  # it is read when the module is loaded


def test_a_token_comes_from_pyicebergs_configuration_and_is_never_shown(
    shared_session: SparkSession, gate: Gate, configured: None, tmp_path: Path, capsys: Capture
) -> None:
    logs = LogDir(tmp_path / "logs")
    logs.segment("guarded", [batch(0, 3)])
    command = ["export", str(logs.path), "--latest", "logEnd", "--format", "iceberg", "--catalog"]
    for refused in (gate.url, f"other={gate.url}"):
        assert main([*command, refused]) == 1
        said = capsys.readouterr().err.splitlines()[-1]
        assert said.startswith(f"minikafka export: the catalog {refused} cannot be used: NotAuthorized"), said
        assert "wrong" not in said
    for named in ("prod", f"prod={gate.url}"):
        assert main([*command, named]) == 0
    assert "sesame" not in "".join(capsys.readouterr())


def test_a_commit_whose_answer_is_lost_is_neither_repeated_nor_undone(
    spark: SparkSession, gate: Gate, configured: None, tmp_path: Path
) -> None:
    logs = LogDir(tmp_path / "logs")
    logs.segment("t", [batch(0, 10)])
    tables = IcebergTables("prod", warehouse=None, namespace="lost")
    export(spark, logs.path, tables)
    logs.segment("t", [batch(10, 10)], base_offset=10)
    gate.loses_commits = True
    with pytest.raises(CommitUnknown, match="whether the commit has arrived is not known: start again"):
        export(spark, logs.path, tables)
    assert offsets(tables, "t") == [*range(20)], "it had arrived"
    gate.loses_commits = False
    assert export(spark, logs.path, tables) == []
    assert offsets(tables, "t") == [*range(20)]


def test_a_warehouse_of_a_rest_catalog_is_a_name_and_a_directory_a_path(
    rest: IcebergRest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given: dict[str, str] = {}

    def opened(text: str, **properties: str) -> Any:
        given.update(properties)
        raise OSError("closed")

    monkeypatch.setattr("minikafka.spark.tables.iceberg.open_catalog", opened)
    monkeypatch.chdir(tmp_path)
    for catalog, warehouse, expected in (
        ("http://catalog", "prod", "prod"),
        ("http://catalog", "./prod", f"file://{tmp_path}/prod"),
        ("http://catalog", "s3://lake/x", "s3://lake/x"),
        ("sqlite:////catalog.db", "prod", f"file://{tmp_path}/prod"),
    ):
        with pytest.raises(JobError, match="closed"):
            IcebergTables(catalog, warehouse=warehouse)
        assert given == {"warehouse": expected}
