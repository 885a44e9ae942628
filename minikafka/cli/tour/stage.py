"""``Stage``: the cluster of one story, who is shown it, step by step, and what is in the picture of a step.

A story (``stories``) is a ``Setup`` and a function that is given the stage. It runs in a simulation of its
own, under the invariant checker. ``Stage.show`` takes a picture and hands it over at once; virtual time
stands still while it is looked at.

A picture is values, read from brokers that run. Nothing is drawn that a broker, its log or the store does not
say of itself. What only would have been is computed from a real log and stands apart (``Supposition``).
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from minikafka.cli.shared.admin_client import AdminClient
from minikafka.cli.tour import Entry
from minikafka.coordination import paths
from minikafka.errors import InvariantError
from minikafka.log.checkpoint import read_leader_epochs
from minikafka.protocol.records.batch import BatchHeader, iterate_headers
from minikafka.protocol.records.records import Record, iterate_records, read_end_transaction_marker
from minikafka.purgatory import DelayedOperation
from minikafka.server.replica.partition import Partition
from minikafka.server.runtime.process import keep_freed_memory
from minikafka.testing.broker import Property
from minikafka.testing.simulation.invariants import InvariantChecker, hosted_partitions, read_up_to
from minikafka.testing.simulation.simulation import LOG_DIRECTORY, PORT, SimulatedBroker, Simulation
from minikafka.testing.stories import PARTITION, TOPIC, Cluster
from minikafka.types import PartitionState, ReplicaAssignment, TopicPartition

RECORDS_MAX = 10
"""A log with more records is shown as a bar; each has its own cell otherwise."""

SEED = 7
SESSION_TIMEOUT_MS = 6_000
"""In place of Kafka's 18 s, so that deaths are noticed sooner."""
CONFIG: Mapping[str, Property] = {
    "replica.fetch.backoff.ms": 100,
    "controlled.shutdown.retry.backoff.ms": 500,
}

ADMIN_TIMEOUT_MS = 30_000


class Cell(msgspec.Struct, frozen=True):
    """One record of a log."""

    offset: int
    epoch: int
    text: str
    """Its value, or ``COMMIT`` or ``ABORT`` of a control record."""
    producer: str = ""
    """``id/epoch`` of a transactional producer."""


class Span(msgspec.Struct, frozen=True):
    """What one leader epoch has in a log: offsets from ``start`` up to ``end``, perhaps none."""

    epoch: int
    start: int
    end: int

    def __str__(self) -> str:
        return (
            f"e{self.epoch}[{self.start}..{self.end - 1}]"
            if self.start < self.end
            else f"e{self.epoch}[at {self.start}]"
        )


class Log(msgspec.Struct, frozen=True):
    """One replica's log."""

    start: int
    stable: int
    high_watermark: int
    """-1 of a broker that is down: only what runs has one."""
    end: int
    size_bytes: int
    spans: tuple[Span, ...]
    """As its ``leader-epoch-checkpoint`` has them."""
    cells: tuple[Cell, ...] | None
    """None: more than ``RECORDS_MAX``."""

    def cut(self, end: int) -> Log:
        """What truncating to ``end`` would leave."""
        spans = tuple(
            Span(each.epoch, each.start, min(each.end, end)) for each in self.spans if each.start < end
        )
        cells = None if self.cells is None else tuple(each for each in self.cells if each.offset < end)
        return msgspec.structs.replace(
            self, high_watermark=min(self.high_watermark, end), stable=min(self.stable, end), end=end,
            spans=spans, cells=cells,
        )  # fmt: skip


class Replica(msgspec.Struct, frozen=True):
    """One broker's replica of a partition, as that broker sees it."""

    broker: int
    role: str
    """``leader``, ``follower``, ``down`` (its broker is), ``none`` (it has none)."""
    epoch: int = -1
    """The leader epoch that the broker knows."""
    log: Log | None = None
    progress: tuple[tuple[int, int], ...] = ()
    """Of a leader: each follower, and the log end that its fetches have told."""

    def become(self, **changes: Any) -> Replica:
        """The same but for ``changes``, for a ``Supposition``."""
        return msgspec.structs.replace(self, **changes)


class PartitionPicture(msgspec.Struct, frozen=True):
    """A partition as the store has it, and all its replicas."""

    name: str
    state: PartitionState
    assignment: ReplicaAssignment
    replicas: tuple[Replica, ...]


class Waiting(msgspec.Struct, frozen=True):
    """A request that is parked in a purgatory."""

    broker: int
    what: str
    left_ms: int


class Picture(msgspec.Struct, frozen=True):
    """Everything at one moment."""

    at_ms: float
    """Of virtual time, since the story began."""
    controller: int | None
    controller_epoch: int
    down: tuple[int, ...]
    paused: tuple[int, ...]
    partitions: tuple[PartitionPicture, ...]
    waiting: tuple[Waiting, ...]

    def replica(self, broker: int, partition: str = "") -> Replica:
        """Of the first partition, unless one is named. Raises KeyError."""
        for each in self.partitions:
            for replica in each.replicas:
                if replica.broker == broker and partition in ("", each.name):
                    return replica
        raise KeyError(broker)


class Supposition(msgspec.Struct, frozen=True):
    """Logs as they would be under another rule: computed from the real ones, not run."""

    title: str
    replicas: tuple[Replica, ...]


class Step(msgspec.Struct, frozen=True):
    """One moment of a story: what has happened, why, and how it looks."""

    number: int
    title: str
    text: str
    facts: tuple[str, ...]
    """What clients were told, and what else was measured."""
    picture: Picture
    suppositions: tuple[Supposition, ...]


def take_picture(
    simulation: Simulation, topic_partitions: Iterable[TopicPartition], *, since_ms: float, with_parked: bool
) -> Picture:
    """Look at everything; costs the cluster nothing."""
    nodes = simulation.store.tree.nodes
    controller = nodes.get(paths.CONTROLLER)
    epoch = nodes.get(paths.CONTROLLER_EPOCH)
    brokers = sorted(simulation.brokers.items())
    return Picture(
        at_ms=simulation.loop.time() * 1000 - since_ms,
        controller=None if controller is None else paths.decode_controller(controller.data).broker_id,
        controller_epoch=0 if epoch is None else paths.decode_controller_epoch(epoch.data),
        down=tuple(node_id for node_id, broker in brokers if not broker.has_started),
        paused=tuple(node_id for node_id, broker in brokers if _is_paused(broker)),
        partitions=tuple(_partition(simulation, each) for each in topic_partitions),
        waiting=tuple(each for _, broker in brokers for each in _waiting(broker) if with_parked),
    )


def _is_paused(broker: SimulatedBroker) -> bool:
    return broker.is_running and not broker.process.runs


def _partition(simulation: Simulation, at: TopicPartition) -> PartitionPicture:
    nodes = simulation.store.tree.nodes
    assignment = paths.decode_topic(at.topic, nodes[paths.topic_path(at.topic)].data).partitions[at.partition]
    state = paths.decode_partition_state(*at, nodes[paths.partition_state_path(*at)].data)
    hosts = {*assignment.replicas, *(each for each in simulation.brokers if _hosted(simulation, each, at))}
    replicas = tuple(_replica(simulation, each, at) for each in sorted(hosts))
    return PartitionPicture(str(at), state, assignment, replicas)


def _hosted(simulation: Simulation, node_id: int, at: TopicPartition) -> Partition | None:
    replicas = hosted_partitions(simulation.brokers[node_id])
    return next((each for each in replicas if each.topic_partition == at), None)


def _replica(simulation: Simulation, node_id: int, at: TopicPartition) -> Replica:
    broker = simulation.brokers[node_id]
    partition = _hosted(simulation, node_id, at)
    if partition is None:
        return (
            Replica(node_id, "none")
            if broker.has_started
            else Replica(node_id, "down", log=_left(broker, at))
        )
    followers = partition.replication.followers if partition.is_leader else {}
    return Replica(
        node_id,
        "leader" if partition.is_leader else "follower",
        partition.leader_epoch,
        _log(broker, partition),
        tuple((int(each), int(progress.log_end_offset)) for each, progress in sorted(followers.items())),
    )


def _log(broker: SimulatedBroker, partition: Partition) -> Log:
    log = partition.log
    return Log(
        start=log.log_start_offset,
        stable=log.last_stable_offset,
        high_watermark=log.high_watermark,
        end=log.log_end_offset,
        size_bytes=log.size_bytes,
        spans=_spans(broker, partition.topic_partition, log.log_end_offset),
        cells=_cells_of(partition) if log.log_end_offset - log.log_start_offset <= RECORDS_MAX else None,
    )


def _left(broker: SimulatedBroker, at: TopicPartition) -> Log | None:
    """What lies on the disk of a broker that does not run."""
    files, directory = broker.disk.mount(), f"{LOG_DIRECTORY}/{at}"
    segments = (
        [each for each in files.list(directory) if each.endswith(".log")] if files.exists(directory) else []
    )
    batches = b"".join(files.read_bytes(f"{directory}/{each}") for each in sorted(segments))
    headers = [header for _, header in iterate_headers(batches)]
    if not headers:
        return None
    start, end = headers[0].base_offset, headers[-1].next_offset
    cells = _cells(batches) if end - start <= RECORDS_MAX else None
    return Log(start, -1, -1, end, len(batches), _spans(broker, at, end), cells)


def _spans(broker: SimulatedBroker, at: TopicPartition, end: int) -> tuple[Span, ...]:
    path = f"{LOG_DIRECTORY}/{at}/leader-epoch-checkpoint"
    entries = read_leader_epochs(broker.disk.mount(), path)
    ends = [each.start_offset for each in entries[1:]] + [end]
    return tuple(Span(epoch, start, end) for (epoch, start), end in zip(entries, ends, strict=False))


def _cells_of(partition: Partition) -> tuple[Cell, ...]:
    return _cells(read_up_to(partition, partition.log.log_start_offset, partition.log.log_end_offset))


def _cells(batches: bytes) -> tuple[Cell, ...]:
    return tuple(
        Cell(record.offset, header.partition_leader_epoch, _text(header, record), _producer(header))
        for position, header in iterate_headers(batches)
        for record in iterate_records(memoryview(batches)[position : position + header.size])
    )


def _producer(header: BatchHeader) -> str:
    return f"{header.producer_id}/{header.producer_epoch}" if header.is_transactional else ""


def _text(header: BatchHeader, record: Record) -> str:
    if header.is_control:
        marker = read_end_transaction_marker(record.key, record.value)
        return "control" if marker is None else marker.type.name
    return (record.value or b"").decode(errors="replace")


def _waiting(broker: SimulatedBroker) -> Sequence[Waiting]:
    """Produces and fetches."""
    if not broker.has_started:
        return ()
    parked = broker.server.services.replica_manager.parked
    now_ms = broker.clock.monotonic_ms()
    operations: list[DelayedOperation] = [*parked.produce.waiting(), *parked.fetch.waiting()]
    return [Waiting(broker.node_id, repr(each), each.expiration_ms - now_ms) for each in operations]


OnStep = Callable[[Step], None]


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """With what a story begins: brokers that run, and one partition."""

    replicas: tuple[int, ...] = (1, 2, 3)
    """The first leads."""
    others: tuple[int, ...] = (4,)
    """Brokers without a replica; the first is the controller."""
    min_isr: int = 1
    unclean: bool = False
    """``unclean.leader.election.enable`` of the topic: the story may lose committed records."""
    config: Mapping[str, Property] = {}
    """Of all brokers."""
    shows_parked: bool = False
    """Whether requests that wait in purgatories are in the picture."""


class Stage(Cluster):
    """What a story is told with: all that can be done to a ``Cluster``, and ``show``."""

    def __init__(self, simulation: Simulation, setup: Setup, on_step: OnStep) -> None:
        super().__init__(simulation, setup.replicas)
        self.shown = [PARTITION]
        """The partitions in the picture."""
        self.addresses = [(f"broker-{each}", PORT) for each in (*setup.others, *sorted(setup.replicas))]
        self.admin = AdminClient(self.addresses, client_id="operator", timeout_ms=ADMIN_TIMEOUT_MS)
        """As ``minikafka reassign`` and the other commands use it."""
        self._shows_parked = setup.shows_parked
        self._on_step = on_step
        self._count = 0
        self._since_ms: float | None = None

    def look(self) -> Picture:
        """Everything as it is now."""
        now_ms = self.simulation.loop.time() * 1000
        if self._since_ms is None:
            self._since_ms = now_ms
        return take_picture(
            self.simulation, self.shown, since_ms=self._since_ms, with_parked=self._shows_parked
        )

    def show(
        self, title: str, text: str, *, facts: Sequence[str] = (), suppositions: Sequence[Supposition] = ()
    ) -> Picture:
        """The next step of the story. Returns its picture."""
        self._count += 1
        picture = self.look()
        words = " ".join(text.split())
        self._on_step(Step(self._count, title, words, tuple(facts), picture, tuple(suppositions)))
        return picture

    async def new_topic(self, topic: str) -> TopicPartition:
        """One more, with one partition on the brokers of the first. Returns that, when all are in sync."""
        at = TopicPartition(topic, 0)
        await self.client.create_topic(topic, assignment=[self.replicas])
        leader = self.broker(self.replicas[0]).server.services.replica_manager

        def is_led() -> bool:
            partition = leader.partitions.get(at)
            return partition is not None and partition.is_leader and set(partition.isr) == set(self.replicas)

        await self.until(is_led, f"{topic} is led")
        return at

    def check(self, is_so: bool, what: str) -> None:
        """What the words say is what the picture shows. Raises InvariantError."""
        if not is_so:
            raise InvariantError(f"the story says {what}, and it is not so:\n{self.picture()}")


def before_kip_101(replica: Replica) -> Supposition:
    """A follower's log, cut to its own HW: what it did before it knew epochs, when it heard of a leader."""
    assert replica.log is not None
    title = f"computed from broker {replica.broker}'s log, not run: cut to its own HW, as before KIP-101"
    return Supposition(title, (replica.become(log=replica.log.cut(replica.log.high_watermark)),))


def tell(entry: Entry, on_step: OnStep) -> None:
    """Run a story from its beginning; ``on_step`` is handed each of its steps.

    Raises:
        MinikafkaError: the brokers did not do what the story says.
    """
    story = entry.load()
    setup = story.setup
    simulation = Simulation(SEED, session_timeout_ms=SESSION_TIMEOUT_MS)

    async def run(simulation: Simulation) -> None:
        stage = Stage(simulation, setup, on_step)
        for node_id in (*setup.others, *sorted(setup.replicas)):
            await simulation.start_broker(node_id, {**CONFIG, **setup.config})
        configs = {
            "min.insync.replicas": str(setup.min_isr),
            "unclean.leader.election.enable": str(setup.unclean).lower(),
        }
        await stage.client.create_topic(TOPIC, assignment=[setup.replicas], configs=configs)
        await stage.until_isr(*setup.replicas)
        if len(setup.replicas) > 1:
            await stage.until_fetch_waits(*setup.replicas[1:])
        stage.checker = InvariantChecker(simulation, clean_elections=not setup.unclean)
        stage.checker.start()
        await story.tell(stage)
        stage.checker.look()
        if not setup.unclean:
            stage.expect_acked()

    keep_freed_memory()  # messages of a megabyte, again and again
    with _quiet(), _garbage_at_the_end():
        simulation.run(run)


@contextmanager
def _garbage_at_the_end() -> Iterator[None]:
    """Simulated disks are in cycles, of one story hundreds of megabytes: they are collected when it is over.
    On the way there is next to nothing to be found, and what was there before is not looked through."""
    was_enabled = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()
        if was_enabled:
            gc.enable()


@contextmanager
def _quiet() -> Iterator[None]:
    """What brokers log has no place between the pictures."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
