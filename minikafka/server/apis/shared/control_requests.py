"""What the requests of a controller have in common: whom they are meant for, and what refuses them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from minikafka.coordination.store import StoreError
from minikafka.errors import ErrorCode, KafkaError
from minikafka.server.services import Services

logger = logging.getLogger(__name__)


def check_broker_epoch(services: Services, broker_epoch: int, api: str, controller_id: int) -> int:
    """STALE_BROKER_EPOCH for a request to an earlier incarnation of this broker, else 0.

    A larger epoch is fine: the controller has seen a registration whose epoch this broker has not heard of
    yet (``KafkaApis.isBrokerEpochStale``).
    """
    if broker_epoch >= services.broker_epoch:
        return ErrorCode.NONE
    logger.info(
        "%s of controller %d is for broker epoch %d, this is %d",
        api,
        controller_id,
        broker_epoch,
        services.broker_epoch,
    )
    return ErrorCode.STALE_BROKER_EPOCH


class Refusal(msgspec.Struct):
    """Filled in by ``refused``."""

    error_code: int = 0


@contextmanager
def refused(api: str) -> Iterator[Refusal]:
    """An error of the whole request within becomes an error code, and is logged."""
    refusal = Refusal()
    try:
        yield refusal
    except KafkaError as error:
        logger.warning("%s refused: %s: %s", api, error.code.name, error.message)
        refusal.error_code = error.code
    except StoreError as error:
        logger.warning("%s failed: the coordination store: %s", api, error)
        refusal.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
