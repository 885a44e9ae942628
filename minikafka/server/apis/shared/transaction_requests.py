"""What the handlers of the transaction APIs have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minikafka.coordinator.transaction.shard import TransactionShard
from minikafka.errors import ErrorCode
from minikafka.network.connection import PendingResponse
from minikafka.protocol.wire.codec import Body
from minikafka.server.apis.shared.coordinator_requests import CoordinatorAnswer, ask_coordinator, error_code
from minikafka.server.coordinator.hosted_shard import TicketCall
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services


def ask_transaction(
    services: Services,
    context: RequestContext,
    transactional_id: str,
    call: TicketCall[TransactionShard],
    body: Callable[[Any], Body],
) -> PendingResponse:
    """Have the shard of a transactional id do ``call``; the response is ``body`` of what it answers, or of
    the KafkaError that it raised."""
    answer = CoordinatorAnswer(services, context, body)
    return ask_coordinator(services.transactions, transactional_id, call, answer)


def known_error(result: Any, *, knows_fenced: bool) -> ErrorCode:
    """The code of a result; versions that came before PRODUCER_FENCED (KIP-360) hear INVALID_PRODUCER_EPOCH,
    with which their clients do the same."""
    code = error_code(result)
    if code is ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
