"""``ThreadedBroker``, ``ThreadedCluster``: for tests without an event loop, on one in a thread of its own.

They also serve asynchronous tests whose loop a broker must not share (a test that blocks its loop, or a
fixture that outlives the test's loop), since clients reach it over TCP either way.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self, TypeVar

from minikafka.testing.broker import Broker, Property
from minikafka.testing.cluster import POLL_S, WAIT_TIMEOUT_S, Cluster
from minikafka.testing.groups import GROUP_TIMEOUT_S, Group

T = TypeVar("T")

START_TIMEOUT_S = 30.0
"""A start takes tens of milliseconds; a directory full of segments to recover takes longer."""


class LoopThread:
    """Runs what has an ``async with`` block on a loop of its own, for the length of a ``with`` block."""

    def __init__(self, served: AbstractAsyncContextManager[Any], name: str) -> None:
        """``name``: of what is served, for the thread and in messages."""
        self._served = served
        self._name = name
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._error: BaseException | None = None

    def __repr__(self) -> str:
        return repr(self._served).replace("testing.", "testing.Threaded", 1)

    def _begin(self) -> None:
        if self._thread is not None:
            raise RuntimeError(f"the {self._name} is already running")
        self._ready.clear()
        self._error = None
        self._thread = threading.Thread(target=self._run, name=f"minikafka-{self._name}", daemon=True)
        self._thread.start()
        if not self._ready.wait(START_TIMEOUT_S):
            raise TimeoutError(f"the {self._name} did not start within {START_TIMEOUT_S:g} s")
        if self._error is not None:
            self._join()

    def _end(self) -> None:
        if self._thread is None:
            return
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._join()

    def _join(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        self._loop = self._stop = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - handed to the thread that starts or stops it
            self._error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with self._served:
            self._ready.set()
            await self._stop.wait()

    def _call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Await ``work()`` on the loop. Raises what it raises."""
        if self._loop is None:
            raise RuntimeError(f"the {self._name} is not running")
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result()

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()


class AsksGroupsInThread(LoopThread):
    """What ``ThreadedBroker`` and ``ThreadedCluster`` tell of groups."""

    def __init__(self, served: Broker | Cluster, name: str) -> None:
        super().__init__(served, name)
        self._asked = served

    def group(self, group_id: str) -> Group | None:
        """See ``Broker.group``."""
        return self._call(lambda: self._asked.group(group_id))

    def wait_for_group(self, group_id: str, *, members: int, timeout_s: float = GROUP_TIMEOUT_S) -> Group:
        """See ``Broker.wait_for_group``."""
        return self._call(lambda: self._asked.wait_for_group(group_id, members=members, timeout_s=timeout_s))

    def wait_until_consumed(self, group_id: str, topic: str, *, timeout_s: float = GROUP_TIMEOUT_S) -> Group:
        """See ``Broker.wait_until_consumed``."""
        return self._call(lambda: self._asked.wait_until_consumed(group_id, topic, timeout_s=timeout_s))


class ThreadedBroker(AsksGroupsInThread):
    """A broker for the length of a ``with`` block::

        with ThreadedBroker() as broker:
            producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

    Takes the arguments of ``minikafka.testing.Broker``. The attributes may be read from any thread.
    """

    def __init__(
        self,
        *,
        config: Mapping[str, Property] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        host: str = "127.0.0.1",
        secure: bool = False,
        api_versions: str | None = None,
    ) -> None:
        self._broker = Broker(
            config=config, data_dir=data_dir, host=host, secure=secure, api_versions=api_versions
        )
        super().__init__(self._broker, "broker")

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return self._broker.port

    @property
    def bootstrap_servers(self) -> str:
        """``host:port``, as every Kafka client takes it."""
        return self._broker.bootstrap_servers

    @property
    def data_dir(self) -> str:
        """Where the records are."""
        return self._broker.data_dir

    def client_config(
        self, user: str = "admin", password: str | None = None, *, client: str = "confluent-kafka"
    ) -> dict[str, Any]:
        """See ``Broker.client_config``."""
        return self._broker.client_config(user, password, client=client)

    def add_user(self, name: str, password: str | None = None) -> str:
        """See ``Broker.add_user``."""
        return self._call(lambda: self._broker.add_user(name, password))

    def add_acl(self, user: str, operation: str, **resource: Any) -> None:
        """See ``Broker.add_acl``."""
        self._call(lambda: self._broker.add_acl(user, operation, **resource))

    def start(self) -> None:
        """Start, or raise ``StartError`` or ``ConfigError`` and leave nothing behind."""
        self._begin()

    def stop(self) -> None:
        """Stop cleanly and wait for it; raises what went wrong inside, if anything did."""
        self._end()


class ThreadedCluster(AsksGroupsInThread):
    """A cluster for the length of a ``with`` block::

        with ThreadedCluster(brokers=3) as cluster:
            producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
            ...
            cluster.kill(cluster.leader_of("orders", 0))

    Takes the arguments of ``minikafka.testing.Cluster`` and has its methods, as plain calls.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        config: Mapping[str, Property] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        secure: bool = False,
    ) -> None:
        self._cluster = Cluster(brokers, config=config, data_dir=data_dir, secure=secure)
        super().__init__(self._cluster, "cluster")

    @property
    def bootstrap_servers(self) -> str:
        """All brokers, as every Kafka client takes them."""
        return self._cluster.bootstrap_servers

    @property
    def data_dir(self) -> str:
        """Where records and store are."""
        return self._cluster.data_dir

    def client_config(
        self, user: str = "admin", password: str | None = None, *, client: str = "confluent-kafka"
    ) -> dict[str, Any]:
        """See ``Cluster.client_config``."""
        return self._cluster.client_config(user, password, client=client)

    def add_user(self, name: str, password: str | None = None) -> str:
        """See ``Cluster.add_user``."""
        return self._call(lambda: self._cluster.add_user(name, password))

    def add_acl(self, user: str, operation: str, **resource: Any) -> None:
        """See ``Cluster.add_acl``."""
        self._call(lambda: self._cluster.add_acl(user, operation, **resource))

    @property
    def controller(self) -> int | None:
        return self._now(lambda: self._cluster.controller)

    def leader_of(self, topic: str, partition: int) -> int | None:
        return self._now(lambda: self._cluster.leader_of(topic, partition))

    def isr_of(self, topic: str, partition: int) -> tuple[int, ...]:
        return self._now(lambda: self._cluster.isr_of(topic, partition))

    def wait_until(self, condition: Callable[[], object], *, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Until ``condition`` holds. It is asked in this thread, every 10 ms. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {timeout_s:g} s")
            time.sleep(POLL_S)

    def start(self, node_id: int) -> None:
        self._call(lambda: self._cluster.start(node_id))

    def stop(self, node_id: int) -> None:
        self._call(lambda: self._cluster.stop(node_id))

    def kill(self, node_id: int) -> None:
        self._call(lambda: self._cluster.kill(node_id))

    def isolate(self, node_id: int) -> None:
        self._now(lambda: self._cluster.isolate(node_id))

    def pause(self, node_id: int) -> None:
        self._now(lambda: self._cluster.pause(node_id))

    def resume(self, node_id: int) -> None:
        self._now(lambda: self._cluster.resume(node_id))

    def delay(self, source: int, target: int, ms: float) -> None:
        self._now(lambda: self._cluster.delay(source, target, ms))

    def drop(self, source: int, target: int) -> None:
        self._now(lambda: self._cluster.drop(source, target))

    def heal(self, node_id: int | None = None) -> None:
        self._now(lambda: self._cluster.heal(node_id))

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        self._call(lambda: self._cluster.move_leader(topic, partition, to))

    def _now(self, look: Callable[[], T]) -> T:
        """On the loop, where nothing changes meanwhile."""

        async def call() -> T:
            return look()

        return self._call(call)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:  # Windows, PyPy: the standard loop serves as well
        return asyncio.new_event_loop
    return uvloop.new_event_loop
