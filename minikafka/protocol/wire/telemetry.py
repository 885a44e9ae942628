"""The metrics that clients send (KIP-714): the names in an OpenTelemetry ``MetricsData`` message.

Protocol buffers, read just far enough: ``MetricsData.resource_metrics`` (1) → ``scope_metrics`` (2) →
``metrics`` (2) → ``name`` (1). Everything else is stepped over and not looked at. Kafka hands the bytes to a
plugin and reads none of them.

Invariant: reading stays within the bytes of the message and costs time in proportion to them.
"""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_VARINT_BYTES_MAX = 10
_TO_METRICS = (1, 2, 2)
_NAME = 1


class DamagedTelemetryError(ValueError):
    """Not a ``MetricsData`` message."""


def metric_names(data: bytes | bytearray) -> list[str]:
    """The names of the metrics in ``data``, in order, with repetitions.

    Raises:
        DamagedTelemetryError: it is cut short, or not in the format.
    """
    messages: list[memoryview] = [memoryview(data)]
    for field in _TO_METRICS:
        messages = [inner for message in messages for inner in _fields(message, field)]
    try:
        return [bytes(name).decode() for message in messages for name in _fields(message, _NAME)]
    except UnicodeDecodeError as error:
        raise DamagedTelemetryError(f"a metric's name is not text: {error}") from None


def _fields(message: memoryview, wanted: int) -> Iterator[memoryview]:
    """The contents of the fields with the number ``wanted`` that hold bytes."""
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        kind = tag & 7
        if kind == _BYTES:
            size, start = _varint(message, position)
            position = start + size
            if tag >> 3 == wanted and position <= len(message):
                yield message[start:position]
        elif kind == _VARINT:
            _, position = _varint(message, position)
        elif kind == _FIXED_64:
            position += 8
        elif kind == _FIXED_32:
            position += 4
        else:
            raise DamagedTelemetryError(f"there is no wire type {kind}")
    if position > len(message):
        raise DamagedTelemetryError("a field goes beyond the end of its message")


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    """The number at ``position``, and where it ends."""
    value = 0
    for index, byte in enumerate(message[position : position + _VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise DamagedTelemetryError("a number has no end")
