"""Who leads a partition, and who is in its ISR afterwards. Pure: a state in, a state or None out.

Kafka: ``Election``, ``PartitionLeaderElectionAlgorithms``; leader recovery: KIP-704.

Invariants:
- Each election and each removal from the ISR takes the partition to a new leader epoch (KIP-101: what is
  written under a leader and what a crash took from it must not share an epoch).
- The ISR never becomes empty. Its last member stays in it when it dies: only it has all records.
- A leader is a member of the ISR.

``replicas`` is the assignment, the preferred leader first; ``online`` are those that can lead, ``state`` is
what the store has. None says that no leader can be elected.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import msgspec

from minikafka.types import NO_LEADER, BrokerId, LeaderEpoch, PartitionState

FIRST_LEADER_EPOCH = LeaderEpoch(0)
"""``LeaderAndIsr.InitialLeaderEpoch``."""


def first_state(
    replicas: Sequence[BrokerId], online: Collection[BrokerId], *, controller_epoch: int
) -> PartitionState | None:
    """A new partition: the online replicas are in sync, and the first of them leads."""
    isr = tuple(replica for replica in replicas if replica in online)
    if not isr:
        return None
    return PartitionState(isr[0], FIRST_LEADER_EPOCH, isr, controller_epoch)


def offline_partition_election(
    state: PartitionState,
    replicas: Sequence[BrokerId],
    online: Collection[BrokerId],
    *,
    unclean: bool,
    min_isr: int = 1,
) -> PartitionState | None:
    """The leader is gone: the first online member of the ISR follows it, and the ISR keeps who is online.
    When no member is online, an eligible replica leads, alone in the ISR: it holds all that is committed.

    With ``unclean`` the first online replica may lead when no member of the ISR is online. It is alone in the
    ISR then, records may be lost, and the state says that the leader has to recover.
    """
    leader = _first(replicas, lambda replica: replica in online and replica in state.isr)
    if leader is not None:
        return _new_epoch(state, leader, tuple(member for member in state.isr if member in online))
    leader = _first(replicas, lambda replica: replica in online and replica in state.eligible)
    if leader is not None and len(state.isr) < min_isr:  # else the high watermark may have gone on without it
        return _new_epoch(state, leader, (leader,))
    if not unclean:
        return None
    leader = _first(replicas, lambda replica: replica in online)
    if leader is None:
        return None
    return msgspec.structs.replace(_new_epoch(state, leader, (leader,)), leader_recovering=True)


def preferred_replica_election(
    state: PartitionState, replicas: Sequence[BrokerId], online: Collection[BrokerId]
) -> PartitionState | None:
    """The first of the assignment leads, if it can."""
    preferred = replicas[0]
    if preferred not in online or preferred not in state.isr:
        return None
    return _new_epoch(state, preferred, state.isr)


def reassign_partition_election(
    state: PartitionState, replicas: Sequence[BrokerId], online: Collection[BrokerId]
) -> PartitionState | None:
    """``replicas`` are the target of a reassignment. The leader stays if it is one of them, else the first
    leads that is online and in the ISR. Who is none of the target leaves the ISR at the same time: the leader
    does not count it any more when it commits.

    No leader can be elected while the ISR has members that will leave, and misses one of the target: what
    they hold must not be given up before the target holds it.
    """
    isr = tuple(member for member in state.isr if member in replicas)
    if len(isr) < min(len(state.isr), len(replicas)):
        return None
    if state.leader in isr and state.leader in online:
        return _new_epoch(state, state.leader, isr)
    leader = _first(replicas, lambda replica: replica in online and replica in isr)
    return None if leader is None else _new_epoch(state, leader, isr)


def known_brokers_only(state: PartitionState, replicas: Collection[BrokerId]) -> PartitionState:
    """The state in which only ``replicas`` are eligible: who was removed by a reassignment is it no more."""
    eligible = tuple(each for each in state.eligible if each in replicas)
    return state if eligible == state.eligible else msgspec.structs.replace(state, eligible=eligible)


def controlled_shutdown_election(
    state: PartitionState,
    replicas: Sequence[BrokerId],
    online: Collection[BrokerId],
    *,
    shutting_down: Collection[BrokerId],
) -> PartitionState | None:
    """The leader shuts down: another member of the ISR leads, and those that shut down leave the ISR.

    ``online`` has those that shut down too.
    """
    isr = tuple(member for member in state.isr if member not in shutting_down)
    leader = _first(replicas, lambda replica: replica in online and replica in isr)
    return None if leader is None else _new_epoch(state, leader, isr)


def election_after_absence(
    state: PartitionState,
    replicas: Sequence[BrokerId],
    online: Collection[BrokerId],
    *,
    returned: Collection[BrokerId],
    min_isr: int = 1,
) -> PartitionState | None:
    """Members of the ISR have been away while there was no controller to see it, and are back.

    ``returned`` are those whose stop was not clean. They may have lost what was not on their disks yet, so
    the others come first, as if they had been seen to die, and the leader stays if it is none of them; when
    there are no others, all are equal. The epoch rises in any case.
    """
    stayed = [replica for replica in online if replica not in returned]
    order = [state.leader, *replicas] if state.leader in stayed else replicas
    return offline_partition_election(
        state, order, stayed, unclean=False, min_isr=min_isr
    ) or offline_partition_election(state, replicas, online, unclean=False, min_isr=min_isr)


def without_replica(state: PartitionState, replica: BrokerId) -> PartitionState:
    """The state after ``replica`` has left the ISR, if anybody else is in it, and has ceased to lead."""
    leader = NO_LEADER if state.leader == replica else state.leader
    isr = state.isr if len(state.isr) == 1 else tuple(member for member in state.isr if member != replica)
    return _new_epoch(state, leader, isr)


def after_unclean_shutdown(state: PartitionState, replica: BrokerId) -> PartitionState | None:
    """``replica`` is back from an unclean stop and may have lost the end of its log: it is eligible no more.

    When it is all that is left of the ISR, the eligible ones take its place there, because they surely hold
    what is committed, and it does not. Without any it stays: no replica can be trusted more. None: nothing
    changes.
    """
    eligible = tuple(each for each in state.eligible if each != replica)
    if state.isr == (replica,) and eligible:
        emptied = _new_epoch(state, NO_LEADER, eligible)
        return msgspec.structs.replace(emptied, eligible=())
    if eligible == state.eligible:
        return None
    return msgspec.structs.replace(same_leader(state), eligible=eligible)


def same_leader(state: PartitionState) -> PartitionState:
    """Nothing but a new leader epoch: what others are about to write, or to fetch, is of an old one then."""
    return _new_epoch(state, state.leader, state.isr)


def _new_epoch(state: PartitionState, leader: BrokerId, isr: tuple[BrokerId, ...]) -> PartitionState:
    return msgspec.structs.replace(
        state, leader=leader, leader_epoch=LeaderEpoch(state.leader_epoch + 1), isr=isr
    )


def _first(replicas: Sequence[BrokerId], fits: Callable[[BrokerId], bool]) -> BrokerId | None:
    return next((replica for replica in replicas if fits(replica)), None)
