"""What a log directory needs so that the next start need not recover it: checkpoints, and a clean shutdown.

Kafka: ``LogManager.checkpointRecoveryOffsetsInDir``, ``checkpointLogStartOffsetsInDir``, ``shutdown``;
``ReplicaManager.checkpointHighWatermarks``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence

from minikafka.files import Files
from minikafka.log.checkpoint import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CheckpointWrite,
    encode_offsets,
    write_clean_shutdown_marker,
)
from minikafka.log.disk_work import DiskWork
from minikafka.log.unified_log import UnifiedLog
from minikafka.types import TopicPartition

_log = logging.getLogger(__name__)


def offset_checkpoints(directory: str, logs: Sequence[UnifiedLog], files: Files) -> list[DiskWork]:
    """The recovery points and log start offsets of ``logs``, which are all in ``directory``.

    A log start is only written where it is not simply the first segment's base offset.
    """
    recovery_points = {log.topic_partition: log.recovery_point for log in logs}
    log_starts = {
        log.topic_partition: log.log_start_offset
        for log in logs
        if log.log_start_offset > log.segments[0].base_offset
    }
    return [
        _checkpoint(files, directory, RECOVERY_POINT_CHECKPOINT, recovery_points),
        _checkpoint(files, directory, LOG_START_OFFSET_CHECKPOINT, log_starts),
    ]


def all_checkpoints(directory: str, logs: Sequence[UnifiedLog], files: Files) -> list[DiskWork]:
    """The offset checkpoints and the high watermarks of ``logs``."""
    high_watermarks = {log.topic_partition: log.high_watermark for log in logs}
    return [
        *offset_checkpoints(directory, logs, files),
        _checkpoint(files, directory, REPLICATION_OFFSET_CHECKPOINT, high_watermarks),
    ]


def shut_down(
    directory: str,
    logs: Sequence[UnifiedLog],
    work: Sequence[DiskWork],
    *,
    files: Files,
    is_complete: bool,
) -> None:
    """Flush and close ``logs``, write the checkpoints of ``directory``, and the clean-shutdown marker last.
    Blocks.

    Args:
        work: what is still to be done in this directory, first.
        is_complete: all its logs were loaded; without that it gets no marker.
    """
    try:
        for item in work:
            item.run()
        for log in logs:
            flush = log.begin_flush()
            if flush is not None:
                flush.run()
                log.complete_flush(flush)
        checkpoints = all_checkpoints(directory, logs, files)
        for log in logs:
            log.close()
        for checkpoint in checkpoints:
            checkpoint.run()
        if is_complete:
            write_clean_shutdown_marker(files, directory)
    except OSError as error:
        _log.error("%s is not shut down cleanly: %s", directory, error)
        for log in logs:
            close_quietly(log)


def close_quietly(log: UnifiedLog) -> None:
    """Close a log whose disk may be gone."""
    try:
        log.close()
    except OSError as error:
        _log.warning("cannot close %s: %s", log.directory, error)


def _checkpoint(
    files: Files, directory: str, name: str, offsets: Mapping[TopicPartition, int]
) -> CheckpointWrite:
    return CheckpointWrite(files, os.path.join(directory, name), encode_offsets(offsets))
