"""What a failing coordination store means to a client: mapped once, here."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from minikafka.coordination.store import (
    ConnectionLossError,
    SessionExpiredError,
    StoreError,
    StoreUnusableError,
)
from minikafka.errors import ErrorCode, KafkaError

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
