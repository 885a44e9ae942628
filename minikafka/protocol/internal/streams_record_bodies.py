"""The records of streams groups (KIP-1071) as the bodies that their schemas read and write, and back.

Kafka: ``StreamsCoordinatorRecordHelpers``. The schemas, and which record is which, are in
``group_record_codec``. Partitions are written in ascending order, so that equal records are equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from minikafka.protocol.internal import group_records as records
from minikafka.protocol.wire.writing import Body

TASK_FIELDS: Final = ("active_tasks", "standby_tasks", "warmup_tasks")


def _pairs_body(pairs: Iterable[tuple[str, str]]) -> list[Body]:
    return [{"key": key, "value": value} for key, value in pairs]


def _pairs(body: Iterable[Any]) -> tuple[tuple[str, str], ...]:
    return tuple((each.key, each.value) for each in body)


def group_body(value: records.StreamsGroupMetadataValue) -> Body:
    body = msgspec.structs.asdict(value)
    if value.last_assignment_configs is not None:
        body["last_assignment_configs"] = _pairs_body(value.last_assignment_configs)
    return body


def group_value(body: Any) -> records.StreamsGroupMetadataValue:
    fields = body._asdict()
    # One that is not there is read as an empty one.
    fields["last_assignment_configs"] = _pairs(body.last_assignment_configs or ()) or None
    return records.StreamsGroupMetadataValue(**fields)


def member_body(value: records.StreamsGroupMemberMetadataValue) -> Body:
    body = msgspec.structs.asdict(value)
    if value.user_endpoint is not None:
        host, port = value.user_endpoint
        body["user_endpoint"] = {"host": host, "port": port}
    body["client_tags"] = _pairs_body(value.client_tags)
    return body


def member_value(body: Any) -> records.StreamsGroupMemberMetadataValue:
    fields = body._asdict()
    if body.user_endpoint is not None:
        fields["user_endpoint"] = tuple(body.user_endpoint)
    return records.StreamsGroupMemberMetadataValue(**fields | {"client_tags": _pairs(body.client_tags)})


def _tasks_body(tasks: records.TaskIds) -> list[Body]:
    return [{"subtopology_id": key, "partitions": sorted(numbers)} for key, numbers in tasks.items()]


def _tasks(body: Iterable[Any]) -> records.TaskIds:
    return {each.subtopology_id: frozenset(each.partitions) for each in body if each.partitions}


def _epochs_body(tasks: records.TaskEpochs) -> list[Body]:
    bodies: list[Body] = []
    for key, epochs in tasks.items():
        numbers = sorted(epochs)
        told = [epochs[number] for number in numbers]
        bodies.append({"subtopology_id": key, "partitions": numbers, "assignment_epochs": told})
    return bodies


def _epochs(body: Iterable[Any]) -> records.TaskEpochs:
    """Without epochs, as Kafka 4.1 wrote them, the tasks are as from the beginning."""
    return {
        each.subtopology_id: dict(
            zip(each.partitions, each.assignment_epochs or [0] * len(each.partitions), strict=True)
        )
        for each in body
        if each.partitions
    }


def target_body(value: records.StreamsGroupTargetAssignmentMemberValue) -> Body:
    return {name: _tasks_body(getattr(value, name)) for name in TASK_FIELDS}


def target_value(body: Any) -> records.StreamsGroupTargetAssignmentMemberValue:
    return records.StreamsGroupTargetAssignmentMemberValue(
        **{name: _tasks(getattr(body, name)) for name in TASK_FIELDS}
    )


def current_body(value: records.StreamsGroupCurrentMemberAssignmentValue) -> Body:
    return {
        name: (_epochs_body if name.startswith("active") else _tasks_body)(each)
        if isinstance(each, dict)
        else each
        for name, each in msgspec.structs.asdict(value).items()
    }


def current_value(body: Any) -> records.StreamsGroupCurrentMemberAssignmentValue:
    return records.StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=body.member_epoch,
        previous_member_epoch=body.previous_member_epoch,
        state=body.state,
        active_tasks=_epochs(body.active_tasks),
        standby_tasks=_tasks(body.standby_tasks),
        warmup_tasks=_tasks(body.warmup_tasks),
        active_tasks_pending_revocation=_epochs(body.active_tasks_pending_revocation),
        standby_tasks_pending_revocation=_tasks(body.standby_tasks_pending_revocation),
        warmup_tasks_pending_revocation=_tasks(body.warmup_tasks_pending_revocation),
    )


def topology_body(value: records.StreamsGroupTopologyValue) -> Body:
    return {"epoch": value.epoch, "subtopologies": [_subtopology_body(each) for each in value.subtopologies]}


def _subtopology_body(value: records.StreamsSubtopology) -> Body:
    body = msgspec.structs.asdict(value)
    for name in ("state_changelog_topics", "repartition_source_topics"):
        body[name] = [
            msgspec.structs.asdict(topic) | {"topic_configs": _pairs_body(topic.topic_configs)}
            for topic in body[name]
        ]
    body["copartition_groups"] = [msgspec.structs.asdict(each) for each in value.copartition_groups]
    return body


def topology_value(body: Any) -> records.StreamsGroupTopologyValue:
    return records.StreamsGroupTopologyValue(body.epoch, subtopologies(body.subtopologies))


def subtopologies(body: Iterable[Any]) -> tuple[records.StreamsSubtopology, ...]:
    """As a record says them, and likewise a StreamsGroupHeartbeat."""
    return tuple(
        records.StreamsSubtopology(
            subtopology_id=each.subtopology_id,
            source_topics=tuple(each.source_topics),
            source_topic_regex=tuple(each.source_topic_regex),
            state_changelog_topics=_streams_topics(each.state_changelog_topics),
            repartition_sink_topics=tuple(each.repartition_sink_topics),
            repartition_source_topics=_streams_topics(each.repartition_source_topics),
            copartition_groups=tuple(
                records.StreamsCopartitionGroup(
                    tuple(group.source_topics),
                    tuple(group.source_topic_regex),
                    tuple(group.repartition_source_topics),
                )
                for group in each.copartition_groups
            ),
        )
        for each in body
    )


def _streams_topics(body: Iterable[Any]) -> tuple[records.StreamsTopicInfo, ...]:
    return tuple(
        records.StreamsTopicInfo(
            each.name, each.partitions, each.replication_factor, _pairs(each.topic_configs)
        )
        for each in body
    )
