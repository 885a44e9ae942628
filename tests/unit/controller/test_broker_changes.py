"""Brokers come, go, come back and move."""

from __future__ import annotations

import pytest

from minikafka.controller import effects
from minikafka.controller.effects import Effect, ElectionConfig
from minikafka.controller.events import BrokersChanged, UncleanElectionEnabled
from minikafka.types import NO_LEADER, TopicPartition
from tests.unit.controller.driver import Cluster, running, state

T0 = TopicPartition("t", 0)


def test_when_a_leader_dies_the_next_member_of_the_isr_leads_and_everybody_hears_it() -> None:
    cluster = running([1, 2, 3])
    cluster.store.unregister(1)
    cluster.settle()
    assert cluster.store.state("t") == state(2, 1, [2, 3])
    for broker in (2, 3):
        assert (cluster.told(broker, "t").leader, cluster.told(broker, "t").leader_epoch) == (2, 1)
        shown = cluster.shown(broker, "t")
        assert (shown.leader, shown.isr, shown.offline_replicas) == (2, (2, 3), (1,))
        assert [each.node_id for each in cluster.brokers[shown.isr[0]].live_brokers] == [2, 3]
    assert cluster.leader_and_isr(1) == cluster.update_metadata(1) == []


def test_a_leaders_death_costs_one_write_for_each_partition() -> None:
    cluster = running([1, 2, 3])
    cluster.store.unregister(1)
    cluster.settle()
    assert cluster.store.version("t") == 1


def test_when_a_follower_dies_it_leaves_the_isr_in_a_new_epoch() -> None:
    cluster = running([1, 2, 3])
    cluster.store.unregister(3)
    cluster.settle()
    assert cluster.store.state("t") == state(1, 1, [1, 2])
    assert cluster.told(1, "t").isr == (1, 2)
    assert cluster.told(1, "t").partition_epoch == 1
    assert cluster.shown(2, "t").offline_replicas == (3,)


def test_the_last_member_of_an_isr_stays_in_it_and_leads_again_when_it_returns() -> None:
    cluster = running([1, 2])
    cluster.store.leader_writes_isr(T0, [1], version=0)
    cluster.store.unregister(1)
    cluster.settle()
    assert cluster.store.state("t") == state(NO_LEADER, 1, [1], last=1)
    assert cluster.shown(2, "t").leader == NO_LEADER
    cluster.store.register(1)
    cluster.settle()
    assert cluster.store.state("t") == state(1, 2, [1])


def test_an_unclean_leader_is_elected_as_soon_as_the_topic_allows_it() -> None:
    cluster = running([1, 2])
    cluster.store.create_topic("other", [[1, 2]])
    cluster.settle()
    cluster.store.leader_writes_isr(T0, [1], version=0)
    cluster.store.leader_writes_isr(TopicPartition("other", 0), [1], version=0)
    cluster.store.unregister(1)
    cluster.settle()
    cluster.store.configs["t"] = cluster.store.configs["other"] = ElectionConfig(unclean_leader_election=True)
    cluster.step(UncleanElectionEnabled("t"))
    assert cluster.store.state("t") == state(2, 2, [2], recovering=True)
    assert cluster.store.state("other").leader == NO_LEADER
    cluster.step(UncleanElectionEnabled(None))
    assert cluster.store.state("other").leader == 2


def test_each_topic_is_asked_once_what_its_elections_have_to_keep() -> None:
    cluster = running([1, 2], [1, 3], [2, 3])
    cluster.store.create_topic("other", [[2, 3]])
    cluster.settle()
    cluster.clear()
    cluster.store.unregister(1)
    cluster.settle()
    asked = [each.topics for each in cluster.performed if isinstance(each, effects.ReadTopicConfigs)]
    assert asked and set(asked) == {("t",)}


def test_a_new_broker_hears_everything_and_the_others_hear_of_it() -> None:
    cluster = running([1, 2])
    cluster.store.register(4, rack="r")
    cluster.settle()
    (news,) = cluster.update_metadata(1)[:1]
    assert (news.partitions, news.is_full) == ((), False)
    assert [(each.node_id, each.rack) for each in news.live_brokers][-1] == (4, "r")
    first = cluster.update_metadata(4)[0]
    assert ([each.topic_partition for each in first.partitions], first.is_full) == ([T0], True)
    (order,) = cluster.leader_and_isr(4)
    assert (order.partitions, order.is_full) == ((), True)


def test_the_first_broker_in_an_empty_cluster_can_serve() -> None:
    cluster = Cluster(1)
    cluster.elect()
    cluster.clear()
    cluster.store.register(2)
    cluster.settle()
    assert [(each.partitions, each.is_full) for each in cluster.update_metadata(2)[:1]] == [((), True)]


def test_a_broker_that_returns_is_told_what_it_has_and_follows() -> None:
    cluster = running([1, 2, 3], [3, 1])
    cluster.store.unregister(3)
    cluster.settle()
    cluster.clear()
    cluster.store.register(3)
    cluster.settle()
    order = cluster.leader_and_isr(3)[0]
    assert order.is_full
    assert [(each.partition, each.leader) for each in order.partitions] == [(0, 1), (1, 1)]
    assert [broker.node_id for broker in order.live_leaders] == [1]
    assert cluster.shown(1, "t").offline_replicas == ()
    assert cluster.store.state("t").isr == (1, 2)  # it has to catch up first


def test_a_broker_that_bounced_fails_before_it_starts() -> None:
    """It was never seen away: the epoch tells. Its followers must not think that it has what it had."""
    cluster = running([1, 2, 3])
    cluster.store.register(1)
    cluster.settle()
    assert cluster.store.state("t") == state(2, 1, [2, 3])
    assert cluster.told(1, "t").leader == 2
    assert cluster.leader_and_isr(1)[0].is_full


def test_a_bounced_follower_leaves_the_isr() -> None:
    cluster = running([1, 2, 3])
    cluster.store.register(3)
    cluster.settle()
    assert cluster.store.state("t") == state(1, 1, [1, 2])


def test_an_expansion_that_names_a_broker_which_bounced_is_refused() -> None:
    """R11, KIP-903: the leader decides to take 3 in, 3 dies and comes back empty, then the leader writes."""
    cluster = running([1, 2, 3])
    cluster.store.leader_writes_isr(T0, [1, 2], version=0)
    cluster.settle()
    decided_at = cluster.store.version("t")
    cluster.store.register(3)
    cluster.settle()
    assert not cluster.store.leader_writes_isr(T0, [1, 2, 3], version=decided_at)
    assert cluster.told(1, "t").leader_epoch == 1  # what 3 fetched before is of an old epoch
    assert cluster.store.state("t") == state(1, 1, [1, 2])


def test_an_expansion_that_was_written_first_is_taken_back() -> None:
    cluster = running([1, 2, 3])
    cluster.store.leader_writes_isr(T0, [1, 2], version=0)
    cluster.settle()
    cluster.store.register(3)

    def expand(effect: Effect) -> None:
        if isinstance(effect, effects.WritePartitionStates):
            cluster.before = lambda effect: None
            assert cluster.store.leader_writes_isr(T0, [1, 2, 3], version=1)

    cluster.before = expand
    cluster.settle()
    assert cluster.store.state("t") == state(1, 1, [1, 2])


@pytest.mark.parametrize("times", [1, 3])
def test_an_election_that_loses_the_race_against_the_leader_starts_over(times: int) -> None:
    """The dying leader has shrunk its ISR in between: who is not in it any more must not be elected."""
    cluster = running([1, 2, 3])
    isrs = [[1, 3], [1, 2, 3], [1, 3]][-times:]

    def shrink(effect: Effect) -> None:
        if isinstance(effect, effects.WritePartitionStates) and isrs:
            cluster.store.leader_writes_isr(T0, isrs.pop(0), version=cluster.store.version("t"))

    cluster.store.unregister(1)
    cluster.before = shrink
    cluster.settle()
    assert cluster.store.state("t") == state(3, 1, [3])


def test_who_is_taken_into_the_isr_as_a_leaders_last_deed_can_follow_it() -> None:
    """No leader can be elected when the election reads the state, one can when the leader is removed."""
    cluster = running([1, 2])
    cluster.store.leader_writes_isr(T0, [1], version=0)
    cluster.settle()
    cluster.store.unregister(1)

    def expand(effect: Effect) -> None:
        if isinstance(effect, effects.WritePartitionStates):
            cluster.before = lambda effect: None
            assert cluster.store.leader_writes_isr(T0, [1, 2], version=1)

    cluster.before = expand
    cluster.settle()
    assert cluster.store.state("t") == state(2, 2, [2])


def test_brokers_that_die_and_come_at_once_are_handled_in_one_step() -> None:
    """The one that returns may lead at once, and the one that is gone is not elected."""
    cluster = running([2, 1], [3, 1])
    cluster.store.leader_writes_isr(T0, [2], version=0)
    cluster.store.unregister(2)
    cluster.settle()
    assert cluster.store.state("t").leader == NO_LEADER
    cluster.store.register(2)
    cluster.store.unregister(1, 3)
    cluster.store.register(4)
    cluster.clear()
    cluster.settle()
    assert len([each for each in cluster.performed if isinstance(each, effects.ReadBrokers)]) == 1
    assert (cluster.store.state("t").leader, cluster.store.state("t", 1).leader) == (2, NO_LEADER)
    for metadata in cluster.update_metadata(2):
        assert not {1, 3} & {each.node_id for each in metadata.live_brokers}


def test_a_broker_that_moves_is_told_of_and_nothing_else_happens() -> None:
    cluster = running([1, 2])
    cluster.store.move(1, port=9999)
    cluster.settle()
    (metadata,) = cluster.sent
    assert isinstance(metadata, effects.SendUpdateMetadata)
    assert (metadata.to, metadata.partitions, metadata.is_full) == ((1, 2, 3), (), False)
    assert metadata.live_brokers[0].endpoints[0].port == 9999
    assert cluster.store.version("t") == 0


def test_when_nothing_has_changed_no_broker_is_told_anything() -> None:
    cluster = running([1, 2])
    cluster.step(BrokersChanged())
    assert cluster.sent == []


def test_a_dead_broker_without_replicas_is_told_of() -> None:
    cluster = running([1, 2])
    cluster.store.unregister(3)
    cluster.settle()
    (metadata,) = cluster.update_metadata(1)
    assert [broker.node_id for broker in metadata.live_brokers] == [1, 2]


def test_a_follower_that_missed_an_epoch_hears_the_newest_one() -> None:
    """R5, KAFKA-7164: same leader, two epochs later; the epoch it is told is the one of the store."""
    cluster = running([1, 2, 3])
    cluster.store.unregister(3)
    cluster.settle()
    cluster.store.unregister(2)
    cluster.settle()
    assert cluster.store.state("t") == state(1, 2, [1])
    cluster.store.register(2)
    cluster.settle()
    assert (cluster.told(2, "t").leader, cluster.told(2, "t").leader_epoch) == (1, 2)


def test_who_has_not_caught_up_is_not_elected() -> None:
    """R6, KAFKA-7128: only the ISR counts, however many others are alive."""
    cluster = running([1, 2, 3])
    cluster.store.leader_writes_isr(T0, [1, 2], version=0)
    cluster.store.unregister(1)
    cluster.settle()
    cluster.store.unregister(2)
    cluster.settle()
    assert cluster.store.state("t") == state(NO_LEADER, 2, [2], last=2)
