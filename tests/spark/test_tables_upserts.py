"""Upserts into Iceberg tables that merge on read: what is written, what readers see, when files are
rewritten."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile

from minikafka.spark.load.tables import find_table
from minikafka.spark.runtime.session import JobError
from minikafka.spark.tables.files import FILE_SCHEMA, WrittenDeletes
from minikafka.spark.tables.job import upsert_tasks
from minikafka.spark.tables.table import Change, LiveFile
from tests.spark.logs import LogDir
from tests.spark.tables_support import export, files_below, lake, open_table, progress, rows, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from minikafka.spark.tables.table import Tables

KEYS = [b"k%03d" % number for number in range(100)]


class Topic:
    """A topic's log, and the newest value of each key by the records that were written."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.logs = LogDir(root / "logs")
        self.tables: Tables = lake("iceberg", root / "lake")
        self.newest: dict[bytes, bytes] = {}
        self._spark = spark
        self._end = 0

    def upsert(self, *records: tuple[bytes, bytes | None], **options: Any) -> None:
        """Write the records, and export them."""
        self.logs.segment("t", [written(self._end, *records)], base_offset=self._end)
        self._end += len(records)
        for key, value in records:
            self.newest.pop(key, None)
            if value is not None:
                self.newest[key] = value
        export(self._spark, self.logs.path, self.tables, upsert=True, **options)

    def check(self) -> None:
        """The table is the newest value of each key, as pyiceberg reads it."""
        found = rows(self.tables, "t")
        assert {row["key"]: row["value"] for row in found} == self.newest
        assert len(found) == len(self.newest), "each key is there once"

    def files(self) -> dict[str, LiveFile]:
        return {each.path: each for each in open_table(self.tables, "t").live_files()}


@pytest.fixture
def topic(spark: SparkSession, tmp_path: Path) -> Topic:
    return Topic(spark, tmp_path)


@pytest.mark.parametrize(
    ("offsets", "parallelism", "tasks"),
    [(0, 8, 1), (5, 8, 1), (50_000, 8, 1), (50_001, 8, 2), (400_000, 2, 2), (10**7, 8, 20)],
)
def test_few_records_are_for_few_tasks(offsets: int, parallelism: int, tasks: int) -> None:
    """Of an upsert, each of whose tasks makes a file."""
    assert upsert_tasks(offsets, parallelism) == tasks


def test_an_upsert_leaves_the_file_and_says_which_rows_are_gone(topic: Topic) -> None:
    topic.upsert(*((key, b"1") for key in KEYS))
    (path,) = topic.files()
    content = Path(path.removeprefix("file://")).read_bytes()
    topic.upsert((KEYS[7], b"2"), (KEYS[3], None), (b"new", b"1"))
    topic.check()
    after = topic.files()
    assert Path(path.removeprefix("file://")).read_bytes() == content
    assert (after[path].records, after[path].deleted) == (100, 2)
    (deletes,) = after[path].deletes
    found = pq.read_table(deletes.removeprefix("file://"))
    assert found.to_pylist() == [{"file_path": path, "pos": place} for place in (3, 7)]
    ids = [found.schema.field(name).metadata[b"PARQUET:field_id"] for name in ("file_path", "pos")]
    assert ids == [b"2147483546", b"2147483545"]
    topic.upsert((KEYS[7], b"3"), (KEYS[8], b"2"), (KEYS[3], b"back"))
    topic.check()
    assert topic.files()[path].deleted == 3, "a row that is gone is not deleted again"
    table: Any = open_table(topic.tables, "t")
    summary = table._table.current_snapshot().summary
    assert summary["total-position-deletes"] == "3", "of the second file half was gone: it is rewritten"
    assert summary["total-delete-files"] == "2"
    assert progress(topic.tables, "t").offsets == {0: 106}


@pytest.mark.parametrize("has_column_sizes", [True, False])
def test_what_upserts_leave_is_imported_and_inspected(
    topic: Topic, monkeypatch: pytest.MonkeyPatch, has_column_sizes: bool
) -> None:
    """The sizes of columns are optional: exports of before, and other programs, leave them out."""
    if not has_column_sizes:
        monkeypatch.setattr(DataFile, "from_args", partial(without_column_sizes, DataFile.from_args))
    topic.upsert(*((key, b"1") for key in KEYS))
    topic.upsert((KEYS[7], b"2"), (KEYS[3], None))
    table: Any = open_table(topic.tables, "t")
    found = find_table(table._table.location().removeprefix("file://"))
    read = [row for unit in found.units for batch in unit.read(["key", "value"]) for row in batch.to_pylist()]
    assert {row["key"]: row["value"] for row in read} == topic.newest
    if has_column_sizes:
        assert len(table._table.inspect.entries()) == 3, "two data files, and one of deletes"


def without_column_sizes(make: Callable[..., Any], **fields: Any) -> Any:
    return make(**fields | {"column_sizes": None})


def test_a_file_with_many_deleted_rows_is_written_again_without_them(topic: Topic) -> None:
    topic.upsert(*((key, b"1") for key in KEYS))
    (path,) = topic.files()
    topic.upsert(*((key, b"2") for key in KEYS[:29]))
    assert path in topic.files()
    topic.upsert((KEYS[30], None), expire_after_ms=0)
    topic.check()
    after = topic.files()
    assert path not in after, "30 of 100 rows were gone"
    assert not any(each.deletes for each in after.values())
    assert {f"file://{file}" for file in files_below(topic.logs.path.parent / "lake")} == set(after), (
        "what only older snapshots need is removed, delete files too"
    )
    table: Any = open_table(topic.tables, "t")
    assert table._table.current_snapshot().summary["total-delete-files"] == "0"


def test_when_every_row_of_a_file_is_gone_so_is_the_file(topic: Topic) -> None:
    topic.upsert((b"a", b"1"), (b"b", b"1"))
    topic.upsert((b"c", b"1"))
    topic.upsert((b"a", None), (b"b", None))
    topic.check()
    assert [each.records for each in topic.files().values()] == [1]


@pytest.mark.parametrize("mode", ["copy-on-write", None])
def test_a_table_that_copies_on_write_has_no_delete_files(topic: Topic, mode: str | None) -> None:
    """Chosen, or made before there was a choice: then it has no such property."""
    topic.upsert(*((key, b"1") for key in KEYS), merge_mode=mode)
    table: Any = open_table(topic.tables, "t")
    if mode is None:
        with table._table.transaction() as transaction:
            transaction.remove_properties("write.merge.mode")
    (path,) = topic.files()
    topic.upsert((KEYS[0], b"2"))
    topic.check()
    assert path not in topic.files()
    assert not any(each.deletes for each in topic.files().values())
    with pytest.raises(JobError, match=r"is copy-on-write: leave --merge-mode away"):
        topic.upsert((KEYS[1], b"2"), merge_mode="merge-on-read")


def test_deletes_of_a_partitioned_table_belong_to_their_partitions(topic: Topic) -> None:
    topic.upsert(*((key, b"1") for key in KEYS), partition_by="bucket(4, key)")
    assert len(topic.files()) == 4
    topic.upsert(*((key, b"2") for key in KEYS[:8]))
    topic.check()
    table: Any = open_table(topic.tables, "t")
    of_files = {
        each.file.file_path: (each.file.partition, {deletes.partition for deletes in each.delete_files})
        for each in table._table.scan().plan_files()
    }
    assert any(deletes for _, deletes in of_files.values())
    assert all(deletes <= {partition} for partition, deletes in of_files.values())


def test_deletes_that_another_program_wrote_for_several_files_are_heeded(
    topic: Topic, tmp_path: Path
) -> None:
    """One delete file with rows of two data files, as Spark writes with partition granularity."""
    topic.upsert(*((key, b"1") for key in KEYS[:50]))
    topic.upsert(*((key, b"1") for key in KEYS[50:]))
    table: Any = open_table(topic.tables, "t")
    first, second = sorted(table.live_files(), key=lambda each: each.handle.file_path)
    values = {each.path: pq.read_table(each.path.removeprefix("file://")) for each in (first, second)}
    name = f"data/{first.path.split('/')[-2]}/theirs.parquet"
    place = Path(table.store.root.removeprefix("file://")) / name
    pq.write_table(
        pa.Table.from_pydict({"file_path": [first.path, second.path], "pos": [4, 5]}, schema=FILE_SCHEMA),
        place,
    )
    theirs = WrittenDeletes(first.path, name, place.stat().st_size, 2, 4, 5)
    make = table._delete_file

    def without_bounds(of: LiveFile, deletes: WrittenDeletes) -> Any:
        found = make(of, deletes)
        found[10] = found[11] = None
        return found

    table._delete_file = without_bounds
    table.commit(Change((), deletes=[(first, theirs)], progress=progress(topic.tables, "t")))
    for each, at in ((first, 4), (second, 5)):
        del topic.newest[values[each.path]["key"][at].as_py()]
    topic.check()
    topic.upsert((KEYS[1], b"2"), (KEYS[51], b"2"))
    topic.check()
    assert all(name in "".join(topic.files()[each.path].deletes) for each in (first, second))


def test_what_was_deleted_by_another_export_meanwhile_is_not_deleted_twice(
    topic: Topic, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.upsert(*((key, b"1") for key in KEYS))
    table_type = type(topic.tables.table("t"))
    commit = table_type.commit

    def late(self: Any, change: Change) -> None:
        monkeypatch.setattr(table_type, "commit", commit)
        assert len(export(spark, topic.logs.path, topic.tables, upsert=True)) == 1
        commit(self, change)

    monkeypatch.setattr(table_type, "commit", late)
    with pytest.raises(JobError, match=r"another export has written to the table .* committed nothing"):
        topic.upsert((KEYS[0], b"2"), (KEYS[1], None))
    topic.check()
    assert [each.deleted for each in topic.files().values() if each.deletes] == [2]
    assert len(files_below(topic.logs.path.parent / "lake")) == 3, "the loser's files are gone"
