"""What a scrape says is what is true of the broker, in a text that Prometheus reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as At
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from prometheus_client.parser import text_string_to_metric_families

from minikafka.config.topic import ALL
from minikafka.metrics.names import ALL_SERIES, CONTROLLER_EVENTS, PURGATORY_SIZE
from minikafka.metrics.series import Sample, Series, SeriesType
from minikafka.server.http import coordinator_metrics, metrics
from minikafka.server.http.metrics import CHUNK_SAMPLES, Exposition
from minikafka.server.http.pages import METRICS_CONTENT_TYPE, reasons_not_ready
from minikafka.server.replica.replica_fetchers import FetcherStats, LeaderEndpoint
from minikafka.server.runtime import work_scheduler
from minikafka.server.storage.maintenance import DiskWriter
from minikafka.testing import Broker
from minikafka.types import BrokerId, TopicPartition
from tests.unit.server.http_client import ask

MANY = Series("minikafka_test", SeriesType.GAUGE, ("number",), "Of this test.")
NONE = Series("minikafka_test_none", SeriesType.GAUGE, (), "Never there.")

Scrape = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(config={"http.port": 0, "num.partitions": 2}) as made:
        yield made


async def get(broker: Broker, path: str) -> tuple[int, str]:
    address = broker.server.http_address
    assert address is not None
    answer = await ask(address, path)
    return answer.status, answer.body.decode()


async def scrape(broker: Broker) -> Scrape:
    """The values, by name and labels."""
    status, text = await get(broker, "/metrics")
    assert status == 200
    return parse(text)


def parse(text: str) -> Scrape:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(found: Scrape, name: str, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


async def produce(broker: Broker, topic: str, count: int) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(count):
            await producer.send_and_wait(topic, b"x" * 100, partition=number % 2)


async def test_traffic_is_what_was_produced(broker: Broker) -> None:
    await produce(broker, "orders", 10)
    found = await scrape(broker)
    name = "kafka_server_brokertopicmetrics_messagesin_total"
    assert value(found, name, topic="orders") == value(found, name) == 10
    written = sum(
        value(found, "kafka_log_log_size", topic="orders", partition=partition) for partition in ("0", "1")
    )
    assert value(found, "kafka_server_brokertopicmetrics_bytesin_total", topic="orders") == written
    ends = [
        value(found, "kafka_topic_partition_current_offset", topic="orders", partition=partition)
        for partition in ("0", "1")
    ]
    assert ends == [5, 5]
    assert value(found, "kafka_server_replicamanager_leadercount") == 2
    produced = {
        labels: count
        for (sample, labels), count in found.items()
        if sample == "kafka_network_requestmetrics_requests_total" and ("request", "Produce") in labels
    }
    assert sum(produced.values()) == 10


async def test_requests_have_sizes_and_what_the_controller_did_is_counted(broker: Broker) -> None:
    await produce(broker, "orders", 10)
    found = await scrape(broker)
    size = value(found, "kafka_network_requestmetrics_requestbytes", request="Produce", quantile="0.50")
    assert 100 < size < 1000
    assert value(found, "kafka_network_requestmetrics_requestbytes_count", request="Produce") == 10
    stats = "kafka_controller_controllerstats_"
    for kind in ("controllerchange", "topicchange"):
        assert value(found, f"{stats}{kind}rateandtimems_count") >= 1
        assert value(found, f"{stats}{kind}rateandtimems", quantile="0.50") > 0
    assert value(found, f"{stats}partitionreassignmentrateandtimems_count") == 0
    assert value(found, f"{stats}uncleanleaderelections_total") == 0


class Fetchers:
    """Two fetchers, in place of a broker's own (``ReplicaFetchers``)."""

    failed_partitions: ClassVar = {TopicPartition("bad", 0)}

    def lags(self) -> Iterator[tuple[str, TopicPartition, int]]:
        yield "ReplicaFetcherThread-0-2", TopicPartition("orders", 1), 7
        yield "ReplicaFetcherThread-0-3", TopicPartition("orders", 2), 9

    def stats(self) -> Iterator[FetcherStats]:
        two, three = (LeaderEndpoint(BrokerId(number), f"host-{number}", 9092) for number in (2, 3))
        yield FetcherStats("ReplicaFetcherThread-0-2", two, 5, 0.5, 1_000, is_dead=False)
        yield FetcherStats("ReplicaFetcherThread-0-3", three, 6, 0.25, 2_000, is_dead=True)


async def test_fetchers_are_told_apart_by_name_and_leader(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(broker.server.services.replica_manager, "fetchers", Fetchers())
        _, text = await get(broker, "/metrics")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    found = parse(text)
    two = {"clientId": "ReplicaFetcherThread-0-2", "brokerHost": "host-2", "brokerPort": "9092"}
    assert value(found, "kafka_server_fetcherstats_requests_total", **two) == 5
    assert value(found, "kafka_server_fetcherstats_bytes_total", **two) == 1_000
    assert families["kafka_server_fetcherstats_bytes"].type == "counter"
    of_all = {
        name: value(found, f"kafka_server_replicafetchermanager_{name}", clientId="Replica")
        for name in ("maxlag", "minfetchrate", "deadthreadcount", "failedpartitionscount")
    }
    assert of_all == {"maxlag": 9, "minfetchrate": 0.25, "deadthreadcount": 1, "failedpartitionscount": 1}
    lag = {"clientId": "ReplicaFetcherThread-0-3", "topic": "orders", "partition": "2"}
    assert value(found, "kafka_server_fetcherlagmetrics_consumerlag", **lag) == 9


async def test_what_a_throttle_holds_back_is_counted_by_partition(broker: Broker) -> None:
    await produce(broker, "orders", 2)
    quota = broker.server.services.replication_quotas.leader
    quota.mark_throttled("orders", ALL)
    quota.mark_throttled("elsewhere", ALL)
    for topic, partition in (("orders", 1), ("orders", 1), ("elsewhere", 0)):
        quota.note_held_back(TopicPartition(topic, partition))
    found = await scrape(broker)
    name = "minikafka_replication_held_back_total"
    assert value(found, name, type="LeaderReplication", topic="orders", partition="1") == 2
    assert len([each for each, _ in found if each == name]) == 1, "only of partitions that are here"


async def test_timers_are_summaries(broker: Broker) -> None:
    _, text = await get(broker, "/metrics")
    types = {family.name: family.type for family in text_string_to_metric_families(text)}
    timers = [
        "kafka_log_logflushstats_logflushrateandtimems",
        *(each.name for each in CONTROLLER_EVENTS.values()),
    ]
    assert {types[name] for name in timers} == {"summary"}


async def test_flushes_are_counted_with_their_time(broker: Broker) -> None:
    await produce(broker, "orders", 2)
    services = broker.server.services
    before = services.log_flushes.count
    log = services.replica_manager.partition(TopicPartition("orders", 0)).log
    await DiskWriter(services).flush([log])
    found = await scrape(broker)
    assert value(found, "kafka_log_logflushstats_logflushrateandtimems_count") == before + 1
    assert value(found, "kafka_log_logflushstats_logflushrateandtimems", quantile="0.999") > 0


async def test_a_cleaner_tells_what_it_does(tmp_path: Path) -> None:
    async with Broker(config={"http.port": 0, "log.dirs": str(tmp_path)}) as broker:
        found = await scrape(broker)
    of_cleaner = {
        name: value for (name, _), value in found.items() if name.startswith("kafka_log_logcleaner")
    }
    waited_ms = of_cleaner.pop("kafka_log_logcleanermanager_time_since_last_run_ms")
    assert 0 <= waited_ms < 60_000
    assert of_cleaner == dict.fromkeys(
        (
            "kafka_log_logcleaner_cleaner_recopy_percent",
            "kafka_log_logcleaner_deadthreadcount",
            "kafka_log_logcleaner_max_buffer_utilization_percent",
            "kafka_log_logcleaner_max_clean_time_secs",
            "kafka_log_logcleaner_max_compaction_delay_secs",
            "kafka_log_logcleanermanager_max_dirty_percent",
            "kafka_log_logcleanermanager_uncleanable_bytes",
            "kafka_log_logcleanermanager_uncleanable_partitions_count",
        ),
        0,
    )


async def test_what_groups_have_done_is_counted(broker: Broker) -> None:
    await produce(broker, "orders", 2)
    consumer = AIOKafkaConsumer(
        "orders", bootstrap_servers=broker.bootstrap_servers, group_id="packing", enable_auto_commit=False
    )
    async with consumer:
        while not consumer.assignment():
            await consumer.getmany(timeout_ms=100)
        await consumer.commit({At("orders", 0): 1, At("orders", 1): 1})
    found = await scrape(broker)
    group = "kafka_server_group_coordinator_metrics"
    counts = {
        name.removeprefix(f"{group}_"): count for (name, _), count in found.items() if name.endswith("_count")
    }
    assert counts["offset_commit_count"] == 2
    assert counts["group_completed_rebalance_count"] >= 1
    assert counts["offset_deletion_count"] == counts["consumer_group_rebalance_count"] == 0
    assert value(found, f"{group}_group_count", protocol="share") == 0
    assert value(found, f"{group}_share_group_count", state="stable") == 0
    assert value(found, f"{group}_partition_load_time_max") >= 0


async def test_what_has_no_series_because_there_is_too_much_is_counted(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await produce(broker, "orders", 2)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="packing", enable_auto_commit=False
    )
    async with consumer:
        consumer.assign([At("orders", 0), At("orders", 1)])
        await consumer.commit({At("orders", 0): 1, At("orders", 1): 1})
    partitions = len(broker.server.services.replica_manager.partitions)
    for module, limit in (
        (coordinator_metrics, "GROUPS_MAX"),
        (coordinator_metrics, "GROUP_OFFSETS_MAX"),
        (metrics, "PARTITIONS_MAX"),
        (metrics, "PARTITIONS_MAX"),
    ):
        monkeypatch.setattr(module, limit, 0)
    found = await scrape(broker)
    left_out = {
        dict(labels)["what"]: count
        for (name, labels), count in found.items()
        if name == "minikafka_scrape_left_out"
    }
    assert left_out == {
        "partitions": partitions,
        "fetched partitions": 0,
        "groups": 1,
        "group offsets": 2,
        "share partitions": 0,
        "summaries of share partitions": 0,
    }
    names = {name for name, _ in found}
    assert not names & {"kafka_consumergroup_members", "kafka_log_log_size"}


async def test_a_great_many_groups_are_read_in_turns_and_shown_up_to_a_limit(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3,000 groups with names of 1,000 bytes: those of 2,000 would be 2 MB, so the limit of bytes counts."""
    monkeypatch.setattr(work_scheduler.TimeSlice, "give_way", lambda _: asyncio.sleep(0))  # at each chance
    await produce(broker, "orders", 2)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="packing", enable_auto_commit=False
    )
    async with consumer:
        consumer.assign([At("orders", 0)])
        await consumer.commit({At("orders", 0): 1})
    groups = broker.server.services.groups
    (shard,) = [each.shard for each in groups.hosted_shards() if each.shard.groups()]
    for number in range(3_000):
        shard._classic.make_simple(f"{number:04}" + "x" * 996, 0)
    turns = 0

    def count() -> None:
        nonlocal turns
        turns += 1
        if not asking.done():
            asyncio.get_running_loop().call_soon(count)

    asking = asyncio.create_task(scrape(broker))
    count()
    found = await asking
    assert turns > 3_000
    shown = sum(name == "kafka_consumergroup_members" for name, _ in found)
    assert shown == 1 + coordinator_metrics.LABEL_BYTES_MAX // 1000
    assert value(found, "minikafka_scrape_left_out", what="groups") == 3_001 - shown
    assert value(found, "kafka_coordinator_group_groupmetadatamanager_numgroups") == 3_001
    assert value(found, "minikafka_group_memory_bytes") > 3_000_000


async def test_those_who_ask_while_a_scrape_is_under_way_share_the_next(broker: Broker) -> None:
    await scrape(broker)
    address = broker.server.http_address
    assert address is not None
    answers = await asyncio.gather(*(ask(address, "/metrics") for _ in range(30)))
    assert len({answer.body for answer in answers}) < 10


async def test_what_kafka_exporter_shows_is_there_once(broker: Broker) -> None:
    await produce(broker, "orders", 4)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="packing", enable_auto_commit=False
    )
    async with consumer:
        consumer.assign([At("orders", 0), At("orders", 1)])
        await consumer.commit({At("orders", 0): 1, At("orders", 1): 0})
    found = await scrape(broker)
    node_id = broker.server.services.node_id
    assert value(found, "kafka_brokers") == 1
    address = broker.bootstrap_servers
    assert value(found, "kafka_broker_info", id=str(node_id), address=address) == 1
    assert value(found, "kafka_topic_partitions", topic="orders") == 2
    for name, expected in {
        "current_offset": 2,
        "oldest_offset": 0,
        "leader": node_id,
        "replicas": 1,
        "in_sync_replica": 1,
        "leader_is_preferred": 1,
        "under_replicated_partition": 0,
    }.items():
        assert value(found, f"kafka_topic_partition_{name}", topic="orders", partition="0") == expected
    for partition, lag in (("0", 1), ("1", 2)):
        labels = {"consumergroup": "packing", "topic": "orders", "partition": partition}
        assert value(found, "kafka_consumergroup_lag", **labels) == lag
        assert value(found, "kafka_consumergroup_current_offset", **labels) == 2 - lag
    of_topic = {"consumergroup": "packing", "topic": "orders"}
    assert value(found, "kafka_consumergroup_lag_sum", **of_topic) == 3
    assert value(found, "kafka_consumergroup_current_offset_sum", **of_topic) == 1
    assert value(found, "kafka_consumergroup_members", consumergroup="packing") == 0


async def test_the_process_says_what_it_reads_and_writes_and_the_disks_what_is_left(broker: Broker) -> None:
    found = await scrape(broker)
    directory = broker.server.services.log_manager.directories.configured[0]
    total = value(found, "minikafka_log_directory_total_bytes", logDirectory=directory)
    assert 0 < value(found, "minikafka_log_directory_free_bytes", logDirectory=directory) <= total
    for kind in ("read", "write"):
        assert value(found, f"kafka_server_kafkaserver_linux_disk_{kind}_bytes") >= 0


async def test_a_topic_that_is_deleted_takes_its_series_along(broker: Broker) -> None:
    before = len(await scrape(broker))
    for number in range(3):
        await produce(broker, f"topic-{number}", 2)
    grown = await scrape(broker)
    services = broker.server.services
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    await admin.delete_topics([f"topic-{number}" for number in range(3)])
    await admin.close()
    assert await services.metadata.wait_for(lambda: not services.metadata.topics(), timeout_ms=60_000)
    after = await scrape(broker)
    assert not [labels for _, labels in after if any(name == "topic" for name, _ in labels)]
    assert value(after, "kafka_server_brokertopicmetrics_messagesin_total") == 6
    of_others = [key for key in after if any(name in ("request", "client_id") for name, _ in key[1])]
    assert len(after) - len(of_others) <= before
    assert len(grown) > len(after)


async def test_the_content_type_is_prometheus_own(broker: Broker) -> None:
    address = broker.server.http_address
    assert address is not None
    assert (await ask(address, "/metrics")).headers["content-type"] == METRICS_CONTENT_TYPE


async def test_every_series_that_is_shown_is_in_the_list_with_its_labels(broker: Broker) -> None:
    await produce(broker, "orders", 2)
    known = {series.sample: series for series in ALL_SERIES}
    for name, labels in await scrape(broker):
        if not name.startswith(("kafka_", "minikafka_")):
            continue
        series = known.get(name) or known[name.removesuffix("_count")]
        assert {label for label, _ in labels} <= set(series.labels), name


async def test_a_broker_is_healthy_and_ready(broker: Broker) -> None:
    assert await get(broker, "/healthz") == (200, "ok\n")
    assert await get(broker, "/readyz") == (200, "ready\n")


async def test_a_broker_that_lacks_something_is_not_ready_and_says_what(broker: Broker) -> None:
    services = broker.server.services
    services.metadata_received.clear()
    services.broker_epoch = -1
    services.log_manager.directories.offline["/disk"] = "it is gone"
    status, text = await get(broker, "/readyz")
    assert (status, text.splitlines()) == (503, reasons_not_ready(services))
    assert reasons_not_ready(services) == [
        "the broker is not registered in the cluster",
        "no controller has said what to lead and follow",
        "the log directory /disk is offline: it is gone",
    ]
    services.metadata_received.set()
    assert value(await scrape(broker), "kafka_log_logmanager_offlinelogdirectorycount") == 1


async def test_without_a_port_there_is_no_server() -> None:
    async with Broker() as broker:
        assert broker.server.http_address is None


def test_a_large_family_comes_in_pieces_and_has_one_head() -> None:
    count = 3 * CHUNK_SAMPLES + 1
    sources = [lambda: (Sample(MANY, number, (str(number),)) for number in range(count))]
    texts = list(Exposition(sources, lambda: 0).texts())
    text = b"".join(texts).decode()
    assert text.count("# TYPE minikafka_test gauge") == 1
    lines = [line for line in text.splitlines() if line.startswith("minikafka_test{")]
    assert len(lines) == count
    assert max(piece.count(b"minikafka_test{") for piece in texts) == CHUNK_SAMPLES
    assert value(parse(text), "minikafka_test", number="750") == 750


def test_label_values_of_any_kind_survive() -> None:
    odd = 'a"b\\c\nd é'
    text = b"".join(Exposition([lambda: iter([Sample(MANY, 1, (odd,))])], lambda: 0).texts()).decode()
    assert value(parse(text), "minikafka_test", number=odd) == 1


def test_a_source_that_has_nothing_shows_nothing() -> None:
    text = b"".join(Exposition([lambda: iter([])], lambda: 0).texts()).decode()
    assert NONE.name not in text


def test_sources_may_be_added_while_the_page_is_served() -> None:
    sources = [lambda: iter([Sample(MANY, 1, ("one",))])]
    exposition = Exposition(sources, lambda: 0)
    list(exposition.texts())
    sources.append(lambda: iter([Sample(PURGATORY_SIZE, 7, ("Fetch",))]))
    text = b"".join(exposition.texts()).decode()
    assert value(parse(text), PURGATORY_SIZE.name, delayedOperation="Fetch") == 7


async def test_logins_and_decisions_are_counted_by_listener(broker: Broker) -> None:
    before = await scrape(broker)
    of_listener = {"listener": "PLAINTEXT", "networkProcessor": "0"}
    name = "kafka_server_socket_server_metrics_"
    assert value(before, f"{name}failed_authentication_total", **of_listener) == 0
    metrics = broker.server.services.security_metrics
    counts, authorizer = metrics.of("PLAINTEXT"), metrics.authorizer
    counts.successful, counts.failed, counts.no_reauth = 5, 3, 1
    counts.successful_reauthentication, counts.failed_reauthentication = 4, 2
    counts.expired_killed = 6
    authorizer.allowed, authorizer.denied = 10, 2
    found = await scrape(broker)
    shown = {
        each: value(found, f"{name}{each}", **of_listener)
        for each in (
            "successful_authentication_total",
            "failed_authentication_total",
            "successful_authentication_no_reauth_total",
            "successful_reauthentication_total",
            "failed_reauthentication_total",
            "expired_connections_killed_count",
        )
    }
    assert list(shown.values()) == [5, 3, 1, 4, 2, 6]
    assert value(found, "kafka_network_socketserver_expiredconnectionskilledcount") == 6
    assert value(found, "minikafka_tls_handshakes_failed_total", listener="PLAINTEXT") == 0
    plugins = "kafka_server_plugins_authorization_"
    assert [value(found, f"{plugins}{each}_total") for each in ("request", "allowed", "denied")] == [
        12,
        10,
        2,
    ]
    assert value(found, "kafka_server_plugins_acls_total_count") == 0


async def test_what_clients_do_is_what_a_scrape_counts() -> None:
    users = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a-secret";'
    config = {
        "http.port": 0,
        "listeners": "SAFE://127.0.0.1:0,OPEN://127.0.0.1:0",
        "listener.security.protocol.map": "SAFE:SASL_PLAINTEXT,OPEN:PLAINTEXT",
        "inter.broker.listener.name": "OPEN",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.safe.plain.sasl.jaas.config": users,
        "connection.failed.authentication.delay.ms": 1,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    }
    async with Broker(config=config) as broker:
        port = next(each.port for each in broker.server.bound if each.name == "SAFE")
        login: dict[str, Any] = {
            "bootstrap_servers": f"127.0.0.1:{port}",
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "alice",
        }
        wrong = AIOKafkaProducer(**login, sasl_plain_password="guessed")
        with pytest.raises(KafkaError):
            await wrong.start()
        await wrong.stop()
        async with AIOKafkaProducer(**login, sasl_plain_password="a-secret") as producer:
            with pytest.raises(KafkaError):
                await producer.send_and_wait("orders", b"x")
        found = await scrape(broker)
        of_listener = {"listener": "SAFE", "networkProcessor": "0"}
        name = "kafka_server_socket_server_metrics_"
        assert value(found, f"{name}failed_authentication_total", **of_listener) >= 1
        assert value(found, f"{name}successful_authentication_total", **of_listener) >= 1
        plugins = "kafka_server_plugins_authorization_"
        denied = value(found, f"{plugins}denied_total")
        assert denied >= 1
        assert value(found, f"{plugins}request_total") == denied + value(found, f"{plugins}allowed_total")


async def test_new_connections_are_counted_by_listener(broker: Broker) -> None:
    await produce(broker, "orders", 1)
    found = await scrape(broker)
    created = "kafka_server_socket_server_metrics_connection_creation_total"
    assert value(found, created, listener="PLAINTEXT", networkProcessor="0") >= 1
    limits = broker.server.socket_server.limits
    limits.max_connections = 0
    reader, writer = await asyncio.open_connection("localhost", broker.port)
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
    found = await scrape(broker)
    assert value(found, "minikafka_connections_refused_total", listener="PLAINTEXT") == 1
    assert value(found, "minikafka_connection_throttles_total", listener="PLAINTEXT", by="ip") == 0
