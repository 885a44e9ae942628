"""``minikafka events`` over three brokers: a leader is cut off, or killed, and comes back."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from minikafka.cli.events import main
from minikafka.metrics.request_metrics import TIMED_ONE_IN
from minikafka.testing import Cluster

TOPIC = "orders"
PROPERTIES = {
    "replica.lag.time.max.ms": 1500,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "zookeeper.session.timeout.ms": 6_000,
}
"""The brokers are one process, which a busy machine may keep from running for seconds."""


class Events:
    """The command, asked again until it tells what is waited for."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    async def of(self, bootstrap: str, *options: str) -> list[dict[str, Any]]:
        self._capsys.readouterr()
        await asyncio.to_thread(main, ["-b", bootstrap, "--json", *options])
        return [json.loads(line) for line in self._capsys.readouterr().out.splitlines()]

    async def until(self, bootstrap: str, kind: str, **fields: Any) -> dict[str, Any]:
        """The last event of a kind with such fields, when there is one."""
        async with asyncio.timeout(20):
            while True:
                for event in reversed(await self.of(bootstrap, "--kind", kind)):
                    found = event["event"] | {"broker": event["broker"]}
                    if all(found.get(name) == value for name, value in fields.items()):
                        return event
                await asyncio.sleep(0.2)


async def test_an_election_an_isr_and_a_truncation_are_told_in_order_with_their_causes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    events = Events(capsys)
    async with Cluster(brokers=3, config=PROPERTIES) as cluster:
        admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
        await admin.start()
        await admin.create_topics([NewTopic(TOPIC, 1, 3)])
        await admin.close()
        await cluster.wait_until(lambda: len(cluster.isr_of(TOPIC, 0)) == 3)
        leader = cluster.leader_of(TOPIC, 0)
        assert leader is not None
        address = f"127.0.0.1:{cluster._broker(leader).port}"
        async with AIOKafkaProducer(bootstrap_servers=address, acks=1) as producer:
            await producer.send_and_wait(TOPIC, b"all have it", partition=0)
            cluster.isolate(leader)
            for _ in range(3):
                await producer.send_and_wait(TOPIC, b"nobody else has it", partition=0)
        # What it sent to the others is held and arrives when the links heal, so the next leader has to lead
        # by then: before, it would take these records, and no broker would have to truncate.
        await cluster.wait_until(lambda: leader not in (cluster.isr_of(TOPIC, 0) or [leader]))
        cluster.heal(leader)
        await cluster.wait_until(lambda: len(cluster.isr_of(TOPIC, 0)) == 3, timeout_s=20)

        bootstrap = cluster.bootstrap_servers
        truncation = await events.until(bootstrap, "truncation", broker=leader)
        assert truncation["event"]["from_offset"] - truncation["event"]["to_offset"] == 3
        assert "epoch 0 ends at 1" in truncation["event"]["cause"]
        joined = await events.until(bootstrap, "isr", isr=[*cluster.isr_of(TOPIC, 0)])
        assert f"broker {leader} has caught up" in joined["event"]["cause"]
        story = await events.of(bootstrap, "--topic", TOPIC)
        elections = [each for each in story if each["kind"] == "election"]
        assert elections[0]["event"]["cause"] == "the partition is new"
        # If it was the controller, too, the next one finds it gone when it begins.
        assert elections[1]["event"]["cause"] in (f"broker {leader} is gone", "a controller was elected")
        assert elections[1]["event"]["previous_leader"] == leader
        assert "is_unclean" not in elections[1]["event"]
        order = [each["sequence"] for each in (elections[0], elections[1], truncation, joined)]
        assert order == sorted(order)
        sessions = await events.of(bootstrap, "--kind", "session", "--broker", str(leader))
        assert [each["event"].get("is_lost") for each in sessions] == [True, False]


async def test_a_leader_that_was_killed_tells_what_it_did_before_and_a_group_why_it_rebalanced(
    capsys: pytest.CaptureFixture[str],
) -> None:
    events = Events(capsys)
    async with Cluster(brokers=3, config=PROPERTIES) as cluster:
        async with AIOKafkaConsumer(
            TOPIC, bootstrap_servers=cluster.bootstrap_servers, group_id="app", client_id="reader"
        ):
            rebalance = await events.until(cluster.bootstrap_servers, "rebalance", group="app")
        assert "reader" in rebalance["event"]["cause"]
        left = await events.until(cluster.bootstrap_servers, "rebalance", group="app", members=0)
        assert left["sequence"] > rebalance["sequence"]
        coordinator = rebalance["broker"]
        await asyncio.sleep(0.5)  # longer than event.recorder.flush.interval.ms
        await cluster.kill(coordinator)
        others = f"127.0.0.1:{cluster._broker(coordinator % 3 + 1).port}"
        await events.until(others, "election", previous_leader=coordinator)
        assert coordinator not in {each["broker"] for each in await events.of(others)}
        await cluster.start(coordinator)
        again = await events.until(others, "rebalance", broker=coordinator, members=0)
        assert again == left
        started = await events.until(others, "started", broker=coordinator, was_clean=False)
        assert started["sequence"] > left["sequence"]


async def test_an_ordinary_request_leaves_no_event(capsys: pytest.CaptureFixture[str]) -> None:
    """One for each would push what was decided out of the ring, and cost every request something."""
    events, requests = Events(capsys), 6 * TIMED_ONE_IN
    config = PROPERTIES | {"event.recorder.slow.request.ms": 3_600_000}
    async with Cluster(brokers=1, config=config) as cluster:
        bootstrap = cluster.bootstrap_servers
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks=1) as producer:
            await producer.send_and_wait(TOPIC, b"makes the topic")
            before = await events.of(bootstrap)
            for _ in range(requests):
                await producer.send_and_wait(TOPIC, b"ordinary")  # on the fast path
                await admin.list_topics()  # beside it
            after = await events.of(bootstrap)
        await admin.close()
    assert before
    assert len(after) - len(before) < requests / TIMED_ONE_IN
