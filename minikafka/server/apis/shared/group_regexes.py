"""Regular expressions of KIP-848 groups, matched and authorized before the group's turn, in slices.

Kafka: ``TopicRegexResolver``, in another thread. A group takes its turn in one go; what is done here it then
finds remembered. Topics and rules may change meanwhile: the group sees the names that are new, and decisions
are taken again where the rules have changed.
"""

from __future__ import annotations

from functools import partial

from minikafka.coordinator.group.consumer.subscription import (
    Matches,
    check_regex,
    remember,
    resolve_regex_in_steps,
)
from minikafka.errors import KafkaError
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import Permission, permission
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services
from minikafka.steps import each

DECISIONS_A_STEP = 16
"""Authorized between two looks at the clock."""
DECIDED_AGAIN_MAX = 4
"""How often names are gone through while the rules change meanwhile."""
LOOKS_MAX = 2
"""How often it is looked which expressions are due: others may be after the first ones are matched. All of
them fit into what is remembered."""


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
    names = (topic.name for topic in services.metadata.topics())
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
