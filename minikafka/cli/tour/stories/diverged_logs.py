"""KIP-101, scenario 2: after a power cut two replicas have different records at one offset."""

from __future__ import annotations

from minikafka.cli.tour.snapshot import Replica, Supposition
from minikafka.cli.tour.stage import Setup, Stage, before_kip_101
from minikafka.testing.simulation.disk import Survival

SETUP = Setup(replicas=(1, 2), unclean=True)

CHECKPOINT_MS = 5_500
"""``replica.high.watermark.checkpoint.interval.ms`` is 5,000."""


async def tell(stage: Stage) -> None:
    await _power_cut(stage)
    stage.expire(1)
    stage.expire(2)
    await stage.start(2)
    await stage.until_leads(2)
    await stage.produce(1, at=2)
    epoch = stage.state.leader_epoch
    stage.show(
        f"Broker 2 is back first, leads in epoch {epoch}, and takes m2 at offset 1",
        """That is the price of an unclean election after such a power cut: m1 is lost. What must not
        happen is that the replicas disagree about offset 1 from now on.""",
    )
    stage.part(1, 2)
    await stage.start(1)
    await stage.until_follows(1, 2)
    picture = stage.look()
    here, there = picture.replica(1), picture.replica(2)
    stage.check(_value(here) == "m1" and _value(there) == "m2", "the logs differ at offset 1")
    kept = before_kip_101(here).replicas[0]
    stage.check(kept.log == here.log, "cutting to the HW would cut nothing")
    title = "computed from both logs, not run: broker 1, cut to its own HW as before KIP-101, and broker 2"
    stage.show(
        f"Broker 1 is back with m1 at offset 1: two histories, epoch 0 here and {epoch} there",
        """It was told to follow broker 2, and cannot reach it yet. By length and HW the two logs are in
        order: both end at 2, and HW is 2 for both. A follower that cuts to its HW cuts nothing, and
        continues to fetch from offset 2. Consumers would read m1 or m2 at offset 1, depending on who
        leads, for ever.""",
        suppositions=[Supposition(title, (kept, there))],
    )
    stage.join(1, 2)
    await stage.until_isr(1, 2)
    await stage.until_logs(f"A: e0[0..0] e{epoch}[1..1] HW 2\nB: e0[0..0] e{epoch}[1..1] HW 2")
    stage.expect_same_logs(1, 2)
    stage.show(
        "Epochs find where the histories part: m1 is cut, m2 is fetched",
        f"""Broker 1 asked from offset 2 and named the epoch of its last record: 0. Broker 2 answered with
        the largest epoch that it has up to that, and where it ended: epoch 0 ends at 1. (KIP-595 has this
        in the answer to a fetch, the diverging epoch; in KIP-101 it was a request of its own,
        OffsetsForLeaderEpoch.) Broker 1 cut its log to 1 and fetched the record of epoch {epoch}. The
        logs are the same, byte for byte.""",
    )


async def _power_cut(stage: Stage) -> None:
    await stage.produce(1, at=1)
    for node_id in (1, 2):
        stage.broker(node_id).disk.sync_all()
    await stage.produce(1, at=1)
    await stage.pause(CHECKPOINT_MS)
    stage.show(
        "m0 and m1 are committed; only m0 is on both disks",
        """Kafka leaves flushing to the operating system: a record is safe because several machines have
        it, not because one has written it. m0 was flushed on both, m1 is in their page caches. Both have
        noted HW 2 in replication-offset-checkpoint. Unclean elections are allowed for this topic; else
        broker 2 would not lead before broker 1, which led last, is back.""",
        facts=[f"the producer (acks=all) was told: offset {max(stage.acked)}"],
    )
    stage.power_off(1, Survival.EVERYTHING)
    stage.power_off(2, Survival.NOTHING)
    stage.show(
        "The power fails for both at once",
        """Broker 1 was lucky: its operating system had written m1. Broker 2 has lost what was not
        flushed. Of a broker that is down the picture shows what lies on its disk.""",
    )


def _value(replica: Replica) -> str:
    assert replica.log is not None and replica.log.cells is not None
    return replica.log.cells[1].text
