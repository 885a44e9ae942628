"""Consumer groups: what idle ones cost, how long a rebalance takes, how many commits a second, how long
committed offsets take to load.

- idle: 500 groups of 4 members, a connection each, a heartbeat every 3 s (the consumers' default); the
  broker's CPU over 20 s.
- rebalance: 100 members are stable, one more joins; from its join to the last member's new assignment. The
  members hear of it by their heartbeats, every 500 ms here.
- commits: 20 members of 20 groups, each with 10 commits under way, one partition a commit; on one broker, and
  on three with three replicas.
- loading: 100,000 committed offsets in one partition of ``__consumer_offsets``: as the broker says it, and
  the time from the start of its process until it answers with one of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from minikafka.errors import ErrorCode
from minikafka.network.broker_client import BrokerClient
from minikafka.protocol.wire.api_versions import ApiKey
from tests.benchmarks.broker import cpu_seconds, running_broker
from tests.benchmarks.cluster import row, running_cluster
from tests.benchmarks.group_member import DEADLINE_MS, RETRY_S, Member, connect, coordinator_of
from tests.integration.support import confluent
from tests.integration.support.process import BrokerProcess

TOPIC = "bench"
GROUPS, MEMBERS, HEARTBEAT_S, IDLE_S = 500, 4, 3.0, 20.0
IDLE_CORE_MAX = 0.10
REBALANCED_MEMBERS, REBALANCE_HEARTBEAT_S, REBALANCE_S_MAX, REBALANCES = 100, 0.5, 2.0, 5
COMMITTERS, COMMITS_UNDER_WAY, COMMIT_S, COMMITS_MIN = 20, 10, 5.0, 2_000
LOADED = re.compile(r"\d+ records in (\d+) ms")
OFFSETS, OFFSETS_PARTITIONS, LOAD_S_MAX = 100_000, 1_000, 2.0


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows of name, value, unit, asked, ok."""
    rows = []
    with tempfile.TemporaryDirectory() as directory, running_broker(Path(directory)) as broker:
        rows.append(asyncio.run(idle(broker, groups=GROUPS // (10 if quick else 1))))
    with tempfile.TemporaryDirectory() as directory, running_broker(Path(directory)) as broker:
        rows.append(asyncio.run(rebalance(broker, rounds=1 if quick else REBALANCES)))
        confluent.make_topic(broker.bootstrap, TOPIC)
        rows.append(asyncio.run(commits(broker.bootstrap, "one broker")))
    with tempfile.TemporaryDirectory() as directory, running_cluster(Path(directory)) as cluster:
        confluent.make_topic(cluster.bootstrap, TOPIC, replicas=3)
        rows.append(asyncio.run(commits(cluster.brokers[1].bootstrap, "three replicas")))
    properties = {"offsets.topic.num.partitions": 1}
    with (
        tempfile.TemporaryDirectory() as directory,
        running_broker(Path(directory), properties=properties) as broker,
    ):
        rows += loading(broker, offsets=OFFSETS // (10 if quick else 1))
    return rows


@contextlib.asynccontextmanager
async def member_of(bootstrap: str, group_id: str) -> AsyncIterator[tuple[BrokerClient, Member]]:
    client = await connect(*await coordinator_of(bootstrap, group_id))
    try:
        yield client, Member(client, group_id)
    finally:
        await client.close()


async def idle(broker: BrokerProcess, *, groups: int) -> dict[str, Any]:
    """The part of a core that a broker uses while all that happens is heartbeats."""
    async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        members = []
        for number in range(groups):
            for _ in range(MEMBERS):
                _, member = await stack.enter_async_context(member_of(broker.bootstrap, f"idle-{number}"))
                members.append(member)
        await asyncio.gather(*(member.join() for member in members))
        living = []
        for member in members:  # spread over the interval, as they would be by and by
            await asyncio.sleep(HEARTBEAT_S / len(members))
            living.append(tasks.create_task(member.live(HEARTBEAT_S)))
        await asyncio.sleep(HEARTBEAT_S)
        before, started = cpu_seconds(broker.pid), time.perf_counter()
        await asyncio.sleep(IDLE_S)
        core = (cpu_seconds(broker.pid) - before) / (time.perf_counter() - started)
        generations = {member.generation for member in members}
        for task in living:
            task.cancel()
    assert len(generations) <= 2, f"the groups were rebalancing: {generations}"
    name = f"{groups} groups of {MEMBERS} members idle, of a core"
    return row(name, core, "", f"<= {IDLE_CORE_MAX}", core <= IDLE_CORE_MAX)


async def rebalance(broker: BrokerProcess, *, rounds: int) -> dict[str, Any]:
    """Seconds from the join of one more member to the last new assignment, the worst of ``rounds``."""
    took = []
    for number in range(rounds):
        group_id = f"rebalance-{number}"
        async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            members = []
            for _ in range(REBALANCED_MEMBERS):
                _, member = await stack.enter_async_context(member_of(broker.bootstrap, group_id))
                members.append(member)
            *stable, last = members
            await asyncio.gather(*(member.join() for member in stable))
            before = stable[0].generation
            living = [tasks.create_task(member.live(REBALANCE_HEARTBEAT_S)) for member in stable]
            started = time.perf_counter()
            await last.join()
            await asyncio.gather(*(member.settled_after(before) for member in stable))
            took.append(time.perf_counter() - started)
            for task in living:
                task.cancel()
    name = f"rebalance of {REBALANCED_MEMBERS} members, worst of {rounds}"
    return row(name, max(took), "s", f"<= {REBALANCE_S_MAX}", max(took) <= REBALANCE_S_MAX)


async def commits(bootstrap: str, name: str) -> dict[str, Any]:
    """Offset commits a second."""
    done = 0
    async with contextlib.AsyncExitStack() as stack:
        members = [
            await stack.enter_async_context(member_of(bootstrap, f"commit-{number}"))
            for number in range(COMMITTERS)
        ]
        await asyncio.gather(*(member.join() for _, member in members))
        ends_at = time.perf_counter() + COMMIT_S

        async def commit(client: BrokerClient, member: Member) -> None:
            nonlocal done
            while time.perf_counter() < ends_at:
                body = commit_body(member, {0: done})
                answer = await client.request(ApiKey.OFFSET_COMMIT, body, deadline_ms=DEADLINE_MS, version=9)
                error = answer.topics[0].partitions[0].error_code
                assert error == ErrorCode.NONE, ErrorCode(error)
                done += 1

        await asyncio.gather(*(commit(*each) for each in members for _ in range(COMMITS_UNDER_WAY)))
    rate = done / COMMIT_S
    return row(f"offset commits, {name}", rate, "1/s", f">= {COMMITS_MIN}", rate >= COMMITS_MIN)


def commit_body(member: Member, offsets: dict[int, int], *, group_id: str | None = None) -> dict[str, Any]:
    return {
        "group_id": group_id or member._group_id,
        "generation_id_or_member_epoch": member.generation,
        "member_id": member.member_id,
        "topics": [
            {
                "name": TOPIC,
                "partitions": [
                    {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
                    for partition, offset in offsets.items()
                ],
            }
        ],
    }


def loading(broker: BrokerProcess, *, offsets: int) -> list[dict[str, Any]]:
    """Seconds that the loading of committed offsets takes, as the broker says it, and until they are served
    after a start."""
    confluent.make_topic(broker.bootstrap, TOPIC, partitions=OFFSETS_PARTITIONS)
    groups = offsets // OFFSETS_PARTITIONS
    asyncio.run(commit_many(broker, groups))
    broker.stop()
    started = time.perf_counter()
    broker.start()
    asyncio.run(first_offset(broker, f"loaded-{groups - 1}"))
    took = time.perf_counter() - started
    loading_s = max(int(each) for each in LOADED.findall(broker.log_text())) / 1000
    name = f"loading {groups * OFFSETS_PARTITIONS} committed offsets"
    return [
        row(name, loading_s, "s", f"<= {LOAD_S_MAX}", loading_s <= LOAD_S_MAX),
        row(f"{name}, with the broker's start", took, "s"),
    ]


async def commit_many(broker: BrokerProcess, groups: int) -> None:
    async with member_of(broker.bootstrap, "loaded-0") as (client, member):
        for number in range(groups):
            body = commit_body(
                member, dict.fromkeys(range(OFFSETS_PARTITIONS), number), group_id=f"loaded-{number}"
            )
            answer = await client.request(ApiKey.OFFSET_COMMIT, body, deadline_ms=DEADLINE_MS, version=9)
            assert all(each.error_code == ErrorCode.NONE for each in answer.topics[0].partitions)


async def first_offset(broker: BrokerProcess, group_id: str) -> None:
    async with member_of(broker.bootstrap, group_id) as (client, _):
        topics = [{"name": TOPIC, "partition_indexes": [0]}]
        body = {"groups": [{"group_id": group_id, "topics": topics}], "require_stable": True}
        while True:
            answer = await client.request(ApiKey.OFFSET_FETCH, body, deadline_ms=DEADLINE_MS, version=9)
            if answer.groups[0].error_code == ErrorCode.NONE:
                assert answer.groups[0].topics[0].partitions[0].committed_offset >= 0
                return
            await asyncio.sleep(RETRY_S)
