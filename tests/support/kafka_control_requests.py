"""The requests between a controller and its brokers as Apache Kafka 3.9, the last that has them, reads them.

This project's own have other bodies (``minikafka.protocol.control``). Here they are empty of partitions, and
meant for a broker that has been started again since: enough to see who may send them, and harmless.

Kafka: ``LeaderAndIsrRequest.json`` and its siblings.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from minikafka.protocol.wire.api_versions import ApiKey

_EMPTY: Final = "array"
_NEVER: Final = 99


class _Field(NamedTuple):
    kind: str
    """A format of ``struct``, or an array, which is empty."""
    value: int = 0
    first: int = 0
    last: int = _NEVER
    """The versions that have it."""


class _Message(NamedTuple):
    version_max: int
    flexible_since: int
    fields: tuple[_Field, ...]
    version_min: int = 0
    error_code_at: int = 0
    """In the body of a response: behind the throttle time, where there is one."""


_CONTROLLER, _CONTROLLER_EPOCH = _Field(">i", 1), _Field(">i", 0)


def _is_kraft(since: int) -> _Field:
    return _Field(">?", 0, since)


def _broker_epoch(since: int) -> _Field:
    return _Field(">q", 0, since)


_MESSAGES: Final[Mapping[ApiKey, _Message]] = {
    ApiKey.LEADER_AND_ISR: _Message(
        7,
        4,
        (
            *(_CONTROLLER, _is_kraft(7), _CONTROLLER_EPOCH, _broker_epoch(2), _Field(">b", 0, 5)),
            *(_Field(_EMPTY, 0, 0, 1), _Field(_EMPTY, 0, 2), _Field(_EMPTY)),
        ),
    ),
    ApiKey.STOP_REPLICA: _Message(
        4,
        2,
        (
            *(_CONTROLLER, _is_kraft(4), _CONTROLLER_EPOCH, _broker_epoch(1), _Field(">?", 0, 0, 2)),
            _Field(_EMPTY),
        ),
    ),
    ApiKey.UPDATE_METADATA: _Message(
        8,
        6,
        (_CONTROLLER, _is_kraft(8), _CONTROLLER_EPOCH, _broker_epoch(5), _Field(_EMPTY), _Field(_EMPTY)),
    ),
    ApiKey.CONTROLLED_SHUTDOWN: _Message(3, 3, (_Field(">i", 99), _broker_epoch(2))),
    ApiKey.ALTER_PARTITION: _Message(
        3, 0, (_Field(">i", 99), _broker_epoch(0), _Field(_EMPTY)), version_min=2, error_code_at=4
    ),
    ApiKey.ALLOCATE_PRODUCER_IDS: _Message(0, 0, (_Field(">i", 99), _broker_epoch(0)), error_code_at=4),
}


def versions(api: ApiKey) -> range:
    """Those of Kafka 3.9."""
    return range(_MESSAGES[api].version_min, _MESSAGES[api].version_max + 1)


def request(api: ApiKey, version: int, correlation_id: int) -> bytes:
    """A frame without its size."""
    message = _MESSAGES[api]
    is_flexible = version >= message.flexible_since
    frame = struct.pack(">hhi", api, version, correlation_id)
    if not (api == ApiKey.CONTROLLED_SHUTDOWN and version == 0):  # whose header is the only one of version 0
        frame += struct.pack(">h4s", 4, b"test")
    tags = bytes(is_flexible)
    frame += tags
    for field in message.fields:
        if field.first <= version <= field.last:
            if field.kind == _EMPTY:
                frame += b"\x01" if is_flexible else bytes(4)
            else:
                frame += struct.pack(field.kind, field.value)
    return frame + tags


def error_code(api: ApiKey, version: int, response: bytes) -> int:
    """Of a frame without its size."""
    header_bytes = 5 if version >= _MESSAGES[api].flexible_since else 4
    start = header_bytes + _MESSAGES[api].error_code_at
    return int.from_bytes(response[start : start + 2], "big", signed=True)
