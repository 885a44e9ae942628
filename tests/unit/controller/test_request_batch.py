"""What one change says to the brokers: in which order, how often, and what not."""

from __future__ import annotations

from uuid import UUID

import pytest

from minikafka.controller import effects
from minikafka.controller.context import ControllerContext, ReplicaStatus
from minikafka.controller.effects import TopicRecord, VersionedState
from minikafka.controller.request_batch import ControllerBrokerRequestBatch, update_metadata
from minikafka.protocol.control import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    LiveBroker,
    StopReplicaPartition,
)
from minikafka.types import NO_EPOCH, BrokerId, ReplicaAssignment, TopicPartition
from tests.unit.controller.driver import state

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def context() -> ControllerContext:
    """Three brokers; ``t-0`` on 1, 2 and 3, led by 1; ``t-1`` on 2, never led."""
    context = ControllerContext(4)
    context.brokers = {broker: LiveBroker(broker, 10 + broker, ()) for broker in (ONE, TWO, THREE)}
    partitions = {0: ReplicaAssignment((ONE, TWO, THREE)), 1: ReplicaAssignment((TWO,))}
    context.add_topic("t", TopicRecord(UUID(int=5), partitions))
    context.leadership[T0] = VersionedState(state(1, 7, [1, 2], 3), 9)
    return context


def test_orders_leave_before_news_and_news_before_stops(context: ControllerContext) -> None:
    batch = ControllerBrokerRequestBatch(context)
    batch.add_stop_replica(THREE, T0, delete=False)
    batch.add_leader_and_isr([TWO, ONE], T0)
    assert [(type(each), each.to) for each in batch.send()] == [
        (effects.SendLeaderAndIsr, ONE),
        (effects.SendLeaderAndIsr, TWO),
        (effects.SendUpdateMetadata, (ONE, TWO, THREE)),
        (effects.SendStopReplica, THREE),
    ]


def test_an_order_says_all_there_is_and_where_the_leader_is(context: ControllerContext) -> None:
    batch = ControllerBrokerRequestBatch(context)
    batch.add_leader_and_isr([TWO], T0, is_new=True)
    order, _ = batch.send()
    assert isinstance(order, effects.SendLeaderAndIsr)
    (told,) = order.partitions
    assert (told.topic, told.topic_id, told.partition) == ("t", UUID(int=5), 0)
    assert (told.leader, told.leader_epoch, told.isr, told.replicas) == (1, 7, (1, 2), (1, 2, 3))
    assert (told.controller_epoch, told.partition_epoch, told.is_new) == (3, 9, True)
    assert [broker.node_id for broker in order.live_leaders] == [ONE]
    assert not order.is_full


def test_what_was_new_once_is_new_and_what_is_deleted_once_is_deleted(context: ControllerContext) -> None:
    batch = ControllerBrokerRequestBatch(context)
    batch.add_leader_and_isr([TWO], T0, is_new=True)
    batch.add_leader_and_isr([TWO], T0)
    batch.add_stop_replica(THREE, T0, delete=True)
    batch.add_stop_replica(THREE, T0, delete=False)
    order, _, stop = batch.send()
    assert isinstance(order, effects.SendLeaderAndIsr)
    assert [each.is_new for each in order.partitions] == [True]
    assert isinstance(stop, effects.SendStopReplica)
    assert stop.partitions == (StopReplicaPartition("t", 0, leader_epoch=7, delete=True),)


def test_a_partition_that_changes_twice_goes_out_once_as_it_is_at_the_end(context: ControllerContext) -> None:
    batch = ControllerBrokerRequestBatch(context)
    batch.add_leader_and_isr([ONE, TWO], T0)
    context.leadership[T0] = VersionedState(state(2, 8, [2]), 10)
    batch.add_leader_and_isr([TWO], T0)
    for each in batch.send():
        assert isinstance(each, effects.SendLeaderAndIsr | effects.SendUpdateMetadata)
        assert [(told.leader, told.partition_epoch) for told in each.partitions] == [(2, 10)]


def test_who_is_not_registered_is_told_nothing(context: ControllerContext) -> None:
    del context.brokers[ONE]
    batch = ControllerBrokerRequestBatch(context)
    batch.add_leader_and_isr([ONE], T0)
    batch.add_stop_replica(ONE, T0, delete=False)
    (metadata,) = batch.send()
    assert isinstance(metadata, effects.SendUpdateMetadata)
    assert metadata.to == (TWO, THREE)
    assert metadata.partitions[0].offline_replicas == (ONE,)


def test_who_shuts_down_is_told_and_shown(context: ControllerContext) -> None:
    context.shutting_down.add(ONE)
    batch = ControllerBrokerRequestBatch(context)
    batch.add_leader_and_isr([ONE], T0)
    order, metadata = batch.send()
    assert isinstance(order, effects.SendLeaderAndIsr)
    assert [broker.node_id for broker in order.live_leaders] == [ONE]
    assert isinstance(metadata, effects.SendUpdateMetadata)
    assert metadata.to == (ONE, TWO, THREE)
    assert metadata.partitions[0].offline_replicas == ()


def test_replicas_on_lost_directories_are_shown_as_offline(context: ControllerContext) -> None:
    context.replicas_on_offline_dirs[TWO] = {T0}
    assert update_metadata(context, [ONE], [T0]).partitions[0].offline_replicas == (TWO,)


def test_a_partition_that_never_had_a_leader_is_left_out(context: ControllerContext) -> None:
    assert (
        update_metadata(context, [ONE], [T0, T1]).partitions
        == update_metadata(context, [ONE], [T0]).partitions
    )
    batch = ControllerBrokerRequestBatch(context)
    batch.add_leader_and_isr([TWO], T1)
    batch.add_stop_replica(TWO, T1, delete=False)
    order, metadata, stop = batch.send()
    assert isinstance(order, effects.SendLeaderAndIsr) and order.partitions == ()
    assert isinstance(metadata, effects.SendUpdateMetadata) and metadata.partitions == ()
    assert isinstance(stop, effects.SendStopReplica) and stop.partitions[0].leader_epoch == NO_EPOCH


def test_what_is_to_be_deleted_is_shown_as_going(context: ControllerContext) -> None:
    context.topics_to_be_deleted["t"] = None
    (shown,) = update_metadata(context, [ONE], [T0]).partitions
    assert (shown.leader, shown.isr, shown.leader_epoch) == (LEADER_DURING_DELETE, (1, 2), 7)
    batch = ControllerBrokerRequestBatch(context)
    batch.add_stop_replica(ONE, T0, delete=True)
    (stop,) = batch.send()
    assert isinstance(stop, effects.SendStopReplica)
    assert stop.partitions[0].leader_epoch == EPOCH_DURING_DELETE


def is_full(context: ControllerContext, broker: BrokerId) -> bool:
    batch = ControllerBrokerRequestBatch(context)
    batch.add_all_leader_and_isr(broker)
    for each in context.replica_status[broker]:
        batch.add_leader_and_isr([broker], each)
    order = next(batch.send())
    assert isinstance(order, effects.SendLeaderAndIsr)
    return order.is_full


def test_full_is_what_names_every_log_that_a_broker_may_have(context: ControllerContext) -> None:
    assert is_full(context, ONE)
    assert not is_full(context, TWO)  # t-1 has no state that could be read
    context.replica_status[TWO][T1] = ReplicaStatus.DELETION_SUCCESSFUL
    assert is_full(context, TWO)
    context.unreadable_topics = frozenset({"damaged"})
    assert not is_full(context, ONE)


def test_nothing_is_sent_when_there_is_nothing_to_say(context: ControllerContext) -> None:
    batch = ControllerBrokerRequestBatch(context)
    assert list(batch.send()) == []
    batch.add_update_metadata([ONE])
    assert repr(batch).startswith("ControllerBrokerRequestBatch(LeaderAndIsr to [], UpdateMetadata to [1]")
    assert len(list(batch.send())) == 1
