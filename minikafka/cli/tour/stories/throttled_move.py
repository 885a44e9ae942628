"""A large partition moves under a throttle: how long it takes is known before it begins."""

from __future__ import annotations

import asyncio
import json

from minikafka.cli.reassign.execute import CopyEstimate, estimate
from minikafka.cli.reassign.plan import parse_plan
from minikafka.cli.reassign.verify import find_throttles, moves_of, remove_throttles, set_throttle
from minikafka.cli.tour.stage import Setup, Stage
from minikafka.testing.simulation.client import make_batch
from minikafka.testing.stories.pictures import PARTITION, TOPIC
from minikafka.units import format_bytes, format_duration, format_rate

SETUP = Setup(replicas=(1,), others=(4, 3))

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


async def tell(stage: Stage) -> None:
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
