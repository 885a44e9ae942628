"""Elections at creation and at the start."""

from __future__ import annotations

from minikafka.server.first_leaders import first_state, next_state
from minikafka.types import NO_LEADER, BrokerId, LeaderEpoch, PartitionState

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
REPLICAS = (THREE, ONE, TWO)


def alive(*brokers: BrokerId) -> object:
    return lambda broker: broker in brokers


def state(leader: BrokerId, isr: tuple[int, ...]) -> PartitionState:
    return PartitionState(leader, LeaderEpoch(7), isr, 3)


def test_the_first_live_replica_leads_a_new_partition() -> None:
    assert first_state(REPLICAS, alive(ONE, TWO, THREE)) == PartitionState(THREE, LeaderEpoch(0), REPLICAS, 0)
    assert first_state(REPLICAS, alive(TWO)) == PartitionState(TWO, LeaderEpoch(0), (TWO,), 0)
    assert first_state(REPLICAS, alive()).leader == NO_LEADER


def test_an_election_keeps_to_the_isr_and_raises_the_epoch() -> None:
    elected = next_state(state(TWO, (TWO, ONE)), REPLICAS, alive(ONE, TWO, THREE), unclean=False)
    assert elected == PartitionState(ONE, LeaderEpoch(8), (ONE, TWO), 3)


def test_without_a_live_member_of_the_isr_nobody_leads_and_the_isr_stays() -> None:
    elected = next_state(state(TWO, (TWO,)), REPLICAS, alive(ONE, THREE), unclean=False)
    assert elected == PartitionState(NO_LEADER, LeaderEpoch(8), (TWO,), 3)


def test_an_unclean_election_leaves_its_mark() -> None:
    elected = next_state(state(TWO, (TWO,)), REPLICAS, alive(ONE), unclean=True)
    assert elected == PartitionState(ONE, LeaderEpoch(8), (ONE,), 3, leader_recovering=True)
