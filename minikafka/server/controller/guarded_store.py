"""The coordination store as an elected controller writes it: only for as long as it is the controller.

Kafka: the ``expectedControllerEpochZkVersion`` of ``KafkaZkClient``'s writes.

**The guard.** Each write is one ``multi`` that begins with a check of ``/controller_epoch``: it has the
version that this controller wrote when it was elected, or the whole write fails (I14). ``ControllerMoved``
says so. Reading needs no guard.

**Damage.** A node whose JSON cannot be read is complained about once, until it was read again.
"""

from __future__ import annotations

import logging

from minikafka.coordination import paths
from minikafka.coordination.store import (
    CheckOp,
    CoordinationStore,
    DeleteOp,
    Node,
    NoNodeError,
    Op,
    OpResult,
    StoreError,
    Watch,
)
from minikafka.errors import MinikafkaError

logger = logging.getLogger(__name__)


class ControllerMoved(MinikafkaError):
    """Another broker has been elected since: this one is the controller no more."""


class GuardedStore:
    """What the parts of a controller's store share."""

    def __init__(self, store: CoordinationStore, *, epoch_version: int) -> None:
        """``epoch_version``: of ``/controller_epoch``, as this controller wrote it."""
        self.reads = store
        """For reading, and for nothing else."""
        self._guard = CheckOp(paths.CONTROLLER_EPOCH, epoch_version)
        self._damaged: set[str] = set()

    # Reading

    async def node(self, path: str, *, watch: Watch) -> Node | None:
        """None when there is no such node. Either way ``watch`` hears of the next change."""
        while True:
            try:
                return await self.reads.get(path, watch=watch)
            except NoNodeError:
                if await self.reads.exists(path, watch=watch) is None:
                    return None

    def complain(self, error: paths.DamagedNodeError) -> None:
        """Once for each node, until it was read again."""
        if error.path not in self._damaged:
            self._damaged.add(error.path)
            logger.error(
                "%s; repair the node, or delete it: what it describes is left alone until then", error
            )

    def repaired(self, path: str) -> None:
        """The node can be read, or is gone."""
        self._damaged.discard(path)

    def is_damaged(self, path: str) -> bool:
        """Whether the node could not be read when it was read last."""
        return path in self._damaged

    # Writing

    async def multi(self, ops: list[Op]) -> list[OpResult]:
        """Write, as long as this is the controller.

        Raises:
            ControllerMoved: it is not.
            StoreError: what an operation raises, with its index behind the guard's 0.
        """
        try:
            results = await self.reads.multi([self._guard, *ops])
        except StoreError as error:
            if error.operation_index == 0:
                raise ControllerMoved("another controller has been elected") from error
            raise
        return results[1:]

    async def delete(self, path: str) -> None:
        """One that is gone already is fine. Raises ControllerMoved, StoreError."""
        try:
            await self.multi([DeleteOp(path)])
        except NoNodeError:
            return
