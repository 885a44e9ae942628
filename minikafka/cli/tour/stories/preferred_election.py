"""A preferred election: leadership goes back to the first replica of the assignment."""

from __future__ import annotations

from minikafka.cli.tour.stage import Setup, Stage
from minikafka.errors import ErrorCode
from minikafka.testing.stories.pictures import PARTITION
from minikafka.types import ElectionType

SETUP = Setup(config={"auto.leader.rebalance.enable": "false"})

CATCHING_UP_MS = 300
"""What broker 1 has to wait for, so that one can look at it before it is in sync."""


async def tell(stage: Stage) -> None:
    await stage.produce(2, at=1)
    await stage.until_logs("A: e0[0..1] HW 2\nB: e0[0..1] HW 2\nC: e0[0..1] HW 2")
    stage.show(
        "Broker 1 is the preferred leader, and leads",
        """The first broker of the assignment is the preferred leader. Assignments put each broker first
        equally often, so when every partition is led by its preferred leader, the load is even.""",
    )
    stage.kill(1)
    await stage.until_leads(2)
    await stage.produce(2, at=2)
    stage.show(
        "Broker 1 dies: the controller elects the next of the assignment that is in the ISR",
        """That is broker 2. Each election raises the leader epoch, which the leader stamps into its
        batches: what broker 2 writes belongs to epoch 1. Broker 1 has left the ISR.""",
    )
    stage.delay(2, 1, CATCHING_UP_MS)
    await stage.start(1)
    await stage.until_follows(1, 2)
    refused = (await stage.admin.elect_leaders(ElectionType.PREFERRED, [PARTITION]))[PARTITION]
    stage.check(
        refused is not None and refused.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        "the election was refused",
    )
    assert refused is not None
    stage.check(stage.log(1).log_end_offset < stage.log(2).log_end_offset, "broker 1 lacks records")
    stage.show(
        "Broker 1 is back, and may not lead yet",
        """It follows, and lacks what was written meanwhile. A preferred election is a clean one: it
        elects the preferred leader if that is live and in the ISR, and leaves things as they are if not.""",
        facts=[f"elect-leaders --election-type preferred was told: {refused.code.name}"],
    )
    stage.delay(2, 1, 1)
    await stage.until_isr(1, 2, 3)
    stage.show(
        "Broker 1 is in the ISR again, and broker 2 still leads",
        """Nothing has to change for the records' sake. But if this happens to every partition whose
        leader was restarted, the brokers that stayed up lead everything.""",
    )
    done = (await stage.admin.elect_leaders(ElectionType.PREFERRED, [PARTITION]))[PARTITION]
    stage.check(done is None, "the election succeeded")
    await stage.until_leads(1)
    await stage.until_follows(2, 1, epoch_min=stage.state.leader_epoch)
    stage.show(
        "The preferred election: broker 1 leads in a new epoch",
        """One conditional write of the controller to the partition's state; then it tells the brokers. No
        record moved, none was lost: everybody in the ISR has all that is committed. Here an operator asked
        for it (minikafka elect-leaders); the controller does the same by itself every
        leader.imbalance.check.interval.seconds (300) where a broker leads too few of those it should
        (auto.leader.rebalance.enable, switched off in this story).""",
        facts=["elect-leaders --election-type preferred was told: NONE"],
    )
    await stage.produce(1, at=1)
    await stage.until(lambda: all(stage.log(each).high_watermark == 5 for each in (1, 2, 3)), "all have HW 5")
    stage.expect_same_logs(1, 2, 3)
    stage.show(
        "The log tells who led when",
        """Offsets 0 and 1 are of epoch 0, 2 and 3 of epoch 1, 4 of the newest. Each replica has the same,
        and keeps the first offset of each epoch in its leader-epoch-checkpoint.""",
    )
