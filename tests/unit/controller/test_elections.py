"""Elections on demand: preferred ones, unclean ones, and the balance that the controller keeps by itself."""

from __future__ import annotations

import pytest

from minikafka.controller import effects
from minikafka.controller.events import LeaderElectionsAsked, LeaderRebalanceDue
from minikafka.errors import ErrorCode, KafkaError
from minikafka.types import NO_LEADER, ElectionType, TopicPartition
from tests.unit.controller.driver import Cluster, running, state

T0, T1, T2 = (TopicPartition("t", partition) for partition in range(3))
PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN


def ask(
    cluster: Cluster, election_type: ElectionType, *partitions: TopicPartition
) -> dict[TopicPartition, ErrorCode]:
    """ElectLeaders of ``partitions``, or of all."""
    results = cluster.step(LeaderElectionsAsked(partitions or None, election_type))
    assert isinstance(results, dict)
    return {each: ErrorCode.NONE if error is None else error.code for each, error in results.items()}


def led_by_others(*replicas: list[int], brokers: tuple[int, ...] = (1, 2, 3)) -> Cluster:
    """The partitions that broker 1 is preferred for are led by another broker, and it is in sync again."""
    cluster = running(*replicas, brokers=brokers)
    cluster.store.unregister(1)
    cluster.settle()
    cluster.store.register(1)
    cluster.calm_down()
    cluster.clear()
    return cluster


def orphaned() -> Cluster:
    """Of the three partitions the first and the second have no leader; 2 and 3 are alive and not in the
    ISR."""
    cluster = running([1, 2], [1, 3], [2, 1])
    cluster.store.leader_writes_isr(T0, [1], version=0)
    cluster.store.leader_writes_isr(T1, [1], version=0)
    cluster.store.unregister(1)
    cluster.settle()
    cluster.clear()
    return cluster


# Preferred leaders


def test_each_partition_that_was_asked_about_is_answered_as_kafka_does() -> None:
    cluster = led_by_others([1, 2], [2, 1], [1, 2])
    cluster.store.leader_writes_isr(T2, [2], version=cluster.store.version("t", 2))
    cluster.store.create_topic("leaving", [[1]])
    cluster.settle()
    cluster.store.want_deleted("leaving")
    cluster.settle_events()
    gone, leaving = TopicPartition("t", 9), TopicPartition("leaving", 0)
    assert ask(cluster, PREFERRED, T0, T1, T2, gone, leaving, T0) == {
        T0: ErrorCode.NONE,
        T1: ErrorCode.ELECTION_NOT_NEEDED,
        T2: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        gone: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        leaving: ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert [cluster.store.state("t", each).leader for each in range(3)] == [1, 2, 2]
    cluster.settle()
    assert (cluster.told(2, "t").leader, cluster.shown(3, "t").leader) == (1, 1)


def test_of_all_partitions_those_that_need_no_election_are_left_out() -> None:
    cluster = led_by_others([1, 2], [2, 1], [1, 2])
    cluster.store.leader_writes_isr(T2, [2], version=cluster.store.version("t", 2))
    cluster.settle()
    assert ask(cluster, PREFERRED) == {T0: ErrorCode.NONE, T2: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert ask(cluster, UNCLEAN) == {}


def test_an_answer_says_why_no_leader_was_elected() -> None:
    cluster = orphaned()
    results = cluster.step(LeaderElectionsAsked((T0,), PREFERRED))
    assert isinstance(results, dict)
    error = results[T0]
    assert isinstance(error, KafkaError)
    assert "t-0 does not become OnlinePartition: no leader can be elected (preferred)" in str(error)


def test_a_partition_that_never_had_a_leader_has_no_preferred_leader() -> None:
    cluster = running([8, 9])
    assert ask(cluster, PREFERRED, T0) == {T0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert ask(cluster, UNCLEAN) == {T0: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


def test_the_admin_nodes_requests_are_granted_where_they_can_be() -> None:
    cluster = led_by_others([1, 2], [2, 1])
    cluster.store.want_preferred(T0, T1, TopicPartition("gone", 0))
    cluster.settle()
    assert [cluster.store.state("t", each).leader for each in range(2)] == [1, 2]
    assert len(cluster.all_performed(effects.WritePartitionStates)) == 1


def test_a_new_controller_grants_what_was_asked_for_in_between() -> None:
    cluster = led_by_others([1, 2])
    cluster.store.preferred_elections = [T0]
    cluster.elect(controller_id=2)
    assert cluster.store.state("t").leader == 1
    assert cluster.store.preferred_elections == []


# Unclean elections


def test_an_unclean_election_takes_who_is_alive_and_the_topics_configuration_does_not_matter() -> None:
    cluster = orphaned()
    assert ask(cluster, UNCLEAN, T0, T2) == {T0: ErrorCode.NONE, T2: ErrorCode.ELECTION_NOT_NEEDED}
    assert cluster.store.state("t") == state(2, 2, [2], recovering=True)
    assert cluster.store.state("t", 1).leader == NO_LEADER  # it was not asked for


def test_an_unclean_election_prefers_who_holds_all_that_is_committed() -> None:
    """KIP-966: 3 is eligible, and comes before 2, which is not, though 2 comes first in the assignment."""
    cluster = running([1, 2, 3])
    cluster.store.configs["t"] = effects.ElectionConfig(min_insync_replicas=2)
    cluster.store.states[T0] = effects.VersionedState(state(1, 0, [1], eligible=[3]), 0, 90)
    cluster.store.unregister(1, 3)
    cluster.settle()
    cluster.store.register(3)
    cluster.settle()
    assert ask(cluster, UNCLEAN, T0) == {T0: ErrorCode.ELECTION_NOT_NEEDED}  # it was elected at once
    assert cluster.store.state("t").leader == 3
    assert not cluster.store.state("t").leader_recovering


def test_without_a_replica_that_is_alive_none_is_elected_uncleanly() -> None:
    cluster = orphaned()
    cluster.store.unregister(2)
    cluster.settle()
    assert ask(cluster, UNCLEAN) == {
        T0: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        T1: ErrorCode.NONE,
        T2: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    }


# The balance


def test_a_broker_that_leads_too_little_of_what_it_is_preferred_for_gets_it_back() -> None:
    cluster = led_by_others([1, 2], [1, 2], [2, 1])
    cluster.step(LeaderRebalanceDue(10))
    assert [cluster.store.state("t", each).leader for each in range(3)] == [1, 1, 2]
    assert len(cluster.all_performed(effects.WritePartitionStates)) == 1
    cluster.settle()
    assert cluster.told(2, "t").leader == 1
    cluster.clear()
    cluster.step(LeaderRebalanceDue(0))
    assert cluster.performed == cluster.sent == []


@pytest.mark.parametrize(("percent", "leader"), [(49, 1), (50, 2)])
def test_the_share_that_others_lead_has_to_be_more_than_the_limit(percent: int, leader: int) -> None:
    cluster = led_by_others([1, 2], [1, 2])
    ask(cluster, PREFERRED, T1)
    cluster.step(LeaderRebalanceDue(percent))
    assert cluster.store.state("t").leader == leader


def test_who_is_not_in_sync_does_not_get_it_back() -> None:
    cluster = led_by_others([1, 2])
    cluster.store.leader_writes_isr(T0, [2], version=cluster.store.version("t"))
    cluster.settle()
    cluster.clear()
    cluster.step(LeaderRebalanceDue(10))
    cluster.store.unregister(1)
    cluster.settle()
    cluster.clear()
    cluster.step(LeaderRebalanceDue(10))
    assert cluster.performed == []


def test_topics_to_be_deleted_do_not_count() -> None:
    cluster = led_by_others([1, 2], [2, 1])
    cluster.store.create_topic("leaving", [[1, 2]] * 9)
    cluster.settle()
    cluster.store.want_deleted("leaving")
    cluster.settle_events()
    cluster.step(LeaderRebalanceDue(50))
    assert cluster.store.state("t").leader == 1


def test_while_a_partition_is_being_reassigned_nothing_is_balanced() -> None:
    cluster = led_by_others([1, 2], [2, 3])
    cluster.store.reassign("t", None, [1])
    cluster.settle()
    cluster.clear()
    cluster.step(LeaderRebalanceDue(10))
    assert cluster.performed == []
    cluster.calm_down()
    cluster.step(LeaderRebalanceDue(10))
    assert cluster.store.state("t").leader == 1
