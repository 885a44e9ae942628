"""Who the controller is: one ephemeral node, and an epoch that only the winner may raise.

Kafka: ``KafkaController.elect`` and ``KafkaZkClient.registerControllerAndIncrementControllerEpoch``. The node
and the epoch are written in one ``multi``, so the holder of ``/controller`` has also raised
``/controller_epoch``, and the version of that node is what guards all of its writes.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from minikafka.clock import Clock
from minikafka.coordination import paths
from minikafka.coordination.store import (
    BadVersionError,
    CoordinationStore,
    CreateOp,
    NodeExistsError,
    NodeStat,
    NoNodeError,
    SetOp,
    WatchEvent,
)
from minikafka.types import BrokerId

INITIAL_CONTROLLER_EPOCH = 0
"""``KafkaController.InitialControllerEpoch``: below that of the first controller."""


class Election(NamedTuple):
    """A won election."""

    controller_epoch: int
    epoch_version: int
    """Of ``/controller_epoch``, as this controller wrote it."""


async def elect(store: CoordinationStore, *, node_id: BrokerId, clock: Clock) -> Election:
    """Wait until this broker is the controller. Raises StoreError."""
    while True:
        moved = asyncio.Event()

        def changed(event: WatchEvent, moved: asyncio.Event = moved) -> None:
            moved.set()

        holder = await store.exists(paths.CONTROLLER, watch=changed)
        if holder is not None and holder.ephemeral_owner == store.session_id:
            await _give_up(store, holder)
            continue
        if holder is not None:
            await moved.wait()
            continue
        won = await _try(store, node_id=node_id, clock=clock)
        if won is not None:
            return won


async def _give_up(store: CoordinationStore, holder: NodeStat) -> None:
    """A node of our own session that no controller uses: its creation was written and the answer lost, or we
    stopped leading and could not delete it."""
    try:
        await store.delete(paths.CONTROLLER, holder.version)
    except (NoNodeError, BadVersionError):
        return


async def _try(store: CoordinationStore, *, node_id: BrokerId, clock: Clock) -> Election | None:
    """None: another broker was faster."""
    epoch, version = await _current_epoch(store)
    registration = paths.ControllerRegistration(node_id, clock.now_ms())
    try:
        results = await store.multi(
            [
                CreateOp(paths.CONTROLLER, paths.encode_controller(registration), ephemeral=True),
                SetOp(paths.CONTROLLER_EPOCH, paths.encode_controller_epoch(epoch + 1), version),
            ]
        )
    except (NodeExistsError, BadVersionError):
        return None
    stat = results[1]
    assert isinstance(stat, NodeStat)
    return Election(epoch + 1, stat.version)


async def _current_epoch(store: CoordinationStore) -> tuple[int, int]:
    """The epoch of the last controller, and the version of its node."""
    while True:
        try:
            node = await store.get(paths.CONTROLLER_EPOCH)
        except NoNodeError:
            try:
                data = paths.encode_controller_epoch(INITIAL_CONTROLLER_EPOCH)
                await store.create(paths.CONTROLLER_EPOCH, data)
            except NodeExistsError:
                continue
            return INITIAL_CONTROLLER_EPOCH, 0
        return paths.decode_controller_epoch(node.data), node.stat.version


async def current_controller(store: CoordinationStore) -> BrokerId | None:
    """The broker that is the controller now; None when there is none. Raises StoreError."""
    try:
        node = await store.get(paths.CONTROLLER)
    except NoNodeError:
        return None
    return paths.decode_controller(node.data).broker_id
