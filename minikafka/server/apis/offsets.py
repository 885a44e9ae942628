"""OffsetFetch (key 9): what groups have committed, of some partitions or of all.

Behaviour (``KafkaApis.handleOffsetFetchRequest``, ``GroupCoordinatorService.fetchOffsets``): a partition
without an offset has -1 and no error; each group has its own error, and then no partitions. Version 1 has no
error of a group: each partition asked for has it. It needs DESCRIBE on the group
(GROUP_AUTHORIZATION_FAILED). A topic without DESCRIBE is TOPIC_AUTHORIZATION_FAILED when it was asked for,
and else left out. The group id may be empty, as in Kafka. A group that is named again is answered once,
unlike Kafka's: all its offsets, for each few bytes.

Versions: 2 all partitions (null), an error of the group; 3 throttle time; 5 leader epochs; 6 flexible; 7
require stable: a partition with an offset of an open transaction is UNSTABLE_OFFSET_COMMIT (KIP-447); 8
several groups (KIP-709); 9 members of KIP-848 groups say who they are; 10 topic ids in the place of names:
one that is not known is UNKNOWN_TOPIC_ID, an offset of another topic of the name is none, and of all offsets
those of topics that are gone are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from minikafka.coordinator.group.messages import FetchedOffset, OffsetFetchGroup, OffsetFetchResult
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.offset_commit import topic_name
from minikafka.server.apis.shared.authorization import Permission, denied, permission
from minikafka.server.apis.shared.coordinator_requests import error_code, outcome
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services
from minikafka.steps import Steps, each
from minikafka.types import NO_EPOCH, NO_OFFSET, TopicPartition

FIRST_VERSION_WITH_GROUP_ERRORS = 2
FIRST_VERSION_WITH_SEVERAL_GROUPS = 8
FIRST_VERSION_WITH_TOPIC_IDS = 10

AT_ONCE_MAX = 5_000
"""Partitions whose offsets are of one moment: what takes 5 ms. Of more, others get turns in between."""

_Partitions = tuple[TopicPartition, ...]


def handle(services: Services, context: RequestContext, request: Any) -> Steps[Body]:
    fetching = _Fetching(
        services,
        context,
        permission(services, context, AclOperation.DESCRIBE, ResourceType.TOPIC),
        require_stable=field(request, "require_stable", False),
    )
    if context.api_version >= FIRST_VERSION_WITH_SEVERAL_GROUPS:
        groups = []
        for group in {group.group_id: group for group in request.groups}.values():
            groups.append((yield from _group(fetching, group)))
            yield
        return {"throttle_time": 0, "groups": groups}
    wanted = yield from _wanted(services, request)
    found = yield from _fetch(fetching, request, wanted)
    topics = (yield from _topics(found.offsets)) if isinstance(found, OffsetFetchResult) else []
    if isinstance(found, KafkaError) and context.api_version < FIRST_VERSION_WITH_GROUP_ERRORS:
        topics = yield from _topics(
            FetchedOffset(topic_partition=each, error=found.code) for each in wanted.partitions or ()
        )
    return {"throttle_time": 0, "topics": topics, "error_code": error_code(found)}


class _Fetching(NamedTuple):
    """What holds for the whole request."""

    services: Services
    context: RequestContext
    describable: Permission | None
    require_stable: bool


class _Wanted(NamedTuple):
    """What is asked of one group."""

    partitions: _Partitions | None
    """None: all."""
    topic_ids: Mapping[str, UUID]
    """Of the topics that were asked for by id."""
    unknown: list[dict[str, Any]]
    """The answers for the ids that no topic has."""


def _group(fetching: _Fetching, group: Any) -> Steps[dict[str, Any]]:
    services, by_id = fetching.services, fetching.context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    wanted = yield from _wanted(services, group)
    found = yield from _fetch(fetching, group, wanted)
    topics = []
    if isinstance(found, OffsetFetchResult):
        topics = yield from _topics(found.offsets)
        if by_id:
            topics = [*_with_ids(services, topics), *wanted.unknown]
    return {"group_id": group.group_id, "topics": topics, "error_code": error_code(found)}


def _with_ids(services: Services, topics: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Those whose topic is there, and its id."""
    for topic in topics:
        known = services.metadata.topic(topic["name"])
        if known is not None:
            yield {**topic, "topic_id": known.topic_id}


def _fetch(fetching: _Fetching, group: Any, wanted: _Wanted) -> Steps[OffsetFetchResult | KafkaError]:
    services, context, describable, require_stable = fetching
    error = denied(services, context, AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id)
    if error is not None:
        return error
    partitions = wanted.partitions
    offsets: list[FetchedOffset] = []
    refused: list[FetchedOffset] = []
    if describable is not None and partitions is not None:
        partitions = yield from _described(partitions, describable, refused)
    for part in _parts(partitions):
        asked = OffsetFetchGroup(
            group_id=group.group_id,
            member_id=field(group, "member_id", None),
            member_epoch=field(group, "member_epoch", -1),
            partitions=part,
            topic_ids=wanted.topic_ids,
            require_stable=require_stable,
        )
        found = outcome(partial(_fetch_at_once, services, asked))
        if isinstance(found, KafkaError):
            return found
        offsets += (
            found.offsets
            if describable is None
            else [each for each in found.offsets if describable[each.topic_partition.topic]]
        )
        yield
    return OffsetFetchResult((*offsets, *refused))


def _described(
    partitions: _Partitions, describable: Permission, refused: list[FetchedOffset]
) -> Steps[_Partitions]:
    """Those of topics that who asks may describe; the answers of the others are added to ``refused``."""
    left = []
    for at in partitions:
        if describable[at.topic]:
            left.append(at)
        else:
            refused.append(FetchedOffset(topic_partition=at, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        yield
    return tuple(left)


def _fetch_at_once(services: Services, wanted: OffsetFetchGroup) -> OffsetFetchResult:
    return services.groups.shard_of(wanted.group_id).fetch_offsets(wanted)


def _parts(partitions: _Partitions | None) -> Iterator[_Partitions | None]:
    if not partitions:
        yield partitions
        return
    for start in range(0, len(partitions), AT_ONCE_MAX):
        yield partitions[start : start + AT_ONCE_MAX]


def _wanted(services: Services, group: Any) -> Steps[_Wanted]:
    if group.topics is None:
        return _Wanted(None, {}, [])
    partitions: list[TopicPartition] = []
    topic_ids: dict[str, UUID] = {}
    unknown: list[dict[str, Any]] = []
    for topic in group.topics:
        topic_id = field(topic, "topic_id", None)
        name = topic.name if hasattr(topic, "name") else topic_name(services, topic_id)
        if name is None:
            answers = yield from each(_unknown_id, topic.partition_indexes)
            unknown.append({"topic_id": topic_id, "partitions": answers})
            continue
        if topic_id is not None:
            topic_ids[name] = topic_id
        partitions += yield from each(partial(TopicPartition, name), topic.partition_indexes)
        yield
    return _Wanted(tuple(partitions), topic_ids, unknown)


def _unknown_id(partition: int) -> dict[str, Any]:
    return {
        "partition_index": partition,
        "committed_offset": NO_OFFSET,
        "committed_leader_epoch": NO_EPOCH,
        "metadata": "",
        "error_code": ErrorCode.UNKNOWN_TOPIC_ID,
    }


def _topics(offsets: Iterable[FetchedOffset]) -> Steps[list[dict[str, Any]]]:
    partitions: dict[str, list[dict[str, Any]]] = {}
    for offset in offsets:
        partitions.setdefault(offset.topic_partition.topic, []).append(
            {
                "partition_index": offset.topic_partition.partition,
                "committed_offset": offset.offset,
                "committed_leader_epoch": offset.leader_epoch,
                "metadata": offset.metadata,
                "error_code": offset.error,
            }
        )
        yield
    return [{"name": name, "partitions": found} for name, found in partitions.items()]
