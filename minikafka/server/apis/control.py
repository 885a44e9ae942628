"""What the requests of a controller have in common: whom they are meant for, and what refuses them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from minikafka.coordination.store import StoreError
from minikafka.errors import ErrorCode, KafkaError
from minikafka.security.acl import AclOperation
from minikafka.server.apis.shared.authorization import denied_on_cluster
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services

logger = logging.getLogger(__name__)


def check_peer(services: Services, context: RequestContext | None) -> int:
    """CLUSTER_AUTHORIZATION_FAILED for who is no broker, that is, has not CLUSTER_ACTION, else 0 (KafkaApis
    of 3.9: ``authorizeClusterOperation``). ``context`` None: this broker's own controller."""
    if context is None:
        return ErrorCode.NONE
    error = denied_on_cluster(services, context, AclOperation.CLUSTER_ACTION)
    return ErrorCode.NONE if error is None else error.code


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
