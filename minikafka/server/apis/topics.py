"""Topics and their partitions: created, grown and deleted; reassigned, and led by others.

CreateTopics, CreatePartitions and DeleteTopics (keys 19, 37, 20); AlterPartitionReassignments,
ListPartitionReassignments and ElectLeaders (45, 46, 43).

**The controller mutation quota** of one request (KIP-599): how many partitions a client may create and
delete. Kafka: ``ControllerMutationQuota`` and its variants. A request spends a token for each partition. From
the version on that knows THROTTLING_QUOTA_EXCEEDED it is strict: nothing more is done once the bucket is
overspent, but what overspends it is. Before, everything is done. In both cases the client is told how long to
wait, and waits.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from minikafka.config.client_quotas import QuotaType
from minikafka.errors import ErrorCode, KafkaError
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.configs import check_config_count
from minikafka.server.apis.shared.authorization import (
    Permission,
    denied_on_cluster,
    is_authorized_on_cluster,
    permission,
    require_on_cluster,
    topic_denied,
)
from minikafka.server.client_quotas import ClientQuotas, Violation
from minikafka.server.cluster.metadata_cache import MetadataCache, TopicMetadata
from minikafka.server.cluster.topic_validation import validate_request_total
from minikafka.server.requests import NO_ERROR, RequestContext, client_of, error_fields
from minikafka.server.runtime.work_scheduler import TimeSlice
from minikafka.server.services import Services
from minikafka.server.topic_service import CreatedTopic
from minikafka.steps import Steps, each
from minikafka.types import NO_LEADER, ElectionType, TopicPartition

NEVER = 32767
"""A version that there is none of: the request spends tokens, and is never refused."""

CREATE_TOPICS_STRICT_QUOTA_SINCE = 6

DEFAULT = -1
"""Partition count or replication factor: the broker's default."""

_HIDDEN = {
    "topic_config_error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    "num_partitions": -1,
    "replication_factor": -1,
    "configs": [],
}
"""What a topic's creator is told of it that may not describe its configuration."""

CREATE_PARTITIONS_STRICT_QUOTA_SINCE = 3

FIRST_VERSION_WITH_TOPIC_DELETION_DISABLED = 3
FIRST_VERSION_WITH_TOPIC_IDS = 6
DELETE_TOPICS_STRICT_QUOTA_SINCE = 5


class MutationQuota:
    """One request's. ``spend`` before each change, ``throttle`` once, when the answer is made."""

    __slots__ = ("_client", "_context", "_is_strict", "_quotas", "_violated_ms", "_violation")

    def __init__(self, quotas: ClientQuotas, context: RequestContext, *, strict_since_version: int) -> None:
        self._quotas = quotas
        self._context = context
        self._client = client_of(quotas, context)
        self._is_strict = context.api_version >= strict_since_version
        self._violation: Violation | None = None
        self._violated_ms = 0

    def __repr__(self) -> str:
        return f"MutationQuota({self._client}, strict={self._is_strict}, {self._violation})"

    def spend(self, partitions: int) -> None:
        """So many partitions are about to be created or deleted.

        Raises:
            KafkaError: THROTTLING_QUOTA_EXCEEDED: they must not be.
        """
        sensor = self._client.sensors.get(QuotaType.CONTROLLER_MUTATION)
        if sensor is None:
            return
        clock = self._quotas.clock
        record = sensor.record_if_free if self._is_strict else sensor.record
        violation = record(partitions, clock)
        if violation is not None:
            self._violation, self._violated_ms = violation, clock.monotonic_ms()
            if self._is_strict:
                raise KafkaError(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded."
                )

    def throttle(self) -> int:
        """Mute the connection, if a quota was exceeded, for what is left to wait by now. Returns that, in
        ms."""
        if self._violation is None:
            return 0
        passed_ms = self._quotas.clock.monotonic_ms() - self._violated_ms
        left_ms = self._violation.throttle_time_ms - passed_ms
        if left_ms <= 0:
            return 0
        violation = self._violation._replace(throttle_time_ms=left_ms)
        return self._quotas.slow_down(self._context.connection, self._client, violation)


async def handle_create_topics(services: Services, context: RequestContext, request: Any) -> Body:
    """CreateTopics (key 19): create topics, each with its own result.

    Behaviour (``ControllerApis.createTopics``, ``ReplicationControlManager.createTopics``): a name that
    appears twice is INVALID_REQUEST; a manual assignment excludes a partition count and a replication factor;
    -1 stands for the broker's ``num.partitions`` and ``default.replication.factor``; more than 10,000
    partitions in one request is POLICY_VIOLATION for all of it. With ``validate_only`` everything is checked
    and nothing written. The answer waits until this broker knows leaders for all partitions, so a topic that
    is reported as created can be produced to at once; after ``timeout`` it is REQUEST_TIMED_OUT, and the
    topic gets its leaders later.

    It needs CREATE on the cluster or on the topic (TOPIC_AUTHORIZATION_FAILED), and DESCRIBE_CONFIGS on the
    topic to see what it was made with.

    Where it differs from Kafka: the topic id of a ``validate_only`` answer is zero; Kafka answers one that
    nothing has.

    Versions: 5 partition count, replication factor and configs in the answer (KIP-525), flexible; 6
    throttling errors: partitions beyond the client's quota are refused (KIP-599); 7 topic ids.
    """
    quota = MutationQuota(
        services.client_quotas, context, strict_since_version=CREATE_TOPICS_STRICT_QUOTA_SINCE
    )
    counts = Counter(topic.name for topic in request.topics)
    total = sum(_partitions(services, topic) for topic in request.topics)
    creatable = None
    if not is_authorized_on_cluster(services, context, AclOperation.CREATE, logs_denied=False):
        creatable = permission(services, context, AclOperation.CREATE, ResourceType.TOPIC)
    describable = permission(
        services, context, AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, logs_denied=False
    )
    results: list[dict[str, Any]] = []
    written: list[CreatedTopic] = []
    time_slice = TimeSlice()
    for name, topic in {topic.name: topic for topic in request.topics}.items():
        await time_slice.give_way()
        try:
            if counts[name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if creatable is not None and not creatable[name]:
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
            validate_request_total(total)
            created = await _create(services, topic, quota, validate_only=request.validate_only)
        except KafkaError as error:
            results.append(_failure(name, error))
        else:
            shows_configs = describable is None or describable[name]
            results.append(_success(created) if shows_configs else _success(created) | _HIDDEN)
            written.append(created)
    if not request.validate_only:
        late = await _wait(services, written, timeout_ms=request.timeout)
        results = [late.get(result["name"], result) for result in results]
    return {"throttle_time": quota.throttle(), "topics": results}


async def _wait(
    services: Services, written: list[CreatedTopic], *, timeout_ms: int
) -> dict[str, dict[str, Any]]:
    """Until all have leaders. Returns the answers for those that have none in time."""
    late = {}
    deadline_ms = services.clock.monotonic_ms() + timeout_ms
    for topic in written:
        left_ms = deadline_ms - services.clock.monotonic_ms()
        try:
            await services.topics.wait_for_leaders(
                topic.name, partitions=topic.partitions, timeout_ms=left_ms
            )
        except KafkaError as error:
            late[topic.name] = _failure(topic.name, error)
    return late


def _partitions(services: Services, topic: Any) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return services.config.num_partitions if topic.num_partitions == DEFAULT else max(topic.num_partitions, 0)


async def _create(
    services: Services, topic: Any, quota: MutationQuota, *, validate_only: bool
) -> CreatedTopic:
    check_config_count(topic.configs)
    return await services.topics.create_topic(
        topic.name,
        partitions=None if topic.num_partitions == DEFAULT else topic.num_partitions,
        replication_factor=None if topic.replication_factor == DEFAULT else topic.replication_factor,
        assignments=_assignments(topic),
        configs={config.name: config.value for config in topic.configs},
        validate_only=validate_only,
        spend=quota.spend,
    )


def _assignments(topic: Any) -> dict[int, tuple[int, ...]] | None:
    """The manual assignment of a request, if it has one.

    Raises:
        KafkaError: INVALID_REQUEST beside a count or a factor, INVALID_REPLICA_ASSIGNMENT for a partition
            that comes twice.
    """
    if not topic.assignments:
        return None
    for what, value in (
        ("replication factor", topic.replication_factor),
        ("numPartitions", topic.num_partitions),
    ):
        if value != DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {what} was not set to -1.",
            )
    assignments: dict[int, tuple[int, ...]] = {}
    for assignment in topic.assignments:
        if assignment.partition_index in assignments:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {assignment.partition_index}",
            )
        assignments[assignment.partition_index] = assignment.broker_ids
    return assignments


def _success(created: CreatedTopic) -> dict[str, Any]:
    return {
        "name": created.name,
        "topic_id": created.topic_id,
        **NO_ERROR,
        "topic_config_error_code": ErrorCode.NONE,
        "num_partitions": created.partitions,
        "replication_factor": created.replication_factor,
        "configs": [
            {
                "name": entry.name,
                "value": entry.value,
                "read_only": entry.read_only,
                "config_source": entry.source,
                "is_sensitive": entry.is_sensitive,
            }
            for entry in created.configs
        ],
    }


def _failure(name: str, error: KafkaError) -> dict[str, Any]:
    return {
        "name": name,
        "topic_id": None,
        **error_fields(error),
        "topic_config_error_code": ErrorCode.NONE,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": [],
    }


async def handle_create_partitions(services: Services, context: RequestContext, request: Any) -> Body:
    """CreatePartitions (key 37): give topics more partitions (KIP-195).

    Behaviour (``ReplicationControlManager.createPartitions``): ``count`` is the new total and must be more
    than there are (INVALID_PARTITIONS); a manual assignment names the replicas of the added partitions only.
    A topic that appears twice is INVALID_REQUEST, one without ALTER TOPIC_AUTHORIZATION_FAILED. With
    ``validate_only`` nothing is written. The answer waits for leaders as that of CreateTopics does.

    Versions: 2 flexible; 3 throttling errors: partitions beyond the client's quota are refused (KIP-599).
    """
    quota = MutationQuota(
        services.client_quotas, context, strict_since_version=CREATE_PARTITIONS_STRICT_QUOTA_SINCE
    )
    counts = Counter(topic.name for topic in request.topics)
    alterable = permission(services, context, AclOperation.ALTER, ResourceType.TOPIC)
    results = []
    time_slice = TimeSlice()
    for name, topic in {topic.name: topic for topic in request.topics}.items():
        await time_slice.give_way()
        outcome = NO_ERROR
        try:
            if counts[name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if alterable is not None and not alterable[name]:
                raise topic_denied()
            await services.topics.create_partitions(
                name,
                total=topic.count,
                assignments=_new_assignments(topic),
                validate_only=request.validate_only,
                spend=quota.spend,
            )
            if not request.validate_only:
                await services.topics.wait_for_leaders(
                    name, partitions=topic.count, timeout_ms=request.timeout
                )
        except KafkaError as error:
            outcome = error_fields(error)
        results.append({"name": name} | outcome)
    return {"throttle_time": quota.throttle(), "results": results}


def _new_assignments(topic: Any) -> list[tuple[int, ...]] | None:
    if topic.assignments is None:
        return None
    return [assignment.broker_ids for assignment in topic.assignments]


class _Wanted(NamedTuple):
    """One topic as the request names it; normally one of the two is None."""

    name: str | None
    topic_id: UUID | None


async def handle_delete_topics(services: Services, context: RequestContext, request: Any) -> Body:
    """DeleteTopics (key 20): delete topics by name or by id, each with its own result.

    Behaviour (``ControllerApis.deleteTopics``): a name or an id that comes twice is INVALID_REQUEST, once and
    before all rights, and so are both of a topic that comes by name and by id; unknown ones are
    UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID; with ``delete.topic.enable=false`` everything is
    TOPIC_DELETION_DISABLED (INVALID_REQUEST before version 3, which does not know that code). Without DELETE
    on the cluster or the topic it is TOPIC_AUTHORIZATION_FAILED; of a topic by its id the name is shown to
    who may describe it. A topic is gone when the answer leaves; after ``timeout`` it is REQUEST_TIMED_OUT,
    and the topic goes when the brokers that hold it are there.

    Versions: 4 flexible; 5 error messages and throttling errors: partitions beyond the client's quota are
    refused (KIP-599); 6 topics by id (KIP-516).
    """
    quota = MutationQuota(
        services.client_quotas, context, strict_since_version=DELETE_TOPICS_STRICT_QUOTA_SINCE
    )
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
    for index, late in (await _wait_for_deletion(services, doomed, timeout_ms=request.timeout)).items():
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


async def _wait_for_deletion(
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


async def handle_alter_partition_reassignments(
    services: Services, context: RequestContext, request: Any
) -> Body:
    """AlterPartitionReassignments (key 45): move partitions to other brokers, or take that back (KIP-455).

    Behaviour (``KafkaApis.handleAlterPartitionReassignmentsRequest``): a list of replicas is the whole target
    of a partition, null cancels the reassignment; each partition has its own error. A partition that is named
    twice gets what is said last. The answer comes when the requests are written; the request's timeout is not
    used, the store has its own. Without ALTER on the cluster all is CLUSTER_AUTHORIZATION_FAILED, the whole
    and each partition.

    Versions: 1 may forbid another replication factor (KIP-860).
    """
    allow_replication_factor_change = field(request, "allow_replication_factor_change", True)
    targets = await services.scheduler.finished(_targets(request))
    outcomes: Mapping[TopicPartition, KafkaError | None]
    error = denied_on_cluster(services, context, AclOperation.ALTER)
    if error is None:
        outcomes = await services.reassignments.alter(
            targets, allow_replication_factor_change=allow_replication_factor_change
        )
    else:
        outcomes = dict.fromkeys(targets, error)
    return {
        "throttle_time": 0,
        "allow_replication_factor_change": allow_replication_factor_change,
        **(NO_ERROR if error is None else error_fields(error)),
        "responses": await services.scheduler.finished(_responses(outcomes)),
    }


def _targets(request: Any) -> Steps[dict[TopicPartition, Sequence[int] | None]]:
    targets = {}
    for topic in request.topics:
        for partition in topic.partitions:
            targets[TopicPartition(topic.name, partition.partition_index)] = partition.replicas
            yield
        yield
    return targets


def _responses(outcomes: Mapping[TopicPartition, KafkaError | None]) -> Steps[list[dict[str, Any]]]:
    topics: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for (topic, partition), error in outcomes.items():
        outcome = NO_ERROR if error is None else error_fields(error)
        topics[topic].append({"partition_index": partition} | outcome)
        yield
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]


async def handle_list_partition_reassignments(
    services: Services, context: RequestContext, request: Any
) -> Body:
    """ListPartitionReassignments (key 46): which partitions are on their way to other brokers (KIP-455).

    Behaviour (``KafkaApis.handleListPartitionReassignmentsRequest``): of the partitions that are asked for,
    or of all when the list of topics is null, those that are being moved; all others, unknown ones too, are
    left out. ``replicas`` are all that hold the partition or are to hold it. One that is both added and
    removed was wanted and is not any more, and has not been stopped yet. It needs DESCRIBE on the cluster.
    """
    denied = denied_on_cluster(services, context, AclOperation.DESCRIBE)
    if denied is not None:
        return {"throttle_time": 0, **error_fields(denied), "topics": _as_asked(request)}
    asked = None
    if request.topics is not None:
        asked = [
            TopicPartition(topic.name, partition)
            for topic in request.topics
            for partition in topic.partition_indexes
        ]
    try:
        ongoing = await services.reassignments.ongoing(asked)
    except KafkaError as error:
        return {"throttle_time": 0, **error_fields(error), "topics": []}
    topics: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for (topic, partition), assignment in ongoing.items():
        topics[topic].append(
            {
                "partition_index": partition,
                "replicas": assignment.replicas,
                "adding_replicas": assignment.adding,
                "removing_replicas": assignment.removing,
            }
        )
    return {
        "throttle_time": 0,
        **NO_ERROR,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
    }


def _as_asked(request: Any) -> list[Body]:
    """What was asked for, without an answer (``ListPartitionReassignmentsRequest.getErrorResponse``)."""
    nothing: Body = {"replicas": [], "adding_replicas": [], "removing_replicas": []}
    return [
        {
            "name": topic.name,
            "partitions": [{"partition_index": each, **nothing} for each in topic.partition_indexes],
        }
        for topic in request.topics or ()
    ]


async def handle_elect_leaders(services: Services, context: RequestContext, request: Any) -> Body:
    """ElectLeaders (key 43): elect preferred leaders, or any replica where there is no leader (KIP-183,
    KIP-460).

    Behaviour (``KafkaApis.handleElectLeaders``, ``DelayedElectLeader``): only the controller's broker holds
    elections, all others answer NOT_CONTROLLER for the whole and, because version 0 has no place for that,
    for each partition; so is CLUSTER_AUTHORIZATION_FAILED answered to one without ALTER on the cluster. Each
    partition has its own outcome; of all partitions (a null list) only those for which there was something to
    do. The answer waits until this broker has heard of the new leaders, or for the request's timeout.

    Versions: 0 knows preferred elections only; 1 the election type and an error for the whole; 2 flexible.
    """
    asked = None
    if request.topic_partitions is not None:
        asked = tuple(
            dict.fromkeys(
                TopicPartition(each.topic, partition)
                for each in request.topic_partitions
                for partition in each.partitions
            )
        )
    try:
        require_on_cluster(services, context, AclOperation.ALTER)
        election_type = _election_type(field(request, "election_type", ElectionType.PREFERRED))
        results = await services.controller.elect_leaders(asked, election_type)
    except KafkaError as error:
        return _body(dict.fromkeys(asked or (), error), error_code=error.code)
    elected = [each for each, error in results.items() if error is None]
    unheard = await _unheard(services.metadata, elected, election_type, timeout_ms=request.timeout)
    return _body(results | unheard, error_code=ErrorCode.NONE)


def _election_type(number: int) -> ElectionType:
    try:
        return ElectionType(number)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {number}.") from None


async def _unheard(
    metadata: MetadataCache,
    elected: Iterable[TopicPartition],
    election_type: ElectionType,
    *,
    timeout_ms: int,
) -> dict[TopicPartition, KafkaError]:
    """Those whose new leaders this broker has not heard of in time."""

    def is_heard(topic_partition: TopicPartition) -> bool:
        partition = metadata.partition(topic_partition)
        if partition is None:
            return True  # deleted meanwhile
        if election_type is ElectionType.PREFERRED:
            return partition.leader in partition.replicas[:1]
        return partition.leader != NO_LEADER

    def waiting() -> list[TopicPartition]:
        return [each for each in elected if not is_heard(each)]

    await metadata.wait_for(lambda: not waiting(), timeout_ms=max(timeout_ms, 0))
    return {
        each: KafkaError(
            ErrorCode.REQUEST_TIMED_OUT, f"The leader of {each} was not heard of within {timeout_ms} ms."
        )
        for each in waiting()
    }


def _body(results: Mapping[TopicPartition, KafkaError | None], *, error_code: ErrorCode) -> Body:
    topics: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for (topic, partition), error in sorted(results.items(), key=lambda item: item[0]):
        outcome = NO_ERROR if error is None else error_fields(error)
        topics[topic].append({"partition_id": partition} | outcome)
    return {
        "throttle_time": 0,
        "error_code": error_code,
        "replica_election_results": [
            {"topic": topic, "partition_result": partitions} for topic, partitions in topics.items()
        ],
    }
