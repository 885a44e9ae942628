"""What must hold in a cluster at every moment, looked at from outside of all brokers.

The checker reads the brokers' state and the store's tree every few milliseconds of virtual time, in no
process: it sees what no broker can see, and costs the cluster nothing. A violation fails the run.

    I1   nothing is appended with acks=all while the ISR is smaller than min.insync.replicas
    I3   a leader's high watermark does not fall within its epoch
    I5   a new leader holds everything below any earlier high watermark, and was in the ISR or eligible (clean
         elections)
    I6   one leader for each partition and epoch; epochs in the store only rise
    I9   log start <= last stable offset <= high watermark <= log end
    I12  the ISR is a part of the replicas; its members hold everything below the high watermark of their
         leader; an election adds none to it; nothing is committed while it is smaller than
         min.insync.replicas or another replica is eligible (KIP-966)
    I14  the controller epochs of what is written only rise

``check_replicas`` at the end, when all is calm: I2 (offsets without gaps), I4 (the same bytes below the high
watermark), I8 (the same leader epochs). Of a compacted log only what no replica has compacted yet: below that
replicas differ by how far each has come.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

from minikafka.coordination import paths
from minikafka.errors import InvariantError
from minikafka.log.segment.fetch_data import FetchIsolation
from minikafka.protocol.records.batch import iterate_headers
from minikafka.server.replica.partition import Partition
from minikafka.testing.simulation.transport import HARDWARE
from minikafka.types import NO_LEADER, Offset, PartitionState, TopicPartition

if TYPE_CHECKING:
    from minikafka.testing.simulation.simulation import SimulatedBroker, Simulation

LOOK_EVERY_MS = 20
"""Replication takes some milliseconds for a step."""

READ_BYTES = 1 << 20

_STATE_PATH = re.compile(rf"{paths.TOPICS}/([^/]+)/partitions/(\d+)/state")

_Incarnation = tuple[object, TopicPartition]
"""A partition with its topic's id: one that is deleted and made again has another history."""


class _Looked(NamedTuple):
    """What a look saw of a replica."""

    log_start: int
    stable: int
    high_watermark: int
    log_end: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    eligible: tuple[int, ...]
    min_insync_replicas: int

    @property
    def rules(self) -> tuple[object, ...]:
        """By which its leader appends and commits."""
        return *self[4:-1], self.min_isr

    @property
    def min_isr(self) -> int:
        """Never more than there are replicas."""
        return min(self.min_insync_replicas, len(self.replicas))


class InvariantChecker:
    """``start`` it when the cluster is up. ``clean_elections=False`` skips I5; topics of ``compacted``
    are compacted at times only, and compared while they are."""

    def __init__(
        self, simulation: Simulation, *, clean_elections: bool = True, compacted: Collection[str] = ()
    ) -> None:
        self._compacted = compacted
        self._simulation = simulation
        self._clean_elections = clean_elections
        self._leaders: dict[tuple[_Incarnation, int], int] = {}
        self._high_watermarks: dict[tuple[_Incarnation, int, int, int], int] = {}
        self._committed: dict[_Incarnation, dict[int, int]] = {}
        """The highest high watermark of each leader epoch."""
        self._states: dict[TopicPartition, PartitionState] = {}
        """As the store has them."""
        self._violations: list[InvariantError] = []
        """By writes to the store; raised by the next look, for the store itself does not fail."""
        self._sound: dict[tuple[_Incarnation, int], int] = {}
        """By replica: the life of its broker in which it was seen to hold what is committed, or to be out of
        the ISR."""
        self._seen: dict[Partition, _Looked] = {}
        """What was found in order: most of what a look finds, and all of it need not be checked again."""
        self.durable_topics: frozenset[str] = frozenset()
        """To which nothing is written but with acks=all."""
        self.checks_members = True
        """False where a story tells a leader, in the name of a follower, what that one does not have."""
        self.looks = 0
        tree = simulation.store.tree
        for path, node in tree.nodes.items():
            self._see_write(path, node.data)
        tree.on_write = self._see_write

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
        if self._violations:
            raise self._violations[0]
        moved: dict[TopicPartition, None] = {}
        seen = self._seen
        for broker in self._simulation.brokers.values():
            server = broker.started_server
            if server is None:
                continue
            for partition in server.services.replica_manager.partitions.values():
                log = partition.log
                if not log.is_open:
                    continue
                replication = partition.replication
                isr = replication.isr
                state = (  # a ``_Looked``, which most looks do not need
                    log.log_start_offset,
                    log.last_stable_offset,
                    log.high_watermark,
                    log.log_end_offset,
                    partition.leader_id,
                    partition.leader_epoch,
                    isr.version,
                    isr.committed,
                    replication.assignment,
                    isr.eligible,
                    log.config.min_insync_replicas,
                )
                before = seen.get(partition)
                if before != state:
                    after = seen[partition] = _Looked._make(state)
                    self._check(broker, partition, before, after)
                    moved[partition.topic_partition] = None
        for at in moved:
            self._check_members(at)

    def _check(
        self, broker: SimulatedBroker, partition: Partition, before: _Looked | None, now: _Looked
    ) -> None:
        where = f"{partition.topic_partition} on broker {broker.node_id}"
        bounds = now[:4]
        if not now.log_start <= now.stable <= now.high_watermark <= now.log_end:
            raise InvariantError(f"I9: {where}: log start, stable, high watermark, end are {bounds}")
        if not set(now.isr) <= set(now.replicas):
            raise InvariantError(f"I12: {where}: ISR {now.isr}, replicas {now.replicas}")
        if partition.is_leader:
            self._check_leader(broker, partition, where)
            if before is not None and before.rules == now.rules:
                self._check_progress(partition.topic_partition, where, before, now)

    def _check_progress(self, at: TopicPartition, where: str, before: _Looked, now: _Looked) -> None:
        """Of a leader whose ISR has not changed meanwhile."""
        is_too_small = len(now.isr) < now.min_isr
        if now.high_watermark > before.high_watermark and (is_too_small or now.eligible):
            raise InvariantError(
                f"I12: {where} commits {now.high_watermark} with ISR {now.isr}, of {now.min_isr}, while "
                f"{now.eligible} are eligible"
            )
        if now.log_end > before.log_end and is_too_small and at.topic in self.durable_topics:
            raise InvariantError(f"I1: {where} appends {now.log_end} with ISR {now.isr}, of {now.min_isr}")

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

    def _see_write(self, path: str, data: bytes | None) -> None:
        """Of a node of the store, at the moment of the write: a follower needs a millisecond to catch up."""
        found = _STATE_PATH.fullmatch(path)
        if found is None:
            return
        at = TopicPartition(found[1], int(found[2]))
        if data is None:
            self._states.pop(at, None)  # another topic of this name has another history
            return
        before, after = self._states.get(at), paths.decode_partition_state(*at, data)
        self._states[at] = after
        try:
            if before is not None:
                self._check_change(at, before, after)
            self._check_members(at)
        except InvariantError as error:
            self._violations.append(error)

    def _check_change(self, at: TopicPartition, before: PartitionState, after: PartitionState) -> None:
        change = f"{at}: {before} became {after}"
        if after.leader_epoch < before.leader_epoch:
            raise InvariantError(f"I6: the leader epoch fell in the store: {change}")
        if after.controller_epoch < before.controller_epoch:
            raise InvariantError(f"I14: an older controller has written: {change}")
        if after.leader_epoch > before.leader_epoch and self._clean_elections:
            safe = {*before.isr, *before.eligible}
            if (
                before.leader == NO_LEADER
            ):  # all are back from an unclean stop: the last known leader, KIP-966
                safe.add(before.last_known_leader)
            if after.leader not in {NO_LEADER, *safe}:
                raise InvariantError(f"I5: the new leader was neither in the ISR nor eligible: {change}")
            if not safe.issuperset(after.isr):
                raise InvariantError(f"I12: an election has added to the ISR: {change}")

    def _check_members(self, at: TopicPartition) -> None:
        """What the members of an ISR hold, while they and their leader run."""
        if not self.checks_members:
            return
        state = self._states.get(at)
        brokers = self._simulation.brokers
        leading = None if state is None else brokers.get(state.leader)
        leader = None if leading is None else self._hosted(leading, at)
        if state is None or leader is None or leader.leader_epoch != state.leader_epoch:
            return
        high_watermark = leader.log.high_watermark
        for node_id, broker in brokers.items():
            partition = None if broker is leading else self._hosted(broker, at)
            if partition is None or partition.topic_id != leader.topic_id:
                continue
            replica = ((leader.topic_id, at), node_id)
            life = broker.process.number
            if node_id not in state.isr or partition.log.log_end_offset >= high_watermark:
                self._sound[replica] = life
            elif self._sound.get(replica) == life:  # else it has lost its end with the power, and must leave
                raise InvariantError(
                    f"I12: {at} on broker {node_id}, of the ISR, ends at {partition.log.log_end_offset}; "
                    f"broker {state.leader} has committed {high_watermark}"
                )

    def _hosted(self, broker: SimulatedBroker, at: TopicPartition) -> Partition | None:
        server = broker.started_server
        partition = None if server is None else server.services.replica_manager.partitions.get(at)
        return partition if partition is not None and partition.log.is_open else None

    def are_led(self) -> bool:
        """Whether every partition has a leader that knows it: leaders may just be going back to where they
        are preferred."""
        return all(
            any(each.is_leader for each in replicas.values()) for replicas in self._replicas().values()
        )

    def check_replicas(self) -> None:
        """Compare all replicas with their leaders. Raises InvariantError."""
        for at, by_broker in self._replicas().items():
            leader = next((each for each in by_broker.values() if each.is_leader), None)
            if leader is None:
                raise InvariantError(f"{at} has no leader: {by_broker}")
            start = max(_first_comparable(each) for each in by_broker.values())
            for node_id, partition in by_broker.items():
                partition.log.validate()
                self._compare(f"{at} on broker {node_id}", partition, leader, start)

    def _replicas(self) -> dict[TopicPartition, dict[int, Partition]]:
        replicas: dict[TopicPartition, dict[int, Partition]] = {}
        for broker in self._simulation.brokers.values():
            for partition in hosted_partitions(broker):
                replicas.setdefault(partition.topic_partition, {})[broker.node_id] = partition
        return replicas

    def _compare(self, where: str, partition: Partition, leader: Partition, start: int) -> None:
        if partition.topic_partition.topic in self._compacted and not partition.log.config.compact:
            return  # how far each replica had come is not known any more
        bound = min(partition.log.high_watermark, leader.log.high_watermark)
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
    """From where on a log is as it was written, unless it is a copy of one that was compacted further."""
    return max(partition.log.log_start_offset, partition.log.first_dirty_offset or 0)


def hosted_partitions(broker: SimulatedBroker) -> Iterator[Partition]:
    """The partitions of a broker that runs and has come so far as to have some."""
    server = broker.started_server
    if server is not None:
        yield from list(server.services.replica_manager.partitions.values())


def read_up_to(partition: Partition, start: int, end: int) -> bytes:
    """The batches of a log whose records lie from ``start`` up to ``end``, as they are on the disk."""
    return b"".join(read_pieces(partition, start, end))


def read_pieces(partition: Partition, start: int, end: int) -> Iterator[bytes]:
    """``read_up_to``, piece by piece: whole batches, ``READ_BYTES`` or one larger batch at a time."""
    offset = start
    while offset < end:
        data = partition.log.read(
            offset,
            max_bytes=READ_BYTES,
            min_one_message=True,
            isolation=FetchIsolation.LOG_END,
            cached_only=False,
        )
        records = data.records
        whole_bytes = 0  # a read may end in the middle of a batch
        for position, header in iterate_headers(records):
            if header.last_offset >= end:
                break
            offset = header.last_offset + 1
            whole_bytes = position + header.size
        if not whole_bytes:
            break
        yield bytes(memoryview(records)[:whole_bytes])
