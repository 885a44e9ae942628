"""Prometheus' page while stock clients work: what it says is what they did."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as At
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.conftest import StartBroker, StartCluster
from tests.integration.support.process import BrokerProcess
from tests.support.ports import free_port

pytestmark = pytest.mark.minikafka_only

Scrape = dict[tuple[str, frozenset[tuple[str, str]]], float]

PROMISED_OTHERWISE = (
    "label names should be written in 'snake_case' not 'camelCase'",
    'non-histogram and non-summary metrics should not have "_count" suffix',
    "metric names should not contain abbreviated units",
)
"""What promtool says of names and labels that are Kafka's."""


def url(broker: BrokerProcess, path: str = "/metrics") -> str:
    return f"http://127.0.0.1:{broker.properties['http.port']}{path}"


def page(broker: BrokerProcess, path: str = "/metrics") -> str:
    with urllib.request.urlopen(url(broker, path), timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def scrape(broker: BrokerProcess) -> Scrape:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page(broker))
        for sample in family.samples
    }


def value(found: Scrape, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


def until(look: Callable[[], bool], what: str, deadline_s: float = 90) -> None:
    """Each look is a scrape, which is pace enough."""
    deadline = time.monotonic() + deadline_s
    while not look():
        assert time.monotonic() < deadline, f"never happened: {what}"


def produce(bootstrap: str, topic: str, count: int, **settings: object) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for number in range(count):
        producer.produce(topic, b"x" * 100, partition=number % 2)
        producer.poll(0)
    assert producer.flush(90) == 0


def test_a_scrape_under_load_is_whole_and_says_what_was_done(start_broker: StartBroker) -> None:
    broker = start_broker(properties={"http.port": free_port(), "num.partitions": 2})
    done = threading.Event()
    texts: list[str] = []

    def keep_scraping() -> None:
        while not done.is_set():
            texts.append(page(broker))

    scraper = threading.Thread(target=keep_scraping)
    scraper.start()
    try:
        produce(broker.bootstrap, "load", 20_000, **{"linger.ms": 2})
    finally:
        done.set()
        scraper.join()
    counts = []
    for text in texts:
        families = {family.name: family for family in text_string_to_metric_families(text)}
        (count,) = [
            each.value
            for each in families["kafka_server_brokertopicmetrics_messagesin"].samples
            if not each.labels
        ]
        counts.append(count)
    assert counts == sorted(counts), "a counter fell"
    found = scrape(broker)
    for labels in ({}, {"topic": "load"}):
        assert value(found, "kafka_server_brokertopicmetrics_messagesin_total", **labels) == 20_000
    on_disk = sum(path.stat().st_size for path in broker.data_dir.glob("load-*/*.log"))
    assert value(found, "kafka_server_brokertopicmetrics_bytesin_total", topic="load") == on_disk
    ends = [value(found, "kafka_log_log_logendoffset", topic="load", partition=each) for each in "01"]
    assert ends == [10_000, 10_000]
    assert value(found, "kafka_network_requestmetrics_totaltimems", request="Produce", quantile="0.99") > 0
    assert value(found, "kafka_network_requestmetrics_totaltimems_count", request="Produce") == sum(
        count
        for (name, labels), count in found.items()
        if name == "kafka_network_requestmetrics_requests_total" and ("request", "Produce") in labels
    )


def test_what_consumers_get_and_commit_is_there(start_broker: StartBroker) -> None:
    broker = start_broker(properties={"http.port": free_port(), "num.partitions": 2})
    produce(broker.bootstrap, "read", 1_000)
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | {"fetch.wait.max.ms": 20_000, "fetch.min.bytes": 1 << 20})

    def is_parked() -> bool:
        consumer.poll(0)
        name = "kafka_server_delayedoperationpurgatory_numdelayedoperations"
        return value(scrape(broker), name, delayedOperation="Fetch") == 1

    try:
        consumer.assign([At("read", 0), At("read", 1)])
        until(is_parked, "a fetch that waits for more bytes than there are")
    finally:
        consumer.close()
    consumer = Consumer(settings)
    try:
        consumer.assign([At("read", 0), At("read", 1)])
        taken = 0
        while taken < 1_000:
            taken += len(consumer.consume(1_000, timeout=1))
        consumer.commit(offsets=[At("read", 0, 400), At("read", 1, 500)], asynchronous=False)
        found = scrape(broker)
    finally:
        consumer.close()
    assert value(found, "kafka_server_brokertopicmetrics_bytesout_total", topic="read") >= value(
        found, "kafka_server_brokertopicmetrics_bytesin_total", topic="read"
    )
    lag = {
        partition: value(found, "kafka_topic_partition_current_offset", topic="read", partition=partition)
        - value(
            found,
            "kafka_consumergroup_current_offset",
            consumergroup="readers",
            topic="read",
            partition=partition,
        )
        for partition in "01"
    }
    assert lag == {"0": 100, "1": 0}
    assert value(found, "kafka_coordinator_group_groupmetadatamanager_numgroups") == 1
    assert value(found, "kafka_coordinator_group_groupmetadatamanager_numoffsets") == 2


def test_refused_requests_are_counted_with_their_errors(start_broker: StartBroker) -> None:
    broker = start_broker(properties={"http.port": free_port(), "auto.create.topics.enable": False})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("once", 1, 1)])["once"].result(60)
    again = admin.create_topics([NewTopic("once", 1, 1)])["once"]
    assert again.exception(60) is not None
    found = scrape(broker)
    name = "kafka_network_requestmetrics_errors_total"
    assert value(found, name, request="CreateTopics", error="TOPIC_ALREADY_EXISTS") == 1


def test_topics_that_come_and_go_leave_no_series(start_broker: StartBroker) -> None:
    broker = start_broker(properties={"http.port": free_port()})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    names = [f"passing-{number}" for number in range(20)]

    def by_topic() -> int:
        return sum(any(name == "topic" for name, _ in labels) for _, labels in scrape(broker))

    for future in admin.create_topics([NewTopic(name, 3, 1) for name in names]).values():
        future.result(30)
    for name in names:
        produce(broker.bootstrap, name, 2)
    kafkas, kafka_exporters = 8 + 3 * 9, 1 + 3 * 7
    assert by_topic() == len(names) * (kafkas + kafka_exporters)
    for future in admin.delete_topics(names).values():
        future.result(30)
    until(lambda: by_topic() == 0, "all series of the topics are gone")
    assert value(scrape(broker), "kafka_server_brokertopicmetrics_messagesin_total") == 40


def test_promtool_takes_the_page(start_broker: StartBroker) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool (Debian's package prometheus) is not there")
    broker = start_broker(properties={"http.port": free_port()})
    produce(broker.bootstrap, "checked", 1)
    done = subprocess.run(
        [promtool, "check", "metrics"], input=page(broker), capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 3), done.stderr  # 3: it would have called some of them otherwise
    remarks = [line for line in (done.stdout + done.stderr).splitlines() if line]
    assert [line for line in remarks if not line.endswith(PROMISED_OTHERWISE)] == []


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_broker_that_dies_leaves_partitions_under_replicated(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    cluster.make_topic("kept", **{"min.insync.replicas": 2})
    ports = {node_id: int(str(broker.properties["http.port"])) for node_id, broker in cluster.brokers.items()}
    assert len(set(ports.values())) == len(ports)
    controllers = [
        value(scrape(broker), "kafka_controller_kafkacontroller_activecontrollercount")
        for broker in cluster.brokers.values()
    ]
    assert sorted(controllers) == [0, 0, 1]
    leader = cluster.leader("kept")
    victim = next(node for node in cluster.brokers if node not in (leader, cluster.controller))
    led = cluster.brokers[leader]

    def under_replicated() -> float:
        return value(scrape(led), "kafka_cluster_partition_underreplicated", topic="kept", partition="0")

    cluster.wait_until_whole("kept")
    until(lambda: under_replicated() == 0, "the partition is whole")
    cluster.brokers[victim].kill()
    until(lambda: under_replicated() == 1, "the partition lacks a replica")
    found = scrape(led)
    assert value(found, "kafka_server_replicamanager_underreplicatedpartitions") >= 1
    assert value(found, "kafka_cluster_partition_insyncreplicascount", topic="kept", partition="0") == 2
    assert value(found, "kafka_cluster_partition_replicascount", topic="kept", partition="0") == 3
    assert value(found, "kafka_cluster_partition_atminisr", topic="kept", partition="0") == 1
    of_controller = scrape(cluster.brokers[cluster.controller])
    elections = "kafka_controller_controllerstats_leaderelectionrateandtimems"
    assert value(of_controller, f"{elections}_count") >= 1
    assert value(of_controller, elections, quantile="0.99") > 0
    cluster.brokers[victim].start()
    until(lambda: under_replicated() == 0, "the replica is back")
    until(
        lambda: value(scrape(led), "kafka_server_replicamanager_isrexpands_total") >= 1, "the ISR has grown"
    )
    until(lambda: is_ready(cluster.brokers[victim]), "the broker is ready again")
    port = cluster.brokers[leader].bootstrap.rpartition(":")[2]
    fetcher = {
        "clientId": f"ReplicaFetcherThread-0-{leader}",
        "brokerHost": "localhost",
        "brokerPort": port,
    }
    asked = ("kafka_server_fetcherstats_requests_total", frozenset(fetcher.items()))
    until(lambda: scrape(cluster.brokers[victim]).get(asked, 0) >= 1, "it fetches from the leader")


def is_ready(broker: BrokerProcess) -> bool:
    try:
        return page(broker, "/readyz") == "ready\n"
    except urllib.error.HTTPError as error:
        assert error.code == 503
        return False
