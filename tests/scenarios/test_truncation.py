"""R1 to R5: which records of its own log a follower may keep, and which it must cut."""

from __future__ import annotations

from minikafka.testing.simulation.client import make_batch
from minikafka.testing.simulation.disk import Survival
from tests.scenarios.support import A, B, C, Cluster, D, E, play

ANSWER_DELAY_MS = 1_000


async def _m1_is_committed_and_the_follower_does_not_know(cluster: Cluster) -> None:
    """B leads m0 and m1, high watermark 2; A has both, and believes that the high watermark is 1. What A asks
    reaches B at once, what B says takes a second."""
    await cluster.produce(1, at=B)
    await cluster.until_logs("A: e0[0..0] HW 1\nB: e0[0..0] HW 1")
    await cluster.produce(1, at=B)
    cluster.delay(B, A, ANSWER_DELAY_MS)
    cluster.expect("A: e0[0..1] HW 1\nB: e0[0..1] HW 2")


def test_r01_a_follower_that_hears_of_a_new_epoch_keeps_what_lies_above_its_high_watermark() -> None:
    """KIP-101, scenario 1, with clean elections: what A would cut to its high watermark is committed."""

    async def story(cluster: Cluster) -> None:
        await _m1_is_committed_and_the_follower_does_not_know(cluster)
        await cluster.bounce(C)
        await cluster.until_follows(A, B, epoch_min=1)
        await cluster.pause(ANSWER_DELAY_MS * 3 // 2)  # A has had B's answer of e0, and has asked in e1
        cluster.expect("A: e0[0..1] HW 1")
        cluster.kill(B)
        await cluster.until_leads(A)
        await cluster.until_logs("A: e0[0..1] e2[at 2] HW 2")
        cluster.delay(B, A, 1)
        await cluster.start(B)
        await cluster.until_isr(A, B, C)
        cluster.expect_same_logs(A, B, C)

    play(story, replicas=(B, A, C))


def test_r01_a_restarted_follower_keeps_what_lies_above_its_high_watermark() -> None:
    """KIP-101, scenario 1. A restarted broker has left the ISR here, so its election is an unclean one."""

    async def story(cluster: Cluster) -> None:
        await _m1_is_committed_and_the_follower_does_not_know(cluster)
        cluster.kill(A)
        await cluster.start(A)
        await cluster.until_follows(A, B)
        await cluster.pause(ANSWER_DELAY_MS * 5 // 2)  # A has connected, heard B's versions, and fetches
        cluster.expect("A: e0[0..1]")
        cluster.kill(B)
        await cluster.until_leads(A)
        cluster.expect("A: e0[0..1] e2[at 2] HW 2")
        cluster.delay(B, A, 1)
        await cluster.start(B)
        await cluster.until_isr(A, B)
        cluster.expect_same_logs(A, B)

    play(story, replicas=(B, A), unclean=True)


def test_r02_a_follower_cuts_the_record_that_its_new_leader_has_lost() -> None:
    """KIP-101, scenario 2: after a power cut of both, offset 1 is written twice. Both cannot be right.

    An unclean election: else B waits for A, which led last (KIP-966)."""

    async def story(cluster: Cluster) -> None:
        await cluster.produce(1, at=A)
        for node_id in (A, B):
            cluster.broker(node_id).disk.sync_all()
        await cluster.produce(1, at=A)
        cluster.expect("A: e0[0..1] HW 2\nB: e0[0..1]")
        cluster.power_off(A, Survival.EVERYTHING)
        cluster.power_off(B, Survival.NOTHING)
        cluster.expire(A)
        cluster.expire(B)
        await cluster.start(B)
        await cluster.until_leads(B)
        epoch = cluster.state.leader_epoch
        await cluster.produce(1, at=B)
        cluster.expect(f"B: e0[0..0] e{epoch}[1..1] HW 2")
        await cluster.start(A)
        await cluster.until_isr(A, B)
        await cluster.until_logs(f"A: e0[0..0] e{epoch}[1..1] HW 2")
        cluster.expect_same_logs(A, B)

    play(story, replicas=(A, B), unclean=True)


def test_r03_after_two_unclean_elections_a_follower_cuts_to_where_the_histories_part() -> None:
    """KIP-279, KAFKA-6361: the follower's epoch is one that its leader never had, so the leader answers with
    an older one, whose end the follower has to look up in its own log."""
    play(two_unclean_elections, replicas=(A, B), unclean=True)


async def two_unclean_elections(cluster: Cluster) -> None:
    await cluster.produce(10, at=A)
    cluster.part(A, B)
    await cluster.produce(10, at=A, acks=1)
    await cluster.until_isr(A)
    cluster.expect("A: e0[0..19] HW 20\nB: e0[0..9]")
    cluster.kill(A)
    await cluster.until_leads(B)
    first = cluster.state.leader_epoch
    await cluster.produce(5, at=B)
    cluster.expect(f"B: e0[0..9] e{first}[10..14] HW 15")
    cluster.kill(B)
    await cluster.start(A)
    await cluster.until_leads(A)
    second = cluster.state.leader_epoch
    await cluster.produce(5, at=A)
    cluster.expect(f"A: e0[0..19] e{second}[20..24] HW 25")
    cluster.join(A, B)
    await cluster.start(B)
    await cluster.until_isr(A, B)
    await cluster.until_logs(f"B: e0[0..19] e{second}[20..24] HW 25")
    cluster.expect_same_logs(A, B)


def test_r04_elections_without_records_leave_no_epoch_that_never_was() -> None:
    """KAFKA-7415, KAFKA-10706: a leader writes its epoch down before any record; a follower whose leader does
    not know that epoch drops it although no record has to be cut, and continues to fetch."""

    async def story(cluster: Cluster) -> None:
        await cluster.produce(10, at=A)
        cluster.kill(A)
        await cluster.until_leads(B)
        cluster.expect("B: e0[0..9] e1[at 10]")
        cluster.part(B, C)
        cluster.expire(B)
        await cluster.until_leads(C)
        cluster.expect("B: e0[0..9] e1[at 10]\nC: e0[0..9] e2[at 10]")
        await cluster.until_follows(B, C)
        cluster.join(B, C)
        await cluster.until_isr(B, C)
        epoch = cluster.state.leader_epoch
        await cluster.until_logs("B: e0[0..9]")
        await cluster.produce(5, at=C)
        await cluster.until_logs(f"B: e0[0..9] e{epoch}[10..14] HW 15")
        await cluster.start(A)
        await cluster.until_isr(A, B, C)
        cluster.expect_same_logs(A, B, C)

    play(story)


def test_r05_a_follower_that_missed_an_epoch_of_its_leader_cuts_what_the_leader_has_lost() -> None:
    """KAFKA-7164: between what the follower heard and what it hears now its leader was away and lost records.
    That it is the same leader says nothing."""

    async def story(cluster: Cluster) -> None:
        await cluster.produce(5, at=B)
        cluster.broker(B).disk.sync_all()
        await cluster.produce(5, at=B)
        cluster.expect("A: e0[0..9]\nB: e0[0..9] HW 10")
        cluster.part(A, B)
        cluster.cut(D, A)
        await cluster.produce(1, at=B, acks=1)
        await cluster.until_isr(B)
        cluster.power_off(B, Survival.NOTHING)
        cluster.expire(B)
        await cluster.until(lambda: cluster.state.leader == -1, "it has no leader")
        await cluster.start(B)
        await cluster.until_leads(B)
        epoch = cluster.state.leader_epoch
        await cluster.produce(3, at=B)
        cluster.expect(f"A: e0[0..9]\nB: e0[0..4] e{epoch}[5..7] HW 8")
        cluster.kill(D)  # what D had to say to A dies with it
        cluster.join(A, B)
        await cluster.until_follows(A, B, epoch_min=epoch)
        await cluster.until_isr(A, B)
        await cluster.until_logs(f"A: e0[0..4] e{epoch}[5..7] HW 8")
        cluster.expect_same_logs(A, B)

    play(story, replicas=(B, A), controllers=(D, E), loses_committed=True)


def test_a_story_is_the_same_whenever_it_is_told() -> None:
    traces = [play(two_unclean_elections, replicas=(A, B), unclean=True) for _ in range(2)]
    assert traces[0] == traces[1]
    assert len(traces[0]) > 100


def test_what_was_cut_off_is_no_duplicate_when_it_is_sent_again() -> None:
    """KIP-98: A has a batch that no other has, and cuts it off as a follower. Then it leads, and its
    producer, which was never answered, sends the batch once more: A must not remember that it has it."""

    async def story(cluster: Cluster) -> None:
        batches = [
            make_batch([b"%d" % number], producer_id=7, producer_epoch=0, base_sequence=number)
            for number in range(2)
        ]
        await cluster.produce_batch(batches[0], at=A, acks=-1)
        await cluster.until_fetch_waits(B, C)
        cluster.part(A, B, C, D)
        await cluster.produce_batch(batches[1], at=A, acks=1)
        cluster.expire(A)
        await cluster.until_leads(B)
        cluster.join(A, B, C, D)
        await cluster.until_isr(A, B, C)
        await cluster.until_logs("A: e0[0..0] HW 1")
        cluster.kill(B)
        await cluster.until_leads(A)
        assert await cluster.produce_batch(batches[1], at=A, acks=-1) == 1
        cluster.acked[1] = b"1"

    play(story)
