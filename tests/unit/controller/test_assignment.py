"""New partitions are spread over the brokers and over their racks, as Kafka spreads them."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.controller.assignment import BrokerMetadata, assign_replicas, rack_alternated
from minikafka.types import BrokerId


class Fixed(random.Random):
    """Draws what it is told to, as Kafka's tests do with ``fixedStartIndex``."""

    def __init__(self, drawn: int) -> None:
        super().__init__(0)
        self._drawn = drawn

    def randrange(self, *args: object, **kwargs: object) -> int:
        return self._drawn


def brokers_in(racks: dict[int, str | None]) -> list[BrokerMetadata]:
    return [BrokerMetadata(BrokerId(node_id), rack) for node_id, rack in racks.items()]


def without_racks(count: int) -> list[BrokerMetadata]:
    return brokers_in(dict.fromkeys(range(count)))


SIX_IN_THREE: dict[int, str | None] = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}


def test_without_racks_the_result_is_that_of_kafkas_own_test() -> None:
    """``AdminTest.testReplicaAssignment``."""
    assignment = assign_replicas(without_racks(5), partitions=10, replication_factor=3, rng=Fixed(0))
    assert assignment == [
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 4),
        (3, 4, 0),
        (4, 0, 1),
        (0, 2, 3),
        (1, 3, 4),
        (2, 4, 0),
        (3, 0, 1),
        (4, 1, 2),
    ]


def test_with_racks_the_result_is_that_of_kafkas_own_test() -> None:
    """``AdminRackAwareTest.testGetRackAlternatedBrokerListAndAssignReplicasToBrokers``."""
    brokers = brokers_in(SIX_IN_THREE)
    assert rack_alternated(brokers) == [0, 3, 1, 5, 4, 2]
    assert rack_alternated(brokers[:5]) == [0, 3, 1, 4, 2]
    assignment = assign_replicas(brokers, partitions=7, replication_factor=3, rng=Fixed(0))
    assert assignment == [
        (0, 3, 1),
        (3, 1, 5),
        (1, 5, 4),
        (5, 4, 2),
        (4, 2, 0),
        (2, 0, 3),
        (0, 4, 2),
    ]


def test_partitions_that_are_added_go_on_where_the_others_ended() -> None:
    brokers = brokers_in(SIX_IN_THREE)
    whole = assign_replicas(brokers, partitions=6, replication_factor=3, rng=Fixed(0))
    added = assign_replicas(brokers, partitions=2, replication_factor=3, first_partition=4, rng=Fixed(0))
    assert added == whole[4:]


def test_racks_count_only_when_all_brokers_have_one() -> None:
    some = brokers_in(SIX_IN_THREE | {5: None})
    assert assign_replicas(some, partitions=9, replication_factor=3, rng=Fixed(2)) == assign_replicas(
        without_racks(6), partitions=9, replication_factor=3, rng=Fixed(2)
    )


@pytest.mark.parametrize(("replication_factor", "racks"), [(2, 2), (3, 3), (5, 3)])
def test_replicas_are_in_as_many_racks_as_can_be(replication_factor: int, racks: int) -> None:
    """``testLessReplicasThanRacks``, ``testAssignmentWithRackAware``, ``testMoreReplicasThanRacks``."""
    for seed in range(50):
        assignment = assign_replicas(
            brokers_in(SIX_IN_THREE),
            partitions=12,
            replication_factor=replication_factor,
            rng=random.Random(seed),
        )
        for replicas in assignment:
            assert len(set(replicas)) == replication_factor
            assert len({SIX_IN_THREE[replica] for replica in replicas}) == racks


@given(data=st.data())
def test_replicas_are_distinct_and_leaders_are_balanced(data: st.DataObject) -> None:
    rack = data.draw(st.sampled_from([st.none(), st.sampled_from("abc"), st.sampled_from(["a", None])]))
    brokers = brokers_in({node_id: data.draw(rack) for node_id in range(1, data.draw(st.integers(1, 7)) + 1)})
    replication_factor = data.draw(st.integers(1, len(brokers)))
    partitions = data.draw(st.integers(1, 40))
    assignment = assign_replicas(
        brokers,
        partitions=partitions,
        replication_factor=replication_factor,
        rng=random.Random(data.draw(st.integers())),
    )
    assert len(assignment) == partitions
    for replicas in assignment:
        assert len(set(replicas)) == len(replicas) == replication_factor
        assert set(replicas) <= {broker.node_id for broker in brokers}
    leaders = Counter(replicas[0] for replicas in assignment)
    assert max(leaders.values()) - min(leaders[broker.node_id] for broker in brokers) <= 1


def test_partitions_of_one_leader_do_not_all_share_their_follower() -> None:
    assignment = assign_replicas(without_racks(5), partitions=20, replication_factor=2, rng=random.Random(7))
    followers = {replicas[1] for replicas in assignment if replicas[0] == assignment[0][0]}
    assert len(followers) == 4
