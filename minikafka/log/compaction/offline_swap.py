"""A log directory that no broker holds gets the compacted segments that were prepared for its logs.

What the broker does with its own (``LogCleaner``) and here has no broker for: the directory's lock is the
caller's. All new segments of a log are swapped at once, so that a crash at any moment leaves all of the
old or all of the new ones (``segment_swap``); the next start of a broker finishes or undoes it, and so
does the next job, with ``finish_interrupted``.

    adopt → swap → the directory is durable → cleaner-offset-checkpoint → old files and staging go
"""

from __future__ import annotations

import os

from minikafka.config.topic import TopicConfig
from minikafka.files import Files
from minikafka.log.compaction.segment_swap import finish_swaps, swap_files
from minikafka.log.compaction.staged_compaction import (
    CompactionManifest,
    StaleManifest,
    adopt,
    check_files,
    epochs_below,
    staging_directory,
)
from minikafka.log.files.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    CorruptCheckpoint,
    encode_offsets,
    encode_uuid,
    read_leader_epochs,
    read_offsets,
    read_partition_metadata,
)
from minikafka.log.files.names import CLEANED_SUFFIX, SWAP_SUFFIX
from minikafka.types import TopicPartition


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
