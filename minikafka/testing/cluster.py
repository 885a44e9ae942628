"""``Cluster``: several brokers on the event loop of the test that uses them, and what can befall them.

They are real brokers with directories of their own, that share a SQLite store (or a ZooKeeper of yours) and
elect a controller. What a test does to them happens at the edges: their connections run through relays
(``minikafka.testing.links``), their store stands behind a gate, their disk can be taken away.

Not thread-safe: it belongs to the loop that started it. A loop that is blocked for longer than
``zookeeper.session.timeout.ms`` (3 s here) takes the sessions of all brokers along.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType

from minikafka.testing.broker import Property
from minikafka.testing.cluster_broker import ClusterBroker
from minikafka.testing.links import CLIENTS, STORE, End, Network

WAIT_TIMEOUT_S = 30.0
POLL_S = 0.01

DEFAULTS: dict[str, Property] = {
    "zookeeper.session.timeout.ms": 3_000,  # Kafka's 18 s are long for a test that waits for them
    "controlled.shutdown.retry.backoff.ms": 100,
    "replica.fetch.backoff.ms": 100,
}


class Cluster:
    """A cluster for the length of an ``async with`` block::

        async with Cluster(brokers=3, config={"min.insync.replicas": 2}) as cluster:
            producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all")
            ...
            await cluster.kill(cluster.leader_of("orders", 0))

    Args:
        brokers: how many; their ids are 1, 2, 3 and so on.
        config: Kafka's broker properties, for all of them; they win over the defaults made here. With
            ``coordination`` or ``zookeeper.connect`` the cluster uses that store.
        data_dir: keep records and store here, so that a later ``Cluster`` goes on with them. None: a
            temporary directory that goes when the cluster stops.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        config: Mapping[str, Property] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster needs a broker, not {brokers}")
        self._count = brokers
        self._config: dict[str, Property] = DEFAULTS | {"default.replication.factor": min(3, brokers)}
        self._config |= config or {}
        self._given_data_dir = None if data_dir is None else os.path.abspath(data_dir)
        self._data_dir: str | None = None
        self._network = Network()
        self.brokers: dict[int, ClusterBroker] = {}
        """All brokers by id, those too that are stopped."""

    def __repr__(self) -> str:
        return f"<minikafka.testing.Cluster {list(self.brokers.values())}>"

    # What a test asks

    @property
    def bootstrap_servers(self) -> str:
        """All brokers, as every Kafka client takes them."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    @property
    def data_dir(self) -> str:
        """Where records and store are. Raises RuntimeError when the cluster is not running."""
        if self._data_dir is None:
            raise RuntimeError("the cluster is not running: use it inside `async with Cluster() as cluster:`")
        return self._data_dir

    @property
    def controller(self) -> int | None:
        """The broker that is the controller; None while there is none. One that is isolated or paused does
        not count, whatever it believes."""
        for broker in self._best_informed():
            controller = broker.server.services.metadata.controller_id
            if controller == broker.node_id and broker.server.services.controller.is_controller:
                return controller
        return None

    def leader_of(self, topic: str, partition: int) -> int | None:
        """Who leads a partition, as the last controller has told; None: nobody, or it is not known yet."""
        best = self._best_informed()
        return _leader(best[0], topic, partition) if best else None

    def isr_of(self, topic: str, partition: int) -> tuple[int, ...]:
        """Who is in sync, as the leader knows; the controller hears of it seconds later."""
        from minikafka.types import TopicPartition

        leader = self.leader_of(topic, partition)
        broker = next((each for each in self._reachable() if each.node_id == leader), None)
        if broker is None:
            return ()
        led = broker.server.services.replica_manager.partitions.get(TopicPartition(topic, partition))
        return () if led is None else tuple(led.isr)

    async def wait_until(self, condition: Callable[[], object], *, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Until ``condition`` holds, which is asked every 10 ms. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110 - anything may be asked, so nothing can announce it
                await asyncio.sleep(POLL_S)

    # What a test does

    async def start(self, node_id: int | None = None) -> None:
        """Start one broker again, with its records and on its port; without an id the whole cluster.

        Raises:
            StartError, ConfigError: why it cannot start. A cluster that fails to start leaves nothing behind.
        """
        if node_id is not None:
            await self._broker(node_id).start()
            return
        if self._data_dir is not None:
            raise RuntimeError("the cluster is already running")
        self._data_dir = data_dir = self._given_data_dir or tempfile.mkdtemp(prefix="minikafka-test-")
        try:
            await self._start_all(data_dir)
        except BaseException:
            await self.close()
            raise

    async def stop(self, node_id: int) -> None:
        """Stop one broker cleanly: its leaders are moved, its logs flushed, its session ended."""
        await self._broker(node_id).stop()

    async def kill(self, node_id: int) -> None:
        """End one broker as SIGKILL would: in one moment its connections are reset, nothing that it does
        reaches the disk any more, and its session is not ended but runs out.

        What one process cannot show: the broker's tasks are cancelled, not stopped between two instructions,
        so a write is never torn; memory maps (indexes) are not taken away; and what others see of the store
        when a process dies in the middle of a transaction. ``tests/integration`` has real processes for that.
        """
        await self._broker(node_id).kill()

    def isolate(self, node_id: int) -> None:
        """Cut one broker off from the other brokers and from the store. Clients still reach it, as in the
        usual bad story: it believes that it leads. Its session runs out."""
        broker = self._broker(node_id)
        broker.is_cut_off = True
        self._hold(node_id, [*self.brokers, STORE])
        broker.lose_store()

    def pause(self, node_id: int) -> None:
        """Hold one broker still, nearly as SIGSTOP would: it reads no request, answers none, sends none, and
        does not renew its session.

        What one process cannot show: its timers run on, so what it waits for may time out meanwhile.
        """
        broker = self._broker(node_id)
        broker.is_cut_off = True
        self._hold(node_id, [*self.brokers, STORE, CLIENTS])
        broker.hold_store()

    def resume(self, node_id: int) -> None:
        """Let a paused broker go on: it finds what came meanwhile, and that its session has run out."""
        self.heal(node_id)

    def delay(self, source: int, target: int, ms: float) -> None:
        """What ``source`` sends to ``target`` arrives so much later, until ``heal``."""
        self._broker(source), self._broker(target)
        self._network.flow(source, target).delay_ms = ms

    def drop(self, source: int, target: int) -> None:
        """Nothing that ``source`` sends to ``target`` arrives, until ``heal``; the other direction goes on.
        TCP would send it again, so what was dropped arrives after that, on connections that still live."""
        self._broker(source), self._broker(target)
        self._network.flow(source, target).hold()

    def heal(self, node_id: int | None = None) -> None:
        """End everything that was done to the links and the store of one broker, or of all."""
        healed = list(self.brokers) if node_id is None else [node_id]
        for each in healed:
            broker = self._broker(each)
            broker.is_cut_off = False
            broker.reach_store()
            for flow in self._network.flows_of(each):
                flow.release()

    async def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Have a member of the ISR lead a partition, and wait until all brokers know.

        As an operator does it by hand with ZooKeeper's shell, in one transaction: the partition's state is
        written with the new leader and the next leader epoch, and ``/controller`` is deleted, so that a new
        controller is elected, which tells everybody. (The controllership may move, too.)

        Raises:
            ValueError: ``to`` is not in the ISR.
        """
        await self._write_leader(topic, partition, to)
        await self.wait_until(
            lambda: all(_leader(broker, topic, partition) == to for broker in self._reachable())
        )

    # Inside

    def _hold(self, node_id: int, others: Iterable[End]) -> None:
        for other in others:
            self._network.flow(node_id, other).hold()
            self._network.flow(other, node_id).hold()

    async def _write_leader(self, topic: str, partition: int, to: int) -> None:
        import msgspec

        from minikafka.coordination import paths
        from minikafka.coordination.store import BadVersionError, DeleteOp, NoNodeError, SetOp
        from minikafka.types import BrokerId, LeaderEpoch

        store = self._reachable()[0].server.services.store
        path = paths.partition_state_path(topic, partition)
        while True:
            node = await store.get(path)
            state = paths.decode_partition_state(topic, partition, node.data)
            if state.leader == to:
                return
            if to not in state.isr:
                raise ValueError(f"broker {to} is not in the ISR of {topic}-{partition}: {state.isr}")
            moved = msgspec.structs.replace(
                state, leader=BrokerId(to), leader_epoch=LeaderEpoch(state.leader_epoch + 1)
            )
            try:
                await store.multi(
                    [
                        SetOp(path, paths.encode_partition_state(moved), node.stat.version),
                        DeleteOp(paths.CONTROLLER),
                    ]
                )
                return
            except (BadVersionError, NoNodeError):  # the ISR has just changed, or there is no controller
                await asyncio.sleep(POLL_S)

    def _broker(self, node_id: int) -> ClusterBroker:
        if node_id not in self.brokers:
            raise ValueError(f"there is no broker {node_id}, there are {', '.join(map(str, self.brokers))}")
        return self.brokers[node_id]

    def _reachable(self) -> list[ClusterBroker]:
        return [
            broker
            for broker in self.brokers.values()
            if broker.is_running and broker.is_up and not broker.is_cut_off
        ]

    def _best_informed(self) -> list[ClusterBroker]:
        """Those who have heard from the last controller, that itself first: it is told before the others."""
        brokers = self._reachable()
        epochs = {each.node_id: each.server.services.replica_manager.controller_epoch for each in brokers}
        return sorted(
            (each for each in brokers if epochs[each.node_id] == max(epochs.values())),
            key=lambda each: not each.server.services.controller.is_controller,
        )

    async def _start_all(self, data_dir: str) -> None:
        config = dict(self._config)
        if "zookeeper.connect" not in config:
            config.setdefault("coordination", f"sqlite:///{data_dir}/coordination.sqlite")
        self.brokers = {
            node_id: ClusterBroker(
                node_id,
                config=config,
                data_dir=os.path.join(data_dir, f"broker-{node_id}"),
                network=self._network,
            )
            for node_id in range(1, self._count + 1)
        }
        for broker in self.brokers.values():
            await broker.connect_to([other for other in self.brokers.values() if other is not broker])
        async with asyncio.TaskGroup() as starting:
            for broker in self.brokers.values():
                starting.create_task(broker.start())
        await self.wait_until(
            lambda: all(
                len(broker.server.services.metadata.brokers()) == self._count for broker in self._reachable()
            )
        )

    async def close(self) -> None:
        """Stop all brokers cleanly, the controller last, and remove the temporary directory."""
        data_dir, self._data_dir = self._data_dir, None
        try:
            self.heal()
            controller = self.controller
            others = [broker for node_id, broker in self.brokers.items() if node_id != controller]
            await asyncio.gather(*(broker.stop() for broker in others))
            if controller is not None:
                await self.brokers[controller].stop()
        finally:
            await self._network.close()
            self._network = Network()
            self.brokers = {}
            if data_dir is not None and self._given_data_dir is None:
                shutil.rmtree(data_dir)

    async def __aenter__(self) -> Cluster:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


def _leader(broker: ClusterBroker, topic: str, partition: int) -> int | None:
    """As this broker was told."""
    from minikafka.types import TopicPartition

    known = broker.server.services.metadata.partition(TopicPartition(topic, partition))
    return None if known is None or known.leader < 0 else known.leader
