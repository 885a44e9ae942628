"""DeleteGroups (key 42): groups without members go, and their offsets with them (KIP-229).

Behaviour (``GroupCoordinatorService.deleteGroups``): each group has its own error (GROUP_ID_NOT_FOUND,
NON_EMPTY_GROUP, NOT_COORDINATOR, GROUP_AUTHORIZATION_FAILED without DELETE, …); the answer leaves when all of
them are settled. The group id may be empty, as in Kafka.

Versions: 1 as 0; 2 flexible; 3 an error has a message.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.connection import Result
from minikafka.protocol.wire.codec import Body
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import permission
from minikafka.server.apis.shared.coordinator_requests import AnswerCollector, CoordinatorAnswer
from minikafka.server.requests.context import RequestContext
from minikafka.server.runtime.error_fields import NO_ERROR, error_fields
from minikafka.server.services import Services
from minikafka.steps import Steps


def handle(services: Services, context: RequestContext, request: Any) -> Steps[Result]:
    group_ids = list(dict.fromkeys(request.groups_names))

    def body(results: list[Any]) -> Steps[Body]:
        answers = []
        for group_id, result in zip(group_ids, results, strict=True):
            error = error_fields(result) if isinstance(result, KafkaError) else NO_ERROR
            answers.append({"group_id": group_id, **error})
            yield
        return {"throttle_time": 0, "results": answers}

    answer = CoordinatorAnswer(services, context, body)
    deletable = permission(services, context, AclOperation.DELETE, ResourceType.GROUP)
    collector = AnswerCollector(len(group_ids), answer.answer)
    for index, group_id in enumerate(group_ids):
        ticket = collector.ticket(index)
        if deletable is not None and not deletable[group_id]:
            ticket.answer(KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."))
        else:
            services.groups.ask(group_id, partial(_delete, group_id), ticket)
        yield
    return answer.pending


def _delete(group_id: str, shard: Any, ticket: Any, now_ms: int) -> Any:
    return shard.delete_group(group_id, ticket, now_ms)
