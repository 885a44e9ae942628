"""A compaction that somebody else has prepared: new segments beside the log, and a manifest that says
what they are for. ``minikafka compact`` writes them; the broker that holds the log puts them in, or the
job itself does where no broker runs.

In a partition's directory:

    compaction/                                everything of one job; no broker looks into it
        .lock                                  held by the job while it works
        manifest.json                          a ``CompactionManifest``; written last, durably
        00000000000000000000.log.cleaned       and its indexes, one set for each new segment

``adopt`` renames the new files into the partition's directory, as ``.cleaned``; from there on the swap is
that of every compaction (``segment_swap``), and so is what a start makes of one that was interrupted. They
do not lie there earlier, because a start takes whatever is ``.cleaned`` for what its own compaction has left,
and removes it; and because a ``.cleaned`` file of somebody else, below a swap that is under way, would make
it look undecided.

A manifest is current while the log has exactly the segments it names, with the same sizes and times of
modification, and the same leader epochs up to its end: a log that was truncated and written again has an
epoch more, and a segment that was compacted meanwhile is another file.

``swap_offline`` is what the broker does with its own (``LogCleaner``), for a log directory that no broker
holds: its lock is the caller's. All new segments of a log are swapped at once, so that a crash at any moment
leaves all of the old or all of the new ones; the next start of a broker finishes or undoes it, and so does
the next job, with ``finish_interrupted``.

    adopt → swap → the directory is durable → cleaner-offset-checkpoint → old files and staging go
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import msgspec

from minikafka.config.topic import TopicConfig
from minikafka.errors import UNDECODABLE, ErrorCode, KafkaError, MinikafkaError
from minikafka.files import Files
from minikafka.log.compaction.job import CompactedSegment, CompactionResult
from minikafka.log.compaction.segment_swap import finish_swaps, swap_files
from minikafka.log.files.checkpoint import (
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
from minikafka.log.files.names import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
)
from minikafka.types import TopicPartition

STAGING = "compaction"
MANIFEST = "manifest.json"
MANIFEST_VERSION = 1
MANIFEST_BYTES_MAX = 64 * 1024 * 1024
"""Half a million segments: more than any log has."""


class StaleManifest(MinikafkaError):
    """What was prepared does not fit the log any more, or never did; the log stays as it is."""


class StagedSource(msgspec.Struct, frozen=True):
    """A segment that is to be replaced, as it was when it was read."""

    base_offset: int
    size: int
    modified_ms: int


class CompactionManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What was prepared for one log."""

    version: int = MANIFEST_VERSION
    id: str
    """Of the job that wrote it; who asks for the swap names it."""
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
    """What a broker answers who is asked to put it in."""
    return KafkaError(ErrorCode.INVALID_REQUEST, f"{error}; run the compaction again")


# ---- where no broker runs


def is_interrupted(files: Files, directory: str) -> bool:
    """Whether a swap of segments was going on when whoever did it died, or is going on."""
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
