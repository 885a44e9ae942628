"""``partition``: how one replica of a partition stands on the broker that is asked: ISR, log, retention and
compaction.

What the followers have, the leader says in DescribeQuorum already; here is what that has no field for: which
of them the high watermark waits for, what keeps the oldest segment, and what the log cleaner thinks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minikafka.errors import KafkaError
from minikafka.log.manager.cleanable_log import CleanableLog
from minikafka.log.segment.segment import LogSegment
from minikafka.log.unified_log import UnifiedLog
from minikafka.server.apis.shared.diagnostics_arguments import partition_of
from minikafka.server.replica.partition import Partition
from minikafka.server.services import Services
from minikafka.steps import Steps


def partition(services: Services, arguments: Mapping[str, str]) -> Steps[Any]:
    """Raises KafkaError: INVALID_REQUEST, and that the broker has no replica of it that is online."""
    hosted = services.replica_manager.hosted(partition_of(arguments))
    yield
    return {
        "broker": int(services.node_id),
        "now_ms": services.clock.now_ms(),
        "is_leader": hosted.is_leader,
        "leader": int(hosted.leader_id),
        "leader_epoch": int(hosted.leader_epoch),
        "isr": _isr(services, hosted),
        "log": _log(hosted.log),
        "oldest_segment": _oldest(hosted.log),
        "duplicates": _duplicates(hosted.log, services.clock.now_ms()),
        "compaction": _compaction(services, hosted.log) if hosted.log.config.compact else None,
    }


def _isr(services: Services, partition: Partition) -> dict[str, Any] | None:
    """None on a follower."""
    if not partition.is_leader:
        return None
    isr, now_ms = partition.replication.isr, services.clock.monotonic_ms()
    return {
        "committed": list(isr.committed),
        "phase": isr.phase.value,
        "proposed": None if isr.in_flight is None else list(isr.in_flight.isr),
        "eligible": list(isr.eligible),
        "effective_min": partition.effective_min_isr,
        "may_commit": isr.may_commit(partition.effective_min_isr),
        "waits_for": [
            int(each.broker_id)
            for each in partition.replication.followers.values()
            if each.log_end_offset < partition.log.log_end_offset
            and partition.is_waited_for(each.broker_id, now_ms)
        ],
    }


def _log(log: UnifiedLog) -> dict[str, Any]:
    return {
        "start": int(log.log_start_offset),
        "last_stable": int(log.last_stable_offset),
        "high_watermark": int(log.high_watermark),
        "end": int(log.log_end_offset),
        "segments": len(log.segments),
        "bytes": log.size_bytes,
        "cleanup_policy": list(log.config.cleanup_policy),
        "retention_ms": log.config.retention_ms,
        "retention_bytes": log.config.retention_bytes,
        "segment_ms": log.config.segment_ms,
        "segment_bytes": log.config.segment_bytes,
    }


def _duplicates(log: UnifiedLog, now_ms: int) -> dict[str, Any] | None:
    found = log.producers.duplicates
    if found is None:
        return None
    return {
        "count": found.count,
        "last_ms_ago": max(now_ms - found.last_ms, 0),
        "producer_id": found.last_producer_id,
        "offset": found.last_offset,
    }


def _oldest(log: UnifiedLog) -> dict[str, Any]:
    """What retention looks at first."""
    segment = log.segments[0]
    is_active = len(log.segments) == 1
    return {
        "base_offset": int(segment.base_offset),
        "end_offset": int(log.log_end_offset if is_active else log.segments[1].base_offset),
        "bytes": segment.size,
        "newest_timestamp_ms": _newest_timestamp(segment),
        "is_active": is_active,
    }


def _newest_timestamp(segment: LogSegment) -> int | None:
    """None: its file cannot be read."""
    try:
        return segment.largest_timestamp()
    except (KafkaError, OSError):
        return None


def _compaction(services: Services, log: UnifiedLog) -> dict[str, Any]:
    at, compactions = log.topic_partition, services.compactions
    document: dict[str, Any] = {
        "enabled": services.config.log_cleaner_enable,
        "in_progress": compactions is not None and any(each is log for each in compactions.in_progress),
        "given_up": compactions is not None and any(each is log for each in compactions.uncleanable),
        "moving": at in services.log_manager.future_logs,
        "min_dirty_ratio": log.config.min_cleanable_dirty_ratio,
        "min_lag_ms": log.config.min_compaction_lag_ms,
        "max_lag_ms": log.config.max_compaction_lag_ms,
        "unreadable": None,
    }
    try:
        cleanable = CleanableLog(log, now_ms=services.clock.now_ms())
    except (KafkaError, OSError) as error:
        return document | {"unreadable": str(error)}
    end = cleanable.first_uncleanable_offset
    floor = log.segments[max(log.segments.floor_index(log.last_stable_offset), 0)].base_offset
    if end == log.segments[len(log.segments) - 1].base_offset:
        ends_at = "active segment"
    else:
        ends_at = "last stable offset" if end == floor else "min.compaction.lag.ms"
    return document | {
        "first_dirty_offset": int(cleanable.first_dirty_offset),
        "end_offset": int(end),
        "ends_at": ends_at,
        "dirty_ratio": cleanable.dirty_ratio,
        "dirty_bytes": cleanable.dirty_bytes,
        "cleanable_bytes": cleanable.total_bytes,
        "overdue_ms": cleanable.overdue_ms,
        "is_due": cleanable.is_due,
    }
