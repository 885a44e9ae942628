"""How a broker takes its place in the store and keeps it: the cluster's id, its entry under ``/brokers/ids``.

Kafka: ``KafkaServer.getOrGenerateClusterId`` and ``KafkaZkClient.registerBroker``. The entry is ephemeral:
it goes with the broker's session, and its czxid is the broker epoch.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import random

from minikafka.coordination import paths
from minikafka.coordination.store import (
    BadVersionError,
    CoordinationStore,
    CreateOp,
    DeleteOp,
    NodeExistsError,
    NoNodeError,
    Op,
    SetOp,
)
from minikafka.errors import StartError
from minikafka.types import BrokerId

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


REGISTRATION_RETRY_MS = 500
"""How often a broker looks whether the entry in its place has gone."""


async def register_broker(
    store: CoordinationStore, node_id: BrokerId, registration: paths.BrokerRegistration, *, patience_ms: int
) -> int:
    """Write the broker's ephemeral entry. Returns the broker epoch.

    What an earlier process of this broker left is replaced at once, the controllership too: it named the log
    directories that are locked by this process now, so it is gone, although its session may last for a while.
    An entry of anybody else is given ``patience_ms`` to go.

    ``/brokers/ids`` is written too, so that its version rises with each registration: see ``isr_manager``.

    Raises:
        StartError: the entry belongs to a broker that is alive. StoreError: the store's.
    """
    path, data = paths.broker_path(node_id), paths.encode_broker(registration)
    waited_ms = 0
    while True:
        try:
            await store.multi(_registration(path, data))
        except NodeExistsError:
            is_registered = await _replace(store, node_id, data, registration.directory_ids)
        else:
            is_registered = True
        if is_registered:
            stat = await store.exists(path)
            if stat is not None and stat.ephemeral_owner == store.session_id:
                return stat.czxid
        if waited_ms >= patience_ms:
            raise StartError(
                f"broker id {node_id} is taken: {await _holder(store, path)} is registered with it ({path}); "
                f"give this broker another node.id, or stop that one"
            )
        if waited_ms == 0:
            logger.warning("%s is registered by another session; waiting for that to end", path)
        await asyncio.sleep(REGISTRATION_RETRY_MS / 1000)
        waited_ms += REGISTRATION_RETRY_MS


def _registration(path: str, data: bytes) -> list[Op]:
    return [CreateOp(path, data, ephemeral=True), SetOp(paths.BROKER_IDS, b"")]


async def _replace(
    store: CoordinationStore, node_id: BrokerId, data: bytes, directory_ids: tuple[str, ...]
) -> bool:
    """Put ``data`` in the place of an entry of our own, in one write. False: it is not ours, or gone."""
    path = paths.broker_path(node_id)
    try:
        node = await store.get(path)
        earlier = paths.decode_broker(node_id, node.data)
    except (NoNodeError, paths.DamagedNodeError):
        return False
    owner = node.stat.ephemeral_owner
    if owner != store.session_id and not set(earlier.directory_ids) & set(directory_ids):
        return False
    ops: list[Op] = [DeleteOp(path, node.stat.version), *_registration(path, data)]
    controller = await store.exists(paths.CONTROLLER)
    if controller is not None and controller.ephemeral_owner == owner != store.session_id:
        ops.append(DeleteOp(paths.CONTROLLER, controller.version))
    try:
        await store.multi(ops)
    except (NoNodeError, BadVersionError, NodeExistsError):
        return False
    return True


async def _holder(store: CoordinationStore, path: str) -> str:
    try:
        registration = paths.decode_broker(0, (await store.get(path)).data)
    except (NoNodeError, paths.DamagedNodeError):
        return "another broker"
    return "a broker at " + ", ".join(str(endpoint) for endpoint in registration.endpoints)
