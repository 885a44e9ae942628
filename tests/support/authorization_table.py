"""Kafka's authorisation table as data: which API needs what, and how it is refused without.

Source: ``KafkaApis``, ``ControllerApis``, ``AuthHelper`` and ``ConfigHelper`` of Apache Kafka 4.3, and
``KafkaApis`` of 3.9 for the requests of a controller to its brokers. ``test_authorization`` goes through it.

A request is written once, with the fields of all versions; who sends it leaves out those that a version does
not have, and puts what exists in its world in the place of a ``Given``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from minikafka.errors import ErrorCode
from minikafka.protocol.control import (
    ControlledShutdownRequest,
    ControlRequest,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from minikafka.protocol.wire.api_versions import BETWEEN_BROKERS, SUPPORTED, ApiKey, VersionRange
from minikafka.protocol.wire.schema import EntitySchema
from minikafka.security.acl import CLUSTER_NAME, AclOperation, ResourceType
from minikafka.types import BrokerId
from tests.support.fake_authorizer import Right

TOPIC, GROUP, MODERN_GROUP, TRANSACTIONAL_ID, DOOMED = "orders", "readers", "modern", "t", "doomed"
"""What the world of the table has: a topic of two partitions, a group with an offset of its first partition,
a group of KIP-848 with a member that owns its partitions, a transaction that has its first partition; and a
topic that is there again before each request."""
ABSENT = "absent"
"""A topic that there is not."""
OWNER, TOKEN_ID = "User:owner", "the id of the token"
"""A user with a delegation token, and what the id of this token, which is random, stands for in a right."""


SPOKEN: Final[Mapping[ApiKey, VersionRange]] = {**SUPPORTED, **BETWEEN_BROKERS}


class Given(Enum):
    TOPIC_ID = "the id of TOPIC"
    DOOMED_ID = "the id of DOOMED"
    RECORDS = "a batch"
    TRANSACTIONAL_RECORDS = "a transactional batch"


class Rule(NamedTuple):
    """What a request of an API needs."""

    api: ApiKey
    needs: tuple[Right, ...]
    """Each of them alone is enough."""
    error: ErrorCode | None
    """Without it; None: what needs it is left out."""
    at: str
    """Where the error stands, or what is left out: names of fields, ``[]`` after those of lists."""
    body: Mapping[str, Any] | ControlRequest
    given: tuple[Right, ...] = ()
    """What who asks may do already."""
    versions: VersionRange | None = None
    """None: all that this broker speaks."""

    def __str__(self) -> str:
        right = self.needs[0]
        return f"{self.api.name}-{right.operation.name}-{right.resource_type.name}-{self.at}"

    def spoken(self) -> range:
        """The versions that it holds for."""
        versions = self.versions or SPOKEN[self.api]
        return range(versions.min, versions.max + 1)

    def is_refused(self, found: Collection[Any]) -> bool:
        """Whether that is what stands at ``at`` for one who has not the right, all of it."""
        return not found if self.error is None else set(found) == {self.error}

    def is_allowed(self, found: Collection[Any]) -> bool:
        """Whether nothing of it is. Other errors are none of the authorisation."""
        return bool(found) if self.error is None else self.error not in found


def filled(value: Any, given: Mapping[Given, Any]) -> Any:
    """``value`` with what is there in the place of each ``Given``."""
    match value:
        case Given():
            return given[value]
        case Mapping():
            return {name: filled(each, given) for name, each in value.items()}
        case list():
            return [filled(each, given) for each in value]
    return value


def fitting(schema: EntitySchema, body: Mapping[str, Any]) -> dict[str, Any]:
    """``body`` without what the version does not have."""
    fitted = {}
    for field in schema.fields:
        if field.name in body:
            value = body[field.name]
            if field.entity is not None and value is not None:
                entity = field.entity
                if field.is_array:
                    value = [fitting(entity, each) for each in value]
                else:
                    value = fitting(entity, value)
            fitted[field.name] = value
    return fitted


def found_at(entity: Any, path: str) -> list[Any]:
    """All that stand there."""
    entities = [entity]
    for name in path.split("."):
        entities = [getattr(each, name.removesuffix("[]")) for each in entities]
        if name.endswith("[]"):
            entities = [each for list_ in entities for each in list_]
    return entities


def on_topic(operation: AclOperation, name: str = TOPIC) -> Right:
    return Right(operation, ResourceType.TOPIC, name)


def on_group(operation: AclOperation, name: str = GROUP) -> Right:
    return Right(operation, ResourceType.GROUP, name)


def on_transactional_id(operation: AclOperation) -> Right:
    return Right(operation, ResourceType.TRANSACTIONAL_ID, TRANSACTIONAL_ID)


def on_cluster(operation: AclOperation) -> Right:
    return Right(operation, ResourceType.CLUSTER, CLUSTER_NAME)


_READ, _WRITE, _CREATE, _DELETE = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
)
_ALTER, _DESCRIBE, _CLUSTER_ACTION = AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION
_DESCRIBE_CONFIGS, _ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
_NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_NO_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
_NO_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_NO_TRANSACTION = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

_NO_TOKEN = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED

_PARTITIONS = "topics[].partitions[].error_code"
_INT_MAX = 2**31 - 1


def _produce(records: Given, transactional_id: str | None) -> Mapping[str, Any]:
    partition = {"index": 0, "records": records}
    topic = {"name": TOPIC, "topic_id": Given.TOPIC_ID, "partition_data": [partition]}
    return {"transactional_id": transactional_id, "acks": 1, "timeout": 1000, "topic_data": [topic]}


def _fetch(replica_id: int) -> Mapping[str, Any]:
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }
    return {
        "replica_id": replica_id,
        "replica_state": {"replica_id": replica_id, "replica_epoch": -1},
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": TOPIC, "topic_id": Given.TOPIC_ID, "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
        "cluster_id": None,
    }


def _metadata(topics: Any, *, creates: bool = False) -> Mapping[str, Any]:
    return {
        "topics": topics,
        "allow_auto_topic_creation": creates,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }


_OFFSET = {
    "partition_index": 0,
    "committed_offset": 1,
    "committed_leader_epoch": -1,
    "committed_metadata": "",
}
_COMMIT = {
    "group_id": GROUP,
    "generation_id_or_member_epoch": -1,
    "member_id": "",
    "group_instance_id": None,
    "retention_time": -1,
    "topics": [{"name": TOPIC, "topic_id": Given.TOPIC_ID, "partitions": [_OFFSET]}],
}
_TXN_COMMIT = {
    "transactional_id": TRANSACTIONAL_ID,
    "group_id": GROUP,
    "producer_id": 999,
    "producer_epoch": 0,
    "generation_id_or_member_epoch": -1,
    "member_id": "",
    "group_instance_id": None,
    "topics": [{"name": TOPIC, "topic_id": Given.TOPIC_ID, "partitions": [_OFFSET]}],
}
_OFFSETS_OF_GROUP = {
    "group_id": GROUP,
    "member_id": None,
    "member_epoch": -1,
    "topics": [{"name": TOPIC, "topic_id": Given.TOPIC_ID, "partition_indexes": [0]}],
}
_OFFSET_FETCH = {**_OFFSETS_OF_GROUP, "groups": [_OFFSETS_OF_GROUP], "require_stable": False}
_ALL_OFFSETS = {"groups": [_OFFSETS_OF_GROUP | {"topics": None}], "require_stable": False}
_MEMBER = {"group_id": GROUP, "generation_id": 1, "member_id": "m", "group_instance_id": None}
_JOIN = {
    "group_id": GROUP,
    "session_timeout": 1,
    "rebalance_timeout": 1,
    "member_id": "",
    "group_instance_id": None,
    "protocol_type": "consumer",
    "protocols": [],
    "reason": None,
}
_MODERN = {
    "group_id": MODERN_GROUP,
    "member_id": "stranger",
    "member_epoch": 7,
    "instance_id": None,
    "rack_id": None,
    "rebalance_timeout": -1,
    "subscribed_topic_names": None,
    "subscribed_topic_regex": None,
    "server_assignor": None,
    "topic_partitions": None,
}
SHARE_GROUP = "share-group"
_SHARE_FETCH = {
    "group_id": SHARE_GROUP,
    "member_id": "member",
    "share_session_epoch": 0,
    "max_wait": 0,
    "min_bytes": 0,
    "max_bytes": 1000,
    "max_records": 1,
    "batch_size": 1,
    "share_acquire_mode": 0,
    "is_renew_ack": False,
    "topics": [
        {
            "topic_id": Given.TOPIC_ID,
            "partitions": [{"partition_index": 0, "acknowledgement_batches": []}],
        }
    ],
    "forgotten_topics_data": [],
}
_SHARE = {
    "group_id": SHARE_GROUP,
    "member_id": "member",
    "member_epoch": 1,
    "rack_id": None,
    "subscribed_topic_names": None,
}
STREAMS_GROUP = "streams-group"
_STREAMS = {
    "group_id": STREAMS_GROUP,
    "member_id": "member",
    "member_epoch": 1,
    "endpoint_information_epoch": -1,
    "instance_id": None,
    "rack_id": None,
    "rebalance_timeout": 1_000,
    "topology": None,
    "active_tasks": None,
    "standby_tasks": None,
    "warmup_tasks": None,
    "process_id": None,
    "user_endpoint": None,
    "client_tags": None,
    "task_offsets": None,
    "task_end_offsets": None,
    "shutdown_application": False,
}
_TOPOLOGY = {
    "epoch": 0,
    "subtopologies": [
        {
            "subtopology_id": "0",
            "source_topics": [TOPIC],
            "source_topic_regex": [],
            "state_changelog_topics": [],
            "repartition_sink_topics": [],
            "repartition_source_topics": [],
            "copartition_groups": [],
        }
    ],
}
_OFFSET_DELETE = {"group_id": GROUP, "topics": [{"name": TOPIC, "partitions": [{"partition_index": 1}]}]}
_ADD_PARTITIONS = {
    "v3_and_below_transactional_id": TRANSACTIONAL_ID,
    "v3_and_below_producer_id": 999,
    "v3_and_below_producer_epoch": 0,
    "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
}
_ADD_PARTITIONS_BATCH = {
    "transactional_id": TRANSACTIONAL_ID,
    "producer_id": 999,
    "producer_epoch": 0,
    "verify_only": False,
    "topics": [{"name": TOPIC, "partitions": [0]}],
}
_ADDED = "results_by_topic_v3_and_below[].results_by_partition[].partition_error_code"
_PRODUCER = {"transactional_id": TRANSACTIONAL_ID, "producer_id": 999, "producer_epoch": 0}
_MARKER = {
    "producer_id": 999,
    "producer_epoch": 0,
    "transaction_result": True,
    "coordinator_epoch": 0,
    "transaction_version": 0,
    "topics": [{"name": ABSENT, "partition_indexes": [0]}],
}
_NEW_TOPIC = {"name": ABSENT, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
_CREATE_TOPICS = {"topics": [_NEW_TOPIC], "timeout": 1000, "validate_only": True}


def _config(resource_type: int, name: str) -> Mapping[str, Any]:
    resource = {
        "resource_type": resource_type,
        "resource_name": name,
        "configs": [],
        "configuration_keys": None,
    }
    return {
        "resources": [resource],
        "validate_only": True,
        "include_synonyms": False,
        "include_documentation": False,
    }


_ANY_ACL = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": "User:nobody",
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
_INVALID_ACL = {
    "resource_type": ResourceType.CLUSTER,
    "resource_name": "another cluster",
    "resource_pattern_type": 3,
    "principal": "User:nobody",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
"""There is one cluster: nothing is created."""
_TOKEN_OWNER = {"principal_type": "User", "principal_name": OWNER.removeprefix("User:")}
_INVALID_TOKEN = {
    "owner_principal_type": "User",
    "owner_principal_name": OWNER.removeprefix("User:"),
    "renewers": [{"principal_type": "Group", "principal_name": "all"}],
    "max_lifetime": 1000,
}
"""A renewer that is no user: nothing is created."""

_STOP_REPLICA = StopReplicaRequest(BrokerId(1), 0, 0, ())
_LEADER_AND_ISR = LeaderAndIsrRequest(BrokerId(1), 0, 0, (), ())
_UPDATE_METADATA = UpdateMetadataRequest(BrokerId(1), 0, 0, (), ())
"""Meant for a broker that has been started anew since."""

RULES: Final = (
    Rule(
        ApiKey.PRODUCE,
        (on_topic(_WRITE),),
        _NO_TOPIC,
        "responses[].partition_responses[].error_code",
        _produce(Given.RECORDS, None),
    ),
    Rule(
        ApiKey.PRODUCE,
        (on_transactional_id(_WRITE),),
        _NO_TRANSACTION,
        "responses[].partition_responses[].error_code",
        _produce(Given.TRANSACTIONAL_RECORDS, TRANSACTIONAL_ID),
        given=(on_topic(_WRITE),),
    ),
    Rule(ApiKey.FETCH, (on_topic(_READ),), _NO_TOPIC, "responses[].partitions[].error_code", _fetch(-1)),
    Rule(
        ApiKey.FETCH,
        (on_cluster(_CLUSTER_ACTION),),
        _NO_TOPIC,
        "responses[].partitions[].error_code",
        _fetch(2),
        given=(on_topic(_READ),),
    ),
    Rule(
        ApiKey.SHARE_FETCH,
        (on_group(_READ, SHARE_GROUP),),
        _NO_GROUP,
        "error_code",
        _SHARE_FETCH,
        given=(on_topic(_READ),),
    ),
    Rule(
        ApiKey.SHARE_FETCH,
        (on_topic(_READ),),
        _NO_TOPIC,
        "responses[].partitions[].error_code",
        _SHARE_FETCH,
        given=(on_group(_READ, SHARE_GROUP),),
    ),
    Rule(
        ApiKey.SHARE_ACKNOWLEDGE,
        (on_group(_READ, SHARE_GROUP),),
        _NO_GROUP,
        "error_code",
        {
            "group_id": SHARE_GROUP,
            "member_id": "member",
            "share_session_epoch": 1,
            "is_renew_ack": False,
            "topics": [],
        },
    ),
    *(
        Rule(
            api,
            (on_cluster(_CLUSTER_ACTION),),
            _NO_CLUSTER,
            "results[].partitions[].error_code",
            {
                "group_id": SHARE_GROUP,
                "topics": [{"topic_id": Given.TOPIC_ID, "partitions": [{"partition": 0, **fields}]}],
            },
        )
        for api, fields in (
            (ApiKey.INITIALIZE_SHARE_GROUP_STATE, {"state_epoch": 0, "start_offset": 0}),
            (ApiKey.READ_SHARE_GROUP_STATE, {"leader_epoch": 0}),
            (
                ApiKey.WRITE_SHARE_GROUP_STATE,
                {
                    "state_epoch": 0,
                    "leader_epoch": 0,
                    "start_offset": 0,
                    "delivery_complete_count": 0,
                    "state_batches": [],
                },
            ),
            (ApiKey.DELETE_SHARE_GROUP_STATE, {}),
            (ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, {"leader_epoch": 0}),
        )
    ),
    Rule(
        ApiKey.LIST_OFFSETS,
        (on_topic(_DESCRIBE),),
        _NO_TOPIC,
        _PARTITIONS,
        {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [
                {
                    "name": TOPIC,
                    "partitions": [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}],
                }
            ],
            "timeout": 1000,
        },
    ),
    Rule(
        ApiKey.METADATA,
        (on_topic(_DESCRIBE),),
        _NO_TOPIC,
        "topics[].error_code",
        _metadata([{"name": TOPIC, "topic_id": None}]),
    ),
    Rule(
        ApiKey.METADATA,
        (on_topic(_DESCRIBE),),
        _NO_TOPIC,
        "topics[].error_code",
        _metadata([{"name": None, "topic_id": Given.TOPIC_ID}]),
        versions=VersionRange(12, 13),
    ),
    Rule(
        ApiKey.METADATA,
        (on_topic(_CREATE, ABSENT), on_cluster(_CREATE)),
        _NO_TOPIC,
        "topics[].error_code",
        _metadata([{"name": ABSENT, "topic_id": None}], creates=True),
        given=(on_topic(_DESCRIBE, ABSENT),),
    ),
    Rule(
        ApiKey.METADATA,
        (on_topic(_DESCRIBE),),
        None,
        "topics[].name",
        _metadata(None),
        versions=VersionRange(1, 13),
    ),
    Rule(
        ApiKey.METADATA,
        (on_topic(_DESCRIBE),),
        None,
        "topics[].name",
        _metadata([]),
        versions=VersionRange(0, 0),
    ),
    Rule(ApiKey.LEADER_AND_ISR, (on_cluster(_CLUSTER_ACTION),), _NO_CLUSTER, "error_code", _LEADER_AND_ISR),
    Rule(ApiKey.STOP_REPLICA, (on_cluster(_CLUSTER_ACTION),), _NO_CLUSTER, "error_code", _STOP_REPLICA),
    Rule(ApiKey.UPDATE_METADATA, (on_cluster(_CLUSTER_ACTION),), _NO_CLUSTER, "error_code", _UPDATE_METADATA),
    Rule(
        ApiKey.CONTROLLED_SHUTDOWN,
        (on_cluster(_CLUSTER_ACTION),),
        _NO_CLUSTER,
        "error_code",
        ControlledShutdownRequest(BrokerId(99), 0),
    ),
    Rule(
        ApiKey.ALTER_PARTITION,
        (on_cluster(_CLUSTER_ACTION),),
        _NO_CLUSTER,
        "error_code",
        {"broker_id": 99, "broker_epoch": 0, "topics": []},
    ),
    Rule(
        ApiKey.ALLOCATE_PRODUCER_IDS,
        (on_cluster(_CLUSTER_ACTION),),
        _NO_CLUSTER,
        "error_code",
        {"broker_id": 99, "broker_epoch": 0},
    ),
    Rule(ApiKey.OFFSET_COMMIT, (on_group(_READ),), _NO_GROUP, _PARTITIONS, _COMMIT),
    Rule(
        ApiKey.OFFSET_COMMIT,
        (on_topic(_READ),),
        _NO_TOPIC,
        _PARTITIONS,
        _COMMIT,
        given=(on_group(_READ),),
    ),
    Rule(
        ApiKey.OFFSET_FETCH,
        (on_group(_DESCRIBE),),
        _NO_GROUP,
        _PARTITIONS,
        _OFFSET_FETCH,
        given=(on_topic(_DESCRIBE),),
        versions=VersionRange(1, 1),
    ),
    Rule(
        ApiKey.OFFSET_FETCH,
        (on_group(_DESCRIBE),),
        _NO_GROUP,
        "error_code",
        _OFFSET_FETCH,
        versions=VersionRange(2, 7),
    ),
    Rule(
        ApiKey.OFFSET_FETCH,
        (on_group(_DESCRIBE),),
        _NO_GROUP,
        "groups[].error_code",
        _OFFSET_FETCH,
        versions=VersionRange(8, 10),
    ),
    Rule(
        ApiKey.OFFSET_FETCH,
        (on_topic(_DESCRIBE),),
        _NO_TOPIC,
        _PARTITIONS,
        _OFFSET_FETCH,
        given=(on_group(_DESCRIBE),),
        versions=VersionRange(1, 7),
    ),
    Rule(
        ApiKey.OFFSET_FETCH,
        (on_topic(_DESCRIBE),),
        _NO_TOPIC,
        "groups[].topics[].partitions[].error_code",
        _OFFSET_FETCH,
        given=(on_group(_DESCRIBE),),
        versions=VersionRange(8, 10),
    ),
    Rule(
        ApiKey.OFFSET_FETCH,
        (on_topic(_DESCRIBE),),
        None,
        "groups[].topics[].name",
        _ALL_OFFSETS,
        given=(on_group(_DESCRIBE),),
        versions=VersionRange(8, 9),
    ),
    Rule(
        ApiKey.OFFSET_FETCH,
        (on_topic(_DESCRIBE),),
        None,
        "groups[].topics[].topic_id",
        _ALL_OFFSETS,
        given=(on_group(_DESCRIBE),),
        versions=VersionRange(10, 10),
    ),
    Rule(
        ApiKey.FIND_COORDINATOR,
        (on_group(_DESCRIBE),),
        _NO_GROUP,
        "error_code",
        {"key": GROUP, "key_type": 0},
        versions=VersionRange(0, 3),
    ),
    Rule(
        ApiKey.FIND_COORDINATOR,
        (on_group(_DESCRIBE),),
        _NO_GROUP,
        "coordinators[].error_code",
        {"coordinator_keys": [GROUP], "key_type": 0},
        versions=VersionRange(4, 6),
    ),
    Rule(
        ApiKey.FIND_COORDINATOR,
        (on_transactional_id(_DESCRIBE),),
        _NO_TRANSACTION,
        "error_code",
        {"key": TRANSACTIONAL_ID, "key_type": 1},
        versions=VersionRange(1, 3),
    ),
    Rule(
        ApiKey.FIND_COORDINATOR,
        (on_transactional_id(_DESCRIBE),),
        _NO_TRANSACTION,
        "coordinators[].error_code",
        {"coordinator_keys": [TRANSACTIONAL_ID], "key_type": 1},
        versions=VersionRange(4, 6),
    ),
    Rule(ApiKey.JOIN_GROUP, (on_group(_READ),), _NO_GROUP, "error_code", _JOIN),
    Rule(ApiKey.HEARTBEAT, (on_group(_READ),), _NO_GROUP, "error_code", _MEMBER),
    Rule(
        ApiKey.LEAVE_GROUP,
        (on_group(_READ),),
        _NO_GROUP,
        "error_code",
        _MEMBER | {"members": [{"member_id": "m", "group_instance_id": None, "reason": None}]},
    ),
    Rule(
        ApiKey.SYNC_GROUP,
        (on_group(_READ),),
        _NO_GROUP,
        "error_code",
        _MEMBER | {"protocol_type": "consumer", "protocol_name": "range", "assignments": []},
    ),
    Rule(
        ApiKey.DESCRIBE_GROUPS,
        (on_group(_DESCRIBE),),
        _NO_GROUP,
        "groups[].error_code",
        {"groups": [GROUP], "include_authorized_operations": False},
    ),
    Rule(
        ApiKey.LIST_GROUPS,
        (on_group(_DESCRIBE), on_cluster(_DESCRIBE)),
        None,
        "groups[].group_id",
        {"states_filter": [], "types_filter": []},
    ),
    Rule(
        ApiKey.CREATE_TOPICS,
        (on_topic(_CREATE, ABSENT), on_cluster(_CREATE)),
        _NO_TOPIC,
        "topics[].error_code",
        _CREATE_TOPICS,
    ),
    Rule(
        ApiKey.CREATE_TOPICS,
        (on_topic(_DESCRIBE_CONFIGS, ABSENT),),
        _NO_TOPIC,
        "topics[].topic_config_error_code",
        _CREATE_TOPICS,
        given=(on_cluster(_CREATE),),
        versions=VersionRange(5, 7),
    ),
    Rule(
        ApiKey.DELETE_TOPICS,
        (on_topic(_DELETE, DOOMED), on_cluster(_DELETE)),
        _NO_TOPIC,
        "responses[].error_code",
        {"topic_names": [DOOMED], "topics": [{"name": DOOMED, "topic_id": None}], "timeout": 10_000},
        given=(on_topic(_DESCRIBE, DOOMED),),
    ),
    Rule(
        ApiKey.DELETE_TOPICS,
        (on_topic(_DELETE, DOOMED), on_cluster(_DELETE)),
        _NO_TOPIC,
        "responses[].error_code",
        {"topics": [{"name": None, "topic_id": Given.DOOMED_ID}], "timeout": 10_000},
        given=(on_topic(_DESCRIBE, DOOMED),),
        versions=VersionRange(6, 6),
    ),
    Rule(
        ApiKey.DELETE_TOPICS,
        (on_topic(_DESCRIBE, ABSENT),),
        _NO_TOPIC,
        "responses[].error_code",
        {"topic_names": [ABSENT], "topics": [{"name": ABSENT, "topic_id": None}], "timeout": 1000},
    ),
    Rule(
        ApiKey.DELETE_RECORDS,
        (on_topic(_DELETE),),
        _NO_TOPIC,
        _PARTITIONS,
        {
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 0}]}],
            "timeout": 1000,
        },
    ),
    Rule(
        ApiKey.INIT_PRODUCER_ID,
        (on_cluster(AclOperation.IDEMPOTENT_WRITE), on_topic(_WRITE, "any")),
        _NO_CLUSTER,
        "error_code",
        {"transactional_id": None, "transaction_timeout": 1, "producer_id": -1, "producer_epoch": -1},
    ),
    Rule(
        ApiKey.INIT_PRODUCER_ID,
        (on_transactional_id(_WRITE),),
        _NO_TRANSACTION,
        "error_code",
        {
            "transactional_id": TRANSACTIONAL_ID,
            "transaction_timeout": _INT_MAX,
            "producer_id": -1,
            "producer_epoch": -1,
        },
    ),
    Rule(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        (on_topic(_DESCRIBE), on_cluster(_CLUSTER_ACTION)),
        _NO_TOPIC,
        _PARTITIONS,
        {
            "replica_id": -1,
            "topics": [
                {
                    "topic": TOPIC,
                    "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}],
                }
            ],
        },
    ),
    Rule(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        (on_transactional_id(_WRITE),),
        _NO_TRANSACTION,
        _ADDED,
        _ADD_PARTITIONS,
        given=(on_topic(_WRITE),),
        versions=VersionRange(0, 3),
    ),
    Rule(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        (on_topic(_WRITE),),
        _NO_TOPIC,
        _ADDED,
        _ADD_PARTITIONS,
        given=(on_transactional_id(_WRITE),),
        versions=VersionRange(0, 3),
    ),
    Rule(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        (on_cluster(_CLUSTER_ACTION),),
        _NO_CLUSTER,
        "error_code",
        {"transactions": [_ADD_PARTITIONS_BATCH]},
        versions=VersionRange(4, 5),
    ),
    Rule(
        ApiKey.ADD_OFFSETS_TO_TXN,
        (on_transactional_id(_WRITE),),
        _NO_TRANSACTION,
        "error_code",
        _PRODUCER | {"group_id": GROUP},
        given=(on_group(_READ),),
    ),
    Rule(
        ApiKey.ADD_OFFSETS_TO_TXN,
        (on_group(_READ),),
        _NO_GROUP,
        "error_code",
        _PRODUCER | {"group_id": GROUP},
        given=(on_transactional_id(_WRITE),),
    ),
    Rule(
        ApiKey.END_TXN,
        (on_transactional_id(_WRITE),),
        _NO_TRANSACTION,
        "error_code",
        _PRODUCER | {"committed": True},
    ),
    Rule(
        ApiKey.WRITE_TXN_MARKERS,
        (on_cluster(_CLUSTER_ACTION), on_cluster(_ALTER)),
        _NO_CLUSTER,
        "markers[].topics[].partitions[].error_code",
        {"markers": [_MARKER]},
    ),
    Rule(
        ApiKey.TXN_OFFSET_COMMIT,
        (on_transactional_id(_WRITE),),
        _NO_TRANSACTION,
        _PARTITIONS,
        _TXN_COMMIT,
        given=(on_group(_READ), on_topic(_READ)),
    ),
    Rule(
        ApiKey.TXN_OFFSET_COMMIT,
        (on_group(_READ),),
        _NO_GROUP,
        _PARTITIONS,
        _TXN_COMMIT,
        given=(on_transactional_id(_WRITE), on_topic(_READ)),
    ),
    Rule(
        ApiKey.TXN_OFFSET_COMMIT,
        (on_topic(_READ),),
        _NO_TOPIC,
        _PARTITIONS,
        _TXN_COMMIT,
        given=(on_transactional_id(_WRITE), on_group(_READ)),
    ),
    *(
        Rule(api, (needs,), error, at, _config(resource_type, name))
        for api, operation, at in (
            (ApiKey.DESCRIBE_CONFIGS, _DESCRIBE_CONFIGS, "results[].error_code"),
            (ApiKey.ALTER_CONFIGS, _ALTER_CONFIGS, "responses[].error_code"),
            (ApiKey.INCREMENTAL_ALTER_CONFIGS, _ALTER_CONFIGS, "responses[].error_code"),
        )
        for resource_type, name, needs, error in (
            (2, TOPIC, on_topic(operation), _NO_TOPIC),
            (4, "1", on_cluster(operation), _NO_CLUSTER),
            (16, "subscription", on_cluster(operation), _NO_CLUSTER),
            (32, GROUP, on_group(operation), _NO_GROUP),
        )
    ),
    Rule(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        (on_cluster(_ALTER),),
        _NO_CLUSTER,
        "results[].partitions[].error_code",
        {"dirs": [{"path": "/absent", "topics": [{"name": TOPIC, "partitions": [0]}]}]},
    ),
    Rule(
        ApiKey.DESCRIBE_LOG_DIRS,
        (on_cluster(_DESCRIBE),),
        None,
        "results[].log_dir",
        {"topics": None},
    ),
    Rule(
        ApiKey.DESCRIBE_LOG_DIRS,
        (on_cluster(_DESCRIBE),),
        _NO_CLUSTER,
        "error_code",
        {"topics": None},
        versions=VersionRange(3, 4),
    ),
    Rule(
        ApiKey.CREATE_PARTITIONS,
        (on_topic(_ALTER),),
        _NO_TOPIC,
        "results[].error_code",
        {
            "topics": [{"name": TOPIC, "count": 3, "assignments": None}],
            "timeout": 1000,
            "validate_only": True,
        },
    ),
    Rule(
        ApiKey.DELETE_GROUPS,
        (on_group(_DELETE, ABSENT),),
        _NO_GROUP,
        "results[].error_code",
        {"groups_names": [ABSENT]},
    ),
    Rule(
        ApiKey.ELECT_LEADERS,
        (on_cluster(_ALTER),),
        _NO_CLUSTER,
        "replica_election_results[].partition_result[].error_code",
        {"election_type": 0, "topic_partitions": [{"topic": TOPIC, "partitions": [0]}], "timeout": 1000},
    ),
    Rule(
        ApiKey.ELECT_LEADERS,
        (on_cluster(_ALTER),),
        _NO_CLUSTER,
        "error_code",
        {"election_type": 0, "topic_partitions": None, "timeout": 1000},
        versions=VersionRange(1, 2),
    ),
    *(
        Rule(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            (on_cluster(_ALTER),),
            _NO_CLUSTER,
            at,
            {
                "timeout": 1000,
                "allow_replication_factor_change": True,
                "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": None}]}],
            },
        )
        for at in ("error_code", "responses[].partitions[].error_code")
    ),
    Rule(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        (on_cluster(_DESCRIBE),),
        _NO_CLUSTER,
        "error_code",
        {"timeout": 1000, "topics": None},
    ),
    Rule(ApiKey.OFFSET_DELETE, (on_group(_DELETE),), _NO_GROUP, "error_code", _OFFSET_DELETE),
    Rule(
        ApiKey.OFFSET_DELETE,
        (on_topic(_READ),),
        _NO_TOPIC,
        _PARTITIONS,
        _OFFSET_DELETE,
        given=(on_group(_DELETE),),
    ),
    Rule(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        (on_cluster(_DESCRIBE_CONFIGS),),
        _NO_CLUSTER,
        "error_code",
        {"components": [], "strict": False},
    ),
    Rule(
        ApiKey.ALTER_CLIENT_QUOTAS,
        (on_cluster(_ALTER_CONFIGS),),
        _NO_CLUSTER,
        "entries[].error_code",
        {
            "entries": [
                {"entity": [{"entity_type": "user", "entity_name": name}], "ops": []} for name in "ab"
            ],
            "validate_only": True,
        },
    ),
    Rule(
        ApiKey.DESCRIBE_QUORUM,
        (on_cluster(_DESCRIBE),),
        _NO_CLUSTER,
        "error_code",
        {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
    ),
    Rule(
        ApiKey.UPDATE_FEATURES,
        (on_cluster(_ALTER),),
        _NO_CLUSTER,
        "error_code",
        {"timeout": 1000, "feature_updates": [], "validate_only": True},
    ),
    Rule(ApiKey.UNREGISTER_BROKER, (on_cluster(_ALTER),), _NO_CLUSTER, "error_code", {"broker_id": 7}),
    Rule(
        ApiKey.DESCRIBE_PRODUCERS,
        (on_topic(_READ),),
        _NO_TOPIC,
        _PARTITIONS,
        {"topics": [{"name": TOPIC, "partition_indexes": [0]}]},
    ),
    Rule(
        ApiKey.DESCRIBE_TRANSACTIONS,
        (on_transactional_id(_DESCRIBE),),
        _NO_TRANSACTION,
        "transaction_states[].error_code",
        {"transactional_ids": [TRANSACTIONAL_ID]},
    ),
    Rule(
        ApiKey.DESCRIBE_TRANSACTIONS,
        (on_topic(_DESCRIBE),),
        None,
        "transaction_states[].topics[].topic",
        {"transactional_ids": [TRANSACTIONAL_ID]},
        given=(on_transactional_id(_DESCRIBE),),
    ),
    Rule(
        ApiKey.LIST_TRANSACTIONS,
        (on_transactional_id(_DESCRIBE),),
        None,
        "transaction_states[].transactional_id",
        {
            "state_filters": [],
            "producer_id_filters": [],
            "duration_filter": -1,
            "transactional_id_pattern": None,
        },
    ),
    Rule(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        (on_group(_READ, MODERN_GROUP),),
        _NO_GROUP,
        "error_code",
        _MODERN,
    ),
    Rule(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        (on_topic(_DESCRIBE),),
        _NO_TOPIC,
        "error_code",
        _MODERN | {"subscribed_topic_names": [TOPIC]},
        given=(on_group(_READ, MODERN_GROUP),),
    ),
    Rule(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        (on_group(_DESCRIBE, MODERN_GROUP),),
        _NO_GROUP,
        "groups[].error_code",
        {"group_ids": [MODERN_GROUP], "include_authorized_operations": False},
        given=(on_topic(_DESCRIBE),),
    ),
    Rule(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        (on_topic(_DESCRIBE),),
        _NO_TOPIC,
        "groups[].error_code",
        {"group_ids": [MODERN_GROUP], "include_authorized_operations": False},
        given=(on_group(_DESCRIBE, MODERN_GROUP),),
    ),
    Rule(
        ApiKey.SHARE_GROUP_HEARTBEAT,
        (on_group(_READ, SHARE_GROUP),),
        _NO_GROUP,
        "error_code",
        _SHARE,
    ),
    Rule(
        ApiKey.SHARE_GROUP_HEARTBEAT,
        (on_topic(_DESCRIBE),),
        _NO_TOPIC,
        "error_code",
        _SHARE | {"subscribed_topic_names": [TOPIC]},
        given=(on_group(_READ, SHARE_GROUP),),
    ),
    Rule(
        ApiKey.SHARE_GROUP_DESCRIBE,
        (on_group(_DESCRIBE, SHARE_GROUP),),
        _NO_GROUP,
        "groups[].error_code",
        {"group_ids": [SHARE_GROUP], "include_authorized_operations": False},
    ),
    Rule(
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        (on_group(_READ, STREAMS_GROUP),),
        _NO_GROUP,
        "error_code",
        _STREAMS,
    ),
    Rule(
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        (on_topic(_DESCRIBE),),
        _NO_TOPIC,
        "error_code",
        _STREAMS | {"topology": _TOPOLOGY},
        given=(on_group(_READ, STREAMS_GROUP),),
    ),
    Rule(
        ApiKey.STREAMS_GROUP_DESCRIBE,
        (on_group(_DESCRIBE, STREAMS_GROUP),),
        _NO_GROUP,
        "groups[].error_code",
        {
            "group_ids": [STREAMS_GROUP],
            "include_authorized_operations": False,
            "include_topology_description": False,
        },
    ),
    Rule(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        (on_group(_DESCRIBE, SHARE_GROUP),),
        _NO_GROUP,
        "groups[].error_code",
        {"groups": [{"group_id": SHARE_GROUP, "topics": None}]},
    ),
    Rule(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        (on_topic(_DESCRIBE),),
        _NO_TOPIC,
        "groups[].topics[].partitions[].error_code",
        {
            "groups": [
                {"group_id": SHARE_GROUP, "topics": [{"topic_name": TOPIC, "partitions": [0]}]},
            ]
        },
        given=(on_group(_DESCRIBE, SHARE_GROUP),),
    ),
    Rule(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        (on_group(_READ, SHARE_GROUP),),
        _NO_GROUP,
        "error_code",
        {"group_id": SHARE_GROUP, "topics": []},
    ),
    Rule(
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        (on_group(_DELETE, SHARE_GROUP),),
        _NO_GROUP,
        "error_code",
        {"group_id": SHARE_GROUP, "topics": []},
    ),
    Rule(
        ApiKey.LIST_CONFIG_RESOURCES,
        (on_cluster(_DESCRIBE_CONFIGS),),
        _NO_CLUSTER,
        "error_code",
        {"resource_types": []},
    ),
    Rule(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        (on_topic(_DESCRIBE),),
        _NO_TOPIC,
        "topics[].error_code",
        {"topics": [{"name": TOPIC}], "response_partition_limit": 10, "cursor": None},
    ),
    Rule(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        (on_topic(_DESCRIBE),),
        None,
        "topics[].name",
        {"topics": [], "response_partition_limit": 10, "cursor": None},
    ),
    Rule(ApiKey.DESCRIBE_ACLS, (on_cluster(_DESCRIBE),), _NO_CLUSTER, "error_code", _ANY_ACL),
    Rule(
        ApiKey.CREATE_ACLS,
        (on_cluster(_ALTER),),
        _NO_CLUSTER,
        "results[].error_code",
        {"creations": [_INVALID_ACL, _INVALID_ACL]},
    ),
    Rule(
        ApiKey.DELETE_ACLS,
        (on_cluster(_ALTER),),
        _NO_CLUSTER,
        "filter_results[].error_code",
        {"filters": [_ANY_ACL, _ANY_ACL]},
    ),
    Rule(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        (on_cluster(_DESCRIBE),),
        _NO_CLUSTER,
        "error_code",
        {"users": [{"name": "nobody"}]},
    ),
    Rule(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        (on_cluster(_ALTER),),
        _NO_CLUSTER,
        "results[].error_code",
        {"deletions": [{"name": name, "mechanism": 1} for name in ("nobody", "none")], "upsertions": []},
    ),
    Rule(
        ApiKey.CREATE_DELEGATION_TOKEN,
        (Right(AclOperation.CREATE_TOKENS, ResourceType.USER, OWNER),),
        _NO_TOKEN,
        "error_code",
        _INVALID_TOKEN,
        versions=VersionRange(3, 3),
    ),
    Rule(
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        (
            Right(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, OWNER),
            Right(_DESCRIBE, ResourceType.DELEGATION_TOKEN, TOKEN_ID),
        ),
        None,
        "tokens[].token_id",
        {"owners": [_TOKEN_OWNER]},
    ),
)

NEEDS_NOTHING: Final = {
    ApiKey.API_VERSIONS: "it comes before the authentication",
    ApiKey.DESCRIBE_CLUSTER: "only its operations are those of the asker",
    ApiKey.SASL_HANDSHAKE: "it is a part of the authentication",
    ApiKey.SASL_AUTHENTICATE: "it is a part of the authentication",
    ApiKey.RENEW_DELEGATION_TOKEN: "a token is changed by its owner and its renewers, and by no right",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "a token is changed by its owner and its renewers, and by no right",
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: "every client may send metrics of itself (KIP-714)",
    ApiKey.PUSH_TELEMETRY: "every client may send metrics of itself (KIP-714)",
}
"""Why the others have no rule."""

NEEDS_NOTHING_BEFORE: Final = {
    ApiKey.CREATE_DELEGATION_TOKEN: (3, "a token is always that of who asks for it"),
}
"""Which version is the first that needs something."""
