"""Transactional producers, a connection each: all are initialized, then each has a transaction from time to
time, of one record (AddPartitionsToTxn, Produce, EndTxn).

The rate of all together is the same for each number of them: what grows is what the broker keeps.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from minikafka.errors import ErrorCode
from minikafka.network.broker_client import BrokerClient
from minikafka.protocol.wire.api_versions import ApiKey
from tests.benchmarks.group_member import RETRY_S, connect
from tests.benchmarks.scale.brokers import (
    OURS,
    Row,
    Watch,
    growth,
    limit_row,
    running_side,
    settled_mb,
    sides,
)
from tests.integration.support import confluent
from tests.integration.support.process import BrokerProcess
from tests.integration.support.wire import batch

COUNTS, QUICK_COUNTS = (10, 100, 1_000), (5, 20)
RATE = 100.0
"""Transactions a second of all."""
SECONDS, QUICK_SECONDS = 20.0, 4.0
TOPIC, PARTITIONS = "scale", 10
DEADLINE_MS = 60_000
CONNECTING_MAX = 100
CPU_MS_GROWTH_MAX = 1.5
"""What a transaction costs among the most producers, in terms of what it costs among the fewest."""
LATER = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


def run(*, quick: bool) -> list[Row]:
    rows: list[Row] = []
    for side in sides():
        curve = [measured(side, count, quick=quick) for count in (QUICK_COUNTS if quick else COUNTS)]
        rows += curve
        if side == OURS:
            rows += growth(curve, "producers", {"initializing, CPU s": 0.2, "more MB": 3.0}, most=1.25)
            ratio = curve[-1]["CPU ms a transaction"] / curve[0]["CPU ms a transaction"]
            name = f"CPU of a transaction, {curve[-1]['producers']} producers / {curve[0]['producers']}"
            rows.append(limit_row(name, ratio, "", CPU_MS_GROWTH_MAX))
    return rows


def measured(side: str, count: int, *, quick: bool) -> Row:
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory,
        running_side(side, Path(directory)) as broker,
    ):
        confluent.make_topic(broker.bootstrap, TOPIC, partitions=PARTITIONS)
        row: Row = {"part": "producers", "of": side, "producers": count}
        row |= asyncio.run(lived(broker, count, seconds=QUICK_SECONDS if quick else SECONDS))
        print(row, flush=True)
        return row


class TransactionalProducer:
    """One that does what a client of the first transactional protocol does."""

    def __init__(self, client: BrokerClient, number: int) -> None:
        self._client = client
        self._id = f"scale-{number}"
        self._partition = number % PARTITIONS
        self._producer: dict[str, Any] = {}
        self._sequence = 0

    async def _ask(self, key: ApiKey, body: dict[str, Any], version: int, code: Any) -> Any:
        while True:
            answer = await self._client.request(key, body, deadline_ms=DEADLINE_MS, version=version)
            error = ErrorCode(code(answer))
            if error not in LATER:
                assert error == ErrorCode.NONE, f"{key.name}: {error.name}"
                return answer
            await asyncio.sleep(RETRY_S)

    async def initialize(self) -> None:
        while True:  # until there is a coordinator
            body: dict[str, Any] = {"key_type": 1, "coordinator_keys": [self._id]}
            found = await self._client.request(
                ApiKey.FIND_COORDINATOR, body, deadline_ms=DEADLINE_MS, version=4
            )
            if found.coordinators[0].error_code == ErrorCode.NONE:
                break
            await asyncio.sleep(RETRY_S)
        body = {
            "transactional_id": self._id,
            "transaction_timeout": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        answer = await self._ask(ApiKey.INIT_PRODUCER_ID, body, 3, lambda answer: answer.error_code)
        self._producer = {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}

    async def transact(self) -> None:
        names = {"transactional_id": self._id, **self._producer}
        topics = [{"name": TOPIC, "partitions": [self._partition]}]
        await self._ask(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            {
                "v3_and_below_transactional_id": self._id,
                "v3_and_below_producer_id": names["producer_id"],
                "v3_and_below_producer_epoch": names["producer_epoch"],
                "v3_and_below_topics": topics,
            },
            3,
            lambda answer: (
                answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            ),
        )
        records = batch(
            [b"x" * 100],
            base_timestamp=int(time.time() * 1000),
            attributes=0x10,
            base_sequence=self._sequence,
            **self._producer,
        )
        self._sequence += 1
        await self._ask(
            ApiKey.PRODUCE,
            {
                "transactional_id": self._id,
                "acks": -1,
                "timeout": 30_000,
                "topic_data": [
                    {"name": TOPIC, "partition_data": [{"index": self._partition, "records": records}]}
                ],
            },
            9,
            lambda answer: answer.responses[0].partition_responses[0].error_code,
        )
        await self._ask(ApiKey.END_TXN, names | {"committed": True}, 3, lambda answer: answer.error_code)


async def lived(broker: BrokerProcess, count: int, *, seconds: float) -> Row:
    host, _, port = broker.bootstrap.partition(":")
    async with contextlib.AsyncExitStack() as stack:
        first = TransactionalProducer(await connect(host, int(port)), count)
        await first.initialize()  # makes the internal topic
        await first.transact()
        before_mb, may_connect = settled_mb(broker.pid), asyncio.Semaphore(CONNECTING_MAX)

        async def made(number: int) -> TransactionalProducer:
            async with may_connect:
                client = await connect(host, int(port))
            stack.push_async_callback(client.close)
            return TransactionalProducer(client, number)

        producers = await asyncio.gather(*map(made, range(count)))
        watch = Watch([broker.pid])
        await asyncio.gather(*(producer.initialize() for producer in producers))
        initialized = watch.spent()
        more_mb = settled_mb(broker.pid) - before_mb
        watch = Watch([broker.pid])
        latencies = await transactions(producers, seconds)
        spent = watch.spent()
        return {
            "initializing, s": round(initialized.seconds, 2),
            "initializing, CPU s": round(initialized.cpu_s, 2),
            "more MB": round(more_mb, 1),
            "transactions a s": round(len(latencies) / spent.seconds, 1),
            "CPU ms a transaction": round(spent.cpu_s / len(latencies) * 1000, 3),
            "p50 ms": round(statistics.median(latencies) * 1000, 2),
            "p99 ms": round(statistics.quantiles(latencies, n=100)[-1] * 1000, 2),
        }


async def transactions(producers: list[TransactionalProducer], seconds: float) -> list[float]:
    """What each took, seconds; due at fixed times."""
    latencies: list[float] = []
    interval_s = len(producers) / RATE
    began = time.perf_counter()

    async def live(number: int, producer: TransactionalProducer) -> None:
        due = began + interval_s * number / len(producers)
        while due < began + seconds:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await producer.transact()
            latencies.append(time.perf_counter() - due)
            due += interval_s

    await asyncio.gather(*(live(number, producer) for number, producer in enumerate(producers)))
    return latencies
