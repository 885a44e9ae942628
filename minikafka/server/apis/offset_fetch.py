"""OffsetFetch (key 9): what groups have committed, of some partitions or of all.

Behaviour (``KafkaApis.handleOffsetFetchRequest``, ``GroupCoordinatorService.fetchOffsets``): a partition
without an offset has -1 and no error; each group has its own error, and then no partitions. Version 1 has no
error of a group: each partition asked for has it. The group id may be empty, as in Kafka.
A group that is named again is answered once, unlike Kafka's: all its offsets, for each few bytes.

Versions: 2 all partitions (null), an error of the group; 3 throttle time; 5 leader epochs; 6 flexible; 7
require stable: a partition with an offset of an open transaction is UNSTABLE_OFFSET_COMMIT (KIP-447); 8
several groups (KIP-709); 9 members of KIP-848 groups say who they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from minikafka.coordinator.group.messages import FetchedOffset, OffsetFetchGroup, OffsetFetchResult
from minikafka.errors import KafkaError
from minikafka.protocol.wire.codec import Body, field
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
    require_stable = field(request, "require_stable", False)
    if context.api_version >= FIRST_VERSION_WITH_SEVERAL_GROUPS:
        groups = []
        for group in {group.group_id: group for group in request.groups}.values():
            groups.append((yield from _group(services, group, require_stable=require_stable)))
            yield
        return {"throttle_time": 0, "groups": groups}
    found = yield from _fetch(services, request, require_stable=require_stable)
    topics = (yield from _topics(found.offsets)) if isinstance(found, OffsetFetchResult) else []
    if isinstance(found, KafkaError) and context.api_version < FIRST_VERSION_WITH_GROUP_ERRORS:
        wanted = yield from _wanted(request)
        topics = yield from _topics(
            FetchedOffset(topic_partition=each, error=found.code) for each in wanted or ()
        )
    return {"throttle_time": 0, "topics": topics, "error_code": error_code(found)}


def _group(services: Services, group: Any, *, require_stable: bool) -> Steps[dict[str, Any]]:
    found = yield from _fetch(services, group, require_stable=require_stable)
    return {
        "group_id": group.group_id,
        "topics": (yield from _topics(found.offsets)) if isinstance(found, OffsetFetchResult) else [],
        "error_code": error_code(found),
    }


def _fetch(services: Services, group: Any, *, require_stable: bool) -> Steps[OffsetFetchResult | KafkaError]:
    partitions = yield from _wanted(group)
    offsets: list[FetchedOffset] = []
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
        offsets += found.offsets
        yield
    return OffsetFetchResult(tuple(offsets))


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
