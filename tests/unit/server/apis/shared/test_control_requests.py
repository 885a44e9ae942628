"""What a broker does with a controller's requests, and which of them it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pytest

from minikafka.coordination import paths
from minikafka.coordination.sqlite import SqliteStore
from minikafka.coordination.store import ConnectionLossError, CreateOp, DeleteOp
from minikafka.errors import ErrorCode
from minikafka.network.broker_client import BrokerClient
from minikafka.protocol.control import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    ControlledShutdownRequest,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    PartitionError,
    StopReplicaPartition,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from minikafka.protocol.records.records import Record, build_batch
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.control_bodies import with_names
from minikafka.server.apis import control
from minikafka.types import BrokerId, LeaderEpoch, TopicPartition
from tests.unit.server.conftest import AdminBroker

CONTROLLER_ID = BrokerId(9)
NEXT_EPOCH = 50
"""Of a controller after the one that runs in the broker; which is stopped in these tests."""
A0 = TopicPartition("a", 0)


class Controlled(NamedTuple):
    """A broker whose controller is the test."""

    broker: AdminBroker

    @property
    def broker_epoch(self) -> int:
        return self.broker.services.broker_epoch

    async def lead(self, *partitions: LeaderAndIsrPartition, epoch: int = NEXT_EPOCH, **changed: Any) -> Any:
        broker_epoch = changed.get("broker_epoch", self.broker_epoch)
        request = LeaderAndIsrRequest(CONTROLLER_ID, epoch, broker_epoch, partitions, ())
        return await control.handle_leader_and_isr(self.broker.services, None, request)

    async def stop(self, *partitions: StopReplicaPartition, epoch: int = NEXT_EPOCH, **changed: Any) -> Any:
        broker_epoch = changed.get("broker_epoch", self.broker_epoch)
        request = StopReplicaRequest(CONTROLLER_ID, epoch, broker_epoch, partitions)
        return await control.handle_stop_replica(self.broker.services, None, request)

    async def tell(self, *partitions: LeaderAndIsrPartition, epoch: int = NEXT_EPOCH, **changed: Any) -> Any:
        broker_epoch = changed.get("broker_epoch", self.broker_epoch)
        request = UpdateMetadataRequest(CONTROLLER_ID, epoch, broker_epoch, partitions, ())
        return await control.handle_update_metadata(self.broker.services, None, request)

    def retention_ms(self, topic: str = "a") -> int:
        return self.broker.configs.topic_config(topic).retention_ms


def partition(
    name: str = "a", number: int = 0, *, topic_id: int = 1, leader: int = 1, leader_epoch: int = 0
) -> LeaderAndIsrPartition:
    return LeaderAndIsrPartition(
        topic=name,
        topic_id=UUID(int=topic_id),
        partition=number,
        controller_epoch=NEXT_EPOCH,
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(leader_epoch),
        isr=(BrokerId(1),),
        partition_epoch=0,
        replicas=(BrokerId(1),),
        is_new=True,
    )


@pytest.fixture
async def controlled(admin_broker: AdminBroker, store: SqliteStore) -> AsyncIterator[Controlled]:
    """Another broker takes over the office, and its controller is the test."""
    registration = paths.encode_controller(paths.ControllerRegistration(CONTROLLER_ID, 0))
    taken = CreateOp(paths.CONTROLLER, registration, ephemeral=True)
    await store.multi([DeleteOp(paths.CONTROLLER), taken])
    async with asyncio.timeout(60):
        while admin_broker.services.controller.is_controller:
            await admin_broker.own_store.poll()
    yield Controlled(admin_broker)


async def test_a_later_controller_is_obeyed_and_the_one_before_it_refused_from_then_on(
    controlled: Controlled,
) -> None:
    answer = await controlled.lead(partition())
    assert (answer.error_code, answer.partitions) == (0, (PartitionError("a", 0, 0),))
    assert controlled.broker.replica_manager.partition(A0).is_leader
    before = NEXT_EPOCH - 1
    for refused in (
        await controlled.lead(partition("b", topic_id=2), epoch=before),
        await controlled.stop(StopReplicaPartition("a", 0, delete=True), epoch=before),
        await controlled.tell(partition("b", topic_id=2), epoch=before),
    ):
        assert refused.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert controlled.broker.replica_manager.partition(A0).is_leader
    assert TopicPartition("b", 0) not in controlled.broker.replica_manager.partitions
    assert controlled.broker.metadata.topic("b") is None


async def test_a_leader_hears_with_everybody_else_that_it_was_moved_away(controlled: Controlled) -> None:
    await controlled.lead(partition())
    moved = msgspec.structs.replace(
        partition(leader=2, leader_epoch=1), replicas=(BrokerId(2),), isr=(BrokerId(2),)
    )
    assert (await controlled.tell(moved)).error_code == 0
    hosted = controlled.broker.replica_manager.hosted(A0)
    assert (hosted.leader_id, hosted.leader_epoch) == (2, 1)


@pytest.mark.parametrize("first", ["lead", "stop", "tell"])
async def test_every_request_makes_the_epoch_known(controlled: Controlled, first: str) -> None:
    assert (await getattr(controlled, first)(epoch=NEXT_EPOCH + 1)).error_code == 0
    assert (await controlled.tell()).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert (await controlled.tell(epoch=NEXT_EPOCH + 1)).error_code == 0


async def test_what_is_meant_for_an_earlier_incarnation_of_the_broker_is_refused(
    controlled: Controlled,
) -> None:
    earlier = controlled.broker_epoch - 1
    for refused in (
        await controlled.lead(partition(), broker_epoch=earlier),
        await controlled.stop(StopReplicaPartition("a", 0), broker_epoch=earlier),
        await controlled.tell(partition(), broker_epoch=earlier),
    ):
        assert refused.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert A0 not in controlled.broker.replica_manager.partitions
    assert controlled.broker.metadata.topic("a") is None
    assert (
        await controlled.lead(epoch=1)
    ).error_code != ErrorCode.STALE_BROKER_EPOCH  # and no epoch was learnt


async def test_a_registration_that_the_broker_has_not_heard_of_yet_is_its_own(controlled: Controlled) -> None:
    assert (await controlled.lead(partition(), broker_epoch=controlled.broker_epoch + 1)).error_code == 0
    assert controlled.broker.replica_manager.partition(A0).is_leader


async def test_a_log_is_made_with_the_configuration_of_its_topic(
    controlled: Controlled, store: SqliteStore
) -> None:
    await store.create(paths.topic_config_path("a"), paths.encode_config({"retention.ms": "5"}))
    await controlled.lead(partition())
    assert controlled.broker.replica_manager.partition(A0).log.config.retention_ms == 5


async def test_a_topic_created_again_has_its_own_configuration_and_not_its_predecessors(
    controlled: Controlled, store: SqliteStore
) -> None:
    path = paths.topic_config_path("a")
    await store.create(path, paths.encode_config({"retention.ms": "5"}))
    await controlled.lead(partition())
    await controlled.tell(partition())
    assert controlled.retention_ms() == 5
    # The broker does not hear of the deletion; the topic is another one when it hears again.
    await store.set(path, paths.encode_config({"retention.ms": "6"}))
    await controlled.stop(StopReplicaPartition("a", 0, EPOCH_DURING_DELETE, delete=True))
    await controlled.lead(partition(topic_id=2))
    assert controlled.broker.replica_manager.partition(A0).log.config.retention_ms == 6
    await controlled.tell(partition(topic_id=2))
    assert controlled.retention_ms() == 6
    await controlled.tell(partition(topic_id=2, leader=LEADER_DURING_DELETE))
    assert controlled.broker.metadata.topic("a") is None
    assert controlled.retention_ms() == 604_800_000


async def test_a_configuration_that_was_left_without_its_topic_is_read_again_for_the_next(
    admin_broker: AdminBroker, store: SqliteStore
) -> None:
    await admin_broker.stop()
    await store.create(paths.topic_config_path("a"), paths.encode_config({"retention.ms": "5"}))
    again = await admin_broker.restarted()
    await again.topics.create_topic("a")
    log = again.replica_manager.partition(A0).log
    assert log.config.retention_ms == 604_800_000
    await again.stop()


async def test_a_store_that_is_away_makes_the_controller_ask_again(
    controlled: Controlled, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*args: Any, **kwargs: Any) -> Any:
        raise ConnectionLossError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(controlled.broker.own_store, "get", away)
        assert (await controlled.lead(partition())).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await controlled.tell(partition())).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert A0 not in controlled.broker.replica_manager.partitions
    assert (await controlled.lead(partition())).error_code == 0


async def test_a_configuration_that_cannot_be_read_keeps_no_partition_from_its_leader(
    controlled: Controlled, store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not the store that is away: asking again would never help."""
    path = paths.topic_config_path("a")
    await store.create(path, b"no json")
    assert (await controlled.lead(partition(), partition("b", topic_id=2))).error_code == 0
    assert (await controlled.tell(partition(), partition("b", topic_id=2))).error_code == 0
    assert {A0, TopicPartition("b", 0)} <= controlled.broker.replica_manager.partitions.keys()
    assert path in caplog.text


async def test_requests_are_carried_out_one_after_the_other(controlled: Controlled) -> None:
    """A later one never overtakes: here it would delete what was not made yet."""
    made, deleted = await asyncio.gather(
        controlled.lead(partition()),
        controlled.stop(StopReplicaPartition("a", 0, EPOCH_DURING_DELETE, delete=True)),
    )
    assert (made.partitions[0].error_code, deleted.partitions[0].error_code) == (0, 0)
    assert A0 not in controlled.broker.replica_manager.partitions


async def produce(client: BrokerClient, topic_id: int) -> int:
    """Produce 13, which names topics by their ids. Returns the error code."""
    records = build_batch([Record(0, 1_700_000_000_000, None, b"v", ())])
    partitions = [{"index": 0, "records": records}]
    body = {
        "transactional_id": None,
        "acks": 1,
        "timeout": 1000,
        "topic_data": [{"topic_id": UUID(int=topic_id), "partition_data": partitions}],
    }
    answer: Any = await client.request(ApiKey.PRODUCE, body, deadline_ms=20_000, version=13)
    return int(answer.responses[0].partition_responses[0].error_code)


async def test_a_producer_writes_into_the_topic_that_it_means_and_not_into_a_later_one_of_that_name(
    controlled: Controlled,
) -> None:
    """The broker hosts another topic already than its metadata show."""
    await controlled.lead(partition())
    await controlled.tell(partition())
    port = controlled.broker.broker.port
    client = await BrokerClient.connect("127.0.0.1", port, client_id="test", deadline_ms=20_000)
    for _ in range(3):  # the third one takes the path of a repeated request
        assert await produce(client, 1) == ErrorCode.NONE
    await controlled.stop(StopReplicaPartition("a", 0, EPOCH_DURING_DELETE, delete=True))
    await controlled.lead(partition(topic_id=2))
    another = await BrokerClient.connect("127.0.0.1", port, client_id="test", deadline_ms=20_000)
    for each in (client, another):
        assert await produce(each, 1) == ErrorCode.UNKNOWN_TOPIC_ID
        await each.close()
    assert controlled.broker.replica_manager.partition(A0).log.log_end_offset == 0


@pytest.mark.parametrize("of_0_2", [False, True])
async def test_they_come_over_the_wire_and_a_broker_that_is_not_the_controller_says_so(
    controlled: Controlled, of_0_2: bool
) -> None:
    versions = (0, 0) if of_0_2 else (3, 7)
    port = controlled.broker.broker.port
    client = await BrokerClient.connect("127.0.0.1", port, client_id="test", deadline_ms=20_000)
    request = ControlledShutdownRequest(BrokerId(2), 1)
    answer: Any = await client.request(
        ApiKey.CONTROLLED_SHUTDOWN, request, deadline_ms=20_000, version=versions[0]
    )
    assert answer.error_code == ErrorCode.NOT_CONTROLLER
    wanted = LeaderAndIsrRequest(CONTROLLER_ID, NEXT_EPOCH, controlled.broker_epoch, (partition(),), ())
    answer = await client.request(ApiKey.LEADER_AND_ISR, wanted, deadline_ms=20_000, version=versions[1])
    assert with_names(answer, wanted).partitions == (PartitionError("a", 0, 0),)
    await client.close()


async def fetch(client: BrokerClient, topic_id: int) -> int:
    """Fetch 16, which names topics by their ids. Returns the error code."""
    asked = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }
    body = {
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic_id": UUID(int=topic_id), "partitions": [asked]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    answer: Any = await client.request(ApiKey.FETCH, body, deadline_ms=20_000, version=16)
    return int(answer.responses[0].partitions[0].error_code)


async def test_a_consumer_reads_the_topic_that_it_means_and_not_a_later_one_of_that_name(
    controlled: Controlled,
) -> None:
    """The broker hosts another topic already than its metadata show."""
    await controlled.lead(partition())
    await controlled.tell(partition())
    port = controlled.broker.broker.port
    client = await BrokerClient.connect("127.0.0.1", port, client_id="test", deadline_ms=20_000)
    for _ in range(3):  # the third one takes the path of a repeated request
        assert await fetch(client, 1) == ErrorCode.NONE
    await controlled.stop(StopReplicaPartition("a", 0, EPOCH_DURING_DELETE, delete=True))
    await controlled.lead(partition(topic_id=2))
    assert await fetch(client, 1) == ErrorCode.INCONSISTENT_TOPIC_ID
    await controlled.tell(partition(topic_id=2))
    assert await fetch(client, 2) == ErrorCode.NONE
    await client.close()
