"""What befalls a cluster of processes: faults drawn from a seed, one or two at a time, each of which ends.

Each kind comes once, in an order of the seed's, before any comes again. All that is changed is put right by
``Nemesis.heal``.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import ElectionType, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaTopicPartition
from kafka.errors import KafkaError

from minikafka.testing.cluster import CLIENTS
from tests.chaos.recording import quiet_logger
from tests.chaos.world import World


class Pace(NamedTuple):
    """Least and most."""

    pause_s: tuple[float, float]
    """Between faults."""
    fault_s: tuple[float, float]
    """How long one lasts: up to longer than a session, so that some are taken for a death."""


UNHURRIED = Pace((0.5, 4.0), (0.2, 12.0))
HURRIED = Pace((0.2, 1.0), (0.2, 6.0))
"""Many kinds within a minute."""

CLOCK_JUMP_S = (-50 * 60, 8 * 3600)
"""A broker over an hour behind its clients refuses their records (message.timestamp.after.max.ms). One
that is a day ahead forgets producer ids (producer.id.expiration.ms), and takes twice what is tried again."""
DRIFT_STEP_S = 0.5
DRIFT_RATES = (-0.5, -0.05, 0.05, 0.5, 5.0)
"""What a clock gains in a second."""
ADMIN_DEADLINE_S = 30
SETTLE_DEADLINE_S = 60
ABANDONED_S = 120
"""The last fault starts what it has killed, which is ended afterwards."""

Fault = Callable[[random.Random], None]


class Nemesis:
    """Draws faults until it is stopped, and writes each of them down."""

    def __init__(
        self, world: World, *, topics: Sequence[str], partitions: int, pace: Pace, seed: int, log: Path
    ) -> None:
        self._cluster, self._links, self._store = world.cluster, world.links, world.store
        self._disks, self._clocks = world.disks, world.clocks
        self._topics, self._partitions, self._bootstrap = topics, partitions, world.bootstrap
        self._pace = pace
        self._admin = AdminClient(
            {"bootstrap.servers": self._bootstrap, "socket.timeout.ms": 10_000}, logger=quiet_logger()
        )
        self._rng = random.Random(seed)
        self._log = log.open("a")
        self._stop = threading.Event()
        self.counts: Counter[str] = Counter()
        self._down: set[int] = set()
        self._throwaway = 0
        self._thread = threading.Thread(target=self._run, name="nemesis", daemon=True)
        self.failure: BaseException | None = None
        self._weights = self._kinds()
        self._first = self._rng.sample(list(self._weights), len(self._weights))
        """Of each kind one, before any comes again."""

    def start(self) -> None:
        self._thread.start()

    def abandon(self) -> None:
        """No more faults; a run has failed, and nothing is healed but what the last of them began."""
        self._stop.set()
        self._thread.join(ABANDONED_S)

    def stop(self) -> None:
        """Wait for the faults that last, and heal everything. Raises what went wrong with a fault itself."""
        self._stop.set()
        self._thread.join()
        self.heal()
        self._log.close()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._rng.uniform(*self._pace.pause_s)):
                self._draw()
        except BaseException as error:  # noqa: BLE001 raised by stop
            self.failure = error

    def _draw(self) -> None:
        if self._first:
            self._do(self._first.pop())
            return
        (fault,) = self._rng.choices(list(self._weights), list(self._weights.values()))
        self._do(fault)

    def _kinds(self) -> dict[Fault, int]:
        """Those that this machine can have, and how often each comes beside the others."""
        kinds: dict[Fault, int] = {
            self.kill: 4,
            self.pause: 3,
            self.isolate: 3,
            self.one_way: 3,
            self.one_link: 3,
            self.late: 2,
            self.drip: 1,
            self.reset_connections: 2,
            self.rolling_restart: 1,
            self.store_away: 2,
            self.two_at_once: 1,
            self.move_partition: 3,
            self.elect: 2,
            self.churn_topics: 2,
            self.change_configs: 2,
        }
        if self._disks:
            kinds[self.full_disk] = 2
        if self._clocks:
            kinds |= {self.clock_jumps: 2, self.clock_drifts: 1}
        return kinds

    def _do(self, fault: Fault) -> None:
        name = fault.__name__
        self.counts[name] += 1
        self._note(name, "begins")
        fault(self._rng)
        self._note(name, "ends")

    def _note(self, name: str, what: str, **more: object) -> None:
        self._log.write(
            json.dumps({"ms": time.monotonic() * 1000, "fault": name, "what": what, **more}) + "\n"
        )
        self._log.flush()

    def _last(self, rng: random.Random) -> None:
        self._stop.wait(rng.uniform(*self._pace.fault_s))

    def _victim(self, rng: random.Random, *, of: Collection[int] | None = None) -> int:
        """One of all brokers, or ``of`` those."""
        brokers = self._cluster.brokers if of is None else of
        return rng.choice([each for each in brokers if each not in self._down])

    def heal(self) -> None:
        """Everything runs, and reaches everything."""
        self._links.heal()
        self._store.heal()
        for disk in self._disks.values():
            disk.empty()
        for clock in self._clocks.values():
            clock.turn(0)
        for node_id, broker in self._cluster.brokers.items():
            if broker.is_running():
                self._cluster.thaw(node_id)
            else:
                broker.start()

    # Brokers

    def kill(self, rng: random.Random) -> None:
        node_id = self._victim(rng)
        self._note("kill", "broker", node_id=node_id)
        self._cluster.brokers[node_id].kill()
        self._last(rng)
        self._cluster.brokers[node_id].start()

    def pause(self, rng: random.Random) -> None:
        node_id = self._victim(rng)
        self._note("pause", "broker", node_id=node_id)
        self._cluster.freeze(node_id)
        self._last(rng)
        self._cluster.thaw(node_id)

    def rolling_restart(self, rng: random.Random) -> None:
        for broker in self._cluster.brokers.values():
            if self._stop.is_set():
                return
            broker.stop()
            broker.start()
            self._stop.wait(rng.uniform(0.5, 3))

    def two_at_once(self, rng: random.Random) -> None:
        """A second broker goes while the first is away."""
        first = self._victim(rng)
        self._cluster.brokers[first].kill()
        self._down.add(first)
        try:
            self._do(rng.choice((self.kill, self.pause, self.isolate)))
        finally:
            self._down.discard(first)
            self._cluster.brokers[first].start()

    def full_disk(self, rng: random.Random) -> None:
        """The log directory of a broker takes no more; a broker that ends by that is started again."""
        node_id = rng.choice([each for each in self._disks if each not in self._down])
        self._note("full_disk", "broker", node_id=node_id)
        self._disks[node_id].fill()
        self._last(rng)
        self._disks[node_id].empty()
        broker = self._cluster.brokers[node_id]
        if broker.is_running():
            broker.kill()  # a log directory that was taken offline stays so until the broker starts again
        broker.start()

    # Clocks

    def clock_jumps(self, rng: random.Random) -> None:
        """A broker's wall clock is set, and set back."""
        node_id, offset_s = self._victim(rng, of=self._clocks), rng.uniform(*CLOCK_JUMP_S)
        self._note("clock_jumps", "broker", node_id=node_id, offset_s=offset_s)
        self._clocks[node_id].turn(offset_s)
        self._last(rng)
        self._clocks[node_id].turn(0)

    def clock_drifts(self, rng: random.Random) -> None:
        """A broker's wall clock goes wrong, step by step, and is set right."""
        node_id, rate = self._victim(rng, of=self._clocks), rng.choice(DRIFT_RATES)
        self._note("clock_drifts", "broker", node_id=node_id, rate=rate)
        for step in range(1, 1 + round(rng.uniform(*self._pace.fault_s) / DRIFT_STEP_S)):
            self._clocks[node_id].turn(step * DRIFT_STEP_S * rate)
            if self._stop.wait(DRIFT_STEP_S):
                break
        self._clocks[node_id].turn(0)

    # Links

    def isolate(self, rng: random.Random) -> None:
        node_id = self._victim(rng)
        self._note("isolate", "broker", node_id=node_id)
        self._links.isolate(node_id)
        self._last(rng)
        self._links.heal()

    def one_way(self, rng: random.Random) -> None:
        source, target = self._two_ends(rng)
        self._links.hold(source, target)
        self._last(rng)
        self._links.heal()

    def one_link(self, rng: random.Random) -> None:
        source, target = self._two_ends(rng)
        self._links.hold(source, target)
        self._links.hold(target, source)
        self._last(rng)
        self._links.heal()

    def late(self, rng: random.Random) -> None:
        source, target = self._two_ends(rng)
        self._links.delay(source, target, rng.uniform(20, 800))
        self._last(rng)
        self._links.heal()

    def drip(self, rng: random.Random) -> None:
        source, target = self._two_ends(rng)
        self._links.drip(source, target, rng.choice((1, 7, 100)))
        self._last(rng)
        self._links.heal()

    def reset_connections(self, rng: random.Random) -> None:
        self._links.cut(self._victim(rng))

    def _two_ends(self, rng: random.Random) -> tuple[Any, Any]:
        source = self._victim(rng)
        others = [each for each in self._cluster.brokers if each != source]
        return source, rng.choice([*others, *others, CLIENTS])

    # The store

    def store_away(self, rng: random.Random) -> None:
        self._store.away(rng)
        self._last(rng)
        self._store.heal()

    # Operators

    def move_partition(self, rng: random.Random) -> None:
        """To other brokers, in another order; what fails is an operator's to try again."""
        at = KafkaTopicPartition(rng.choice(self._topics), rng.randrange(self._partitions))
        replicas = rng.sample(list(self._cluster.brokers), 3)
        try:
            admin = KafkaAdminClient(bootstrap_servers=self._bootstrap.split(","), request_timeout_ms=10_000)
            try:
                admin.alter_partition_reassignments({at: replicas})
            finally:
                admin.close()
        except (KafkaError, RuntimeError, TimeoutError) as error:  # RuntimeError: it finds no controller
            self._note("operator", "refused", error=repr(error))

    def elect(self, rng: random.Random) -> None:
        self._try(lambda: self._admin.elect_leaders(ElectionType.PREFERRED, None).result(ADMIN_DEADLINE_S))

    def churn_topics(self, rng: random.Random) -> None:
        self._throwaway += 1
        name = f"throwaway-{self._throwaway}"
        new = NewTopic(name, num_partitions=rng.randint(1, 6), replication_factor=rng.randint(1, 3))
        self._try(lambda: self._admin.create_topics([new])[name].result(ADMIN_DEADLINE_S))
        self._stop.wait(rng.uniform(0, 2))
        self._try(lambda: self._admin.delete_topics([name])[name].result(ADMIN_DEADLINE_S))

    def change_configs(self, rng: random.Random) -> None:
        topic = rng.choice(self._topics)
        name, values = rng.choice(
            (
                ("segment.bytes", ("65536", "1048576", "16777216")),
                ("flush.messages", ("1", "100", "9223372036854775807")),
                ("min.insync.replicas", ("2", "3")),
                ("segment.ms", ("1000", "604800000")),
            )
        )
        entry = ConfigEntry(name, rng.choice(values), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self._try(
            lambda: self._admin.incremental_alter_configs([resource])[resource].result(ADMIN_DEADLINE_S)
        )

    def _try(self, work: Callable[[], object]) -> None:
        """What an operator asks for while brokers are away may fail."""
        try:
            work()
        except (KafkaException, TimeoutError) as error:
            self._note("operator", "refused", error=repr(error))

    def settle(self) -> None:
        """min.insync.replicas as it was, so that everything can be written. Raises AssertionError."""
        deadline = time.monotonic() + SETTLE_DEADLINE_S
        left = list(self._topics)
        while left:
            entry = ConfigEntry("min.insync.replicas", "2", incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ResourceType.TOPIC, left[-1], incremental_configs=[entry])
            try:
                self._admin.incremental_alter_configs([resource])[resource].result(ADMIN_DEADLINE_S)
            except (KafkaException, TimeoutError) as error:
                assert time.monotonic() < deadline, f"min.insync.replicas cannot be set: {error}"
            else:
                left.pop()
