"""The ISR changes that leaders ask the controller for, which brokers of Apache Kafka do (KIP-497).

Kafka: ``KafkaController.alterPartitions`` of 3.9. Leaders of this project write the states of their
partitions themselves (``replica.isr_manager``); this writes in the place of a leader that does not. The write
is the same: conditional on the version that the leader knows, and on no broker having registered since it was
looked who lives. An announcement under ``/isr_change_notification`` has the controller tell the others, as if
the leader had written.

Where it differs from Kafka: the state in the store decides, not what the controller has in memory. Eligible
leader replicas (KIP-966) are dropped: a leader of 3.9 moves its high watermark also when the ISR is smaller
than min.insync.replicas, so no replica outside of the ISR is sure to hold what is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from minikafka.coordination import paths
from minikafka.coordination.store import (
    BadVersionError,
    CheckOp,
    CoordinationStore,
    NodeStat,
    NoNodeError,
    Op,
    SetOp,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.server.cluster.registration import Election
from minikafka.types import BrokerId, LeaderEpoch, PartitionState, TopicPartition

CHANGES_PER_WRITE: Final = 500
NO_BROKER_EPOCH: Final = -1


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
        StoreError: the store's. What was written by then stands; who asks again is told so.
    """
    outcomes: list[Outcome] = []
    for start in range(0, len(proposed), CHANGES_PER_WRITE):
        chunk = proposed[start : start + CHANGES_PER_WRITE]
        outcomes += await _alter(store, election, leader, chunk)
    changed = {
        each.topic_partition
        for each, outcome in zip(proposed, outcomes, strict=True)
        if isinstance(outcome, CurrentState)
    }
    if changed:
        await store.create(paths.ISR_CHANGE_PREFIX, paths.encode_partitions(changed), sequential=True)
    return outcomes


async def _alter(
    store: CoordinationStore, election: Election, leader: BrokerId, proposed: Sequence[ProposedIsr]
) -> list[Outcome]:
    while True:
        registrations = (await store.get(paths.BROKER_IDS)).stat.version
        epochs = await _broker_epochs(store, (member for each in proposed for member in each.isr))
        outcomes: list[Outcome | None] = [await _check(store, leader, each, epochs) for each in proposed]
        to_write = [index for index, outcome in enumerate(outcomes) if outcome is None]
        term = CheckOp(paths.CONTROLLER_EPOCH, election.epoch_version)
        ops: list[Op] = [term, CheckOp(paths.BROKER_IDS, registrations)]
        states = [
            PartitionState(leader, each.leader_epoch, each.isr, election.controller_epoch, each.is_recovering)
            for each in (proposed[index] for index in to_write)
        ]
        for index, state in zip(to_write, states, strict=True):
            path = paths.partition_state_path(*proposed[index].topic_partition)
            ops.append(SetOp(path, paths.encode_partition_state(state), proposed[index].partition_epoch))
        try:
            results = await store.multi(ops)
        except (BadVersionError, NoNodeError) as error:
            if error.operation_index == 0:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "another broker has become controller") from None
            continue  # another wrote meanwhile, or a broker came: look again
        for index, state, stat in zip(to_write, states, results[2:], strict=True):
            assert isinstance(stat, NodeStat)
            outcomes[index] = CurrentState(state, stat.version)
        return [outcome for outcome in outcomes if outcome is not None]


async def _broker_epochs(store: CoordinationStore, members: Iterable[BrokerId]) -> dict[BrokerId, int | None]:
    """None: it is not alive."""
    found: dict[BrokerId, int | None] = {}
    for member in sorted(set(members)):
        stat = await store.exists(paths.broker_path(member))
        found[member] = None if stat is None else stat.czxid
    return found


async def _check(
    store: CoordinationStore, leader: BrokerId, proposed: ProposedIsr, epochs: dict[BrokerId, int | None]
) -> Outcome | None:
    """Why a proposal is not written, or that it is there already; None: it may be written."""
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
    if set(proposed.isr) == set(current.isr) and proposed.is_recovering == current.leader_recovering:
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
    return None
