"""The controller dies in the middle of a reassignment: what is written down goes on."""

from __future__ import annotations

from minikafka.cli.tour.stage import Setup, Stage
from minikafka.testing.stories.pictures import PARTITION

RECORDS = 8
SETUP = Setup(others=(4, 5), config={"replica.fetch.max.bytes": 100})
"""A batch in each answer, so that one can look at the copy."""

TO_NEW_REPLICA_MS = 150


async def tell(stage: Stage) -> None:
    await stage.produce(RECORDS, at=1)
    await stage.until(lambda: stage.log(3).high_watermark == RECORDS, "broker 3 has everything")
    stage.show(
        "A partition on brokers 1, 2 and 3; broker 4 is the controller",
        """The controller is one of the brokers: the one that could make the node /controller in the
        store. Its epoch counts the controllers there have been. Broker 5 has nothing yet.""",
    )
    stage.delay(1, 5, TO_NEW_REPLICA_MS)
    refused = await stage.admin.reassign({PARTITION: (5, 2, 3)})
    stage.check(not refused, "the reassignment was accepted")
    await _broker_5_has(stage, 3)
    stage.show(
        "An operator asks for the replicas 5 2 3: broker 5 is being added, broker 1 is to go",
        """First the controller writes the plan into the topic's node: all replicas, which are being
        added, which are to be removed (KIP-455). Only then it tells the brokers. Broker 5 has made a log
        and copies; as long as it is not in the ISR, nothing waits for it.""",
    )
    stage.broker(4).kill()
    await _broker_5_has(stage, 5)
    stage.show(
        "The controller is killed; the store still names it",
        """Its session with the store lasts for a while: until it ends, no broker takes over. Copying does
        not need a controller: it is between broker 5 and the leader.""",
    )
    await _broker_5_has(stage, RECORDS)
    picture = stage.show(
        "Broker 5 has everything. There the matter rests",
        """Its leader asks the controller to add it to the ISR (AlterPartition, KIP-497), and asks again,
        for there is none that answers. Producers notice nothing: the leader counts the members that the
        ISR would have, too, until it knows which it is.""",
    )
    stage.check(picture.partitions[0].assignment.adding == (5,), "the reassignment is under way")
    stage.check(5 not in picture.partitions[0].state.isr, "the ISR is the old one")
    epoch = picture.controller_epoch
    await stage.until(lambda: stage.controller not in (None, 4), "there is a controller")
    await stage.until(lambda: stage.state.leader != 1, "broker 1 leads no more")
    picture = stage.show(
        f"The session is over: broker {stage.controller} is the controller, and goes on with the plan",
        """The session's end removed /controller; the first broker that made it again is the controller.
        It read everything from the store, wrote the ISR for which the leader was asking, and found a
        reassignment whose new replicas are all in it. So it elected a leader among those that stay:
        broker 1 must not be removed while it leads.""",
    )
    stage.check(picture.controller_epoch > epoch, "the controller epoch rose")
    await stage.until(lambda: not stage.look().partitions[0].assignment.is_being_reassigned, "it is done")
    await stage.until(lambda: stage.hosted(1) is None, "broker 1 has no replica")
    await stage.until(lambda: _leads(stage, 5), "broker 5 knows that it leads")
    await stage.produce(1, at=5)
    await stage.until(lambda: stage.log(3).high_watermark == RECORDS + 1, "broker 3 knows the HW")
    stage.expect_same_logs(2, 3, 5)
    stage.show(
        "Done: replicas 5 2 3",
        """Broker 1 was taken out of the ISR, told to stop and delete its replica, and only then removed
        from the assignment. Had the second controller died, too, the third would have done the rest: each
        step is written down before the next begins. What the dead controller may still send is refused:
        its controller epoch is too old.""",
    )


def _leads(stage: Stage, node_id: int) -> bool:
    replica = stage.hosted(node_id)
    return replica is not None and replica.is_leader


async def _broker_5_has(stage: Stage, count: int) -> None:
    def is_so() -> bool:
        replica = stage.hosted(5)
        return replica is not None and replica.log.log_end_offset == count

    await stage.until(is_so, f"broker 5 has {count} records")
