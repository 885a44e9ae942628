"""A real Prometheus watches a real cluster: every panel of every dashboard has something to show, and every
alert fires on the fault that it is for."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from grafana.generator.dashboards import DASHBOARDS
from grafana.generator.rules import ALERTS, GROUP_LAG_MIN
from tests.integration.conftest import StartCluster
from tests.integration.support import confluent
from tests.integration.support.cluster import ProcessCluster
from tests.integration.support.dashboards import PanelQuery, panel_queries
from tests.integration.support.prometheus import SCRAPE_INTERVAL_S, PrometheusServer
from tests.integration.support.records import Record
from tests.integration.support.sharing import ShareGroup
from tests.integration.support.spread_load import SpreadLoad
from tests.support.ports import free_port

pytestmark = [
    pytest.mark.minikafka_only,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not there"),
    pytest.mark.parametrize("engine", ["sqlite"], indirect=True),
]

BOARDS_OF_BROKERS = {board.name for board in DASHBOARDS} - {"spark", "security"}
"""What is secured is in test_grafana_security."""
SECURITY_ALERTS = {"MinikafkaFailedLogins", "MinikafkaDenials"}

ORDERS, ORDERS_PARTITIONS = "orders", 6
ORDERS_A_SECOND = 60
"""Ten for each partition, with a scrape a second: each series has moved at every scrape."""
MOVED, MOVED_BYTES = "moved", 20_000_000
GREEDY = "greedy"
ALONE = "alone"
"""One replica, on the broker that is going to die."""
STRICT = "strict"
"""All three replicas must be in sync."""
SESSION_TIMEOUT_MS = 15_000
"""A session that ends because the machine is busy would be one fault more than the story has."""


@pytest.fixture
def watched(start_cluster: StartCluster, tmp_path: Path) -> Iterator[tuple[ProcessCluster, PrometheusServer]]:
    """Three brokers, and a Prometheus that has scraped each of them."""
    ports = {node_id: free_port() for node_id in (1, 2, 3)}
    cluster = start_cluster(
        properties={
            "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
            # Every scrape, one a second, has some series of each partition: 300 replicas else.
            "offsets.topic.num.partitions": 3,
            "transaction.state.log.num.partitions": 3,
            "share.coordinator.state.topic.num.partitions": 3,
        },
        own_properties={node_id: {"http.port": port} for node_id, port in ports.items()},
    )
    prometheus = PrometheusServer(tmp_path / "prometheus", [f"127.0.0.1:{port}" for port in ports.values()])
    try:
        prometheus.start()
        confluent.wait_until(
            lambda: prometheus.scrapes() >= 3, "each broker is scraped again and again", pause_s=0.2
        )
        yield cluster, prometheus
    finally:
        prometheus.close()


def make_topic(cluster: ProcessCluster, topic: str, replicas: list[int], **config: str) -> None:
    client = confluent.admin(cluster.bootstrap)
    wanted = NewTopic(topic, 1, replica_assignment=[replicas], config=config)
    client.create_topics([wanted])[topic].result(confluent.DEADLINE_S)
    cluster.wait_until_moved(topic, *replicas)


def minikafka(cluster: ProcessCluster, *arguments: str) -> None:
    """Run the command; it must succeed."""
    command = [sys.executable, "-m", "minikafka.cli.main", *arguments]
    done = subprocess.run(
        [*command, "--bootstrap-server", cluster.bootstrap], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def move(
    cluster: ProcessCluster, plan: Path, target: int, *, throttle: str, additional: bool = False
) -> None:
    """Reassign the topic MOVED, and do not wait for it. ``throttle``: bytes a second."""
    partitions = [{"topic": MOVED, "partition": 0, "replicas": [target]}]
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
    options = ["--reassignment-json-file", str(plan), "--no-wait", "--throttle", throttle]
    minikafka(cluster, "reassign", "execute", *options, *(["--additional"] if additional else []))


def throttle_all(cluster: ProcessCluster, topic: str) -> None:
    """Its followers are in sync, so nothing holds them back; but they keep their leaders' quotas exceeded."""
    replicas = ConfigEntry(
        "leader.replication.throttled.replicas", "*", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[replicas])
    client = confluent.admin(cluster.bootstrap)  # which must outlive its answers
    client.incremental_alter_configs([resource])[resource].result(confluent.DEADLINE_S)


def damage(segment: Path) -> None:
    """Flip bits near the end: who copies the log finds out, and gets no further."""
    with open(segment, "r+b") as file:
        file.seek(-segment.stat().st_size // 4, os.SEEK_END)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 0xFF]))


@contextmanager
def reading(cluster: ProcessCluster) -> Iterator[None]:
    """A consumer group with one member reads ORDERS and commits twice a second."""
    consumer = confluent.make_consumer(
        cluster.bootstrap,
        group_id="packing",
        auto_offset_reset="earliest",
        enable_auto_commit=True,
        auto_commit_interval_ms=500,
    )
    consumer.subscribe([ORDERS])
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            consumer.consume(1_000, timeout=0.2)

    thread = threading.Thread(target=read, name="reader")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        consumer.close()


class NearlyFullDisk:
    """Something to scrape that says what a broker says whose disk is nearly full: a real one cannot be filled
    here."""

    TEXT = (
        b'minikafka_log_directory_free_bytes{logDirectory="/full"} 9e9\n'
        b'minikafka_log_directory_total_bytes{logDirectory="/full"} 1e11\n'
    )

    def __init__(self) -> None:
        text = self.TEXT

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *arguments: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="nearly-full-disk")

    def __enter__(self) -> NearlyFullDisk:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def fall_behind(cluster: ProcessCluster) -> None:
    """A group that has read nothing of ORDERS, and never will. It is as far behind as the alert asks for, and
    the load goes on."""
    values = (Record(None, b"%d" % number) for number in range(GROUP_LAG_MIN))
    confluent.write(cluster.bootstrap, ORDERS, values)
    consumer = confluent.make_consumer(cluster.bootstrap, group_id="asleep", enable_auto_commit=False)
    partitions = [TopicPartition(ORDERS, number, 0) for number in range(ORDERS_PARTITIONS)]
    consumer.commit(offsets=partitions, asynchronous=False)
    consumer.close()


@contextmanager
def paying(cluster: ProcessCluster) -> Iterator[None]:
    """A producer writes to ORDERS, one transaction after the other."""
    producer = confluent.make_producer(cluster.bootstrap, transactional_id="payments")
    stop = threading.Event()

    def pay() -> None:
        producer.init_transactions(confluent.DEADLINE_S)
        while not stop.wait(0.1):
            producer.begin_transaction()
            producer.produce(ORDERS, b"paid")
            producer.commit_transaction(confluent.DEADLINE_S)

    thread = threading.Thread(target=pay, name="payments")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def set_quotas(cluster: ProcessCluster, entity: str, **quotas: str) -> None:
    settings = [f"--set={name}={value}" for name, value in quotas.items()]
    minikafka(cluster, "quotas", "alter", entity, *settings)


@contextmanager
def wanting_too_much(cluster: ProcessCluster) -> Iterator[None]:
    """A client that writes and reads as fast as it can, and has a quota for both; others have quotas that
    they never reach."""
    set_quotas(
        cluster,
        "client-id",
        consumer_byte_rate="1GB",
        request_percentage="500",
        controller_mutation_rate="100",
    )
    set_quotas(cluster, "client-id=greedy", producer_byte_rate="50kB", consumer_byte_rate="50kB")
    make_topic(cluster, GREEDY, [1, 2, 3])
    # Small requests, so that each throttle is short: the alert looks at how often there are some.
    producer = confluent.make_producer(
        cluster.bootstrap, client_id="greedy", batch_size=20_000, max_in_flight=1
    )
    consumer = confluent.make_consumer(cluster.bootstrap, client_id="greedy", fetch_message_max_bytes=20_000)
    consumer.assign([TopicPartition(GREEDY, 0)])
    stop = threading.Event()

    def want() -> None:
        while not stop.is_set():
            with contextlib.suppress(BufferError):
                producer.produce(GREEDY, bytes(10_000))
            producer.poll(0.01)
            consumer.poll(0)

    thread = threading.Thread(target=want, name="greedy")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        producer.purge()
        producer.flush(30)
        consumer.close()


@contextmanager
def at_work(cluster: ProcessCluster, plan: Path) -> Iterator[None]:
    """Producers, a group, transactions, and a partition that moves from broker 1 to broker 2, slower than it
    could."""
    confluent.make_topic(cluster.bootstrap, ORDERS, partitions=ORDERS_PARTITIONS, replicas=3)
    make_topic(cluster, MOVED, [1], **{"min.insync.replicas": "1"})
    size = 10_000
    values = (Record(None, bytes(size)) for _ in range(MOVED_BYTES // size))
    confluent.write(cluster.bootstrap, MOVED, values)
    move(cluster, plan, 2, throttle="200KB")
    load = SpreadLoad(
        cluster.bootstrap, ORDERS, partitions=ORDERS_PARTITIONS, records_a_second=ORDERS_A_SECOND
    )
    with load, reading(cluster), paying(cluster):
        yield


def report(found: dict[PanelQuery, int]) -> str:
    """A line for each query."""
    lines = [f"\n{len(found)} queries of panels"]
    for query, count in found.items():
        lines.append(f"{query.dashboard:38} {query.panel:40} {count:4} series  {query.expression}")
    return "\n".join(lines)


EXPORTER_QUERIES = {
    "sum(kafka_topic_partitions{topic='orders'})": ORDERS_PARTITIONS,
    "sum by (topic) (kafka_topic_partitions{topic='orders'})": ORDERS_PARTITIONS,
    "sum(kafka_topic_partition_replicas{topic='orders'})": 3 * ORDERS_PARTITIONS,
    "sum(kafka_topic_partition_in_sync_replica{topic='orders'})": 3 * ORDERS_PARTITIONS,
    "sum(kafka_topic_partition_under_replicated_partition{topic='orders'})": 0,
    "min(kafka_topic_partition_in_sync_replica{topic='orders'})": 3,
    "count(kafka_topic_partition_leader{topic='orders'} >= 0)": ORDERS_PARTITIONS,
    "count(kafka_topic_partition_leader_is_preferred{topic='orders'})": ORDERS_PARTITIONS,
    "sum(kafka_brokers)": 3,
    "count(kafka_broker_info)": 3,
    "count(sum(kafka_consumergroup_lag) by (consumergroup, topic))": None,
    "count(kafka_consumergroup_lag{consumergroup='packing'})": ORDERS_PARTITIONS,
    "max(count by (consumergroup, topic, partition) (kafka_consumergroup_lag))": 1,
    "count(kafka_consumergroup_lag_sum{consumergroup='packing'})": 1,
    "sum(kafka_consumergroup_current_offset_sum{consumergroup='packing'}) > 0": None,
    "sum(kafka_consumergroup_members{consumergroup='packing'})": 1,
    "sum(rate(kafka_topic_partition_current_offset{topic!='__consumer_offsets'}[1m])) by (topic) > 0": None,
    "sum(delta(kafka_topic_partition_current_offset{topic='orders'}[1m])) by (topic) > 0": None,
    "sum(rate(kafka_consumergroup_current_offset{topic='orders'}[1m])) by (consumergroup, topic) > 0": None,
    "count(kafka_topic_partition_oldest_offset{topic='orders'})": ORDERS_PARTITIONS,
}
"""What dashboards for ``kafka_exporter`` ask (its own, Grafana's 7589, Strimzi's), with what must come of it
where that is known: with three brokers each series must be there once, or sums are wrong."""


def test_dashboards_for_kafka_exporter_work(
    watched: tuple[ProcessCluster, PrometheusServer], tmp_path: Path
) -> None:
    cluster, prometheus = watched

    def answers() -> dict[str, float | None]:
        found = {}
        for query in EXPORTER_QUERIES:
            result = prometheus.ask("query", query=query)["result"]
            found[query] = float(result[0]["value"][1]) if result else None
        return found

    def all_right() -> bool:
        found = answers()
        return all(
            found[query] is not None and expected in (None, found[query])
            for query, expected in EXPORTER_QUERIES.items()
        )

    confluent.make_topic(cluster.bootstrap, ORDERS, partitions=ORDERS_PARTITIONS, replicas=3)
    load = SpreadLoad(
        cluster.bootstrap, ORDERS, partitions=ORDERS_PARTITIONS, records_a_second=ORDERS_A_SECOND
    )
    with load, reading(cluster):
        try:
            confluent.wait_until(
                all_right, "every query has its answer", deadline_s=120, pause_s=SCRAPE_INTERVAL_S
            )
        finally:
            print(answers())


def test_every_query_of_every_dashboard_finds_something(
    watched: tuple[ProcessCluster, PrometheusServer], tmp_path: Path
) -> None:
    cluster, prometheus = watched
    found: dict[PanelQuery, int] = {}

    def all_have_data() -> bool:
        found.update({query: query.series(prometheus) for query in queries if not found.get(query)})
        return all(found.values())

    with (
        at_work(cluster, tmp_path / "plan.json"),
        wanting_too_much(cluster),
        closing(ShareGroup(cluster.bootstrap, "sharing", ORDERS, members=1)),
    ):
        committed = "kafka_consumergroup_current_offset"
        confluent.wait_until(lambda: prometheus.label_values(committed, "consumergroup"), "the group commits")
        queries = panel_queries(prometheus, BOARDS_OF_BROKERS)
        try:
            confluent.wait_until(
                all_have_data, "every query has data", deadline_s=180, pause_s=SCRAPE_INTERVAL_S
            )
        finally:
            print(report(found))
        meant = {"MinikafkaSustainedThrottling"}  # of the greedy client, where the search above takes long
        assert prometheus.firing() <= meant, "a cluster at work is no reason to wake anybody"


@pytest.mark.leaves_damage("a leader's batch, at which a follower gives up")
def test_every_alert_fires_on_its_fault(
    watched: tuple[ProcessCluster, PrometheusServer], tmp_path: Path
) -> None:
    cluster, prometheus = watched
    controller = cluster.controller
    victim = next(node_id for node_id in cluster.brokers if node_id != controller)
    make_topic(cluster, ALONE, [victim], **{"min.insync.replicas": "1"})
    make_topic(cluster, STRICT, [1, 2, 3], **{"min.insync.replicas": "3"})
    fired: list[str] = []

    def fires(*alerts: str) -> None:
        try:
            confluent.wait_until(
                lambda: {*alerts} <= prometheus.firing(),
                f"{alerts} fire",
                deadline_s=120,
                pause_s=SCRAPE_INTERVAL_S,
            )
        finally:
            print(f"awaited {alerts}, firing {prometheus.firing()}")
        fired.extend(alerts)

    with at_work(cluster, tmp_path / "plan.json"):
        throttle_all(cluster, ORDERS)
        move(cluster, tmp_path / "plan.json", 2, throttle="1", additional=True)
        fires("MinikafkaThrottledToAStandstill")
        assert prometheus.firing() == {*fired}, "who is throttled is not stuck"
        fall_behind(cluster)
        damage(cluster.brokers[1].files(MOVED, ".log")[-1])
        move(cluster, tmp_path / "plan.json", 2, throttle="100MB", additional=True)
        with wanting_too_much(cluster):
            fires("MinikafkaStuckFetcher", "MinikafkaSustainedThrottling", "MinikafkaGroupLag")
    assert prometheus.firing() <= {*fired}
    cluster.brokers[victim].kill()
    fires(
        "MinikafkaBrokerDown",
        "MinikafkaOfflinePartitions",
        "MinikafkaUnderMinIsr",
        "MinikafkaUnderReplicated",
    )
    assert prometheus.firing() <= {*fired}
    cluster.engine.pause()  # so that no broker can become the next controller
    cluster.brokers[controller].kill()
    fires("MinikafkaNoController")
    with NearlyFullDisk() as disk:
        prometheus.watch(disk.address)
        fires("MinikafkaDiskSpace")
    assert {*fired} == {alert.name for alert in ALERTS} - SECURITY_ALERTS
