"""The cluster at a glance: is it well, what does it carry, and is the load even over its brokers?"""

from __future__ import annotations

from grafana.generator.board import Dashboard, Section
from grafana.generator.panels import above, by_broker, exactly, faults, graph, number
from grafana.generator.query import ALL_TOPICS, REPLICAS, TRAFFIC, Query, highest, rate, series, total
from grafana.generator.replicas import under_min_isr, under_replicated

CONTROLLER = "kafka_controller_kafkacontroller_"
CONTROLLER_STATS = "kafka_controller_controllerstats_"

HEALTH = Section(
    "Is it well?",
    [
        faults(
            "Brokers unreachable",
            "Brokers that Prometheus cannot scrape: down, hanging or cut off. Normal is 0.",
            'count(up{job="$job"} == 0) or sum(up{job="$job"}) * 0',
            "brokers",
        ),
        number(
            "Controllers",
            "Brokers that say they are the controller. Normal is 1; 0 for a few seconds after the "
            "controller died.",
            Query(total(series(f"{CONTROLLER}activecontrollercount")), "controllers"),
            thresholds=exactly(1),
        ),
        faults(
            "Offline partitions",
            "Partitions without a leader: they cannot be written or read. Normal is 0.",
            highest(series(f"{CONTROLLER}offlinepartitionscount")),
            "partitions",
        ),
        under_min_isr(series(f"{REPLICAS}underminisrpartitioncount")),
        under_replicated(series(f"{REPLICAS}underreplicatedpartitions")),
        faults(
            "Offline log directories",
            "Directories that failed, on any broker. Their replicas are lost to the cluster. Normal is 0.",
            total(series("kafka_log_logmanager_offlinelogdirectorycount")),
            "directories",
        ),
    ],
)

SIZE = Section(
    "What is there?",
    [
        number(
            "Brokers",
            "Brokers that are registered in the coordination store, as the controller knows them.",
            Query(highest(series(f"{CONTROLLER}activebrokercount")), "brokers"),
        ),
        number(
            "Topics",
            "Topics of the cluster, with the internal ones.",
            Query(highest(series(f"{CONTROLLER}globaltopiccount")), "topics"),
        ),
        number(
            "Partitions",
            "Partitions of all topics; each counts once, however many replicas it has.",
            Query(highest(series(f"{CONTROLLER}globalpartitioncount")), "partitions"),
        ),
        number(
            "Data",
            "Bytes of all logs on all brokers: every replica counts.",
            Query(total(series("kafka_log_log_size")), "bytes"),
            unit="bytes",
        ),
        number(
            "Connections",
            "Open connections of clients and of other brokers.",
            Query(total(series("kafka_server_socket_server_metrics_connection_count")), "connections"),
        ),
        number(
            "Consumer groups",
            "Groups of both protocols, on all coordinators.",
            Query(total(series("kafka_coordinator_group_groupmetadatamanager_numgroups")), "groups"),
        ),
    ],
)

LOAD = Section(
    "Traffic",
    [
        graph(
            "Bytes in from producers",
            "What producers wrote, by the broker that leads the partition. Even over the brokers when "
            "leaders and topics are.",
            Query(total(rate(f"{TRAFFIC}bytesin_total", ALL_TOPICS), "instance"), "{{instance}}"),
            unit="binBps",
            stacked=True,
        ),
        graph(
            "Bytes out to consumers",
            "What consumers read, followers not counted. Usually a small multiple of what comes in: once "
            "for each group that reads it.",
            Query(total(rate(f"{TRAFFIC}bytesout_total", ALL_TOPICS), "instance"), "{{instance}}"),
            unit="binBps",
            stacked=True,
        ),
        graph(
            "Records in",
            "Records that producers wrote. Many records in few bytes cost more than few large ones.",
            Query(total(rate(f"{TRAFFIC}messagesin_total", ALL_TOPICS), "instance"), "{{instance}}"),
            unit="recps",
            stacked=True,
        ),
        graph(
            "Requests",
            "Requests of all APIs, of clients and of other brokers.",
            Query(total(rate("kafka_network_requestmetrics_requests_total"), "instance"), "{{instance}}"),
            unit="reqps",
            stacked=True,
        ),
    ],
)

BALANCE = Section(
    "Is the load even?",
    [
        by_broker(
            "Leaders by broker",
            "Partitions that each broker leads. Even in a balanced cluster; a restarted broker gets its "
            "leaders back within leader.imbalance.check.interval.seconds.",
            series(f"{REPLICAS}leadercount"),
        ),
        by_broker(
            "Replicas by broker",
            "Partitions of which each broker has a replica, led or followed.",
            series(f"{REPLICAS}partitioncount"),
        ),
        graph(
            "Not led by their preferred replica",
            "Partitions that another replica leads than the first of their assignment. 0 in the long run, "
            "unless auto.leader.rebalance.enable is off.",
            Query(highest(series(f"{CONTROLLER}preferredreplicaimbalancecount")), "partitions"),
            width=8,
        ),
    ],
)


def _handled(kind: str) -> str:
    return total(rate(f"{CONTROLLER_STATS}{kind}rateandtimems_count"))


def _took(kind: str) -> str:
    return highest(series(f"{CONTROLLER_STATS}{kind}rateandtimems", 'quantile="0.99"'))


ELECTIONS = Section(
    "The controller",
    [
        by_broker(
            "Which broker is the controller?",
            "1 at the broker that is. It changes when that broker stops or loses its session, and not "
            "otherwise.",
            series(f"{CONTROLLER}activecontrollercount"),
        ),
        graph(
            "Leaders elected",
            "Elections a second. 0 but for restarts, reassignments and rebalancing; unclean ones lose "
            "records and are never normal.",
            Query(total(rate("minikafka_controller_leader_elections_total")), "elected"),
            Query(total(rate(f"{CONTROLLER_STATS}uncleanleaderelections_total")), "unclean"),
            unit="ops",
            width=8,
        ),
        graph(
            "Events that wait for the controller",
            "Its queue. It goes to 0 within a second, also after a broker with many partitions died.",
            Query(highest(series("kafka_controller_controllereventmanager_eventqueuesize")), "events"),
            thresholds=above(warning=1000),
            width=8,
        ),
        graph(
            "What the controller deals with",
            "Events a second, by kind. Quiet but for restarts, new topics and reassignments.",
            Query(_handled("leaderelection"), "brokers joined or failed"),
            Query(_handled("topicchange"), "topics"),
            Query(_handled("partitionreassignment"), "reassignments"),
            Query(_handled("isrchange"), "ISR changes"),
            unit="ops",
        ),
        graph(
            "How long it takes, p99",
            "Until brokers that joined or failed are handled, which is how long their partitions are "
            "without leaders once the session has expired; until a topic has leaders; until a new "
            "controller is in office. It grows with the number of partitions.",
            Query(_took("leaderelection"), "brokers joined or failed"),
            Query(_took("topicchange"), "topics"),
            Query(_took("controllerchange"), "taking office"),
            unit="ms",
        ),
    ],
)

CLUSTER_DASHBOARD = Dashboard(
    name="cluster",
    title="cluster overview",
    description="Whether the cluster is well, what it carries, and whether its brokers share the load.",
    variables=[],
    sections=[HEALTH, SIZE, LOAD, BALANCE, ELECTIONS],
)
