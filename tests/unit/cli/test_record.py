"""What is in a recording, and what is never in it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from minikafka.cli.record import (
    FORMAT,
    VERSION,
    Disguise,
    Head,
    RecordingError,
    Request,
    Response,
    read,
    without_secrets,
)
from minikafka.protocol.records.batch import crc_is_valid, iterate_headers
from minikafka.protocol.records.compression import CompressionType
from minikafka.protocol.records.records import Record, build_batch, iterate_records

HEAD = Head(FORMAT, VERSION, "hidden", [1])
REQUEST = Request(0, 1.5, 0, None, "c", "METADATA", 12, {"topics": None})


def write(path: Path, *lines: object) -> Path:
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return path


@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.ZSTD])
def test_disguised_records_keep_their_shape_and_equal_ones_stay_equal(compression: CompressionType) -> None:
    records = [
        Record(0, 5, b"anna", b"private", (("trace", b"id"),)),
        Record(1, 6, b"anna", None),
        Record(2, 7, None, b""),
        Record(3, 8, b"berta", b"private"),
    ]
    data = build_batch(records, compression=compression, producer_id=3, producer_epoch=1, base_sequence=9)
    body = Disguise().of_body({"topic_data": [{"partition_data": [{"index": 0, "records": data}]}]})
    hidden = body["topic_data"][0]["partition_data"][0]["records"]
    ((position, header),) = iterate_headers(hidden)
    assert crc_is_valid(hidden, position, header)
    assert (header.producer_id, header.base_sequence, header.compression) == (3, 9, compression)
    one, two, three, four = iterate_records(hidden)
    assert one.key == two.key and one.key != b"anna" and len(one.key or b"") == 4
    assert one.value == four.value and one.value != b"private"
    assert (two.value, three.key, three.value) == (None, None, b"")
    assert one.headers[0][0] == "trace" and one.headers[0][1] != b"id"
    assert [each.timestamp for each in (one, two, three, four)] == [5, 6, 7, 8]


def test_what_cannot_be_read_as_records_is_not_kept_either() -> None:
    assert Disguise().of_body({"records": b"anna" * 30}) == {"records": bytes(120)}


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [("listener.name.x.ssl.keystore.password", True), ("sasl.jaas.config", True), ("retention.ms", False)],
)
def test_values_of_secret_properties_are_hidden(name: str, is_secret: bool) -> None:
    body = without_secrets(
        {"resources": [{"configs": [{"name": name, "value": "x", "config_operation": 0}]}]}
    )
    (config,) = body["resources"][0]["configs"]
    assert config == {"name": name, "value": "hidden" if is_secret else "x", "config_operation": 0}


def test_a_line_that_the_recorder_could_not_finish_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "r", HEAD, REQUEST, Response(0, 2.0, {"brokers": []}))
    with path.open("ab") as file:
        file.write(b'{"type":"request","numb')
    head, events = read(path)
    assert head == HEAD
    assert list(events) == [REQUEST, Response(0, 2.0, {"brokers": []})]


def test_a_broken_line_and_another_version_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "r", HEAD, REQUEST, {"type": "nothing"})
    with pytest.raises(RecordingError, match=r"r, line 3: "):
        list(read(path)[1])
    with pytest.raises(RecordingError, match="has version 99 of recordings, this minikafka reads 1"):
        read(write(tmp_path / "s", Head(FORMAT, 99, "hidden", [])))
