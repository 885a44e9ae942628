"""An export's directory: Parquet files that stay for ever, and beside them which offsets they hold.

    topic=orders/date=2026-11-22/part-….parquet     the data, as any reader of Hive partitions finds it
    _minikafka/commits/00000000000000000003.json    the commits; the last one says where to go on
    _minikafka/staging/<id>/topic=…                 what a run is writing; readers skip names with "_"

A run writes into a staging directory, then creates its commit, which names every file and the next offset of
every partition, and then moves the files into place. Creating the commit is the one step that counts:

| crash                      | what the next run finds      | what it does                            |
|----------------------------|------------------------------|-----------------------------------------|
| while writing              | staging without a commit     | removes it and reads from the old offsets |
| after the commit           | files of it still in staging | moves them                              |
| after the files were moved | an empty staging directory   | removes it                              |

So each offset is in exactly one file, and a file that a reader has seen never changes or goes.

Where no lock keeps others out, a staging directory may be that of a run that still writes. Before it is
removed an empty commit takes the number that such a run would take, so that it cannot commit what is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from minikafka.errors import UNDECODABLE
from minikafka.spark.export.output_store import OutputStore
from minikafka.spark.runtime.failures import JobError

METADATA = "_minikafka"
COMMITS = f"{METADATA}/commits"
STAGING = f"{METADATA}/staging"
LOCK = f"{METADATA}/lock"

VERSION = 1
NO_STAGING = "none"
"""The staging directory of a commit without files."""

Offsets = dict[str, dict[int, int]]
"""topic → partition → the next offset to export."""


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """What one run added, and where the next one goes on."""

    version: int = VERSION
    number: int
    by: str
    """How the data is partitioned: date or hour."""
    staging: str
    """The id of the run's staging directory."""
    files: list[str]
    """That the run added, relative to the output."""
    records: int
    offsets: Offsets
    """Of every partition that was ever exported."""
    topic_ids: dict[str, str]
    """Of the topics among them, where the log says it."""
    written_ms: int
    """Milliseconds since 1970."""


class ExportOutput:
    """The commits of an output and the files that they name."""

    def __init__(self, store: OutputStore, *, by: str) -> None:
        self._store = store
        self._by = by
        self.last: Commit | None = None
        """Known after ``recover``."""

    def __repr__(self) -> str:
        return f"<ExportOutput {self._store!r} last={self.last and self.last.number}>"

    def recover(self, *, now_ms: int) -> None:
        """Finish or undo what an earlier run left, and find the last commit.

        Raises:
            JobError: a commit that this version cannot read, data that is partitioned in another way, or
                another export that starts or commits at the same moment.
        """
        names = [name for name in self._store.names(COMMITS) if name.endswith(".json")]
        if names:
            self.last = self._read(f"{COMMITS}/{names[-1]}")
            if self.last.by != self._by:
                raise JobError(
                    f"the output is partitioned by {self.last.by}: "
                    f"export by {self._by} into another directory"
                )
            self._move(self.last)
        left = self._store.names(STAGING)
        if not self._store.is_exclusive and any(
            self.last is None or name != self.last.staging for name in left
        ):
            self._fence(now_ms)
        for name in left:
            self._store.remove_tree(f"{STAGING}/{name}")

    def staging_uri(self, staging: str) -> str:
        """Where Spark writes a run's files."""
        return self._store.uri(f"{STAGING}/{staging}")

    def staged(self, staging: str) -> list[tuple[str, int]]:
        """The data files that Spark has written, with their sizes."""
        found = self._store.files_under(f"{STAGING}/{staging}")
        return [(name, size) for name, size in found if name.endswith(".parquet") and "/." not in name]

    def commit(
        self,
        staging: str,
        *,
        files: Sequence[str],
        records: int,
        offsets: Offsets,
        topic_ids: Mapping[str, str],
        now_ms: int,
    ) -> Commit:
        """Make the staged ``files`` part of the export, at once, and move them into place.

        Raises:
            JobError: another export has committed since ``recover``.
        """
        commit = Commit(
            number=self._next_number,
            by=self._by,
            staging=staging,
            files=list(files),
            records=records,
            offsets=offsets,
            topic_ids=dict(topic_ids),
            written_ms=now_ms,
        )
        self._store.make_durable(f"{STAGING}/{staging}", files)
        self._create(commit)
        self._move(commit)
        self._store.remove_tree(f"{STAGING}/{staging}")
        return commit

    def discard(self, staging: str) -> None:
        """Forget a run that failed."""
        self._store.remove_tree(f"{STAGING}/{staging}")

    @property
    def _next_number(self) -> int:
        return 0 if self.last is None else self.last.number + 1

    def _fence(self, now_ms: int) -> None:
        """Commit nothing: whoever began before cannot commit any more."""
        commit = Commit(
            number=self._next_number,
            by=self._by,
            staging=NO_STAGING,
            files=[],
            records=0,
            offsets=self.last.offsets if self.last else {},
            topic_ids=self.last.topic_ids if self.last else {},
            written_ms=now_ms,
        )
        self._create(commit)

    def _create(self, commit: Commit) -> None:
        try:
            self._store.create(f"{COMMITS}/{commit.number:020}.json", msgspec.json.encode(commit))
        except FileExistsError:
            raise JobError("another export has written to the same output meanwhile: start again") from None
        self.last = commit

    def _move(self, commit: Commit) -> None:
        waiting = {name for name, _ in self.staged(commit.staging)}
        for name in commit.files:
            if name in waiting:
                self._store.move(f"{STAGING}/{commit.staging}/{name}", name)

    def _read(self, path: str) -> Commit:
        try:
            commit = msgspec.json.decode(self._store.read(path), type=Commit)
        except UNDECODABLE as error:
            raise JobError(f"{self._store.uri(path)} is not a commit of an export: {error}") from error
        if commit.version != VERSION:
            raise JobError(f"{self._store.uri(path)} was written by another version of minikafka")
        return commit
