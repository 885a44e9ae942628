"""R6, R15 and R16: what is committed when leaders change, and what a client may be told of it."""

from __future__ import annotations

import asyncio

import pytest

from minikafka.errors import ErrorCode, KafkaError
from minikafka.testing.simulation.client import Fetched
from tests.scenarios.support import LAG_TIME_MAX_MS, TOPIC, A, B, C, Cluster, play


def test_r06_a_follower_joins_a_new_leader_only_with_all_that_may_be_committed() -> None:
    """KAFKA-7128. The new leader's high watermark is behind the old one's, so it says nothing about who holds
    what is committed. Where its epoch began does."""

    async def story(cluster: Cluster) -> None:
        await _a_high_watermark_that_the_next_leader_does_not_know(cluster)
        cluster.delay(B, C, 20)  # so that C's way from 120 to 200 can be looked at
        cluster.always(lambda: _isr_has_only_those_with_at_least(cluster, 200, led_by=B))
        cluster.join(A, C)
        cluster.kill(A)
        await cluster.until_leads(B)
        await cluster.until(lambda: cluster.log(C).log_end_offset == 130, "C is at 130")
        cluster.part(B, C)
        await cluster.pause(LAG_TIME_MAX_MS)
        assert cluster.state.isr == (B,)
        assert cluster.log(C).log_end_offset < 200
        cluster.join(B, C)
        await cluster.until_isr(B, C)
        cluster.kill(B)
        await cluster.until_leads(C)
        epoch = cluster.state.leader_epoch
        cluster.expect(f"C: e0[0..199] e{epoch}[at 200]")

    # With two as the minimum B's high watermark stays behind while B is alone, so only the epoch can tell.
    play(story, min_isr=2, config={"replica.fetch.max.bytes": 100})


async def _a_high_watermark_that_the_next_leader_does_not_know(cluster: Cluster) -> None:
    """A leads: its log ends at 200, its high watermark is 150. B has all of it, and a high watermark of 100.
    C ends at 120 and is not in sync."""
    await cluster.produce(100, at=A, batch_size=10)
    await cluster.until_logs("A: e0[0..99] HW 100\nB: e0[0..99] HW 100\nC: e0[0..99] HW 100")
    await cluster.until_fetch_waits(B, C)
    cluster.cut(C, A)
    await cluster.produce(20, at=A, batch_size=20, acks=1)
    await cluster.until_logs("B: e0[0..119] HW 100\nC: e0[0..119] HW 100")
    await cluster.pause(LAG_TIME_MAX_MS * 3 // 4)  # C's time runs out before B's
    await cluster.produce(30, at=A, batch_size=10, acks=1)
    await cluster.until_logs("B: e0[0..149] HW 100")
    await cluster.until_fetch_waits(B)
    cluster.cut(B, A)
    await cluster.produce(50, at=A, batch_size=50, acks=1)
    await cluster.until_isr(A, B)
    cluster.expect("A: e0[0..199] HW 150\nB: e0[0..199] HW 100\nC: e0[0..119] HW 100")


def _isr_has_only_those_with_at_least(cluster: Cluster, offset: int, *, led_by: int) -> None:
    state = cluster.state
    if state.leader == led_by and C in state.isr:
        assert cluster.log(C).log_end_offset >= offset, "C is in the ISR"


def test_r15_the_latest_offset_is_not_told_while_it_could_be_one_that_was_told_before() -> None:
    """KIP-207: an earlier leader may have shown offsets that this one does not know to be committed yet."""

    async def story(cluster: Cluster) -> None:
        await cluster.produce(5, at=A)
        await cluster.until_logs("A: e0[0..4] HW 5\nB: e0[0..4] HW 5\nC: e0[0..4] HW 5")
        await cluster.until_fetch_waits(B, C)
        await cluster.produce(5, at=A, batch_size=5)
        cluster.cut(A, B)
        cluster.expect("A: e0[0..9] HW 10\nB: e0[0..9] HW 5")
        assert await cluster.client.log_end(TOPIC, 0) == 10
        cluster.part(B, C)
        cluster.kill(A)
        await cluster.until_leads(B)
        await cluster.client.metadata([TOPIC])
        with pytest.raises(KafkaError) as refused:
            await cluster.client.log_end(TOPIC, 0)
        assert refused.value.code is ErrorCode.OFFSET_NOT_AVAILABLE
        cluster.expect("B: e0[0..9] e1[at 10] HW 5")
        cluster.join(B, C)
        await cluster.until_logs("B: e0[0..9] e1[at 10] HW 10")
        assert await cluster.client.log_end(TOPIC, 0) == 10

    play(story)


@pytest.mark.parametrize("read_committed", [False, True], ids=["read_uncommitted", "read_committed"])
def test_r16_a_read_that_waits_for_the_disk_returns_nothing_above_the_bound_that_it_tells(
    read_committed: bool,
) -> None:
    """KAFKA-9807, KAFKA-9835: the high watermark moves while the records are fetched from a cold disk."""

    async def story(cluster: Cluster) -> None:
        await cluster.produce(5, at=A)
        await cluster.until_fetch_waits(B, C)
        _hold_fetches(cluster)
        await cluster.produce(5, at=A, acks=1, batch_size=5)
        await cluster.until_logs("A: e0[0..9] HW 5\nB: e0[0..9]\nC: e0[0..9]")
        broker = cluster.broker(A)
        broker.host.disk_delay_ms = (1_000, 1_000)
        broker.disk.drop_caches()
        reading: asyncio.Task[Fetched] = asyncio.create_task(
            cluster.new_client().fetch(TOPIC, 0, 0, read_committed=read_committed, address=broker.address)
        )
        await cluster.pause(100)
        cluster.expect("A: e0[0..9] HW 5")
        cluster.heal(B, A)
        cluster.heal(C, A)
        await cluster.until_logs("A: e0[0..9] HW 10")
        _hold_fetches(cluster)
        await cluster.produce(5, at=A, acks=1)
        cluster.expect("A: e0[0..14] HW 10")
        assert not reading.done()
        fetched = await reading
        assert fetched.high_watermark in (5, 10)
        assert [record.offset for record in fetched.records] == list(range(fetched.high_watermark))

    play(story)


def _hold_fetches(cluster: Cluster) -> None:
    """What B and C ask of A waits from here on."""
    cluster.cut(B, A)
    cluster.cut(C, A)
