"""Brokers lose log directories, and say so when they are asked."""

from __future__ import annotations

from minikafka.controller import effects
from minikafka.controller.events import LeaderAndIsrAnswered
from minikafka.errors import ErrorCode
from minikafka.protocol.control import LeaderAndIsrResponse, PartitionError
from minikafka.types import NO_LEADER, BrokerId, TopicPartition
from tests.unit.controller.driver import Cluster, running, state

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def answer(
    cluster: Cluster, broker: int, *errors: tuple[TopicPartition, ErrorCode], epoch: int | None = None
) -> LeaderAndIsrAnswered:
    live = cluster.store.brokers[BrokerId(broker)]
    results = tuple(PartitionError(*topic_partition, code) for topic_partition, code in errors)
    response = LeaderAndIsrResponse(ErrorCode.NONE, results)
    return LeaderAndIsrAnswered(live.node_id, live.epoch if epoch is None else epoch, response)


def lose(cluster: Cluster, broker: int, *partitions: TopicPartition) -> None:
    cluster.brokers[BrokerId(broker)].lost.update(partitions)
    cluster.store.announce_lost_log_dir(broker)


def test_a_broker_that_lost_a_directory_is_asked_about_all_that_it_has() -> None:
    cluster = running([1, 2], [2, 1], [2, 3])
    lose(cluster, 1, T0)
    cluster.step(cluster.store.events.popleft())
    (question,) = cluster.leader_and_isr(1)
    assert [each.topic_partition for each in question.partitions] == [T0, T1]
    assert not question.is_full
    assert cluster.leader_and_isr(2) == []
    assert cluster.store.version("t") == 0


def test_what_it_has_lost_is_led_by_others_and_what_it_has_is_not() -> None:
    cluster = running([1, 2, 3], [1, 2])
    lose(cluster, 1, T0)
    cluster.settle()
    assert cluster.store.state("t") == state(2, 1, [2, 3])
    assert cluster.store.state("t", 1) == state(1, 0, [1, 2])
    assert cluster.shown(3, "t").offline_replicas == (1,)
    assert cluster.store.version("t") == 1


def test_a_follower_that_lost_its_log_leaves_the_isr() -> None:
    cluster = running([1, 2, 3])
    lose(cluster, 3, T0)
    cluster.settle()
    assert cluster.store.state("t") == state(1, 1, [1, 2])


def test_a_lost_replica_is_elected_nowhere_until_its_broker_restarts() -> None:
    cluster = running([1, 2])
    lose(cluster, 1, T0)
    cluster.settle()
    cluster.store.unregister(2)
    cluster.settle()
    assert cluster.store.state("t") == state(NO_LEADER, 2, [2], last=2)
    cluster.store.register(1)
    cluster.settle()
    assert cluster.shown(1, "t").offline_replicas == (2,)
    assert cluster.store.state("t").leader == NO_LEADER
    cluster.store.register(2)
    cluster.settle()
    assert cluster.store.state("t") == state(2, 3, [2])
    assert cluster.told(1, "t").leader == 2


def test_the_only_replica_is_lost_and_found() -> None:
    """The broker answers without an error later: it can lead again at once."""
    cluster = running([1])
    lose(cluster, 1, T0)
    cluster.settle()
    assert cluster.store.state("t") == state(NO_LEADER, 1, [1], last=1)
    cluster.brokers[BrokerId(1)].lost.clear()
    cluster.step(answer(cluster, 1, (T0, ErrorCode.NONE)))
    cluster.settle()
    assert cluster.store.state("t") == state(1, 2, [1])
    assert cluster.told(1, "t").leader_epoch == 2


def test_what_is_known_to_be_lost_is_not_asked_about_again() -> None:
    cluster = running([1, 2], [1, 2])
    lose(cluster, 1, T0)
    cluster.settle()
    cluster.clear()
    lose(cluster, 1, T1)
    cluster.settle()
    question, *_ = cluster.leader_and_isr(1)
    assert [each.topic_partition for each in question.partitions] == [T1]
    assert cluster.store.state("t", 1) == state(2, 1, [2])


def test_the_same_bad_news_twice_is_no_news() -> None:
    cluster = running([1, 2])
    bad_news = answer(cluster, 1, (T0, ErrorCode.KAFKA_STORAGE_ERROR))
    cluster.step(bad_news)
    cluster.settle()
    cluster.clear()
    cluster.step(bad_news)
    assert cluster.sent == cluster.performed == []


def test_answers_that_say_nothing_of_a_disk_change_nothing() -> None:
    cluster = running([1, 2])
    epoch = cluster.store.brokers[BrokerId(1)].epoch
    storage_error = ErrorCode.KAFKA_STORAGE_ERROR
    for event in (
        answer(cluster, 1, (T0, storage_error), epoch=epoch - 1),
        answer(cluster, 1, (T0, ErrorCode.STALE_CONTROLLER_EPOCH)),
        answer(cluster, 1, (TopicPartition("gone", 0), storage_error)),
        answer(cluster, 3, (T0, storage_error)),
        LeaderAndIsrAnswered(BrokerId(1), epoch, LeaderAndIsrResponse(ErrorCode.STALE_CONTROLLER_EPOCH)),
        LeaderAndIsrAnswered(BrokerId(9), epoch, LeaderAndIsrResponse(ErrorCode.NONE)),
    ):
        cluster.step(event)
    assert cluster.sent == cluster.performed == []


def test_announcements_of_brokers_that_are_gone_are_dropped() -> None:
    cluster = running([1, 2])
    cluster.store.announce_lost_log_dir(9)
    cluster.settle()
    assert (cluster.sent, cluster.store.log_dir_events) == ([], [])


def test_a_lost_replica_of_a_topic_to_be_deleted_waits_for_its_broker() -> None:
    cluster = running([1, 2])
    cluster.brokers[BrokerId(1)].lost.add(T0)
    cluster.store.want_deleted("t")
    cluster.settle()
    assert "t" in cluster.store.topics
    cluster.store.register(1)
    cluster.settle()
    assert cluster.store.topics == {}
    assert not [each for each in cluster.performed if isinstance(each, effects.CreatePartitionStates)]
