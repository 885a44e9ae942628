"""What the handlers of the group APIs have in common."""

from __future__ import annotations

from typing import NamedTuple

from minikafka.coordinator.group.shard import GroupShard
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.connection import PendingResponse
from minikafka.server.apis.shared.coordinator_requests import CoordinatorAnswer, MakeBody, ask_coordinator
from minikafka.server.coordinator.hosted_shard import TicketCall
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services


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
    return ask_coordinator(services.groups, group_id, call, CoordinatorAnswer(services, context, body))


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
