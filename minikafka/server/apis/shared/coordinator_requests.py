"""Requests to a coordinator: they go to a shard, whose answer comes back; of groups and of transactions.

**Regular expressions** of KIP-848 groups are matched and authorized before the group's turn, in slices.
Kafka: ``TopicRegexResolver``, in another thread. A group takes its turn in one go; what is done here it then
finds remembered. Topics and rules may change meanwhile: the group sees the names that are new, and decisions
are taken again where the rules have changed.

**Groups with heartbeats**: of KIP-848, share groups (KIP-932) and streams groups (KIP-1071). Kafka: the
halves of ``KafkaApis`` and ``GroupCoordinatorService`` that are alike for them. Members say by a heartbeat
what they are, and hear by its answer what is theirs; groups are described with what their members have, those
of the first two kinds by the names of topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any, TypeVar

from minikafka.coordinator.group.consumer.membership import (
    Matches,
    check_regex,
    remember,
    resolve_regex_in_steps,
)
from minikafka.coordinator.group.messages import (
    DescribedModernGroup,
    DescribedModernMember,
    ModernGroupHeartbeatResult,
)
from minikafka.coordinator.group.shard import GroupShard
from minikafka.coordinator.transaction.shard import TransactionShard
from minikafka.errors import ErrorCode, KafkaError
from minikafka.named_tuple import NamedTuple
from minikafka.network.connection import PendingResponse
from minikafka.protocol.internal.group_records import TopicPartitions
from minikafka.protocol.wire.codec import Body
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import (
    NOT_ASKED,
    Permission,
    authorized_operations,
    denied,
    permission,
    require,
)
from minikafka.server.cluster.metadata_cache import MetadataCache
from minikafka.server.coordinator.hosted_shard import RequestTicket, TicketCall
from minikafka.server.requests import NO_ERROR, RequestContext, encode_answer, error_fields
from minikafka.server.services import Services
from minikafka.steps import Steps, each
from minikafka.types import Buffer

T = TypeVar("T")
Described = TypeVar("Described", bound=DescribedModernGroup)

MakeBody = Callable[[Any], Body | Steps[Body]]
"""A response of what a shard answered; in steps where a request may name many things."""

DECISIONS_A_STEP = 16
"""Authorized between two looks at the clock."""
DECIDED_AGAIN_MAX = 4
"""How often names are gone through while the rules change meanwhile."""
LOOKS_MAX = 2
"""How often it is looked which expressions are due: others may be after the first ones are matched. All of
them fit into what is remembered."""

MEMBERS_A_STEP = 16
"""At 10 to 20 µs each."""
TOPICS_DENIED = "The group has described topic(s) that the client is not authorized to describe."


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

    def _response(self, result: Any) -> Steps[list[Buffer]]:
        body = self._body(result)
        if isinstance(body, Generator):
            body = yield from body
        return (yield from encode_answer(self._metrics, self._context, body))


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


def describable_topics(services: Services, context: RequestContext) -> Permission | None:
    """Whether the client may describe topics, which are decided as they are looked up; None: all."""
    return permission(services, context, AclOperation.DESCRIBE, ResourceType.TOPIC, logs_denied=False)


def regexes_due(services: Services, group_id: str) -> list[str]:
    """Those that the group's next heartbeat looks at, beside one that it brings."""
    return services.groups.regexes_due(group_id, has_rules=services.authorizer is not None)


async def matched_and_decided(
    services: Services, context: RequestContext, group_id: str, regex: str | None = None
) -> Permission | None:
    """Match ``regex`` and what is due, and decide which of these topics the client may describe. The group is
    to be asked next, before anything else happens."""
    found: dict[str, Matches] = {}
    wanted = [] if regex is None else [regex]
    for _ in range(LOOKS_MAX):
        wanted += regexes_due(services, group_id)
        for each_regex in wanted:
            if each_regex not in found:
                await _match(services, each_regex, found)
        wanted = []
    names = dict.fromkeys(name for matches in found.values() for name in matches.matched)
    describable = await _decided(services, context, names)
    for matches in found.values():
        remember(matches)  # again: many other groups may have been here meanwhile
    return describable


async def _match(services: Services, regex: str, found: dict[str, Matches]) -> None:
    try:
        await services.scheduler.finished(services.scheduler.apart(partial(check_regex, regex)))
    except KafkaError:
        return  # the group says so, unless something else is wrong first
    names = services.metadata.topic_names()
    found[regex] = await services.scheduler.finished(resolve_regex_in_steps(regex, names))


async def _decided(services: Services, context: RequestContext, names: dict[str, None]) -> Permission | None:
    """Which of ``names`` the client may describe, by the rules as they are now: where they change on the way,
    the decisions are taken again. With rules that never rest nothing is decided here, and the group asks in
    its own turn, which is slow and right."""
    describable = describable_topics(services, context)
    for _ in range(DECIDED_AGAIN_MAX):
        if describable is None:
            break
        epoch = services.fast_paths.epoch
        await services.scheduler.finished(each(describable.__getitem__, names, a_step=DECISIONS_A_STEP))
        if services.fast_paths.epoch == epoch:
            break
        describable = describable_topics(services, context)
    return describable


def refusal_of_group(
    services: Services, context: RequestContext, group_id: str, *, logs: bool = True
) -> KafkaError | None:
    """A heartbeat needs READ on its group."""
    return denied(services, context, AclOperation.READ, ResourceType.GROUP, group_id, logs=logs)


def refusal_of_topics(
    services: Services, context: RequestContext, names: Iterable[str] | None, *, logs: bool = True
) -> KafkaError | None:
    """It needs DESCRIBE on every topic it names; they are refused together."""
    if not names:
        return None
    describable = permission(
        services, context, AclOperation.DESCRIBE, ResourceType.TOPIC, logs_allowed=logs, logs_denied=logs
    )
    if describable is None or all(describable[name] for name in names):
        return None
    return KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def heartbeat_body(result: ModernGroupHeartbeatResult | KafkaError) -> Body:
    """The answer to a heartbeat: the member's epoch, how soon it is to be heard of again, and what is its own
    when that has changed."""
    if isinstance(result, KafkaError):
        nothing = {"member_id": None, "member_epoch": 0, "heartbeat_interval": 0, "assignment": None}
        return {"throttle_time": 0, **error_fields(result), **nothing}
    assignment = None
    if result.assignment is not None:
        assignment = {
            "topic_partitions": [
                {"topic_id": topic_id, "partitions": sorted(partitions)}
                for topic_id, partitions in result.assignment.items()
            ]
        }
    return {
        "throttle_time": 0,
        **NO_ERROR,
        "member_id": result.member_id,
        "member_epoch": result.member_epoch,
        "heartbeat_interval": result.heartbeat_interval_ms,
        "assignment": assignment,
    }


def describe_groups(
    services: Services,
    context: RequestContext,
    request: Any,
    *,
    kind: type[Described],
    describe: Callable[[GroupShard, str], Described],
    topics: Callable[[Described], Iterable[str]],
    member: Callable[[Any], Body],
    more: Callable[[Described], Body] | None = None,
    topics_denied: str = TOPICS_DENIED,
) -> Steps[Body]:
    """The groups that ``request`` names, each with its own error: without DESCRIBE on the group it is
    GROUP_AUTHORIZATION_FAILED, an empty id is INVALID_GROUP_ID, and without DESCRIBE on one of its ``topics``
    it is TOPIC_AUTHORIZATION_FAILED. ``describe`` is given the shard of a group, and its id; ``member``
    writes one member, ``more`` what only groups of this kind have. A group that is named again is answered
    once, unlike Kafka's: all its members, for each few bytes."""
    describable = permission(services, context, AclOperation.DESCRIBE, ResourceType.TOPIC)

    def read(group_id: str) -> Described:
        require(services, context, AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
        check_group_id(group_id)
        found = describe(services.groups.shard_of(group_id), group_id)
        if describable is not None and not all(describable[name] for name in topics(found)):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, topics_denied)
        return found

    groups = []
    for group_id in dict.fromkeys(request.group_ids):
        try:
            found = read(group_id)
        except KafkaError as error:
            found = kind(group_id=group_id, error=error.code, error_message=error.message)
        operations = NOT_ASKED
        if found.error is ErrorCode.NONE:
            asked = request.include_authorized_operations
            operations = authorized_operations(services, context, ResourceType.GROUP, group_id, asked=asked)
        members = yield from each(member, found.members, a_step=MEMBERS_A_STEP)
        groups.append(
            {
                **error_fields(KafkaError(found.error, found.error_message)),
                "group_id": found.group_id,
                "group_state": found.state,
                "group_epoch": found.group_epoch,
                "assignment_epoch": found.assignment_epoch,
                "assignor_name": found.assignor_name,
                "members": members,
                "authorized_operations": operations,
                **({} if more is None else more(found)),
            }
        )
        yield
    return {"throttle_time": 0, "groups": groups}


def assigned_topics(metadata: MetadataCache, members: Iterable[DescribedModernMember]) -> set[str]:
    """The names of the topics that members have or shall have, as far as they have one."""
    ids = {topic_id for member in members for topic_id in member.topic_ids()}
    return {topic.name for topic_id in ids if (topic := metadata.topic_by_id(topic_id)) is not None}


def member_body(metadata: MetadataCache, member: DescribedModernMember) -> dict[str, Any]:
    """What those of members of consumer and share groups have."""
    return {
        "member_id": member.member_id,
        "rack_id": member.rack_id,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": list(member.subscribed_topic_names),
        "assignment": assignment_body(metadata, member.assignment),
    }


def assignment_body(metadata: MetadataCache, partitions: TopicPartitions) -> dict[str, Any]:
    """Topics that are gone are left out: they have no name any more."""
    return {
        "topic_partitions": [
            {"topic_id": topic_id, "topic_name": topic.name, "partitions": sorted(numbers)}
            for topic_id, numbers in partitions.items()
            if (topic := metadata.topic_by_id(topic_id)) is not None
        ]
    }
