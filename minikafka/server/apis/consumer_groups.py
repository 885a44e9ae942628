"""KIP-848 groups: ConsumerGroupHeartbeat and ConsumerGroupDescribe (keys 68, 69)."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any

from minikafka.coordinator.group.messages import (
    ConsumerGroupHeartbeat,
    DescribedConsumerGroup,
    DescribedConsumerMember,
)
from minikafka.errors import KafkaError
from minikafka.network.connection import Result
from minikafka.protocol.wire.codec import Body, field
from minikafka.server.apis import refusal as refused
from minikafka.server.apis.shared.authorization import Permission
from minikafka.server.apis.shared.coordinator_requests import (
    GroupQuestion,
    answer_of_group,
    ask_group,
    assigned_topics,
    assignment_body,
    client_host,
    client_id,
    describable_topics,
    describe_groups,
    heartbeat_body,
    matched_and_decided,
    member_body,
    refusal_of_group,
    refusal_of_topics,
    regexes_due,
)
from minikafka.server.cluster.metadata_cache import MetadataCache
from minikafka.server.requests import RequestContext
from minikafka.server.services import Services
from minikafka.steps import Steps

CONSUMER = "consumer"
"""The protocol's name in ``group.coordinator.rebalance.protocols``."""


def handle_consumer_group_heartbeat(
    services: Services, context: RequestContext, request: Any
) -> Body | Result | Coroutine[Any, Any, Body]:
    """ConsumerGroupHeartbeat (key 68): a member of a KIP-848 group joins, lives, changes its mind, leaves.

    Behaviour (``GroupCoordinatorService.consumerGroupHeartbeat``): the answer says the member's epoch, how
    soon it is to be heard of again, and what it is to own when that has changed. It needs READ on the group,
    else GROUP_AUTHORIZATION_FAILED, and DESCRIBE on the topics it names, else TOPIC_AUTHORIZATION_FAILED.
    What else is wrong with a request is for the groups to say
    (``coordinator.group.consumer.consumer_groups``). UNSUPPORTED_VERSION, where
    ``group.coordinator.rebalance.protocols`` is without ``consumer``.

    Versions: 0; 1 regular expressions, and the client makes the member's id (KIP-1082).
    """
    if CONSUMER not in services.config.group_coordinator_rebalance_protocols:
        return refused.handle(services, context, request)
    error = refusal(services, context, request)
    if error is not None:
        return heartbeat_body(error)
    regex = field(request, "subscribed_topic_regex", None) or None
    if regex is not None or regexes_due(services, request.group_id):
        return _with_regexes(services, context, request, regex)
    return ask_group(services, context, *question(services, context, request))


async def _with_regexes(services: Services, context: RequestContext, request: Any, regex: str | None) -> Body:
    """The same after what is long about expressions, which the group then finds remembered."""
    describable = await matched_and_decided(services, context, request.group_id, regex)
    return await answer_of_group(services, question(services, context, request, describable))


def refusal(
    services: Services, context: RequestContext, request: Any, *, logs: bool = True
) -> KafkaError | None:
    """Why who asks may not ask that: it needs READ on the group, and DESCRIBE on every topic it names."""
    return refusal_of_group(services, context, request.group_id, logs=logs) or refusal_of_topics(
        services, context, request.subscribed_topic_names, logs=logs
    )


def question(
    services: Services, context: RequestContext, request: Any, describable: Permission | None = None
) -> GroupQuestion:
    """What ``request`` asks, the same for all requests with these bytes of this connection. ``describable``
    has what was decided already."""
    names = request.subscribed_topic_names
    owned = request.topic_partitions
    if describable is None:
        describable = describable_topics(services, context)
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
        heartbeat_body,
    )


def handle_consumer_group_describe(services: Services, context: RequestContext, request: Any) -> Steps[Body]:
    """ConsumerGroupDescribe (key 69): KIP-848 groups, with what their members own and shall own.

    Behaviour (``GroupCoordinatorService.consumerGroupDescribe``): one that is not there, or is a classic
    group, is GROUP_ID_NOT_FOUND; what else there is: ``describe_groups``.

    Versions: 0; 1 whether a member speaks the classic protocol (KIP-1099).
    """
    if CONSUMER not in services.config.group_coordinator_rebalance_protocols:
        return refused.handle(services, context, request)
    return (
        yield from describe_groups(
            services,
            context,
            request,
            kind=DescribedConsumerGroup,
            describe=lambda shard, group_id: shard.describe_consumer_group(group_id),
            topics=lambda group: assigned_topics(services.metadata, group.members),
            member=partial(_member, services.metadata),
        )
    )


def _member(metadata: MetadataCache, member: DescribedConsumerMember) -> Body:
    return member_body(metadata, member) | {
        "instance_id": member.instance_id,
        "subscribed_topic_regex": member.subscribed_topic_regex,
        "target_assignment": assignment_body(metadata, member.target_assignment),
        "member_type": member.member_type,
    }
