"""What the handlers of requests to a coordinator have in common: a request goes to a shard, its answer comes
back.

What the handlers of the group APIs have in common.

What the handlers of the transaction APIs have in common.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

from minikafka.coordinator.group.shard import GroupShard
from minikafka.coordinator.transaction.shard import TransactionShard
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.connection import PendingResponse
from minikafka.protocol.wire.codec import Body
from minikafka.server.coordinator.hosted_shard import RequestTicket, TicketCall
from minikafka.server.requests.accounting import encode_answer
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services
from minikafka.steps import Steps


class GroupQuestion(NamedTuple):
    """What a request is to the group that it names; see ``ask_group``."""

    group_id: str
    call: TicketCall[GroupShard]
    body: MakeBody


def ask_group(
    services: Services,
    context: RequestContext,
    group_id: str,
    call: TicketCall[GroupShard],
    body: MakeBody,
) -> PendingResponse:
    """Have the shard of a group do ``call``; the response is ``body`` of what it answers, or of the
    KafkaError that it raised."""
    answer = CoordinatorAnswer(services, context, body)
    services.groups.ask(group_id, call, RequestTicket(answer.answer))
    return answer.pending


async def answer_of_group(services: Services, asked: GroupQuestion) -> Body:
    """The same for a handler that has awaited something: the response's body."""
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def answer(result: Any) -> None:
        if not answered.done():
            answered.set_result(result)

    services.groups.ask(asked.group_id, asked.call, RequestTicket(answer))
    body = asked.body(await answered)
    return (await services.scheduler.finished(body)) if isinstance(body, Generator) else body


def check_group_id(group_id: str) -> None:
    """Raises:
    KafkaError: INVALID_GROUP_ID: it is empty, where a group with members is meant.
    """
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "The group id is empty.")


def client_id(context: RequestContext) -> str:
    return context.header.client_id or ""


def client_host(context: RequestContext) -> str:
    """As Java prints an address without a name."""
    return f"/{context.connection.peer_host}"


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
    services.transactions.ask(transactional_id, call, RequestTicket(answer.answer))
    return answer.pending


def known_error(result: Any, *, knows_fenced: bool) -> ErrorCode:
    """The code of a result; versions that came before PRODUCER_FENCED (KIP-360) hear INVALID_PRODUCER_EPOCH,
    with which their clients do the same."""
    code = error_code(result)
    if code is ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


T = TypeVar("T")

MakeBody = Callable[[Any], Body | Steps[Body]]
"""A response of what a shard answered; in steps where a request may name many things."""


class CoordinatorAnswer:
    """The response to a request that a coordinator answers, now or later. None is written for a connection
    that is gone."""

    __slots__ = ("_body", "_context", "_metrics", "_scheduler", "pending")

    def __init__(self, services: Services, context: RequestContext, body: MakeBody) -> None:
        """``body`` makes the response of a result, which may be a KafkaError."""
        self.pending = PendingResponse()
        self._context = context
        self._metrics = services.request_metrics
        self._scheduler = services.scheduler
        self._body = body

    def answer(self, result: Any) -> None:
        if self.pending.is_waiting:
            self._scheduler.answer(self.pending, self._response(result))

    def _response(self, result: Any) -> Steps[tuple[bytes]]:
        body = self._body(result)
        if isinstance(body, Generator):
            body = yield from body
        return ((yield from encode_answer(self._metrics, self._context, body)),)


class AnswerCollector:
    """Several requests and one answer: ``then`` is called when all are answered, with the results in the
    order of the requests."""

    def __init__(self, count: int, then: Callable[[list[Any]], None]) -> None:
        self._results: list[Any] = [None] * count
        self._missing = count
        self._then = then
        if not count:
            then(self._results)

    def ticket(self, index: int) -> RequestTicket:
        def answered(result: Any) -> None:
            self._results[index] = result
            self._missing -= 1
            if not self._missing:
                self._then(self._results)

        return RequestTicket(answered)


def error_code(result: Any) -> ErrorCode:
    """Of a result that is a KafkaError, or has a code of its own, or none."""
    if isinstance(result, KafkaError):
        return result.code
    code: ErrorCode = getattr(result, "error", ErrorCode.NONE)
    return code


def outcome(read: Callable[[], T]) -> T | KafkaError:
    """What ``read`` returns, or the KafkaError that it raises."""
    try:
        return read()
    except KafkaError as error:
        return error
