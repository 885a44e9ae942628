"""Who leads a partition when it is created, and when the only broker that could lead it starts. Pure.

Kafka: ``PartitionStateMachine`` (``initializeLeaderAndIsrForPartitions``,
``offlinePartitionLeaderElection``).

Every election takes a partition to a new leader epoch, also when the leader stays the same broker: what a
crash took from the end of a log, and what is written in its place, must not share an epoch, or nobody could
tell them apart (KIP-101, KIP-320).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from minikafka.types import NO_LEADER, BrokerId, LeaderEpoch, PartitionState

IsAlive = Callable[[BrokerId], bool]

NO_CONTROLLER_EPOCH = 0
"""Kafka's ``KafkaController.InitialControllerEpoch``: below that of the first controller that is elected."""

FIRST_LEADER_EPOCH = LeaderEpoch(0)


def first_state(replicas: Sequence[BrokerId], is_alive: IsAlive) -> PartitionState:
    """The state of a new partition: the live replicas are in sync, the first of them leads."""
    isr = tuple(replica for replica in replicas if is_alive(replica))
    return PartitionState(
        leader=isr[0] if isr else NO_LEADER,
        leader_epoch=FIRST_LEADER_EPOCH,
        isr=isr,
        controller_epoch=NO_CONTROLLER_EPOCH,
    )


def next_state(
    state: PartitionState, replicas: Sequence[BrokerId], is_alive: IsAlive, *, unclean: bool
) -> PartitionState:
    """The state after an election among the live replicas.

    The first one that was in sync leads, and those of the ISR that live stay in it. When none of them lives,
    the first live replica may lead with ``unclean`` (and lose records); else nobody does, and the ISR stays,
    because its members have the records.
    """
    alive = [replica for replica in replicas if is_alive(replica)]
    in_sync = tuple(replica for replica in alive if replica in state.isr)
    leader, isr, recovering = NO_LEADER, state.isr, state.leader_recovering
    if in_sync:
        leader, isr = in_sync[0], in_sync
    elif alive and unclean:
        leader, isr, recovering = alive[0], (alive[0],), True
    return PartitionState(
        leader=leader,
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        isr=isr,
        controller_epoch=state.controller_epoch,
        leader_recovering=recovering,
    )
