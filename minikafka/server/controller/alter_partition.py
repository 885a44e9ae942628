"""The ISR changes that leaders ask the controller for, by AlterPartition (KIP-497).

Kafka: ``KafkaController.alterPartitions`` of 3.9. A write is conditional on the version that the leader
knows, on the controller's term, and on no broker having registered since it was looked who lives.

Where it differs from Kafka: the state in the store decides, not what the controller has in memory. A leader
of this project says what its min.insync.replicas is, and below it those who leave the ISR stay eligible
(KIP-966). A leader of Apache Kafka does not, and moves its high watermark also when the ISR is smaller: so no
replica outside of its ISR is sure to hold what is committed, and none is eligible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from minikafka.coordination import paths
from minikafka.coordination.store import (
    BadVersionError,
    CheckOp,
    CoordinationStore,
    NodeStat,
    NoNodeError,
    Op,
    OpResult,
    SetOp,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.control import keep_eligible
from minikafka.server.cluster.registration import Election
from minikafka.types import BrokerId, LeaderEpoch, PartitionState, TopicPartition

CHANGES_PER_WRITE: Final = 500
NO_BROKER_EPOCH: Final = -1
NO_MIN_ISR: Final = -1


class ProposedIsr(NamedTuple):
    """What a leader wants its partition's state to be."""

    topic_partition: TopicPartition
    leader_epoch: LeaderEpoch
    partition_epoch: int
    """The version of the state that the leader knows."""
    isr: tuple[BrokerId, ...]
    is_recovering: bool = False
    broker_epochs: tuple[int, ...] = ()
    """Of the members, in their order; empty or -1: not said (KIP-903)."""
    min_isr: int = NO_MIN_ISR
    """The effective ``min.insync.replicas`` of a leader that counts on eligible replicas."""


class CurrentState(NamedTuple):
    """The state that is in the store now."""

    state: PartitionState
    partition_epoch: int


Outcome = CurrentState | ErrorCode


async def alter_partitions(
    store: CoordinationStore, election: Election, leader: BrokerId, proposed: Sequence[ProposedIsr]
) -> list[Outcome]:
    """What became of each proposal, in their order, when this broker's term as controller still lasts.

    Raises:
        KafkaError: NOT_CONTROLLER: it does not.
        StoreError: the store's. What was written by then stands; a leader that asks again is told so.
    """
    outcomes: list[Outcome] = []
    for start in range(0, len(proposed), CHANGES_PER_WRITE):
        chunk = proposed[start : start + CHANGES_PER_WRITE]
        outcomes += await _alter(store, election, leader, chunk)
    return outcomes


async def _alter(
    store: CoordinationStore, election: Election, leader: BrokerId, proposed: Sequence[ProposedIsr]
) -> list[Outcome]:
    while True:
        registrations = (await store.get(paths.BROKER_IDS)).stat.version
        epochs = await _broker_epochs(store, (member for each in proposed for member in each.isr))
        decided = [await _decide(store, election, leader, each, epochs) for each in proposed]
        ops: list[Op] = [
            CheckOp(paths.CONTROLLER_EPOCH, election.epoch_version),
            CheckOp(paths.BROKER_IDS, registrations),
        ]
        for each, decision in zip(proposed, decided, strict=True):
            if isinstance(decision, PartitionState):
                path = paths.partition_state_path(*each.topic_partition)
                ops.append(SetOp(path, paths.encode_partition_state(decision), each.partition_epoch))
        try:
            results = iter((await store.multi(ops))[2:])
        except (BadVersionError, NoNodeError) as error:
            if error.operation_index == 0:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "another broker has become controller") from None
            continue  # another wrote meanwhile, or a broker came: look again
        return [
            CurrentState(each, _version(next(results))) if isinstance(each, PartitionState) else each
            for each in decided
        ]


def _version(result: OpResult) -> int:
    assert isinstance(result, NodeStat)
    return result.version


async def _broker_epochs(store: CoordinationStore, members: Iterable[BrokerId]) -> dict[BrokerId, int | None]:
    """None: it is not alive."""
    found: dict[BrokerId, int | None] = {}
    for member in sorted(set(members)):
        stat = await store.exists(paths.broker_path(member))
        found[member] = None if stat is None else stat.czxid
    return found


async def _decide(
    store: CoordinationStore,
    election: Election,
    leader: BrokerId,
    proposed: ProposedIsr,
    epochs: Mapping[BrokerId, int | None],
) -> Outcome | PartitionState:
    """What is to be written; or why nothing is, or that it is there already."""
    topic, partition = proposed.topic_partition
    try:
        node = await store.get(paths.partition_state_path(topic, partition))
        current = paths.decode_partition_state(topic, partition, node.data)
    except NoNodeError:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except paths.DamagedNodeError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    version = node.stat.version
    if proposed.partition_epoch > version or proposed.leader_epoch > current.leader_epoch:
        return ErrorCode.NOT_CONTROLLER  # the leader knows of a later controller than this broker does
    if proposed.leader_epoch < current.leader_epoch or current.leader != leader:
        return ErrorCode.FENCED_LEADER_EPOCH
    state = PartitionState(
        leader, proposed.leader_epoch, proposed.isr, election.controller_epoch, proposed.is_recovering
    )
    if len(proposed.isr) < proposed.min_isr:
        state = keep_eligible(current, state, min_isr=proposed.min_isr)
    is_there = set(proposed.isr) == set(current.isr) and proposed.is_recovering == current.leader_recovering
    if is_there and (proposed.min_isr == NO_MIN_ISR or set(state.eligible) == set(current.eligible)):
        return CurrentState(current, version)
    if proposed.partition_epoch < version:
        return ErrorCode.INVALID_UPDATE_VERSION
    if not proposed.isr or (
        proposed.is_recovering and (len(proposed.isr) > 1 or not current.leader_recovering)
    ):
        return ErrorCode.INVALID_REQUEST
    for index, member in enumerate(proposed.isr):
        said = proposed.broker_epochs[index] if proposed.broker_epochs else NO_BROKER_EPOCH
        if epochs[member] is None or said not in (NO_BROKER_EPOCH, epochs[member]):
            return ErrorCode.INELIGIBLE_REPLICA
    return state
