"""An analysis as Parquet: flat tables for whoever goes on with it in Spark, pandas or a database.

    partitions    a row a partition: every single figure; those of nested values are ``<value>_<figure>``
    throughput    topic, partition, start_ms, bucket_ms, records, bytes
    top_keys      topic, partition, key, records, bytes, share
    codecs        topic, partition, codec, batches, records, bytes
    epochs        topic, partition, epoch, first_offset, last_offset, batches, records
    damage        topic, partition, log_dir, segment, position, offset, what
    replicas      topic, partition, brokers, from_offset, to_offset, batches, bytes, differences,
                  first_difference, what

Each is a file of that name; one without rows has its columns all the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet

from minikafka.spark.analyze.analysis import Analysis, Partition

_LISTS = {
    "throughput": (
        ("start_ms", pa.int64()), ("bucket_ms", pa.int64()), ("records", pa.int64()), ("bytes", pa.int64()),
    ),
    "top_keys": (
        ("key", pa.string()), ("records", pa.int64()), ("bytes", pa.int64()), ("share", pa.float64()),
    ),
    "codecs": (
        ("codec", pa.string()), ("batches", pa.int64()), ("records", pa.int64()), ("bytes", pa.int64()),
    ),
    "epochs": (
        ("epoch", pa.int64()), ("first_offset", pa.int64()), ("last_offset", pa.int64()),
        ("batches", pa.int64()), ("records", pa.int64()),
    ),
    "damage": (
        ("log_dir", pa.string()), ("segment", pa.string()), ("position", pa.int64()), ("offset", pa.int64()),
        ("what", pa.string()),
    ),
    "replicas": (
        ("brokers", pa.list_(pa.int32())), ("from_offset", pa.int64()), ("to_offset", pa.int64()),
        ("batches", pa.int64()), ("bytes", pa.int64()), ("differences", pa.int64()),
        ("first_difference", pa.int64()), ("what", pa.string()),
    ),
}  # fmt: skip
"""Columns behind topic and partition."""

_LOG = (("topic", pa.string()), ("partition", pa.int32()))


def tables(analysis: Analysis) -> dict[str, pa.Table]:
    """The tables by name."""
    partitions = [each for topic in analysis.topics for each in topic.partitions]
    bucket_ms = {topic.name: topic.bucket_ms for topic in analysis.topics}
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in _LISTS}
    for each in partitions:
        log = {"topic": each.topic, "partition": each.partition}
        width = {"bucket_ms": bucket_ms[each.topic]}
        rows["throughput"] += [log | width | msgspec.to_builtins(bucket) for bucket in each.throughput]
        rows["top_keys"] += [log | msgspec.to_builtins(key) for key in (each.keys.top if each.keys else [])]
        rows["codecs"] += [log | msgspec.to_builtins(use) for use in each.codecs]
        rows["epochs"] += [log | msgspec.to_builtins(epoch) for epoch in each.epochs]
        rows["damage"] += [log | msgspec.to_builtins(damage) for damage in each.damage]
    for compared in analysis.replicas or []:
        row = msgspec.to_builtins(compared)
        first = row.pop("first")
        rows["replicas"].append(
            row
            | {
                "first_difference": first["offset"] if first else None,
                "what": first["what"] if first else None,
            }
        )
    found = {"partitions": pa.Table.from_pylist(_flat(partitions))}
    for name, columns in _LISTS.items():
        found[name] = pa.Table.from_pylist(rows[name], schema=pa.schema([*_LOG, *columns]))
    return found


def write_tables(analysis: Analysis, directory: str) -> list[str]:
    """Write them into ``directory``, which is made if it is not there. Returns the paths. Raises OSError."""
    os.makedirs(directory, exist_ok=True)
    paths = []
    for name, table in tables(analysis).items():
        path = os.path.join(directory, f"{name}.parquet")
        pyarrow.parquet.write_table(table, path)
        paths.append(path)
    return paths


def _flat(partitions: Sequence[Partition]) -> list[dict[str, Any]]:
    """Rows with the same columns each, also where a partition has no such figure."""
    rows = [dict(_figures("", msgspec.to_builtins(each))) for each in partitions]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return [{name: row.get(name) for name in names} for row in rows]


def _figures(prefix: str, value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, each in value.items():
        if isinstance(each, dict):
            yield from _figures(f"{prefix}{name}_", each)
        elif not isinstance(each, list):
            yield f"{prefix}{name}", each
