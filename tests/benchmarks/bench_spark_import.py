"""``minikafka import`` at local[2]: bytes of log for a second of CPU, for records of 1 KB and of 100 bytes.

A Parquet table of random bytes, uncompressed, becomes a new topic, uncompressed unless it is said. Two kinds
of figures: the encoder alone, in this process, from Arrow batches to record batches, by its own CPU time; and
the whole job, from Parquet to a committed topic, by wall clock and by the CPU of Spark's JVM and its Python
workers together. What a job over one row costs (planning, the start of workers) is a row of its own. "A core"
is half of the wall clock's rate, as both cores may be used; where the machine has other work, or its disk is
slow at fsync, the rate for a second of CPU says more.

``MINIKAFKA_BENCH_SCALE`` divides the number of records.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from minikafka.protocol.records.compression import CompressionType
from minikafka.spark.load.segments import Records, binary_column, cut_into_batches, encode, sizes_at_most
from minikafka.spark.runtime.session import open_session
from tests.benchmarks.bench_spark_read import _cpu
from tests.benchmarks.cluster import row
from tests.spark import import_support

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORES = 2
SIZES = {1024: 2_000_000, 100: 10_000_000}
GROUP_BYTES = 32 * 1024 * 1024
MEGABYTES_MIN = 150
CODECS = (CompressionType.LZ4, CompressionType.ZSTD, CompressionType.SNAPPY, CompressionType.GZIP)


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows of name, value, unit, asked, ok."""
    scale = int(os.environ.get("MINIKAFKA_BENCH_SCALE", "10" if quick else "1"))
    rows: list[dict[str, Any]] = []
    for size in SIZES:
        rows += _encoder_rows(size)
    with (
        tempfile.TemporaryDirectory() as directory,
        open_session("bench", master=f"local[{CORES}]", conf=[("spark.driver.memory", "2g")]) as spark,
    ):
        path = Path(directory)
        _write(path / "one.parquet", 100, 1)
        _job(spark, path / "one.parquet", path)  # warms up
        seconds, cpu, _ = _job(spark, path / "one.parquet", path)
        rows += [row("a table of one row", seconds, "s"), row("a table of one row, CPU", cpu, "s")]
        for size, count in SIZES.items():
            table = path / f"{size}.parquet"
            _write(table, size, count // scale)
            for partitions in (1, 12):
                rows += _job_rows(spark, table, path, size, partitions=partitions)
            if size == 1024:
                for codec in CODECS:
                    rows += _job_rows(spark, table, path, size, partitions=12, codec=codec)
            table.unlink()
    return rows


def _columns(size: int, count: int) -> tuple[pa.Array, pa.Array]:
    """Keys of 8 bytes, and values of ``size`` that half compress."""
    dice = np.random.default_rng(size)
    octets = dice.integers(0, 256, size=count * size, dtype=np.uint8)
    octets.reshape(count, size)[:, : size // 2] = ord("x")
    values = binary_column(np.arange(count + 1, dtype=np.int64) * size, octets)
    keys = binary_column(
        np.arange(count + 1, dtype=np.int64) * 8, dice.integers(0, 256, 8 * count, dtype=np.uint8)
    )
    return keys, values


def _write(path: Path, size: int, count: int) -> None:
    rows_a_group = max(1, GROUP_BYTES // (size + 16))
    schema = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("timestamp", pa.timestamp("ms"))])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for first in range(0, count, rows_a_group):
            some = min(rows_a_group, count - first)
            keys, values = _columns(size, some)
            times = pa.array(1_700_000_000_000 + np.arange(first, first + some)).cast(pa.timestamp("ms"))
            writer.write_table(pa.table([keys, values, times], schema=schema), row_group_size=some)


def _encoder_rows(size: int) -> list[dict[str, Any]]:
    count = GROUP_BYTES // size
    keys, values = _columns(size, count)
    records = Records(keys, values, np.arange(count, dtype=np.int64))
    best = float("inf")
    written = 0
    for _ in range(8):
        began = time.process_time()
        starts = cut_into_batches(sizes_at_most(records), np.array([0]), 1 << 20)
        batches = encode(records, starts, CompressionType.NONE)
        best = min(best, time.process_time() - began)
        written = sum(batch.size for batch in batches)
    return [
        row(f"records of {size}: the encoder alone, a second of CPU", written / 1e6 / best, "MB"),
        row(f"records of {size}: the encoder alone, a second of CPU", count / best, "records"),
    ]


def _job_rows(
    spark: SparkSession,
    table: Path,
    path: Path,
    size: int,
    *,
    partitions: int,
    codec: CompressionType = CompressionType.NONE,
) -> list[dict[str, Any]]:
    seconds, cpu, done = min(
        (_job(spark, table, path, partitions=partitions, codec=codec) for _ in range(3)),
        key=lambda found: found[1],
    )
    plain_mb = (done.record_bytes + 8 * done.records) / 1e6
    log_mb = done.log_bytes / 1e6 if codec is CompressionType.NONE else plain_mb
    name = f"records of {size}, {partitions} partitions, {codec.name.lower()}"
    is_asked = size == 1024 and codec is CompressionType.NONE
    asked = f">= {MEGABYTES_MIN}" if is_asked else ""
    return [
        row(f"{name}: a core", log_mb / seconds / CORES, "MB/s"),
        row(
            f"{name}: a second of CPU", log_mb / cpu, "MB", asked, not asked or log_mb / cpu >= MEGABYTES_MIN
        ),
        row(f"{name}: a second of CPU", done.records / cpu, "records"),
        row(f"{name}: {log_mb:.0f} MB", seconds, "s"),
    ]


def _job(
    spark: SparkSession,
    table: Path,
    path: Path,
    *,
    partitions: int = 1,
    codec: CompressionType = CompressionType.NONE,
) -> tuple[float, float, Any]:
    """Seconds, CPU seconds, and what was done."""
    data = path / "data"
    own = time.process_time()
    cpu, began = _cpu(), time.perf_counter()
    done = import_support.run(spark, table, data, "bench", partitions=partitions, codec=codec)
    seconds = time.perf_counter() - began
    used = _cpu() - cpu + time.process_time() - own
    shutil.rmtree(data)
    return seconds, used, done
