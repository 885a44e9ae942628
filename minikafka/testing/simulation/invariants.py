"""What must hold in a cluster at every moment, looked at from outside of all brokers.

The checker reads the brokers' state and the store's tree every few milliseconds of virtual time, in no
process: it sees what no broker can see, and costs the cluster nothing. A violation fails the run.

    I3   a leader's high watermark does not fall within its epoch
    I5   a new leader holds everything below any earlier high watermark (clean elections)
    I6   one leader for each partition and epoch; epochs in the store only rise
    I9   log start <= last stable offset <= high watermark <= log end
    I12  the ISR is a part of the replicas
    I14  the controller epochs of what is written only rise

``check_replicas`` at the end, when all is calm: I2 (offsets without gaps), I4 (the same bytes below the high
watermark), I8 (the same leader epochs). Of a compacted log only what no replica has compacted yet: below that
replicas differ by how far each has come.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from minikafka.coordination import paths
from minikafka.coordination.store import NoNodeError
from minikafka.errors import InvariantError
from minikafka.log.segment.fetch_data import FetchIsolation
from minikafka.protocol.records.batch import iterate_headers
from minikafka.server.replica.partition import Partition
from minikafka.testing.simulation.links import HARDWARE
from minikafka.testing.simulation.store_tree import StoreTree
from minikafka.types import Offset, TopicPartition

if TYPE_CHECKING:
    from minikafka.testing.simulation.simulation import SimulatedBroker, Simulation

LOOK_EVERY_MS = 20
"""Replication takes some milliseconds for a step."""

READ_BYTES = 1 << 20


_Incarnation = tuple[object, TopicPartition]
"""A partition with its topic's id: one that is deleted and made again has another history."""


class InvariantChecker:
    """``start`` it when the cluster is up. ``clean_elections=False`` skips I5."""

    def __init__(self, simulation: Simulation, *, clean_elections: bool = True) -> None:
        self._simulation = simulation
        self._clean_elections = clean_elections
        self._leaders: dict[tuple[_Incarnation, int], int] = {}
        self._high_watermarks: dict[tuple[_Incarnation, int, int, int], int] = {}
        self._committed: dict[_Incarnation, dict[int, int]] = {}
        """The highest high watermark of each leader epoch."""
        self._states: dict[_Incarnation, tuple[int, int]] = {}
        self._seen: dict[Partition, tuple[object, ...]] = {}
        """What was found in order: most of what a look finds, and all of it need not be checked again."""
        self._seen_zxid = -1
        self.looks = 0

    def __repr__(self) -> str:
        return f"InvariantChecker({self.looks} looks, {len(self._leaders)} leaderships)"

    def start(self) -> None:
        """Look from now on, until the run is over."""
        self._simulation.loop.call_later(LOOK_EVERY_MS / 1000, self._look_periodically, context=HARDWARE)

    def _look_periodically(self) -> None:
        self.look()
        self.start()

    def look(self) -> None:
        """Check everything that has changed since the last look. Raises InvariantError."""
        self.looks += 1
        seen = self._seen
        for broker in self._simulation.brokers.values():
            if not broker.has_started:
                continue
            for partition in broker.server.services.replica_manager.partitions.values():
                log = partition.log
                if not log.is_open:
                    continue
                bounds = (
                    log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset,
                )  # fmt: skip
                state = (
                    *bounds,
                    partition.leader_id,
                    partition.leader_epoch,
                    partition.isr,
                    partition.replicas,
                )
                if seen.get(partition) != state:
                    self._check(broker, partition, bounds)
                    seen[partition] = state
        zxid = self._simulation.store.tree.zxid
        if zxid != self._seen_zxid:
            self._check_store()
            self._seen_zxid = zxid

    def _check(
        self, broker: SimulatedBroker, partition: Partition, bounds: tuple[int, int, int, int]
    ) -> None:
        where = f"{partition.topic_partition} on broker {broker.node_id}"
        start, stable, high_watermark, end = bounds
        if not start <= stable <= high_watermark <= end:
            raise InvariantError(f"I9: {where}: log start, stable, high watermark, end are {bounds}")
        if not set(partition.isr) <= set(partition.replicas):
            raise InvariantError(f"I12: {where}: ISR {partition.isr}, replicas {partition.replicas}")
        if partition.is_leader:
            self._check_leader(broker, partition, where)

    def _check_leader(self, broker: SimulatedBroker, partition: Partition, where: str) -> None:
        log, epoch = partition.log, partition.leader_epoch
        at = partition.topic_id, partition.topic_partition
        leader = self._leaders.setdefault((at, epoch), broker.node_id)
        if leader != broker.node_id:
            raise InvariantError(f"I6: {where} leads epoch {epoch}, which broker {leader} leads")
        life = (at, epoch, broker.node_id, broker.process.number)
        if log.high_watermark < self._high_watermarks.get(life, 0):
            raise InvariantError(
                f"I3: {where}, epoch {epoch}: the high watermark fell from {self._high_watermarks[life]} to "
                f"{log.high_watermark}"
            )
        is_new = life not in self._high_watermarks
        self._high_watermarks[life] = log.high_watermark
        by_epoch = self._committed.setdefault(at, {})
        # What a later leader has committed, one that learns late of its own election cannot have.
        committed = max((end for committing, end in by_epoch.items() if committing <= epoch), default=0)
        if is_new and self._clean_elections and log.log_end_offset < committed:
            raise InvariantError(
                f"I5: {where} leads epoch {epoch} and ends at {log.log_end_offset}; {committed} was committed"
            )
        by_epoch[epoch] = max(by_epoch.get(epoch, 0), log.high_watermark)

    def _check_store(self) -> None:
        tree = self._simulation.store.tree
        for topic in _children(tree, paths.TOPICS):
            topic_id = paths.decode_topic(topic, tree.get(paths.topic_path(topic)).data).topic_id
            for partition in _children(tree, paths.partitions_path(topic)):
                at = TopicPartition(topic, int(partition))
                try:
                    data = tree.get(paths.partition_state_path(*at)).data
                except NoNodeError:
                    continue
                state = paths.decode_partition_state(*at, data)
                now = (state.leader_epoch, state.controller_epoch)
                before = self._states.get((topic_id, at), now)
                if now[0] < before[0]:
                    raise InvariantError(f"I6: the store's leader epoch of {at} fell: {before} to {now}")
                if now[1] < before[1]:
                    raise InvariantError(f"I14: {at} was written by an older controller: {before} to {now}")
                self._states[topic_id, at] = now

    def check_replicas(self) -> None:
        """Compare all replicas with their leaders. Raises InvariantError."""
        replicas: dict[TopicPartition, dict[int, Partition]] = {}
        for broker in self._simulation.brokers.values():
            for partition in hosted_partitions(broker):
                replicas.setdefault(partition.topic_partition, {})[broker.node_id] = partition
        for at, by_broker in replicas.items():
            leader = next((each for each in by_broker.values() if each.is_leader), None)
            if leader is None:
                raise InvariantError(f"{at} has no leader: {by_broker}")
            for node_id, partition in by_broker.items():
                partition.log.validate()
                self._compare(f"{at} on broker {node_id}", partition, leader)

    def _compare(self, where: str, partition: Partition, leader: Partition) -> None:
        bound = min(partition.log.high_watermark, leader.log.high_watermark)
        start = max(_first_comparable(partition), _first_comparable(leader))
        ours, theirs = read_up_to(partition, start, bound), read_up_to(leader, start, bound)
        expected = Offset(start)
        for _, header in iterate_headers(ours):
            if header.base_offset != expected:
                raise InvariantError(f"I2: {where}: {expected} is missing, {header.base_offset} follows")
            expected = Offset(header.last_offset + 1)
        if ours != theirs:
            raise InvariantError(f"I4: {where} and its leader differ between {start} and {bound}")
        # A follower does not learn of an epoch without records: only where epochs end can be compared, and
        # only of those that it has reached. A log that starts later says of older ones that they end there.
        for epoch in range(partition.log.leader_epoch):
            here, there = (
                max(start, each.log.end_offset_for_epoch(epoch)[1]) for each in (partition, leader)
            )
            if here != there:
                raise InvariantError(f"I8: {where}: epoch {epoch} ends at {here}, its leader says {there}")


def _first_comparable(partition: Partition) -> int:
    """From where on a log is as it was written."""
    return max(partition.log.log_start_offset, partition.log.first_dirty_offset or 0)


def hosted_partitions(broker: SimulatedBroker) -> Iterator[Partition]:
    """The partitions of a broker that runs and has come so far as to have some."""
    if broker.has_started:
        yield from list(broker.server.services.replica_manager.partitions.values())


def read_up_to(partition: Partition, start: int, end: int) -> bytes:
    """The batches of a log whose records lie from ``start`` up to ``end``, as they are on the disk."""
    found = bytearray()
    offset = start
    while offset < end:
        data = partition.log.read(
            offset,
            max_bytes=READ_BYTES,
            min_one_message=True,
            isolation=FetchIsolation.LOG_END,
            cached_only=False,
        )
        records = bytes(data.records)
        whole_bytes = 0  # a read may end in the middle of a batch
        for position, header in iterate_headers(records):
            if header.last_offset >= end:
                break
            offset = header.last_offset + 1
            whole_bytes = position + header.size
        found += records[:whole_bytes]
        if not whole_bytes:
            break
    return bytes(found)


def _children(tree: StoreTree, path: str) -> list[str]:
    try:
        return tree.children(path)
    except NoNodeError:
        return []
