"""What each fast path is worth: the same requests to a broker with it and to one without, in turns.

Produce: one record of 1 KB a request. Fetch: without a session, 100 KB of one partition. Heartbeat: the CPU
that one costs, of which idle groups send nothing else. Each round has new processes; ``value`` is the median
of the rounds, of what the path brings: how much of the requests a second (or of the CPU for a request,
upside down) there is without it. 1.05 at least earns a path its place. The pace of catching up is measured by
``catch_up``.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.codec import encode_request
from minikafka.server.runtime.fast_paths import FastPath
from tests.benchmarks.group_member import Member, connect, coordinator_of
from tests.benchmarks.paired_produce import Load, Workload, in_turns
from tests.integration.support.process import BrokerProcess

MODULE = "tests.benchmarks.slow_path_broker"
TOPIC, GROUP = "bench", "bench"
PRODUCE = Workload("produce", 1, 5, 1, 1024)
STORED = Workload("stored", 1, 1, 1, 1024)
EARNED = 1.05
ROUNDS, TURNS, TURN_SECONDS = 8, 9, 0.3


class Finished(NamedTuple):
    """A load of requests that are the same for as long as the broker lives; as ``Workload``."""

    bytes_: bytes
    connections: int = 1
    in_flight: int = 5

    def frame(self, topic: str) -> bytes:
        return self.bytes_


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows of name, value, unit, asked, ok."""
    rows = []
    for path in (FastPath.PRODUCE, FastPath.FETCH, FastPath.HEARTBEAT):
        rates, cpus = [], []
        for _ in range(2 if quick else ROUNDS):
            rate, cpu = one_round(path, turns=3 if quick else TURNS)
            rates.append(rate)
            cpus.append(cpu)
        for unit, values in (("rate", rates), ("CPU", cpus)):
            value = statistics.median(values)
            rows.append(
                {
                    "name": f"{path.value}, {unit}: with the fast path to without",
                    "value": round(value, 3),
                    "unit": "×",
                    "low": round(min(values), 3),
                    "high": round(max(values), 3),
                    "asked": f"≥ {EARNED}",
                    "ok": value >= EARNED,
                }
            )
    return rows


def one_round(path: FastPath, *, turns: int) -> tuple[float, float]:
    """How many times the requests a second, and how many times less CPU for one."""
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        loads = {}
        for name, without in (("with", ""), ("without", path.value)):
            broker = BrokerProcess(
                Path(directory) / name,
                command=["/usr/bin/env", f"WITHOUT={without}", sys.executable, "-m", MODULE],
            )
            broker.start()
            stack.callback(broker.kill)
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(60)
            loads[name] = Load(broker.port, broker.pid, workload(path, broker), TOPIC)
            stack.callback(loads[name].close)
        for load in loads.values():
            load.turn(1.0)  # the interpreter gets to know the code
        pairs = list(in_turns(loads, times=turns, seconds=TURN_SECONDS))
    return (
        statistics.median(each["with"].requests_per_s / each["without"].requests_per_s for each in pairs),
        statistics.median(each["without"].cpu_us / each["with"].cpu_us for each in pairs),
    )


def workload(path: FastPath, broker: BrokerProcess) -> Any:
    if path is FastPath.PRODUCE:
        return PRODUCE
    if path is FastPath.FETCH:
        store = Load(broker.port, broker.pid, STORED, TOPIC)
        store.turn(0.5)
        store.close()
        return Finished(fetch(AdminClient({"bootstrap.servers": broker.bootstrap})))
    return Finished(asyncio.run(heartbeat(broker)))


def fetch(admin: AdminClient) -> bytes:
    described = admin.describe_topics(TopicCollection([TOPIC]))[TOPIC].result(60)
    topic_id = described.topic_id
    bits = topic_id.get_most_significant_bits() % 2**64 << 64 | topic_id.get_least_significant_bits() % 2**64
    wanted = {
        "partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1,
        "log_start_offset": -1, "partition_max_bytes": 100_000,
    }  # fmt: skip
    body = {
        "replica_state": {"replica_id": -1, "replica_epoch": -1}, "max_wait": 500, "min_bytes": 1,
        "max_bytes": 100_000, "isolation_level": 0, "session_id": 0, "session_epoch": -1,
        "topics": [{"topic_id": UUID(int=bits), "partitions": [wanted]}],
        "forgotten_topics_data": [], "rack_id": "",
    }  # fmt: skip
    return bytes(
        encode_request(api_key=ApiKey.FETCH, api_version=16, correlation_id=1, client_id="paired", body=body)
    )


async def heartbeat(broker: BrokerProcess) -> bytes:
    """Of a member that has joined."""
    client = await connect(*await coordinator_of(broker.bootstrap, GROUP))
    member = Member(client, GROUP)
    await member.join()
    await client.close()
    body = {
        "group_id": GROUP, "generation_id": member.generation, "member_id": member.member_id,
        "group_instance_id": None,
    }  # fmt: skip
    return bytes(
        encode_request(
            api_key=ApiKey.HEARTBEAT, api_version=4, correlation_id=1, client_id="paired", body=body
        )
    )
