"""R10, R11 and R12: who is in sync, what a leader must assume while it does not know, who may come back."""

from __future__ import annotations

import asyncio

from minikafka.coordination import paths
from minikafka.errors import ErrorCode
from minikafka.testing.simulation.disk import Survival
from minikafka.types import NO_LEADER
from tests.scenarios.support import LAG_TIME_MAX_MS, TOPIC, A, B, C, Cluster, D, E, play

STORE_DELAY_MS = 100


async def _an_expansion_is_proposed(cluster: Cluster, *, store_delay_ms: int = STORE_DELAY_MS) -> None:
    """A leads and B is in sync. C has caught up with them at 10, and A has just proposed to let it in.

    What A asks of the store is under way for ``store_delay_ms``, the answers are not. It asks three times
    (how many brokers have registered, whether B and C are who they were) before it writes.
    """
    await cluster.produce(5, at=A)
    cluster.part(A, C)
    await cluster.produce(5, at=A, acks=1)
    await cluster.until_isr(A, B)
    await cluster.until_logs("A: e0[0..9] HW 10\nB: e0[0..9] HW 10\nC: e0[0..4]")
    cluster.delay_to_store(D, store_delay_ms)
    cluster.join(A, C)
    await cluster.until(lambda: C in cluster.partition(A).maximal_isr, "A proposes to let C in")


async def _the_expansion_is_written_and_its_answer_is_lost(cluster: Cluster) -> None:
    """What C has stays at 10; A and B have five records more."""
    await _an_expansion_is_proposed(cluster)
    cluster.cut(A, C)
    version = cluster.state_version
    await cluster.pause(STORE_DELAY_MS * 11 // 2)  # D's five questions are answered, the write is under way
    cluster.cut(D, A)
    await cluster.until(lambda: cluster.state_version > version, "the ISR is written")
    assert set(cluster.state.isr) == {A, B, C}
    await cluster.produce(5, at=A, acks=1)
    await cluster.until_logs("B: e0[0..14]")
    await cluster.pause(LAG_TIME_MAX_MS + 500)
    cluster.expect("A: e0[0..14] HW 10\nB: e0[0..14] HW 10\nC: e0[0..9]")
    assert cluster.partition(A).isr == (A, B)
    assert set(cluster.partition(A).maximal_isr) == {A, B, C}  # C lags by now, and is not removed meanwhile
    assert cluster.state_version == version + 1


def test_r10_the_high_watermark_waits_for_a_member_whose_admission_is_not_known_to_be_written() -> None:
    """KIP-497, KAFKA-8836: the leader cannot know, so it must be right either way, until it has asked."""

    async def story(cluster: Cluster) -> None:
        await _the_expansion_is_written_and_its_answer_is_lost(cluster)
        cluster.heal(A, C)
        await cluster.until_logs("A: e0[0..14] HW 15")
        version = cluster.state_version
        await cluster.pause(2_500)
        cluster.heal(D, A)
        await cluster.until_isr(A, B, C)
        assert cluster.state_version == version  # it was not written again

    play(story)


def test_r10_a_member_whose_admission_the_leader_never_heard_of_can_be_elected_without_loss() -> None:
    """KIP-497, KAFKA-8836. C comes before B in the assignment, so it is elected, with what it has."""

    async def story(cluster: Cluster) -> None:
        await _the_expansion_is_written_and_its_answer_is_lost(cluster)
        waiting = cluster.send(at=A)
        await cluster.pause(50)
        cluster.kill(A)
        await cluster.until_leads(C)
        assert await waiting is not ErrorCode.NONE
        epoch = cluster.state.leader_epoch
        cluster.expect(f"C: e0[0..9] e{epoch}[at 10] HW 10")
        await cluster.until_isr(B, C)
        await cluster.produce(1, at=C)
        await cluster.until_logs(f"B: e0[0..9] e{epoch}[10..10] HW 11")
        cluster.expect_same_logs(B, C)

    play(story, replicas=(A, C, B))


def test_r11_a_broker_that_came_back_empty_is_not_let_in_for_what_it_had_before() -> None:
    """KIP-903: the change names C as of its earlier life. The controller, who would notice, sleeps."""

    async def story(cluster: Cluster) -> None:
        await _an_expansion_is_proposed(cluster)
        version = cluster.state_version
        starting = await _c_comes_back_empty(cluster)
        await cluster.until(lambda: cluster.partition(A).maximal_isr == (A, B), "the change is declined")
        assert (cluster.state.isr, cluster.state_version) == ((A, B), version)
        cluster.broker(D).resume()
        await starting
        cluster.delay_to_store(D, 1)
        cluster.join(A, C)
        await cluster.until_isr(A, B, C)
        cluster.expect_same_logs(A, B, C)

    play(story)


def test_r11_nor_when_it_died_while_the_change_was_under_way_to_the_store() -> None:
    """KIP-903: D has seen that C is the broker that fetched; before the change is written it is not any more.
    Then the controller dies too: the next one would find C registered, and in an ISR that is younger."""

    async def story(cluster: Cluster) -> None:
        await _an_expansion_is_proposed(cluster, store_delay_ms=500)
        await cluster.pause(2_750)  # D's five questions are answered, the write is under way
        starting = await _c_comes_back_empty(cluster)
        await cluster.until(lambda: C not in cluster.partition(A).maximal_isr, "the change is declined")
        cluster.kill(D)
        cluster.kill(A)
        await cluster.until_leads(B)
        await starting
        await cluster.until_isr(B, C)
        cluster.expect_same_logs(B, C)

    play(story, replicas=(A, C, B), controllers=(D, E))


async def _c_comes_back_empty(cluster: Cluster) -> asyncio.Task[None]:
    """It cannot reach A. The task is its start, which waits for the controller."""
    cluster.broker(D).pause()
    cluster.kill(C)
    cluster.part(A, C)
    cluster.lose_disk(C)
    starting = asyncio.create_task(cluster.start(C))
    tree = cluster.simulation.store.tree
    await cluster.until(lambda: paths.broker_path(C) in tree.nodes, "C is registered again")
    return starting


def test_r12_the_high_watermark_stands_still_while_the_isr_is_below_the_minimum() -> None:
    """KIP-966: what one replica alone has is lost with it, so it is not committed."""

    async def story(cluster: Cluster) -> None:
        await _the_isr_is_down_to_one(cluster)
        assert await cluster.send(at=A) is ErrorCode.NOT_ENOUGH_REPLICAS
        await cluster.pause(LAG_TIME_MAX_MS)
        cluster.expect("A: e0[0..14] HW 10\nB: e0[0..9] HW 10\nC: e0[0..9] HW 10")
        assert len(await cluster.client.read_all(TOPIC)) == 10
        cluster.join(A, B, C)
        await cluster.until_isr(A, B, C)
        await cluster.until_logs("A: e0[0..14] HW 15")

    play(story, min_isr=2)


def test_r12_who_lost_its_tail_is_not_elected_over_who_holds_all_that_is_committed() -> None:
    """KIP-966: B and C were in the ISR when it became too small, so they hold whatever was committed."""

    async def story(cluster: Cluster) -> None:
        await _the_isr_is_down_to_one(cluster)
        cluster.power_off(A, Survival.NOTHING)
        await cluster.until(lambda: cluster.state.leader in (B, C), "an eligible replica leads")
        cluster.join(A, B, C)
        await cluster.start(A)
        await cluster.until_isr(A, B, C)
        await cluster.until_logs("A: e0[0..9] HW 10")
        cluster.expect_acked()

    play(story, min_isr=2)


def test_r12_nor_when_it_comes_back_before_anybody_else() -> None:
    """The others are down too: the one that lost its tail waits for one of them, instead of leading."""

    async def story(cluster: Cluster) -> None:
        await _the_isr_is_down_to_one(cluster)
        for node in (B, C):
            await cluster.broker(node).stop()
        cluster.power_off(A, Survival.NOTHING)
        await cluster.until(lambda: cluster.state.leader == NO_LEADER, "it has no leader")
        cluster.join(A, B, C)
        await cluster.start(A)
        await cluster.pause(LAG_TIME_MAX_MS)
        assert cluster.state.leader == NO_LEADER
        await cluster.start(B)
        await cluster.until_leads(B)
        await cluster.start(C)
        await cluster.until_isr(A, B, C)
        await cluster.until_logs("A: e0[0..9] HW 10")
        cluster.expect_acked()

    play(story, min_isr=2)


async def _the_isr_is_down_to_one(cluster: Cluster) -> None:
    """A is alone in the ISR with five records that no other has. Only five are on its disk."""
    await cluster.produce(5, at=A)
    cluster.broker(A).disk.sync_all()
    await cluster.produce(5, at=A)
    await cluster.until_logs("A: e0[0..9] HW 10\nB: e0[0..9] HW 10\nC: e0[0..9] HW 10")
    cluster.part(A, B, C)
    await cluster.produce(5, at=A, acks=1)
    await cluster.until_isr(A)
    cluster.expect("A: e0[0..14] HW 10")
