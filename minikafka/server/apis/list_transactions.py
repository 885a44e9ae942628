"""ListTransactions (key 66): the transactional ids that this broker coordinates (KIP-664).

Behaviour (``TransactionStateManager.listTransactionStates``): when one of its partitions is being loaded the
whole answer is COORDINATOR_LOAD_IN_PROGRESS, because some would be missing. Ids without DESCRIBE are left
out. Names of states that there are not match nothing, and are told back. A pattern that is none is
INVALID_REGULAR_EXPRESSION.

Versions: 1 transactions that have been going on for long (KIP-994); 2 a pattern of transactional ids
(KIP-1152).
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any

from minikafka.coordinator.transaction.messages import ListTransactions
from minikafka.coordinator.transaction.shard import unknown_states
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body, field
from minikafka.regex import compile_regex
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import permission
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services
from minikafka.steps import Steps, finish

NO_DURATION = -1


def handle(services: Services, context: RequestContext, request: Any) -> Body | Coroutine[Any, Any, Body]:
    wanted = ListTransactions(
        states=tuple(request.state_filters),
        producer_ids=tuple(request.producer_id_filters),
        duration_ms=field(request, "duration_filter", NO_DURATION),
        transactional_id_pattern=field(request, "transactional_id_pattern", None) or "",
    )
    if wanted.transactional_id_pattern:
        return _by_pattern(services, context, wanted)
    return finish(_listed(services, context, wanted))


async def _by_pattern(services: Services, context: RequestContext, wanted: ListTransactions) -> Body:
    """Compile the pattern in a thread and match it in slices."""
    compiled = partial(compile_regex, wanted.transactional_id_pattern, name="TransactionalIdPattern")
    try:
        await services.scheduler.finished(services.scheduler.apart(compiled))
    except KafkaError as error:
        return _body(error.code, [], [])
    return await services.scheduler.finished(_listed(services, context, wanted))


def _listed(services: Services, context: RequestContext, wanted: ListTransactions) -> Steps[Body]:
    now_ms = services.clock.now_ms()
    listed = []
    try:
        for shard in services.transactions.shards():
            listed += shard.list_transactions(wanted, now_ms)
            yield
    except KafkaError as error:
        return _body(error.code, [], [])
    describable = permission(services, context, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
    states = []
    for each in listed:
        if describable is None or describable[each.transactional_id]:
            states.append(
                {
                    "transactional_id": each.transactional_id,
                    "producer_id": each.producer_id,
                    "transaction_state": each.state,
                }
            )
        yield
    return _body(ErrorCode.NONE, list(unknown_states(wanted.states)), states)


def _body(code: ErrorCode, unknown: list[str], states: list[dict[str, Any]]) -> Body:
    return {
        "throttle_time": 0,
        "error_code": code,
        "unknown_state_filters": unknown,
        "transaction_states": states,
    }
