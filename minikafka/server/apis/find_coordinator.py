"""FindCoordinator (key 10): which broker coordinates a consumer group or a transactional id.

Behaviour (``KafkaApis.handleFindCoordinatorRequest``, ``getCoordinator``):
- a group: the broker that leads the group's partition of ``__consumer_offsets``; COORDINATOR_NOT_AVAILABLE
  while nobody does, or for a listener that the broker does not have. The first question makes the topic and
  waits for it (``server.coordinator_topic``).
- a transactional id: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, because transactions are not there yet. It is
  the one code at which every stock producer gives up at once instead of asking again until a timeout:
  librdkafka's ``rd_kafka_txn_handle_FindCoordinator`` retries for ever at any other (and shows the message
  that comes with it); Java's ``FindCoordinatorHandler``, aiokafka's ``_find_coordinator`` and kafka-python's
  transaction manager treat it as fatal. The message says what is really the matter, and so does a line in
  the broker's log.
- a share group (version 6) and any other kind of key: INVALID_REQUEST.

Versions: 1 key types and error messages; 3 flexible; 4 several keys at once (KIP-699); 5
TRANSACTION_ABORTABLE, which is never answered here; 6 share groups (KIP-932).
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import Any

from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.codec import Body, field
from minikafka.server.error_fields import error_fields
from minikafka.server.request_context import RequestContext
from minikafka.server.services import Services
from minikafka.types import NO_LEADER

logger = logging.getLogger(__name__)

KEY_TYPE_GROUP = 0
KEY_TYPE_TRANSACTION = 1
FIRST_VERSION_WITH_SEVERAL_KEYS = 4

NO_TRANSACTIONS = "This broker does not support transactions; use a producer without transactional.id."


def handle(services: Services, context: RequestContext, request: Any) -> Body | Coroutine[Any, Any, Body]:
    if field(request, "key_type", KEY_TYPE_GROUP) == KEY_TYPE_GROUP and not services.groups.topic.is_there:
        return _create_topic_first(services, context, request)
    return _answer(services, context, request)


async def _create_topic_first(services: Services, context: RequestContext, request: Any) -> Body:
    await services.groups.topic.create()
    return _answer(services, context, request)


def _answer(services: Services, context: RequestContext, request: Any) -> Body:
    key_type = field(request, "key_type", KEY_TYPE_GROUP)
    if context.api_version < FIRST_VERSION_WITH_SEVERAL_KEYS:
        return {"throttle_time": 0} | _coordinator(services, context, request.key, key_type)
    return {
        "throttle_time": 0,
        "coordinators": [
            {"key": key} | _coordinator(services, context, key, key_type) for key in request.coordinator_keys
        ],
    }


def _coordinator(services: Services, context: RequestContext, key: str, key_type: int) -> dict[str, Any]:
    try:
        if key_type == KEY_TYPE_TRANSACTION:
            logger.warning(
                "refused transactional producer: %s", NO_TRANSACTIONS, extra={"transactional_id": key}
            )
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_TRANSACTIONS)
        if key_type != KEY_TYPE_GROUP:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"There is no coordinator for keys of type {key_type}."
            )
        broker = services.groups.topic.coordinator(key)
        endpoint = broker.endpoint(context.connection.listener_name)
        if endpoint is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")
    except KafkaError as error:
        return {**error_fields(error), "node_id": NO_LEADER, "host": "", "port": -1}
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "node_id": broker.node_id,
        "host": endpoint.host,
        "port": endpoint.port,
    }
