"""Frames: requests of every API and version that the broker reads, and responses that its own client
reads."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, Final
from uuid import UUID

from minikafka.errors import PeerProtocolError
from minikafka.network.frame_reader import FrameReader
from minikafka.protocol.wire.api_versions import ANSWERED, BETWEEN_BROKERS, ApiKey
from minikafka.protocol.wire.codec import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    read_request_header,
)
from minikafka.protocol.wire.request_patterns import FetchPattern, produce_pattern
from minikafka.protocol.wire.schema import EntitySchema, FieldSchema, message_schema
from minikafka.protocol.wire.telemetry import DamagedTelemetryError, metric_names
from minikafka.steps import finish
from tests.fuzz.target import Target

_API: Final = struct.Struct(">hh")
_FRAME_BYTES_MAX: Final = 1 << 20
_BY_KEY: Final = ANSWERED | BETWEEN_BROKERS
ALL: Final = [(key, version) for key, (low, high) in _BY_KEY.items() for version in range(low, high + 1)]


def _request(data: bytes) -> object:
    header = read_request_header(data)
    low, high = _BY_KEY.get(ApiKey(header.api_key), (0, -1)) if header.api_key in _BY_KEY else (0, -1)
    if not low <= header.api_version <= high:
        return None
    request = finish(decode_request(header, data))
    if header.api_key == ApiKey.PRODUCE:
        pattern: Any = produce_pattern(header, request, memoryview(data))
        return pattern is not None and pattern.cut(memoryview(data))
    if header.api_key == ApiKey.FETCH:
        pattern = FetchPattern.of(header, request, memoryview(data))
        return pattern is not None and pattern.matches(memoryview(data))
    return request


def _response(data: bytes) -> object:
    """The input begins with the API key and version that were asked for."""
    if len(data) < _API.size:
        return None
    key, version = _API.unpack_from(data)
    low, high = _BY_KEY.get(ApiKey(key), (0, -1)) if key in _BY_KEY else (0, -1)
    if not low <= version <= high:
        return None
    return decode_response(api_key=key, api_version=version, frame=data[_API.size :])


def _frames(data: bytes) -> object:
    """However a stream is cut into chunks, the frames are those of one chunk."""
    if not data:
        return None
    whole = FrameReader(frame_bytes_max=_FRAME_BYTES_MAX)
    expected = [bytes(frame) for frame in whole.feed(data[1:])]
    cut = FrameReader(frame_bytes_max=_FRAME_BYTES_MAX, keeps_buffer=bool(data[0] & 1))
    size, found = (data[0] >> 1) + 1, []
    for start in range(1, len(data), size):
        found += [bytes(frame) for frame in cut.feed(data[start : start + size])]
    assert found == expected and (cut.error is None) == (whole.error is None)
    return found


def _value(field: FieldSchema, filled: bool) -> Any:
    if field.is_array:
        return [_element(field, filled)] if filled else []
    return _element(field, filled)


def _element(field: FieldSchema, filled: bool) -> Any:
    if field.entity is not None:
        return _body(field.entity, filled)
    match field.kafka_type:
        case "string":
            return "name" if filled else ""
        case "bytes" | "records":
            return b"\0\1\2" if filled else b""
        case "uuid":
            return UUID(int=7) if filled else None
        case "bool":
            return filled
        case "float64":
            return 1.5
    return int(filled)


def _body(schema: EntitySchema, filled: bool) -> dict[str, Any]:
    return {field.name: _value(field, filled) for field in schema.fields}


def _request_seeds() -> Iterator[bytes]:
    for key, version in ALL:
        if key in BETWEEN_BROKERS:
            yield struct.pack(">hhih", key, version, 1, -1) + b"\x90"
            continue
        for filled in (False, True):
            body = _body(message_schema(key, version, "request").body, filled)
            frame = encode_request(
                api_key=key, api_version=version, correlation_id=1, client_id="c", body=body
            )
            yield frame[4:]


def _response_seeds() -> Iterator[bytes]:
    for key, version in ALL:
        if key in BETWEEN_BROKERS:
            yield _API.pack(key, version) + b"\0\0\0\1\x90"
            continue
        for filled in (False, True):
            body = _body(message_schema(key, version, "response").body, filled)
            frame = finish(encode_response(api_key=key, api_version=version, correlation_id=1, body=body))
            yield _API.pack(key, version) + frame[4:]


def _frame_seeds() -> Iterable[bytes]:
    frame = struct.pack(">i", 5) + b"hello"
    return [b"\x03" + frame * 3, b"\xff" + struct.pack(">i", -1), b"\0" + b"\x16\x03\x01\x02\0" + b"x" * 20]


def _telemetry_seeds() -> Iterable[bytes]:
    def nested(data: bytes, depth: int) -> bytes:
        return (
            data
            if depth == 0
            else nested(bytes([(2 if depth < 3 else 1) << 3 | 2, len(data)]) + data, depth - 1)
        )

    return [nested(b"\x0a\x04name", depth) for depth in range(4)]


TARGETS: Final = (
    Target("request", _request, (PeerProtocolError,), _request_seeds),
    Target("response", _response, (PeerProtocolError,), _response_seeds),
    Target("frames", _frames, (), _frame_seeds),
    Target("telemetry", metric_names, (DamagedTelemetryError,), _telemetry_seeds),
)
