"""Topics are created, grow, vanish, and their leaders write ISRs."""

from __future__ import annotations

from uuid import UUID

from minikafka.controller import effects
from minikafka.controller.events import IsrChangesAnnounced, PartitionsChanged, TopicsChanged
from minikafka.types import TopicPartition
from tests.unit.controller.driver import Cluster, running, state

T0 = TopicPartition("t", 0)


def test_a_new_topic_is_led_by_its_preferred_replicas_and_no_broker_is_told_twice() -> None:
    cluster = running(brokers=(1, 2, 3, 4))
    cluster.store.create_topic("new", [[1, 2, 3], [2, 3, 1]], topic_id=UUID(int=99))
    cluster.settle()
    assert cluster.store.state("new") == state(1, 0, [1, 2, 3])
    assert cluster.store.state("new", 1) == state(2, 0, [2, 3, 1])
    for broker in (1, 2, 3):
        (order,) = cluster.leader_and_isr(broker)
        assert [(each.partition, each.is_new, each.topic_id) for each in order.partitions] == [
            (0, True, UUID(int=99)),
            (1, True, UUID(int=99)),
        ]
        assert not order.is_full
    assert cluster.leader_and_isr(4) == []
    (metadata,) = cluster.update_metadata(4)
    assert [each.leader for each in metadata.partitions] == [1, 2]


def test_replicas_that_are_away_are_not_in_a_new_isr() -> None:
    cluster = running(brokers=(2, 3))
    cluster.store.create_topic("new", [[1, 2, 3]])
    cluster.settle()
    assert cluster.store.state("new") == state(2, 0, [2, 3])
    assert cluster.shown(3, "new").offline_replicas == (1,)
    cluster.store.register(1)
    cluster.settle()
    assert cluster.told(1, "new").leader == 2


def test_a_topic_whose_brokers_are_all_away_begins_when_one_of_them_comes() -> None:
    cluster = running()
    cluster.store.create_topic("new", [[8, 9]])
    cluster.settle()
    assert TopicPartition("new", 0) not in cluster.store.states
    cluster.store.register(9)
    cluster.settle()
    assert cluster.store.state("new") == state(9, 0, [9])
    cluster.store.register(8)
    cluster.settle()
    assert cluster.told(8, "new").leader == 9


def test_a_state_that_is_there_already_is_taken_up() -> None:
    """The answer to its creation got lost, and the shell has tried again."""
    cluster = running()
    cluster.store.create_topic("new", [[2, 1]])
    cluster.store.states[TopicPartition("new", 0)] = effects.VersionedState(state(2, 0, [2, 1]), 0, 50)
    cluster.settle()
    assert cluster.store.state("new") == state(2, 1, [2, 1])
    assert cluster.told(1, "new").leader_epoch == 1


def test_a_topic_that_vanishes_while_it_is_created_leaves_nothing_behind() -> None:
    cluster = running()
    cluster.store.create_topic("new", [[2, 1]])

    def vanish(effect: effects.Effect) -> None:
        if isinstance(effect, effects.CreatePartitionStates):
            cluster.store.remove_topic("new")

    cluster.before = vanish
    cluster.settle()
    assert cluster.store.states.keys() == {}.keys()
    assert "0 topics" not in repr(cluster.controller)  # t has no partitions, and is known
    assert "1 topics" in repr(cluster.controller)


def test_added_partitions_get_leaders_and_the_others_are_left_alone() -> None:
    cluster = running([1, 2])
    cluster.store.add_partitions("t", [[2, 3], [3, 1]])
    cluster.settle()
    assert cluster.store.version("t") == 0
    assert [cluster.store.state("t", each).leader for each in (1, 2)] == [2, 3]
    (order,) = cluster.leader_and_isr(1)
    assert [(each.partition, each.is_new) for each in order.partitions] == [(2, True)]


def test_a_topics_node_that_was_written_without_news_is_no_news() -> None:
    cluster = running([1, 2])
    cluster.step(PartitionsChanged("t"))
    cluster.step(PartitionsChanged("unheard of"))
    cluster.step(TopicsChanged())
    assert cluster.sent == []


def test_a_topic_that_was_removed_by_hand_is_forgotten() -> None:
    cluster = running([1, 2])
    cluster.store.remove_topic("t")
    cluster.settle()
    assert T0 not in cluster.brokers[cluster.store.brokers[1].node_id].metadata
    assert cluster.stop_replica(1) == []  # its logs stay
    cluster.clear()
    cluster.store.unregister(1)
    cluster.settle()
    assert not [each for each in cluster.performed if isinstance(each, effects.WritePartitionStates)]


def test_a_topic_that_was_removed_and_created_again_by_hand_is_a_new_one() -> None:
    cluster = running([1, 2], [1, 2])
    cluster.store.remove_topic("t")
    cluster.store.create_topic("t", [[3, 2]], topic_id=UUID(int=99))
    cluster.settle()
    assert cluster.store.state("t") == state(3, 0, [3, 2])
    assert cluster.shown(1, "t").topic_id == UUID(int=99)
    assert cluster.brokers[cluster.store.brokers[1].node_id].metadata.keys() == {T0}


def test_a_new_isr_is_shown_to_all_brokers() -> None:
    cluster = running([1, 2, 3])
    cluster.store.leader_writes_isr(T0, [1, 3], version=0)
    cluster.settle()
    (metadata,) = cluster.sent
    assert isinstance(metadata, effects.SendUpdateMetadata)
    assert metadata.to == (1, 2, 3)
    (shown,) = metadata.partitions
    assert (shown.isr, shown.partition_epoch, shown.leader_epoch) == ((1, 3), 1, 0)


def test_announcements_about_what_is_gone_are_ignored() -> None:
    cluster = running([1, 2])
    cluster.store.isr_changes += [TopicPartition("gone", 0), TopicPartition("t", 7)]
    cluster.step(IsrChangesAnnounced())
    cluster.step(IsrChangesAnnounced())
    assert cluster.sent == []


def test_a_topic_without_partitions_is_no_trouble() -> None:
    cluster = Cluster(1)
    cluster.store.create_topic("empty", [])
    cluster.elect()
    cluster.store.want_deleted("empty")
    cluster.settle()
    assert cluster.store.topics == {}
