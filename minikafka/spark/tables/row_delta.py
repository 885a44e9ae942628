"""A commit that adds data files and position deletes, and removes data files with the deletes they had.

Iceberg: ``RowDelta`` and ``OverwriteFiles`` of its Java library. pyiceberg's own overwrite writes manifests
of data files alone, and copies manifests of delete files as they are; this one writes both kinds. It derives
from what pyiceberg does not promise, which is why pyiceberg is bound to a minor version.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT, Record

from minikafka.spark.tables.files import FILE_PATH_ID, POS_ID, WrittenDeletes


def delete_file(deletes: WrittenDeletes, path: str, partition: Record, spec_id: int) -> DataFile:
    """A delete file as a manifest describes it.

    Args:
        path: whole, of the delete file.
        partition: that of the data file, with the partition spec ``spec_id``.
    """
    of = deletes.path.encode()
    found = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=deletes.records,
        file_size_in_bytes=deletes.size,
        column_sizes={},  # none is an error to pyiceberg's inspection of a table
        value_counts={FILE_PATH_ID: deletes.records, POS_ID: deletes.records},
        null_value_counts={FILE_PATH_ID: 0, POS_ID: 0},
        nan_value_counts=None,
        lower_bounds={FILE_PATH_ID: of, POS_ID: struct.pack("<q", deletes.first)},
        upper_bounds={FILE_PATH_ID: of, POS_ID: struct.pack("<q", deletes.last)},
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
    )
    found.spec_id = spec_id
    return found


def data_file_of(deletes: DataFile) -> str | None:
    """The one data file whose rows a delete file has; None: they may be of several."""
    lower, upper = deletes.lower_bounds or {}, deletes.upper_bounds or {}
    bound: bytes | None = lower.get(FILE_PATH_ID)
    return bound.decode() if bound is not None and bound == upper.get(FILE_PATH_ID) else None


class _DeletesWriter(ManifestWriterV2):
    """A manifest of delete files."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class RowDelta(_OverwriteFiles):
    """As a context manager it commits to the transaction: ``append_data_file``, ``delete_data_file``, and
    ``add_deletes``."""

    def __init__(self, transaction: Transaction, snapshot_properties: dict[str, str]) -> None:
        super().__init__(
            operation=Operation.OVERWRITE,
            transaction=transaction,
            io=transaction._table.io,
            snapshot_properties=snapshot_properties,
        )
        self._added_deletes: list[DataFile] = []
        self._removed_deletes: list[DataFile] = []

    def add_deletes(self, deletes: DataFile) -> None:
        self._added_deletes.append(deletes)

    def _manifests(self) -> list[ManifestFile]:
        manifests = super()._manifests()
        if self._added_deletes:
            spec_id = self._transaction.table_metadata.default_spec_id
            added = (
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=self._snapshot_id,
                    sequence_number=None,
                    file_sequence_number=None,
                    data_file=each,
                )
                for each in self._added_deletes
            )
            manifests.append(self._deletes_manifest(spec_id, added))
        return manifests

    def _existing_manifests(self) -> list[ManifestFile]:
        """Those of delete files without the deletes of data files that go."""
        found: list[ManifestFile] = []
        gone = {each.file_path for each in self._deleted_data_files}
        for manifest in super()._existing_manifests():
            if manifest.content != ManifestContent.DELETES:
                found.append(manifest)
                continue
            if not (manifest.has_added_files() or manifest.has_existing_files()):
                continue  # it says which deletes an earlier snapshot has removed
            if not gone:
                found.append(manifest)
                continue
            entries = self.fetch_manifest_entry(manifest)
            removed = [each.data_file for each in entries if data_file_of(each.data_file) in gone]
            if not removed:
                found.append(manifest)
                continue
            self._removed_deletes += removed
            written = [self._entry(each, is_removed=each.data_file in removed) for each in entries]
            found.append(self._deletes_manifest(manifest.partition_spec_id, written))
        return found

    def _entry(self, entry: ManifestEntry, *, is_removed: bool) -> ManifestEntry:
        return ManifestEntry.from_args(
            status=ManifestEntryStatus.DELETED if is_removed else ManifestEntryStatus.EXISTING,
            snapshot_id=self._snapshot_id if is_removed else entry.snapshot_id,
            sequence_number=entry.sequence_number,
            file_sequence_number=entry.file_sequence_number,
            data_file=entry.data_file,
        )

    def _deletes_manifest(self, spec_id: int, entries: Iterable[ManifestEntry]) -> ManifestFile:
        writer = _DeletesWriter(
            self.spec(spec_id),
            self.schema(),
            self.new_manifest_output(),
            self._snapshot_id,
            self._compression,
        )
        with writer:
            for each in entries:
                writer.add_entry(each)
        return writer.to_manifest_file()

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        """With what becomes of delete files, which is counted as for data files."""
        added, removed = self._added_data_files, self._deleted_data_files
        self._added_data_files = [*added, *self._added_deletes]
        self._deleted_data_files = removed | set(self._removed_deletes)
        try:
            return super()._summary(snapshot_properties)
        finally:
            self._added_data_files, self._deleted_data_files = added, removed
