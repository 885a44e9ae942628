"""Requests of hundreds of thousands of entries, and of more than any honest client has."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.codec import Body, encode_request
from tests.hostile.attack import Attack
from tests.integration.support.process import BrokerProcess
from tests.integration.support.wire import RawClient

CORRELATION_ID = 77
PATIENCE_S = 120
SHORT = 20_000
DESCRIBED, SHORT_DESCRIBED = 1_000, 100

Entry = Callable[[int], Any]


def partitions_of_one_topic(field: str, entry: Entry, count: int) -> list[dict[str, Any]]:
    """One topic that does not exist, with ``count`` partitions."""
    return [{"name": "attacked", field: [entry(index) for index in range(count)]}]


def metadata(count: int) -> Body:
    names = [{"name": f"unknown-{index}"} for index in range(count)]
    return {"topics": names, "allow_auto_topic_creation": False}


def fetch(count: int) -> Body:
    entries = [
        {"partition": index, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for index in range(count)
    ]
    return {
        "replica_id": -1,
        "max_wait": 100,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "topics": [{"topic": "attacked", "partitions": entries}],
    }


def produce(count: int) -> Body:
    topics = partitions_of_one_topic("partition_data", lambda index: {"index": index, "records": b""}, count)
    return {"transactional_id": None, "acks": 1, "timeout": 1000, "topic_data": topics}


def list_offsets(partition: Entry, count: int) -> Body:
    topics = partitions_of_one_topic(
        "partitions", lambda index: {"partition_index": partition(index), "timestamp": -1}, count
    )
    return {"replica_id": -1, "topics": topics}


def offset_fetch(count: int) -> Body:
    return {
        "group_id": "group",
        "topics": partitions_of_one_topic("partition_indexes", lambda index: index, count),
    }


def offset_commit(count: int) -> Body:
    topics = partitions_of_one_topic(
        "partitions",
        lambda index: {"partition_index": index, "committed_offset": 1, "committed_metadata": ""},
        count,
    )
    return {
        "group_id": "group",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "retention_time": -1,
        "topics": topics,
    }


def delete_records(count: int) -> Body:
    topics = partitions_of_one_topic(
        "partitions", lambda index: {"partition_index": index, "offset": 0}, count
    )
    return {"topics": topics, "timeout": 1000}


def delete_groups(count: int) -> Body:
    return {"groups_names": [f"group-{index}" for index in range(count)]}


def add_partitions(count: int) -> Body:
    return {
        "v3_and_below_transactional_id": "attacker",
        "v3_and_below_producer_id": 1,
        "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": partitions_of_one_topic("partitions", lambda index: index, count),
    }


def markers(count: int) -> Body:
    return {
        "markers": [
            {
                "producer_id": 1,
                "producer_epoch": 0,
                "transaction_result": True,
                "topics": partitions_of_one_topic("partition_indexes", lambda index: index, count),
                "coordinator_epoch": 0,
            }
        ]
    }


def create_topics(count: int) -> Body:
    topics = [
        {
            "name": f"a/b-{index}",
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        for index in range(count)
    ]
    return {"topics": topics, "timeout": 1000, "validate_only": False}


def delete_topics(count: int) -> Body:
    return {"topic_names": [f"unknown-{index}" for index in range(count)], "timeout": 1000}


def alter_configs(count: int) -> Body:
    resources = [
        {"resource_type": 2, "resource_name": f"unknown-{index}", "configs": []} for index in range(count)
    ]
    return {"resources": resources, "validate_only": False}


def describe_configs(count: int) -> Body:
    """All properties of topics that ``make_described`` has made."""
    resources = [
        {"resource_type": 2, "resource_name": f"described-{index}", "configuration_keys": None}
        for index in range(count)
    ]
    return {"resources": resources, "include_synonyms": True}


def describe_one_config(count: int) -> Body:
    """All properties of the one broker that there is, again and again."""
    resource = {"resource_type": 4, "resource_name": "1", "configuration_keys": None}
    return {"resources": [resource] * count, "include_synonyms": True}


def describe_topic_partitions(count: int) -> Body:
    names = [f"unknown-{index * 7919 % count}" for index in range(count)]
    return {
        "topics": [{"name": name} for name in names],
        "response_partition_limit": 2_000,
        "cursor": None,
    }


def describe_quorum(count: int) -> Body:
    partitions = [{"partition_index": index} for index in range(count)]
    return {"topics": [{"topic_name": "attacked", "partitions": partitions}]}


def describe_log_dirs(count: int) -> Body:
    return {"topics": [{"topic": "attacked", "partitions": list(range(count))}]}


def alter_log_dirs(count: int) -> Body:
    topics = [{"name": "attacked", "partitions": list(range(count))}]
    return {"dirs": [{"path": "/nowhere", "topics": topics}]}


def reassign(count: int) -> Body:
    topics = partitions_of_one_topic(
        "partitions", lambda index: {"partition_index": index, "replicas": [1]}, count
    )
    return {"timeout": 1000, "topics": topics}


def verify_transactions(count: int) -> Body:
    """As a broker asks for many producers at once."""
    return {
        "transactions": [
            {
                "transactional_id": f"unknown-{index}",
                "producer_id": index,
                "producer_epoch": 0,
                "verify_only": True,
                "topics": [],
            }
            for index in range(count)
        ]
    }


def alter_one_config(count: int) -> Body:
    """More properties of one topic than there are."""
    configs = [{"name": f"unknown-{index}", "config_operation": 0, "value": "1"} for index in range(count)]
    resource = {"resource_type": 2, "resource_name": "bystander", "configs": configs}
    return {"resources": [resource], "validate_only": False}


def join_consumer_group(count: int) -> Body:
    """A member of a KIP-848 group that joins with very many names."""
    return {
        "group_id": "consumer-group",
        "member_id": "3Ys-4ic2Qb2aZ8S0-S4Dnw",
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": 60_000,
        "subscribed_topic_names": [f"unknown-{index}" for index in range(count)],
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": [],
    }


def elect_leaders(count: int) -> Body:
    partitions = [{"topic": "attacked", "partitions": list(range(count))}]
    return {"election_type": 0, "topic_partitions": partitions, "timeout": 1000}


def list_reassignments(count: int) -> Body:
    return {"timeout": 1000, "topics": [{"name": "attacked", "partition_indexes": list(range(count))}]}


def alter_quotas(count: int) -> Body:
    """Of very many clients, and none is stored."""
    entries = [
        {
            "entity": [{"entity_type": "client-id", "entity_name": f"client-{index}"}],
            "ops": [{"key": "producer_byte_rate", "value": 1e6, "remove": False}],
        }
        for index in range(count)
    ]
    return {"entries": entries, "validate_only": True}


def leave_group(count: int) -> Body:
    members = [{"member_id": f"member-{index}", "group_instance_id": None} for index in range(count)]
    return {"group_id": "group", "members": members}


def frame(key: ApiKey, version: int, body: Body, *, client_id: str = "attacker") -> bytes:
    return encode_request(
        api_key=key, api_version=version, correlation_id=CORRELATION_ID, client_id=client_id, body=body
    )


def ask(
    key: ApiKey, version: int, body: Callable[[int], Body], count: int, broker: BrokerProcess, short: bool
) -> str:
    count = min(count, SHORT) if short else count
    request = frame(key, version, body(count))
    with RawClient(broker.port, timeout_s=PATIENCE_S) as client:
        client.send(request)
        correlation_id, answer = client.receive()
    assert correlation_id == CORRELATION_ID
    return f"an answer of {len(answer):,} bytes to {len(request):,}"


def make_described(broker: BrokerProcess, short: bool) -> None:
    topics = [
        {
            "name": f"described-{index}",
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        for index in range(SHORT_DESCRIBED if short else DESCRIBED)
    ]
    body = {"topics": topics, "timeout": PATIENCE_S * 1000, "validate_only": False}
    with RawClient(broker.port, timeout_s=PATIENCE_S) as client:
        client.send(frame(ApiKey.CREATE_TOPICS, 4, body))
        client.receive()


def describe_topics(broker: BrokerProcess, short: bool) -> str:
    count = SHORT_DESCRIBED if short else DESCRIBED
    return ask(ApiKey.DESCRIBE_CONFIGS, 1, describe_configs, count, broker, short)


def be_refused(broker: BrokerProcess, short: bool) -> str:
    """More entries than a request may have: nothing of it is handled, and the connection closes."""
    with RawClient(broker.port, timeout_s=PATIENCE_S) as client:
        client.send(frame(ApiKey.METADATA, 4, metadata(990_000)))
        with pytest.raises(ConnectionError):
            client.receive()
    assert "more array elements than are allowed" in broker.log_text()
    return "a closed connection"


def attack(
    name: str, key: ApiKey, version: int, body: Callable[[int], Body], count: int, what: str
) -> Attack:
    return Attack(f"{name} of {count:,} {what}", partial(ask, key, version, body, count))


ATTACKS = [
    Attack("Metadata of 990,000 names", be_refused),
    attack("Metadata", ApiKey.METADATA, 4, metadata, 240_000, "names"),
    attack("Fetch", ApiKey.FETCH, 4, fetch, 240_000, "partitions"),
    attack("Produce", ApiKey.PRODUCE, 3, produce, 240_000, "partitions"),
    attack(
        "ListOffsets",
        ApiKey.LIST_OFFSETS,
        1,
        partial(list_offsets, lambda index: index),
        100_000,
        "partitions",
    ),
    attack(
        "ListOffsets",
        ApiKey.LIST_OFFSETS,
        1,
        partial(list_offsets, lambda _: 0),
        100_000,
        "times one partition",
    ),
    attack("OffsetFetch", ApiKey.OFFSET_FETCH, 2, offset_fetch, 240_000, "partitions"),
    attack("OffsetCommit", ApiKey.OFFSET_COMMIT, 2, offset_commit, 240_000, "partitions"),
    attack("DeleteRecords", ApiKey.DELETE_RECORDS, 1, delete_records, 240_000, "partitions"),
    attack("DeleteGroups", ApiKey.DELETE_GROUPS, 1, delete_groups, 200_000, "groups"),
    attack("AddPartitionsToTxn", ApiKey.ADD_PARTITIONS_TO_TXN, 1, add_partitions, 240_000, "partitions"),
    attack("WriteTxnMarkers", ApiKey.WRITE_TXN_MARKERS, 1, markers, 240_000, "partitions"),
    attack("CreateTopics", ApiKey.CREATE_TOPICS, 4, create_topics, 100_000, "bad names"),
    attack("DeleteTopics", ApiKey.DELETE_TOPICS, 3, delete_topics, 200_000, "names"),
    attack(
        "IncrementalAlterConfigs",
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        0,
        alter_configs,
        100_000,
        "topics",
    ),
    Attack(f"DescribeConfigs of {DESCRIBED:,} topics", describe_topics, prepare=make_described),
    attack("DescribeConfigs", ApiKey.DESCRIBE_CONFIGS, 1, describe_one_config, 240_000, "times a broker"),
    attack(
        "DescribeTopicPartitions",
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        describe_topic_partitions,
        240_000,
        "names",
    ),
    attack("DescribeQuorum", ApiKey.DESCRIBE_QUORUM, 0, describe_quorum, 240_000, "partitions"),
    attack("DescribeLogDirs", ApiKey.DESCRIBE_LOG_DIRS, 1, describe_log_dirs, 240_000, "partitions"),
    attack("AlterReplicaLogDirs", ApiKey.ALTER_REPLICA_LOG_DIRS, 1, alter_log_dirs, 240_000, "partitions"),
    attack(
        "AlterPartitionReassignments",
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        reassign,
        120_000,
        "partitions",
    ),
    attack(
        "AddPartitionsToTxn",
        ApiKey.ADD_PARTITIONS_TO_TXN,
        4,
        verify_transactions,
        120_000,
        "transactions",
    ),
    attack(
        "IncrementalAlterConfigs",
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        0,
        alter_one_config,
        240_000,
        "properties of a topic",
    ),
    attack(
        "ConsumerGroupHeartbeat",
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        join_consumer_group,
        48_000,
        "names",
    ),
    attack("ElectLeaders", ApiKey.ELECT_LEADERS, 1, elect_leaders, 49_000, "partitions"),
    attack(
        "ListPartitionReassignments",
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        list_reassignments,
        49_000,
        "partitions",
    ),
    attack("AlterClientQuotas", ApiKey.ALTER_CLIENT_QUOTAS, 0, alter_quotas, 16_000, "clients"),
    attack("LeaveGroup", ApiKey.LEAVE_GROUP, 3, leave_group, 50_000, "members"),
]
