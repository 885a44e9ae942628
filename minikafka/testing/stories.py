"""Stories of replication in a simulated cluster: how its logs look, and what is done to it. The scenarios in
``tests/scenarios`` and ``minikafka tour`` are told in these words.

``Cluster`` is what a story can see of its cluster, which it draws with a line for each replica:

    A: e0[0..9] e2[10..14] HW 12
    B: e0[0..9] e1[at 10] HW 10

The epochs are those of the ``leader-epoch-checkpoint`` on the broker's disk; ``e1[at 10]`` has no records.
It is also what is done to the cluster, and what is waited for. Brokers A, B and C hold the replicas, in the
order that the story wants (the first leads). The controller is D, who holds none and so can look on while
the others die.
"""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Callable, Sequence

from minikafka.coordination import paths
from minikafka.errors import ErrorCode, KafkaError
from minikafka.log.checkpoint import read_leader_epochs
from minikafka.log.unified_log import UnifiedLog
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.records.batch import iterate_headers
from minikafka.protocol.records.records import iterate_records
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.server.replica.partition import Partition
from minikafka.testing.simulation.client import PRODUCE_VERSION, SimulatedClient, check, make_batch
from minikafka.testing.simulation.disk import Survival
from minikafka.testing.simulation.invariants import (
    InvariantChecker,
    hosted_partitions,
    read_pieces,
    read_up_to,
)
from minikafka.testing.simulation.simulation import LOG_DIRECTORY, PORT, STORE, SimulatedBroker, Simulation
from minikafka.types import BrokerId, PartitionState, TopicPartition

A, B, C, D, E = 1, 2, 3, 4, 5
NAMES = {A: "A", B: "B", C: "C", D: "D", E: "E"}

TOPIC = "story"
PARTITION = TopicPartition(TOPIC, 0)

PATIENCE_MS = 30_000
"""I16."""


class Cluster:
    """The cluster of one story, with its one partition, and what can be done to it."""

    checker: InvariantChecker

    def __init__(self, simulation: Simulation, replicas: Sequence[int]) -> None:
        self.simulation = simulation
        self.replicas = tuple(replicas)
        self.client = self.new_client()
        self.acked: dict[int, bytes] = {}
        """By offset: what was acknowledged with acks=all."""
        self._numbers = 0
        self._rules: list[Callable[[], None]] = []

    def new_client(self) -> SimulatedClient:
        """One with connections of its own: on one connection answers keep the order of the requests."""
        return SimulatedClient([(f"broker-{node_id}", PORT) for node_id in (D, *sorted(self.replicas))])

    # What it looks like, from outside: looking costs the cluster nothing

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
        leader = NAMES.get(self.state.leader, "none")
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

    # Waiting

    def always(self, rule: Callable[[], None]) -> None:
        """From here on ``rule`` is asked every millisecond in which the story waits; it raises."""
        self._rules.append(rule)

    async def until(
        self,
        condition: Callable[[], bool],
        what: str,
        *,
        within_ms: int = PATIENCE_MS,
        every_ms: int = 1,
    ) -> None:
        """Look every millisecond, or every ``every_ms`` of what takes long. Raises TimeoutError."""
        for _ in range(0, within_ms, every_ms):
            if condition():
                return
            await self.pause(every_ms)
        raise TimeoutError(f"not within {within_ms} ms: {what}")

    async def pause(self, wait_ms: int) -> None:
        """Let the cluster go on for a while."""
        if not self._rules:
            await asyncio.sleep(wait_ms / 1000)
            return
        for _ in range(wait_ms):
            await asyncio.sleep(0.001)
            for rule in self._rules:
                rule()

    async def until_logs(self, picture: str, *, within_ms: int = PATIENCE_MS) -> None:
        """Until the replicas look like ``picture``."""
        await self.until(lambda: self.looks_like(picture), textwrap.dedent(picture), within_ms=within_ms)

    async def until_leads(self, node_id: int, *, epoch_min: int = 0) -> None:
        what = f"{NAMES[node_id]} leads since e{epoch_min} or later"
        await self.until(lambda: self.leads(node_id, epoch_min=epoch_min), what)

    async def until_follows(self, node_id: int, leader: int, *, epoch_min: int = 0) -> None:
        """Until the broker has heard whom it follows, since which epoch or later."""

        def is_so() -> bool:
            partition = self.hosted(node_id)
            return partition is not None and (
                partition.leader_id == leader and partition.leader_epoch >= epoch_min
            )

        await self.until(is_so, f"{NAMES[node_id]} follows {NAMES[leader]} in e{epoch_min} or later")

    async def until_fetch_waits(self, *node_ids: int) -> None:
        """Until their leader knows that they have all that it has, and keeps their next fetch waiting."""

        def is_so() -> bool:
            leader = self.partition(self.state.leader)
            ends = [leader.replication.followers[BrokerId(each)].log_end_offset for each in node_ids]
            return set(ends) == {leader.log.log_end_offset}

        await self.until(is_so, f"{[NAMES[each] for each in node_ids]} have fetched everything")

    async def until_isr(self, *node_ids: int) -> None:
        """Until the store has exactly these in sync, and their leader knows it."""

        def is_so() -> bool:
            state = self.state
            leader = self.hosted(state.leader) if state.leader in self.replicas else None
            return (
                set(state.isr) == set(node_ids)
                and leader is not None
                and leader.is_leader
                and set(leader.isr) == set(node_ids)
            )

        await self.until(is_so, f"the ISR is {[NAMES[each] for each in node_ids]}")

    # Records

    async def produce(self, count: int, *, at: int, acks: int = -1, batch_size: int = 1) -> int:
        """``count`` records to the broker ``at``, ``batch_size`` in each batch, one batch after the other.
        Returns the offset that the last batch got.

        Raises:
            KafkaError: the broker's answer. BrokerUnavailable: it is unknown what became of a batch.
        """
        offset = -1
        for _ in range(count // batch_size):
            values = [b"m%d" % (self._numbers + number) for number in range(batch_size)]
            self._numbers += batch_size
            batch = make_batch(values, timestamp_ms=self.broker(at).clock.now_ms())
            offset = await self.produce_batch(batch, at=at, acks=acks)
            if acks == -1:
                self.acked.update(enumerate(values, start=offset))
        return offset

    async def produce_batch(self, batch: bytes, *, at: int, acks: int) -> int:
        """Returns the offset that it got. Raises as ``produce``."""
        body = {
            "transactional_id": None,
            "acks": acks,
            "timeout": 5_000,
            "topic_data": [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}],
        }
        address = self.broker(at).address
        answer = await self.client.request(address, ApiKey.PRODUCE, body, version=PRODUCE_VERSION)
        found = answer.responses[0].partition_responses[0]
        check(found.error_code, found.error_message)
        return int(found.base_offset)

    def send(self, *, at: int, acks: int = -1) -> asyncio.Task[ErrorCode]:
        """One record, without waiting. The task tells the answer's error."""

        async def answer() -> ErrorCode:
            try:
                await self.produce(1, at=at, acks=acks)
            except KafkaError as error:
                return error.code
            except BrokerUnavailable:
                return ErrorCode.NETWORK_EXCEPTION
            return ErrorCode.NONE

        return asyncio.create_task(answer())

    # Breaking things

    def cut(self, source: int, target: int) -> None:
        """One way: what ``source`` sends to ``target`` from now on waits."""
        self.simulation.network.cut(f"broker-{source}", f"broker-{target}")

    def heal(self, source: int, target: int) -> None:
        self.simulation.network.heal(f"broker-{source}", f"broker-{target}")

    def part(self, one: int, *others: int) -> None:
        """Cut both ways between ``one`` and each of ``others``."""
        for other in others:
            self.cut(one, other)
            self.cut(other, one)

    def join(self, one: int, *others: int) -> None:
        """End what ``part`` did."""
        for other in others:
            self.heal(one, other)
            self.heal(other, one)

    def delay(self, source: int, target: int, delay_ms: float) -> None:
        """One way, exactly; links are as in a data centre before."""
        self.simulation.network.delay(f"broker-{source}", f"broker-{target}", delay_ms)

    def delay_to_store(self, node_id: int, delay_ms: float) -> None:
        self.simulation.network.delay(f"broker-{node_id}", STORE, delay_ms)

    def cut_from_store(self, node_id: int) -> None:
        """One way: the broker's requests reach the store, the answers wait."""
        self.simulation.network.cut(STORE, f"broker-{node_id}")

    def heal_from_store(self, node_id: int) -> None:
        self.simulation.network.heal(STORE, f"broker-{node_id}")

    def session_id(self, node_id: int) -> int:
        """The broker's session with the store, 0 when there is none."""
        ids = [
            session.id
            for session in self.simulation.store.sessions.values()
            if session.connection.client == f"broker-{node_id}"
        ]
        return max(ids, default=0)

    def expire(self, node_id: int) -> None:
        """The store gives the broker's session up, whatever it does."""
        self.simulation.store.expire_session(self.session_id(node_id))

    def kill(self, node_id: int) -> None:
        """SIGKILL, noticed by all at once."""
        self.broker(node_id).kill()
        self.expire(node_id)

    def power_off(self, node_id: int, survival: Survival) -> None:
        """The machine goes dark; ``survival`` says what is left of what was not synced. The session lasts
        until ``expire``."""
        self.broker(node_id).power_off(survival)
        self.client = self.new_client()  # the other one is not told that its connection is dead

    async def start(self, node_id: int) -> None:
        """Start a broker that is down."""
        await self.broker(node_id).start()

    async def bounce(self, node_id: int) -> None:
        """Kill a follower and start it: the partition's leader epoch rises, and nothing is written."""
        epoch = self.state.leader_epoch
        self.kill(node_id)
        await self.until(lambda: self.state.leader_epoch > epoch, "the leader epoch rises")
        await self.start(node_id)

    def lose_disk(self, node_id: int) -> None:
        """A broker that is down has an empty disk from now on."""
        self.broker(node_id).disk.mount().remove_tree(LOG_DIRECTORY)
