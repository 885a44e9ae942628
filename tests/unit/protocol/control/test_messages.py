"""What brokers tell each other survives the way through Kafka's frames, and nonsense does not."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.errors import PeerProtocolError
from minikafka.protocol.control import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    ListenerEndpoint,
    LiveBroker,
    PartitionError,
    StopReplicaPartition,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from minikafka.protocol.wire.api_versions import ADVERTISED, BETWEEN_BROKERS, CONTROL_VALUES, ApiKey
from minikafka.protocol.wire.codec import (
    decode_response,
    encode_request,
    read_request_header,
)
from minikafka.protocol.wire.control_bodies import (
    decode_of_0_2,
    encode_for_0_2,
    to_kafka,
    with_addresses,
    with_names,
)
from minikafka.protocol.wire.reading import compile_reader
from minikafka.protocol.wire.schema import MESSAGES as DEFINITIONS
from minikafka.protocol.wire.schema import MessageDefinition, schema_of
from minikafka.types import BrokerId, LeaderEpoch, TopicPartition
from tests.support.codec import decode_request, encode_response

ONE, TWO = BrokerId(1), BrokerId(2)
BROKERS = (
    LiveBroker(ONE, 17, (ListenerEndpoint("PLAINTEXT", "127.0.0.1", 9092),), "a"),
    LiveBroker(TWO, 2**40, (ListenerEndpoint("INTERNAL", "::1", 9093),), http=("::1", 8082)),
)
PARTITION = LeaderAndIsrPartition(
    "t", UUID(int=5), 3, 7, ONE, LeaderEpoch(4), (ONE,), 12, (ONE, TWO), (TWO,), (), is_new=True,
    eligible=(TWO,), last_known_leader=TWO,
)  # fmt: skip
MESSAGES: list[tuple[ApiKey, msgspec.Struct, msgspec.Struct]] = [
    (
        ApiKey.LEADER_AND_ISR,
        LeaderAndIsrRequest(ONE, 7, 17, (PARTITION,), BROKERS, is_full=True),
        LeaderAndIsrResponse(0, (PartitionError("t", 3, 56),), (("t", UUID(int=5)),)),
    ),
    (
        ApiKey.STOP_REPLICA,
        StopReplicaRequest(ONE, 7, 17, (StopReplicaPartition("t", 3, LeaderEpoch(-2), delete=True),)),
        StopReplicaResponse(11),
    ),
    (
        ApiKey.UPDATE_METADATA,
        UpdateMetadataRequest(ONE, 7, 17, (PARTITION,), BROKERS),
        UpdateMetadataResponse(77),
    ),
    (
        ApiKey.CONTROLLED_SHUTDOWN,
        ControlledShutdownRequest(TWO, 99),
        ControlledShutdownResponse(0, (TopicPartition("t", 3),)),
    ),
]


@pytest.mark.parametrize(("key", "request_body", "response_body"), MESSAGES)
def test_a_message_to_a_broker_of_0_2_arrives_as_it_was_sent(
    key: ApiKey, request_body: msgspec.Struct, response_body: msgspec.Struct
) -> None:
    frame = encode_request(
        api_key=key, api_version=0, correlation_id=9, client_id="controller-1", body=request_body
    )[4:]
    header = read_request_header(frame)
    assert (header.api_key, header.correlation_id, header.client_id) == (key, 9, "controller-1")
    found = decode_request(header, frame)
    if isinstance(found, UpdateMetadataRequest):  # which of them are of 0.2.0 it does not say
        assert all(each.is_of_0_2 for each in found.live_brokers)
        brokers = tuple(msgspec.structs.replace(each, is_of_0_2=False) for each in found.live_brokers)
        found = msgspec.structs.replace(found, live_brokers=brokers)
    assert found == request_body

    answer = encode_response(api_key=key, api_version=0, correlation_id=9, body=response_body)
    assert int.from_bytes(answer[:4], "big") == len(answer) - 4
    assert decode_response(api_key=key, api_version=0, frame=answer[4:]) == (9, response_body)


def over_the_wire(key: ApiKey, version: int, body: msgspec.Struct, direction: str) -> Any:
    if direction == "request":
        frame = encode_request(
            api_key=key, api_version=version, correlation_id=9, client_id="controller-1", body=body
        )[4:]
        return decode_request(read_request_header(frame), frame)
    frame = encode_response(api_key=key, api_version=version, correlation_id=9, body=body)[4:]
    return decode_response(api_key=key, api_version=version, frame=frame)[1]


def as_kafka_has_it(body: Any) -> Any:
    """What Kafka's messages have no place for, and these brokers do not need, is gone."""
    match body:
        case LeaderAndIsrRequest():  # more of live brokers is in UpdateMetadata
            leaders = tuple(
                LiveBroker(each.node_id, -1, (ListenerEndpoint("", endpoint.host, endpoint.port),))
                for each in body.live_leaders
                for endpoint in each.endpoints
            )
            states = tuple(msgspec.structs.replace(each, last_known_leader=-1) for each in body.partitions)
            return msgspec.structs.replace(body, live_leaders=leaders, partitions=states)
        case UpdateMetadataRequest():
            states = tuple(
                msgspec.structs.replace(each, adding_replicas=(), removing_replicas=(), is_new=False)
                for each in body.partitions
            )
            return msgspec.structs.replace(body, partitions=states)
        case LeaderAndIsrResponse():
            by_id = {name: str(topic_id) for name, topic_id in body.topic_ids}
            errors = tuple(each._replace(topic=by_id[each.topic]) for each in body.partitions)
            return LeaderAndIsrResponse(body.error_code, errors)
    return body


@pytest.mark.parametrize(("key", "request_body", "response_body"), MESSAGES)
def test_a_message_in_kafkas_newest_version_arrives_as_it_was_sent(
    key: ApiKey, request_body: msgspec.Struct, response_body: msgspec.Struct
) -> None:
    version = BETWEEN_BROKERS[key].max
    assert over_the_wire(key, version, request_body, "request") == as_kafka_has_it(request_body)
    assert over_the_wire(key, version, response_body, "response") == as_kafka_has_it(response_body)


@pytest.mark.parametrize(("key", "request_body", "response_body"), MESSAGES)
def test_answers_are_in_the_version_of_the_request(
    key: ApiKey, request_body: msgspec.Struct, response_body: Any
) -> None:
    for version in range(1, BETWEEN_BROKERS[key].max + 1):
        found = over_the_wire(key, version, response_body, "response")
        has_ids = key == ApiKey.LEADER_AND_ISR and version >= 5
        if has_ids:
            assert found == as_kafka_has_it(response_body)
        else:
            assert found.error_code == response_body.error_code
            assert getattr(found, "partitions", ()) == getattr(response_body, "partitions", ())


@pytest.mark.parametrize("version", [1, 4])
def test_a_controller_from_before_topic_ids_is_not_followed(version: int) -> None:
    state: dict[str, Any] = {
        "partition_index": 0,
        "controller_epoch": 1,
        "leader": 1,
        "leader_epoch": 1,
        "isr": (1,),
        "partition_epoch": 1,
        "replicas": (1,),
    }
    moving = {"adding_replicas": (), "removing_replicas": ()}
    states = {
        1: {"ungrouped_partition_states": [{**state, "topic_name": "t"}]},
        4: {"topic_states": [{"topic_name": "t", "partition_states": [state | moving]}]},
    }
    body = {"controller_id": 1, "controller_epoch": 1, "live_leaders": [], **states[version]}
    frame = encode_request(
        api_key=ApiKey.LEADER_AND_ISR, api_version=version, correlation_id=9, client_id=None, body=body
    )[4:]
    with pytest.raises(PeerProtocolError, match=r"topic t has no id: a controller from before Kafka 2\.8"):
        decode_request(read_request_header(frame), frame)


def test_stop_replica_before_leader_epochs() -> None:
    body = {
        "controller_id": 1,
        "controller_epoch": 7,
        "broker_epoch": 17,
        "delete_partitions": True,
        "topics": [{"name": "t", "partition_indexes": [3, 4]}],
    }
    frame = encode_request(
        api_key=ApiKey.STOP_REPLICA, api_version=2, correlation_id=9, client_id=None, body=body
    )[4:]
    assert decode_request(read_request_header(frame), frame) == StopReplicaRequest(
        ONE, 7, 17, tuple(StopReplicaPartition("t", index, delete=True) for index in (3, 4))
    )


def test_an_answer_that_has_ids_for_names_is_read_beside_its_request() -> None:
    request = LeaderAndIsrRequest(ONE, 7, 17, (PARTITION,), ())
    strange = PartitionError(str(UUID(int=6)), 0, 3)
    response = LeaderAndIsrResponse(0, (PartitionError(str(UUID(int=5)), 3, 56), strange))
    assert with_names(response, request).partitions == (PartitionError("t", 3, 56),)
    named = LeaderAndIsrResponse(0, (PartitionError("t", 3, 56),))
    assert with_names(named, request).partitions == named.partitions


def test_a_controller_of_kraft_is_not_followed() -> None:
    body = to_kafka(LeaderAndIsrRequest(ONE, 7, 17, (), ())) | {"is_k_raft_controller": True}
    frame = encode_request(
        api_key=ApiKey.LEADER_AND_ISR, api_version=7, correlation_id=9, client_id=None, body=body
    )[4:]
    with pytest.raises(PeerProtocolError, match="controller 1 is one of KRaft"):
        decode_request(read_request_header(frame), frame)


def test_each_leader_has_the_address_that_brokers_use() -> None:
    two = (ListenerEndpoint("PUBLIC", "a", 1), ListenerEndpoint("INTERNAL", "b", 2))
    request = LeaderAndIsrRequest(ONE, 7, 17, (), (LiveBroker(ONE, 3, two), LiveBroker(TWO, 4, two[:1])))
    assert with_addresses(request, "INTERNAL").live_leaders == (LiveBroker(ONE, 3, two[1:]),)


def test_what_only_these_brokers_have_is_skipped_by_kafkas() -> None:
    """Tagged fields that a schema does not know are skipped: with them, and without, it reads the same."""
    request = UpdateMetadataRequest(ONE, 7, 17, (PARTITION,), BROKERS)
    plain = msgspec.structs.replace(
        request,
        partitions=(msgspec.structs.replace(PARTITION, eligible=(), last_known_leader=BrokerId(-1)),),
        live_brokers=tuple(msgspec.structs.replace(each, epoch=-1, http=None) for each in BROKERS),
    )
    lines = DEFINITIONS.read_bytes().splitlines()
    line = next(each for each in lines if each.startswith(b'{"apiKey":6,"type":"request"'))
    kafkas = compile_reader(schema_of(msgspec.json.decode(line, type=MessageDefinition), 8).body)

    def read_by_kafka(body: UpdateMetadataRequest) -> Any:
        frame = encode_request(
            api_key=ApiKey.UPDATE_METADATA, api_version=8, correlation_id=9, client_id="c", body=body
        )[4:]
        return kafkas(memoryview(frame), read_request_header(frame).body_start, [1000])[0]

    assert read_by_kafka(request) == read_by_kafka(plain)
    assert over_the_wire(ApiKey.UPDATE_METADATA, 8, plain, "request").live_brokers == plain.live_brokers


@pytest.mark.parametrize("key", sorted(CONTROL_VALUES))
def test_nonsense_is_the_peers_fault(key: ApiKey) -> None:
    frame = int(key).to_bytes(2, "big") + bytes(2) + bytes(4) + b"\xff\xff" + b"\xc1 no MessagePack"
    with pytest.raises(PeerProtocolError, match=key.name):
        decode_request(read_request_header(frame), frame)


def test_clients_are_not_told_of_them() -> None:
    assert not BETWEEN_BROKERS.keys() & ADVERTISED.keys()


@pytest.mark.parametrize(("key", "request_body", "response_body"), MESSAGES)
@given(data=st.data())
def test_mutated_bytes_are_a_message_or_the_peers_fault(
    key: ApiKey, request_body: msgspec.Struct, response_body: msgspec.Struct, data: st.DataObject
) -> None:
    """Text that is no UTF-8 came out as UnicodeDecodeError, which is none of msgspec's own errors."""
    direction, body = data.draw(st.sampled_from([("request", request_body), ("response", response_body)]))
    changed = bytearray(encode_for_0_2(body))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(changed) - 1))
        changed[position] = data.draw(st.integers(0, 255))
    try:
        decode_of_0_2(key, direction, bytes(changed))
    except PeerProtocolError as error:
        assert key.name in str(error)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "x" * 250, "new\nline", "end\n"])
def test_a_name_that_no_topic_can_have_is_the_peers_fault(name: str) -> None:
    changed = msgspec.structs.replace(PARTITION, topic=name)
    body = encode_for_0_2(LeaderAndIsrRequest(ONE, 7, 17, (changed,), BROKERS))
    with pytest.raises(PeerProtocolError, match=r"partitions\[...\]\.topic|\[3\]"):
        decode_of_0_2(ApiKey.LEADER_AND_ISR, "request", body)


@pytest.mark.parametrize(
    "changes",
    [{"partition": -1}, {"leader_epoch": 2**31}, {"leader": -3}, {"replicas": (2**40,)}, {"isr": (-1,)}],
)
def test_a_number_that_kafkas_schema_cannot_hold_is_the_peers_fault(changes: dict[str, Any]) -> None:
    changed = msgspec.structs.replace(PARTITION, **changes)
    body = encode_for_0_2(UpdateMetadataRequest(ONE, 7, 17, (changed,), BROKERS))
    with pytest.raises(PeerProtocolError):
        decode_of_0_2(ApiKey.UPDATE_METADATA, "request", body)
