"""A whole broker around a store and logs in a temporary directory, asked without a network.

The broker is the real one: it is elected controller of its own small cluster, and topics come into being by
way of the store. ``store`` is another client of the same store: what a test reads and writes there is what
other brokers and Kafka's tools would read and write.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from minikafka.clock import Clock
from minikafka.config.broker import BrokerConfig, broker_config
from minikafka.coordination.sqlite import SqliteStore
from minikafka.coordination.store import CoordinationStore
from minikafka.network.responses import PendingResponse, ResponseQueue
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.codec import (
    AnyBody,
    decode_response,
    encode_request,
    read_request_header,
)
from minikafka.security.acl import ANONYMOUS, KafkaPrincipal
from minikafka.server.apis import HANDLERS
from minikafka.server.broker import Broker
from minikafka.server.coordinator.hosted_shard import ShardState
from minikafka.server.requests import RequestContext
from minikafka.steps import finish
from minikafka.system_clock import SystemClock
from minikafka.types import BrokerId, Buffer
from tests.support.codec import decode_request, encode_response
from tests.unit.server.running import PATIENCE_MS, eventually, topics_of

NODE_ID = BrokerId(1)
PROPERTIES = {
    "node.id": str(NODE_ID),
    "listeners": "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0",
    "advertised.listeners": "PLAINTEXT://localhost:9092,INSIDE://10.0.0.1:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
    "broker.rack": "rack-a",
}


async def resolved(pending: PendingResponse) -> tuple[Buffer, ...]:
    """The response, when it is there. Raises TimeoutError: it never came."""
    changed = asyncio.Event()
    queue = ResponseQueue(changed=changed.set, abandoned=changed.set)
    queue.add(pending)
    if pending.is_waiting:
        async with asyncio.timeout(PATIENCE_MS / 1000):
            await changed.wait()
    assert queue.out, f"not answered: {pending!r}"
    return tuple(queue.out)


class Peer(SimpleNamespace):
    """A client's connection, as far as handlers look at it; unlike its base it can be a weak key."""

    __hash__ = object.__hash__


class MortalStore(SqliteStore):
    """A client that can go without a word, as that of a process that was killed."""

    async def die(self) -> None:
        """The session and its ephemeral nodes stay behind."""
        self._state = None
        await self.close()


class AdminBroker:
    """One broker that tests ask by way of its handlers; ``restarted`` makes the next one on its store and
    logs."""

    def __init__(self, store: SqliteStore, directory: Path, properties: Mapping[str, str]) -> None:
        self.store = store
        self.directory = directory
        self.clock = SystemClock()
        self.own_store: MortalStore | None = None
        self.muted_ms: list[int] = []
        """For how long each request that was throttled had its connection muted."""
        self.broker = Broker(
            broker_config({"log.dirs": str(directory), **PROPERTIES, **properties}),
            clock=self.clock,
            open_store=self._open_store,
        )

    async def _open_store(self, config: BrokerConfig, *, clock: Clock) -> CoordinationStore:
        self.own_store = await MortalStore.open(self.store.path, clock=clock, durable=False)
        return self.own_store

    async def start(self) -> AdminBroker:
        await self.broker.start()
        self.services = self.broker.services
        self.metadata = self.services.metadata
        self.configs = self.services.configs
        self.log_manager = self.services.log_manager
        self.replica_manager = self.services.replica_manager
        self.topics = topics_of(self.broker)
        return self

    async def stop(self) -> None:
        """A clean stop. Again: nothing."""
        await self.broker.stop()

    async def kill(self) -> None:
        """As if the process had died: nothing is flushed, no marker is written, the session lasts."""
        broker = cast(Any, self.broker)
        broker._membership = None
        await broker._supervisor.stop()
        broker._log_manager.directories.release()
        broker._log_manager = None
        assert self.own_store is not None
        await self.own_store.die()
        await self.broker.stop()

    async def until(self, condition: Any, what: str) -> None:
        """``condition`` is looked at whenever the controller has told the broker something."""
        assert await self.metadata.wait_for(condition, timeout_ms=PATIENCE_MS), f"never happened: {what}"

    async def ask(
        self,
        key: ApiKey,
        version: int,
        body: AnyBody,
        *,
        listener: str = "PLAINTEXT",
        principal: KafkaPrincipal = ANONYMOUS,
    ) -> Any:
        """One request through the codec and its handler, and the answer back through the codec."""
        frame = encode_request(
            api_key=key, api_version=version, correlation_id=7, client_id="test", body=body
        )[4:]
        header = read_request_header(frame)
        connection = Peer(
            listener_name=listener,
            principal=principal,
            client_software_name="tests",
            client_software_version="1",
            peer_host="10.0.0.9",
            peer_port=54_321,
            answer_bytes_max=1 << 30,
            mute=self.muted_ms.append,
            closed={},
            is_closing=False,
        )
        context = RequestContext(cast(Any, connection), header)
        answer = HANDLERS[key](self.services, context, decode_request(header, frame))
        if inspect.isgenerator(answer):
            answer = finish(answer)
        if isinstance(answer, PendingResponse):
            answer = await resolved(answer)
        elif inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, tuple | list):
            response = b"".join(answer)
        else:
            response = encode_response(api_key=key, api_version=version, correlation_id=7, body=answer)
        correlation_id, entity = decode_response(api_key=key, api_version=version, frame=response[4:])
        assert correlation_id == 7
        return entity

    async def restarted(self, **properties: str) -> AdminBroker:
        return await AdminBroker(self.store, self.directory, properties).start()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    path = str(tmp_path / "store.sqlite")
    opened = await SqliteStore.open(path, clock=SystemClock(), durable=False)
    yield opened
    await opened.close()


@asynccontextmanager
async def transacting(store: SqliteStore, directory: Path, **properties: str) -> AsyncIterator[AdminBroker]:
    """A broker that coordinates transactions, in one partition, and has a topic to write to: a new one, or
    the next on the same store and logs."""
    settings = {
        "transaction.state.log.num.partitions": "1",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
    }
    broker = await AdminBroker(store, directory / "logs", settings | properties).start()
    try:
        if broker.metadata.topic("orders") is None:
            await broker.topics.create_topic("orders", partitions=2)
            await broker.ask(ApiKey.FIND_COORDINATOR, 6, {"key_type": 1, "coordinator_keys": ["t"]})

        async def loaded() -> bool:
            shards = broker.services.transactions.hosted_shards()
            return [shard.state for shard in shards] == [ShardState.ACTIVE]

        await eventually(loaded, "the transactions are loaded")
        yield broker
    finally:
        await broker.stop()


@pytest.fixture
async def transacting_broker(store: SqliteStore, tmp_path: Path) -> AsyncIterator[AdminBroker]:
    async with transacting(store, tmp_path) as broker:
        yield broker


@pytest.fixture
async def admin_broker(store: SqliteStore, tmp_path: Path) -> AsyncIterator[AdminBroker]:
    """A broker with the default configuration and no topics."""
    broker = await AdminBroker(store, tmp_path / "logs", {}).start()
    yield broker
    await broker.stop()
