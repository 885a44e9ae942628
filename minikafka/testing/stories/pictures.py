"""What a story can see of its cluster, and how it draws it: a line for each replica.

    A: e0[0..9] e2[10..14] HW 12
    B: e0[0..9] e1[at 10] HW 10

The epochs are those of the ``leader-epoch-checkpoint`` on the broker's disk; ``e1[at 10]`` has no records.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from minikafka.coordination import paths
from minikafka.log.files.checkpoint import read_leader_epochs
from minikafka.log.unified_log import UnifiedLog
from minikafka.protocol.records.batch import iterate_headers
from minikafka.protocol.records.records import iterate_records
from minikafka.server.replica.partition import Partition
from minikafka.testing.simulation.invariants import hosted_partitions, read_pieces, read_up_to
from minikafka.testing.simulation.simulation import LOG_DIRECTORY, SimulatedBroker, Simulation
from minikafka.types import PartitionState, TopicPartition

A, B, C, D, E = 1, 2, 3, 4, 5
NAMES = {A: "A", B: "B", C: "C", D: "D", E: "E"}

TOPIC = "story"
PARTITION = TopicPartition(TOPIC, 0)


class ClusterView:
    """One partition and its brokers, seen from outside: looking costs the cluster nothing."""

    def __init__(self, simulation: Simulation, replicas: Sequence[int]) -> None:
        self.simulation = simulation
        self.replicas = tuple(replicas)
        self.acked: dict[int, bytes] = {}
        """By offset: what was acknowledged with acks=all."""

    def broker(self, node_id: int) -> SimulatedBroker:
        return self.simulation.brokers[node_id]

    def hosted(self, node_id: int) -> Partition | None:
        """The replica; None while the broker is down or has not heard of it."""
        found = [
            each for each in hosted_partitions(self.broker(node_id)) if each.topic_partition == PARTITION
        ]
        return found[0] if found else None

    def partition(self, node_id: int) -> Partition:
        found = self.hosted(node_id)
        assert found is not None, f"{NAMES[node_id]} does not host {PARTITION}"
        return found

    def log(self, node_id: int) -> UnifiedLog:
        return self.partition(node_id).log

    @property
    def state(self) -> PartitionState:
        """What the store says."""
        data = self.simulation.store.tree.get(paths.partition_state_path(*PARTITION)).data
        return paths.decode_partition_state(*PARTITION, data)

    @property
    def state_version(self) -> int:
        return self.simulation.store.tree.get(paths.partition_state_path(*PARTITION)).stat.version

    @property
    def controller(self) -> int | None:
        """Who the store says it is."""
        node = self.simulation.store.tree.nodes.get(paths.CONTROLLER)
        return None if node is None else paths.decode_controller(node.data).broker_id

    def leads(self, node_id: int, *, epoch_min: int = 0) -> bool:
        """Whether the store says so, and the broker knows."""
        state, partition = self.state, self.hosted(node_id)
        return (
            state.leader == node_id
            and state.leader_epoch >= epoch_min
            and partition is not None
            and partition.is_leader
            and partition.leader_epoch == state.leader_epoch
        )

    def history(self, node_id: int) -> str:
        """One line of the picture, without the name."""
        partition = self.hosted(node_id)
        if partition is None:
            return "down"
        path = f"{LOG_DIRECTORY}/{PARTITION}/leader-epoch-checkpoint"
        entries = read_leader_epochs(self.broker(node_id).disk.mount(), path)
        ends = [entry.start_offset for entry in entries[1:]] + [partition.log.log_end_offset]
        spans = [
            f"e{epoch}[{start}..{end - 1}]" if start < end else f"e{epoch}[at {start}]"
            for (epoch, start), end in zip(entries, ends, strict=False)
        ]
        return " ".join([*spans, f"HW {partition.log.high_watermark}"])

    def picture(self) -> str:
        """All replicas and what the store says of them."""
        isr = "".join(NAMES[member] for member in self.state.isr)
        leader = NAMES.get(self.state.leader, "nobody")
        lines = [f"{NAMES[node_id]}: {self.history(node_id)}" for node_id in sorted(self.replicas)]
        now = f"{self.simulation.loop.time():.3f}"
        at = f"at {now} s, led by {leader} in e{self.state.leader_epoch}, ISR {isr}"
        return "\n".join([at, *lines])

    def looks_like(self, picture: str) -> bool:
        """Whether the replicas that ``picture`` names are as it says; a line may leave out the HW."""
        for line in textwrap.dedent(picture).strip().splitlines():
            name, _, wanted = line.partition(": ")
            found = self.history(next(each for each in NAMES if NAMES[each] == name))
            if found != wanted and found.rpartition(" HW ")[0] != wanted:
                return False
        return True

    def expect(self, picture: str) -> None:
        assert self.looks_like(picture), f"not as the story has it:\n{textwrap.dedent(picture)}"

    def batches(self, node_id: int) -> bytes:
        """The whole log, byte for byte."""
        log = self.log(node_id)
        return read_up_to(self.partition(node_id), log.log_start_offset, log.log_end_offset)

    def expect_same_logs(self, *node_ids: int) -> None:
        """Byte for byte, and the epochs of the batches are those of the epoch cache (I8)."""
        first = self.batches(node_ids[0])
        for node_id in node_ids:
            assert self.batches(node_id) == first, f"{NAMES[node_id]} differs from {NAMES[node_ids[0]]}"
            for _, header in iterate_headers(self.batches(node_id)):
                cached = self.log(node_id).epoch_for_offset(header.base_offset)
                assert header.partition_leader_epoch == cached, f"{NAMES[node_id]}: {header}"

    def expect_acked(self) -> None:
        """The leader has everything that was acknowledged with acks=all where it was acknowledged (I1)."""
        if not self.acked:
            return
        log = self.log(self.state.leader)
        start = max(log.log_start_offset, min(self.acked))
        found = {
            record.offset: record.value
            for batches in read_pieces(self.partition(self.state.leader), start, log.log_end_offset)
            for position, header in iterate_headers(batches)
            for record in iterate_records(memoryview(batches)[position : position + header.size])
        }
        lost = {offset: value for offset, value in self.acked.items() if found.get(offset) != value}
        assert not lost, f"acknowledged, and lost: {lost}"

    def records(self, node_id: int) -> dict[int, int]:
        """The epoch of the batch that begins at each offset."""
        return {
            header.base_offset: header.partition_leader_epoch
            for _, header in iterate_headers(self.batches(node_id))
        }
