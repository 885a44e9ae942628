"""KIP-73: a replica that catches up under a throttle keeps to the rate, and no in-sync replica notices.

A leads, B is in sync, C was away while records came. Rates are in bytes a second.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.testing.simulation.client import make_batch
from tests.scenarios.support import TOPIC, A, B, C, Cluster, play

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
SET, DELETE = 0, 1

LEADER_LIST, FOLLOWER_LIST = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)
LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"

RATE = 1_000_000
RECORD_BYTES = 100_000
BACKLOG = 150
"""Records: 15 s at the rate."""
FETCH_BYTES = 1 << 20
"""``replica.fetch.max.bytes``: by so much a quota may be overdrawn."""
QUOTA_WINDOWS_MS = 11_000
TOLERANCE = 0.15
"""Kafka's own test of this allows 20 %."""


async def alter(
    cluster: Cluster, at: int, kind: int, name: str, properties: Mapping[str, str | None]
) -> tuple[ErrorCode, str | None]:
    """IncrementalAlterConfigs at a broker; None deletes."""
    configs = [
        {"name": key, "config_operation": DELETE if value is None else SET, "value": value}
        for key, value in properties.items()
    ]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    body = {"resources": [resource], "validate_only": False}
    answer = await cluster.client.request(cluster.broker(at).address, ApiKey.INCREMENTAL_ALTER_CONFIGS, body)
    return ErrorCode(answer.responses[0].error_code), answer.responses[0].error_message


async def configure_topic(cluster: Cluster, properties: Mapping[str, str | None]) -> None:
    assert await alter(cluster, B, TOPIC_RESOURCE, TOPIC, properties) == (ErrorCode.NONE, None)


async def configure_broker(cluster: Cluster, at: int, properties: Mapping[str, str | None]) -> None:
    assert await alter(cluster, at, BROKER_RESOURCE, str(at), properties) == (ErrorCode.NONE, None)


async def falls_behind(cluster: Cluster) -> None:
    """C is down while the backlog comes."""
    cluster.kill(C)
    await cluster.until_isr(A, B)
    for _ in range(BACKLOG):
        batch = make_batch([bytes(RECORD_BYTES)], timestamp_ms=cluster.broker(A).clock.now_ms())
        await cluster.produce_batch(batch, at=A, acks=1)
    await cluster.until(lambda: cluster.log(B).log_end_offset == BACKLOG, "B has it all")
    await cluster.pause(QUOTA_WINDOWS_MS)  # what B has copied counts too, although it is in sync


def copied_bytes(cluster: Cluster) -> int:
    return cluster.log(C).log_end_offset * RECORD_BYTES


@pytest.mark.parametrize(
    ("list_", "replicas", "rate", "broker"),
    [
        (LEADER_LIST, f"0:{A}", LEADER_RATE, A),
        (FOLLOWER_LIST, f"0:{C}", FOLLOWER_RATE, C),
        (LEADER_LIST, "*", LEADER_RATE, A),
        (FOLLOWER_LIST, "*", FOLLOWER_RATE, C),
    ],
)
def test_a_follower_catches_up_at_the_rate_until_the_throttle_is_removed(
    list_: str, replicas: str, rate: str, broker: int
) -> None:
    async def story(cluster: Cluster) -> None:
        await configure_broker(cluster, broker, {rate: str(RATE)})
        await configure_topic(cluster, {list_: replicas})
        await falls_behind(cluster)
        await cluster.start(C)
        await cluster.until(lambda: cluster.hosted(C) is not None and copied_bytes(cluster) > 0, "C fetches")
        for seconds in range(1, 9):
            await cluster.pause(1000)
            allowed = (seconds + 1) * RATE * (1 + TOLERANCE) + FETCH_BYTES
            assert copied_bytes(cluster) <= allowed, f"too much after {seconds} s"
        copied = copied_bytes(cluster)
        assert copied >= 8 * RATE * (1 - TOLERANCE), "the rate is used"
        assert cluster.state.isr == (A, B)
        await configure_topic(cluster, {list_: None})
        await cluster.until(
            lambda: cluster.log(C).log_end_offset == BACKLOG, "C has the remainder", within_ms=1000
        )
        await cluster.until_isr(A, B, C)

    play(story)


def test_the_rate_can_be_raised_and_lowered_under_way() -> None:
    async def story(cluster: Cluster) -> None:
        await configure_topic(cluster, {FOLLOWER_LIST: "*", LEADER_LIST: "*"})
        for each in (A, B, C):
            await configure_broker(cluster, each, {LEADER_RATE: "100000", FOLLOWER_RATE: "100000"})
        await falls_behind(cluster)
        await cluster.start(C)
        await cluster.pause(8_000)
        slow = copied_bytes(cluster)
        assert 0 < slow <= 2 * FETCH_BYTES
        for each in (A, C):
            await configure_broker(cluster, each, {LEADER_RATE: str(RATE), FOLLOWER_RATE: str(RATE)})
        await cluster.pause(5_000)
        assert copied_bytes(cluster) - slow >= 4 * RATE
        await configure_broker(cluster, A, {LEADER_RATE: "0"})
        await cluster.pause(1_000)
        stopped = copied_bytes(cluster)
        await cluster.pause(5_000)
        assert copied_bytes(cluster) == stopped

    play(story)


def test_replicas_in_sync_are_not_throttled_and_the_isr_stays() -> None:
    async def story(cluster: Cluster) -> None:
        await configure_topic(cluster, {FOLLOWER_LIST: "*", LEADER_LIST: "*"})
        for each in (A, B, C):
            await configure_broker(cluster, each, {LEADER_RATE: "1", FOLLOWER_RATE: "1"})
        before = cluster.simulation.loop.time()
        await cluster.produce(200, at=A)
        assert cluster.simulation.loop.time() - before < 2, "acks=all, one after the other"
        await cluster.pause(5_000)
        assert set(cluster.state.isr) == {A, B, C}

    play(story)


def test_a_throttle_survives_a_restart_of_the_leader() -> None:
    async def story(cluster: Cluster) -> None:
        await configure_broker(cluster, B, {LEADER_RATE: "0"})
        await configure_topic(cluster, {LEADER_LIST: f"0:{B},0:{A}"})
        await falls_behind(cluster)
        await cluster.bounce(B)
        await cluster.until_isr(A, B)
        cluster.kill(A)
        await cluster.until_leads(B)
        await cluster.start(C)
        await cluster.until_follows(C, B)
        await cluster.pause(5_000)
        assert copied_bytes(cluster) <= FETCH_BYTES, "the first answer, and nothing after it"
        await configure_broker(cluster, B, {LEADER_RATE: None})
        await cluster.until(lambda: cluster.log(C).log_end_offset == BACKLOG, "C has it all", within_ms=1000)

    play(story)


@pytest.mark.parametrize("wrong", ["0", "0:x", "0:1,*", "0:1,,0:2", "none"])
def test_a_list_that_is_none_is_refused_and_the_one_before_holds(wrong: str) -> None:
    async def story(cluster: Cluster) -> None:
        await configure_topic(cluster, {LEADER_LIST: f"0:{A}"})
        code, message = await alter(cluster, A, TOPIC_RESOURCE, TOPIC, {LEADER_LIST: wrong})
        assert code is ErrorCode.INVALID_CONFIG
        assert message is not None and LEADER_LIST in message and wrong in message
        quotas = cluster.broker(A).server.services.replication_quotas
        await cluster.until(lambda: quotas.leader.is_active, "A has heard of the first list")

    play(story)
