"""A member of a streams group (KIP-1071) without Kafka Streams: its first heartbeat."""

from __future__ import annotations

import asyncio

from minikafka.errors import ErrorCode
from minikafka.network.broker_client import BrokerClient
from minikafka.protocol.wire.api_versions import ApiKey

COORDINATOR_BEGINS = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


async def join_streams_group(port: int, group: str, topic: str, *, client_id: str) -> BrokerClient:
    """A member of an application with one subtopology, which reads ``topic``. It is a member until its
    session is over, whatever becomes of the connection."""
    client = await BrokerClient.connect("127.0.0.1", port, client_id=client_id, deadline_ms=10_000)
    coordinator = {"key": group, "key_type": 0, "coordinator_keys": [group]}
    await client.request(ApiKey.FIND_COORDINATOR, coordinator, deadline_ms=10_000)  # makes __consumer_offsets
    topology = {
        "epoch": 0,
        "subtopologies": [
            {
                "subtopology_id": "0",
                "source_topics": [topic],
                "source_topic_regex": [],
                "state_changelog_topics": [],
                "repartition_sink_topics": [],
                "repartition_source_topics": [],
                "copartition_groups": [],
            }
        ],
    }
    body = {
        "group_id": group,
        "member_id": "member-1",
        "member_epoch": 0,
        "endpoint_information_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": 10_000,
        "topology": topology,
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        "process_id": "process",
        "user_endpoint": None,
        "client_tags": [],
        "task_offsets": None,
        "task_end_offsets": None,
        "shutdown_application": False,
    }
    while True:
        answer = await client.request(ApiKey.STREAMS_GROUP_HEARTBEAT, body, deadline_ms=10_000)
        if answer.error_code not in COORDINATOR_BEGINS:
            break
        await asyncio.sleep(0.05)
    assert answer.error_code == 0, answer
    return client
