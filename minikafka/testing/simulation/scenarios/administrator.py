"""An administrator who cannot decide, during faults: partitions move, move elsewhere, and move back; topics
come and go; configurations, quotas, throttles, log directories, rights and passwords are set. Whatever
becomes of each request, the cluster must get where the last one wanted it.

What is set is one request each, whose answer is an error code.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from minikafka.coordination import paths
from minikafka.coordination.store import NoNodeError
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.security.acl import AclOperation, AclPermissionType, PatternType, ResourceType
from minikafka.security.scram import ITERATIONS_MIN, salted_password
from minikafka.testing.broker import Property
from minikafka.testing.history import Kind, Record
from minikafka.testing.simulation.client import REQUEST_TIMEOUT_MS, Address, SimulatedClient, check
from minikafka.testing.simulation.invariants import hosted_partitions
from minikafka.testing.simulation.scenarios.cluster_run import ClusterRun
from minikafka.testing.simulation.scenarios.faults import until
from minikafka.testing.simulation.scenarios.plan import Action, ActionKind, Plan
from minikafka.types import ElectionType, ReplicaAssignment

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

PAUSE_MS = (200, 2_500)
"""Between two requests: some come while the one before is under way."""
ACTIONS = 14
"""About as many as there is time for while the faults last."""
REPLICA_COUNTS = (2, 3, 3, 4)
FALLEN_MS_MAX = 120_000
"""For which no fault keeps a broker down."""

_ANSWERS = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,  # a broker that is away
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # asked of a broker that has only just come; or deleted
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_REPLICATION_FACTOR,  # too few brokers are there
        ErrorCode.INVALID_PARTITIONS,  # it has as many, or is being deleted
        ErrorCode.REASSIGNMENT_IN_PROGRESS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.OFFSET_NOT_AVAILABLE,  # ListOffsets of a leader that is new (KIP-207)
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,  # a broker that is to move a replica that it has not
        ErrorCode.RESOURCE_NOT_FOUND,  # a credential that is removed already
    }
)
"""What may be said. Anything else is a finding."""


# What is set


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


async def alter_config(
    client: SimulatedClient, address: Address, kind: int, name: str, entries: Sequence[tuple[str, str | None]]
) -> int:
    """IncrementalAlterConfigs of one resource, which returns its error code; None removes."""
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
    return await alter_config(client, address, TOPIC_RESOURCE, action.topic, [entry])


async def _set_retention(client: SimulatedClient, address: Address, action: Action) -> int:
    entry = ("retention.ms", str(action.number) if action.number else None)
    return await alter_config(client, address, TOPIC_RESOURCE, action.topic, [entry])


async def _set_cleanup_policy(client: SimulatedClient, address: Address, action: Action) -> int:
    entry = ("cleanup.policy", CLEANUP_POLICIES[action.number])
    return await alter_config(client, address, TOPIC_RESOURCE, action.topic, [entry])


async def _set_throttle(client: SimulatedClient, address: Address, action: Action) -> int:
    """KIP-73: the rate is the brokers', which replicas it is for is the topic's."""
    rate = str(action.number) if action.number else None
    sides = ("leader", "follower")
    brokers = [(f"{side}.replication.throttled.rate", rate) for side in sides]
    code = await alter_config(client, address, BROKER_RESOURCE, "", brokers)
    if code:
        return code
    replicas = [(f"{side}.replication.throttled.replicas", None if rate is None else "*") for side in sides]
    return await alter_config(client, address, TOPIC_RESOURCE, action.topic, replicas)


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


# The administrator


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


async def lift_limits(run: ClusterRun) -> bool:
    """What an administrator does when the faults are over: away with what slows a cluster down. Returns
    whether anything may have."""
    drawn = {action.kind for action in run.plan.actions}
    kinds = [kind for kind in (ActionKind.SET_QUOTA, ActionKind.SET_THROTTLE) if kind in drawn]
    for kind in kinds:
        await insist(run, Action(after_ms=0, kind=kind))
    return bool(kinds)


def draw_moves(rng: random.Random, brokers: Sequence[int], partitions: int) -> tuple[Action, ...]:
    """Moves, cancellations and elections, asked of any broker."""
    actions = []
    for _ in range(ACTIONS):
        dice = rng.random()
        replicas: tuple[int, ...] = ()
        if dice < 0.65:
            kind = ActionKind.REASSIGN
            replicas = tuple(rng.sample(brokers, min(len(brokers), rng.choice(REPLICA_COUNTS))))
        else:
            kind = ActionKind.CANCEL_REASSIGNMENT if dice < 0.85 else ActionKind.ELECT_PREFERRED
        actions.append(
            Action(
                after_ms=rng.randint(*PAUSE_MS),
                kind=kind,
                ask=rng.choice(brokers),
                partition=rng.randrange(partitions),
                replicas=replicas,
            )
        )
    return tuple(actions)


class Administrator:
    """Carries out a plan's actions."""

    def __init__(self, run: ClusterRun) -> None:
        self._run = run
        self._client = SimulatedClient(run.addresses, client_id="administrator")
        self.accepted = 0
        self.asked = 0

    async def work(self) -> None:
        """To the end of the plan. Raises KafkaError: an answer that is none of those that may be given."""
        for action in self._run.plan.actions:
            await asyncio.sleep(action.after_ms / 1000)
            self.asked += 1
            try:
                code = ErrorCode(await self._ask(action))
            except BrokerUnavailable:
                continue
            except KafkaError as error:  # its client's question for a leader
                code = error.code
            if code not in _ANSWERS:
                raise KafkaError(code, f"the answer to {action}")
            self.accepted += code is ErrorCode.NONE

    async def _ask(self, action: Action) -> int:
        address = self._run.addresses[action.ask - 1]
        match action.kind:
            case ActionKind.REASSIGN:
                await self._until_one_runs(action.replicas)
                return await self._reassign(address, action, action.replicas)
            case ActionKind.CANCEL_REASSIGNMENT:
                return await self._reassign(address, action, None)
            case ActionKind.ELECT_PREFERRED:
                partitions = [{"topic": action.topic, "partitions": [action.partition]}]
                body = {
                    "election_type": ElectionType.PREFERRED,
                    "topic_partitions": partitions,
                    "timeout": 5_000,
                }
                await self._client.request(address, ApiKey.ELECT_LEADERS, body)
                return ErrorCode.NONE  # most elections are not needed, which is an error for each
            case ActionKind.CREATE_TOPIC:
                topic = {
                    "name": action.topic, "num_partitions": action.number,
                    "replication_factor": len(action.replicas), "assignments": [], "configs": [],
                }  # fmt: skip
                return await self._of_topic(ApiKey.CREATE_TOPICS, {"topics": [topic]})
            case ActionKind.DELETE_TOPIC:
                topics = [{"name": action.topic, "topic_id": None}]
                return await self._of_topic(
                    ApiKey.DELETE_TOPICS, {"topics": topics, "topic_names": [action.topic]}
                )
            case ActionKind.GROW_TOPIC:
                topic = {"name": action.topic, "count": action.number, "assignments": None}
                return await self._of_topic(
                    ApiKey.CREATE_PARTITIONS, {"topics": [topic], "validate_only": False}
                )
            case ActionKind.DELETE_RECORDS:
                return await self._delete_records(action)
            case _:
                return await SET_BY[action.kind](self._client, address, action)

    async def _until_one_runs(self, replicas: Sequence[int]) -> None:
        """A move to brokers that have all just fallen is complete at once where the controller does not know
        of it yet. Then those that still run and have everything are no replicas any more, and what the last
        known leader has lost with its power is lost (decision 44)."""
        brokers = self._run.simulation.brokers
        await until(
            lambda: any(brokers[each].is_running for each in replicas),
            f"one of {replicas} runs",
            within_ms=FALLEN_MS_MAX,
        )

    async def _reassign(
        self, address: tuple[str, int], action: Action, replicas: Sequence[int] | None
    ) -> int:
        partition = {"partition_index": action.partition, "replicas": replicas}
        body = {
            "timeout": 5_000,
            "allow_replication_factor_change": True,
            "topics": [{"name": action.topic, "partitions": [partition]}],
        }
        answer = await self._client.request(address, ApiKey.ALTER_PARTITION_REASSIGNMENTS, body)
        return int(answer.error_code or answer.responses[0].partitions[0].error_code)

    async def _of_topic(self, key: ApiKey, body: dict[str, Any]) -> int:
        """Ask the controller, once."""
        metadata = await self._client.metadata([])
        controller = next((each for each in metadata.brokers if each.node_id == metadata.controller_id), None)
        if controller is None:
            return ErrorCode.NOT_CONTROLLER
        body = {"timeout": REQUEST_TIMEOUT_MS, **body}
        answer = await self._client.request((controller.host, controller.port), key, body)
        (found,) = getattr(answer, "topics", None) or getattr(answer, "responses", None) or answer.results
        return int(found.error_code)

    async def _delete_records(self, action: Action) -> int:
        """Up to a share of what is committed, or more, which is refused."""
        start = await self._client.log_start(action.topic, action.partition)
        end = await self._client.log_end(action.topic, action.partition)
        offset = start + (end - start) * min(action.number, 100) // 100 + max(0, action.number - 100)
        partition = {"partition_index": action.partition, "offset": offset}
        body = {"topics": [{"name": action.topic, "partitions": [partition]}], "timeout": REQUEST_TIMEOUT_MS}
        leader = await self._client.leader(action.topic, action.partition)
        address = self._run.addresses[leader - 1]
        records = (Record(action.topic, action.partition, offset),)
        async with self._run.recorder.operation("administrator", Kind.DELETE, records=records):
            answer = await self._client.request(address, ApiKey.DELETE_RECORDS, body)
            check(answer.topics[0].partitions[0].error_code)
        return ErrorCode.NONE


def assignments(run: ClusterRun, topic: str) -> dict[int, ReplicaAssignment]:
    """By partition, as the store has it; empty when the topic is not there."""
    try:
        data = run.simulation.store.tree.get(paths.topic_path(topic)).data
    except NoNodeError:
        return {}
    return paths.decode_topic(topic, data).partitions


def every_topic_is_whole(run: ClusterRun) -> bool:
    """Whether each partition that the store has is led here, with all its replicas in sync."""
    wanted = {
        (topic, number)
        for topic in run.simulation.store.tree.children(paths.TOPICS)
        for number in assignments(run, topic)
    }  # fmt: skip
    whole = {
        tuple(partition.topic_partition)
        for broker in run.simulation.brokers.values()
        for partition in hosted_partitions(broker)
        if partition.is_leader and set(partition.isr) == set(partition.replicas)
    }
    return wanted <= whole


async def until_moved(run: ClusterRun, topics: Sequence[str]) -> None:
    """Until no partition is being moved. Raises TimeoutError."""

    def is_calm() -> bool:
        return not any(
            each.is_being_reassigned for topic in topics for each in assignments(run, topic).values()
        )

    await until(is_calm, "every move is finished")


def check_hosts(run: ClusterRun, topic: str) -> None:
    """A replica that was moved away is not kept, one that was moved here is."""
    assigned = {number: set(each.replicas) for number, each in assignments(run, topic).items()}
    hosts: dict[int, set[int]] = {number: set() for number in assigned}
    for node_id, broker in run.simulation.brokers.items():
        for partition in hosted_partitions(broker):
            if partition.topic_partition.topic == topic:
                hosts.setdefault(partition.topic_partition.partition, set()).add(node_id)
    assert hosts == assigned, f"replicas of {topic} are on {hosts}, and should be on {assigned}"


def check_configs(run: ClusterRun, topic: str) -> None:
    """Each replica obeys the topic's configuration as the store has it."""
    told = paths.decode_config(run.simulation.store.tree.get(paths.topic_config_path(topic)).data)
    wanted = int(told.get("min.insync.replicas", run.plan.config["min.insync.replicas"]))
    for node_id, broker in run.simulation.brokers.items():
        for partition in hosted_partitions(broker):
            if partition.topic_partition.topic == topic:
                obeyed = partition.log.config.min_insync_replicas
                assert obeyed == wanted, (
                    f"{partition.topic_partition} on broker {node_id} has min.insync.replicas {obeyed}, and "
                    f"should have {wanted}"
                )
