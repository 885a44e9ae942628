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
from minikafka.protocol.wire.api_versions import ADVERTISED, BETWEEN_BROKERS, ApiKey
from minikafka.protocol.wire.codec import (
    decode_response,
    encode_request,
    read_request_header,
)
from minikafka.protocol.wire.control_bodies import decode_body, encode_body
from minikafka.types import BrokerId, LeaderEpoch, TopicPartition
from tests.support.codec import decode_request, encode_response

ONE, TWO = BrokerId(1), BrokerId(2)
BROKERS = (
    LiveBroker(ONE, 17, (ListenerEndpoint("PLAINTEXT", "127.0.0.1", 9092),), "a"),
    LiveBroker(TWO, 2**40, (ListenerEndpoint("INTERNAL", "::1", 9093),), http=("::1", 8082)),
)
PARTITION = LeaderAndIsrPartition(
    "t", UUID(int=5), 3, 7, ONE, LeaderEpoch(4), (ONE,), 12, (ONE, TWO), (TWO,), (), is_new=True
)
MESSAGES: list[tuple[ApiKey, msgspec.Struct, msgspec.Struct]] = [
    (
        ApiKey.LEADER_AND_ISR,
        LeaderAndIsrRequest(ONE, 7, 17, (PARTITION,), BROKERS, is_full=True),
        LeaderAndIsrResponse(0, (PartitionError("t", 3, 56),)),
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
def test_a_message_arrives_as_it_was_sent(
    key: ApiKey, request_body: msgspec.Struct, response_body: msgspec.Struct
) -> None:
    frame = encode_request(
        api_key=key, api_version=0, correlation_id=9, client_id="controller-1", body=request_body
    )[4:]
    header = read_request_header(frame)
    assert (header.api_key, header.correlation_id, header.client_id) == (key, 9, "controller-1")
    assert decode_request(header, frame) == request_body

    answer = encode_response(api_key=key, api_version=0, correlation_id=9, body=response_body)
    assert int.from_bytes(answer[:4], "big") == len(answer) - 4
    assert decode_response(api_key=key, api_version=0, frame=answer[4:]) == (9, response_body)


@pytest.mark.parametrize("key", BETWEEN_BROKERS)
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
    changed = bytearray(encode_body(body))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(changed) - 1))
        changed[position] = data.draw(st.integers(0, 255))
    try:
        decode_body(key, direction, bytes(changed))
    except PeerProtocolError as error:
        assert key.name in str(error)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "x" * 250, "new\nline", "end\n"])
def test_a_name_that_no_topic_can_have_is_the_peers_fault(name: str) -> None:
    changed = msgspec.structs.replace(PARTITION, topic=name)
    body = encode_body(LeaderAndIsrRequest(ONE, 7, 17, (changed,), BROKERS))
    with pytest.raises(PeerProtocolError, match=r"partitions\[...\]\.topic|\[3\]"):
        decode_body(ApiKey.LEADER_AND_ISR, "request", body)


@pytest.mark.parametrize(
    "changes",
    [{"partition": -1}, {"leader_epoch": 2**31}, {"leader": -3}, {"replicas": (2**40,)}, {"isr": (-1,)}],
)
def test_a_number_that_kafkas_schema_cannot_hold_is_the_peers_fault(changes: dict[str, Any]) -> None:
    changed = msgspec.structs.replace(PARTITION, **changes)
    body = encode_body(UpdateMetadataRequest(ONE, 7, 17, (changed,), BROKERS))
    with pytest.raises(PeerProtocolError):
        decode_body(ApiKey.UPDATE_METADATA, "request", body)
