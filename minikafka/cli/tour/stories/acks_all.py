"""An acks=all produce: appended at once, answered when the ISR has it, parked in between."""

from __future__ import annotations

from minikafka.cli.tour.stage import Setup, Stage
from minikafka.errors import ErrorCode

SETUP = Setup(min_isr=2, config={"replica.lag.time.max.ms": 10_000}, shows_parked=True)

TO_FOLLOWERS_MS = 100
FROM_FOLLOWERS_MS = {2: 300, 3: 600}


async def tell(stage: Stage) -> None:
    stage.show(
        "Three replicas, nothing written",
        """Broker 1 leads; 2 and 3 follow. Each has a fetch parked at the leader already: a follower asks
        before there is anything, and the leader keeps the question in its purgatory until there is an
        answer or replica.fetch.wait.max.ms (500) is over.""",
    )
    await stage.produce(1, at=1)
    await stage.until_logs("A: e0[0..0] HW 1\nB: e0[0..0]\nC: e0[0..0]")
    await stage.until_fetch_waits(2, 3)
    stage.show(
        "m0 is committed",
        """A first record went through before one could look. The high watermark (HW) of the leader is at
        its log end (LEO). To see the steps in between, what the leader sends to them takes 100 ms from
        now on, what they send 300 ms (broker 2) and 600 ms (broker 3).""",
        facts=[f"the producer was told: offset {max(stage.acked)}"],
    )
    for follower, delay_ms in FROM_FOLLOWERS_MS.items():
        stage.delay(1, follower, TO_FOLLOWERS_MS)
        stage.delay(follower, 1, delay_ms)
    answer = stage.send(at=1)
    await stage.until(lambda: stage.log(1).log_end_offset == 2, "m1 is in the leader's log")
    picture = stage.show(
        "The leader appends m1, and does not answer",
        """The record is in the leader's log: LEO 2. HW is still 1, because no follower has told that it
        has the record. So the request becomes a DelayedProduce in the purgatory, watched under the key of
        its partition, with the producer's timeout as its deadline. Consumers do not see m1 yet.""",
    )
    stage.check(any("DelayedProduce" in each.what for each in picture.waiting), "the produce is parked")
    await stage.until_logs("A: e0[0..1] HW 1\nB: e0[0..1]\nC: e0[0..1]")
    stage.check(stage.log(1).high_watermark == 1, "m1 is not committed")
    stage.show(
        "The append has woken the parked fetches: the followers have m1",
        """The same append completed the followers' parked fetches, and their answers carried m1. All
        three logs are equal now, and still m1 is not committed: the leader only learns what a follower
        has from the offset of its next fetch, and that is on its way.""",
    )
    await _one_follower_has_told(stage)
    stage.show(
        "Broker 2's next fetch says that it has m1; broker 3's is to come",
        """A fetch from offset 2 says "I have everything below 2". The leader notes that, tries the parked
        produce again, and finds that HW cannot move: HW is the smallest LEO of the ISR, and one of its
        members is known to be at 1. min.insync.replicas=2 does not change that: it says how many must be
        in sync for a write to be taken at all, not for how many one waits.""",
    )
    await stage.until(answer.done, "the producer is answered")
    stage.check(await answer is ErrorCode.NONE, "the produce succeeded")
    picture = stage.show(
        "HW is 2, and the producer has its answer",
        """The second fetch moved HW to 2. Moving HW is the event that the produce waited for: it was
        completed by it, exactly once, taken out of its timer, and answered. The followers learn the new
        HW with the next answer to a fetch; that they know it late does no harm, as the story lost-record
        shows.""",
        facts=[f"the producer was told: offset {max(stage.acked)}"],
    )
    stage.check(not any("DelayedProduce" in each.what for each in picture.waiting), "nothing is parked")
    await _not_enough_replicas(stage)


async def _one_follower_has_told(stage: Stage) -> None:
    def is_so() -> bool:
        followers = stage.partition(1).replication.followers
        return sorted(each.log_end_offset for each in followers.values()) == [1, 2]

    await stage.until(is_so, "one follower has told that it has m1")


async def _not_enough_replicas(stage: Stage) -> None:
    for follower in (2, 3):
        stage.delay(1, follower, 1)
        stage.delay(follower, 1, 1)
    await stage.until_fetch_waits(2, 3)
    stage.kill(2)
    stage.kill(3)
    await stage.until_isr(1)
    answer = stage.send(at=1)
    await stage.until(answer.done, "the producer is answered")
    error = await answer
    stage.check(error is ErrorCode.NOT_ENOUGH_REPLICAS, "the produce is refused")
    stage.show(
        "Alone in the ISR: an acks=all produce is refused before anything is appended",
        """Brokers 2 and 3 were killed, and the controller took them out of the ISR. Without
        min.insync.replicas acks=all would now be satisfied with the leader alone. With
        min.insync.replicas=2 the leader refuses: nothing was appended, and nothing waits. The replica
        that left last is eligible (KIP-966): nothing is committed without it, so it may be elected.""",
        facts=[f"the producer was told: {error.name}"],
    )
