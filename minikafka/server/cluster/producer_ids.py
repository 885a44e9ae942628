"""Ids for idempotent and transactional producers, never the same one twice in the life of a cluster.

Kafka: ``RPCProducerIdManager`` (KIP-730), and on the controller ``ZkProducerIdManager``;
``ProducerIdsBlock``, KIP-98. The controller claims a block of 1000 ids by a conditional write of
``/latest_producer_id_block``; the broker that asked gives them out from memory. What is left of a block when
that broker stops is never used: ids are cheap, a repeated one would mix up two producers.

Invariants: an id is given out only after its block was written; a block starts after the end of every
earlier one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from minikafka.coordination import paths
from minikafka.coordination.store import (
    BadVersionError,
    CoordinationStore,
    NodeExistsError,
    NoNodeError,
)
from minikafka.errors import ErrorCode, KafkaError, PeerProtocolError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.server.cluster.broker_connection import ControllerConnection, OlderController
from minikafka.server.cluster.coordination_store import mapped_store_failures
from minikafka.types import BrokerId, ProducerId

logger = logging.getLogger(__name__)

BLOCK_SIZE = 1000
"""``ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE``."""

PRODUCER_ID_MAX = 2**63 - 1

CLAIM_ATTEMPTS_MAX = 100
"""Lost races before a claim gives up; every lost one means that another broker got its block."""


AskForBlock = Callable[[], Awaitable[tuple[int, int] | None]]
"""For a block: its first id, and the first after it. Raises KafkaError: COORDINATOR_LOAD_IN_PROGRESS."""


class ProducerIdManager:
    """Hands out producer ids of this broker's block, and gets the next block when it is used up."""

    def __init__(self, *, node_id: BrokerId, store: CoordinationStore) -> None:
        self._node_id = node_id
        self._store = store
        self.ask_controller: AskForBlock | None = None
        """Set when there may be other brokers; returns None when this broker is to claim a block itself."""
        self._next = 0
        self._end = 0
        self._claiming = asyncio.Lock()

    def __repr__(self) -> str:
        return f"ProducerIdManager(node {self._node_id}, next={self._next}, left={self._end - self._next})"

    async def next(self) -> ProducerId:
        """A new producer id.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS while the controller or the store cannot be reached,
                which producers retry; UNKNOWN_SERVER_ERROR when all ids are used up.
        """
        while self._next == self._end:
            async with self._claiming:
                if self._next == self._end:  # no other producer claimed some while this one waited
                    asked = None if self.ask_controller is None else await self.ask_controller()
                    self._next, self._end = asked or await self.claim(self._node_id)
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


async def ask_for_block(
    controller: ControllerConnection, *, node_id: BrokerId, broker_epoch: int
) -> tuple[int, int] | None:
    """AllocateProducerIds. None: the controller is of 0.2.0, where each broker claims its own.

    Raises:
        KafkaError: COORDINATOR_LOAD_IN_PROGRESS: no controller answers, or none that has a block.
    """
    try:
        answer = await controller.request(
            ApiKey.ALLOCATE_PRODUCER_IDS, {"broker_id": node_id, "broker_epoch": broker_epoch}
        )
    except OlderController:
        return None
    except (BrokerUnavailable, PeerProtocolError, KafkaError) as error:
        why = str(error)
    else:
        if not answer.error_code:
            return answer.producer_id_start, answer.producer_id_start + answer.producer_id_len
        why = f"the controller answers {ErrorCode(answer.error_code).name}"
    logger.warning("no producer ids from the controller: %s", why)
    raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"No producer ids from the controller: {why}")
