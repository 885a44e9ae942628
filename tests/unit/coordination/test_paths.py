"""Kafka's nodes: what Kafka writes is read, and what we write is the same JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import given

from minikafka.coordination import paths
from minikafka.coordination.paths import (
    BrokerRegistration,
    ControllerRegistration,
    DamagedNodeError,
    Endpoint,
    ProducerIdBlock,
    TopicAssignment,
)
from minikafka.coordination.store import validate_path
from minikafka.types import BrokerId, LeaderEpoch, PartitionState, ReplicaAssignment, TopicPartition

TOPIC_ID = UUID("b8a3c2f0-5f0e-4e7b-9d4f-2d1c3e4f5a6b")

GOLDENS: dict[str, tuple[Any, Callable[[Any], bytes], Callable[[bytes], Any], str]] = {
    "/cluster/id": (
        "aBcDeFgHiJkLmNoPqRsTuv",
        paths.encode_cluster_id,
        paths.decode_cluster_id,
        '{"version":"1","id":"aBcDeFgHiJkLmNoPqRsTuv"}',
    ),
    "/controller": (
        ControllerRegistration(BrokerId(3), 1_700_000_000_123),
        paths.encode_controller,
        paths.decode_controller,
        '{"version":2,"brokerid":3,"timestamp":"1700000000123","kraftControllerEpoch":-1}',
    ),
    "/controller_epoch": (7, paths.encode_controller_epoch, paths.decode_controller_epoch, "7"),
    "/brokers/ids/1": (
        BrokerRegistration(
            (Endpoint("INTERNAL", "::1", 9093, "SSL"), Endpoint("PLAINTEXT", "host-1", 9092)),
            1_700_000_000_123,
            rack="dc1",
        ),
        paths.encode_broker,
        lambda data: paths.decode_broker(1, data),
        '{"version":5,"host":"host-1","port":9092,'
        '"endpoints":["INTERNAL://[::1]:9093","PLAINTEXT://host-1:9092"],'
        '"jmx_port":-1,"timestamp":"1700000000123","rack":"dc1","features":{},'
        '"listener_security_protocol_map":{"INTERNAL":"SSL","PLAINTEXT":"PLAINTEXT"},"software":"minikafka"}',
    ),
    "/brokers/ids/2 without plaintext or rack": (
        BrokerRegistration((Endpoint("S", "h", 1, "SASL_SSL"),), 5),
        paths.encode_broker,
        lambda data: paths.decode_broker(2, data),
        '{"version":5,"host":null,"port":-1,"endpoints":["S://h:1"],"jmx_port":-1,"timestamp":"5",'
        '"listener_security_protocol_map":{"S":"SASL_SSL"},"features":{},"software":"minikafka"}',
    ),
    "/brokers/ids/3 with pages": (
        BrokerRegistration((Endpoint("PLAINTEXT", "h", 1),), 5, http=("::1", 8081)),
        paths.encode_broker,
        lambda data: paths.decode_broker(3, data),
        '{"version":5,"host":"h","port":1,"endpoints":["PLAINTEXT://h:1"],"jmx_port":-1,"timestamp":"5",'
        '"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"features":{},"http":["::1",8081],'
        '"software":"minikafka"}',
    ),
    "/brokers/ids/4 with features": (
        BrokerRegistration((Endpoint("PLAINTEXT", "h", 1),), 5, features={"group.version": (0, 1)}),
        paths.encode_broker,
        lambda data: paths.decode_broker(4, data),
        '{"version":5,"host":"h","port":1,"endpoints":["PLAINTEXT://h:1"],"jmx_port":-1,"timestamp":"5",'
        '"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
        '"features":{"group.version":{"min_version":0,"max_version":1}},"software":"minikafka"}',
    ),
    "/feature": (
        {"group.version": 1, "share.version": 0},
        paths.encode_features,
        paths.decode_features,
        '{"version":2,"status":1,"features":{"group.version":1,"share.version":0}}',
    ),
    "/brokers/topics/t": (
        TopicAssignment(
            TOPIC_ID,
            {0: ReplicaAssignment((1, 2, 3), adding=(3,), removing=(1,)), 10: ReplicaAssignment((2,))},
        ),
        paths.encode_topic,
        lambda data: paths.decode_topic("t", data),
        '{"version":3,"partitions":{"0":[1,2,3],"10":[2]},"adding_replicas":{"0":[3]},'
        '"removing_replicas":{"0":[1]},"topic_id":"uKPC8F8OTnudTy0cPk9aaw"}',
    ),
    "state": (
        PartitionState(BrokerId(1), LeaderEpoch(4), (1, 2), 9),
        paths.encode_partition_state,
        lambda data: paths.decode_partition_state("t", 0, data),
        '{"version":1,"leader":1,"leader_epoch":4,"controller_epoch":9,"isr":[1,2]}',
    ),
    "state of a recovering leader": (
        PartitionState(BrokerId(1), LeaderEpoch(4), (1,), 9, leader_recovering=True),
        paths.encode_partition_state,
        lambda data: paths.decode_partition_state("t", 0, data),
        '{"version":1,"leader":1,"leader_epoch":4,"controller_epoch":9,"isr":[1],"leader_recovery_state":1}',
    ),
    "state without a leader": (
        PartitionState(
            BrokerId(-1), LeaderEpoch(4), (1,), 9, eligible=(BrokerId(2),), last_known_leader=BrokerId(3)
        ),
        paths.encode_partition_state,
        lambda data: paths.decode_partition_state("t", 0, data),
        '{"version":1,"leader":-1,"leader_epoch":4,"controller_epoch":9,"isr":[1],'
        '"eligible_leader_replicas":[2],"last_known_leader":3}',
    ),
    "config": (
        {"retention.ms": "1000", "cleanup.policy": "compact,delete"},
        paths.encode_config,
        paths.decode_config,
        '{"version":1,"config":{"cleanup.policy":"compact,delete","retention.ms":"1000"}}',
    ),
    "config change": (
        "topics/t",
        paths.encode_config_change,
        paths.decode_config_change,
        '{"version":2,"entity_path":"topics/t"}',
    ),
    "partitions": (
        [TopicPartition("a", 1), TopicPartition("b", 0)],
        paths.encode_partitions,
        lambda data: paths.decode_partitions(data, paths.PREFERRED_REPLICA_ELECTION),
        '{"version":1,"partitions":[{"topic":"a","partition":1},{"topic":"b","partition":0}]}',
    ),
    "log directory event": (
        BrokerId(2),
        paths.encode_log_dir_event,
        paths.decode_log_dir_event,
        '{"version":1,"broker":2,"event":1}',
    ),
    "reassignment": (
        {TopicPartition("a", 1): (2, 3)},
        paths.encode_reassignment,
        paths.decode_reassignment,
        '{"version":1,"partitions":[{"topic":"a","partition":1,"replicas":[2,3]}]}',
    ),
    "producer ids": (
        ProducerIdBlock(BrokerId(1), 0, 999),
        paths.encode_producer_id_block,
        paths.decode_producer_id_block,
        '{"version":1,"broker":1,"block_start":"0","block_end":"999"}',
    ),
}


@pytest.mark.parametrize("name", GOLDENS)
def test_we_write_what_kafka_writes_and_read_it(name: str) -> None:
    value, encode, decode, golden = GOLDENS[name]
    assert json.loads(encode(value)) == json.loads(golden)
    assert decode(golden.encode()) == value
    assert decode(encode(value)) == value


def test_a_topic_id_is_written_as_kafkas_uuid_is() -> None:
    """URL-safe base64 without padding; the bytes 0 to 15 show the order."""
    uuid = UUID(bytes=bytes(range(16)))
    assert paths.uuid_to_text(uuid) == "AAECAwQFBgcICQoLDA0ODw"
    assert paths.uuid_from_text("AAECAwQFBgcICQoLDA0ODw") == uuid
    for bad in ("", "AAECAwQFBgcICQoLDA0O", "AAECAwQFBgcICQoLDA0O!!", "é" * 22):
        with pytest.raises(ValueError, match=r"base64 UUID|bytes, a UUID has 16"):
            paths.uuid_from_text(bad)


def test_whose_a_broker_is_its_registration_shows() -> None:
    """Those of 0.2.0 did not say so, and have directory ids; Apache Kafka's have neither on ZooKeeper."""
    registration = (
        b'{"version":5,"host":"h","port":1,"endpoints":["PLAINTEXT://h:1"],"jmx_port":-1,"timestamp":"5"'
    )
    ours = paths.encode_broker(BrokerRegistration((Endpoint("PLAINTEXT", "h", 1),), 5, directory_ids=("a",)))
    found = {
        name: paths.decode_broker(1, data)
        for name, data in (
            ("kafka", registration + b"}"),
            ("0.2", registration + b',"directory_ids":["a"]}'),
            ("ours", ours),
        )
    }
    assert [name for name, each in found.items() if each.is_kafka] == ["kafka"]
    assert [name for name, each in found.items() if each.is_of_0_2] == ["0.2"]


def test_older_versions_are_read() -> None:
    old_topic = paths.decode_topic("t", b'{"version":1,"partitions":{"0":[1]}}')
    assert old_topic == TopicAssignment(None, {0: ReplicaAssignment((1,))})
    v1 = b'{"version":1,"host":"h","port":9092,"jmx_port":9999,"timestamp":"22"}'
    assert paths.decode_broker(1, v1) == BrokerRegistration(
        (Endpoint("PLAINTEXT", "h", 9092),), 22, jmx_port=9999, is_kafka=True
    )
    v2 = (
        b'{"version":2,"host":"h","port":9092,"jmx_port":9999,"timestamp":"22",'
        b'"endpoints":["PLAINTEXT://h:9092","SSL://:9093"]}'
    )
    assert paths.decode_broker(1, v2).endpoints == (
        Endpoint("PLAINTEXT", "h", 9092),
        Endpoint("SSL", "", 9093, "SSL"),
    )
    assert paths.decode_controller(b'{"version":1,"brokerid":3,"timestamp":"5"}') == ControllerRegistration(
        BrokerId(3), 5
    )
    v1_change = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    assert paths.decode_config_change(v1_change) == "topics/t"


def test_empty_nodes_that_kafka_leaves_empty_are_read() -> None:
    assert paths.decode_config(b"") == {}
    no_block = paths.decode_producer_id_block(b"")
    assert no_block.last + 1 == 0, "the first block starts at 0"


@pytest.mark.parametrize(
    ("decode", "data", "message"),
    [
        (paths.decode_cluster_id, b'{"version":"1"}', "/cluster/id: .*missing required field `id`"),
        (paths.decode_cluster_id, b"", "/cluster/id: "),
        (paths.decode_cluster_id, b"\xff\xfe", "/cluster/id: "),
        (paths.decode_controller, b'{"brokerid":"1","timestamp":"5"}', "/controller: .*brokerid"),
        (paths.decode_controller, b'{"brokerid":1,"timestamp":"soon"}', "/controller: timestamp is 'soon'"),
        (paths.decode_features, b'{"features":{}}', "/feature: .*missing required field `version`"),
        (paths.decode_features, b'{"version":2,"features":{"f":"1"}}', "/feature: the level of f is '1'"),
        (paths.decode_features, b'{"version":2,"features":{"f":-1}}', "/feature: the level of f is -1"),
        (paths.decode_features, b'{"version":1,"features":{"f":{}}}', "/feature: the level of f is None"),
        (paths.decode_controller_epoch, b"seven", "/controller_epoch: the controller epoch is 'seven'"),
        (paths.decode_controller_epoch, b"\xff", "/controller_epoch: "),
        (
            lambda data: paths.decode_topic("t", data),
            b'{"partitions":{"x":[1]}}',
            "/brokers/topics/t: a partition number is 'x'",
        ),
        (
            lambda data: paths.decode_topic("t", data),
            b'{"partitions":{},"topic_id":"short"}',
            "/brokers/topics/t: topic_id: 'short'",
        ),
        (
            lambda data: paths.decode_partition_state("t", 3, data),
            b'{"leader":1,"leader_epoch":"4","controller_epoch":1,"isr":[1]}',
            r"/brokers/topics/t/partitions/3/state: .*leader_epoch",
        ),
        (
            lambda data: paths.decode_broker(1, data),
            b'{"version":4,"jmx_port":1,"endpoints":["h:9092"]}',
            "/brokers/ids/1: endpoint 'h:9092'",
        ),
        (
            lambda data: paths.decode_broker(1, data),
            b'{"version":4,"jmx_port":1,"endpoints":["A://h:9092"],"listener_security_protocol_map":{"B":"SSL"}}',
            "/brokers/ids/1: listener 'A' has no security protocol",
        ),
        (
            lambda data: paths.decode_broker(1, data),
            b'{"version":0,"jmx_port":1}',
            "/brokers/ids/1: .*version 0",
        ),
        (
            lambda data: paths.decode_config(data, "/config/topics/t"),
            b'{"config":{"a":1}}',
            "/config/topics/t: ",
        ),
        (paths.decode_config, b"[]", "/config: "),
        (paths.decode_config_change, b'{"version":3}', "/config/changes: no entity .* version 3"),
        (paths.decode_producer_id_block, b'{"broker":1,"block_start":0,"block_end":9}', "block_start"),
        (
            paths.decode_producer_id_block,
            b'{"broker":1,"block_start":"9","block_end":"3"}',
            "/latest_producer_id_block: a block from 9 to 3",
        ),
    ],
)
def test_damage_is_told_with_its_path(decode: Callable[[bytes], Any], data: bytes, message: str) -> None:
    with pytest.raises(DamagedNodeError, match=message) as raised:
        decode(data)
    assert "\n" not in str(raised.value)


def test_a_damaged_node_does_not_flood_the_log() -> None:
    with pytest.raises(DamagedNodeError) as raised:
        paths.decode_cluster_id(b"x" * 1_000_000)
    assert len(str(raised.value)) < 500


DECODERS: list[Callable[[bytes], Any]] = [decode for _, _, decode, _ in GOLDENS.values()]


@given(st.sampled_from(DECODERS), st.binary(max_size=60))
def test_no_bytes_do_worse_than_a_damaged_node(decode: Callable[[bytes], Any], data: bytes) -> None:
    try:
        decode(data)
    except DamagedNodeError:
        pass


@given(st.sampled_from(list(GOLDENS.values())), st.data())
def test_no_change_of_kafkas_json_does_worse(golden: Any, data: st.DataObject) -> None:
    _, _, decode, text = golden
    mutated = bytearray(text.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(mutated) - 1))
        mutated[position : position + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
        if not mutated:
            break
    try:
        decode(bytes(mutated))
    except DamagedNodeError:
        pass


def test_paths_are_kafkas() -> None:
    assert paths.broker_path(1) == "/brokers/ids/1"
    assert paths.topic_path("t") == "/brokers/topics/t"
    assert paths.partition_path("t", 2) == paths.partitions_path("t") + "/2"
    assert paths.partition_state_path("t", 2) == "/brokers/topics/t/partitions/2/state"
    assert paths.topic_config_path("t") == "/config/topics/t"
    assert paths.broker_config_path(1) == "/config/brokers/1"
    assert paths.broker_config_path(None) == "/config/brokers/<default>"
    assert paths.delete_topic_path("t") == "/admin/delete_topics/t"
    for path in paths.PERSISTENT_PATHS:
        validate_path(path)


@pytest.mark.parametrize("name", ["a b", "..", "x" * 250])
def test_a_topic_node_with_a_name_that_no_topic_can_have_is_damaged(name: str) -> None:
    """ZooKeeper takes it, a directory of that name would be another thing, or none."""
    with pytest.raises(DamagedNodeError, match="no topic can have this name"):
        paths.decode_topic(name, b'{"version":3,"topic_id":null,"partitions":{"0":[1]}}')
