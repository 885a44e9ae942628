"""Metadata in every version: who leads what, where, and what is made on the way."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
import pytest

from minikafka.coordination import paths
from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey
from minikafka.server.apis import metadata as metadata_api
from minikafka.server.cluster.metadata_cache import ENCODED_FROM_PARTITIONS
from minikafka.types import NO_LEADER, BrokerId, ReplicaAssignment, TopicPartition

KEY = ApiKey.METADATA
VERSIONS = range(SUPPORTED[KEY].min, SUPPORTED[KEY].max + 1)


def asking_for(*names: str, **fields: Any) -> dict[str, Any]:
    unasked = {"include_cluster_authorized_operations": False, "include_topic_authorized_operations": False}
    return {"topics": [{"name": name, "topic_id": None} for name in names], **unasked, **fields}


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_version_tells_of_brokers_and_topics(admin_broker: Any, version: int) -> None:
    created = await admin_broker.topics.create_topic("a", partitions=2)
    answer = await admin_broker.ask(KEY, version, asking_for("a"))
    assert [(each.node_id, each.host, each.port) for each in answer.brokers] == [(1, "localhost", 9092)]
    (topic,) = answer.topics
    assert (topic.error_code, topic.name) == (ErrorCode.NONE, "a")
    assert [(each.partition_index, each.leader_id) for each in topic.partitions] == [(0, 1), (1, 1)]
    assert (topic.partitions[0].replica_nodes, topic.partitions[0].isr_nodes) == ((1,), (1,))
    if version >= 1:
        assert (answer.controller_id, answer.brokers[0].rack, topic.is_internal) == (1, "rack-a", False)
    if version >= 2:
        assert answer.cluster_id == admin_broker.services.cluster_id
    if version >= 5:
        assert topic.partitions[0].offline_replicas == ()
    if version >= 7:
        assert topic.partitions[0].leader_epoch == 0
    if version >= 10:
        assert topic.topic_id == created.topic_id
    if version >= 13:
        assert answer.error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", VERSIONS)
async def test_all_topics_and_none(admin_broker: Any, version: int) -> None:
    for name in ("b", "a"):
        await admin_broker.topics.create_topic(name)
    everything = asking_for() | {"topics": [] if version == 0 else None}
    assert [topic.name for topic in (await admin_broker.ask(KEY, version, everything)).topics] == ["a", "b"]
    if version >= 1:
        assert (await admin_broker.ask(KEY, version, asking_for())).topics == ()


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_unknown_topic_is_made_and_can_be_produced_to_at_once(
    admin_broker: Any, version: int
) -> None:
    (topic,) = (await admin_broker.ask(KEY, version, asking_for("new"))).topics
    assert (topic.error_code, topic.partitions[0].leader_id) == (ErrorCode.NONE, 1)
    assert admin_broker.replica_manager.partition(TopicPartition("new", 0)).is_leader


@pytest.mark.parametrize("version", range(4, 14))
async def test_nothing_is_made_that_the_client_or_the_broker_does_not_want(
    admin_broker: Any, version: int
) -> None:
    body = asking_for("new", "bad/name", allow_auto_topic_creation=False)
    answer = await admin_broker.ask(KEY, version, body)
    assert [topic.error_code for topic in answer.topics] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    admin_broker.services.config = msgspec.structs.replace(
        admin_broker.services.config, auto_create_topics_enable=False
    )
    (topic,) = (await admin_broker.ask(KEY, version, asking_for("new"))).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert admin_broker.metadata.topics() == ()


async def test_a_name_that_cannot_be_made_does_not_spoil_the_others(admin_broker: Any) -> None:
    answer = await admin_broker.ask(KEY, 12, asking_for("a.b", "a_b", "bad name", "good", "good"))
    assert {topic.name: topic.error_code for topic in answer.topics} == {
        "a.b": ErrorCode.NONE,
        "a_b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "good": ErrorCode.NONE,
    }
    assert len(answer.topics) == 4


@pytest.mark.parametrize("version", [12, 13])
async def test_topics_are_found_by_id(admin_broker: Any, version: int) -> None:
    created = await admin_broker.topics.create_topic("a")
    ids = (created.topic_id, UUID(int=99))
    body = asking_for() | {"topics": [{"topic_id": each, "name": None} for each in ids]}
    known, unknown = (await admin_broker.ask(KEY, version, body)).topics
    assert (known.error_code, known.name) == (ErrorCode.NONE, "a")
    assert (unknown.error_code, unknown.name, unknown.topic_id) == (
        ErrorCode.UNKNOWN_TOPIC_ID,
        None,
        UUID(int=99),
    )
    assert [topic.name for topic in admin_broker.metadata.topics()] == ["a"]


@pytest.mark.parametrize("version", [10, 11])
async def test_topics_by_id_are_refused_before_version_12(admin_broker: Any, version: int) -> None:
    created = await admin_broker.topics.create_topic("a")
    body = asking_for() | {"topics": [{"topic_id": created.topic_id, "name": "a"}]}
    (topic,) = (await admin_broker.ask(KEY, version, body)).topics
    assert topic.error_code == ErrorCode.INVALID_REQUEST


async def test_addresses_are_those_of_the_listener_that_was_asked(admin_broker: Any) -> None:
    await admin_broker.topics.create_topic("a")
    answer = await admin_broker.ask(KEY, 12, asking_for("a"), listener="INSIDE")
    assert [(each.host, each.port) for each in answer.brokers] == [("10.0.0.1", 9093)]
    answer = await admin_broker.ask(KEY, 12, asking_for("a"), listener="OTHER")
    assert (answer.brokers, answer.controller_id) == ((), -1)
    partition = answer.topics[0].partitions[0]
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LISTENER_NOT_FOUND, -1)
    assert partition.offline_replicas == (1,)
    partition = (await admin_broker.ask(KEY, 5, asking_for("a"), listener="OTHER")).topics[0].partitions[0]
    assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE


async def test_a_partition_without_a_leader_says_so(admin_broker: Any) -> None:
    await admin_broker.topics.create_topic("a", partitions=2)
    known = admin_broker.metadata.topic("a")
    lost = msgspec.structs.replace(known.partitions[0], leader=NO_LEADER, offline_replicas=(BrokerId(1),))
    admin_broker.metadata.put_topic(msgspec.structs.replace(known, partitions=(lost, *known.partitions[1:])))
    without, fine = (await admin_broker.ask(KEY, 12, asking_for("a"))).topics[0].partitions
    assert (without.error_code, without.leader_id, without.offline_replicas) == (
        ErrorCode.LEADER_NOT_AVAILABLE,
        -1,
        (1,),
    )
    assert (fine.error_code, fine.leader_id) == (ErrorCode.NONE, 1)


async def test_version_0_shows_no_replica_that_is_not_among_the_brokers(admin_broker: Any) -> None:
    await admin_broker.store.create(
        paths.topic_path("a"),
        paths.encode_topic(
            paths.TopicAssignment(UUID(int=5), {0: ReplicaAssignment((BrokerId(1), BrokerId(2)))})
        ),
    )
    await admin_broker.topics.led("a")
    partition = (await admin_broker.ask(KEY, 0, asking_for("a"))).topics[0].partitions[0]
    assert (partition.error_code, partition.replica_nodes) == (ErrorCode.REPLICA_NOT_AVAILABLE, (1,))
    partition = (await admin_broker.ask(KEY, 9, asking_for("a"))).topics[0].partitions[0]
    assert (partition.error_code, partition.replica_nodes) == (ErrorCode.NONE, (1, 2))
    assert partition.offline_replicas == (2,)


@pytest.mark.parametrize("version", range(8, 14))
async def test_authorized_operations_are_told_when_asked_for(admin_broker: Any, version: int) -> None:
    await admin_broker.topics.create_topic("a")
    quiet = await admin_broker.ask(KEY, version, asking_for("a"))
    assert quiet.topics[0].topic_authorized_operations == -(2**31)
    body = asking_for("a", include_topic_authorized_operations=True)
    body["include_cluster_authorized_operations"] = True
    answer = await admin_broker.ask(KEY, version, body)
    assert answer.topics[0].topic_authorized_operations == 0b1101_1111_1000
    if version <= 10:
        assert answer.cluster_authorized_operations == 0b1_1111_1010_0000


@pytest.mark.parametrize("version", VERSIONS)
async def test_partitions_are_encoded_once_until_something_changes(
    admin_broker: Any, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await admin_broker.topics.create_topic("wide", partitions=ENCODED_FROM_PARTITIONS)
    described: list[int] = []
    plain = metadata_api._partition

    def counted(metadata: Any, context: Any, partition: Any) -> Any:
        described.append(partition.partition)
        return plain(metadata, context, partition)

    monkeypatch.setattr(metadata_api, "_partition", counted)
    first = await admin_broker.ask(KEY, version, asking_for("wide"))
    assert [each.partition_index for each in first.topics[0].partitions] == list(range(len(described)))
    assert len(described) == ENCODED_FROM_PARTITIONS
    assert await admin_broker.ask(KEY, version, asking_for("wide")) == first
    assert len(described) == ENCODED_FROM_PARTITIONS, "the second answer was encoded already"

    known = admin_broker.services.metadata.topic("wide")
    moved = msgspec.structs.replace(known.partitions[3], leader=NO_LEADER)
    changed = (*known.partitions[:3], moved, *known.partitions[4:])
    admin_broker.services.metadata.put_topic(msgspec.structs.replace(known, partitions=changed))
    later = await admin_broker.ask(KEY, version, asking_for("wide"))
    assert [each.leader_id for each in later.topics[0].partitions[2:5]] == [1, NO_LEADER, 1]
    assert later.topics[0].partitions[3].error_code == ErrorCode.LEADER_NOT_AVAILABLE
