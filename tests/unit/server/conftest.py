"""A broker's services around a store in memory and real logs in a temporary directory, without network."""

from __future__ import annotations

import importlib
import inspect
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from minikafka.clock import ManualClock
from minikafka.config.broker import BrokerConfig, broker_config
from minikafka.coordination.sqlite import SqliteStore
from minikafka.coordination.store import CoordinationStore
from minikafka.files import OsFiles
from minikafka.log.log_manager import LogManager
from minikafka.protocol.api_versions import ApiKey
from minikafka.protocol.codec import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    read_request_header,
)
from minikafka.purgatory.purgatory import DelayedOperationPurgatory
from minikafka.purgatory.timer import Timer
from minikafka.server.config_service import ConfigService
from minikafka.server.disk_chores import DiskChores
from minikafka.server.log_io import LogIo
from minikafka.server.metadata_cache import BrokerEndpoints, Endpoint, MetadataCache
from minikafka.server.producer_ids import ProducerIdManager
from minikafka.server.replica_manager import ReplicaManager
from minikafka.server.request_context import RequestContext
from minikafka.server.services import Services
from minikafka.server.topic_service import TopicService
from minikafka.types import BrokerId

NODE_ID = BrokerId(1)
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"


class AdminBroker:
    """The metadata and admin side of one broker; ``restarted`` makes the next one on its store and logs."""

    def __init__(self, store: CoordinationStore, directory: Path, properties: Mapping[str, str]) -> None:
        self.store = store
        self.directory = directory
        self.clock = ManualClock()
        self.config: BrokerConfig = broker_config({"log.dirs": str(directory), **properties})
        self.metadata = MetadataCache(controller_id=NODE_ID)
        self.configs = ConfigService(
            node_id=NODE_ID, static_config=self.config, store=store, metadata=self.metadata
        )
        self.log_io = LogIo()
        self.producer_ids = ProducerIdManager(node_id=NODE_ID, store=store)

    async def start(self) -> AdminBroker:
        await self.configs.load()
        self.log_manager = LogManager(
            self.config.log_dirs,
            default_config=self.configs.topic_config(""),
            topic_config=self.configs.topic_config,
            files=OsFiles(),
            clock=self.clock,
            rng=random.Random(1),
            cluster_id=CLUSTER_ID,
            broker_id=NODE_ID,
        )
        self.replica_manager = ReplicaManager(
            node_id=NODE_ID,
            log_manager=self.log_manager,
            fetch_purgatory=DelayedOperationPurgatory("Fetch", Timer(self.clock)),
            chores=DiskChores(),
        )
        self.topics = TopicService(
            node_id=NODE_ID,
            store=self.store,
            metadata=self.metadata,
            configs=self.configs,
            replica_manager=self.replica_manager,
            rng=random.Random(2),
        )
        await self.topics.read()
        self.log_manager.load(is_stray=self.topics.is_stray)
        self.configs.subscribe_topics(self.replica_manager.update_topic_config)
        self.metadata.put_broker(
            BrokerEndpoints(
                node_id=NODE_ID,
                rack="rack-a",
                endpoints={"PLAINTEXT": Endpoint("localhost", 9092), "INSIDE": Endpoint("10.0.0.1", 9093)},
            )
        )
        await self.topics.load()
        parts = {
            "config": self.configs.broker_config,
            "clock": self.clock,
            "node_id": NODE_ID,
            "cluster_id": CLUSTER_ID,
            "store": self.store,
            "log_manager": self.log_manager,
            "log_io": self.log_io,
            "replica_manager": self.replica_manager,
            "metadata": self.metadata,
            "topics": self.topics,
            "configs": self.configs,
            "producer_ids": self.producer_ids,
        }
        # The parts of the request road are none of these handlers' business: touching one fails.
        self.services = Services(**{each.name: parts.get(each.name) for each in fields(Services)})  # type: ignore[arg-type]
        self.configs.subscribe_broker(lambda config: setattr(self.services, "config", config))
        return self

    def stop(self) -> None:
        """A clean stop of the logs; the store stays open, it belongs to the test."""
        self.log_manager.shutdown()
        self.log_io.close()

    def kill(self) -> None:
        """As if the process had died: nothing is flushed, no marker is written."""
        self.log_manager.directories.release()
        self.log_io.close()

    async def ask(
        self, key: ApiKey, version: int, body: Mapping[str, Any], *, listener: str = "PLAINTEXT"
    ) -> Any:
        """One request through the codec and its handler, and the answer back through the codec."""
        frame = encode_request(
            api_key=key, api_version=version, correlation_id=7, client_id="test", body=body
        )[4:]
        header = read_request_header(frame)
        connection = SimpleNamespace(listener_name=listener)
        context = RequestContext(cast(Any, connection), header)
        handler = importlib.import_module(f"minikafka.server.apis.{key.name.lower()}").handle
        answer = handler(self.services, context, decode_request(header, frame))
        if inspect.isawaitable(answer):
            answer = await answer
        response = encode_response(api_key=key, api_version=version, correlation_id=7, body=answer)
        correlation_id, entity = decode_response(api_key=key, api_version=version, frame=response[4:])
        assert correlation_id == 7
        return entity

    async def restarted(self, **properties: str) -> AdminBroker:
        return await AdminBroker(self.store, self.directory, properties).start()


@pytest.fixture
async def store() -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(":memory:", clock=ManualClock(), background=False, durable=False)
    yield opened
    await opened.close()


@pytest.fixture
async def admin_broker(store: SqliteStore, tmp_path: Path) -> AsyncIterator[AdminBroker]:
    """A broker with the default configuration and no topics."""
    broker = await AdminBroker(store, tmp_path / "logs", {}).start()
    yield broker
    broker.stop()
