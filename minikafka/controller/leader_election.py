"""Who leads a partition, and who is in its ISR afterwards. Pure: a state in, a state or None out.

Kafka: ``Election``, ``PartitionLeaderElectionAlgorithms``; leader recovery: KIP-704.

Invariants:
- Each election and each removal from the ISR takes the partition to a new leader epoch (KIP-101: what is
  written under a leader and what a crash took from it must not share an epoch).
- The ISR never becomes empty. Its last member stays in it when it dies: only it has all records.
- A state without a leader says who led last (KIP-966): where no replica is sure to hold all that is
  committed, because all have stopped uncleanly, that one leads, and until it is back none does.
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

    With ``unclean`` any online replica may lead when no member of the ISR is online: the one that led last,
    which lacks least, or else the first. It is alone in the ISR then, records may be lost, and the state says
    that the leader has to recover.
    """
    leader = _first(replicas, lambda replica: replica in online and replica in state.isr)
    if leader is not None:
        return _new_epoch(state, leader, tuple(member for member in state.isr if member in online))
    leader = _first(replicas, lambda replica: replica in online and replica in state.eligible)
    if leader is not None and len(state.isr) < min_isr:  # else the high watermark may have gone on without it
        return _new_epoch(state, leader, (leader,))
    if not unclean:
        return None
    leader = _first((state.last_known_leader, *replicas), lambda replica: replica in online)
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
    """The state in which only ``replicas`` are eligible or led last: those that a reassignment has removed
    have no log any more."""
    eligible = tuple(each for each in state.eligible if each in replicas)
    led_last = state.last_known_leader if state.last_known_leader in replicas else NO_LEADER
    if (eligible, led_last) == (state.eligible, state.last_known_leader):
        return state
    return msgspec.structs.replace(state, eligible=eligible, last_known_leader=led_last)


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
    state: PartitionState, replicas: Sequence[BrokerId], online: Collection[BrokerId], *, min_isr: int = 1
) -> PartitionState | None:
    """Members of the ISR have been away while there was no controller to see it, and are back. The leader
    stays if it can. The epoch rises in any case.

    Those whose stop was not clean are out of the ISR before (``after_unclean_shutdown``).
    """
    order = [state.leader, *replicas] if state.leader in online else replicas
    return offline_partition_election(state, order, online, unclean=False, min_isr=min_isr)


def without_replica(state: PartitionState, replica: BrokerId) -> PartitionState:
    """The state after ``replica`` has left the ISR, if anybody else is in it, and has ceased to lead."""
    leader = NO_LEADER if state.leader == replica else state.leader
    isr = state.isr if len(state.isr) == 1 else tuple(member for member in state.isr if member != replica)
    return _new_epoch(state, leader, isr)


def after_unclean_shutdown(state: PartitionState, returned: Collection[BrokerId]) -> PartitionState | None:
    """``returned`` are back from unclean stops and may have lost the ends of their logs: they are in sync and
    eligible no more. None: nothing changes.

    When none of the ISR is left, the eligible ones take its place, because they surely hold what is
    committed. When none of those is left either, no replica can be trusted more than the last known leader:
    it is the ISR then, whether or not it has returned, so that none that has less leads before it.
    """
    isr = tuple(each for each in state.isr if each not in returned)
    eligible = tuple(each for each in state.eligible if each not in returned)
    if not isr and eligible:
        isr, eligible = eligible, ()
    elif not isr:
        led_last = _last_leader(state)
        isr = state.isr if led_last == NO_LEADER else (led_last,)
    if (isr, eligible) == (state.isr, state.eligible):
        return None
    after = _new_epoch(state, state.leader if state.leader in isr else NO_LEADER, isr)
    return msgspec.structs.replace(after, eligible=eligible)


def same_leader(state: PartitionState) -> PartitionState:
    """Nothing but a new leader epoch: what others are about to write, or to fetch, is of an old one then."""
    return _new_epoch(state, state.leader, state.isr)


def _new_epoch(state: PartitionState, leader: BrokerId, isr: tuple[BrokerId, ...]) -> PartitionState:
    return msgspec.structs.replace(
        state,
        leader=leader,
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        isr=isr,
        last_known_leader=_last_leader(state) if leader == NO_LEADER else NO_LEADER,
    )


def _last_leader(state: PartitionState) -> BrokerId:
    """Who leads, or else led last; ``NO_LEADER`` when an earlier release did not remember that."""
    return state.last_known_leader if state.leader == NO_LEADER else state.leader


def _first(replicas: Sequence[BrokerId], fits: Callable[[BrokerId], bool]) -> BrokerId | None:
    return next((replica for replica in replicas if fits(replica)), None)
