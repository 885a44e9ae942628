"""A broker asks to be let go."""

from __future__ import annotations

from minikafka.controller import effects
from minikafka.controller.events import ControlledShutdownAsked
from minikafka.errors import ErrorCode
from minikafka.protocol.control import ControlledShutdownResponse, StopReplicaPartition
from minikafka.types import BrokerId, TopicPartition
from tests.unit.controller.driver import running, state

ONE = BrokerId(1)


def test_its_leaders_move_and_it_leaves_the_isrs() -> None:
    cluster = running([1, 2, 3], [2, 1])
    assert cluster.shut_down(1) == ControlledShutdownResponse(ErrorCode.NONE, ())
    assert cluster.store.state("t") == state(2, 1, [2, 3])
    assert cluster.store.state("t", 1) == state(2, 1, [2])
    assert [each.leader for order in cluster.leader_and_isr(1) for each in order.partitions] == [2]
    (stop,) = cluster.stop_replica(1)
    assert stop.partitions == tuple(
        StopReplicaPartition("t", each, leader_epoch=1, delete=False) for each in (0, 1)
    )


def test_its_end_changes_nothing_more() -> None:
    """What it led has a new leader epoch since: there is nothing to fence when its process is gone."""
    cluster = running([1, 2, 3], [2, 1])
    cluster.shut_down(1)
    before = [cluster.store.version("t", each) for each in (0, 1)]
    cluster.store.unregister(1)
    cluster.settle()
    assert [cluster.store.version("t", each) for each in (0, 1)] == before


def test_what_no_other_broker_can_lead_remains() -> None:
    cluster = running([1, 2], [1, 2])
    cluster.store.leader_writes_isr(TopicPartition("t", 1), [1], version=0)
    assert cluster.shut_down(1).remaining_partitions == (TopicPartition("t", 1),)
    assert cluster.store.state("t").leader == 2
    assert cluster.store.state("t", 1).leader == 1
    assert cluster.store.leader_writes_isr(TopicPartition("t", 1), [1, 2], version=1)
    assert cluster.shut_down(1).remaining_partitions == ()
    assert cluster.store.state("t", 1) == state(2, 1, [2])


def test_partitions_without_another_replica_are_not_counted() -> None:
    cluster = running([1])
    assert cluster.shut_down(1) == ControlledShutdownResponse(ErrorCode.NONE, ())
    assert cluster.store.state("t") == state(1, 0, [1])


def test_two_that_shut_down_do_not_hand_over_to_each_other() -> None:
    cluster = running([1, 2, 3])
    cluster.shut_down(2)
    cluster.shut_down(1)
    assert cluster.store.state("t") == state(3, 2, [3])


def test_who_shuts_down_is_elected_nowhere() -> None:
    cluster = running([2, 1])
    cluster.shut_down(1)
    cluster.store.create_topic("new", [[1, 2], [1]])
    cluster.settle()
    assert cluster.store.state("new") == state(2, 0, [2])
    assert TopicPartition("new", 1) not in cluster.store.states


def test_after_its_restart_it_is_a_broker_like_any_other() -> None:
    cluster = running([1, 2], [1])
    cluster.shut_down(1)
    cluster.store.unregister(1)
    cluster.settle()
    cluster.store.register(1)
    cluster.settle()
    assert cluster.store.state("t", 1) == state(1, 2, [1])
    cluster.store.create_topic("new", [[1]])
    cluster.settle()
    assert cluster.store.state("new").leader == 1


def test_it_stays_among_the_brokers_that_clients_know_until_it_is_gone() -> None:
    cluster = running([1, 2])
    cluster.shut_down(1)
    assert [each.node_id for each in cluster.update_metadata(2)[-1].live_brokers] == [1, 2, 3]
    assert cluster.update_metadata(1) == cluster.update_metadata(2)


def test_its_death_after_that_is_shown_though_no_state_changes() -> None:
    cluster = running([1, 2])
    cluster.shut_down(2)
    cluster.settle()
    assert cluster.shown(1, "t").offline_replicas == ()
    version = cluster.store.version("t")
    cluster.store.unregister(2)
    cluster.settle()
    assert cluster.shown(1, "t").offline_replicas == (2,)
    assert cluster.store.version("t") == version


def test_unknown_brokers_and_earlier_incarnations_are_rejected() -> None:
    cluster = running([1, 2])
    epoch = cluster.store.brokers[ONE].epoch
    for broker, broker_epoch, code in (
        (BrokerId(9), epoch, ErrorCode.BROKER_NOT_AVAILABLE),
        (ONE, epoch - 1, ErrorCode.STALE_BROKER_EPOCH),
        (ONE, epoch + 1, ErrorCode.STALE_BROKER_EPOCH),
    ):
        response = cluster.step(ControlledShutdownAsked(broker, broker_epoch))
        assert response == ControlledShutdownResponse(code)
    assert cluster.sent == []
    assert cluster.store.state("t").leader == 1


def test_a_topic_to_be_deleted_is_not_moved() -> None:
    cluster = running([1, 2])
    cluster.store.unregister(2)
    cluster.settle()
    cluster.store.want_deleted("t")
    cluster.settle()
    cluster.clear()
    assert cluster.shut_down(1).remaining_partitions == ()
    assert not [each for each in cluster.performed if isinstance(each, effects.WritePartitionStates)]
