"""What a failing coordination store means to a client: mapped once, here.

A store that does not answer for a moment ends no start: it is asked again for as long as a session without
connection lives.

Kafka: ``KafkaZkClient.retryRequestUntilConnected``.

Many reads of the store at once, but not too many.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

from minikafka.clock import Clock
from minikafka.coordination.store import (
    ConnectionLossError,
    CoordinationStore,
    SessionExpiredError,
    StoreError,
    StoreUnusableError,
)
from minikafka.errors import ErrorCode, KafkaError

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


CONCURRENT_READS_MAX = 100
"""A task costs the loop 0.05 ms, and no other task gets a turn while they all start."""


async def gather_some(reads: Iterator[Coroutine[Any, Any, T]]) -> list[T]:
    """What ``reads`` return, in their order."""
    results: list[T] = []
    while some := list(islice(reads, CONCURRENT_READS_MAX)):
        results += await asyncio.gather(*some)
    return results


logger = logging.getLogger(__name__)


@contextmanager
def mapped_store_failures(
    what: str, *, unreachable: ErrorCode = ErrorCode.REQUEST_TIMED_OUT
) -> Iterator[None]:
    """A ``StoreError`` within becomes a ``KafkaError``; ``what`` names the work that failed.

    Raises:
        KafkaError: ``unreachable`` while the store cannot be reached (by default what Kafka answers while its
            controller cannot), UNKNOWN_SERVER_ERROR for anything else, which is logged; with its traceback
            unless the store says by itself that it is unusable.
    """
    try:
        yield
    except (ConnectionLossError, SessionExpiredError) as error:
        logger.warning("%s: the coordination store cannot be reached: %s", what, error)
        raise KafkaError(unreachable, f"{what}: the coordination store cannot be reached.") from error
    except StoreError as error:
        is_bug = not isinstance(error, StoreUnusableError)
        logger.error("%s: the coordination store failed: %s", what, error, exc_info=is_bug)
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: the coordination store failed: {error}"
        ) from error
