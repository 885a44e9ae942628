"""The status document says what is true, says what this broker cannot know, and stays short."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar, cast
from uuid import UUID

import aiokafka
import msgspec
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from minikafka.config.client_quotas import DEFAULT, QuotaEntity, QuotaFilter, QuotaType
from minikafka.network.socket_server import SocketServer
from minikafka.security.acl import KafkaPrincipal
from minikafka.server.cluster.metadata_cache import PartitionMetadata, TopicMetadata
from minikafka.server.http import status
from minikafka.server.http.status import PartitionStatus, Status
from minikafka.server.services import Services
from minikafka.testing import Broker
from minikafka.types import BrokerId, LeaderEpoch, Offset, TopicPartition

ELSEWHERE = BrokerId(2)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(config={"num.partitions": 2, "offsets.topic.num.partitions": 1}) as made:
        yield made


async def describe(broker: Broker, *, topic_filter: str = "") -> Status:
    server = broker.server
    return await status.describe(server.services, server.socket_server, topic_filter=topic_filter)


async def produce(broker: Broker, topic: str, count: int, *, client_id: str = "shop") -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, client_id=client_id) as producer:
        for number in range(count):
            await producer.send_and_wait(topic, b"SECRET", partition=number % 2)


async def commit(broker: Broker, group_id: str, offsets: dict[tuple[str, int], int]) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, group_id=group_id, enable_auto_commit=False
    )
    async with consumer:
        committed = {aiokafka.TopicPartition(*at): offset for at, offset in offsets.items()}
        consumer.assign(list(committed))
        await consumer.commit(committed)


def put_topic(
    services: Services, name: str, leader: int, *, isr: tuple[int, ...], partitions: int = 1
) -> None:
    """A topic that the controller tells of, and that is on broker 2 and here."""
    told = tuple(
        PartitionMetadata(
            partition=number,
            leader=BrokerId(leader),
            leader_epoch=LeaderEpoch(7),
            replicas=(ELSEWHERE, services.node_id),
            isr=tuple(map(BrokerId, isr)),
        )
        for number in range(partitions)
    )
    topic_id = UUID(int=len(services.metadata.topics()) + 1)
    services.metadata.put_topic(TopicMetadata(name=name, topic_id=topic_id, partitions=told))


def partition(found: Status, topic: str, number: int) -> PartitionStatus:
    (only,) = (each for each in found.partitions if (each.topic, each.partition) == (topic, number))
    return only


async def test_a_partition_that_is_led_here_is_shown_with_its_leader_isr_and_offsets(broker: Broker) -> None:
    await produce(broker, "orders", 5)
    services = broker.server.services
    found = await describe(broker)
    shown = partition(found, "orders", 0)
    assert (shown.leader, shown.replicas, shown.isr) == (1, (1,), (1,))
    assert (shown.log_start_offset, shown.high_watermark, shown.log_end_offset) == (0, 3, 3)
    assert shown.offsets_from == "leader"
    assert (found.cluster.controller_id, found.cluster.controller_epoch) == (1, 1)
    assert found.broker.is_controller
    assert found.broker.broker_epoch == found.brokers[0].epoch == services.broker_epoch
    assert (found.cluster.topics, found.cluster.partitions, found.cluster.offline_partitions) == (1, 2, 0)
    await produce(broker, "orders", 2)
    assert partition(await describe(broker), "orders", 0).log_end_offset == 4


async def test_what_is_not_committed_is_beyond_the_high_watermark_and_no_lag(broker: Broker) -> None:
    await produce(broker, "orders", 10)
    await commit(broker, "packing", {("orders", 0): 1})
    services = broker.server.services
    services.replica_manager.partition(TopicPartition("orders", 0)).log.high_watermark = Offset(3)
    found = await describe(broker)
    shown = partition(found, "orders", 0)
    assert (shown.high_watermark, shown.log_end_offset) == (3, 5)
    assert found.groups.groups[0].lag == 2


async def test_what_another_broker_leads_has_no_invented_offsets(broker: Broker) -> None:
    services = broker.server.services
    put_topic(services, "far", ELSEWHERE, isr=(2, 1))
    shown = partition(await describe(broker), "far", 0)
    assert (shown.leader, shown.leader_epoch) == (2, 7)
    assert (shown.offsets_from, shown.high_watermark, shown.log_end_offset) == (None, None, None)


async def test_a_follower_says_that_its_offsets_are_its_own(broker: Broker) -> None:
    await produce(broker, "orders", 2)
    services = broker.server.services
    services.replica_manager.partition(TopicPartition("orders", 0)).leader_id = ELSEWHERE
    shown = partition(await describe(broker), "orders", 0)
    assert (shown.offsets_from, shown.log_end_offset) == ("follower", 1)


async def test_trouble_is_counted_comes_first_and_names_the_broker_that_is_gone(broker: Broker) -> None:
    await produce(broker, "a-well-topic", 1)
    services = broker.server.services
    put_topic(services, "dark", ELSEWHERE, isr=(2,))
    put_topic(services, "thin", services.node_id, isr=(1,))
    found = await describe(broker)
    assert [each.name for each in found.topics] == ["dark", "thin", "a-well-topic"]
    assert [each.topic for each in found.partitions] == ["dark", "thin", "a-well-topic", "a-well-topic"]
    assert (found.cluster.offline_partitions, found.cluster.under_replicated_partitions) == (1, 2)
    assert partition(found, "thin", 0).offline_replicas == (2,)
    assert [(each.node_id, each.is_alive) for each in found.brokers] == [(1, True), (2, False)]


async def test_partitions_that_refuse_acks_all_are_counted_and_marked(broker: Broker) -> None:
    services = broker.server.services
    put_topic(services, "dark", ELSEWHERE, isr=(2,))
    put_topic(services, "lazy", services.node_id, isr=(1,))
    put_topic(services, "strict", services.node_id, isr=(1,))
    put_topic(services, "whole", services.node_id, isr=(2, 1))
    for topic, min_isr in (("dark", "2"), ("strict", "3"), ("whole", "2")):
        services.configs._topics.set(topic, {"min.insync.replicas": min_isr})
    found = await describe(broker)
    assert found.cluster.under_min_isr_partitions == 1
    marked = {each.topic: (each.is_under_min_isr, each.min_isr) for each in found.partitions}
    assert marked == {
        "dark": (False, 2),  # it is offline, which is worse
        "strict": (True, 2),  # no more than there are replicas
        "lazy": (False, 1),
        "whole": (False, 2),
    }
    assert [each.topic for each in found.partitions] == ["dark", "strict", "lazy", "whole"], "worst first"
    assert [(each.name, each.under_min_isr_partitions) for each in found.topics] == [
        ("dark", 0),
        ("strict", 1),
        ("lazy", 0),
        ("whole", 0),
    ]


async def test_every_broker_that_has_a_page_is_listed_with_it(tmp_path: Path) -> None:
    async with Broker(config={"http.port": 0, "http.host": "", "log.dirs": str(tmp_path)}) as broker:
        services = broker.server.services
        address = broker.server.http_address
        assert address is not None and address.host == ""
        (own,) = (await describe(broker)).brokers
        assert own.page == f"http://127.0.0.1:{address.port}/", "the host that the listener advertises"
        known = services.metadata.live_broker(services.node_id)
        assert known is not None and known.http == ("127.0.0.1", address.port)


async def test_a_group_has_the_lag_of_its_partitions(broker: Broker) -> None:
    await produce(broker, "orders", 10)
    await commit(broker, "packing", {("orders", 0): 2, ("orders", 1): 5})
    groups = (await describe(broker)).groups
    (group,) = groups.groups
    assert (group.group_id, group.type, group.state, group.members) == ("packing", "classic", "Empty", 0)
    assert (group.partitions, group.lag) == (2, 3)
    rows = [(each.partition, each.committed_offset, each.high_watermark, each.lag) for each in groups.offsets]
    assert rows == [(0, 2, 5, 3), (1, 5, 5, 0)]


async def test_a_lag_that_another_broker_knows_is_not_guessed(broker: Broker) -> None:
    await produce(broker, "orders", 10)
    await commit(broker, "packing", {("orders", 0): 2, ("orders", 1): 5})
    services = broker.server.services
    services.replica_manager.partition(TopicPartition("orders", 0)).leader_id = ELSEWHERE
    groups = (await describe(broker)).groups
    assert [each.lag for each in groups.offsets] == [None, 0]
    assert groups.groups[0].lag is None


async def test_who_coordinates_the_other_groups_is_said(broker: Broker) -> None:
    put_topic(broker.server.services, "__consumer_offsets", ELSEWHERE, isr=(2,), partitions=3)
    (other,) = (await describe(broker)).groups.coordinators
    assert (other.node_id, other.partitions) == (2, 3)


async def test_no_list_is_longer_than_its_limit_and_the_rest_is_counted(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("orders", "returns", "stock"):
        await produce(broker, topic, 2)
    for group in ("a", "b", "c"):
        await commit(broker, group, {("orders", 0): 1, ("stock", 0): 1})
    monkeypatch.setattr(status, "TOPICS_MAX", 1)
    monkeypatch.setattr(status, "PARTITIONS_MAX", 3)
    monkeypatch.setattr(status, "GROUPS_MAX", 2)
    monkeypatch.setattr(status, "OFFSETS_MAX", 4)
    found = await describe(broker)
    assert (len(found.topics), found.topics_left_out) == (1, 3)  # __consumer_offsets too
    assert (len(found.partitions), found.partitions_left_out) == (3, 4)
    assert found.cluster.partitions == 7
    groups = found.groups
    assert (len(groups.groups), groups.groups_left_out) == (2, 1)
    assert (len(groups.offsets), groups.offsets_left_out) == (4, 2)
    monkeypatch.setattr(status, "OFFSETS_SEEN_MAX", 5)
    groups = (await describe(broker)).groups
    assert (len(groups.offsets), groups.offsets_left_out) == (4, 2)
    assert all(group.lag is None for group in groups.groups)  # of which some offsets may not have been seen


async def test_the_filter_finds_topics_and_the_groups_that_read_them(broker: Broker) -> None:
    for topic in ("orders", "returns"):
        await produce(broker, topic, 2)
    await commit(broker, "packing", {("orders", 0): 1})
    await commit(broker, "refunds", {("returns", 0): 0, ("orders", 0): 0})
    found = await describe(broker, topic_filter="turn")
    assert found.topic_filter == "turn"
    assert [each.name for each in found.topics] == ["returns"]
    assert [each.topic for each in found.partitions] == ["returns", "returns"]
    assert [(each.group_id, each.partitions, each.lag) for each in found.groups.groups] == [("refunds", 1, 1)]
    assert [each.topic for each in found.groups.offsets] == ["returns"]
    assert found.cluster.topics == 3  # the cluster stays as large as it is


async def test_quotas_and_why_a_client_was_throttled(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    services = broker.server.services
    services.client_quotas.update(QuotaEntity(None, "shop"), {QuotaType.PRODUCE: 5.0})
    services.client_quotas.update(QuotaEntity(DEFAULT), {QuotaType.FETCH: 1e9})
    services.replication_quotas.leader.update_rate(1_000)
    await produce(broker, "orders", 1)
    found = (await describe(broker)).quotas
    assert [(each.entity, each.quota, each.bound) for each in found.set] == [
        ("client-id shop", "producer_byte_rate", 5.0),
        ("user <default>", "consumer_byte_rate", 1e9),
    ]
    measured = {(each.client_id, each.quota): each for each in found.measured}
    assert measured["shop", "producer_byte_rate"].observed > measured["shop", "producer_byte_rate"].bound == 5
    (throttle,) = found.throttles
    (kept,) = services.client_quotas.throttles(QuotaFilter({}, strict=False))
    assert (throttle.client_id, throttle.formula) == ("shop", kept.formula)
    assert throttle.throttle_time_ms == kept.throttle_time_ms > 0
    assert [each.bound for each in found.replication] == [1_000, None, None]
    monkeypatch.setattr(status, "QUOTAS_MAX", 1)
    found = (await describe(broker)).quotas
    assert (len(found.set), found.set_left_out, len(found.measured), found.measured_left_out) == (1, 1, 1, 1)


async def test_the_purgatories_are_all_there(broker: Broker) -> None:
    names = [each.name for each in (await describe(broker)).purgatories]
    assert names == ["Produce", "Fetch", "DeleteRecords", "ShareFetch", "Rebalance", "Heartbeat"]


async def test_names_of_any_kind_survive_and_no_record_is_shown(broker: Broker) -> None:
    odd = '</script><img src=x onerror="alert(1)">\u2028 é'
    await produce(broker, "orders", 2)
    await commit(broker, odd, {("orders", 0): 1})
    text = msgspec.json.encode(await describe(broker))
    assert msgspec.json.decode(text, type=Status).groups.groups[0].group_id == odd
    assert b"SECRET" not in text


async def test_the_listeners_are_shown_and_who_is_connected(broker: Broker) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        await producer.send_and_wait("orders", b"SECRET")
        connections = broker.server.socket_server.connections
        for connection in connections:
            connection.principal = KafkaPrincipal("User", "<b>alice</b>")
        count = len(connections)
        shown = (await describe(broker)).security
    (listener,) = shown.listeners
    assert (listener.name, listener.protocol, listener.connections) == ("PLAINTEXT", "PLAINTEXT", count)
    assert listener.address.endswith(f":{broker.port}")
    assert (listener.mechanisms, listener.client_auth) == ((), None)
    assert shown.authorizer is None
    assert [(each.principal, each.listener, each.connections) for each in shown.connected] == [
        ("User:<b>alice</b>", "PLAINTEXT", count)
    ]


async def test_of_many_principals_those_with_most_connections_are_shown(broker: Broker) -> None:
    class Peers:
        """Of a socket server with more principals than are shown."""

        connections: ClassVar = [
            SimpleNamespace(principal=f"User:{number}", listener_name="PLAINTEXT")
            for number in (*range(status.CONNECTED_MAX + 5), 7, 7)
        ]
        bound_port = broker.server.socket_server.bound_port

    services = broker.server.services
    shown = (await status.describe(services, cast(SocketServer, Peers()))).security
    assert (len(shown.connected), shown.connected_left_out) == (status.CONNECTED_MAX, 5)
    assert (shown.connected[0].principal, shown.connected[0].connections) == ("User:7", 3)
