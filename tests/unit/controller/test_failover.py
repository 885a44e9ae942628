"""A broker becomes the controller: what it reads, whom it tells what, in which order."""

from __future__ import annotations

from uuid import UUID

import pytest

from minikafka.controller import effects
from minikafka.controller.effects import ElectionConfig, TopicRecord
from minikafka.controller.events import BrokersChanged, Elected, IsrChangesAnnounced, TopicsChanged
from minikafka.controller.step import Controller
from minikafka.errors import InvariantError
from minikafka.types import NO_LEADER, BrokerId, TopicPartition
from tests.unit.controller.driver import Cluster, ControllerMoved, running, state


def test_everything_is_read_in_kafkas_order() -> None:
    cluster = running([1, 2])
    cluster.store.want_deleted("gone")
    cluster.elect()
    assert [type(effect) for effect in cluster.performed] == [
        effects.TakeLogDirEvents,
        effects.TakeIsrChanges,
        effects.ReadBrokers,
        effects.ReadTopics,
        effects.ReadAssignments,
        effects.ReadPartitionStates,
        effects.ReadTopicDeletions,
        effects.DropTopicDeletions,
        effects.ReadReassignments,
        effects.TakePreferredElections,
    ]


def test_all_brokers_know_who_is_alive_before_anybody_is_told_to_follow() -> None:
    cluster = running([1, 2], [2, 3])
    cluster.elect()
    first, *orders = cluster.sent[:4]
    assert isinstance(first, effects.SendUpdateMetadata)
    assert (first.to, first.is_full) == ((1, 2, 3), True)
    assert [broker.node_id for broker in first.live_brokers] == [1, 2, 3]
    assert [each.topic_partition for each in first.partitions] == [("t", 0), ("t", 1)]
    assert all(isinstance(order, effects.SendLeaderAndIsr) and order.is_full for order in orders)
    assert [[each.partition for each in order.partitions] for order in orders] == [[0], [0, 1], [1]]


def test_a_broker_without_partitions_hears_that_too() -> None:
    cluster = Cluster(1)
    cluster.elect()
    (metadata,) = cluster.update_metadata(1)
    (order,) = cluster.leader_and_isr(1)
    assert (metadata.partitions, metadata.is_full) == ((), True)
    assert [broker.node_id for broker in metadata.live_brokers] == [1]
    assert (order.partitions, order.is_full) == ((), True)


def test_a_failover_does_not_ask_or_tell_partition_by_partition() -> None:
    """3,000 partitions are read, written and told of in as many effects as three are."""
    counts = []
    for partitions in (3, 300):
        cluster = running(*[[1, 2, 3], [2, 3, 1], [3, 1, 2]] * (partitions // 3))
        cluster.store.unregister(1)
        cluster.elect(controller_id=2)
        assert cluster.store.state("t", partitions - 3) == state(2, 2, [2, 3], 2)
        counts.append((len(cluster.performed), len(cluster.sent)))
    assert counts[0] == counts[1]


def test_a_topic_that_was_created_while_there_was_no_controller_gets_leaders() -> None:
    cluster = Cluster(1, 2)
    cluster.store.create_topic("t", [[2, 1]])
    cluster.elect()
    assert cluster.store.state("t") == state(2, 0, [2, 1])
    (_, order) = cluster.leader_and_isr(1)
    assert [each.is_new for each in order.partitions] == [True]


def test_a_leader_that_died_with_the_controller_is_replaced() -> None:
    cluster = running([1, 2, 3])
    cluster.store.unregister(1)
    cluster.elect(controller_id=2)
    assert cluster.store.state("t") == state(2, 2, [2, 3], 2)
    assert cluster.leader_and_isr(3)[-1].partitions[0].leader == 2
    assert cluster.update_metadata(3)[-1].partitions[0].leader == 2


def test_a_partition_whose_replicas_are_all_dead_waits_for_the_last_member_of_its_isr() -> None:
    cluster = running([1, 2])
    cluster.store.unregister(1, 2)
    cluster.elect(controller_id=3)
    assert cluster.store.state("t") == state(NO_LEADER, 1, [2], 2, last=1)
    cluster.settle()
    cluster.store.register(1)
    cluster.settle()
    assert cluster.store.state("t").leader == NO_LEADER
    cluster.store.register(2)
    cluster.settle()
    assert cluster.store.state("t") == state(2, 2, [2], 2)


def test_a_leader_that_bounced_unseen_leads_in_a_new_epoch() -> None:
    """The only broker restarts: no other can be the controller that would have seen it (KIP-101)."""
    cluster = running([1], brokers=(1,))
    cluster.store.register(1)
    cluster.elect()
    assert cluster.store.state("t") == state(1, 1, [1], 2)
    (order,) = cluster.leader_and_isr(1)
    assert [each.leader_epoch for each in order.partitions] == [1]
    assert len([each for each in cluster.performed if isinstance(each, effects.WritePartitionStates)]) == 1


def test_who_bounced_unseen_does_not_lead_those_who_stayed() -> None:
    cluster = running([1, 2, 3])
    cluster.store.register(1, clean_start=False)
    cluster.elect(controller_id=2)
    assert cluster.store.state("t") == state(2, 2, [2, 3], 2)


def test_who_stopped_cleanly_and_bounced_unseen_leads_on_at_a_new_epoch() -> None:
    cluster = running([1, 2, 3])
    cluster.store.register(1)
    cluster.elect(controller_id=2)
    assert cluster.store.state("t") == state(1, 1, [1, 2, 3], 2)


def test_who_stayed_is_not_taken_for_a_broker_that_returned() -> None:
    cluster = running([1, 2, 3])
    cluster.elect(controller_id=2)
    assert cluster.store.state("t") == state(1, 0, [1, 2, 3], 1)


def test_topics_from_before_topic_ids_are_given_some() -> None:
    cluster = Cluster(1)
    cluster.store.create_topic("new", [[1]], topic_id=UUID(int=77))
    cluster.store.topics["old"] = TopicRecord(None, cluster.store.topics["new"].partitions)
    cluster.elect()
    assert cluster.store.topics["old"].topic_id is not None
    assert [each.topics for each in cluster.performed if isinstance(each, effects.AssignTopicIds)] == [
        ("old",)
    ]
    assert cluster.store.state("old") == cluster.store.state("new") == state(1, 0, [1])


def test_while_a_topic_cannot_be_read_nothing_is_called_full() -> None:
    """Else its logs would be strays, and clients would be told that it does not exist."""
    cluster = running([1, 2])
    cluster.store.create_topic("damaged", [[1]])
    cluster.store.damaged_topics.add("damaged")
    cluster.elect()
    assert not any(order.is_full for order in cluster.leader_and_isr(1))
    assert not any(metadata.is_full for metadata in cluster.update_metadata(1))
    cluster.settle()
    cluster.store.damaged_topics.clear()
    cluster.step(TopicsChanged())
    cluster.clear()
    cluster.elect()
    assert [order.is_full for order in cluster.leader_and_isr(1)] == [True]


def test_a_partition_without_a_state_keeps_its_brokers_request_from_being_full() -> None:
    """Its state may be damaged; a broker that has a log of it must not take that for a stray."""
    cluster = running([1, 2], [2])
    del cluster.store.states[TopicPartition("t", 1)]
    cluster.elect()
    assert [order.is_full for order in cluster.leader_and_isr(1)] == [True]
    assert [order.is_full for order in cluster.leader_and_isr(2)] == [False, False]


def test_for_a_topic_to_be_deleted_no_leader_is_elected() -> None:
    """Its deletion waits for the broker that has died with the controller."""
    cluster = running([1, 2])
    cluster.store.unregister(1)
    cluster.store.want_deleted("t")
    cluster.elect(controller_id=2)
    assert cluster.store.state("t") == state(NO_LEADER, 1, [2], 2, last=1)
    assert [metadata.partitions for metadata in cluster.update_metadata(2)[:1]] == [()]
    cluster.settle()
    cluster.store.unregister(2)  # its replica was online, because the deletion could not begin
    cluster.settle()
    cluster.store.register(1, 2)
    cluster.settle()
    assert cluster.store.topics == {}


def test_old_announcements_are_dropped() -> None:
    cluster = running([1, 2])
    cluster.store.leader_writes_isr(TopicPartition("t", 0), [1], version=0)
    cluster.store.announce_lost_log_dir(1)
    cluster.elect()
    assert (cluster.store.isr_changes, cluster.store.log_dir_events) == ([], [])
    assert cluster.update_metadata(2)[0].partitions[0].isr == (1,)


def test_an_old_controller_writes_nothing_once_there_is_a_new_one() -> None:
    """R13, KAFKA-6082: it slept, and its session is over."""
    cluster = running([1, 2, 3])
    cluster.store.unregister(1)
    old, old_epoch = cluster.controller, cluster.epoch
    step = old.step(BrokersChanged())
    effect = next(step)
    while not isinstance(effect, effects.WritePartitionStates):
        effect = step.send(cluster.store.perform(effect, controller_epoch=old_epoch))
    cluster.elect(controller_id=2)
    before = dict(cluster.store.states)
    with pytest.raises(ControllerMoved):
        cluster.store.perform(effect, controller_epoch=old_epoch)
    step.close()
    assert cluster.store.states == before
    with pytest.raises(InvariantError):
        next(old.step(BrokersChanged()))


def test_a_state_of_a_later_controller_is_not_overwritten() -> None:
    """The guard is one thing; the state itself says it too."""
    cluster = running([1, 2, 3], [1])
    later = effects.VersionedState(state(3, 5, [3], 9), 7)
    cluster.store.states[TopicPartition("t", 0)] = later
    cluster.store.unregister(1)
    cluster.settle()
    assert cluster.store.states[TopicPartition("t", 0)] == later
    assert cluster.store.state("t", 1) == state(NO_LEADER, 1, [1], last=1)


def test_a_controller_begins_with_its_election_and_has_one() -> None:
    controller = Controller(BrokerId(1))
    with pytest.raises(InvariantError):
        next(controller.step(IsrChangesAnnounced()))
    cluster = Cluster(1)
    cluster.elect()
    with pytest.raises(InvariantError):
        cluster.step(Elected(2))
    assert "epoch 1, brokers [1]" in repr(cluster.controller)


@pytest.mark.parametrize("unclean", [False, True])
def test_an_election_at_the_start_is_unclean_only_where_the_topic_wants_it(unclean: bool) -> None:
    cluster = running([1, 2])
    cluster.store.leader_writes_isr(TopicPartition("t", 0), [1], version=0)
    cluster.store.configs["t"] = ElectionConfig(unclean_leader_election=unclean)
    cluster.store.unregister(1)
    cluster.elect(controller_id=2)
    elected = state(2, 2, [2], 2, recovering=True) if unclean else state(NO_LEADER, 1, [1], 2, last=1)
    assert cluster.store.state("t") == elected


@pytest.mark.parametrize("survives", range(30))
def test_a_failover_may_end_anywhere_and_the_next_one_puts_everything_right(survives: int) -> None:
    cluster = running([1, 2, 3], [2, 3], [3, 1])
    cluster.store.create_topic("new", [[2, 3]])
    cluster.store.want_deleted("t")
    cluster.store.unregister(1)
    cluster.elect(controller_id=2, stop_after=survives)
    cluster.elect(controller_id=3)
    cluster.store.register(1)
    cluster.settle()
    assert (list(cluster.store.topics), cluster.store.deletions) == (["new"], {})
    assert cluster.store.state("new").isr == (2, 3)
    assert cluster.disks == {1: {}, 2: cluster.disks[3], 3: cluster.disks[2]}
