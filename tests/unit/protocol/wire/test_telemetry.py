"""The names of the metrics that clients send."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.protocol.wire.telemetry import DamagedTelemetryError, metric_names


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def metrics_data(*names: str) -> bytes:
    """As a client writes it: with a unit beside each name, and numbers that are not read."""
    noise = varint(9 << 3) + varint(300) + varint(10 << 3 | 1) + bytes(8) + varint(11 << 3 | 5) + bytes(4)
    metrics = b"".join(field(2, noise + field(1, name.encode()) + field(3, b"ms")) for name in names)
    return field(1, field(1, b"\x0a\x00") + field(2, field(1, b"\x0a\x00") + metrics) + noise)


@given(st.lists(st.text(min_size=1, max_size=300), max_size=20))
def test_the_names_are_found_in_their_order(names: list[str]) -> None:
    assert metric_names(metrics_data(*names)) == names


def test_several_resources_in_one_message() -> None:
    assert metric_names(metrics_data("a", "b") + metrics_data("a")) == ["a", "b", "a"]
    assert metric_names(b"") == []


@given(st.binary(max_size=200))
def test_whatever_is_sent_is_read_or_refused(data: bytes) -> None:
    try:
        assert isinstance(metric_names(data), list)
    except DamagedTelemetryError:
        pass


@pytest.mark.parametrize(
    "data",
    [
        metrics_data("a")[:-1],
        b"\xff" * 10,
        b"\x0a\x05a",
        b"\x0b",
        field(1, field(2, field(2, field(1, b"\xff")))),
        b"\x09\x00",
    ],
)
def test_a_damaged_message_is_refused(data: bytes) -> None:
    with pytest.raises(DamagedTelemetryError):
        metric_names(data)
