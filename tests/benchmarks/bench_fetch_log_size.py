"""Whether a fetch costs more in a large log: the same fetches on a log of one segment and on one of
thousands.

The large log has as many segments as 10 GB in segments of 4 MB; they are of 1 MB, the least that Kafka
allows. Fetches of one record batch at random offsets, one after another over one connection, warm; both
logs in the same broker, in turns.
"""

from __future__ import annotations

import asyncio
import random
import socket
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minikafka.network.broker_client import BrokerClient
from minikafka.protocol.records.records import Record, build_batch
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.codec import encode_request
from tests.benchmarks.broker import running_broker

SEGMENTS = 2500
BATCHES_PER_SEGMENT = 51
RECORDS_PER_BATCH = 20
VALUE_BYTES = 1024
FETCHES = 3000
PIPELINE = 10
ROUNDS = 7
ASKED = 1.3
DEADLINE_MS = 60_000
VERSION = 12


def run(quick: bool) -> list[dict[str, Any]]:
    """One row a log, and the ratio of their rates."""
    segments = SEGMENTS // (10 if quick else 1)
    fetches = FETCHES // (10 if quick else 1)
    with tempfile.TemporaryDirectory() as directory, running_broker(Path(directory)) as broker:
        return asyncio.run(measure(broker.port, segments, fetches))


async def measure(port: int, segments: int, fetches: int) -> list[dict[str, Any]]:
    client = await BrokerClient.connect("127.0.0.1", port, client_id="bench", deadline_ms=DEADLINE_MS)
    batch = build_batch([Record(i, 1, None, b"x" * VALUE_BYTES, ()) for i in range(RECORDS_PER_BATCH)])
    segment_bytes = len(batch) * BATCHES_PER_SEGMENT
    logs = {
        "one segment": await fill(client, "small", batch, 64, {}),
        f"{segments:,} segments": await fill(
            client, "large", batch, segments * BATCHES_PER_SEGMENT, {"segment.bytes": str(segment_bytes)}
        ),
    }
    await client.close()
    rng = random.Random(1)
    rates: dict[str, list[float]] = {name: [] for name in logs}
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(ROUNDS):
            for name, (topic, end_offset) in logs.items():
                requests = [
                    fetch_request(topic, rng.randrange(end_offset), len(batch)) for _ in range(fetches)
                ]
                started = time.perf_counter()
                exchange(connection, requests)
                rates[name].append(fetches / (time.perf_counter() - started))
    small, large = (statistics.median(values) for values in rates.values())
    rows = [
        {
            "name": name,
            "value": round(statistics.median(values)),
            "unit": "fetches/s",
            "asked": "",
            "ok": True,
        }
        for name, values in rates.items()
    ]
    ratio = small / large
    return [
        *rows,
        {
            "name": "cost in the large log / in the small one",
            "value": round(ratio, 2),
            "unit": "ratio",
            "asked": f"<= {ASKED}",
            "ok": ratio <= ASKED,
        },
    ]


async def fill(
    client: BrokerClient, topic: str, batch: bytes, batches: int, configs: dict[str, str]
) -> tuple[str, int]:
    """Make a topic and append ``batches`` to it. Returns its name and its end offset."""
    body = {
        "topics": [
            {
                "name": topic,
                "num_partitions": 1,
                "replication_factor": 1,
                "assignments": [],
                "configs": [{"name": name, "value": value} for name, value in configs.items()],
            }
        ],
        "timeout": DEADLINE_MS,
        "validate_only": False,
    }
    answer = await client.request(ApiKey.CREATE_TOPICS, body, deadline_ms=DEADLINE_MS)
    if answer.topics[0].error_code:
        raise RuntimeError(f"cannot create {topic}: {answer.topics[0]}")
    partition = {"index": 0, "records": batch}
    produce = {
        "transactional_id": None,
        "acks": 1,
        "timeout": DEADLINE_MS,
        "topic_data": [{"name": topic, "partition_data": [partition]}],
    }
    for _ in range(batches):
        answer = await client.request(ApiKey.PRODUCE, produce, version=VERSION, deadline_ms=DEADLINE_MS)
        if answer.responses[0].partition_responses[0].error_code:
            raise RuntimeError(f"cannot produce to {topic}: {answer}")
    return topic, batches * RECORDS_PER_BATCH


def fetch_request(topic: str, offset: int, max_bytes: int) -> bytes:
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": max_bytes,
    }
    body = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": max_bytes,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    return encode_request(
        api_key=ApiKey.FETCH, api_version=VERSION, correlation_id=1, client_id="bench", body=body
    )


def exchange(connection: socket.socket, requests: Sequence[bytes]) -> None:
    """Send the requests, ``PIPELINE`` at a time, and take their answers. The least that a client can do.

    Raises:
        RuntimeError: an answer holds no batch.
    """
    stream = connection.makefile("rb")
    for start in range(0, len(requests), PIPELINE):
        pipeline = requests[start : start + PIPELINE]
        connection.sendall(b"".join(pipeline))
        for _ in pipeline:
            size = int.from_bytes(stream.read(4), "big")
            if len(stream.read(size)) < VALUE_BYTES:
                raise RuntimeError(f"an answer of {size} bytes holds no records")
