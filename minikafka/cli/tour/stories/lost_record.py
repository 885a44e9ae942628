"""KIP-101, scenario 1: truncating to the HW loses a committed record; comparing epochs does not."""

from __future__ import annotations

from minikafka.cli.tour.snapshot import Supposition
from minikafka.cli.tour.stage import Setup, Stage, before_kip_101

SETUP = Setup()

ANSWER_DELAY_MS = 1_000
BEFORE_ANSWER_MS = 100


async def tell(stage: Stage) -> None:
    await _m1_is_committed(stage)
    epoch = stage.state.leader_epoch
    stage.kill(3)
    await stage.until(lambda: stage.state.leader_epoch > epoch, "the leader epoch rises")
    await stage.until_follows(2, 1, epoch_min=epoch + 1)
    cut = before_kip_101(stage.look().replica(2))
    stage.check(cut.replicas[0].log != stage.look().replica(2).log, "a cut at the HW would take m1")
    stage.show(
        "Broker 3 dies, so there is a new leader epoch. May broker 2 trust the end of its log?",
        """A follower that hears of a new epoch cannot know whether its last records are its leader's,
        too. Before KIP-101 (Kafka 0.11) it cut its log to its own HW, whenever it was told whom to
        follow, and fetched again from there. Broker 2 would have cut m1, which is committed. These
        brokers cut nothing on suspicion: broker 2 keeps m1, and its next fetch names the epoch of its
        last record, by which the leader can tell whether the two logs are the same up to there.""",
        suppositions=[cut],
    )
    await stage.pause(BEFORE_ANSWER_MS)
    stage.kill(1)
    await stage.until_leads(2)
    leader = stage.look().replica(2)
    stage.check(leader.log is not None and leader.log.end == 2, "broker 2 leads and has m1")
    supposed = cut.replicas[0]
    stage.show(
        "The leader dies before it could answer, and broker 2 is elected: here the loss would have shown",
        """Broker 2 was in the ISR, so it may lead, and what it has is the truth from now on. With a log
        that was cut and not filled again, m1 would be gone, although its producer was told that all have
        it: broker 1 would cut it, too, on its return, and the next record would get offset 1. With epochs
        broker 2 has kept it, and, being alone, has committed it once more.""",
        suppositions=[
            Supposition(cut.title, (supposed.become(role=leader.role, epoch=leader.epoch),)),
        ],
    )
    await _all_are_back(stage)


async def _m1_is_committed(stage: Stage) -> None:
    await stage.produce(1, at=1)
    await stage.until_logs("A: e0[0..0] HW 1\nB: e0[0..0] HW 1\nC: e0[0..0] HW 1")
    await stage.until_fetch_waits(2, 3)
    await stage.produce(1, at=1)
    stage.delay(1, 2, ANSWER_DELAY_MS)
    picture = stage.show(
        "m1 is committed, and broker 2 does not know yet",
        """All three have m1, and the leader has told its producer so. A follower learns of the HW one
        answer later. What the leader sends to broker 2 takes a second from now on, so broker 2 still
        believes that HW is 1.""",
        facts=[f"the producer (acks=all) was told: offset {max(stage.acked)}"],
    )
    follower = picture.replica(2).log
    is_so = follower is not None and (follower.high_watermark, follower.end) == (1, 2)
    stage.check(is_so, "broker 2 has HW 1 and LEO 2")


async def _all_are_back(stage: Stage) -> None:
    stage.delay(1, 2, 1)
    await stage.start(1)
    await stage.start(3)
    await stage.until_isr(1, 2, 3)
    await stage.produce(1, at=2)
    await stage.until(
        lambda: len({stage.log(each).high_watermark for each in (1, 2, 3)}) == 1, "all know the HW"
    )
    stage.expect_same_logs(1, 2, 3)
    stage.expect_acked()
    stage.show(
        "Everybody is back: m1 is where it was, and m2 behind it",
        """Which records are the same is decided by epochs and offsets, never by an HW. Each replica keeps
        where each epoch begins in its leader-epoch-checkpoint; a leader writes its own before any record
        follows, a follower learns of an epoch with the first record of it.""",
    )
