"""``Stage``: the cluster of one story, and who is shown it, step by step.

A story (``stories``) is a ``Setup`` and a function that is given the stage. It runs in a simulation of its
own, under the invariant checker. ``Stage.show`` takes a picture and hands it over at once; virtual time
stands still while it is looked at.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from minikafka.cli.shared.admin_client import AdminClient
from minikafka.cli.tour.catalogue import Entry
from minikafka.cli.tour.snapshot import Picture, Replica, Step, Supposition, take_picture
from minikafka.errors import InvariantError
from minikafka.server.runtime.process import keep_freed_memory
from minikafka.testing.broker import Property
from minikafka.testing.simulation.invariants import InvariantChecker
from minikafka.testing.simulation.simulation import PORT, Simulation
from minikafka.testing.stories import PARTITION, TOPIC, Cluster
from minikafka.types import TopicPartition

SEED = 7
SESSION_TIMEOUT_MS = 6_000
"""In place of Kafka's 18 s, so that deaths are noticed sooner."""
CONFIG: Mapping[str, Property] = {
    "replica.fetch.backoff.ms": 100,
    "controlled.shutdown.retry.backoff.ms": 500,
}

ADMIN_TIMEOUT_MS = 30_000

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
