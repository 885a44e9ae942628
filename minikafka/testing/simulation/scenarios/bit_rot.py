"""Bit rot: one bit of a closed segment of one replica is another one from now on.

What must hold: no client takes the batch for what it was not, and no follower. Where it is read it is an
error, until the replica is made again from the others, which is the operator's business in Kafka: nothing
reads a closed segment for its own sake."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, NamedTuple

from minikafka.coordination import paths
from minikafka.coordination.store import NoNodeError
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.records.batch import iterate_headers
from minikafka.testing.simulation.inodes import DirectoryNode, FileNode
from minikafka.testing.simulation.scenarios.plan import TOPIC, Fault
from minikafka.testing.simulation.scenarios.waiting import until
from minikafka.testing.simulation.simulation import SimulatedBroker
from minikafka.types import TopicPartition

if TYPE_CHECKING:
    from minikafka.testing.simulation.scenarios.cluster_run import ClusterRun

CRC_COVERS_FROM = 21
"""The bytes of a batch before that are its offset, its length, its epoch, its version and the CRC itself."""
LOOK_MS = 300


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
    await run.until_whole()
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
