"""Faults: drawn one or two at a time, and carried out. Each ends. ``until`` is how a scenario waits for what
must come about by itself.

``draw_steps`` is for the scenarios with three or four brokers; ``swarm`` draws its own.

Of a whole cluster: all brokers fall at once and return one after the other, or are restarted in turn with
another configuration; the store that they all use ends sessions late. What was acknowledged with acks=all
outlives a kill of every process, since the kernels have it, and with ``flush.messages=1`` a power cut of
every machine.

Bit rot: one bit of a closed segment of one replica is another one from now on. What must hold: no client
takes the batch for what it was not, and no follower. Where it is read it is an error, until the replica is
made again from the others, which is the operator's business in Kafka: nothing reads a closed segment for its
own sake.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from minikafka.coordination import paths
from minikafka.coordination.store import NoNodeError
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.records.batch import iterate_headers
from minikafka.server.cluster.topic_validation import (
    GROUP_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from minikafka.testing.broker import Property
from minikafka.testing.simulation.disk import DirectoryNode, FileNode, failing
from minikafka.testing.simulation.invariants import hosted_partitions
from minikafka.testing.simulation.loop import DISK_DELAY_MS, HostDiedError
from minikafka.testing.simulation.scenarios.plan import TOPIC, Fault, FaultKind, Role, Step
from minikafka.testing.simulation.simulation import STORE, SimulatedBroker
from minikafka.testing.simulation.store import LATE_EXPIRY_MS
from minikafka.testing.simulation.transport import DELAY_MS
from minikafka.types import TopicPartition

if TYPE_CHECKING:
    from minikafka.testing.simulation.scenarios.cluster_run import ClusterRun


HEAL_WITHIN_MS = 30_000
"""I16."""

CRC_COVERS_FROM = 21
"""The bytes of a batch before that are its offset, its length, its epoch, its version and the CRC itself."""
LOOK_MS = 300

FETCH_BYTES = (300, 1 << 20)
"""``replica.fetch.max.bytes``: with a few records at a time a follower is behind for a while."""
STEPS = 4
FAULT_MS = (50, 9_000)
"""Up to longer than a session, so that some faults are and some are not noticed as a death."""
CUT_MS = (3_000, 14_000)
"""Most are long enough for another leader."""
RETURN_MS = (20, 3_000)
"""Between two brokers that return after all have fallen, or are restarted in turn."""
LATE_RETURN_MS = (6_500, 8_000)
"""A session of each of the others ends before the next one is back."""
AIMED_SHARE = 0.3
LATER_MS = (300, 6_000)
"""When a fault that overlaps another one begins."""
SLOW_BEFORE_POWER_OFF_MS = 1_500
"""Less than the shortest lag: what was acknowledged is still on other machines."""
LINK_DELAYS_MS = (300, 300, 4_000)
STORE_DELAYS_MS = (900, 900, 4_000)
"""The most. Some reach a broker that is another one by then: paused, deposed, restarted."""
DRIFT_STEP_MS = 100
POLL_MS = 5
_LED_BY = {
    Role.LEADER: TOPIC,
    Role.TRANSACTION_COORDINATOR: TRANSACTION_STATE_TOPIC,
    Role.GROUP_COORDINATOR: GROUP_METADATA_TOPIC,
    Role.SHARE_COORDINATOR: SHARE_GROUP_STATE_TOPIC,
}
"""A follower fetches the first record of an epoch some milliseconds after the election."""

_DRAWN_ROLES = tuple(role for role in Role if role is not Role.SHARE_COORDINATOR)

OTHER_CONFIG: dict[str, tuple[Property, ...]] = {
    "log.roll.ms": (1_000, 20_000),
    "replica.lag.time.max.ms": (2_000, 15_000),
    "num.replica.fetchers": (1, 3),
    "replica.fetch.wait.max.ms": (50, 500),
    "max.incremental.fetch.session.cache.slots": (0, 1000),
    "message.max.bytes": (100_000, 1_048_588),
}
"""What a rolling restart may change."""

_OF_POWER = (FaultKind.POWER_OFF, FaultKind.POWER_OFF_IN_NEW_EPOCH, FaultKind.POWER_OFF_IN_FLUSH)
_UNAIMED = (
    FaultKind.KILL_ALL, FaultKind.POWER_OFF_ALL, FaultKind.ROLLING_RESTART, FaultKind.LATE_EXPIRY,
    FaultKind.POWER_OFF_IN_NEW_EPOCH, FaultKind.BIT_ROT,
)  # fmt: skip
_OTHERS = (
    FaultKind.KILL, FaultKind.PAUSE, FaultKind.ISOLATE, FaultKind.CUT_FROM_BROKERS, FaultKind.ONE_WAY,
    FaultKind.WITHOUT_STORE, FaultKind.SLOW_STORE, FaultKind.SLOW_LINK, FaultKind.CLEAN_RESTART,
    FaultKind.DROP_CONNECTIONS,
)  # fmt: skip


async def until(condition: Callable[[], bool], what: str, *, within_ms: int = HEAL_WITHIN_MS) -> None:
    """Look every 50 ms of virtual time. Raises TimeoutError."""
    for _ in range(within_ms // 50):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise TimeoutError(f"not within {within_ms} ms: {what}")


# Faults of the whole cluster


async def kill_all(run: ClusterRun, fault: Fault) -> None:
    """SIGKILL, everywhere at the same moment."""
    for broker in run.simulation.brokers.values():
        if broker.is_running:
            broker.kill()
    await _return(run, fault)


async def power_off_all(run: ClusterRun, fault: Fault) -> None:
    """The data centre goes dark."""
    for broker in run.simulation.brokers.values():
        broker.power_off()
    await _return(run, fault)


async def _return(run: ClusterRun, fault: Fault) -> None:
    async with asyncio.TaskGroup() as starting:
        for node_id in fault.order:
            await asyncio.sleep(fault.lasts_ms / 1000)
            starting.create_task(run.simulation.brokers[node_id].start())


async def rolling_restart(run: ClusterRun, fault: Fault) -> None:
    """Each waits for the one before, and no longer: some are restarted while partitions are not whole."""
    for node_id in fault.order:
        broker = run.simulation.brokers[node_id]
        try:
            if broker.is_running:
                await broker.stop()
        except HostDiedError:  # it stopped by itself meanwhile
            pass
        await broker.start(fault.config)
        await asyncio.sleep(fault.lasts_ms / 1000)


async def late_expiry(run: ClusterRun, fault: Fault) -> None:
    """Who is dead is taken for alive: by up to ``amount`` ms longer than ZooKeeper's tick."""
    store = run.simulation.store
    store.late_expiry_ms = fault.amount
    await asyncio.sleep(fault.lasts_ms / 1000)
    store.late_expiry_ms = LATE_EXPIRY_MS


# Bit rot


class RottenBatch(NamedTuple):
    partition: int
    base_offset: int


async def bit_rot(run: ClusterRun, fault: Fault) -> None:
    """Comes when the cluster is whole. Raises AssertionError; TimeoutError: the others do not take over."""
    broker = run.simulation.brokers[fault.victim]
    rotten = rot(broker, run.simulation.rng(f"bit rot {fault.amount}"))
    if rotten is None:  # nothing is that old
        await asyncio.sleep(fault.lasts_ms / 1000)
        return
    for _ in range(max(1, fault.lasts_ms // LOOK_MS)):
        await _read(run, broker, rotten)
        await asyncio.sleep(LOOK_MS / 1000)
    if not set(_isr(run, rotten.partition)) - {broker.node_id}:
        await run.until_ready_for_faults()
    # With another sound copy nothing is waited for: a replica that was added meanwhile copies the rotten one,
    # and is never in sync while that leads.
    await _make_again(run, broker, rotten.partition)


def rot(broker: SimulatedBroker, rng: random.Random) -> RottenBatch | None:
    """One bit that the CRC of its batch covers, in a segment that nothing is appended to."""
    closed: list[tuple[int, FileNode]] = []
    for partition, directory in _directories(broker):
        logs = sorted(name for name in directory.entries if name.endswith(".log"))[:-1]
        files = [directory.entries[name] for name in logs]
        closed += [(partition, file) for file in files if isinstance(file, FileNode) and len(file.data)]
    if not closed:
        return None
    partition, file = rng.choice(closed)
    position, header = rng.choice(list(iterate_headers(file.data)))
    file.rot(position + rng.randrange(CRC_COVERS_FROM, header.size), 1 << rng.randrange(8))
    return RottenBatch(partition, header.base_offset)


async def _read(run: ClusterRun, broker: SimulatedBroker, rotten: RottenBatch) -> None:
    """As a client that is sent to this replica, and checks what it gets."""
    try:
        fetched = await run.client.fetch(TOPIC, rotten.partition, rotten.base_offset, address=broker.address)
    except (KafkaError, BrokerUnavailable) as error:
        code = error.code if isinstance(error, KafkaError) else None
        run.bit_rot_found += code is ErrorCode.CORRUPT_MESSAGE
        return
    # It was deleted or cut off meanwhile; or the replica itself keeps back what is wrong.
    assert all(record.offset != rotten.base_offset for record in fetched.records), (
        f"bit rot: {rotten} was served by broker {broker.node_id} as if it were sound"
    )


async def _make_again(run: ClusterRun, broker: SimulatedBroker, partition: int) -> None:
    """What an operator does: the replica's directory goes, when the others have taken over."""
    if broker.is_running:
        broker.kill()
    await until(lambda: broker.node_id not in _isr(run, partition), "the others go on without the replica")
    mount = broker.disk.mount()
    for directory in _log_directories(broker):
        mount.remove_tree(f"{directory}/{TopicPartition(TOPIC, partition)}")
        mount.sync_directory(directory)
    await broker.start()


def _isr(run: ClusterRun, partition: int) -> tuple[int, ...]:
    at = TopicPartition(TOPIC, partition)
    try:
        data = run.simulation.store.tree.get(paths.partition_state_path(*at)).data
    except NoNodeError:
        return ()
    return tuple(paths.decode_partition_state(*at, data).isr)


def _log_directories(broker: SimulatedBroker) -> list[str]:
    return [f"/{name}" for name in sorted(broker.disk.root.entries)]


def _directories(broker: SimulatedBroker) -> list[tuple[int, DirectoryNode]]:
    """Those of the topic's partitions, in order."""
    found = []
    for _, directory in sorted(broker.disk.root.entries.items()):
        assert isinstance(directory, DirectoryNode)
        for name, below in sorted(directory.entries.items()):
            topic, _, number = name.rpartition("-")
            if topic == TOPIC and number.isdigit() and isinstance(below, DirectoryNode):
                found.append((int(number), below))
    return found


# Drawing


def draw_steps(rng: random.Random, brokers: Sequence[int]) -> tuple[Step, ...]:
    """``STEPS`` times something happens to one broker or two."""
    steps = []
    for _ in range(STEPS):
        after_ms = rng.randint(200, 3000)
        when_whole = rng.random() < 0.5
        if when_whole and rng.random() < 0.6:
            faults = [draw_fault(rng, brokers, rng.choice(_OF_POWER), rng.choice(brokers))]
        else:
            victims = rng.sample(brokers, rng.choice((1, 1, 1, 2)))
            faults = overlapping(
                rng, [draw_fault(rng, brokers, rng.choice(_OTHERS), victim) for victim in victims]
            )
        steps.append(Step(after_ms=after_ms, faults=tuple(faults), when_whole=when_whole))
    return tuple(steps)


def overlapping(rng: random.Random, faults: Sequence[Fault]) -> list[Fault]:
    """The first begins at once, some of the others while it lasts."""
    return [
        msgspec.structs.replace(fault, after_ms=rng.randint(*LATER_MS) if index and rng.random() < 0.4 else 0)
        for index, fault in enumerate(faults)
    ]


def draw_fault(rng: random.Random, brokers: Sequence[int], kind: FaultKind, victim: int) -> Fault:
    """One fault of ``kind``. Links need a second broker."""
    other = amount = 0
    aim = rng.choice(_DRAWN_ROLES) if kind not in _UNAIMED and rng.random() < AIMED_SHARE else None
    order: tuple[int, ...] = ()
    config: dict[str, Property] = {}
    least_ms, most_ms = CUT_MS if kind is FaultKind.CUT_FROM_BROKERS else FAULT_MS
    match kind:
        case FaultKind.ONE_WAY | FaultKind.SLOW_LINK | FaultKind.FLAPPING_LINK:
            other = rng.choice([each for each in brokers if each != victim])
            amount = rng.choice(LINK_DELAYS_MS)
        case FaultKind.SLOW_STORE:
            amount = rng.choice(STORE_DELAYS_MS)
        case FaultKind.CLOCK_JUMP:
            amount = rng.choice((-1, 1)) * rng.choice((50, 3_000, 3_600_000))
        case FaultKind.CLOCK_DRIFT:
            amount = rng.choice((-1, 1)) * rng.choice((10, 100, 500))
        case FaultKind.LATE_EXPIRY:
            amount = rng.choice((5_000, 15_000))
        case FaultKind.BIT_ROT:
            amount = rng.randrange(1 << 16)
        case FaultKind.KILL_ALL | FaultKind.POWER_OFF_ALL | FaultKind.ROLLING_RESTART:
            victim, order = 0, tuple(rng.sample(brokers, len(brokers)))
            least_ms, most_ms = RETURN_MS if rng.random() < 0.7 else LATE_RETURN_MS
            if kind is FaultKind.ROLLING_RESTART:
                config = {
                    name: rng.choice(values) for name, values in OTHER_CONFIG.items() if rng.random() < 0.5
                }
        case FaultKind.SLOW_DISK:
            amount = rng.choice((20, 200, 1500))
        case FaultKind.POWER_OFF_IN_FLUSH:
            amount = rng.choice((200, 1500))
        case FaultKind.WRITE_ERROR | FaultKind.READ_ERROR | FaultKind.DISK_FULL:
            amount = rng.randint(0, 30)
        case FaultKind.POWER_OFF_IN_NEW_EPOCH:
            amount = rng.randint(0, 200)
        case _:
            pass
    return Fault(
        kind=kind, victim=victim, aim=aim, other=other, lasts_ms=rng.randint(least_ms, most_ms),
        amount=amount, order=order, config=config,
    )  # fmt: skip


# Carrying out


async def carry_out(run: ClusterRun, steps: Sequence[Step]) -> None:
    """One step after the other. Raises TimeoutError: the cluster does not become whole."""
    for step in steps:
        await asyncio.sleep(step.after_ms / 1000)
        if step.when_whole:
            await run.until_ready_for_faults()
        await asyncio.gather(*(_do(run, fault) for fault in step.faults))


async def _do(run: ClusterRun, fault: Fault) -> None:
    """One at a time for each broker, where several lists of steps are under way."""
    await asyncio.sleep(fault.after_ms / 1000)
    fault = _aimed(run, fault)
    async with AsyncExitStack() as locks:
        for node_id in run.brokers:
            if fault.victim in (0, node_id):
                await locks.enter_async_context(run.at_broker[node_id])
        run.faults_done[fault.kind] += 1
        await CARRY_OUT[fault.kind](run, fault)


def _aimed(run: ClusterRun, fault: Fault) -> Fault:
    """At the broker that has the role now; the other end of its link is another one."""
    victim = None if fault.aim is None else _broker_in(run, fault.aim)
    if victim is None or victim == fault.victim:
        return fault
    other = fault.victim if fault.other == victim else fault.other
    return msgspec.structs.replace(fault, victim=victim, other=other)


def _broker_in(run: ClusterRun, role: Role) -> int | None:
    """As the store has it. None: no broker that runs here."""
    try:
        if role is Role.CONTROLLER:
            found = paths.decode_controller(run.simulation.store.tree.get(paths.CONTROLLER).data).broker_id
        else:
            at = TopicPartition(_LED_BY[role], 0)
            data = run.simulation.store.tree.get(paths.partition_state_path(*at)).data
            found = paths.decode_partition_state(*at, data).leader
    except NoNodeError:
        return None
    return found if found in run.simulation.brokers else None


async def _pass(fault: Fault) -> None:
    await asyncio.sleep(fault.lasts_ms / 1000)


async def _kill(run: ClusterRun, fault: Fault) -> None:
    broker = run.simulation.brokers[fault.victim]
    if broker.is_running:  # it may have ended by itself, for want of a disk or a store
        broker.kill()
    await _pass(fault)
    await broker.start()


async def _power_off(run: ClusterRun, fault: Fault) -> None:
    broker = run.simulation.brokers[fault.victim]
    broker.power_off()
    await _pass(fault)
    await broker.start()


async def _power_off_in_flush(run: ClusterRun, fault: Fault) -> None:
    """Where segments are closed all the time, one is being synced when the disk is slow."""
    host = run.simulation.brokers[fault.victim].host
    host.disk_delay_ms = (fault.amount / 10, fault.amount)
    await asyncio.sleep(min(fault.lasts_ms, SLOW_BEFORE_POWER_OFF_MS) / 1000)
    run.simulation.brokers[fault.victim].power_off()
    host.disk_delay_ms = DISK_DELAY_MS
    await _pass(fault)
    await run.simulation.brokers[fault.victim].start()


async def _power_off_in_new_epoch(run: ClusterRun, fault: Fault) -> None:
    """Like ``_power_off``, of a follower that has fetched the first records of an epoch a moment ago.

    Its new leader epoch checkpoint is then not on the disk yet; all other faults leave it seconds to get
    there. The old leader, the fault's victim, is killed, which loses nothing: what was acked is on other
    machines than the one that loses power. Where a partition has but two replicas that is no more true, and
    only one machine is lost: of the two in its ISR one would be down and the other have forgotten. A
    partition that was moved meanwhile to the two keeps the power on.
    """
    brokers = run.simulation.brokers
    isrs = [each.isr for broker in brokers.values() for each in hosted_partitions(broker) if each.is_leader]
    if min(map(len, isrs), default=0) < 3:
        await _power_off(run, fault)
        return
    before = {each: _epochs_as_follower(brokers[each]) for each in run.brokers if each != fault.victim}
    brokers[fault.victim].kill()
    follower = None
    for _ in range(FAULT_MS[1] // POLL_MS):
        follower = next((each for each in before if _has_new_epoch(brokers[each], before[each])), None)
        if follower is not None:
            break
        await asyncio.sleep(POLL_MS / 1000)
    await asyncio.sleep(fault.amount / 1000)
    if follower is not None and _others_have_everything(brokers.values(), {fault.victim, follower}):
        await _power_off(run, Fault(kind=FaultKind.POWER_OFF, victim=follower, lasts_ms=fault.lasts_ms))
    await brokers[fault.victim].start()


def _others_have_everything(brokers: Iterable[SimulatedBroker], lost: Collection[int]) -> bool:
    """Whether each partition has a leader, and a replica in its ISR that is not lost."""
    hosted = [each for broker in brokers for each in hosted_partitions(broker)]
    isrs = {each.topic_partition: each.isr for each in hosted if each.is_leader}
    return all(set(isrs.get(each.topic_partition, ())) - set(lost) for each in hosted)


def _has_new_epoch(broker: SimulatedBroker, before: dict[TopicPartition, int]) -> bool:
    return any(
        not each.is_leader and each.log.leader_epoch > before.get(each.topic_partition, each.log.leader_epoch)
        for each in hosted_partitions(broker)
    )


def _epochs_as_follower(broker: SimulatedBroker) -> dict[TopicPartition, int]:
    """The latest epoch in each log that another broker leads."""
    return {
        each.topic_partition: each.log.leader_epoch
        for each in hosted_partitions(broker)
        if not each.is_leader
    }


async def _pause(run: ClusterRun, fault: Fault) -> None:
    process = run.simulation.brokers[fault.victim].host.process
    assert process is not None
    if process.is_dead:
        return
    process.pause()
    await _pass(fault)
    if not process.is_dead:
        process.resume()


async def _isolate(run: ClusterRun, fault: Fault) -> None:
    run.simulation.isolate(fault.victim)
    await _pass(fault)
    run.simulation.rejoin(fault.victim)


async def _cut_from_brokers(run: ClusterRun, fault: Fault) -> None:
    network, name = run.simulation.network, f"broker-{fault.victim}"
    others = [STORE, *(f"broker-{each}" for each in run.brokers if each != fault.victim)]
    for other in others:
        network.cut(name, other)
        network.cut(other, name)
    await _pass(fault)
    for other in others:
        network.heal(name, other)
        network.heal(other, name)


async def _one_way(run: ClusterRun, fault: Fault) -> None:
    network = run.simulation.network
    network.cut(f"broker-{fault.victim}", f"broker-{fault.other}")
    await _pass(fault)
    network.heal(f"broker-{fault.victim}", f"broker-{fault.other}")


async def _flapping_link(run: ClusterRun, fault: Fault) -> None:
    """Both directions, six times."""
    network, ends = run.simulation.network, (f"broker-{fault.victim}", f"broker-{fault.other}")
    for _ in range(6):
        network.cut(*ends)
        network.cut(*reversed(ends))
        await asyncio.sleep(fault.lasts_ms / 12_000)
        network.heal(*ends)
        network.heal(*reversed(ends))
        await asyncio.sleep(fault.lasts_ms / 12_000)


async def _without_store(run: ClusterRun, fault: Fault) -> None:
    run.simulation.cut_store(fault.victim)
    await _pass(fault)
    run.simulation.heal_store(fault.victim)


async def _slow_store(run: ClusterRun, fault: Fault) -> None:
    network, name = run.simulation.network, f"broker-{fault.victim}"
    network.delay(name, STORE, 50, fault.amount)
    network.delay(STORE, name, 50, fault.amount)
    await _pass(fault)
    network.delay(name, STORE, *DELAY_MS)
    network.delay(STORE, name, *DELAY_MS)


async def _slow_link(run: ClusterRun, fault: Fault) -> None:
    network, ends = run.simulation.network, (f"broker-{fault.victim}", f"broker-{fault.other}")
    network.delay(*ends, 5, fault.amount)
    await _pass(fault)
    network.delay(*ends, *DELAY_MS)


async def _slow_disk(run: ClusterRun, fault: Fault) -> None:
    host = run.simulation.brokers[fault.victim].host
    host.disk_delay_ms = (fault.amount / 10, fault.amount)
    await _pass(fault)
    host.disk_delay_ms = DISK_DELAY_MS


async def _clean_restart(run: ClusterRun, fault: Fault) -> None:
    broker = run.simulation.brokers[fault.victim]
    try:
        await broker.restart()
    except HostDiedError:  # it stopped by itself meanwhile
        await broker.restart()


async def _drop_connections(run: ClusterRun, fault: Fault) -> None:
    for other in run.brokers:
        if other != fault.victim:
            run.simulation.network.drop(f"broker-{fault.victim}", f"broker-{other}")


def _disk_fails(operation: str, code: int) -> Callable[[ClusterRun, Fault], Awaitable[None]]:
    async def fail(run: ClusterRun, fault: Fault) -> None:
        """One file after ``amount`` operations: a broker with one log directory stops. It is started again
        with a disk in good health."""
        broker = run.simulation.brokers[fault.victim]
        broker.disk.fault = failing(operation, f"{run.topic}-", code, after=fault.amount)
        await _pass(fault)
        broker.disk.fault = None
        if not broker.is_running:
            await broker.start()
        else:
            await _kill(run, Fault(kind=FaultKind.KILL, victim=fault.victim, lasts_ms=10))

    return fail


async def _clock_jump(run: ClusterRun, fault: Fault) -> None:
    """The wall clock, there and back."""
    host = run.simulation.brokers[fault.victim].host
    host.clock_skew_ms += fault.amount
    await _pass(fault)
    host.clock_skew_ms -= fault.amount


async def _clock_drift(run: ClusterRun, fault: Fault) -> None:
    """The wall clock is too fast, or too slow; at the end it is set right."""
    host = run.simulation.brokers[fault.victim].host
    before_ms = host.clock_skew_ms
    for _ in range(fault.lasts_ms // DRIFT_STEP_MS):
        await asyncio.sleep(DRIFT_STEP_MS / 1000)
        host.clock_skew_ms += fault.amount * DRIFT_STEP_MS // 1000
    host.clock_skew_ms = before_ms


async def _cut_in_frame(run: ClusterRun, fault: Fault) -> None:
    run.simulation.network.cut_in_frame(f"broker-{fault.victim}")


CARRY_OUT: dict[FaultKind, Callable[[ClusterRun, Fault], Awaitable[None]]] = {
    FaultKind.KILL: _kill,
    FaultKind.PAUSE: _pause,
    FaultKind.ISOLATE: _isolate,
    FaultKind.CUT_FROM_BROKERS: _cut_from_brokers,
    FaultKind.ONE_WAY: _one_way,
    FaultKind.FLAPPING_LINK: _flapping_link,
    FaultKind.WITHOUT_STORE: _without_store,
    FaultKind.SLOW_STORE: _slow_store,
    FaultKind.SLOW_LINK: _slow_link,
    FaultKind.SLOW_DISK: _slow_disk,
    FaultKind.CLEAN_RESTART: _clean_restart,
    FaultKind.DROP_CONNECTIONS: _drop_connections,
    FaultKind.POWER_OFF: _power_off,
    FaultKind.POWER_OFF_IN_NEW_EPOCH: _power_off_in_new_epoch,
    FaultKind.POWER_OFF_IN_FLUSH: _power_off_in_flush,
    FaultKind.READ_ERROR: _disk_fails("read", errno.EIO),
    FaultKind.WRITE_ERROR: _disk_fails("write", errno.EIO),
    FaultKind.DISK_FULL: _disk_fails("write", errno.ENOSPC),
    FaultKind.CLOCK_JUMP: _clock_jump,
    FaultKind.CLOCK_DRIFT: _clock_drift,
    FaultKind.CUT_IN_FRAME: _cut_in_frame,
    FaultKind.KILL_ALL: kill_all,
    FaultKind.POWER_OFF_ALL: power_off_all,
    FaultKind.ROLLING_RESTART: rolling_restart,
    FaultKind.LATE_EXPIRY: late_expiry,
    FaultKind.BIT_ROT: bit_rot,
}
