"""ConsumerGroupHeartbeat (key 68): a member of a KIP-848 group joins, lives, changes its mind, leaves.

Behaviour (``GroupCoordinatorService.consumerGroupHeartbeat``): the answer says the member's epoch, how soon
it is to be heard of again, and what it is to own when that has changed. It needs READ on the group, else
GROUP_AUTHORIZATION_FAILED, and DESCRIBE on the topics it names, else TOPIC_AUTHORIZATION_FAILED. What else is
wrong with a request is for
the groups to say (``coordinator.group.consumer.consumer_groups``).

Versions: 0; 1 regular expressions, and the client makes the member's id (KIP-1082).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from functools import partial
from typing import Any

from minikafka.coordinator.group.consumer.subscription import check_regex, resolve_regex_in_steps
from minikafka.coordinator.group.messages import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatResult
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.connection import Result
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import Permission, denied, permission
from minikafka.server.apis.shared.coordinator_requests import GroupQuestion, ask_group, client_host, client_id
from minikafka.server.coordinator.hosted_shard import RequestTicket
from minikafka.server.requests.context import RequestContext
from minikafka.server.runtime.error_fields import NO_ERROR, error_fields
from minikafka.server.services import Services
from minikafka.steps import each

DECISIONS_A_STEP = 16
"""Authorized between two looks at the clock."""
DECIDED_AGAIN_MAX = 4
"""How often names are gone through while the rules change meanwhile."""


def handle(
    services: Services, context: RequestContext, request: Any
) -> Body | Result | Coroutine[Any, Any, Body]:
    error = refusal(services, context, request)
    if error is not None:
        return _body(error)
    regex = field(request, "subscribed_topic_regex", None)
    if regex:
        return _with_regex(services, context, request, regex)
    return ask_group(services, context, *question(services, context, request))


async def _with_regex(services: Services, context: RequestContext, request: Any, regex: str) -> Body:
    """Compile the pattern in a thread, match it and authorize what it matches in slices; the group then finds
    all three remembered."""
    asked = question(services, context, request)
    try:
        await services.scheduler.finished(services.scheduler.apart(partial(check_regex, regex)))
    except KafkaError:
        pass  # the group says so, unless something else is wrong first
    else:
        names = (topic.name for topic in services.metadata.topics())
        matched = await services.scheduler.finished(resolve_regex_in_steps(regex, names))
        describable = await _decided(services, context, matched)
        asked = question(services, context, request, describable)
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def answer(result: Any) -> None:
        if not answered.done():
            answered.set_result(result)

    services.groups.ask(asked.group_id, asked.call, RequestTicket(answer))
    body = asked.body(await answered)
    return (await services.scheduler.finished(body)) if isinstance(body, Generator) else body


async def _decided(services: Services, context: RequestContext, names: tuple[str, ...]) -> Permission | None:
    """Which of ``names`` the client may describe, by the rules as they are now: where they change on the way,
    the decisions are taken again. With rules that never rest nothing is decided here, and the group asks in
    its own turn, which is slow and right. Kafka: ``TopicRegexResolver``, in another thread."""
    describable = _describable(services, context)
    for _ in range(DECIDED_AGAIN_MAX):
        if describable is None:
            break
        epoch = services.fast_paths.epoch
        await services.scheduler.finished(each(describable.__getitem__, names, a_step=DECISIONS_A_STEP))
        if services.fast_paths.epoch == epoch:
            break
        describable = _describable(services, context)
    return describable


def refusal(
    services: Services, context: RequestContext, request: Any, *, logs: bool = True
) -> KafkaError | None:
    """Why who asks may not ask that: it needs READ on the group, and DESCRIBE on every topic it names."""
    error = denied(services, context, AclOperation.READ, ResourceType.GROUP, request.group_id, logs=logs)
    if error is None and request.subscribed_topic_names:
        names = request.subscribed_topic_names
        describable = permission(
            services, context, AclOperation.DESCRIBE, ResourceType.TOPIC, logs_allowed=logs, logs_denied=logs
        )
        if describable is not None and not all(describable[name] for name in names):
            return KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return error


def _describable(services: Services, context: RequestContext) -> Permission | None:
    return permission(services, context, AclOperation.DESCRIBE, ResourceType.TOPIC, logs_denied=False)


def question(
    services: Services, context: RequestContext, request: Any, describable: Permission | None = None
) -> GroupQuestion:
    """What ``request`` asks, the same for all requests with these bytes of this connection. ``describable``
    has what was decided already."""
    names = request.subscribed_topic_names
    owned = request.topic_partitions
    if describable is None:
        describable = _describable(services, context)
    heartbeat = ConsumerGroupHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout,
        subscribed_topic_names=None if names is None else tuple(names),
        subscribed_topic_regex=field(request, "subscribed_topic_regex", None),
        server_assignor=request.server_assignor,
        topic_partitions=(
            None if owned is None else {each.topic_id: frozenset(each.partitions) for each in owned}
        ),
        client_id=client_id(context),
        client_host=client_host(context),
        version=context.api_version,
        may_describe=None if describable is None else describable.__getitem__,
    )
    return GroupQuestion(
        heartbeat.group_id,
        lambda shard, ticket, now_ms: shard.consumer_group_heartbeat(heartbeat, ticket, now_ms),
        _body,
    )


def _body(result: ConsumerGroupHeartbeatResult | KafkaError) -> Body:
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
