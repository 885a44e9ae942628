"""Compactions as values, how their segments become live, and those that another process has prepared.

**Prepared** are new segments beside the log, and a manifest that says what they are for. ``minikafka
compact`` writes them; the broker that holds the log puts them in, or the job itself does where no broker
runs. In a partition's directory:

    compaction/                                everything of one job; no broker looks into it
        .lock                                  held by the job while it works
        manifest.json                          a ``CompactionManifest``; written last, durably
        00000000000000000000.log.cleaned       and its indexes, one set for each new segment

``adopt`` renames the new files into the partition's directory, as ``.cleaned``; from there on the swap is
that of every compaction (``swap_files``), and so is what a start makes of one that was interrupted. They
do not lie there earlier, because a start takes whatever is ``.cleaned`` for what its own compaction has left,
and removes it; and because a ``.cleaned`` file of another compaction, below a swap that is under way, would
make it look undecided.

A manifest is current while the log has exactly the segments it names, with the same sizes and times of
modification, and the same leader epochs up to its end: a log that was truncated and written again has an
epoch more, and a segment that was compacted meanwhile is another file.

``swap_offline`` is what the broker does with its own (``LogCleaner``), for a log directory that no broker
holds: its lock is the caller's. All new segments of a log are swapped at once, so that a crash at any moment
leaves all of the old or all of the new ones; the next start of a broker finishes or undoes it, and so does
the next job, with ``finish_interrupted``.

    adopt → swap → the directory is durable → cleaner-offset-checkpoint → old files and staging go

**A compaction as a value** (``CompactionJob``, ``CompactionResult``): what is to be read, by which rules,
which segments become one (Kafka: ``Cleaner.groupSegmentsBySize``), and what came of it. Made on the loop from
a log, carried out where the files are (``Compaction``, in another process or on the disk thread), and handed
back to the loop, which puts the new segments into the log if that is still the one that was described.
Everything here can be written as JSON.

**The swap**: compacted segments take the place of old ones, by renames. Kafka: ``LocalLog.replaceSegments``;
and what a start makes of a swap that was interrupted: the first passes of ``LogLoader.load``.

1. The ``.cleaned`` files become ``.swap``, those of the last segment first. The last of these renames decides
   the swap: a start before it finds a ``.cleaned`` file below every ``.swap`` and drops the new segments, a
   start after it drops the old ones.
2. The old files become ``.deleted``.
3. The ``.swap`` files get their names; the records first: without them a start would take the live indexes,
   which are the new ones already, for those of the old segments.

The content is durable before step 1. The file system keeps the order of renames in one directory, so one
fsync of the directory at the end is enough; it is the caller's, on the disk thread.

Several new segments may be swapped in at once, all or none of them, when they are neighbours: a start takes
everything between the first and the last of them for replaced.

So a start (``finish_swaps``) finds ``.deleted`` files, of a deletion too, and ``.cleaned`` ones: both go. A
``.swap`` at or above the smallest ``.cleaned`` belongs to a swap that never got complete and goes too; every
other ``.swap`` is complete: the live segments in its range go, and it takes their place. At any moment of a
crash this leaves all of the old or all of the new segments.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence

import msgspec

from minikafka.config.topic import TopicConfig
from minikafka.errors import UNDECODABLE, ErrorCode, KafkaError, MinikafkaError
from minikafka.files import Files
from minikafka.log.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    CorruptCheckpoint,
    EpochEntry,
    encode_offsets,
    encode_uuid,
    read_leader_epochs,
    read_offsets,
    read_partition_metadata,
)
from minikafka.log.files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
    parse_file_name,
)
from minikafka.log.segment.indexes import RELATIVE_OFFSET_MAX
from minikafka.log.segment.log_segments import DeletedFiles, rename_deleted
from minikafka.log.segment.segment import CorruptSegment, LogSegment
from minikafka.types import TopicPartition

_log = logging.getLogger(__name__)

STAGING = "compaction"
MANIFEST = "manifest.json"
MANIFEST_VERSION = 1
MANIFEST_BYTES_MAX = 64 * 1024 * 1024
"""Half a million segments: more than any log has."""

_CHECKPOINT_DELETED_SUFFIX = ".checkpoint" + DELETED_SUFFIX  # KRaft's, not ours to remove


class SourceSegment(msgspec.Struct, frozen=True):
    """A closed segment as it was when the job was made. Sizes in bytes."""

    base_offset: int
    size: int
    index_bytes: int
    time_index_bytes: int
    has_txn_index: bool


class LastRecord(msgspec.Struct, frozen=True):
    """Where an active producer has written last (Kafka's ``LastRecord``)."""

    producer_epoch: int
    last_data_offset: int
    """-1: only a marker of this epoch is known."""


class CompactionJob(msgspec.Struct, frozen=True, kw_only=True):
    """Compact the log in ``directory`` below ``first_uncleanable_offset``, which is where a segment
    begins."""

    directory: str
    config: TopicConfig
    segments: tuple[SourceSegment, ...]
    """All that begin below ``first_uncleanable_offset``, in order."""
    later_txn_indexes: tuple[int, ...]
    """Base offsets of later segments with a transaction index: a marker there may end what begins here."""
    first_dirty_offset: int
    first_uncleanable_offset: int
    last_records: dict[int, LastRecord]
    """By producer id."""
    now_ms: int
    map_bytes: int
    map_load_factor: float
    read_bytes: int
    """How much to read at a time."""


class CompactedSegment(msgspec.Struct, frozen=True):
    """A new segment, on the disk as ``.cleaned`` files, for the old ones at ``replaced``."""

    base_offset: int
    replaced: tuple[int, ...]
    size: int
    has_txn_index: bool


class CompactionResult(msgspec.Struct, frozen=True):
    """What a job has done."""

    segments: tuple[CompactedSegment, ...]
    """In the order of offsets, which is the order in which they have to be swapped in."""
    end_offset: int
    """The first offset that is not compacted: the next first dirty one."""
    records_kept: int
    records_dropped: int
    map_entries: int


def with_ends(job: CompactionJob) -> list[tuple[SourceSegment, int]]:
    """Each segment of a job with the offset where the next one begins."""
    starts = [segment.base_offset for segment in job.segments] + [job.first_uncleanable_offset]
    return list(zip(job.segments, starts[1:], strict=True))


def group_segments(job: CompactionJob, end_offset: int) -> list[list[SourceSegment]]:
    """The segments that begin below ``end_offset``, in groups that become one segment each: as large as the
    topic's segments and indexes may be, within reach of an index."""
    groups: list[list[SourceSegment]] = []
    size = index_bytes = time_index_bytes = 0
    for segment, next_base_offset in with_ends(job):
        if segment.base_offset >= end_offset:
            break
        fits = (
            groups
            and size + segment.size <= job.config.segment_bytes
            and index_bytes + segment.index_bytes <= job.config.segment_index_bytes
            and time_index_bytes + segment.time_index_bytes <= job.config.segment_index_bytes
            and (not segment.size or next_base_offset - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX)
        )
        if not fits:
            groups.append([])
            size = index_bytes = time_index_bytes = 0
        groups[-1].append(segment)
        size += segment.size
        index_bytes += segment.index_bytes
        time_index_bytes += segment.time_index_bytes
    return groups


class StaleManifest(MinikafkaError):
    """What was prepared does not fit the log any more, or never did; the log is left as it is."""


class StagedSource(msgspec.Struct, frozen=True):
    """A segment that is to be replaced, as it was when it was read."""

    base_offset: int
    size: int
    modified_ms: int


class CompactionManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What was prepared for one log."""

    version: int = MANIFEST_VERSION
    id: str
    """Of the job that wrote it; the request for the swap names it."""
    topic: str
    partition: int
    topic_id: str | None
    """As ``partition.metadata`` has it; None where there is none."""
    sources: tuple[StagedSource, ...]
    """All closed segments below ``result.end_offset``, in order."""
    leader_epochs: tuple[EpochEntry, ...]
    """Those that begin below ``result.end_offset``."""
    result: CompactionResult

    def validate(self) -> None:
        """Whether it is one at all.

        Raises:
            StaleManifest: its new segments are not there for exactly its old ones.
        """
        replaced = [base_offset for new in self.result.segments for base_offset in new.replaced]
        if (
            not self.sources
            or replaced != [source.base_offset for source in self.sources]
            or any((new.base_offset,) != new.replaced[:1] for new in self.result.segments)
            or self.result.end_offset <= self.sources[-1].base_offset
        ):
            raise StaleManifest("the manifest's new segments do not replace exactly the segments it names")


def staging_directory(directory: str) -> str:
    """Where a job keeps what it has prepared for the log in ``directory``."""
    return os.path.join(directory, STAGING)


def write_manifest(files: Files, directory: str, manifest: CompactionManifest) -> None:
    """Write it into the staging directory of ``directory``. Durable on return. Raises OSError."""
    path = os.path.join(staging_directory(directory), MANIFEST)
    files.write_atomically(path, msgspec.json.encode(manifest))


def read_manifest(files: Files, directory: str) -> CompactionManifest:
    """What is prepared for the log in ``directory``.

    Raises:
        StaleManifest: nothing is, or it cannot be read.
        OSError: the disk's.
    """
    path = os.path.join(staging_directory(directory), MANIFEST)
    if not files.exists(path):
        raise StaleManifest(f"{path} does not exist: nothing is prepared")
    if files.size(path) > MANIFEST_BYTES_MAX:
        raise StaleManifest(f"{path} is larger than {MANIFEST_BYTES_MAX} bytes: it is no manifest")
    try:
        manifest = msgspec.json.decode(files.read_bytes(path), type=CompactionManifest)
    except UNDECODABLE as error:
        raise StaleManifest(f"{path} cannot be read: {error}") from None
    if manifest.version != MANIFEST_VERSION:
        raise StaleManifest(f"{path} has version {manifest.version}, expected {MANIFEST_VERSION}")
    manifest.validate()
    return manifest


def epochs_below(epochs: Iterable[EpochEntry], end_offset: int) -> tuple[EpochEntry, ...]:
    """The leader epochs that a manifest names."""
    return tuple(entry for entry in epochs if entry.start_offset < end_offset)


def check_files(files: Files, directory: str, manifest: CompactionManifest) -> None:
    """Compare old and new files with what the manifest says of them. Blocks for a moment.

    Raises:
        StaleManifest: one of them is another one, naming it.
        OSError: the disk's.
    """
    for source in manifest.sources:
        path = os.path.join(directory, file_name(source.base_offset, LOG_SUFFIX))
        if not files.exists(path):
            raise StaleManifest(f"{path} is gone since it was read")
        if files.size(path) != source.size or files.modified_ms(path) != source.modified_ms:
            raise StaleManifest(f"{path} has changed since it was read")
    for new in manifest.result.segments:
        for name in _names(new):
            path = os.path.join(staging_directory(directory), name)
            if not files.exists(path):
                raise StaleManifest(f"{path} is missing")
            if name.endswith(LOG_SUFFIX + CLEANED_SUFFIX) and files.size(path) != new.size:
                raise StaleManifest(f"{path} has {files.size(path)} bytes, the manifest says {new.size}")


def adopt(files: Files, directory: str, manifest: CompactionManifest) -> None:
    """Move the new files into the log's directory, as ``.cleaned``; durable on return. Blocks.

    A crash leaves the old segments: a start removes what it finds.

    Raises:
        OSError: the disk's; ``remove_cleaned`` clears up.
    """
    for new in manifest.result.segments:
        for name in _names(new):
            files.rename(
                os.path.join(staging_directory(directory), name),
                os.path.join(directory, name),
            )
    files.sync_directory(directory)


def _names(new: CompactedSegment) -> list[str]:
    return [
        file_name(new.base_offset, suffix) + CLEANED_SUFFIX
        for suffix in SEGMENT_SUFFIXES
        if suffix != TXN_INDEX_SUFFIX or new.has_txn_index
    ]


def refusal(error: StaleManifest) -> KafkaError:
    """What a broker answers that is asked to put it in."""
    return KafkaError(ErrorCode.INVALID_REQUEST, f"{error}; run the compaction again")


# ---- where no broker runs
def is_interrupted(files: Files, directory: str) -> bool:
    """Whether a swap of segments is under way, or was when its process died."""
    return any(name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)) for name in files.list(directory))


def finish_interrupted(files: Files, directory: str, *, config: TopicConfig) -> None:
    """Make all old or all new segments of what an interrupted swap has left. Raises OSError."""
    if is_interrupted(files, directory):
        finish_swaps(directory, config=config, files=files)


def swap_offline(files: Files, directory: str, manifest: CompactionManifest) -> None:
    """Put the prepared segments of the log in ``directory`` in. Durable on return.

    Raises:
        StaleManifest: the log is not what it was made from; nothing has changed.
        CorruptCheckpoint: partition.metadata or the leader epochs cannot be read; nothing has changed.
        OSError: the disk's; whatever was done is finished or undone by ``finish_interrupted``.
    """
    check_files(files, directory, manifest)
    topic_id = read_partition_metadata(files, directory)
    if topic_id is not None and encode_uuid(topic_id) != manifest.topic_id:
        raise StaleManifest(f"{directory} is of another topic than the one that was read")
    epochs = read_leader_epochs(files, os.path.join(directory, LEADER_EPOCH_CHECKPOINT))
    if epochs_below(epochs, manifest.result.end_offset) != manifest.leader_epochs:
        raise StaleManifest(f"{directory} has other leader epochs than when it was read")
    checkpoint = os.path.join(os.path.dirname(directory), CLEANER_OFFSET_CHECKPOINT)
    offsets = _cleaner_offsets(files, checkpoint)
    adopt(files, directory, manifest)
    deleted = swap_files(directory, manifest.result.segments, files=files)
    files.sync_directory(directory)
    offsets[TopicPartition(manifest.topic, manifest.partition)] = manifest.result.end_offset
    files.write_atomically(checkpoint, encode_offsets(offsets))
    for old in deleted:
        old.remove(files)
    files.remove_tree(staging_directory(directory))
    files.sync_directory(directory)


def _cleaner_offsets(files: Files, checkpoint: str) -> dict[TopicPartition, int]:
    """A damaged one is none: then everything counts as dirty, as a broker's start has it."""
    try:
        return read_offsets(files, checkpoint)
    except CorruptCheckpoint:
        return {}


def swap_files(directory: str, segments: Sequence[CompactedSegment], *, files: Files) -> list[DeletedFiles]:
    """Make compacted segments, neighbours in their order, live. Returns the renamed files of the old ones.

    Raises:
        OSError: the next start finishes the swap, or undoes it.
    """
    live = [
        os.path.join(directory, file_name(new.base_offset, suffix))
        for new in segments
        for suffix in SEGMENT_SUFFIXES
        if suffix != TXN_INDEX_SUFFIX or new.has_txn_index
    ]
    for path in reversed(live):
        files.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)
    deleted = [
        rename_deleted(directory, base_offset, files) for new in segments for base_offset in new.replaced
    ]
    for path in live:
        files.rename(path + SWAP_SUFFIX, path)
    return deleted


def remove_cleaned(directory: str, *, files: Files) -> None:
    """Remove what a cancelled compaction has written. Raises OSError."""
    if files.is_directory(directory):
        for name in files.list(directory):
            if name.endswith(CLEANED_SUFFIX):
                files.remove(os.path.join(directory, name))


# ---- what a swap has left
def finish_swaps(directory: str, *, config: TopicConfig, files: Files) -> list[str]:
    """Clean the directory up; returns the names of the files that are in it afterwards, sorted.

    Raises:
        OSError: the disk's.
    """
    names = files.list(directory)
    temporary = [
        n for n in names if n.endswith(DELETED_SUFFIX) and not n.endswith(_CHECKPOINT_DELETED_SUFFIX)
    ]
    cleaned = {n: offset for n in names if (offset := _offset_before(n, CLEANED_SUFFIX)) is not None}
    swaps = {n: offset for n in names if (offset := _offset_before(n, SWAP_SUFFIX)) is not None}
    if not temporary and not cleaned and not swaps:
        return names
    smallest_cleaned = min(cleaned.values(), default=None)
    unfinished = [
        n for n, offset in swaps.items() if smallest_cleaned is not None and offset >= smallest_cleaned
    ]
    # In Kafka's order: were the .cleaned files gone first, a crash now would make the unfinished swaps look
    # finished.
    for name in temporary + unfinished + list(cleaned):
        _log.info("%s: removing %s, left over from before the restart", directory, name)
        files.remove(os.path.join(directory, name))
    finished = [n for n in swaps if n not in unfinished]
    if finished:
        _take_over(directory, finished, config=config, files=files)
    return files.list(directory)


def _take_over(directory: str, swaps: list[str], *, config: TopicConfig, files: Files) -> None:
    first, end = None, 0
    for name in swaps:
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            base_offset = int(name.partition(".")[0])
            first = base_offset if first is None else min(first, base_offset)
            end = max(
                end, _next_offset(os.path.join(directory, name), base_offset, config=config, files=files)
            )
    if first is not None:
        for name in files.list(directory):
            parsed = parse_file_name(name)
            if parsed is not None and first <= parsed[0] < end:
                _log.info("%s: removing %s, which was replaced before the restart", directory, name)
                files.remove(os.path.join(directory, name))
    for name in swaps:
        _log.info("%s: finishing the swap of %s", directory, name)
        path = os.path.join(directory, name)
        files.rename(path, path.removesuffix(SWAP_SUFFIX))
    files.sync_directory(directory)


def _next_offset(path: str, base_offset: int, *, config: TopicConfig, files: Files) -> int:
    """The offset after the last batch of a swapped-in record file."""
    size = files.size(path)
    segment = LogSegment(
        os.path.dirname(path), base_offset, config=config, files=files, size=size, created_ms=0
    )
    segment.path = path
    next_offset = base_offset
    try:
        for place in segment.batches():
            next_offset = place.last_offset + 1
    except CorruptSegment as error:
        _log.warning("%s: %s; what is before it is kept", path, error)
    finally:
        segment.release()
    return next_offset


def _offset_before(name: str, suffix: str) -> int | None:
    if not name.endswith(suffix):
        return None
    parsed = parse_file_name(name.removesuffix(suffix))
    return None if parsed is None else parsed[0]
