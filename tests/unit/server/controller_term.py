"""A controller of its own, for tests of what it reads and writes; and another client of the same store."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

from minikafka.controller.events import Event
from minikafka.coordination import paths
from minikafka.coordination.sqlite import SqliteStore
from minikafka.server.cluster.registration import elect
from minikafka.server.controller.store import ControllerStore
from minikafka.types import BrokerId, LeaderEpoch, PartitionState, ReplicaAssignment, TopicPartition
from tests.unit.server.virtual_store import open_store
from tests.unit.server.virtual_time import LoopClock, passing

ONE, TWO = BrokerId(1), BrokerId(2)
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
ID = UUID(int=7)


def state(leader_epoch: int = 0, *isr: BrokerId) -> PartitionState:
    return PartitionState(ONE, LeaderEpoch(leader_epoch), isr or (ONE,), 1)


class ControllerTerm:
    """A controller's store, the client that it uses, and one that another client uses."""

    def __init__(self, ours: SqliteStore, theirs: SqliteStore, epoch_version: int) -> None:
        self.events: list[Event] = []
        self.ours = ours
        self.theirs = theirs
        self.store = ControllerStore(
            ours, epoch_version=epoch_version, rng=random.Random(1), notify=self.events.append
        )

    async def put_topic(self, name: str, *, partitions: int = 2, topic_id: UUID | None = ID) -> None:
        assignment = {number: ReplicaAssignment((ONE, TWO)) for number in range(partitions)}
        data = paths.encode_topic(paths.TopicAssignment(topic_id, assignment))
        path = paths.topic_path(name)
        if await self.theirs.exists(path) is None:
            await self.theirs.create(path, data)
        else:
            await self.theirs.set(path, data)

    async def put_state(self, at: TopicPartition, data: bytes | None = None) -> int:
        path = paths.partition_state_path(*at)
        await self.theirs.ensure_path(path)
        return (await self.theirs.set(path, data or paths.encode_partition_state(state()))).version

    async def register(self, node_id: BrokerId, data: bytes | None = None) -> None:
        endpoint = paths.Endpoint("PLAINTEXT", "localhost", 9090 + node_id)
        entry = paths.BrokerRegistration(endpoints=(endpoint,), timestamp_ms=0, rack="r")
        await self.theirs.create(
            paths.broker_path(node_id), data or paths.encode_broker(entry), ephemeral=True
        )

    async def heard(self) -> list[Event]:
        """What the watches have told since the last time."""
        await passing(500)
        heard, self.events[:] = list(self.events), []
        return heard


@asynccontextmanager
async def controller_term(directory: Path) -> AsyncIterator[ControllerTerm]:
    ours, theirs = [await open_store(directory) for _ in range(2)]
    for path in paths.PERSISTENT_PATHS:
        await ours.ensure_path(path)
    won = await elect(ours, node_id=ONE, clock=LoopClock())
    yield ControllerTerm(ours, theirs, won.epoch_version)
    for store in (ours, theirs):
        await store.close()
