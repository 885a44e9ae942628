"""Topics and their partitions: how much is written and read, how large they are, and which are at risk."""

from __future__ import annotations

from grafana.generator.board import Dashboard, Section
from grafana.generator.panels import Panel, above, graph, number, rows
from grafana.generator.query import TOPIC, TRAFFIC, Query, highest, rate, series, top, total
from grafana.generator.replicas import under_min_isr, under_replicated
from grafana.generator.variables import topic_choice

PARTITION = "kafka_cluster_partition_"

SIZES = Section(
    "The chosen topics",
    [
        number(
            "Partitions",
            "Partitions with a leader that is up.",
            Query(f"count({series('kafka_topic_partition_current_offset', TOPIC)})", "partitions"),
        ),
        under_replicated(series(f"{PARTITION}underreplicated", TOPIC)),
        under_min_isr(series(f"{PARTITION}underminisr", TOPIC)),
        number(
            "At min.insync.replicas",
            "Partitions that will refuse producers with acks=all when one more replica falls out. Normal "
            "is 0, unless min.insync.replicas is the number of replicas.",
            Query(total(series(f"{PARTITION}atminisr", TOPIC)), "partitions"),
        ),
        number(
            "Records",
            "Records that can be read: between the start of the log and the high watermark. An upper "
            "bound for compacted topics.",
            Query(
                f"{total(series('kafka_topic_partition_current_offset', TOPIC))} - "
                f"{total(series('kafka_topic_partition_oldest_offset', TOPIC))}",
                "records",
            ),
        ),
        number(
            "Data",
            "Bytes of all replicas.",
            Query(total(series("kafka_log_log_size", TOPIC)), "bytes"),
            unit="bytes",
        ),
    ],
)


def _busiest(title: str, description: str, metric: str, *, unit: str, width: int = 12) -> Panel:
    """The topics in which a counter of traffic grows fastest."""
    growth = total(rate(f"{TRAFFIC}{metric}_total", TOPIC), "topic")
    query = Query(top(10, growth), "{{topic}}")
    return graph(title, f"{description}; the busiest ten.", query, unit=unit, width=width)


def _largest(expression: str) -> Query:
    """The partitions in which something is largest, whichever replica says so."""
    return Query(top(10, highest(expression, "topic", "partition")), "{{topic}}-{{partition}}")


TRAFFIC_BY_TOPIC = Section(
    "Traffic",
    [
        _busiest("Bytes in", "From producers", "bytesin", unit="binBps"),
        _busiest("Bytes out", "To consumers", "bytesout", unit="binBps"),
        _busiest("Records in", "From producers", "messagesin", unit="recps", width=8),
        graph(
            "Bytes per record",
            "The mean size of what is written, compressed as it came. Small records cost most.",
            Query(
                top(
                    10,
                    f"{total(rate(f'{TRAFFIC}bytesin_total', TOPIC), 'topic')} / "
                    f"({total(rate(f'{TRAFFIC}messagesin_total', TOPIC), 'topic')} > 0)",
                ),
                "{{topic}}",
            ),
            unit="bytes",
            width=8,
        ),
        graph(
            "Refused appends and reads",
            "A few when leaders move. A steady number is a client that asks for what it may not have.",
            Query(
                top(5, total(rate(f"{TRAFFIC}failedproducerequests_total", TOPIC), "topic")),
                "{{topic}} appends",
            ),
            Query(
                top(5, total(rate(f"{TRAFFIC}failedfetchrequests_total", TOPIC), "topic")), "{{topic}} reads"
            ),
            unit="ops",
            width=8,
        ),
    ],
)

PARTITIONS = Section(
    "Partitions",
    [
        rows(
            "Topics now",
            "Bytes are those of all replicas; rates are those of the last minutes.",
            Query(
                f"count by (topic) ({series('kafka_topic_partition_current_offset', TOPIC)})", "partitions"
            ),
            Query(total(series("kafka_log_log_size", TOPIC), "topic"), "size"),
            Query(total(rate(f"{TRAFFIC}messagesin_total", TOPIC), "topic"), "records in"),
            Query(total(rate(f"{TRAFFIC}bytesin_total", TOPIC), "topic"), "bytes in"),
            Query(total(rate(f"{TRAFFIC}bytesout_total", TOPIC), "topic"), "bytes out"),
            labels=["topic"],
            units=["short", "bytes", "recps", "binBps", "binBps"],
        ),
        graph(
            "Growth of the log",
            "Records a second by partition, the busiest ten. One partition far above the others of its "
            "topic is a hot key.",
            _largest(f"deriv({series('kafka_log_log_logendoffset', TOPIC)}[$__rate_interval])"),
            unit="recps",
            width=8,
        ),
        graph(
            "Largest partitions",
            "Bytes of one replica.",
            _largest(series("kafka_log_log_size", TOPIC)),
            unit="bytes",
            width=8,
        ),
        graph(
            "Segments",
            "Files of one replica, the most first. Thousands in one partition: segment.bytes or "
            "segment.ms is too small.",
            _largest(series("kafka_log_log_numlogsegments", TOPIC)),
            thresholds=above(warning=1000),
            width=8,
        ),
        graph(
            "Replicas that are missing from the ISR",
            "By partition; the worst ten. 0 is normal.",
            Query(
                top(
                    10,
                    total(
                        f"{series(f'{PARTITION}replicascount', TOPIC)} - "
                        f"{series(f'{PARTITION}insyncreplicascount', TOPIC)}",
                        "topic",
                        "partition",
                    ),
                ),
                "{{topic}}-{{partition}}",
            ),
            thresholds=above(warning=1),
        ),
        graph(
            "Oldest record that is kept",
            "The start of the log, by partition; the highest ten. It rises where retention or "
            "DeleteRecords removes.",
            _largest(series("kafka_topic_partition_oldest_offset", TOPIC)),
        ),
    ],
)

TOPICS_DASHBOARD = Dashboard(
    name="topics",
    title="topics and partitions",
    description="How much is written and read, how large the logs are, and which partitions are at risk.",
    variables=[topic_choice()],
    sections=[SIZES, TRAFFIC_BY_TOPIC, PARTITIONS],
)
