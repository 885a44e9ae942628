"""DeleteTopics (key 20): delete topics by name or by id, each with its own result.

Behaviour (``ControllerApis.deleteTopics``): a name or an id that comes twice is INVALID_REQUEST, once and
before all rights, and so are both of a topic that comes by name and by id; unknown ones are
UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID; with ``delete.topic.enable=false`` everything is
TOPIC_DELETION_DISABLED (INVALID_REQUEST before version 3, which does not know that code). Without DELETE on
the cluster or the topic it is TOPIC_AUTHORIZATION_FAILED; of a topic by its id the name is shown to who may
describe it. A topic is gone when the answer leaves; after ``timeout`` it is REQUEST_TIMED_OUT, and the topic
goes when the brokers that hold it are there.

Versions: 4 flexible; 5 error messages and throttling errors: partitions beyond the client's quota are
refused (KIP-599); 6 topics by id (KIP-516).
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple
from uuid import UUID

from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import (
    Permission,
    is_authorized_on_cluster,
    permission,
    topic_denied,
)
from minikafka.server.apis.shared.mutation_quota import MutationQuota
from minikafka.server.cluster.metadata_cache import MetadataCache, TopicMetadata
from minikafka.server.requests.context import RequestContext
from minikafka.server.runtime.error_fields import NO_ERROR, error_fields
from minikafka.server.runtime.time_slice import TimeSlice
from minikafka.server.services import Services
from minikafka.steps import Steps, each

FIRST_VERSION_WITH_TOPIC_DELETION_DISABLED = 3
FIRST_VERSION_WITH_TOPIC_IDS = 6
STRICT_QUOTA_SINCE = 5


class _Wanted(NamedTuple):
    """One topic as the request names it; normally one of the two is None."""

    name: str | None
    topic_id: UUID | None


async def handle(services: Services, context: RequestContext, request: Any) -> Body:
    quota = MutationQuota(services.client_quotas, context, strict_since_version=STRICT_QUOTA_SINCE)
    # Which topic each entry means is decided before the first one is deleted, so that a topic which appears
    # twice is refused both times instead of deleted once.
    wanted, found, literal, counts = await services.scheduler.finished(
        _found(services.metadata, context, request)
    )
    rights = None
    if not is_authorized_on_cluster(services, context, AclOperation.DELETE, logs_denied=False):
        rights = _Rights.of(services, context)
    outcomes: list[dict[str, Any]] = []
    doomed: dict[int, TopicMetadata] = {}
    time_slice = TimeSlice()
    for index, (topic, resolved) in enumerate(zip(wanted, found, strict=True)):
        await time_slice.give_way()
        try:
            _check(services, context, topic)
            if literal[topic] > 1:
                raise _duplicate(topic)
            if rights is not None and not rights.may_delete(resolved):
                found[index] = rights.shown(topic, resolved)
                raise topic_denied()
            if counts[resolved] > 1:  # whether a name and an id are the same topic is not for everybody
                raise _duplicate(topic)
            doomed[len(outcomes)] = await _delete(services, topic, resolved, quota)
        except KafkaError as error:
            outcomes.append(error_fields(error))
        else:
            outcomes.append(NO_ERROR)
    for index, late in (await _wait(services, doomed, timeout_ms=request.timeout)).items():
        outcomes[index] = error_fields(late)
    responses = each(
        lambda pair: {"name": pair[0].name, "topic_id": pair[0].topic_id} | pair[1],
        zip(found, outcomes, strict=True),
    )
    return {"throttle_time": quota.throttle(), "responses": await services.scheduler.finished(responses)}


def _found(
    metadata: MetadataCache, context: RequestContext, request: Any
) -> Steps[tuple[list[_Wanted], list[_Wanted], Counter[_Wanted], Counter[_Wanted]]]:
    """The topics as they are named, each once, and as they are known; how often each comes in the request,
    and how often what is known."""
    wanted, found, literal, counts = [], [], Counter[_Wanted](), Counter[_Wanted]()
    is_by_id = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    for topic in request.topics if is_by_id else request.topic_names:
        named = _Wanted(topic.name, topic.topic_id) if is_by_id else _Wanted(topic, None)
        yield
        literal[named] += 1
        if literal[named] > 1:
            continue
        resolved = _resolve(metadata, named)
        wanted.append(named)
        found.append(resolved)
        counts[resolved] += 1
    return wanted, found, literal, counts


def _resolve(metadata: MetadataCache, topic: _Wanted) -> _Wanted:
    """Name and id of the topic that is meant; what is not known stays None."""
    if topic.name is not None and topic.topic_id is not None:
        return topic
    if topic.name is not None:
        known = metadata.topic(topic.name)
    else:
        known = None if topic.topic_id is None else metadata.topic_by_id(topic.topic_id)
    return topic if known is None else _Wanted(known.name, known.topic_id)


class _Rights(NamedTuple):
    """Of one who may not delete whatever there is in the cluster."""

    describable: Permission
    deletable: Permission

    @classmethod
    def of(cls, services: Services, context: RequestContext) -> _Rights | None:
        describable = permission(services, context, AclOperation.DESCRIBE, ResourceType.TOPIC)
        deletable = permission(services, context, AclOperation.DELETE, ResourceType.TOPIC)
        return None if describable is None or deletable is None else cls(describable, deletable)

    def may_delete(self, resolved: _Wanted) -> bool:
        """Of what has no name or no id: it does not exist, and who may describe it may know that."""
        name = resolved.name
        if name is None:
            return True
        return self.describable[name] and (resolved.topic_id is None or self.deletable[name])

    def shown(self, topic: _Wanted, resolved: _Wanted) -> _Wanted:
        """How a topic that may not be deleted is named in the answer: as in the request, and by its name if
        it may be described; its name is not disclosed."""
        name = resolved.name
        return topic._replace(name=name) if name is not None and self.describable[name] else topic


def _check(services: Services, context: RequestContext, topic: _Wanted) -> None:
    if not services.config.delete_topic_enable:
        known = context.api_version >= FIRST_VERSION_WITH_TOPIC_DELETION_DISABLED
        raise KafkaError(
            ErrorCode.TOPIC_DELETION_DISABLED if known else ErrorCode.INVALID_REQUEST,
            "Topic deletion is disabled: delete.topic.enable is false.",
        )
    if topic.name is not None and topic.topic_id is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if topic.name is None and topic.topic_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")


def _duplicate(topic: _Wanted) -> KafkaError:
    what = "name" if topic.name is not None else "id"
    return KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {what}.")


async def _delete(
    services: Services, topic: _Wanted, resolved: _Wanted, quota: MutationQuota
) -> TopicMetadata:
    if resolved.name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    return await services.topics.delete_topic(resolved.name, topic_id=topic.topic_id, spend=quota.spend)


async def _wait(
    services: Services, doomed: dict[int, TopicMetadata], *, timeout_ms: int
) -> dict[int, KafkaError]:
    """Until all are gone. Returns an error for those that are not in time."""
    late = {}
    deadline_ms = services.clock.monotonic_ms() + timeout_ms
    for index, topic in doomed.items():
        left_ms = deadline_ms - services.clock.monotonic_ms()
        try:
            await services.topics.wait_until_deleted(topic, timeout_ms=left_ms)
        except KafkaError as error:
            late[index] = error
    return late
