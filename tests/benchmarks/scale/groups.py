"""Groups of five members, a connection each, a heartbeat every 3 s (the consumers' default).

Joining is of all of them at the same moment, as after a restart of what they run in; its time has the 3 s
for which a new group waits for more members.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import tempfile
import time
from pathlib import Path

from minikafka.errors import ErrorCode
from minikafka.network.broker_client import BrokerClient
from tests.benchmarks.group_member import Member, connect, coordinator_of
from tests.benchmarks.scale.brokers import (
    OURS,
    Row,
    Watch,
    descriptors,
    growth,
    limit_row,
    running_side,
    settled_mb,
    sides,
)
from tests.integration.support.process import BrokerProcess

MEMBERS = 5
COUNTS, QUICK_COUNTS = (100, 500, 2_000), (10, 40)
"""Groups: five times as many connections, of which 20,000 descriptors allow 12,000."""
HEARTBEAT_S, SECONDS, QUICK_SECONDS = 3.0, 20.0, 6.0
CONNECTING_MAX = 200
P99_MS_MAX = 50.0
GROWTH_MAX = 1.25
PROPERTIES = {
    "socket.listen.backlog.size": 1024,
    "group.initial.rebalance.delay.ms": 3_000,  # Kafka's default: so that one generation has all members
}


def run(*, quick: bool) -> list[Row]:
    rows: list[Row] = []
    for side in sides():
        curve = [measured(side, count, quick=quick) for count in (QUICK_COUNTS if quick else COUNTS)]
        rows += curve
        if side == OURS:
            columns = {"joining, CPU s": 0.3, "more MB": 5.0, "core": 0.02}
            rows += growth(curve, "groups", columns, most=GROWTH_MAX)
            name = f"heartbeats of {curve[-1]['groups']} groups, p99"
            rows.append(limit_row(name, curve[-1]["heartbeat p99 ms"], "ms", P99_MS_MAX))
    return rows


def measured(side: str, groups: int, *, quick: bool) -> Row:
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory,
        running_side(side, Path(directory), PROPERTIES) as broker,
    ):
        row = {"part": "groups", "of": side, "groups": groups, "members": groups * MEMBERS}
        row |= asyncio.run(lived(broker, groups, seconds=QUICK_SECONDS if quick else SECONDS))
        print(row, flush=True)
        return row


async def lived(broker: BrokerProcess, groups: int, *, seconds: float) -> Row:
    async with contextlib.AsyncExitStack() as stack:
        address = await coordinator_of(broker.bootstrap, "scale-0")
        before_mb = settled_mb(broker.pid)
        opening, may_connect = Watch([broker.pid]), asyncio.Semaphore(CONNECTING_MAX)

        async def member_of(group: int) -> Member:
            async with may_connect:
                client: BrokerClient = await connect(*address)
            stack.push_async_callback(client.close)
            return Member(client, f"scale-{group}")

        members = await asyncio.gather(*(member_of(number // MEMBERS) for number in range(groups * MEMBERS)))
        opening_spent = opening.spent()
        joining = Watch([broker.pid])
        await asyncio.gather(*(member.join() for member in members))
        joining_spent = joining.spent()
        more_mb = settled_mb(broker.pid) - before_mb
        living = Watch([broker.pid])
        latencies = await heartbeats(members, seconds)
        living_spent = living.spent()
        return {
            "opening, CPU s": round(opening_spent.cpu_s, 2),
            "joining, s": round(joining_spent.seconds, 2),
            "joining, CPU s": round(joining_spent.cpu_s, 2),
            "more MB": round(more_mb, 1),
            "descriptors": descriptors(broker.pid),
            "core": round(living_spent.cpu_s / living_spent.seconds, 4),
            "heartbeat p50 ms": round(statistics.median(latencies) * 1000, 2),
            "heartbeat p99 ms": round(statistics.quantiles(latencies, n=100)[-1] * 1000, 2),
        }


async def heartbeats(members: list[Member], seconds: float) -> list[float]:
    """The seconds that each took; the members' turns are spread over the interval."""
    latencies: list[float] = []
    ends = time.perf_counter() + seconds

    async def live(number: int, member: Member) -> None:
        await asyncio.sleep(HEARTBEAT_S * number / len(members))
        while (began := time.perf_counter()) < ends:
            error = await member.heartbeat()
            latencies.append(time.perf_counter() - began)
            if error == ErrorCode.REBALANCE_IN_PROGRESS:  # joined by those that came late
                await member.join()
            else:
                assert error == ErrorCode.NONE, error
            await asyncio.sleep(max(0.0, began + HEARTBEAT_S - time.perf_counter()))

    await asyncio.gather(*(live(number, member) for number, member in enumerate(members)))
    return latencies
