"""Ids for idempotent and transactional producers, never the same one twice in the life of a cluster.

Kafka: ``ProducerIdManager`` (the ZooKeeper one), ``ProducerIdsBlock``, KIP-98. A broker claims a block of
1000 ids by a conditional write of ``/latest_producer_id_block`` and gives them out from memory. What is left
of a block when the broker stops is never used: ids are cheap, a repeated one would mix up two producers.

Invariants: an id is given out only after its block was written; a block starts after the end of every
earlier one.
"""

from __future__ import annotations

import asyncio

from minikafka.coordination import paths
from minikafka.coordination.store import (
    BadVersionError,
    CoordinationStore,
    NodeExistsError,
    NoNodeError,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.server.cluster.coordination_store import mapped_store_failures
from minikafka.types import BrokerId, ProducerId

BLOCK_SIZE = 1000
"""``ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE``."""

PRODUCER_ID_MAX = 2**63 - 1

CLAIM_ATTEMPTS_MAX = 100
"""Lost races before a claim gives up; every lost one means that another broker got its block."""


class ProducerIdManager:
    """Hands out producer ids of this broker's block, and claims the next block when it is used up."""

    def __init__(self, *, node_id: BrokerId, store: CoordinationStore) -> None:
        self._node_id = node_id
        self._store = store
        self._next = 0
        self._end = 0
        self._claiming = asyncio.Lock()

    def __repr__(self) -> str:
        return f"ProducerIdManager(node {self._node_id}, next={self._next}, left={self._end - self._next})"

    async def next(self) -> ProducerId:
        """A new producer id.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS while the store cannot be reached, which producers retry;
                UNKNOWN_SERVER_ERROR when all ids are used up.
        """
        while self._next == self._end:
            async with self._claiming:
                if self._next == self._end:  # no other producer claimed some while this one waited
                    self._next, self._end = await self.claim(self._node_id)
        producer_id = ProducerId(self._next)
        self._next += 1
        return producer_id

    async def claim(self, node_id: BrokerId) -> tuple[int, int]:
        """A new block for a broker: its first id, and the first after it. Raises KafkaError: as ``next``."""
        with mapped_store_failures(
            "claiming producer ids", unreachable=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        ):
            for _ in range(CLAIM_ATTEMPTS_MAX):
                try:
                    return await self._try_to_claim(node_id)
                except (BadVersionError, NodeExistsError, NoNodeError):
                    continue  # another broker was faster
        raise KafkaError(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "Other brokers claimed producer ids all the time."
        )

    async def _try_to_claim(self, node_id: BrokerId) -> tuple[int, int]:
        path = paths.PRODUCER_ID_BLOCK
        try:
            node = await self._store.get(path)
        except NoNodeError:
            block = paths.ProducerIdBlock(node_id, 0, BLOCK_SIZE - 1)
            await self._store.create(path, paths.encode_producer_id_block(block))
            return block.first, block.last + 1
        first = paths.decode_producer_id_block(node.data).last + 1 if node.data else 0
        if first > PRODUCER_ID_MAX - BLOCK_SIZE:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"All producer ids are used up at {first}.")
        block = paths.ProducerIdBlock(node_id, first, first + BLOCK_SIZE - 1)
        await self._store.set(path, paths.encode_producer_id_block(block), node.stat.version)
        return block.first, block.last + 1
