"""Topics are deleted: replicas first, nodes last, and not before every replica is gone."""

from __future__ import annotations

import contextlib
from uuid import UUID

import pytest

from minikafka.controller import effects
from minikafka.controller.events import StopReplicaAnswered, TopicsChanged
from minikafka.controller.step import Controller
from minikafka.errors import ErrorCode
from minikafka.protocol.control import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    PartitionError,
    StopReplicaPartition,
    StopReplicaResponse,
)
from minikafka.types import BrokerId, LeaderEpoch, TopicPartition
from tests.unit.controller.driver import Cluster, running, state

T0 = TopicPartition("t", 0)


def answer(
    cluster: Cluster,
    broker: int,
    code: ErrorCode,
    *,
    delete: bool = True,
    request: ErrorCode = ErrorCode.NONE,
) -> StopReplicaAnswered:
    """To a request about ``t``'s first partition."""
    live = cluster.store.brokers[BrokerId(broker)]
    return StopReplicaAnswered(
        live.node_id,
        live.epoch,
        (StopReplicaPartition("t", 0, EPOCH_DURING_DELETE, delete),),
        StopReplicaResponse(request, (PartitionError("t", 0, code),)),
    )


def wanted_deleted(*replicas: list[int]) -> Cluster:
    """The controller has begun to delete ``t``, and no broker has answered."""
    cluster = running(*replicas)
    cluster.store.want_deleted("t")
    cluster.step(cluster.store.events.popleft())
    cluster.store.events.clear()
    return cluster


def test_first_clients_lose_the_topic_then_replicas_stop_and_then_they_are_deleted() -> None:
    cluster = wanted_deleted([1, 2], [2])
    metadata, *_ = cluster.sent
    assert isinstance(metadata, effects.SendUpdateMetadata)
    assert metadata.to == (1, 2, 3)
    assert {each.leader for each in metadata.partitions} == {LEADER_DURING_DELETE}
    stop, delete = cluster.stop_replica(1)
    assert stop.partitions == (StopReplicaPartition("t", 0, EPOCH_DURING_DELETE, False),)
    assert delete.partitions == (StopReplicaPartition("t", 0, EPOCH_DURING_DELETE, True),)
    assert [len(each.partitions) for each in cluster.stop_replica(2)] == [2, 2]
    assert cluster.leader_and_isr(1) == cluster.leader_and_isr(2) == []
    assert "t" in cluster.store.topics


def test_the_nodes_go_when_every_replica_is_gone() -> None:
    cluster = wanted_deleted([1, 2])
    cluster.step(answer(cluster, 1, ErrorCode.NONE))
    assert "t" in cluster.store.topics
    cluster.step(answer(cluster, 2, ErrorCode.NONE))
    assert (cluster.store.topics, cluster.store.states, cluster.store.deletions) == ({}, {}, {})
    assert "0 topics" in repr(cluster.controller)


def test_only_an_answer_to_delete_says_that_a_replica_is_deleted() -> None:
    cluster = wanted_deleted([1])
    cluster.step(answer(cluster, 1, ErrorCode.NONE, delete=False))
    assert "t" in cluster.store.topics
    cluster.step(answer(cluster, 1, ErrorCode.NONE))
    assert cluster.store.topics == {}


def test_an_answer_of_an_earlier_incarnation_is_ignored() -> None:
    cluster = wanted_deleted([1])
    late = answer(cluster, 1, ErrorCode.NONE)
    cluster.store.register(1)
    cluster.settle_events()
    cluster.step(late)
    assert "t" in cluster.store.topics


def test_everything_is_gone_when_all_is_said_and_done() -> None:
    cluster = running([1, 2, 3], [3, 1])
    cluster.store.want_deleted("t")
    cluster.settle()
    assert cluster.disks == {1: {}, 2: {}, 3: {}}
    assert cluster.store.topics == cluster.store.deletions == {}
    assert all(broker.metadata == broker.replicas == {} for broker in cluster.brokers.values())


def test_a_topic_of_the_same_name_may_come_at_once() -> None:
    cluster = running([1, 2])
    cluster.store.want_deleted("t")
    cluster.settle()
    cluster.store.create_topic("t", [[2, 1]], topic_id=UUID(int=99))
    cluster.settle()
    assert cluster.store.state("t") == state(2, 0, [2, 1])
    assert cluster.disks[BrokerId(1)] == {T0: UUID(int=99)}


def test_a_dead_replica_holds_the_deletion_up_until_its_broker_returns() -> None:
    cluster = running([1, 2, 3])
    cluster.store.unregister(3)
    cluster.settle()
    cluster.store.want_deleted("t")
    cluster.settle()
    assert "t" in cluster.store.topics
    assert cluster.disks[BrokerId(1)] == {}
    assert cluster.disks[BrokerId(3)] != {}
    cluster.store.register(3)
    cluster.settle()
    assert cluster.store.topics == {}
    assert cluster.disks[BrokerId(3)] == {}
    assert cluster.brokers[BrokerId(3)].strays == {}


def test_a_broker_that_dies_while_it_deletes_deletes_when_it_returns() -> None:
    cluster = wanted_deleted([1, 2])
    cluster.step(answer(cluster, 1, ErrorCode.NONE))
    cluster.store.unregister(2)
    cluster.settle_events()
    assert "t" in cluster.store.topics
    cluster.store.register(2)
    cluster.settle()
    assert cluster.store.topics == {}


def test_a_broker_that_is_done_may_die_without_harm() -> None:
    cluster = wanted_deleted([1, 2])
    cluster.step(answer(cluster, 1, ErrorCode.NONE))
    cluster.store.unregister(1)
    cluster.settle_events()
    cluster.step(answer(cluster, 2, ErrorCode.NONE))
    assert cluster.store.topics == {}


def test_a_broker_that_is_done_and_restarts_is_not_given_the_topic_again() -> None:
    cluster = wanted_deleted([1, 2])
    cluster.step(answer(cluster, 1, ErrorCode.NONE))
    cluster.clear()
    cluster.store.register(1)
    cluster.settle_events()
    assert [order.partitions for order in cluster.leader_and_isr(1)] == [()]
    cluster.step(answer(cluster, 2, ErrorCode.NONE))
    assert cluster.store.topics == {}


@pytest.mark.parametrize(
    ("code", "request_code"),
    [(ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE), (ErrorCode.NONE, ErrorCode.STALE_BROKER_EPOCH)],
)
def test_a_replica_that_cannot_be_deleted_is_tried_again_after_its_brokers_restart(
    code: ErrorCode, request_code: ErrorCode
) -> None:
    cluster = wanted_deleted([1, 2])
    cluster.step(answer(cluster, 1, code, request=request_code))
    cluster.step(answer(cluster, 2, ErrorCode.NONE))
    cluster.clear()
    cluster.settle_events()
    assert "t" in cluster.store.topics
    cluster.store.register(1)
    cluster.settle_events()
    assert [each.partitions[0].delete for each in cluster.stop_replica(1)] == [False, True]
    assert cluster.stop_replica(2) == []
    cluster.step(answer(cluster, 1, ErrorCode.NONE))
    assert cluster.store.topics == {}


def test_one_topic_does_not_wait_for_another() -> None:
    cluster = running([1, 2])
    cluster.store.create_topic("other", [[3, 1]])
    cluster.settle()
    cluster.store.unregister(2)
    cluster.settle()
    cluster.store.want_deleted("t", "other")
    cluster.settle()
    assert list(cluster.store.topics) == list(cluster.store.deletions) == ["t"]


def metadata_of(cluster: Cluster, topic: str) -> list[effects.SendUpdateMetadata]:
    return [
        each
        for each in cluster.sent
        if isinstance(each, effects.SendUpdateMetadata)
        and any(partition.topic == topic for partition in each.partitions)
    ]


def test_what_is_under_way_is_not_begun_again() -> None:
    cluster = running([1, 2])
    cluster.store.create_topic("other", [[3, 1]])
    cluster.settle()
    cluster.store.want_deleted("t", "other")
    cluster.step(cluster.store.events.popleft())
    cluster.clear()
    cluster.step(answer(cluster, 1, ErrorCode.NONE))
    assert cluster.sent == []


def test_what_is_halted_is_not_begun_again_before_its_broker_comes() -> None:
    cluster = running([1, 2])
    cluster.store.create_topic("other", [[3, 1]])
    cluster.settle()
    cluster.store.unregister(2)
    cluster.settle()
    cluster.store.want_deleted("t")
    cluster.settle()
    cluster.clear()
    cluster.store.want_deleted("other")
    cluster.store.register(4)
    cluster.settle()
    assert metadata_of(cluster, "t") == []
    assert len(metadata_of(cluster, "other")) == 1


def test_a_replica_on_a_broker_that_shuts_down_is_deleted_after_its_restart() -> None:
    cluster = running([1])
    cluster.shut_down(1)
    cluster.store.want_deleted("t")
    cluster.settle()
    assert "t" in cluster.store.topics
    cluster.store.register(1)
    cluster.settle()
    assert cluster.store.topics == {}


def test_the_next_controller_goes_on() -> None:
    cluster = wanted_deleted([1, 2])
    cluster.elect(controller_id=2)
    cluster.settle()
    assert cluster.store.topics == {}
    assert cluster.disks == {1: {}, 2: {}, 3: {}}


def test_a_topic_to_be_deleted_elects_no_leader_and_does_not_grow() -> None:
    cluster = running([1, 2], [2, 3])
    cluster.store.unregister(3)
    cluster.settle()
    cluster.store.want_deleted("t")
    cluster.settle()
    cluster.clear()
    cluster.store.add_partitions("t", [[1]])
    cluster.store.unregister(2)
    cluster.settle()
    assert TopicPartition("t", 2) not in cluster.store.states
    assert cluster.leader_and_isr(1) == []
    cluster.store.register(2, 3)
    cluster.settle()
    assert cluster.store.topics == {}


def test_the_request_to_delete_what_does_not_exist_is_dropped() -> None:
    cluster = running([1, 2])
    cluster.store.want_deleted("nothing")
    cluster.settle()
    assert (cluster.store.deletions, list(cluster.store.topics)) == ({}, ["t"])


def test_a_topic_that_is_created_and_deleted_at_once_is_deleted() -> None:
    """The request may be seen before the topic is."""
    cluster = running()
    cluster.store.create_topic("new", [[1]])
    cluster.store.want_deleted("new")
    cluster.store.events.rotate(1)
    cluster.settle()
    assert (cluster.store.deletions, list(cluster.store.topics)) == ({}, ["t"])


def test_where_topics_may_not_be_deleted_the_request_is_dropped() -> None:
    cluster = running([1, 2])
    cluster.store.want_deleted("t")
    cluster.elect(controller=Controller(BrokerId(1), delete_topic_enable=False))
    cluster.settle()
    assert (cluster.store.deletions, list(cluster.store.topics)) == ({}, ["t"])
    assert cluster.store.state("t").leader == 1


def test_a_vanished_topic_takes_the_request_to_delete_it_along() -> None:
    cluster = wanted_deleted([1, 2])
    cluster.store.topics.pop("t")
    cluster.store.states.clear()
    cluster.step(TopicsChanged())
    assert cluster.store.deletions == {}


# Reassigned and deleted


def moving_away() -> Cluster:
    """``t`` is on the way from broker 1 to broker 3, and is to be deleted."""
    cluster = running([1], [2])
    cluster.store.reassign("t", [3])
    cluster.settle()
    cluster.store.want_deleted("t")
    cluster.settle()
    return cluster


def test_a_topic_that_is_being_reassigned_is_deleted_when_that_is_done() -> None:
    cluster = moving_away()
    assert cluster.shown(2, "t").leader == 1
    assert cluster.all_sent(effects.SendStopReplica) == []
    cluster.calm_down()
    assert (cluster.store.topics, cluster.store.deletions) == ({}, {})
    assert cluster.disks == {1: {}, 2: {}, 3: {}}


def test_a_topic_that_waits_for_its_deletion_has_elections() -> None:
    """Else, with its leader dead, neither would ever end."""
    cluster = running([1, 2])
    cluster.store.reassign("t", [3])
    cluster.store.want_deleted("t")
    cluster.settle()
    cluster.store.unregister(1)
    cluster.settle()
    assert cluster.shown(2, "t").leader == 2
    cluster.calm_down()
    assert cluster.store.topics == {}


def test_cancelling_lets_the_deletion_begin() -> None:
    cluster = moving_away()
    cluster.store.unregister(3)
    cluster.calm_down()
    assert "t" in cluster.store.topics
    cluster.store.cancel("t")
    cluster.calm_down()
    assert cluster.store.topics == {}


def test_a_topic_that_waits_for_its_deletion_takes_no_new_request_of_the_admin_node() -> None:
    cluster = moving_away()
    cluster.store.want_reassigned({TopicPartition("t", 1): [3]})
    cluster.settle()
    assert cluster.store.reassignments == {}
    assert not cluster.store.topics["t"].partitions[1].is_being_reassigned


def test_a_topic_to_be_deleted_is_not_reassigned() -> None:
    cluster = wanted_deleted([1, 2])
    cluster.clear()
    cluster.store.reassign("t", [3])
    cluster.step(cluster.store.events.popleft())
    assert cluster.sent == []
    cluster.settle()
    assert cluster.store.topics == {}


@pytest.mark.parametrize("survives", range(0, 45, 2))
def test_the_next_controller_finishes_the_reassignment_and_the_deletion(survives: int) -> None:
    cluster = moving_away()
    done = 0

    def die(effect: effects.Effect) -> None:
        nonlocal done
        done += 1
        if done > survives:
            raise ConnectionError

    cluster.before = die
    with contextlib.suppress(ConnectionError):
        cluster.calm_down()
    cluster.before = lambda effect: None
    cluster.elect(controller_id=2)
    cluster.store.create_topic("other", [[1, 2, 3]])
    cluster.calm_down()
    assert (list(cluster.store.topics), cluster.store.deletions) == (["other"], {})
    for (
        broker
    ) in cluster.brokers.values():  # what the dead controller had told to go, and no broker has heard
        assert broker.disk.keys() - broker.strays.keys() == {TopicPartition("other", 0)}


def test_a_topic_of_the_same_name_starts_over_after_both() -> None:
    cluster = moving_away()
    cluster.calm_down()
    cluster.store.create_topic("t", [[2, 3]], topic_id=UUID(int=77))
    cluster.calm_down()
    assert cluster.store.state("t") == state(2, 0, [2, 3])
    assert {broker: disk.get(T0) for broker, disk in cluster.disks.items()} == {
        1: None,
        2: UUID(int=77),
        3: UUID(int=77),
    }


def test_an_answer_to_the_removal_of_a_replica_is_none_to_its_deletion() -> None:
    """It was removed, came back, and is to be deleted with its topic: only that request counts."""
    cluster = wanted_deleted([1])
    removal = StopReplicaAnswered(
        BrokerId(1),
        cluster.store.brokers[BrokerId(1)].epoch,
        (StopReplicaPartition("t", 0, LeaderEpoch(3), delete=True),),
        StopReplicaResponse(ErrorCode.NONE, (PartitionError("t", 0, ErrorCode.NONE),)),
    )
    cluster.step(removal)
    assert "t" in cluster.store.topics
    cluster.settle()
    assert cluster.store.topics == {}


def test_a_waiting_topic_that_vanishes_takes_the_request_to_delete_it_along() -> None:
    cluster = moving_away()
    del cluster.store.topics["t"]
    cluster.step(TopicsChanged())
    assert cluster.store.deletions == {}
