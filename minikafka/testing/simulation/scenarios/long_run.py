"""Days of a quiet cluster: whether all that is kept is also forgotten.

    python -m minikafka.testing.simulation.scenarios.long_run --days 24

Every hour clients come that were never there before: an idempotent producer, one that writes keys, a
transactional one, which aborts now and then, and the member of a group, which commits and leaves. So the
brokers delete, compact and forget by every rule that they have: retention by time, compaction, the expiry of
producer ids, transactional ids and groups' offsets. Twice a day everything is counted; what there is after
the first day does not grow any more.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from minikafka.protocol.records.records import Record, build_batch
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.testing.broker import Property
from minikafka.testing.simulation.client import SimulatedClient, SimulatedProducer, check
from minikafka.testing.simulation.disk import files_below
from minikafka.testing.simulation.invariants import hosted_partitions
from minikafka.testing.simulation.scenarios.plan import TOPIC
from minikafka.testing.simulation.scenarios.transactions import TransactionalProducer
from minikafka.testing.simulation.simulation import SimulatedBroker, Simulation

HOUR_MS = 3_600_000
DAY_S = 86_400
LOOK_HOURS = 12
ROUND_S = 3_600
BROKERS, PARTITIONS = 3, 2
TABLE, KEYS = "table", 8
BATCHES, VALUE = 10, bytes(2_000)
ABORTS_EVERY = 4
GROUP, TRANSACTION = 0, 1
"""Key types of FindCoordinator."""
SESSION_TIMEOUT_MS = 600_000
FETCH_WAIT_MS = 300_000
"""So long a follower waits in its leader's purgatory: it learns of a new topic's partitions afterwards."""

CONFIG: dict[str, Property] = {
    "default.replication.factor": BROKERS,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    # What a quiet cluster does by itself, less often: it would be most of a run.
    "replica.fetch.wait.max.ms": FETCH_WAIT_MS,
    "replica.lag.time.max.ms": 600_000,
    "replica.socket.timeout.ms": 600_000,
    "replica.high.watermark.checkpoint.interval.ms": 600_000,
    "log.flush.offset.checkpoint.interval.ms": 600_000,
    "log.flush.start.offset.checkpoint.interval.ms": 600_000,
    "log.cleaner.backoff.ms": 600_000,
    "leader.imbalance.check.interval.seconds": 3_600,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 60_000,
    # Full within the first hours, as it is on any broker some day.
    "event.recorder.max.bytes": 4 * 1024,
}

GROWTH, OR_SO_MANY = 0.25, 5
"""What a later look may find more than the second, as a share or in number."""
PURGED_LATE = {"watched operations": 1_000 * BROKERS}
"""What is removed by the thousand (``DelayedOperationPurgatory``)."""


def kept_for(hours: int) -> dict[str, Property]:
    """So long everything that is not needed any more."""
    return {
        "log.retention.ms": hours * HOUR_MS,
        "log.roll.ms": HOUR_MS,
        "log.roll.jitter.ms": 0,
        "log.cleaner.delete.retention.ms": 2 * HOUR_MS,
        "producer.id.expiration.ms": hours * HOUR_MS,
        "transactional.id.expiration.ms": hours * HOUR_MS,
        "offsets.retention.minutes": hours * 60,
    }


class Kept(msgspec.Struct, frozen=True):
    """What the cluster has, all brokers together."""

    days: float
    counts: dict[str, int]

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {name}" for name, count in self.counts.items())
        return f"after {self.days:g} days: {counts}"


def kept(simulation: Simulation) -> Kept:
    """Counted now."""
    gc.collect()
    counts: Counter[str] = Counter()
    for broker in simulation.brokers.values():
        counts.update(_kept_by(broker))
    counts["store nodes"] = len(simulation.store.tree.nodes)
    counts["tasks"] = len(simulation.loop.unfinished_tasks())
    counts["objects"] = len(gc.get_objects())
    return Kept(simulation.loop.time() / DAY_S, dict(counts))


def _kept_by(broker: SimulatedBroker) -> Mapping[str, int]:
    services = broker.server.services
    files = files_below(broker.disk.root)
    logs = [partition.log for partition in hosted_partitions(broker)]
    groups = [hosted.shard for hosted in services.groups.hosted_shards()]
    transactions = [hosted.shard for hosted in services.transactions.hosted_shards()]
    parked = services.replica_manager.parked
    purgatories = (
        *(parked.produce, parked.fetch, parked.delete_records, parked.share_fetch),
        *(services.groups.parked.rebalance, services.groups.parked.heartbeat, services.transactions.parked),
    )
    return {
        "files": len(files),
        "bytes": sum(len(file.data) for file in files),
        "producer ids": sum(len(log.producers.active_producers()) for log in logs),
        "transactional ids": sum(sum(shard.counts_by_state().values()) for shard in transactions),
        "groups": sum(len(shard.groups()) for shard in groups),
        "committed offsets": sum(shard.offsets_count for shard in groups),
        "delayed operations": sum(each.delayed for each in purgatories),
        "watched operations": sum(each.watched for each in purgatories),
        "fetch sessions": len(services.fetch_sessions),
        "metrics": len(services.metrics.metrics),
        "events": len(services.recorder.ring),
    }


def grown(looks: Sequence[Kept]) -> list[str]:
    """What a later look finds more of than the second, as lines; empty: nothing is kept for ever."""
    found, (_, second, *later) = [], looks
    for look in later:
        for name, count in look.counts.items():
            before = second.counts[name]
            if count > max(before * (1 + GROWTH), before + PURGED_LATE.get(name, OR_SO_MANY)):
                found.append(f"after {look.days:g} days: {count:,} {name}, {before:,} after {second.days:g}")
    return found


class LongRun:
    """A cluster, and what visits it."""

    def __init__(self, simulation: Simulation, look_hours: int, tell: Callable[[Kept], None]) -> None:
        self.looks: list[Kept] = []
        self._simulation = simulation
        self._look_hours = look_hours
        self._tell = tell
        self._rounds = 0

    async def play(self, days: int) -> None:
        """Raises what a client is refused with: nothing here fails."""
        simulation, look_s = self._simulation, self._look_hours * 3_600
        # Half of the time between two looks: so the second one sees what all later ones do.
        config = CONFIG | kept_for(self._look_hours // 2)
        await asyncio.gather(*(simulation.start_broker(each, config) for each in range(1, BROKERS + 1)))
        client = self._client("administrator")
        await client.create_topic(TOPIC, partitions=PARTITIONS)
        await client.create_topic(TABLE, configs={"cleanup.policy": "compact"})
        for key_type in (GROUP, TRANSACTION):  # which creates the coordinators' topics
            await self._ask_for_coordinator(client, key_type, "first")
        await asyncio.sleep(2 * FETCH_WAIT_MS / 1000)
        await client.close()
        for look in range(1, days * DAY_S // look_s + 1):
            while simulation.loop.time() < look * look_s:
                await self._round()
                await asyncio.sleep(ROUND_S - simulation.loop.time() % ROUND_S)
            self.looks.append(kept(simulation))
            simulation.notes.forget()
            self._tell(self.looks[-1])

    def _client(self, name: str) -> SimulatedClient:
        addresses = [broker.address for broker in self._simulation.brokers.values()]
        return SimulatedClient(addresses, client_id=name)

    async def _round(self) -> None:
        number, self._rounds = self._rounds, self._rounds + 1
        client = self._client(f"visitor-{number}")
        producer = SimulatedProducer(client)
        for batch in range(BATCHES):
            await producer.send(TOPIC, batch % PARTITIONS, [VALUE])
        await self._write_keys(client, number)
        transaction = TransactionalProducer(client, f"transaction-{number}", partitions=PARTITIONS)
        await transaction.begin()
        for partition in range(PARTITIONS):
            await transaction.send(partition, b"%d" % number)
        await transaction.end(commit=number % ABORTS_EVERY != 0)
        await self._visit_group(client, f"group-{number}")
        await client.close()

    async def _write_keys(self, client: SimulatedClient, number: int) -> None:
        now_ms = time.time_ns() // 1_000_000  # virtual
        records = [Record(key, now_ms, b"key %d" % key, b"%d" % number, ()) for key in range(KEYS)]
        await client.deliver(TABLE, 0, build_batch(records))

    async def _ask_for_coordinator(self, client: SimulatedClient, key_type: int, key: str) -> Any:
        broker = (await client.metadata([])).brokers[0]
        wanted = {"key_type": key_type, "coordinator_keys": [key], "key": key}
        answer = await client.request((broker.host, broker.port), ApiKey.FIND_COORDINATOR, wanted)
        (found,) = answer.coordinators
        return found

    async def _visit_group(self, client: SimulatedClient, group: str) -> None:
        """Join alone, commit the end, leave."""
        found = await self._ask_for_coordinator(client, GROUP, group)
        check(found.error_code)

        async def ask(key: ApiKey, body: Mapping[str, Any]) -> Any:
            return await client.request((found.host, found.port), key, {"group_id": group, **body})

        joining = {
            "session_timeout": 6_000,
            "rebalance_timeout": 3_000,
            "member_id": "",
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "all", "metadata": b""}],
            "reason": None,
        }
        joined = await ask(ApiKey.JOIN_GROUP, joining)
        joined = await ask(ApiKey.JOIN_GROUP, {**joining, "member_id": joined.member_id})
        check(joined.error_code)
        member = {"member_id": joined.member_id, "group_instance_id": None}
        synced = {"generation_id": joined.generation_id, "protocol_type": "consumer", "protocol_name": "all"}
        assigned = {"member_id": joined.member_id, "assignment": b"all"}
        check((await ask(ApiKey.SYNC_GROUP, {**member, **synced, "assignments": [assigned]})).error_code)
        partitions = [
            {
                "partition_index": partition,
                "committed_offset": await client.log_end(TOPIC, partition),
                "committed_leader_epoch": -1,
                "committed_metadata": None,
            }
            for partition in range(PARTITIONS)
        ]
        topics = [{"name": TOPIC, "partitions": partitions}]
        generation = {"generation_id_or_member_epoch": joined.generation_id}
        committed = await ask(ApiKey.OFFSET_COMMIT, {**member, **generation, "topics": topics})
        for each in committed.topics[0].partitions:
            check(each.error_code)
        check((await ask(ApiKey.LEAVE_GROUP, {"members": [{**member, "reason": None}]})).error_code)


def play_days(
    days: int,
    *,
    look_hours: int = LOOK_HOURS,
    seed: int = 1,
    tell: Callable[[Kept], None] = lambda kept: None,
) -> list[Kept]:
    """What there was after every ``look_hours``."""
    simulation = Simulation(seed, session_timeout_ms=SESSION_TIMEOUT_MS)
    run = LongRun(simulation, look_hours, tell)
    simulation.run(lambda _: run.play(days), time_limit_ms=(days + 1) * DAY_S * 1000)
    return run.looks


def main(arguments: list[str] | None = None) -> int:
    """Prints what there is twice a day. 1: something grows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--days",
        type=int,
        choices=range(1, 366),
        metavar="N",
        default=24,
        help="of virtual time (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    looks = play_days(options.days, seed=options.seed, tell=lambda kept: print(kept, flush=True))
    more = grown(looks)
    print(*(more or ["nothing grows"]), f"{time.process_time():.0f} CPU s", sep="\n")
    return 1 if more else 0


if __name__ == "__main__":
    sys.exit(main())
