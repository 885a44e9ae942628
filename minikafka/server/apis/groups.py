"""Groups: what all kinds of them have, and the classic protocol.

All kinds: FindCoordinator, ListGroups, DeleteGroups (keys 10, 16, 42). The classic protocol: JoinGroup,
SyncGroup, Heartbeat, LeaveGroup, DescribeGroups (keys 11 to 15).
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

from minikafka.coordination.paths import uuid_from_text
from minikafka.coordinator.group.messages import (
    DescribedGroup,
    DescribedMember,
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    LeavingMember,
    ListedGroup,
    SyncGroup,
    SyncGroupResult,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.connection import Result
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import (
    DENIED,
    NOT_ASKED,
    Permission,
    authorized_operations,
    denied,
    denied_on_cluster,
    is_authorized_on_cluster,
    permission,
    require,
)
from minikafka.server.apis.shared.coordinator_requests import (
    AnswerCollector,
    CoordinatorAnswer,
    GroupQuestion,
    answer_of_group,
    ask_group,
    check_group_id,
    client_host,
    client_id,
    describable_topics,
    error_code,
    matched_and_decided,
    outcome,
)
from minikafka.server.coordinator.service import CoordinatorTopic
from minikafka.server.requests import NO_ERROR, RequestContext, error_fields
from minikafka.server.services import Services
from minikafka.steps import ELEMENTS_A_STEP, Steps, each
from minikafka.types import NO_LEADER

KEY_TYPE_GROUP = 0
KEY_TYPE_TRANSACTION = 1
KEY_TYPE_SHARE = 2
FIRST_VERSION_WITH_SHARE_GROUPS = 6
FIRST_VERSION_WITH_SEVERAL_KEYS = 4

_RESOURCE_TYPES = {KEY_TYPE_GROUP: ResourceType.GROUP, KEY_TYPE_TRANSACTION: ResourceType.TRANSACTIONAL_ID}

FIRST_VERSION_WITH_KNOWN_MEMBERS = 4
FIRST_VERSION_WITH_NULL_PROTOCOL = 7
FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT = 9

REASON_LENGTH_MAX = 255
"""``JoinGroupRequest.maybeTruncateReason``."""


def handle_find_coordinator(
    services: Services, context: RequestContext, request: Any
) -> Steps[Body | Coroutine[Any, Any, Body]]:
    """FindCoordinator (key 10): which broker coordinates a consumer group or a transactional id.

    Behaviour (``KafkaApis.handleFindCoordinatorRequest``, ``getCoordinator``):
    - a group or a transactional id: the broker that leads its partition of ``__consumer_offsets`` or
      ``__transaction_state``; COORDINATOR_NOT_AVAILABLE while it has no leader, or for a listener that the
      broker does not have. The first question makes the topic and waits for it
      (``server.coordinator.service``). It needs DESCRIBE: GROUP_AUTHORIZATION_FAILED,
      TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
    - a share partition (version 6), by a key ``group:topicId:partition``: the broker that leads its partition
      of ``__share_group_state``. Brokers ask, so it needs CLUSTER_ACTION. Another key: INVALID_REQUEST.
    - any other kind of key: INVALID_REQUEST.

    Versions: 1 key types and error messages; 3 flexible; 4 several keys at once (KIP-699); 5
    TRANSACTION_ABORTABLE, which is never answered here; 6 share groups (KIP-932).
    """
    key_type = field(request, "key_type", KEY_TYPE_GROUP)
    topic, describable = _topic(services, context, key_type), _permission(services, context, key_type)
    if key_type == KEY_TYPE_SHARE and denied_on_cluster(services, context, AclOperation.CLUSTER_ACTION):
        topic = None
    if topic is not None and not topic.is_there:
        keys = _keys(context, request)
        if describable is None or any(describable[key] for key in keys):
            return _create_first(topic, services, context, request, describable)
    return (yield from _answer(services, context, request, describable))


def _topic(services: Services, context: RequestContext, key_type: int) -> CoordinatorTopic | None:
    if key_type == KEY_TYPE_GROUP:
        return services.groups.topic
    if key_type == KEY_TYPE_SHARE and context.api_version >= FIRST_VERSION_WITH_SHARE_GROUPS:
        return services.shares.topic
    return services.transactions.topic if key_type == KEY_TYPE_TRANSACTION else None


def _permission(services: Services, context: RequestContext, key_type: int) -> Permission | None:
    """To describe what coordinators are asked for; None: nothing is needed, or there is no such type."""
    resource_type = _RESOURCE_TYPES.get(key_type)
    if resource_type is None:
        return None
    return permission(services, context, AclOperation.DESCRIBE, resource_type)


def _keys(context: RequestContext, request: Any) -> Sequence[str]:
    if context.api_version < FIRST_VERSION_WITH_SEVERAL_KEYS:
        return (request.key,)
    keys: Sequence[str] = request.coordinator_keys
    return keys


async def _create_first(
    topic: CoordinatorTopic,
    services: Services,
    context: RequestContext,
    request: Any,
    describable: Permission | None,
) -> Body:
    await topic.create()
    return await services.scheduler.finished(_answer(services, context, request, describable))


def _answer(
    services: Services, context: RequestContext, request: Any, describable: Permission | None
) -> Steps[Body]:
    key_type = field(request, "key_type", KEY_TYPE_GROUP)
    if context.api_version < FIRST_VERSION_WITH_SEVERAL_KEYS:
        return {"throttle_time": 0} | _coordinator(services, context, request.key, key_type, describable)
    coordinators = yield from each(
        lambda key: {"key": key} | _coordinator(services, context, key, key_type, describable),
        request.coordinator_keys,
    )
    return {"throttle_time": 0, "coordinators": coordinators}


def _coordinator(
    services: Services, context: RequestContext, key: str, key_type: int, describable: Permission | None
) -> dict[str, Any]:
    try:
        if describable is not None and not describable[key]:
            raise KafkaError(DENIED[_RESOURCE_TYPES[key_type]])
        if key_type == KEY_TYPE_SHARE:
            _check_share_key(services, context, key)
        topic = _topic(services, context, key_type)
        if topic is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"There is no coordinator for keys of type {key_type}."
            )
        broker = topic.coordinator(key)
        endpoint = broker.endpoint(context.connection.listener_name)
        if endpoint is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")
    except KafkaError as error:
        return {**error_fields(error), "node_id": NO_LEADER, "host": "", "port": -1}
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "node_id": broker.node_id,
        "host": endpoint.host,
        "port": endpoint.port,
    }


def _check_share_key(services: Services, context: RequestContext, key: str) -> None:
    """Raises KafkaError: CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST."""
    error = denied_on_cluster(services, context, AclOperation.CLUSTER_ACTION)
    if error is not None:
        raise error
    try:
        group_id, topic_id, partition = key.rsplit(":", 2)
        uuid_from_text(topic_id)
        is_valid = bool(group_id) and int(partition) >= 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"The key of a share partition is group:topicId:partition, not {key!r}.",
        )


def handle_list_groups(services: Services, context: RequestContext, request: Any) -> Steps[Body]:
    """ListGroups (key 16): the groups that this broker coordinates.

    Behaviour (``GroupCoordinatorService.listGroups``): when one of its partitions is being loaded the whole
    answer is COORDINATOR_LOAD_IN_PROGRESS, because some groups would be missing. Filters do not care about
    case; a state or type that there is none of matches nothing. Groups that the client may not describe are
    left out.

    Versions: 1 throttle time; 3 flexible; 4 states, and a filter by state (KIP-518); 5 types, and a filter by
    type (KIP-848).
    """
    states = {state.lower() for state in field(request, "states_filter", ())}
    types = {kind.lower() for kind in field(request, "types_filter", ())}

    def is_wanted(group: ListedGroup) -> bool:
        return (not states or group.state.lower() in states) and (
            not types or group.group_type.lower() in types
        )

    # DESCRIBE on the cluster shows all of them, as before KIP-88.
    describable = None
    if not is_authorized_on_cluster(services, context, AclOperation.DESCRIBE, logs_denied=False):
        describable = permission(
            services, context, AclOperation.DESCRIBE, ResourceType.GROUP, logs_denied=False
        )
    try:
        groups = []
        for shard in services.groups.shards():
            for group in shard.list_groups():
                if is_wanted(group) and (describable is None or describable[group.group_id]):
                    groups.append(group)
                yield
    except KafkaError as error:
        return {"throttle_time": 0, "error_code": error.code, "groups": []}
    listed = yield from each(_listed, groups)
    return {"throttle_time": 0, "error_code": ErrorCode.NONE, "groups": listed}


def _listed(group: ListedGroup) -> dict[str, Any]:
    return {
        "group_id": group.group_id,
        "protocol_type": group.protocol_type,
        "group_state": group.state,
        "group_type": group.group_type,
    }


def handle_delete_groups(services: Services, context: RequestContext, request: Any) -> Steps[Result]:
    """DeleteGroups (key 42): groups without members go, and their offsets with them (KIP-229).

    Behaviour (``GroupCoordinatorService.deleteGroups``): each group has its own error (GROUP_ID_NOT_FOUND,
    NON_EMPTY_GROUP, NOT_COORDINATOR, GROUP_AUTHORIZATION_FAILED without DELETE, …); the answer leaves when
    all of them are settled. The group id may be empty, as in Kafka.

    Versions: 1 as 0; 2 flexible; 3 an error has a message.
    """
    group_ids = list(dict.fromkeys(request.groups_names))

    def body(results: list[Any]) -> Steps[Body]:
        answers = []
        for group_id, result in zip(group_ids, results, strict=True):
            error = error_fields(result) if isinstance(result, KafkaError) else NO_ERROR
            answers.append({"group_id": group_id, **error})
            yield
        return {"throttle_time": 0, "results": answers}

    answer = CoordinatorAnswer(services, context, body)
    deletable = permission(services, context, AclOperation.DELETE, ResourceType.GROUP)
    collector = AnswerCollector(len(group_ids), answer.answer)
    for index, group_id in enumerate(group_ids):
        ticket = collector.ticket(index)
        if deletable is not None and not deletable[group_id]:
            ticket.answer(KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."))
        else:
            services.groups.ask(group_id, partial(_delete, group_id), ticket)
        yield
    return answer.pending


def _delete(group_id: str, shard: Any, ticket: Any, now_ms: int) -> Any:
    return shard.delete_group(group_id, ticket, now_ms)


def handle_join_group(
    services: Services, context: RequestContext, request: Any
) -> Body | Result | Coroutine[Any, Any, Body]:
    """JoinGroup (key 11): a member joins a classic group, or joins again because the group rebalances.

    Behaviour (``KafkaApis.handleJoinGroupRequest``, ``GroupCoordinatorService.joinGroup``): the answer waits
    until the rebalance has gathered its members, and only the leader's lists them. An empty group id is
    INVALID_GROUP_ID, one without READ GROUP_AUTHORIZATION_FAILED. What else is wrong is for the groups to say
    (``coordinator.group.classic_groups``).

    Versions: 1 a rebalance timeout apart from the session timeout, which before is both; 2 throttle time; 4
    members without an id get one first (KIP-394); 5 group instance ids (KIP-345); 6 flexible; 7 the protocol
    type in the answer, and null for a protocol that is not there; 8 why a member joins (KIP-800); 9 members
    that may skip the assignment (KIP-814). Versions 0 and 1 were gone in 4.0 and came back (KAFKA-19444).
    """
    error = denied(services, context, AclOperation.READ, ResourceType.GROUP, request.group_id)
    if error is not None:
        return _join_group_body(JoinGroupResult(error=error.code, member_id=""), context.api_version)
    if services.groups.regexes_due(request.group_id, has_rules=services.authorizer is not None):
        # It is a KIP-848 group.
        return _with_regexes(services, context, request)
    return ask_group(services, context, *_question(context, request, describable_topics(services, context)))


async def _with_regexes(services: Services, context: RequestContext, request: Any) -> Body:
    describable = await matched_and_decided(services, context, request.group_id)
    return await answer_of_group(services, _question(context, request, describable))


def _question(context: RequestContext, request: Any, describable: Permission | None) -> GroupQuestion:
    version = context.api_version
    join = _join(context, request, describable)

    def call(shard: Any, ticket: Any, now_ms: int) -> Any:
        check_group_id(join.group_id)
        return shard.join_group(join, ticket, now_ms)

    def body(result: JoinGroupResult | KafkaError) -> Body:
        if isinstance(result, KafkaError):
            result = JoinGroupResult(error=result.code, member_id=request.member_id)
        return _join_group_body(result, version)

    return GroupQuestion(join.group_id, call, body)


def _join(context: RequestContext, request: Any, describable: Permission | None) -> JoinGroup:
    version = context.api_version
    group_instance_id = field(request, "group_instance_id", None)
    reason = field(request, "reason", None)
    return JoinGroup(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=group_instance_id,
        client_id=client_id(context),
        client_host=client_host(context),
        session_timeout_ms=request.session_timeout,
        rebalance_timeout_ms=field(request, "rebalance_timeout", request.session_timeout),
        protocol_type=request.protocol_type,
        protocols=tuple((each.name, bytes(each.metadata)) for each in request.protocols),
        requires_known_member_id=version >= FIRST_VERSION_WITH_KNOWN_MEMBERS and group_instance_id is None,
        supports_skipping_assignment=version >= FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT,
        reason=None if reason is None else reason[:REASON_LENGTH_MAX],
        may_describe=None if describable is None else describable.__getitem__,
    )


def _join_group_body(result: JoinGroupResult, version: int) -> Body:
    protocol_name = result.protocol_name
    if protocol_name is None and version < FIRST_VERSION_WITH_NULL_PROTOCOL:
        protocol_name = ""
    return {
        "throttle_time": 0,
        "error_code": result.error,
        "generation_id": result.generation,
        "protocol_type": result.protocol_type,
        "protocol_name": protocol_name,
        "leader": result.leader,
        "skip_assignment": result.skip_assignment,
        "member_id": result.member_id,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "metadata": member.metadata,
            }
            for member in result.members
        ],
    }


FIRST_VERSION_WITH_PROTOCOL = 5


def handle_sync_group(services: Services, context: RequestContext, request: Any) -> Body | Result:
    """SyncGroup (key 14): the leader brings what each member of a classic group is to do, each member fetches
    it.

    Behaviour (``KafkaApis.handleSyncGroupRequest``, ``GroupCoordinatorService.syncGroup``): the answer waits
    for the leader. An empty group id is INVALID_GROUP_ID, one without READ GROUP_AUTHORIZATION_FAILED; since
    version 5 a request that does not name the protocol type and the protocol is INCONSISTENT_GROUP_PROTOCOL.

    Versions: 1 throttle time; 3 group instance ids; 4 flexible; 5 protocol type and name, both ways
    (KIP-559).
    """
    sync = SyncGroup(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        group_instance_id=field(request, "group_instance_id", None),
        protocol_type=field(request, "protocol_type", None),
        protocol_name=field(request, "protocol_name", None),
        assignments={each.member_id: bytes(each.assignment) for each in request.assignments},
    )
    names_protocol = sync.protocol_type is not None and sync.protocol_name is not None
    if context.api_version >= FIRST_VERSION_WITH_PROTOCOL and not names_protocol:
        return _sync_group_body(KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    error = denied(services, context, AclOperation.READ, ResourceType.GROUP, sync.group_id)
    if error is not None:
        return _sync_group_body(error)

    def call(shard: Any, ticket: Any, now_ms: int) -> Any:
        check_group_id(sync.group_id)
        return shard.sync_group(sync, ticket, now_ms)

    return ask_group(services, context, sync.group_id, call, _sync_group_body)


def _sync_group_body(result: SyncGroupResult | KafkaError) -> Body:
    if isinstance(result, KafkaError):
        result = SyncGroupResult(error=result.code)
    return {
        "throttle_time": 0,
        "error_code": result.error,
        "protocol_type": result.protocol_type,
        "protocol_name": result.protocol_name,
        "assignment": result.assignment,
    }


def handle_heartbeat(services: Services, context: RequestContext, request: Any) -> Body | Result:
    """Heartbeat (key 12): a member of a classic group lives.

    Behaviour (``GroupCoordinatorService.heartbeat``): the answer says whether the group rebalances
    (REBALANCE_IN_PROGRESS). While the group is being loaded all is well: its sessions begin when that is
    done. An empty group id is INVALID_GROUP_ID, one without READ GROUP_AUTHORIZATION_FAILED.

    Versions: 1 throttle time; 3 group instance ids; 4 flexible.
    """
    error = refusal(services, context, request)
    if error is not None:
        return _heartbeat_body(error)
    return ask_group(services, context, *question(services, context, request))


def refusal(
    services: Services, context: RequestContext, request: Any, *, logs: bool = True
) -> KafkaError | None:
    """Why who asks may not ask that."""
    return denied(services, context, AclOperation.READ, ResourceType.GROUP, request.group_id, logs=logs)


def question(services: Services, context: RequestContext, request: Any) -> GroupQuestion:
    """What ``request`` asks, the same for all requests with these bytes of this connection."""
    heartbeat = Heartbeat(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        group_instance_id=field(request, "group_instance_id", None),
    )

    def call(shard: Any, ticket: Any, now_ms: int) -> Any:
        check_group_id(heartbeat.group_id)
        return shard.heartbeat(heartbeat, ticket, now_ms)

    return GroupQuestion(heartbeat.group_id, call, _heartbeat_body)


def _heartbeat_body(result: Any) -> Body:
    code = error_code(result)
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        code = ErrorCode.NONE
    return {"throttle_time": 0, "error_code": code}


FIRST_VERSION_WITH_SEVERAL_MEMBERS = 3


def handle_leave_group(services: Services, context: RequestContext, request: Any) -> Body | Result:
    """LeaveGroup (key 13): members leave a classic group, by themselves or by an administrator's hand.

    Behaviour (``GroupCoordinatorService.leaveGroup``, ``LeaveGroupResponse``): each member has its own error;
    before version 3 there is one member, and its error is that of the whole. An empty group id is
    INVALID_GROUP_ID, one without READ GROUP_AUTHORIZATION_FAILED.

    Versions: 1 throttle time; 3 several members, by id or by instance id (KIP-345); 4 flexible; 5 why a
    member leaves (KIP-800).
    """
    leave = LeaveGroup(request.group_id, _members(context, request))

    def body(result: LeaveGroupResult | KafkaError) -> Body:
        if isinstance(result, KafkaError):
            return {"throttle_time": 0, "error_code": result.code, "members": []}
        code = ErrorCode.NONE
        if context.api_version < FIRST_VERSION_WITH_SEVERAL_MEMBERS and result.members:
            _, code = result.members[0]
        return {
            "throttle_time": 0,
            "error_code": code,
            "members": [
                {
                    "member_id": member.member_id,
                    "group_instance_id": member.group_instance_id,
                    "error_code": error,
                }
                for member, error in result.members
            ],
        }

    error = denied(services, context, AclOperation.READ, ResourceType.GROUP, leave.group_id)
    if error is not None:
        return body(error)

    def call(shard: Any, ticket: Any, now_ms: int) -> Any:
        check_group_id(leave.group_id)
        return shard.leave_group(leave, ticket, now_ms)

    return ask_group(services, context, leave.group_id, call, body)


def _members(context: RequestContext, request: Any) -> tuple[LeavingMember, ...]:
    if context.api_version < FIRST_VERSION_WITH_SEVERAL_MEMBERS:
        return (LeavingMember(request.member_id),)
    return tuple(
        LeavingMember(member.member_id, member.group_instance_id, field(member, "reason", None))
        for member in request.members
    )


FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND = 6


DEAD = "Dead"


def handle_describe_groups(services: Services, context: RequestContext, request: Any) -> Steps[Body]:
    """DescribeGroups (key 15): classic groups and their members.

    Behaviour (``KafkaApis.handleDescribeGroupsRequest``, ``GroupMetadataManager.describeGroups``): each group
    has its own error, without DESCRIBE GROUP_AUTHORIZATION_FAILED. A group that is not there, or is one of
    KIP-848, is a group in state Dead without an error; since version 6 it is GROUP_ID_NOT_FOUND, and says so.
    The group id may be empty, as in Kafka. A group that is named again is answered once, unlike Kafka's: all
    its members, for each few bytes.

    Versions: 1 throttle time; 3 authorized operations; 4 group instance ids; 5 flexible; 6 GROUP_ID_NOT_FOUND
    and error messages (KIP-1043).
    """
    asked = field(request, "include_authorized_operations", False)
    groups = []
    for group_id in dict.fromkeys(request.groups):
        group = _describe(services, context, group_id)
        if (
            group.error is ErrorCode.GROUP_ID_NOT_FOUND
            and context.api_version < FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND
        ):
            group = DescribedGroup(group_id=group_id, state=DEAD)
        operations = NOT_ASKED
        if group.error is ErrorCode.NONE:
            operations = authorized_operations(services, context, ResourceType.GROUP, group_id, asked=asked)
        members = yield from each(_member_body, group.members, a_step=ELEMENTS_A_STEP)
        groups.append(
            {
                "error_code": group.error,
                "error_message": group.error_message,
                "group_id": group.group_id,
                "group_state": group.state,
                "protocol_type": group.protocol_type,
                "protocol_data": group.protocol,
                "members": members,
                "authorized_operations": operations,
            }
        )
        yield
    return {"throttle_time": 0, "groups": groups}


def _describe(services: Services, context: RequestContext, group_id: str) -> DescribedGroup:
    def read() -> DescribedGroup:
        require(services, context, AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
        return services.groups.shard_of(group_id).describe_group(group_id)

    found = outcome(read)
    if isinstance(found, KafkaError):
        state = DEAD if found.code is ErrorCode.GROUP_ID_NOT_FOUND else ""
        return DescribedGroup(group_id=group_id, error=found.code, error_message=found.message, state=state)
    return found


def _member_body(member: DescribedMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_metadata": member.metadata,
        "member_assignment": member.assignment,
    }
