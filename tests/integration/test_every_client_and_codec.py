"""Every stock client writes with every codec, and every stock client reads all of it: nothing may differ."""

from __future__ import annotations

import time
from typing import NamedTuple

import pytest

from tests.integration.conftest import CLIENTS
from tests.integration.support.clients import Client, Kcat
from tests.integration.support.process import BrokerProcess
from tests.integration.support.records import CODECS, Consumed, Record, every_shape


class Written(NamedTuple):
    writer: str
    records: list[Record]
    not_before_ms: int
    not_after_ms: int


def records_for(client: Client) -> list[Record]:
    """All shapes that the client can write, with what it cannot set left to it."""
    records = [record for record in every_shape() if client.can_write(record)]
    if client.name == "kcat":
        # Sorted by what one run of kcat gives to all of its records, to spare it two hundred runs.
        records = [
            record._replace(timestamp_ms=None) for record in records if record.headers[:1] != (("i", b"0"),)
        ]
        records = [record for record in records if not record.headers or record.headers[0][0] != "i"]
    return records


@pytest.fixture(scope="session")
def written(shared_broker: BrokerProcess, clients: dict[str, Client]) -> dict[str, Written]:
    """Topic → what was written to it, one topic for each client and codec."""
    topics: dict[str, Written] = {}
    for name, client in clients.items():
        records = records_for(client)
        writes = {f"codec-{name}-{codec}": (codec, records) for codec in client.codecs}
        start_ms = int(time.time() * 1000)
        client.write_all(shared_broker.bootstrap, writes)
        end_ms = int(time.time() * 1000)
        topics |= {topic: Written(name, records, start_ms, end_ms) for topic in writes}
    return topics


@pytest.mark.parametrize("reader", CLIENTS)
def test_reads_what_every_client_wrote_with_every_codec(
    broker: BrokerProcess, clients: dict[str, Client], written: dict[str, Written], reader: str
) -> None:
    assert {topic.rsplit("-", 1)[1] for topic in written} == set(CODECS)
    found = clients[reader].read_all(
        broker.bootstrap, {topic: len(w.records) for topic, w in written.items()}
    )
    for topic, (writer, records, not_before_ms, not_after_ms) in written.items():
        consumed = found[topic]
        assert [record.offset for record in consumed] == list(range(len(records))), f"{writer} → {reader}"
        expected = [Kcat.headers_as_text(record) for record in records] if reader == "kcat" else records
        for got, wanted in zip(consumed, expected, strict=True):
            assert got.content == wanted[:3], f"{topic} at {got.offset}"
            if wanted.timestamp_ms is None:
                assert not_before_ms <= got.timestamp_ms <= not_after_ms, f"{topic} at {got.offset}"
            else:
                assert got.timestamp_ms == wanted.timestamp_ms, f"{topic} at {got.offset}"


def test_a_topics_compression_type_replaces_the_producers(
    broker: BrokerProcess, clients: dict[str, Client], topic: str
) -> None:
    """compression.type=zstd on the topic: what arrives as gzip is stored, and served, as zstd."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config={"compression.type": "zstd"})])[topic].result(60)
    records = every_shape()
    clients["confluent-kafka"].write_all(broker.bootstrap, {topic: ("gzip", records)})
    consumed: list[Consumed] = clients["confluent-kafka"].read_all(broker.bootstrap, {topic: len(records)})[
        topic
    ]
    assert [(*got.content, got.timestamp_ms) for got in consumed] == [tuple(record) for record in records]
    (segment,) = broker.files(topic, ".log")
    codec_of_first_batch = int.from_bytes(segment.read_bytes()[21:23], "big") & 7
    assert codec_of_first_batch == CODECS.index("zstd")
