"""New partitions are spread over the brokers."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from minikafka.server.assignment import assign_replicas
from minikafka.types import BrokerId


@given(data=st.data())
def test_replicas_are_distinct_and_leaders_are_balanced(data: st.DataObject) -> None:
    brokers = [BrokerId(node_id) for node_id in range(1, data.draw(st.integers(1, 7)) + 1)]
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
        assert set(replicas) <= set(brokers)
    leaders = Counter(replicas[0] for replicas in assignment)
    assert max(leaders.values()) - min(leaders[broker] for broker in brokers) <= 1


def test_partitions_of_one_leader_do_not_all_share_their_follower() -> None:
    brokers = [BrokerId(node_id) for node_id in range(5)]
    assignment = assign_replicas(brokers, partitions=20, replication_factor=2, rng=random.Random(7))
    followers = {replicas[1] for replicas in assignment if replicas[0] == assignment[0][0]}
    assert len(followers) == 4
