"""Clusters of broker processes, on both stores, and what can befall them: SIGKILL, SIGSTOP, SIGTERM.

Who leads, who is in sync and who is the controller is read from the store, where it is decided: the brokers'
Metadata follows, and of ISRs it tells only seconds later.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
import threading
from collections.abc import Callable, Collection, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeVar

from minikafka.coordination import paths
from minikafka.coordination.sqlite import SqliteStore
from minikafka.coordination.store import CoordinationStore, NodeExistsError, NoNodeError, StoreError
from minikafka.errors import ErrorCode
from minikafka.protocol.records.batch import iterate_headers
from minikafka.server.replica.partition import EARLIEST_TIMESTAMP
from minikafka.system_clock import SystemClock
from minikafka.types import BrokerId, PartitionState, ReplicaAssignment
from tests.integration.support import confluent
from tests.integration.support.process import BrokerProcess, KafkaOnZooKeeper
from tests.integration.support.wire import RawClient
from tests.support.ports import free_port
from tests.support.zookeeper import ZooKeeperServer

T = TypeVar("T")

SESSION_TIMEOUT_MS = 4_000
PROPERTIES = {
    "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "replica.fetch.backoff.ms": 200,
    "controlled.shutdown.retry.backoff.ms": 500,
}
VIEWER_SESSION_MS = 60_000


class Engine(Protocol):
    """A kind of store: where it is, and how it is put out of reach."""

    name: str

    def properties(self) -> dict[str, object]: ...

    async def open(self) -> CoordinationStore: ...

    def pause(self) -> None:
        """It cannot be reached, until ``resume``."""
        ...

    def resume(self) -> None: ...


class SqliteEngine:
    """One file; a transaction that another process holds open keeps all writers out, renewals too."""

    name = "sqlite"

    def __init__(self, directory: Path) -> None:
        self.path = directory / "coordination.sqlite"
        self._lock: sqlite3.Connection | None = None

    def properties(self) -> dict[str, object]:
        return {"coordination": f"sqlite:///{self.path}"}

    async def open(self) -> CoordinationStore:
        return await SqliteStore.open(
            str(self.path), clock=SystemClock(), session_timeout_ms=VIEWER_SESSION_MS
        )

    def pause(self) -> None:
        self._lock = sqlite3.connect(self.path, isolation_level=None, timeout=10)
        self._lock.execute("BEGIN EXCLUSIVE")

    def resume(self) -> None:
        if self._lock is not None:
            self._lock.execute("ROLLBACK")
            self._lock.close()
            self._lock = None


class ZooKeeperEngine:
    """A part of the tree of a ZooKeeper server. ``pause`` freezes the whole server."""

    name = "zookeeper"

    def __init__(self, server: ZooKeeperServer, chroot: str) -> None:
        self._server = server
        self._connect = f"{server.address}/{chroot}"

    def properties(self) -> dict[str, object]:
        return {"zookeeper.connect": self._connect}

    async def open(self) -> CoordinationStore:
        from minikafka.coordination.zookeeper import ZooKeeperStore

        return await ZooKeeperStore.open(self._connect, session_timeout_ms=VIEWER_SESSION_MS)

    def pause(self) -> None:
        self._server.pause()

    def resume(self) -> None:
        self._server.resume()


class StoreView:
    """The store as a test without an event loop sees it."""

    def __init__(self, engine: Engine) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="store-view", daemon=True)
        self._thread.start()
        self._store = self._await(engine.open)

    def _await(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result(90)

    def close(self) -> None:
        with contextlib.suppress(StoreError):
            self._await(self._store.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def get(self, path: str) -> bytes | None:
        """The data of a node; None: there is none."""
        try:
            return self._await(lambda: self._store.get(path)).data
        except NoNodeError:
            return None

    def put(self, path: str, data: bytes) -> None:
        """Write a node, whether it is there or not."""
        try:
            self._await(lambda: self._store.create(path, data))
        except NodeExistsError:
            self._await(lambda: self._store.set(path, data))

    def delete(self, path: str) -> None:
        self._await(lambda: self._store.delete(path))

    @property
    def controller(self) -> int | None:
        data = self.get(paths.CONTROLLER)
        return None if data is None else paths.decode_controller(data).broker_id

    def state(self, topic: str, partition: int = 0) -> PartitionState | None:
        data = self.get(paths.partition_state_path(topic, partition))
        return None if data is None else paths.decode_partition_state(topic, partition, data)

    def assignment(self, topic: str, partition: int = 0) -> ReplicaAssignment:
        return self.partitions(topic)[partition]

    def partitions(self, topic: str) -> Mapping[int, ReplicaAssignment]:
        data = self.get(paths.topic_path(topic))
        assert data is not None, f"there is no topic {topic}"
        return paths.decode_topic(topic, data).partitions


class ProcessCluster:
    """Brokers 1 to ``brokers`` as processes, and a view of their store."""

    def __init__(
        self,
        directory: Path,
        engine: Engine,
        *,
        brokers: int = 3,
        properties: Mapping[str, object] | None = None,
        own_properties: Mapping[int, Mapping[str, object]] | None = None,
        command: list[str] | None = None,
        of_kafka: Collection[int] = (),
    ) -> None:
        """``properties`` are those of all brokers, ``own_properties`` those of single ones, by node id;
        ``of_kafka``: who are Apache Kafka 3.9's, on ZooKeeper."""
        self.directory = directory
        self.engine = engine
        self._common = PROPERTIES | engine.properties() | dict(properties or {})
        self._command = command
        self._of_kafka = of_kafka
        own = own_properties or {}
        self.brokers = {
            node_id: self.make_broker(node_id, **own.get(node_id, {})) for node_id in range(1, brokers + 1)
        }
        self.store: StoreView

    def make_broker(self, node_id: int, name: str | None = None, **properties: object) -> BrokerProcess:
        """One more process, not started and not among ``brokers``."""
        directory = self.directory / (name or f"broker-{node_id}")
        if node_id in self._of_kafka:
            return KafkaOnZooKeeper(directory, properties=self._common | {"broker.id": node_id} | properties)
        return BrokerProcess(
            directory,
            properties=self._common | {"node.id": node_id, "http.port": free_port()} | properties,
            command=self._command,
        )

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def start(self) -> ProcessCluster:
        with ThreadPoolExecutor() as pool:
            list(pool.map(BrokerProcess.start, self.brokers.values()))
        self.store = StoreView(self.engine)
        return self

    def close(self) -> None:
        """End everything in whatever way works: a test is over."""
        self.engine.resume()
        for broker in self.brokers.values():
            broker.close()
        if hasattr(self, "store"):
            self.store.close()

    def freeze(self, node_id: int) -> None:
        """SIGSTOP."""
        self._signal(node_id, signal.SIGSTOP)

    def thaw(self, node_id: int) -> None:
        """SIGCONT."""
        self._signal(node_id, signal.SIGCONT)

    def _signal(self, node_id: int, number: signal.Signals) -> None:
        process = self.brokers[node_id].process
        assert process is not None
        process.send_signal(number)

    @property
    def controller(self) -> int:
        return waited_for(lambda: self.store.controller, "a controller")

    def leader(self, topic: str) -> int:
        """Who leads partition 0."""

        def found() -> int | None:
            state = self.store.state(topic)
            return None if state is None or state.leader < 0 else int(state.leader)

        return waited_for(found, f"a leader of {topic}")

    def isr(self, topic: str) -> tuple[int, ...]:
        state = self.store.state(topic)
        return () if state is None else tuple(int(each) for each in state.isr)

    def wait_until_whole(self, *topics: str) -> None:
        """Every replica of partition 0 of each topic is in sync."""
        for topic in topics:
            confluent.wait_until(
                lambda topic=topic: len(self.isr(topic)) == len(self.brokers),
                f"the ISR of {topic} is whole",
                deadline_s=60,
            )

    def wait_until_all_in_sync(self, topic: str) -> None:
        """Every replica of every partition."""

        def are_in_sync() -> bool:
            states = {index: self.store.state(topic, index) for index in self.store.partitions(topic)}
            return all(
                state is not None and len(state.isr) == len(self.store.assignment(topic, index).replicas)
                for index, state in states.items()
            )

        confluent.wait_until(are_in_sync, f"the ISRs of {topic} are whole")

    def wait_until_led(self, topic: str, *, partitions: int = 1) -> None:
        """The leaders of all partitions know that they lead. Metadata may name them a moment before, and a
        consumer that asks one then for an offset gives up."""
        for partition in range(partitions):

            def is_led(partition: int = partition) -> bool:
                state = self.store.state(topic, partition)
                if state is None or state.leader not in self.brokers:
                    return False
                with RawClient(self.brokers[state.leader].port) as client:
                    error, _, _ = client.list_offset(topic, partition, EARLIEST_TIMESTAMP)
                return error == ErrorCode.NONE

            confluent.wait_until(is_led, f"{topic}-{partition} is led", deadline_s=60)

    def make_topic(self, topic: str, **config: object) -> None:
        """One partition with a replica on each broker. Waits until it is led and all are in sync."""
        confluent.make_topic(self.bootstrap, topic, replicas=len(self.brokers), config=config)
        self.wait_until_led(topic)
        self.wait_until_whole(topic)

    def wait_until_moved(self, topic: str, *replicas: int, partition: int = 0) -> None:
        """The partition is on these brokers and no others, the preferred leader first, all in sync."""

        def is_there() -> bool:
            assignment, state = self.store.assignment(topic, partition), self.store.state(topic, partition)
            return (
                assignment == ReplicaAssignment(tuple(map(BrokerId, replicas)))
                and state is not None
                and sorted(state.isr) == sorted(replicas)
            )

        confluent.wait_until(is_there, f"{topic}-{partition} is on {replicas}", deadline_s=60)

    def log_below(self, node_id: int, topic: str, end_offset: int, *, partition: int = 0) -> bytes:
        """The bytes of a replica's log below an offset that begins a batch or is the end."""
        data = b"".join(path.read_bytes() for path in self.brokers[node_id].files(topic, ".log", partition))
        end = 0
        for position, header in iterate_headers(data):
            if header.base_offset >= end_offset:
                break
            end = position + header.size
        return data[:end]


def waited_for(look: Callable[[], T | None], what: str) -> T:
    """What ``look`` finds, as soon as that is not None."""
    found: list[T] = []

    def is_there() -> bool:
        result = look()
        if result is not None:
            found.append(result)
        return result is not None

    confluent.wait_until(is_there, what)
    return found[0]
