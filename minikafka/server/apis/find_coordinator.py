"""FindCoordinator (key 10): which broker coordinates a consumer group or a transactional id.

Behaviour (``KafkaApis.handleFindCoordinatorRequest``):
- a group: this broker. It does not coordinate groups yet; the group APIs are not advertised, so a client
  finds out at its next step, with an error that names what is missing.
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
from typing import Any

from minikafka.errors import ErrorCode
from minikafka.protocol.codec import Body, field
from minikafka.server.request_context import RequestContext
from minikafka.server.services import Services
from minikafka.types import NO_LEADER

logger = logging.getLogger(__name__)

KEY_TYPE_GROUP = 0
KEY_TYPE_TRANSACTION = 1
FIRST_VERSION_WITH_SEVERAL_KEYS = 4

NO_TRANSACTIONS = "This broker does not support transactions; use a producer without transactional.id."


def handle(services: Services, context: RequestContext, request: Any) -> Body:
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
    if key_type == KEY_TYPE_TRANSACTION:
        logger.warning("refused transactional producer: %s", NO_TRANSACTIONS, extra={"transactional_id": key})
        return _nobody(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_TRANSACTIONS)
    if key_type != KEY_TYPE_GROUP:
        return _nobody(ErrorCode.INVALID_REQUEST, f"There is no coordinator for keys of type {key_type}.")
    broker = services.metadata.broker(services.node_id)
    endpoint = None if broker is None else broker.endpoint(context.connection.listener_name)
    if endpoint is None:
        return _nobody(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "node_id": services.node_id,
        "host": endpoint.host,
        "port": endpoint.port,
    }


def _nobody(code: ErrorCode, message: str) -> dict[str, Any]:
    return {"error_code": code, "error_message": message, "node_id": NO_LEADER, "host": "", "port": -1}
