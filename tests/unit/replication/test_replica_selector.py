"""A consumer reads in its own rack where a replica there is able to answer (KIP-392)."""

from __future__ import annotations

import pytest

from minikafka.errors import ConfigError
from minikafka.replication.partition_replicas import (
    ReplicaView,
    replica_selector,
    select_in_rack,
    select_leader,
)
from minikafka.types import BrokerId, Offset

LEADER = ReplicaView(BrokerId(1), "a", Offset(100), 0)


def view(broker_id: int, rack: str | None, log_end: int = 100, lag_ms: int = 0) -> ReplicaView:
    return ReplicaView(BrokerId(broker_id), rack, Offset(log_end), lag_ms)


def test_the_leader_is_chosen_in_its_own_rack_and_where_no_other_replica_is() -> None:
    followers = [view(2, "a"), view(3, "b")]
    for rack in ("a", "c", ""):
        assert select_in_rack(rack, LEADER, followers) is LEADER
    assert select_in_rack("", LEADER._replace(rack=None), [view(2, None)]).broker_id == 1


def test_of_several_in_the_rack_the_one_closest_behind_is_chosen() -> None:
    assert select_in_rack("b", LEADER, [view(2, "b", 90), view(3, "b", 95), view(4, "a", 100)]).broker_id == 3
    assert select_in_rack("b", LEADER, [view(2, "b", lag_ms=5), view(3, "b", lag_ms=9)]).broker_id == 2
    assert select_in_rack("b", LEADER, [view(2, "b"), view(3, "b")]).broker_id == 3


def test_the_leader_selector_always_chooses_the_leader() -> None:
    assert select_leader("b", LEADER, [view(2, "b")]) is LEADER


def test_selectors_have_kafkas_names() -> None:
    assert replica_selector(None) is None
    assert replica_selector("org.apache.kafka.common.replica.RackAwareReplicaSelector") is select_in_rack
    assert replica_selector("org.apache.kafka.common.replica.LeaderSelector") is select_leader
    with pytest.raises(ConfigError, match=r"my\.Selector"):
        replica_selector("my.Selector")
