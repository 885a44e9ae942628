"""The status page in a real browser: it shows what is true, follows what changes, and trusts no name."""

from __future__ import annotations

import asyncio
import json
import shutil
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import aiokafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import ShareConsumer

from minikafka.config.client_quotas import QuotaEntity, QuotaType
from minikafka.flight_recorder import LogDirectoryFailed
from minikafka.network.socket_server import SocketServer
from minikafka.protocol.records.records import Record as Written
from minikafka.protocol.records.records import build_batch
from minikafka.server.cluster.metadata_cache import PartitionMetadata, TopicMetadata
from minikafka.server.http import status
from minikafka.server.http.status import Status, describe
from minikafka.server.services import Services
from minikafka.testing import Broker
from minikafka.types import BrokerId, LeaderEpoch, TopicPartition
from tests.integration.conftest import StartBroker, StartCluster
from tests.integration.support import confluent
from tests.integration.support.chromium import ELSEWHERE, ShownPage, distinct_lines, show
from tests.integration.support.records import Record
from tests.support.ports import free_port
from tests.support.streams import join_streams_group

pytestmark = [
    pytest.mark.minikafka_only,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not there"),
]

CONFIG = {
    "http.port": 0,
    "offsets.topic.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "group.share.heartbeat.interval.ms": 500,
    "group.share.min.heartbeat.interval.ms": 500,
    "group.streams.initial.rebalance.delay.ms": 0,
}
BROKER = "#/broker"
"""Where a broker shows what it says of itself, when it has a console; without one that is all there is."""
HOSTILE = '<img src=x onerror="document.title=1">&amp;'


@pytest.fixture
async def broker_here() -> AsyncIterator[Broker]:
    """On the test's own loop, so that the test decides what the page is told."""
    async with Broker(config=CONFIG) as made:
        yield made


def url_of(broker: Broker) -> str:
    address = broker.server.http_address
    assert address is not None
    return f"http://{address.host}:{address.port}/"


async def produce(broker: Broker, count: int) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, client_id=HOSTILE) as producer:
        for _ in range(count):
            await producer.send_and_wait("orders", b"record")


async def commit(bootstrap: str, group_id: str, topic: str, offset: int) -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group_id, enable_auto_commit=False)
    async with consumer:
        at = aiokafka.TopicPartition(topic, 0)
        consumer.assign([at])
        await consumer.commit({at: offset})


async def test_a_topic_a_group_and_its_lag_are_shown_and_change_with_more_records(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    port = free_port()
    broker = await asyncio.to_thread(start_broker, properties={"http.port": port})
    url = f"http://127.0.0.1:{port}/"
    write = [Record(None, b"record")]
    await asyncio.to_thread(confluent.make_topic, broker.bootstrap, "orders")
    await asyncio.to_thread(confluent.write, broker.bootstrap, "orders", write * 7)
    await commit(broker.bootstrap, "packing", "orders", 3)

    page = await show(f"{url}{BROKER}", tmp_path)
    assert page.texts["title"] == "minikafka, broker 1"
    #                                    leader, its epoch, replicas, ISR, log start, HW, LEO
    assert page.row("partitions", "orders", "0")[2:9] == ["broker 1", "0", "1", "1", "0", "7", "7"]
    assert page.row("topics", "orders") == ["orders", "1", "0", "0", "0"]
    assert page.row("groups", "packing")[2:] == ["Empty", "0", "1", "4"]
    assert page.row("offsets", "packing") == ["packing", "orders", "0", "3", "7", "4"]
    assert page.row("brokers", "broker 1")[1:3] == ["alive", f"PLAINTEXT localhost:{broker.port}"]
    assert distinct_lines(tmp_path / "page.png") > 100

    await asyncio.to_thread(confluent.write, broker.bootstrap, "orders", write * 5)
    page = await show(f"{url}{BROKER}", tmp_path)
    assert page.row("partitions", "orders", "0")[7:9] == ["12", "12"]
    assert page.row("groups", "packing")[-1] == "9"
    page = await show(f"{url}?topic=consumer{BROKER}", tmp_path)
    assert [row[0] for row in page.tables["topics"]] == ["__consumer_offsets"]
    assert page.tables["groups"] == [["none"]]


def is_told(port: int, topic: str) -> bool:
    """Whether the broker has heard of the topic's leader."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/status.json?topic={topic}") as answer:
        return any(partition["leader"] > 0 for partition in json.load(answer)["partitions"])


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
async def test_each_broker_of_a_cluster_says_who_knows_what_it_does_not(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    ports = {node_id: free_port() for node_id in (1, 2, 3)}
    own = {node_id: {"http.port": port, "http.allowed.hosts": ELSEWHERE} for node_id, port in ports.items()}
    cluster = await asyncio.to_thread(start_cluster, own_properties=own)
    await asyncio.to_thread(confluent.make_topic, cluster.bootstrap, "orders", replicas=2)
    for port in ports.values():
        await asyncio.to_thread(
            confluent.wait_until, lambda port=port: is_told(port, "orders"), "the broker knows the topic"
        )
    urls = {node_id: f"http://127.0.0.1:{port}/" for node_id, port in ports.items()}
    pages = {node_id: await show(f"{url}{BROKER}", tmp_path) for node_id, url in urls.items()}
    rows = {node_id: page.row("partitions", "orders", "0") for node_id, page in pages.items()}
    leader, replicas = rows[1][2], rows[1][4].split(", ")
    for node_id, row in rows.items():
        assert (row[2], row[4]) == (leader, ", ".join(replicas))
        if leader == f"broker {node_id}":
            assert row[6:] == ["0", "0", "0", "the leader, this broker"]
        elif str(node_id) in replicas:
            assert row[6:] == ["0", "0", "0", "the follower on this broker"]
        else:
            assert row[6:] == ["", "", "", f"not known here: ask {leader}"]
    assert [row[:2] for row in pages[1].tables["brokers"]] == [[f"broker {each}", "alive"] for each in ports]
    for node_id, page in pages.items():
        others = {other: f"{url}{BROKER}" for other, url in urls.items() if other != node_id}
        assert page.links["brokers"] == list(others.values()), "each page leads to all others"
        is_leader = leader == f"broker {node_id}"
        assert page.links["partitions"] == ([] if is_leader else [others[int(leader.split()[1])]])
    filtered = await show(f"{urls[1]}?topic=orders{BROKER}", tmp_path)
    assert filtered.links["brokers"] == [f"{urls[each]}?topic=orders{BROKER}" for each in (2, 3)]
    from_elsewhere = await show(f"http://{ELSEWHERE}:{ports[1]}/{BROKER}", tmp_path)
    assert from_elsewhere.row("brokers", "broker 2", "alive")
    assert from_elsewhere.links["brokers"] == [], "a loopback address would lead to the reader's own machine"


async def test_share_groups_with_what_members_hold_and_streams_groups_with_their_tasks(
    broker_here: Broker, tmp_path: Path
) -> None:
    bootstrap = broker_here.bootstrap_servers
    await produce(broker_here, 1)  # makes the topic; the share group begins at its end
    member = ShareConsumer(
        {"bootstrap.servers": bootstrap, "group.id": "workers", "share.acknowledgement.mode": "explicit"}
    )
    member.subscribe(["orders"])
    while True:
        await asyncio.to_thread(member.poll, 0.1)
        group = await broker_here.group("workers")
        if group is not None and group.offsets:
            break
    await produce(broker_here, 3)
    taken = 0
    while not taken:
        taken = len(await asyncio.to_thread(member.poll, 1.0))
    client = await join_streams_group(broker_here.port, "words", "orders", client_id="counter")
    await broker_here.wait_for_group("words", members=1)
    page = await show(url_of(broker_here), tmp_path)
    assert page.row("groups", "workers")[1:] == ["share", "Stable", "1", "1", "3"]
    group = await broker_here.group("workers")
    assert group is not None and group.in_flight >= taken
    #                                         partition, start, next, acquired, HW, lag
    held = page.row("share-partitions", "workers", "orders")
    assert held[2:4] == ["0", "1"] and held[6:] == ["4", "3"]
    assert held[5] == str(int(held[4]) - 1) == str(group.in_flight), "what was delivered is not acknowledged"
    assert page.row("groups", "words")[1:4] == ["streams", "Stable", "1"]
    tasks = page.row("streams", "words", "member-1")
    assert tasks[2:4] == ["counter", "process"] and tasks[5:] == ["0_0", "", ""]
    elsewhere = await show(f"{url_of(broker_here)}?topic=invoices", tmp_path)
    assert elsewhere.tables["share-partitions"] == [["none"]] == elsewhere.tables["groups"]
    await client.close()
    await asyncio.to_thread(member.close)
    page = await show(url_of(broker_here), tmp_path)
    assert page.row("groups", "workers")[2:] == ["Empty", "0", "1", "not known here"]
    assert page.tables["share-partitions"] == [["none"]], "without a member nothing is served"


async def test_partitions_that_refuse_acks_all_are_counted_above_and_marked(
    broker_here: Broker, tmp_path: Path
) -> None:
    await produce(broker_here, 1)
    services = broker_here.server.services
    here, gone = services.node_id, BrokerId(2)
    strict = PartitionMetadata(
        partition=0, leader=here, leader_epoch=LeaderEpoch(3), replicas=(here, gone), isr=(here,)
    )
    services.metadata.put_topic(TopicMetadata(name="strict", topic_id=UUID(int=1), partitions=(strict,)))
    services.configs._topics.set("strict", {"min.insync.replicas": "2"})
    page = await show(url_of(broker_here), tmp_path)
    assert page.row("partitions", "strict", "0")[5] == "1 (under min ISR, 2)"
    assert page.row("topics", "strict") == ["strict", "1", "0", "1", "1"]
    assert page.row("partitions", "orders", "0")[5] == "1"
    assert [row[0] for row in page.tables["topics"]] == ["strict", "orders"]
    assert page.numbers["Under min ISR"] == "1" and page.numbers["Offline"] == "0"


async def test_the_open_page_follows_what_happens(
    broker_here: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await produce(broker_here, 2)
    await commit(broker_here.bootstrap_servers, "packing", "orders", 2)
    looks: list[Status] = []

    async def watched(services: Services, server: SocketServer, *, topic_filter: str) -> Status:
        looks.append(await describe(services, server, topic_filter=topic_filter))
        if (
            len(looks) == 1
        ):  # the page's time is virtual: a client would have to be quicker than its next looks
            for _ in range(3):
                record = Written(0, services.clock.now_ms(), None, b"record", ())
                at = TopicPartition("orders", 0)
                services.replica_manager.append(at, build_batch([record]), required_acks=1)
        return looks[-1]

    monkeypatch.setattr(status, "describe", watched)
    page = await show(url_of(broker_here), tmp_path, virtual_ms=20_000)
    assert (looks[0].partitions[0].log_end_offset, looks[-1].partitions[0].log_end_offset) == (2, 5)
    assert page.row("partitions", "orders", "0")[7:9] == ["5", "5"]
    assert page.row("groups", "packing")[-1] == "3"
    assert "trouble" not in page.texts


async def test_a_page_whose_broker_answers_no_more_says_so_and_keeps_what_it_had(
    broker_here: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await produce(broker_here, 2)
    looks: list[Status] = []

    async def once(services: Services, server: SocketServer, *, topic_filter: str) -> Status:
        if looks:
            raise RuntimeError("this is a test")
        looks.append(await describe(services, server, topic_filter=topic_filter))
        return looks[0]

    monkeypatch.setattr(status, "describe", once)
    page: ShownPage = await show(url_of(broker_here), tmp_path, virtual_ms=5_000)
    assert page.texts["trouble"].startswith("This is not what is now: the broker does not answer")
    assert page.row("partitions", "orders", "0")[8] == "2"


async def test_names_are_text_whatever_is_in_them(broker_here: Broker, tmp_path: Path) -> None:
    quotas = broker_here.server.services.client_quotas
    quotas.update(QuotaEntity(None, HOSTILE), {QuotaType.PRODUCE: 1e6})
    await produce(broker_here, 2)
    await commit(broker_here.bootstrap_servers, HOSTILE, "orders", 1)
    page = await show(url_of(broker_here), tmp_path)
    assert page.row("groups", HOSTILE)[-1] == "1"
    assert page.row("measured", HOSTILE)[1:3] == ["any", "producer_byte_rate"]
    assert page.row("set", f"client-id {HOSTILE}")[1:] == ["producer_byte_rate", "1000000"]
    assert "img" not in page.tags


async def test_events_what_waits_and_the_timing_wheel_are_drawn(broker_here: Broker, tmp_path: Path) -> None:
    await produce(broker_here, 2)
    record = broker_here.server.services.recorder.record
    record(LogDirectoryFailed(directory="<b>disk</b>", partitions=3, cause="no such device"))
    async with AIOKafkaConsumer(
        "orders",
        bootstrap_servers=broker_here.bootstrap_servers,
        group_id="packing",
        fetch_max_wait_ms=30_000,
    ) as consumer:
        await consumer.seek_to_end()
        reading = asyncio.create_task(consumer.getmany(timeout_ms=60_000))
        parked = broker_here.server.services.replica_manager.parked.fetch
        async with asyncio.timeout(20):
            while not parked.delayed:  # noqa: ASYNC110 - it is not announced
                await asyncio.sleep(0.01)
        page = await show(url_of(broker_here), tmp_path)
        reading.cancel()
    newest = [row[1:] for row in page.tables["events"]]
    assert ["log_dir", "<b>disk</b>", "offline, with 3 replicas: no such device"] in newest
    election = next(row for row in newest if row[:2] == ["election", "orders-0"])
    assert election[2].endswith(": the partition is new")
    assert newest[-1][0] == "started"
    waiting = page.tables["waiting"]
    fetch = next(row for row in waiting if row[0] == "Fetch")
    assert "orders-0" in fetch[1] and "bytes for a consumer: " in fetch[5]
    assert 0 < float(fetch[3]) <= 30
    session = next(row for row in waiting if row[0] == "Heartbeat")
    assert session[1].startswith("session of packing, member ")
    assert [row[0] for row in page.tables["wheel"][:3]] == [
        "1 ms a bucket",
        "20 ms a bucket",
        "400 ms a bucket",
    ]
    counts = [int(cell) for row in page.tables["wheel"] for cell in row[1:] if cell]
    assert sum(counts) >= 2, "the fetch and the session"
