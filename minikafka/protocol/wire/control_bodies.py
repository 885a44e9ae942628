"""The bodies of keys 4 to 7 as bytes: MessagePack behind Kafka's ordinary headers."""

from __future__ import annotations

from typing import Any

import msgspec

from minikafka.errors import UNDECODABLE, PeerProtocolError
from minikafka.protocol.control import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.types import Buffer

_DECODERS: dict[tuple[int, str], msgspec.msgpack.Decoder[Any]] = {
    (ApiKey.LEADER_AND_ISR, "request"): msgspec.msgpack.Decoder(LeaderAndIsrRequest),
    (ApiKey.LEADER_AND_ISR, "response"): msgspec.msgpack.Decoder(LeaderAndIsrResponse),
    (ApiKey.STOP_REPLICA, "request"): msgspec.msgpack.Decoder(StopReplicaRequest),
    (ApiKey.STOP_REPLICA, "response"): msgspec.msgpack.Decoder(StopReplicaResponse),
    (ApiKey.UPDATE_METADATA, "request"): msgspec.msgpack.Decoder(UpdateMetadataRequest),
    (ApiKey.UPDATE_METADATA, "response"): msgspec.msgpack.Decoder(UpdateMetadataResponse),
    (ApiKey.CONTROLLED_SHUTDOWN, "request"): msgspec.msgpack.Decoder(ControlledShutdownRequest),
    (ApiKey.CONTROLLED_SHUTDOWN, "response"): msgspec.msgpack.Decoder(ControlledShutdownResponse),
}
_ENCODER = msgspec.msgpack.Encoder()


def encode_body(body: msgspec.Struct) -> bytes:
    return _ENCODER.encode(body)


def decode_body(api_key: int, direction: str, data: Buffer) -> Any:
    """The struct of ``messages`` that ``data`` holds.

    Raises:
        PeerProtocolError: it holds no such thing.
    """
    try:
        return _DECODERS[api_key, direction].decode(data)
    except UNDECODABLE as error:
        raise PeerProtocolError(f"malformed: {ApiKey(api_key).name} {direction}: {error}") from error
