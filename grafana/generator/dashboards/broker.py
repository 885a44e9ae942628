"""One broker, or some side by side: what it does, and whether its process can keep up.

A broker is one thread on one core: when its event loop is late, everything is late.
"""

from __future__ import annotations

from grafana.generator.board import Dashboard, Section
from grafana.generator.panels import above, by_broker, graph, number
from grafana.generator.query import (
    ALL_TOPICS,
    BROKER,
    REPLICAS,
    TRAFFIC,
    Query,
    highest,
    rate,
    series,
    total,
)
from grafana.generator.replicas import offline_replicas
from grafana.generator.variables import broker_choice

LAG = "minikafka_event_loop_lag_seconds"
FLUSHES = "kafka_log_logflushstats_logflushrateandtimems"
CLEANER, CLEANER_MANAGER = "kafka_log_logcleaner_", "kafka_log_logcleanermanager_"

STATE = Section(
    "State",
    [
        number(
            "State",
            "The lowest of the chosen brokers: 3 is serving, 1 is starting.",
            Query(f"min({series('kafka_server_kafkaserver_brokerstate', BROKER)})", "state"),
        ),
        number(
            "Leads",
            "Partitions that these brokers lead.",
            Query(total(series(f"{REPLICAS}leadercount", BROKER)), "partitions"),
        ),
        number(
            "Replicas",
            "Replicas that are online here, led or followed.",
            Query(total(series(f"{REPLICAS}partitioncount", BROKER)), "replicas"),
        ),
        offline_replicas(BROKER),
        number(
            "Event loop late, p99",
            "How much later than due a timer fired, at the worst broker. A few milliseconds are normal.",
            Query(highest(series(LAG, BROKER, 'quantile="0.99"')), "p99"),
            unit="s",
            thresholds=above(warning=0.05, critical=0.5),
        ),
        number(
            "Memory",
            "Resident memory of the processes together.",
            Query(total(series("process_resident_memory_bytes", BROKER)), "bytes"),
            unit="bytes",
        ),
    ],
)

WORK = Section(
    "Work",
    [
        graph(
            "Traffic of clients",
            "Bytes from producers and to consumers.",
            Query(total(rate(f"{TRAFFIC}bytesin_total", BROKER, ALL_TOPICS), "instance"), "{{instance}} in"),
            Query(
                total(rate(f"{TRAFFIC}bytesout_total", BROKER, ALL_TOPICS), "instance"), "{{instance}} out"
            ),
            unit="binBps",
        ),
        graph(
            "Traffic of replication",
            "Bytes that this broker's followers were answered with, and that it copied itself.",
            Query(rate(f"{TRAFFIC}replicationbytesin_total", BROKER), "{{instance}} in"),
            Query(rate(f"{TRAFFIC}replicationbytesout_total", BROKER), "{{instance}} out"),
            unit="binBps",
        ),
        graph(
            "Requests by API",
            "The busiest ten. Fetch and Produce prevail; much Metadata or JoinGroup means that clients "
            "come and go.",
            Query(
                f"topk(10, {total(rate('kafka_network_requestmetrics_requests_total', BROKER), 'request')})",
                "{{request}}",
            ),
            unit="reqps",
        ),
        graph(
            "Refused appends and reads",
            "A few when leaders move, as clients then ask the old one. A steady number is a client that "
            "asks for what it may not have.",
            Query(
                total(rate(f"{TRAFFIC}failedproducerequests_total", BROKER, ALL_TOPICS), "instance"),
                "{{instance}} appends",
            ),
            Query(
                total(rate(f"{TRAFFIC}failedfetchrequests_total", BROKER, ALL_TOPICS), "instance"),
                "{{instance}} reads",
            ),
            unit="ops",
        ),
    ],
)

PROCESS = Section(
    "The process",
    [
        by_broker(
            "CPU",
            "Cores in use. The event loop has one; disk threads and compaction add a little. At 1 the "
            "broker is at its limit: more cores run more brokers.",
            rate("process_cpu_seconds_total", BROKER),
            unit="percentunit",
            thresholds=above(warning=0.9),
        ),
        graph(
            "Event loop late",
            "How much later than due a timer fired: what every request waits at least. Below 10 ms is "
            "normal, more is a loop that is overloaded or blocked.",
            Query(series(LAG, BROKER, 'quantile="0.50"'), "{{instance}} p50"),
            Query(series(LAG, BROKER, 'quantile="0.99"'), "{{instance}} p99"),
            unit="s",
            thresholds=above(warning=0.05),
            width=8,
        ),
        graph(
            "Idle share of the event loop",
            "Kafka's RequestHandlerAvgIdlePercent. Below 0.3 for long, look for another broker.",
            Query(
                series("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", BROKER),
                "{{instance}}",
            ),
            unit="percentunit",
            width=8,
        ),
        by_broker(
            "Resident memory",
            "Level after the first minutes. Records lie in the page cache, which does not count here.",
            series("process_resident_memory_bytes", BROKER),
            unit="bytes",
        ),
        graph(
            "Garbage collections",
            "Runs of Python's collector by generation. Those of generation 2 stop the loop longest; a few "
            "a minute are normal.",
            Query(
                total(rate("python_gc_collections_total", BROKER), "generation"), "generation {{generation}}"
            ),
            unit="ops",
            width=8,
        ),
        graph(
            "Open file descriptors",
            "Connections and segments' files; the broker refuses connections before the limit is reached.",
            Query(series("process_open_fds", BROKER), "{{instance}}"),
            Query(series("process_max_fds", BROKER), "{{instance}} limit"),
            width=8,
        ),
    ],
)

STORAGE = Section(
    "Connections and storage",
    [
        graph(
            "Connections",
            "Open connections by listener.",
            Query(
                series("kafka_server_socket_server_metrics_connection_count", BROKER),
                "{{instance}} {{listener}}",
            ),
        ),
        by_broker(
            "Data",
            "Bytes of the local logs. Steady where retention removes as much as comes in.",
            total(series("kafka_log_log_size", BROKER), "instance"),
            unit="bytes",
            width=12,
        ),
        by_broker(
            "Flushes",
            "Flushes of logs a second: of closed segments, and as flush.messages and flush.ms say.",
            rate(f"{FLUSHES}_count", BROKER),
            unit="ops",
            width=12,
        ),
        graph(
            "Time of a flush",
            "Until the disk has all of a log's segments. Only flush.messages=1 waits for it; "
            "seconds mean a disk at its limit.",
            Query(series(FLUSHES, BROKER, 'quantile="0.50"'), "{{instance}} p50"),
            Query(series(FLUSHES, BROKER, 'quantile="0.99"'), "{{instance}} p99"),
            unit="ms",
            thresholds=above(warning=1000),
        ),
    ],
)

COMPACTION = Section(
    "Compaction",
    [
        graph(
            "Compactions",
            "Logs compacted a second; logs that cannot be, and cleaners that a bug has ended (both are 0 "
            "normally: the broker's log says why).",
            Query(rate("minikafka_log_cleaner_compactions_total", BROKER), "{{instance}} compacted"),
            Query(
                total(series(f"{CLEANER_MANAGER}uncleanable_partitions_count", BROKER), "instance"),
                "{{instance}} uncleanable",
            ),
            Query(series(f"{CLEANER}deadthreadcount", BROKER), "{{instance}} dead cleaners"),
            width=8,
        ),
        by_broker(
            "Dirtiest log",
            "What of it has not been compacted, in percent. It falls back below min.cleanable.dirty.ratio "
            "(50) each time; near 100 for long, the cleaner is dead or too slow.",
            series(f"{CLEANER_MANAGER}max_dirty_percent", BROKER),
            unit="percent",
            thresholds=above(warning=90),
        ),
        by_broker(
            "Since a cleaner looked for work",
            "At rest it looks every log.cleaner.backoff.ms (15 s). What grows beyond is a compaction "
            "under way, or a cleaner that is dead.",
            series(f"{CLEANER_MANAGER}time_since_last_run_ms", BROKER),
            unit="ms",
        ),
        graph(
            "Longest compaction",
            "The last one of the slowest cleaner, and by how much a log is later than its "
            "max.compaction.lag.ms allows (normal is 0).",
            Query(series(f"{CLEANER}max_clean_time_secs", BROKER), "{{instance}}"),
            Query(series(f"{CLEANER}max_compaction_delay_secs", BROKER), "{{instance}} late"),
            unit="s",
            width=8,
        ),
        graph(
            "What compaction is like",
            "The share of the bytes that the last compactions kept, and the share of the buffer that their "
            "keys took. A buffer that is full makes more rounds: log.cleaner.dedupe.buffer.size.",
            Query(series(f"{CLEANER}cleaner_recopy_percent", BROKER), "{{instance}} kept"),
            Query(series(f"{CLEANER}max_buffer_utilization_percent", BROKER), "{{instance}} buffer"),
            unit="percent",
            width=8,
        ),
        by_broker(
            "Bytes that cannot be compacted",
            "In logs that the cleaner skips because they are damaged. Normal is 0.",
            total(series(f"{CLEANER_MANAGER}uncleanable_bytes", BROKER), "instance"),
            unit="bytes",
            thresholds=above(critical=1),
        ),
    ],
)

BROKER_DASHBOARD = Dashboard(
    name="broker",
    title="broker",
    description="What a broker does, and whether its process can keep up.",
    variables=[broker_choice()],
    sections=[STATE, WORK, PROCESS, STORAGE, COMPACTION],
)
