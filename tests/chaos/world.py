"""What a chaos run has: five brokers behind relays, their store, their disks and their clocks."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.clocks import Clock, clocks, tidy
from tests.chaos.disks import SmallDisk, small_disks
from tests.chaos.links import Links
from tests.chaos.stores import Store, opened
from tests.integration.support.cluster import ProcessCluster
from tests.support.ports import free_port

BROKERS = 5

PROPERTIES = {
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "offsets.topic.num.partitions": 5,
    "transaction.state.log.num.partitions": 5,
    "log.roll.ms": 20_000,
    "log.retention.ms": 7 * 86_400_000,  # Kafka's default: no clock goes so far
    "log.flush.offset.checkpoint.interval.ms": 2_000,
    "group.initial.rebalance.delay.ms": 500,
    "log.initial.task.delay.ms": 1_000,
    "leader.imbalance.check.interval.seconds": 20,
}


@dataclass(frozen=True)
class World:
    """All by node id."""

    cluster: ProcessCluster
    links: Links
    store: Store
    disks: dict[int, SmallDisk]
    """Empty where nothing can be mounted."""
    clocks: dict[int, Clock]
    """Empty without libfaketime."""
    of_kafka: Collection[int]
    """The brokers of Apache Kafka."""

    @property
    def bootstrap(self) -> str:
        """Where clients find the brokers: at their relays."""
        return ",".join(f"127.0.0.1:{port}" for port in self.links.ports.values())


@contextlib.contextmanager
def running(directory: Path, store_kind: str, *, of_kafka: int = 0) -> Iterator[World]:
    """Everything runs. ``store_kind``: ``sqlite`` or ``zookeeper``; so many of the brokers, the first, are
    Apache Kafka 3.9's, whose clocks are not turned."""
    ports = {node_id: free_port() for node_id in range(1, BROKERS + 1)}
    paths = {node_id: directory / f"broker-{node_id}" for node_id in ports}
    with (
        opened(store_kind, directory) as store,
        small_disks(paths) as disks,
        contextlib.closing(Links(ports)) as links,
    ):
        own = {
            node_id: {
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{links.ports[node_id]}",
            }
            for node_id, port in ports.items()
        }
        kafkas = range(1, of_kafka + 1)
        cluster = ProcessCluster(
            directory,
            store.engine,
            brokers=BROKERS,
            properties=PROPERTIES,
            own_properties=own,
            of_kafka=kafkas,
        )
        brokers = cluster.brokers
        links.know(lambda: {each: brokers[each].pid for each in brokers if brokers[each].is_running()})
        world = World(cluster, links, store, disks, clocks(directory, ports.keys() - set(kafkas)), kafkas)
        for node_id, clock in world.clocks.items():
            brokers[node_id].command = clock.command
        try:
            cluster.start()
            yield world
        finally:
            cluster.close()
            tidy()
