"""HW and LEO: a follower that stops fetching holds HW where it is, until it leaves the ISR."""

from __future__ import annotations

from minikafka.cli.tour.stage import Setup, Stage

LAG_TIME_MAX_MS = 3_000

SETUP = Setup(config={"replica.lag.time.max.ms": LAG_TIME_MAX_MS}, shows_parked=True)


async def tell(stage: Stage) -> None:
    await stage.produce(2, at=1)
    await stage.until_logs("A: e0[0..1] HW 2\nB: e0[0..1] HW 2\nC: e0[0..1] HW 2")
    await stage.until_fetch_waits(2, 3)
    stage.show(
        "Everybody has everything",
        """LEO, the log end offset, is what the next record gets; each replica has its own. HW, the high
        watermark, is the smallest LEO of the in-sync replicas (ISR), as the leader knows it. Consumers
        read up to HW, drawn as a thick line.""",
    )
    stage.part(1, 3)
    told = await stage.produce(2, at=1, acks=1)
    await stage.until_logs("A: e0[0..3] HW 2\nB: e0[0..3]")
    await stage.until_fetch_waits(2)
    stage.show(
        "Broker 3 is cut off from the leader: HW stands",
        """Two more records were written with acks=1. Broker 2 has them, broker 3 gets nothing through. It
        is still in the ISR, so HW waits for it. Nothing is wrong yet: lag is measured as a
        time, not as a number of records (KIP-16).""",
        facts=[f"the producer (acks=1) was told: offset {told}, and did not wait for anybody"],
    )
    await stage.until_isr(1, 2)
    stage.show(
        "After replica.lag.time.max.ms the leader takes broker 3 out of the ISR",
        f"""Broker 3 has not been caught up for {LAG_TIME_MAX_MS:,} ms. The leader proposed the smaller
        ISR, as a conditional write to the store; when that had succeeded, HW jumped to the smallest LEO
        of those that are left. What is committed now is safe with them: only a member of the ISR may be
        elected.""",
    )
    await stage.produce(2, at=1)
    await stage.until_fetch_waits(2)
    stage.show(
        "The partition goes on without broker 3",
        """acks=all waits for the ISR as it is, not for all replicas. The partition is under-replicated:
        two copies where there should be three.""",
        facts=[f"the producer (acks=all) was told: offset {max(stage.acked)}"],
    )
    stage.join(1, 3)
    await stage.until(lambda: stage.log(3).log_end_offset == 6, "broker 3 has fetched everything")
    stage.show(
        "The network is back: broker 3 fetches what it lacks",
        """It continues from its LEO, naming the epoch of its last record, so that the leader can see that
        the two logs are the same up to there. It is not in the ISR by having the records; the leader has
        to learn of it, by the next fetch.""",
    )
    await stage.until_isr(1, 2, 3)
    await stage.until_logs("A: e0[0..5] HW 6\nB: e0[0..5] HW 6\nC: e0[0..5] HW 6")
    stage.expect_same_logs(1, 2, 3)
    stage.show(
        "Broker 3 is in the ISR again",
        """A follower joins when it has everything up to HW and up to the start of the leader's epoch. The
        three logs are the same again, byte for byte.""",
    )
