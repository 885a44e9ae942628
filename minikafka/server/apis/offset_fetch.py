"""OffsetFetch (key 9): what groups have committed, of some partitions or of all.

Behaviour (``KafkaApis.handleOffsetFetchRequest``, ``GroupCoordinatorService.fetchOffsets``): a partition
without an offset has -1 and no error; each group has its own error, and then no partitions. Version 1 has no
error of a group: each partition asked for has it. It needs DESCRIBE on the group
(GROUP_AUTHORIZATION_FAILED). A topic without DESCRIBE is TOPIC_AUTHORIZATION_FAILED when it was asked for,
and else left out. The group id may be empty, as in Kafka. A group that is named again is answered once,
unlike Kafka's: all its offsets, for each few bytes.

Versions: 2 all partitions (null), an error of the group; 3 throttle time; 5 leader epochs; 6 flexible; 7
require stable: a partition with an offset of an open transaction is UNSTABLE_OFFSET_COMMIT (KIP-447); 8
several groups (KIP-709); 9 members of KIP-848 groups say who they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

from minikafka.coordinator.group.messages import FetchedOffset, OffsetFetchGroup, OffsetFetchResult
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import Permission, denied, permission
from minikafka.server.apis.shared.coordinator_requests import error_code, outcome
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services
from minikafka.steps import Steps
from minikafka.types import TopicPartition

FIRST_VERSION_WITH_GROUP_ERRORS = 2
FIRST_VERSION_WITH_SEVERAL_GROUPS = 8

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
    found = yield from _fetch(fetching, request)
    topics = (yield from _topics(found.offsets)) if isinstance(found, OffsetFetchResult) else []
    if isinstance(found, KafkaError) and context.api_version < FIRST_VERSION_WITH_GROUP_ERRORS:
        wanted = yield from _wanted(request)
        topics = yield from _topics(
            FetchedOffset(topic_partition=each, error=found.code) for each in wanted or ()
        )
    return {"throttle_time": 0, "topics": topics, "error_code": error_code(found)}


class _Fetching(NamedTuple):
    """What holds for the whole request."""

    services: Services
    context: RequestContext
    describable: Permission | None
    require_stable: bool


def _group(fetching: _Fetching, group: Any) -> Steps[dict[str, Any]]:
    found = yield from _fetch(fetching, group)
    return {
        "group_id": group.group_id,
        "topics": (yield from _topics(found.offsets)) if isinstance(found, OffsetFetchResult) else [],
        "error_code": error_code(found),
    }


def _fetch(fetching: _Fetching, group: Any) -> Steps[OffsetFetchResult | KafkaError]:
    services, context, describable, require_stable = fetching
    error = denied(services, context, AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id)
    if error is not None:
        return error
    partitions = yield from _wanted(group)
    offsets: list[FetchedOffset] = []
    refused: list[FetchedOffset] = []
    if describable is not None and partitions is not None:
        partitions = yield from _described(partitions, describable, refused)
    for part in _parts(partitions):
        wanted = OffsetFetchGroup(
            group_id=group.group_id,
            member_id=field(group, "member_id", None),
            member_epoch=field(group, "member_epoch", -1),
            partitions=part,
            require_stable=require_stable,
        )
        found = outcome(partial(_fetch_at_once, services, wanted))
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


def _wanted(group: Any) -> Steps[_Partitions | None]:
    if group.topics is None:
        return None
    wanted = []
    for topic in group.topics:
        for partition in topic.partition_indexes:
            wanted.append(TopicPartition(topic.name, partition))
            yield
        yield
    return tuple(wanted)


def _topics(offsets: Iterable[FetchedOffset]) -> Steps[list[dict[str, Any]]]:
    partitions: dict[str, list[dict[str, Any]]] = {}
    for each in offsets:
        partitions.setdefault(each.topic_partition.topic, []).append(
            {
                "partition_index": each.topic_partition.partition,
                "committed_offset": each.offset,
                "committed_leader_epoch": each.leader_epoch,
                "metadata": each.metadata,
                "error_code": each.error,
            }
        )
        yield
    return [{"name": name, "partitions": found} for name, found in partitions.items()]
