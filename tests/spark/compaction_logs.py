"""Log directories for the tests of ``minikafka compact``: written by our log, compacted by the cleaner of the
broker or by the job, and compared."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from minikafka.clock import ManualClock
from minikafka.config.topic import TopicConfig
from minikafka.files import OsFiles
from minikafka.log.checkpoint import (
    REPLICATION_OFFSET_CHECKPOINT,
    encode_offsets,
    write_clean_shutdown_marker,
)
from minikafka.log.producers.append import AppendOrigin
from minikafka.log.unified_log import UnifiedLog
from minikafka.protocol.records.batch import iterate_headers
from minikafka.protocol.records.records import ControlRecordType
from minikafka.spark.compact.job import Compacted, Phase, Request, compact
from minikafka.types import LeaderEpoch, TopicPartition
from tests.unit.log.cleaner_helpers import batches, compacted_config, keyed
from tests.unit.log.cleaner_helpers import compact as compact_in_broker
from tests.unit.log.log_helpers import NOW_MS, marker

CONFIG: TopicConfig = compacted_config()
TOPIC = "t"


@contextmanager
def no_phase(name: str) -> Iterator[None]:
    yield


class LogDirectory:
    """A broker's log directory with logs of one topic, opened one at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock(NOW_MS)
        path.mkdir(parents=True, exist_ok=True)
        self.high_watermarks: dict[TopicPartition, int] = {}

    def partition(self, number: int) -> Path:
        return self.path / f"{TOPIC}-{number}"

    def open(self, number: int, *, config: TopicConfig = CONFIG, clean: bool = False) -> UnifiedLog:
        log = UnifiedLog.load(
            str(self.partition(number)),
            TopicPartition(TOPIC, number),
            config=config,
            files=OsFiles(),
            clock=self.clock,
            clean_shutdown=clean,
        )
        log.update_high_watermark(self.high_watermarks.get(log.topic_partition, 0))
        return log

    def close(self, log: UnifiedLog) -> None:
        """As a broker's clean stop leaves it."""
        self.high_watermarks[log.topic_partition] = log.high_watermark
        log.close()
        checkpoint = str(self.path / REPLICATION_OFFSET_CHECKPOINT)
        OsFiles().write_atomically(checkpoint, encode_offsets(self.high_watermarks))
        write_clean_shutdown_marker(OsFiles(), str(self.path))

    def copy(self, path: Path) -> LogDirectory:
        shutil.copytree(self.path, path)
        copied = LogDirectory(path)
        copied.clock = ManualClock(self.clock.now_ms())
        copied.high_watermarks = dict(self.high_watermarks)
        return copied

    def compact_in_broker(self, number: int, *, config: TopicConfig = CONFIG) -> None:
        """One round of the broker's own cleaner, over everything."""
        log = self.open(number, config=config, clean=True)
        compact_in_broker(log, clock=self.clock, map_bytes=1 << 24)
        self.close(log)

    def compact(self, spark: SparkSession, *, phase: Phase = no_phase, **changes: Any) -> list[Compacted]:
        """The job, offline."""
        values: dict[str, Any] = {
            "log_directory": str(self.path),
            "wanted": ((TOPIC, None),),
            "config": lambda topic: CONFIG,
        }
        request = Request(**(values | changes))
        return compact(spark, request, files=OsFiles(), now_ms=self.clock.now_ms(), phase=phase)

    def contents(self, number: int) -> list[tuple[Any, ...]]:
        """Every batch with its records."""
        log = self.open(number, clean=True)
        try:
            return [(header, *records) for header, records in batches(log)]
        finally:
            self.close(log)

    def closed_batches(self, number: int) -> int:
        """How many the closed segments have."""
        files = self.segment_files(number).items()
        return sum(len(list(iterate_headers(data))) for name, data in files if name.endswith(".log"))

    def segment_files(self, number: int) -> Mapping[str, bytes]:
        """The files of the closed segments, by name."""
        bases = sorted(path.name for path in self.partition(number).glob("*.log"))
        return {
            path.name: path.read_bytes()
            for path in sorted(self.partition(number).iterdir())
            if path.suffix in (".log", ".index", ".timeindex", ".txnindex") and path.stem < bases[-1][:-4]
        }


class Writer:
    """Writes to a log as idempotent and transactional producers do."""

    def __init__(self, log: UnifiedLog) -> None:
        self.log = log
        self.sequences: dict[int, int] = {}

    def write(
        self,
        *records: tuple[bytes | None, bytes | None],
        producer_id: int = -1,
        transactional: bool = False,
        timestamp: int = NOW_MS,
        **options: Any,
    ) -> int:
        """Append a batch; returns its first offset."""
        if producer_id >= 0:
            sequence = self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = sequence + len(records)
            options |= {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": sequence,
                "transactional": transactional,
            }
        info = self.log.append_as_leader(
            keyed(*records, timestamp=timestamp, **options), leader_epoch=LeaderEpoch(0)
        )
        self.log.update_high_watermark(self.log.log_end_offset)
        return info.first_offset

    def end(self, producer_id: int, kind: ControlRecordType) -> None:
        """Commit or abort."""
        self.log.append_as_leader(
            marker(kind, producer_id=producer_id),
            leader_epoch=LeaderEpoch(0),
            origin=AppendOrigin.COORDINATOR,
        )
        self.log.update_high_watermark(self.log.log_end_offset)
