"""What an export reads: each partition from where the last run stopped to a fixed end.

The end is settled before anything is read, so a run is one range of offsets a partition, and its commit says
exactly that. By default it is the high watermark (and the last stable offset): what lies above may still be
truncated and replaced, and no consumer sees it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from minikafka.log.files.checkpoint import PARTITION_METADATA, decode_partition_metadata, encode_uuid
from minikafka.spark.runtime.failures import JobError
from minikafka.spark.source.log_files import PartitionLog
from minikafka.spark.source.options import ReadOptions
from minikafka.spark.source.planning import latest_offset
from minikafka.spark.source.storage import join


class ExportRange(NamedTuple):
    """What a run reads of one partition."""

    topic: str
    partition: int
    first_offset: int
    end_offset: int
    """Not read itself."""
    lost: int
    """Offsets that the log dropped before any run came to them."""


def plan(
    logs: Sequence[PartitionLog], exported: Mapping[str, Mapping[int, int]], options: ReadOptions
) -> list[ExportRange]:
    """The ranges with something new. ``exported``: the next offset of each partition.

    Raises:
        MinikafkaError: a log cannot be read.
    """
    ranges = []
    for log in logs:
        topic, partition = log.topic_partition
        start = log.log_start_offset
        known = exported.get(topic, {}).get(partition)
        first = start if known is None else max(known, start)
        end = latest_offset(log, options)
        if first < end:
            lost = 0 if known is None else max(0, start - known)
            ranges.append(ExportRange(topic, partition, first, end, lost))
    return ranges


def topic_ids(logs: Sequence[PartitionLog]) -> dict[str, str]:
    """Topic → id, of those whose directories say it."""
    ids: dict[str, str] = {}
    for log in logs:
        path = join(log.path, PARTITION_METADATA)
        if log.topic_partition.topic not in ids:
            try:
                data = log.storage.read_bytes(path)
            except FileNotFoundError:
                continue
            topic_id = decode_partition_metadata(data, path=path)
            ids[log.topic_partition.topic] = encode_uuid(topic_id)
    return ids


def check_topic_ids(before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raises JobError: a topic was deleted and created again, so its offsets mean other records."""
    for topic, topic_id in now.items():
        if before.get(topic, topic_id) != topic_id:
            raise JobError(
                f"topic {topic} was deleted and created again since the last export, so its offsets begin "
                "anew: export it into another directory"
            )


def source_options(ranges: Sequence[ExportRange]) -> dict[str, str]:
    """``assign``, ``startingOffsets`` and ``endingOffsets`` of the data source."""
    assign: dict[str, list[int]] = {}
    first: dict[str, dict[str, int]] = {}
    end: dict[str, dict[str, int]] = {}
    for each in ranges:
        assign.setdefault(each.topic, []).append(each.partition)
        first.setdefault(each.topic, {})[str(each.partition)] = each.first_offset
        end.setdefault(each.topic, {})[str(each.partition)] = each.end_offset
    return {
        "assign": json.dumps(assign),
        "startingOffsets": json.dumps(first),
        "endingOffsets": json.dumps(end),
    }
