"""An administrator who cannot decide, during faults: partitions move, move elsewhere, and move back; topics
come and go. Whatever becomes of each request, the cluster must get where the last one wanted it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from minikafka.coordination import paths
from minikafka.coordination.store import NoNodeError
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.testing.history.operations import Kind, Record
from minikafka.testing.simulation.client import REQUEST_TIMEOUT_MS, SimulatedClient, check
from minikafka.testing.simulation.invariants import hosted_partitions
from minikafka.testing.simulation.scenarios.cluster_run import ClusterRun
from minikafka.testing.simulation.scenarios.plan import Action, ActionKind
from minikafka.testing.simulation.scenarios.settings import SET_BY
from minikafka.testing.simulation.scenarios.waiting import until
from minikafka.types import ElectionType, ReplicaAssignment

PAUSE_MS = (200, 2_500)
"""Between two requests: some come while the one before is under way."""
ACTIONS = 14
"""About as many as there is time for while the faults last."""
REPLICA_COUNTS = (2, 3, 3, 4)

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
        """Up to a share of what is committed."""
        start = await self._client.log_start(action.topic, action.partition)
        end = await self._client.log_end(action.topic, action.partition)
        offset = start + (end - start) * action.number // 100
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


async def until_moved(run: ClusterRun, topics: Sequence[str]) -> None:
    """Until no partition is being moved. Raises TimeoutError."""

    def is_calm() -> bool:
        return not any(
            each.is_being_reassigned for topic in topics for each in assignments(run, topic).values()
        )

    await until(is_calm, "every move is finished")


def check_hosts(run: ClusterRun, topic: str) -> None:
    """A replica that was moved away is not kept, one that was moved here is."""
    wanted = {number: set(each.replicas) for number, each in assignments(run, topic).items()}
    hosts: dict[int, set[int]] = {number: set() for number in wanted}
    for node_id, broker in run.simulation.brokers.items():
        for partition in hosted_partitions(broker):
            if partition.topic_partition.topic == topic:
                hosts.setdefault(partition.topic_partition.partition, set()).add(node_id)
    assert hosts == wanted, f"replicas of {topic} are on {hosts}, and should be on {wanted}"


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
