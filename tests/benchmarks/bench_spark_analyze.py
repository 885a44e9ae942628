"""``minikafka analyze`` at local[2]: 10 million records of 200 bytes, 2 GB, a million keys, from headers and
CRCs to the report.

Four partitions of one topic, batches of 80 records (16 KB), uncompressed, written as files: a thousandth of
the batches is built record by record for each, the others are the same with another header. The time is from
Spark's start to the finished HTML; each phase has a row of its own. ``MINIKAFKA_BENCH_RECORDS`` is another
number of records.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import Any

from minikafka.log.checkpoint import REPLICATION_OFFSET_CHECKPOINT, encode_offsets
from minikafka.protocol.records.batch import BatchHeader, read_header, rewrite
from minikafka.protocol.records.records import Record, build_batch
from minikafka.spark.analyze.inputs import NamedDirectory
from minikafka.spark.analyze.job import Request, analyze, prepare
from minikafka.spark.analyze.report import render
from minikafka.spark.runtime.session import open_session
from minikafka.types import TopicPartition
from tests.benchmarks.cluster import row

TOPIC = "analysed"
RECORDS, QUICK_RECORDS = 10_000_000, 500_000
KEYS_SHARE = 10
"""Records of each key."""
PARTITIONS = 4
RECORDS_A_BATCH = 80
KEY, VALUE_BYTES = b"key-%011d", 178
"""With lengths and deltas about 200 bytes a record."""
SEGMENT_BYTES = 256 << 20
ASKED_S = 60
FIRST_MS = 1_750_000_000_000

_INDEX_ENTRY = Struct(">ii")


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows of name, value, unit, asked, ok."""
    records = int(os.environ.get("MINIKAFKA_BENCH_RECORDS", QUICK_RECORDS if quick else RECORDS))
    phases: dict[str, tuple[float, float]] = {}

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        began, cpu_began = time.perf_counter(), cpu_of_all()
        yield
        phases[name] = time.perf_counter() - began, cpu_of_all() - cpu_began

    with tempfile.TemporaryDirectory() as directory:
        size = write_logs(Path(directory), records)
        conf = [("spark.driver.memory", "1g"), ("spark.ui.enabled", "false")]
        with open_session("bench", master="local[2]", conf=conf) as spark:
            began = time.perf_counter()
            prepared = prepare(Request((NamedDirectory(directory),)))
            analysis = analyze(spark, prepared, now_ms=time.time_ns() // 1_000_000, phase=phase)
            with phase("report"):
                html = render(analysis)
            took = time.perf_counter() - began
    (topic,) = analysis.topics
    if (topic.records, topic.superseded_records) != (records, records - records // KEYS_SHARE):
        raise RuntimeError(f"{topic.records} records, {topic.superseded_records} superseded were found")
    asked = ASKED_S * records / RECORDS
    return [
        row(f"analyse {size / 1e6:,.0f} MB, {records:,} records", took, "s", f"<= {asked:g}", took <= asked),
        row("rate", size / 1e6 / took, "MB/s"),
        row("cpu", sum(cpu for _, cpu in phases.values()), "s"),
        *(row(f"of it: {name}", seconds, "s") for name, (seconds, _) in phases.items()),
        *(row(f"cpu: {name}", cpu, "s") for name, (_, cpu) in phases.items()),
        row("report", len(html) / 1e6, "MB"),
    ]


def cpu_of_all() -> float:
    """CPU seconds of this process and all below it: the JVM and its Python workers (Linux). On a machine that
    does other things too it says more than the time."""
    children: dict[int, list[int]] = {}
    spent: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        pid = int(stat.parent.name)
        children.setdefault(int(fields[1]), []).append(pid)
        spent[pid] = sum(map(int, fields[11:15]))
    ticks, pending = 0, [os.getpid()]
    while pending:
        pid = pending.pop()
        ticks += spent[pid]
        pending += children.get(pid, [])
    return ticks / os.sysconf("SC_CLK_TCK")


def write_logs(
    directory: Path, records: int, *, key_records: int = KEYS_SHARE, is_rolled: bool = False
) -> int:
    """A log directory; returns the bytes of its segments.

    Args:
        key_records: how many each key has.
        is_rolled: whether the active segments are empty.
    """
    templates = [_template(number) for number in range(max(1, records // key_records // RECORDS_A_BATCH))]
    of_partition = [templates[number::PARTITIONS] for number in range(PARTITIONS)]
    ends, size = {}, 0
    for number, members in enumerate(of_partition):
        topic_partition = TopicPartition(TOPIC, number)
        writer = _LogWriter(directory / str(topic_partition))
        for _ in range(key_records):
            for header, batch in members:
                writer.append(header, batch)
        if is_rolled:
            writer.roll()
        size += writer.close()
        ends[topic_partition] = writer.next_offset
    (directory / REPLICATION_OFFSET_CHECKPOINT).write_bytes(encode_offsets(ends))
    return size


def _template(number: int) -> tuple[BatchHeader, bytes]:
    first = number * RECORDS_A_BATCH
    batch = build_batch(
        Record(index, FIRST_MS + index, KEY % (first + index), os.urandom(VALUE_BYTES), ())
        for index in range(RECORDS_A_BATCH)
    )
    return read_header(batch), batch


class _LogWriter:
    """Segments with their offset indexes, an entry a batch."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        self.next_offset = 0
        self._size = 0
        self._open()

    def _open(self) -> None:
        self._base, self._position = self.next_offset, 0
        self._log = (self._directory / f"{self._base:020d}.log").open("wb")
        self._index = (self._directory / f"{self._base:020d}.index").open("wb")

    def append(self, header: BatchHeader, batch: bytes) -> None:
        if self._position + len(batch) > SEGMENT_BYTES:
            self.roll()
        since_ms = self.next_offset // 10
        stamped = rewrite(
            batch,
            header,
            base_offset=self.next_offset,
            leader_epoch=1,
            base_timestamp=FIRST_MS + since_ms,
            max_timestamp=FIRST_MS + since_ms + RECORDS_A_BATCH - 1,
        )
        if self._position:
            self._index.write(_INDEX_ENTRY.pack(self.next_offset - self._base, self._position))
        self._log.write(stamped)
        self._log.write(memoryview(batch)[len(stamped) :])
        self._position += len(batch)
        self.next_offset += RECORDS_A_BATCH

    def roll(self) -> None:
        self.close()
        self._open()

    def close(self) -> int:
        """Returns the bytes of all segments so far."""
        self._log.close()
        self._index.close()
        self._size += self._position
        return self._size
