"""How fast Spark reads log directories, on local[2], against an ordinary consumer with the same records.

The topics are written through a broker by librdkafka and read while the files are in the page cache. A read
is the columns of Spark's own Kafka source, written to Spark's ``noop`` sink, so each row is made and none is
kept. "A core" is half of the wall clock's rate, as both cores of local[2] may be used; where the machine has
other work, the rate for a second of CPU (Spark's JVM and its Python workers together) says more, and is there
too. Spark starts Python processes to plan a query; a query that finds nothing shows what that costs. The
consumer's records become the same columns as an Arrow table, and that a DataFrame.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import functions as F

from minikafka.spark import register
from minikafka.spark.runtime.session import open_session
from tests.benchmarks.broker import cpu_seconds
from tests.benchmarks.cluster import row
from tests.benchmarks.produce_client import LINGER, connection, produce
from tests.integration.support.process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORES = 2
LARGE, SMALL = "records-of-1024", "records-of-100"
SIZES = {LARGE: 1024, SMALL: 100}
COUNTS = {LARGE: 1_000_000, SMALL: 5_000_000}
COLUMNS = "key,value,topic,partition,offset,timestamp,timestampType"

MEGABYTES_MIN, RECORDS_MIN, HEADER_GIGABYTES_MIN = 150, 500_000, 1.0
RUNS = 3


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows of name, value, unit, asked, ok."""
    counts = {topic: count // (5 if quick else 1) for topic, count in COUNTS.items()}
    with tempfile.TemporaryDirectory() as directory:
        broker = BrokerProcess(
            Path(directory) / "data", properties={"num.partitions": 1, "log.segment.bytes": 1 << 30}
        )
        try:
            broker.start()
            for topic, count in [*counts.items()]:
                settings = LINGER | {"batch.size": 1_000_000 if topic == LARGE else 16_384}
                produce(broker.bootstrap, topic, records=count, size=SIZES[topic], settings=settings)
                counts[topic] = count + 1  # one that opens the connection
            conf = [("spark.driver.memory", "2g")]
            with open_session("bench", master=f"local[{CORES}]", conf=conf) as spark:
                register(spark)
                return _rows(spark, broker, {topic: broker.files(topic, ".log") for topic in counts}, counts)
        finally:
            broker.kill()


def _rows(
    spark: SparkSession, broker: BrokerProcess, files: dict[str, list[Path]], counts: dict[str, int]
) -> list[dict[str, Any]]:
    def frame(topic: str, columns: str, kind: str = "kafka-log") -> DataFrame:
        reader = spark.read.format(kind).options(subscribe=topic, columns=columns, latest="logEnd")
        return reader.load(str(broker.data_dir))

    megabytes = {topic: sum(file.stat().st_size for file in files[topic]) / 1e6 for topic in files}
    rows = []
    full = {topic: _best(lambda topic=topic: _drain(frame(topic, COLUMNS))) for topic in counts}
    for topic, (seconds, cpu) in full.items():
        size, count = megabytes[topic], counts[topic]
        is_large = topic == LARGE
        rate = size / seconds / CORES
        rows += [
            row(
                f"{topic}: all columns, a core",
                rate,
                "MB/s",
                f">= {MEGABYTES_MIN}" if is_large else "",
                not is_large or rate >= MEGABYTES_MIN,
            ),
            row(
                f"{topic}: all columns, a core",
                count / seconds / CORES,
                "records/s",
                "" if is_large else f">= {RECORDS_MIN}",
                is_large or count / seconds / CORES >= RECORDS_MIN,
            ),
            row(f"{topic}: all columns, a second of CPU", size / cpu, "MB"),
            row(f"{topic}: all columns, a second of CPU", count / cpu, "records"),
        ]
    idle, idle_cpu = _best(lambda: _drain(frame(LARGE, COLUMNS).where("partition = 99")))
    rows += [
        row("a query that finds nothing", idle, "s"),
        row("a query that finds nothing, CPU", idle_cpu, "s"),
    ]
    for topic, count in counts.items():
        headers = {
            "count of records": lambda topic=topic: frame(topic, "records", "kafka-log-batches").agg(
                F.sum("records")
            ),
            "range of offsets": lambda topic=topic: (
                frame(topic, "partition,base_offset,last_offset", "kafka-log-batches")
                .groupBy("partition")
                .agg(F.min("base_offset"), F.max("last_offset") + 1)
            ),
            "count() of kafka-log": lambda topic=topic: frame(topic, "partition").groupBy().count(),
        }
        for name, query in headers.items():
            assert query().first()[-1] == count, name
            seconds, cpu = _best(lambda query=query: query().collect())
            rate = megabytes[topic] / 1000 / seconds
            is_asked = topic == LARGE
            rows += [
                row(
                    f"{topic}: {name}",
                    rate,
                    "GB/s",
                    f">= {HEADER_GIGABYTES_MIN}" if is_asked else "",
                    not is_asked or rate >= HEADER_GIGABYTES_MIN,
                ),
                row(
                    f"{topic}: {name}, a second of CPU beyond a query that finds nothing",
                    megabytes[topic] / 1000 / max(0.01, cpu - idle_cpu),
                    "GB",
                ),
            ]
    for topic, count in counts.items():
        few = count // 5
        started = time.perf_counter()
        _drain(spark.createDataFrame(_consumed(broker.bootstrap, topic, few)))
        seconds = (time.perf_counter() - started) * count / few
        rows += [
            row(f"{topic}: an ordinary consumer", megabytes[topic] / seconds, "MB/s"),
            row(f"{topic}: how many times slower the consumer is", seconds / full[topic][0], "times"),
        ]
    return rows


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _best(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds and CPU seconds of the fastest of some runs; the first one only warms up."""
    found = []
    for _ in range(RUNS + 1):
        cpu, started = _cpu(), time.perf_counter()
        work()
        found.append((time.perf_counter() - started, _cpu() - cpu))
    return min(found[1:])


def _cpu() -> float:
    """CPU seconds of this process's children and theirs: the JVM and the Python workers, but no broker."""
    parents: dict[int, list[int]] = {}
    names: dict[int, str] = {}
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                name, _, rest = (each / "stat").read_text().rpartition(")")
            except OSError:  # it has ended
                continue
            parents.setdefault(int(rest.split()[1]), []).append(int(each.name))
            names[int(each.name)] = name.partition("(")[2]
    total, todo = 0.0, [pid for pid in parents.get(os.getpid(), []) if names[pid] == "java"]
    while todo:
        pid = todo.pop()
        todo += parents.get(pid, [])
        try:
            total += cpu_seconds(pid)
        except OSError:
            continue
    return total


def _consumed(bootstrap: str, topic: str, count: int) -> pa.Table:
    """The first records of a topic, by an ordinary consumer."""
    settings = {"group.id": "bench", "enable.auto.commit": False, "fetch.queue.backoff.ms": 5}
    consumer = Consumer(connection(bootstrap) | settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    tables, seen = [], 0
    while seen < count:
        messages = consumer.consume(min(10_000, count - seen), timeout=30)
        if not messages:
            raise SystemExit(f"only {seen} of {count} records came")
        seen += len(messages)
        stamps = [message.timestamp() for message in messages]
        columns = {
            "key": pa.array([message.key() for message in messages], pa.binary()),
            "value": pa.array([message.value() for message in messages], pa.binary()),
            "topic": pa.array([message.topic() for message in messages]),
            "partition": pa.array([message.partition() for message in messages], pa.int32()),
            "offset": pa.array([message.offset() for message in messages]),
            "timestamp": pa.array([ms for _, ms in stamps], pa.timestamp("ms", tz="UTC")).cast(
                pa.timestamp("us", tz="UTC")
            ),
            "timestampType": pa.array([kind - 1 for kind, _ in stamps], pa.int32()),
        }
        tables.append(pa.table(columns))
    consumer.close()
    return pa.concat_tables(tables)
