"""What an administrator sets: configurations, quotas, throttles, log directories, rights and passwords.

Each is one request, whose answer is an error code."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.security.acl import AclOperation, AclPermissionType, PatternType, ResourceType
from minikafka.security.sasl.scram import ITERATIONS_MIN, salted_password
from minikafka.testing.broker import Property
from minikafka.testing.simulation.client import Address, SimulatedClient
from minikafka.testing.simulation.scenarios.plan import Action, ActionKind, Plan

if TYPE_CHECKING:
    from minikafka.testing.simulation.scenarios.cluster_run import ClusterRun

CLEANUP_POLICIES = ("compact", "compact,delete", "delete")
"""With a retention that keeps everything: under ``delete`` nothing is compacted, and nothing is deleted."""
QUOTA_CLIENT = "producer-0"
USER, MECHANISM, SCRAM_SHA_256 = "alice", "SCRAM-SHA-256", 1
PRINCIPAL = f"User:{USER}"
SECURE_PORT = 9093
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
SET, DELETE = 0, 1
TRIES_MAX = 20
LOG_DIRECTORIES = ("/data", "/data-2")


def log_dirs(plan: Plan) -> dict[str, Property]:
    """Of each broker."""
    return {"log.dirs": ",".join(LOG_DIRECTORIES[: plan.log_dirs])}


def secured(host: str) -> dict[str, Property]:
    """A broker whose clients are super users at one port, and must log in at the other. Brokers use the
    first."""
    return {
        "listeners": f"PLAINTEXT://{host}:9092,SASL_PLAINTEXT://{host}:{SECURE_PORT}",
        "sasl.enabled.mechanisms": MECHANISM,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }


def password(number: int) -> str:
    """The one that ``SET_CREDENTIAL`` with this number sets."""
    return f"password-{number}"


async def _alter_config(
    client: SimulatedClient, address: Address, kind: int, name: str, entries: Sequence[tuple[str, str | None]]
) -> int:
    """None removes."""
    configs = [
        {"name": key, "config_operation": DELETE if value is None else SET, "value": value}
        for key, value in entries
    ]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    body = {"resources": [resource], "validate_only": False}
    answer = await client.request(address, ApiKey.INCREMENTAL_ALTER_CONFIGS, body)
    return int(answer.responses[0].error_code)


async def _set_min_insync(client: SimulatedClient, address: Address, action: Action) -> int:
    entry = ("min.insync.replicas", str(action.number))
    return await _alter_config(client, address, TOPIC_RESOURCE, action.topic, [entry])


async def _set_retention(client: SimulatedClient, address: Address, action: Action) -> int:
    entry = ("retention.ms", str(action.number) if action.number else None)
    return await _alter_config(client, address, TOPIC_RESOURCE, action.topic, [entry])


async def _set_cleanup_policy(client: SimulatedClient, address: Address, action: Action) -> int:
    entry = ("cleanup.policy", CLEANUP_POLICIES[action.number])
    return await _alter_config(client, address, TOPIC_RESOURCE, action.topic, [entry])


async def _set_throttle(client: SimulatedClient, address: Address, action: Action) -> int:
    """KIP-73: the rate is the brokers', which replicas it is for is the topic's."""
    rate = str(action.number) if action.number else None
    sides = ("leader", "follower")
    brokers = [(f"{side}.replication.throttled.rate", rate) for side in sides]
    code = await _alter_config(client, address, BROKER_RESOURCE, "", brokers)
    if code:
        return code
    replicas = [(f"{side}.replication.throttled.replicas", None if rate is None else "*") for side in sides]
    return await _alter_config(client, address, TOPIC_RESOURCE, action.topic, replicas)


async def _set_quota(client: SimulatedClient, address: Address, action: Action) -> int:
    entry = {
        "entity": [{"entity_type": "client-id", "entity_name": QUOTA_CLIENT}],
        "ops": [
            {"key": key, "value": float(action.number), "remove": not action.number}
            for key in ("producer_byte_rate", "consumer_byte_rate")
        ],
    }
    body = {"entries": [entry], "validate_only": False}
    answer = await client.request(address, ApiKey.ALTER_CLIENT_QUOTAS, body)
    return int(answer.entries[0].error_code)


async def _move_log_dir(client: SimulatedClient, address: Address, action: Action) -> int:
    topics = [{"name": action.topic, "partitions": [action.partition]}]
    body = {"dirs": [{"path": LOG_DIRECTORIES[action.number], "topics": topics}]}
    answer = await client.request(address, ApiKey.ALTER_REPLICA_LOG_DIRS, body)
    return int(answer.results[0].partitions[0].error_code)


async def _grant(client: SimulatedClient, address: Address, action: Action) -> int:
    """To write, which brings the right to describe."""
    creation = {
        "resource_type": ResourceType.TOPIC, "resource_name": action.topic,
        "resource_pattern_type": PatternType.LITERAL, "principal": PRINCIPAL, "host": "*",
        "operation": AclOperation.WRITE, "permission_type": AclPermissionType.ALLOW,
    }  # fmt: skip
    answer = await client.request(address, ApiKey.CREATE_ACLS, {"creations": [creation]})
    return int(answer.results[0].error_code)


async def _revoke(client: SimulatedClient, address: Address, action: Action) -> int:
    wanted = {
        "resource_type_filter": ResourceType.TOPIC, "resource_name_filter": action.topic,
        "pattern_type_filter": PatternType.LITERAL, "principal_filter": PRINCIPAL, "host_filter": None,
        "operation": AclOperation.ANY, "permission_type": AclPermissionType.ANY,
    }  # fmt: skip
    answer = await client.request(address, ApiKey.DELETE_ACLS, {"filters": [wanted]})
    return int(answer.filter_results[0].error_code)


async def _set_credential(client: SimulatedClient, address: Address, action: Action) -> int:
    salt = hashlib.sha256(b"%d" % action.number).digest()[:16]
    upsertion = {
        "name": USER, "mechanism": SCRAM_SHA_256, "iterations": ITERATIONS_MIN, "salt": salt,
        "salted_password": salted_password(MECHANISM, password(action.number), salt, ITERATIONS_MIN),
    }  # fmt: skip
    return await _alter_credentials(client, address, {"deletions": [], "upsertions": [upsertion]})


async def _remove_credential(client: SimulatedClient, address: Address, action: Action) -> int:
    deletion = {"name": USER, "mechanism": SCRAM_SHA_256}
    return await _alter_credentials(client, address, {"deletions": [deletion], "upsertions": []})


async def _alter_credentials(client: SimulatedClient, address: Address, body: dict[str, Any]) -> int:
    answer = await client.request(address, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, body)
    return int(answer.results[0].error_code)


SET_BY: dict[ActionKind, Callable[[SimulatedClient, Address, Action], Awaitable[int]]] = {
    ActionKind.SET_MIN_INSYNC: _set_min_insync,
    ActionKind.SET_RETENTION: _set_retention,
    ActionKind.SET_CLEANUP_POLICY: _set_cleanup_policy,
    ActionKind.SET_THROTTLE: _set_throttle,
    ActionKind.SET_QUOTA: _set_quota,
    ActionKind.MOVE_LOG_DIR: _move_log_dir,
    ActionKind.GRANT: _grant,
    ActionKind.REVOKE: _revoke,
    ActionKind.SET_CREDENTIAL: _set_credential,
    ActionKind.REMOVE_CREDENTIAL: _remove_credential,
}
"""Each is asked of the broker that the action names."""


async def insist(run: ClusterRun, action: Action) -> None:
    """Ask one broker after the other until it is done. Raises TimeoutError."""
    for turn in range(TRIES_MAX):
        address = run.addresses[turn % len(run.addresses)]
        try:
            if await SET_BY[action.kind](run.client, address, action) == ErrorCode.NONE:
                return
        except (KafkaError, BrokerUnavailable):
            pass
        await asyncio.sleep(0.5)
    raise TimeoutError(f"{action} is not done")


async def lift_limits(run: ClusterRun) -> None:
    """What an administrator does when the faults are over: away with what slows a cluster down."""
    kinds = {action.kind for action in run.plan.actions}
    for kind in (ActionKind.SET_QUOTA, ActionKind.SET_THROTTLE):
        if kind in kinds:
            await insist(run, Action(after_ms=0, kind=kind))
