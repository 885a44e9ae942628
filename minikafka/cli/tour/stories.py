"""The stories of ``minikafka tour``, in the order of the catalogue: for each the cluster that it begins with,
and a function that tells it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from minikafka.cli.reassign.command import CopyEstimate, estimate
from minikafka.cli.reassign.plan import parse_plan
from minikafka.cli.reassign.verify import find_throttles, moves_of, remove_throttles, set_throttle
from minikafka.cli.tour.stage import ADMIN_TIMEOUT_MS, Replica, Setup, Stage, Supposition, before_kip_101
from minikafka.cli.transactions import TransactionAdmin
from minikafka.errors import ErrorCode, KafkaError
from minikafka.testing.simulation.client import PASSING, RETRY_PAUSE_MS, SimulatedClient, make_batch
from minikafka.testing.simulation.disk import Survival
from minikafka.testing.simulation.scenarios.transactions import TransactionalProducer
from minikafka.testing.stories import PARTITION, TOPIC
from minikafka.types import ElectionType
from minikafka.units import format_bytes, format_duration, format_rate

# Of the acks=all produce.
TO_FOLLOWERS_MS = 100
FROM_FOLLOWERS_MS = {2: 300, 3: 600}

# Of the lagging follower.
LAG_TIME_MAX_MS = 3_000

# Of the lost record.
ANSWER_DELAY_MS = 1_000
BEFORE_ANSWER_MS = 100

# Of the logs that diverge.
CHECKPOINT_MS = 5_500
"""``replica.high.watermark.checkpoint.interval.ms`` is 5,000."""

# Of the preferred election.
CATCHING_UP_MS = 300
"""What broker 1 has to wait for, so that one can look at it before it is in sync."""

# Of the controller that dies.
RECORDS = 8
TO_NEW_REPLICA_MS = 150

# Of the throttled move.
SOURCE, TARGET = 1, 3
BATCHES = 200
BATCH_BYTES = 1_000_000
RATE = 2_000_000
HIGHER_RATE = 5_000_000
LOOK_S = 10
TWO_QUOTA_WINDOWS_S = 22
"""Twice ``replication.quota.window.num`` (11) windows of a second."""
PATIENCE_MS = 300_000
LOOK_AT_END_EVERY_MS = 20
SOON_MS = 20
PLAN = json.dumps({"version": 1, "partitions": [{"topic": TOPIC, "partition": 0, "replicas": [TARGET]}]})

# Of the zombie.
ORDERS, PAYMENTS = "orders", "payments"
GROUP = "billing"
TRANSACTIONAL_ID = "billing-0"


class Story(NamedTuple):
    """With what it begins, and what happens then."""

    setup: Setup
    tell: Callable[[Stage], Awaitable[None]]


async def acks_all(stage: Stage) -> None:
    """An acks=all produce: appended at once, answered when the ISR has it, parked in between."""
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


async def lagging_follower(stage: Stage) -> None:
    """HW and LEO: a follower that stops fetching holds HW where it is, until it leaves the ISR."""
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


async def lost_record(stage: Stage) -> None:
    """KIP-101, scenario 1: truncating to the HW loses a committed record; comparing epochs does not."""
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


async def diverged_logs(stage: Stage) -> None:
    """KIP-101, scenario 2: after a power cut two replicas have different records at one offset."""
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


async def preferred_election(stage: Stage) -> None:
    """A preferred election: leadership goes back to the first replica of the assignment."""
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


async def controller_failover(stage: Stage) -> None:
    """The controller dies in the middle of a reassignment: what is written down goes on."""
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


async def throttled_move(stage: Stage) -> None:
    """A large partition moves under a throttle: how long it takes is known before it begins."""
    await _fill(stage)
    size_bytes = stage.partition(SOURCE).log.size_bytes
    beforehand = await estimate(stage.admin, parse_plan(PLAN), {})
    stage.show(
        "A partition of 200 MB on broker 1, to be moved to broker 3",
        """Copying is fetching: the new replica is a follower that is far behind. Without a limit it would
        take what disks and network give, and clients would feel it.""",
        facts=[beforehand.describe(RATE)],
    )
    await _throttle(stage, RATE)
    stage.show(
        f"The throttle: {format_rate(RATE)}, on both sides",
        """Two lists at the topic say which replicas are throttled, on the leader's side and on the
        followers'; a rate at each broker says how fast they may be together (KIP-73). In-sync replicas
        are never held back, and no producer or consumer is. minikafka reassign execute --throttle sets
        all of this.""",
        facts=await _throttles(stage),
    )
    began_s = stage.simulation.loop.time()
    refused = await stage.admin.reassign({PARTITION: (TARGET,)})
    stage.check(not refused, "the reassignment was accepted")
    await _copies(stage)
    await _is_raised(stage)
    await stage.until(
        lambda: stage.hosted(SOURCE) is None,
        "broker 1 has no replica",
        within_ms=PATIENCE_MS,
        every_ms=LOOK_AT_END_EVERY_MS,
    )
    took_ms = (stage.simulation.loop.time() - began_s) * 1000
    stage.check(stage.partition(TARGET).log.size_bytes > size_bytes, "everything was moved")
    stage.show(
        "Broker 3 leads, and broker 1 has deleted its replica",
        """When the new replica was in the ISR the controller elected it, took the old one out, and had it
        deleted. The throttle is still set: it would hold back the next replica of this topic that has to
        catch up.""",
        facts=[f"the move took {format_duration(took_ms)}", *await _throttles(stage)],
    )
    await remove_throttles(stage.admin, await find_throttles(stage.admin))
    left = await _throttles(stage)
    stage.check(not left, "no throttle is left")
    stage.show(
        "The throttle is removed",
        """minikafka reassign does this by itself when it has waited for the end;
        kafka-reassign-partitions.sh does it in --verify, which is easily forgotten. minikafka reassign
        remove-throttles looks for what was left behind.""",
        facts=["throttles that are set: none"],
    )


async def _fill(stage: Stage) -> None:
    batch = make_batch([bytes(BATCH_BYTES - 100)])
    for _ in range(BATCHES):
        await stage.client.deliver(TOPIC, 0, batch, acks=1)


async def _throttle(stage: Stage, rate: int) -> None:
    await set_throttle(
        stage.admin, moves_of({PARTITION: (TARGET,)}, {PARTITION: (SOURCE,)}, {}), bytes_per_s=rate
    )


async def _throttles(stage: Stage) -> list[str]:
    return [f"set: {each}" for each in await find_throttles(stage.admin)]


async def _copies(stage: Stage) -> None:
    """It is under way for a while."""
    await asyncio.sleep(LOOK_S)
    before = stage.partition(TARGET).log.size_bytes
    await asyncio.sleep(LOOK_S)
    stage.show(
        "Broker 3 copies at the rate, and no faster",
        """The leader asks the quota before it puts a throttled replica's records into an answer; the
        follower asks its own before it fetches. Over a window of some seconds both keep the rate.
        Meanwhile producers write as ever.""",
        facts=[_measured(stage, before, LOOK_S), await _left(stage, RATE), await _produced(stage)],
    )


async def _is_raised(stage: Stage) -> None:
    await _throttle(stage, HIGHER_RATE)
    before = stage.partition(TARGET).log.size_bytes
    await asyncio.sleep(TWO_QUOTA_WINDOWS_S)
    stage.show(
        f"The throttle is raised to {format_rate(HIGHER_RATE)} on the way",
        """Rate and lists are dynamic configurations: they hold at once, without a restart and without a
        new plan (minikafka reassign execute --additional --throttle). A quota is a mean over eleven
        seconds; when it is raised there is room in that window at once, so the copy runs in bursts for a
        while, at the new rate on average.""",
        facts=[_measured(stage, before, TWO_QUOTA_WINDOWS_S), await _left(stage, HIGHER_RATE)],
    )


def _measured(stage: Stage, before: int, seconds: int) -> str:
    copied = stage.partition(TARGET).log.size_bytes - before
    return f"in the last {seconds} s: {format_bytes(copied)}, {format_rate(copied / seconds)}"


async def _left(stage: Stage, rate: int) -> str:
    under_way = await stage.admin.reassignments()
    found: CopyEstimate = await estimate(stage.admin, [], under_way)
    return found.describe(rate)


async def _produced(stage: Stage) -> str:
    loop = stage.simulation.loop
    began_s = loop.time()
    await stage.produce(1, at=SOURCE)
    took_ms = (loop.time() - began_s) * 1000
    stage.check(took_ms < SOON_MS, "the producer is answered at once")
    return f"a producer (acks=all) was answered within {SOON_MS} ms"


async def zombie(stage: Stage) -> None:
    """Exactly-once: of two instances with one transactional id one does not know that it is replaced."""
    stage.shown = [await stage.new_topic(ORDERS), await stage.new_topic(PAYMENTS)]
    await stage.client.deliver(ORDERS, 0, make_batch([b"order 7"]))
    first = Instance(stage)
    await first.producer.begin()
    order = await first.next_order()
    await first.pay(order)
    picture = stage.show(
        "An instance of billing reads order 7 and writes its payment, in a transaction",
        f"""The instance consumes orders, and for each writes a payment; its position in orders goes into
        the same transaction. It has the transactional id {TRANSACTIONAL_ID}, for which the coordinator
        gave it a producer id and an epoch (p, in the picture). The transaction is open: the last stable
        offset (LSO) stands before its first record, and read_committed consumers read up to there.""",
        facts=[f"first instance: producer id/epoch {first.name}", *await _seen(stage)],
    )
    payments = picture.replica(1, f"{PAYMENTS}-0").log
    stage.check(payments is not None and payments.stable == 0, "the LSO is 0")
    await _second_takes_over(stage, first)


async def _second_takes_over(stage: Stage, first: Instance) -> None:
    second = Instance(stage)
    await second.producer.begin()
    await stage.until(lambda: _stable(stage) == 2, "the open transaction was aborted")
    stage.show(
        "The instance stalls, and a second one starts with the same transactional id",
        """A long garbage collection, a sleeping laptop: no broker can tell that from death. The second
        instance asks for the producer id (InitProducerId). The coordinator raises the epoch, which fences
        the first one, and aborts the transaction that it finds open: an ABORT marker is in the log, and
        the LSO moves on. Consumers with read_committed skip the payment before it.""",
        facts=[f"second instance: producer id/epoch {second.name}", *await _seen(stage)],
    )
    order = await second.next_order()
    stage.check(order == b"order 7", "order 7 comes again")
    await second.pay(order)
    await second.producer.send_offsets(GROUP, {0: 1}, topic=ORDERS)
    await second.producer.end(commit=True)
    await stage.until(lambda: _stable(stage) == 4, "the transaction is committed")
    stage.show(
        "The second instance gets order 7 again, pays it, and commits",
        """The group's position was part of the aborted transaction, so it is still before order 7. Now
        the payment and the position are committed by the same markers: both hold, or neither.""",
        facts=await _seen(stage),
    )
    await _zombie_wakes(stage, first)


async def _zombie_wakes(stage: Stage, first: Instance) -> None:
    written = await _told(first.pay(b"order 7"))
    committed = await _told(first.producer.end(commit=True))
    stage.check(written is ErrorCode.INVALID_PRODUCER_EPOCH, "the zombie's record is refused")
    stage.check(committed is not ErrorCode.NONE, "the zombie's commit is refused")
    picture = stage.show(
        "The first instance wakes up and goes on where it was: a zombie, and fenced",
        """It does not know that time has passed. What it writes is refused by the partition's leader,
        which has seen a newer epoch of this producer id; its commit is refused by the coordinator. Both
        without asking anybody: the epoch in the request is enough.""",
        facts=[
            f"the zombie's produce was told: {written.name}",
            f"the zombie's EndTxn was told: {committed.name}",
            *await _seen(stage),
        ],
    )
    stage.check(picture.replica(1, f"{PAYMENTS}-0").log is not None, "payments has a log")
    values = [value for _, value in await stage.client.read_all(PAYMENTS, 0, read_committed=True)]
    stage.check(values == [b"pay 7"], "order 7 is paid once")


class Instance:
    """One of the application."""

    def __init__(self, stage: Stage) -> None:
        self._client = SimulatedClient(stage.addresses, client_id=GROUP)
        self.producer = TransactionalProducer(self._client, TRANSACTIONAL_ID, partitions=1, topic=PAYMENTS)

    @property
    def name(self) -> str:
        """Its producer id and epoch, as a picture has them."""
        return "/".join(map(str, self.producer.producer))

    async def next_order(self) -> bytes:
        """What is at the group's position."""
        fetched = await self._client.fetch(ORDERS, 0, await position(self._client), read_committed=True)
        return fetched.records[0].value or b""

    async def pay(self, order: bytes) -> None:
        """A record in the transaction."""
        await self.producer.send(0, b"pay " + order.removeprefix(b"order "))


async def position(client: SimulatedClient) -> int:
    """Where the group reads on."""
    while True:
        try:
            coordinator = await client.find_coordinator(GROUP)
            return max(0, (await client.fetch_positions(coordinator, GROUP, ORDERS, [0]))[0])
        except KafkaError as error:
            if error.code not in (*PASSING, ErrorCode.UNSTABLE_OFFSET_COMMIT):
                raise
            await asyncio.sleep(RETRY_PAUSE_MS / 1000)


def _stable(stage: Stage) -> int:
    log = stage.look().replica(1, f"{PAYMENTS}-0").log
    return -1 if log is None else log.stable


async def _told(work: Awaitable[None]) -> ErrorCode:
    """The error that a client gets."""
    try:
        await work
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


async def _seen(stage: Stage) -> list[str]:
    """What the coordinator says, and what consumers read."""
    async with TransactionAdmin(stage.addresses, client_id="operator", timeout_ms=ADMIN_TIMEOUT_MS) as admin:
        state = await admin.describe(TRANSACTIONAL_ID)
    lines = [
        f"coordinator, broker {state.coordinator}: {TRANSACTIONAL_ID} is at producer id/epoch "
        f"{state.producer_id}/{state.producer_epoch}, {state.state}"
    ]
    for isolation in ("read_uncommitted", "read_committed"):
        found = await stage.client.read_all(PAYMENTS, 0, read_committed=isolation == "read_committed")
        values = ", ".join((value or b"").decode() for _, value in found) or "nothing"
        lines.append(f"a consumer of {PAYMENTS} with {isolation} has read: {values}")
    return [*lines, f"the group {GROUP} reads {ORDERS} on at {await position(stage.client)}"]


BY_NAME: Mapping[str, Story] = {
    "acks-all": Story(
        Setup(min_isr=2, config={"replica.lag.time.max.ms": 10_000}, shows_parked=True), acks_all
    ),
    "lagging-follower": Story(
        Setup(config={"replica.lag.time.max.ms": LAG_TIME_MAX_MS}, shows_parked=True), lagging_follower
    ),
    "lost-record": Story(Setup(), lost_record),
    "diverged-logs": Story(Setup(replicas=(1, 2), unclean=True), diverged_logs),
    "preferred-election": Story(Setup(config={"auto.leader.rebalance.enable": "false"}), preferred_election),
    "controller-failover": Story(
        # A batch in each answer, so that one can look at the copy.
        Setup(others=(4, 5), config={"replica.fetch.max.bytes": 100}),
        controller_failover,
    ),
    "throttled-move": Story(Setup(replicas=(1,), others=(4, 3)), throttled_move),
    "zombie": Story(
        Setup(config={"transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1}), zombie
    ),
}
"""As the catalogue and the command call them."""
