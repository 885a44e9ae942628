"""A store that does not answer for a moment ends no start: it is asked again for as long as a session without
connection lives.

Kafka: ``KafkaZkClient.retryRequestUntilConnected``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from minikafka.clock import Clock
from minikafka.coordination.store import ConnectionLossError, CoordinationStore

logger = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_PAUSE_MS = 500


class StorePatience:
    """For one start."""

    def __init__(self, store: CoordinationStore, clock: Clock) -> None:
        self._patience_ms = store.session_timeout_ms
        self._clock = clock

    def __repr__(self) -> str:
        return f"StorePatience({self._patience_ms} ms)"

    async def until_connected(self, what: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do ``work``, from its beginning whenever the connection is lost: it must bear to be done twice.

        Raises:
            ConnectionLossError: the store was away for longer than a session lives. Whatever ``work`` raises.
        """
        patient_until_ms = self._clock.monotonic_ms() + self._patience_ms
        while True:
            try:
                return await work()
            except ConnectionLossError as error:
                if self._clock.monotonic_ms() >= patient_until_ms:
                    raise
                logger.warning("%s waits for the coordination store: %s", what, error)
                await asyncio.sleep(RETRY_PAUSE_MS / 1000)
