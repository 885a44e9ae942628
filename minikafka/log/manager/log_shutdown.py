"""What a log directory needs so that the next start need not recover it: checkpoints, and a clean shutdown.

Kafka: ``LogManager.checkpointRecoveryOffsetsInDir``, ``checkpointLogStartOffsetsInDir``, ``shutdown``;
``ReplicaManager.checkpointHighWatermarks``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from minikafka.errors import KafkaError
from minikafka.files import Files
from minikafka.log.files.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CheckpointWrite,
    encode_offsets,
    write_clean_shutdown_marker,
)
from minikafka.log.manager.disk_work import DiskWork
from minikafka.types import TopicPartition

if TYPE_CHECKING:
    from minikafka.log.unified_log import UnifiedLog


_log = logging.getLogger(__name__)


def recovery_point_checkpoint(directory: str, logs: Iterable[UnifiedLog], files: Files) -> CheckpointWrite:
    """Up to where each log of ``directory`` is known to be on the disk."""
    offsets = {log.topic_partition: log.recovery_point for log in logs}
    return _checkpoint(files, directory, RECOVERY_POINT_CHECKPOINT, offsets)


def log_start_offset_checkpoint(directory: str, logs: Iterable[UnifiedLog], files: Files) -> CheckpointWrite:
    """Where each log of ``directory`` starts, if that is not simply where its first segment does."""
    offsets = {
        log.topic_partition: log.log_start_offset
        for log in logs
        if log.log_start_offset > log.segments[0].base_offset
    }
    return _checkpoint(files, directory, LOG_START_OFFSET_CHECKPOINT, offsets)


def high_watermark_checkpoint(directory: str, logs: Iterable[UnifiedLog], files: Files) -> CheckpointWrite:
    """The high watermark of each log of ``directory``."""
    offsets = {log.topic_partition: log.high_watermark for log in logs}
    return _checkpoint(files, directory, REPLICATION_OFFSET_CHECKPOINT, offsets)


def cleaner_offset_checkpoint(directory: str, logs: Iterable[UnifiedLog], files: Files) -> CheckpointWrite:
    """Up to where each log of ``directory`` is compacted, where that has ever been done."""
    offsets = {
        log.topic_partition: log.first_dirty_offset for log in logs if log.first_dirty_offset is not None
    }
    return _checkpoint(files, directory, CLEANER_OFFSET_CHECKPOINT, offsets)


def shut_down(
    directory: str,
    logs: Sequence[UnifiedLog],
    work: Iterable[DiskWork],
    *,
    files: Files,
    is_complete: bool,
) -> None:
    """Flush and close ``logs``, write the checkpoints of ``directory``, the clean-shutdown marker last.
    Blocks.

    Args:
        work: what is still to be done in this directory, first.
        is_complete: all its logs were loaded; without that it gets no marker.
    """
    all_open = all(log.is_open for log in logs)  # a fenced log has to be recovered
    try:
        for item in work:
            item.run()
        for log in logs:
            log.close()
        for checkpoint in (
            recovery_point_checkpoint,
            log_start_offset_checkpoint,
            high_watermark_checkpoint,
            cleaner_offset_checkpoint,
        ):
            checkpoint(directory, logs, files).run()
        if all_open and is_complete:
            write_clean_shutdown_marker(files, directory)
    except (OSError, KafkaError) as error:
        _log.error("%s is not shut down cleanly: %s", directory, error)
        for log in logs:
            close_failed(log, str(error))


def close_failed(log: UnifiedLog, reason: str) -> None:
    """Close a log whose disk is not to be trusted any more: nothing is written."""
    log.fence(reason)
    try:
        log.close()
    except OSError as error:
        _log.warning("cannot close %s: %s", log.directory, error)


def _checkpoint(
    files: Files, directory: str, name: str, offsets: Mapping[TopicPartition, int]
) -> CheckpointWrite:
    return CheckpointWrite(files, os.path.join(directory, name), encode_offsets(offsets))
