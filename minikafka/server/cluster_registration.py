"""How a broker takes its place in the store and keeps it: the cluster's id, its entry under ``/brokers/ids``.

Kafka: ``KafkaServer.getOrGenerateClusterId`` and ``KafkaZkClient.registerBroker``. The entry is ephemeral:
it goes with the broker's session, and its czxid is the broker epoch.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import random
from collections.abc import Awaitable, Callable

from minikafka.config.listeners import Listener
from minikafka.coordination import paths
from minikafka.coordination.store import (
    CoordinationStore,
    NodeExistsError,
    NoNodeError,
    SessionEvent,
    SessionState,
)
from minikafka.errors import StartError
from minikafka.server.metadata_cache import BrokerEndpoints

logger = logging.getLogger(__name__)


async def agree_on_cluster_id(
    store: CoordinationStore, *, configured: str | None, stored: str | None, rng: random.Random
) -> str:
    """The cluster's id: what the store says; in a new store what is configured, else what the log directories
    say, else a new one, which goes into the store.

    Raises:
        StartError: ``cluster.id`` is configured and the store belongs to another cluster.
    """
    wanted = configured or stored or _random_cluster_id(rng)
    await store.ensure_path(paths.CLUSTER_ID.rpartition("/")[0])
    try:
        await store.create(paths.CLUSTER_ID, paths.encode_cluster_id(wanted))
    except NodeExistsError:
        node = await store.get(paths.CLUSTER_ID)
        known = paths.decode_cluster_id(node.data)
        if configured is not None and known != configured:
            raise StartError(
                f"cluster.id is {configured}, but the coordination store belongs to cluster {known}"
            ) from None
        return known
    return wanted


def _random_cluster_id(rng: random.Random) -> str:
    """16 random bytes as Kafka prints a Uuid: base64url without padding."""
    return base64.urlsafe_b64encode(rng.getrandbits(128).to_bytes(16, "big")).rstrip(b"=").decode("ascii")


class RegistrationKeeper:
    """Registers the broker again when its session has expired: a process that was stopped for longer than the
    session, or a machine that slept. Kafka: ``KafkaServer``'s and ``KafkaController``'s session handlers.
    """

    def __init__(self, store: CoordinationStore, register: Callable[[], Awaitable[None]]) -> None:
        self._store = store
        self._register = register
        self._expired = asyncio.Event()
        store.add_session_listener(self._session_changed)

    def _session_changed(self, event: SessionEvent) -> None:
        if event.state is SessionState.EXPIRED:
            self._expired.set()

    async def run(self) -> None:
        """Until cancelled. A store that cannot be reached raises; the supervisor starts this again."""
        while True:
            await self._expired.wait()
            await self._store.start_session()
            await self._register()
            self._expired.clear()
            logger.warning("the coordination session had expired; the broker is registered again")


async def register_broker(
    store: CoordinationStore, broker: BrokerEndpoints, *, listeners: tuple[Listener, ...], now_ms: int
) -> None:
    """Write the broker's ephemeral entry. An earlier session's entry of the same broker is replaced: the
    lock on the log directories says that its process is gone.

    Raises:
        StartError: the entry belongs to a broker that is alive.
    """
    protocols = {listener.name: listener.protocol for listener in listeners}
    path = paths.broker_path(broker.node_id)
    registration = paths.BrokerRegistration(
        endpoints=tuple(
            paths.Endpoint(name, host, port, protocols[name])
            for name, (host, port) in broker.endpoints.items()
        ),
        timestamp_ms=now_ms,
        rack=broker.rack,
    )
    data = paths.encode_broker(registration)
    await store.ensure_path(paths.BROKER_IDS)
    for _ in range(2):
        try:
            await store.create(path, data, ephemeral=True)
        except NodeExistsError:
            try:
                await store.delete(path)
            except NoNodeError:
                continue
        else:
            return
    raise StartError(f"broker {broker.node_id} is registered by another live broker ({path})")
