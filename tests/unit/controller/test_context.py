"""What the controller knows fits together, and it notices when that is not so."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from minikafka.controller.context import ControllerContext, PartitionStatus, ReplicaStatus
from minikafka.controller.effects import TopicRecord, VersionedState
from minikafka.errors import InvariantError
from minikafka.protocol.control import LiveBroker
from minikafka.types import NO_LEADER, BrokerId, ReplicaAssignment, TopicPartition
from tests.unit.controller.driver import state

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
T0 = TopicPartition("t", 0)


@pytest.fixture
def context() -> ControllerContext:
    """``t-0`` on brokers 1 and 2, led by 1; broker 3 does not exist."""
    context = ControllerContext(4)
    context.brokers = {broker: LiveBroker(broker, 10 + broker, ()) for broker in (ONE, TWO)}
    context.add_topic("t", TopicRecord(UUID(int=5), {0: ReplicaAssignment((ONE, TWO))}))
    context.leadership[T0] = VersionedState(state(1, 7, [1, 2], 3), 9)
    context.partition_status[T0] = PartitionStatus.ONLINE
    context.replica_status[ONE][T0] = context.replica_status[TWO][T0] = ReplicaStatus.ONLINE
    context.validate()
    return context


def put(context: ControllerContext, leader: int, isr: list[int], controller_epoch: int = 3) -> None:
    context.leadership[T0] = VersionedState(state(leader, 7, isr, controller_epoch), 9)


DAMAGES: dict[str, Callable[[ControllerContext], object]] = {
    "an ISR outside of the replicas": lambda c: put(c, 1, [1, 3]),
    "an empty ISR": lambda c: put(c, NO_LEADER, []),
    "a leader outside of the ISR": lambda c: put(c, 2, [1]),
    "online without a leader": lambda c: put(c, NO_LEADER, [1]),
    "online without a state": lambda c: c.leadership.clear(),
    "a later controller": lambda c: put(c, 1, [1], 5),
    "a partition of no topic": lambda c: c.partition_status.update(
        {TopicPartition("t", 1): PartitionStatus.NEW}
    ),
    "a state of no partition": lambda c: c.leadership.update({TopicPartition("x", 0): c.leadership[T0]}),
    "a replica without a status": lambda c: c.replica_status[ONE].clear(),
    "a status without a replica": lambda c: c.replica_status[THREE].update({T0: ReplicaStatus.OFFLINE}),
    "online on a dead broker": lambda c: c.brokers.pop(ONE),
    "online on a lost directory": lambda c: c.replicas_on_offline_dirs.update({ONE: {T0}}),
    "a stranger shuts down": lambda c: c.shutting_down.add(THREE),
    "a stranger has lost directories": lambda c: c.replicas_on_offline_dirs.update({THREE: set()}),
    "a deletion without a topic": lambda c: c.topics_to_be_deleted.update({"gone": None}),
    "a started deletion without a request": lambda c: c.topics_with_deletion_started.add("t"),
    "a reassignment that no assignment tells of": lambda c: c.being_reassigned.update({T0: None}),
    "an assignment under way that is not known as such": lambda c: c.assignments.update(
        {T0: ReplicaAssignment((ONE, TWO), removing=(TWO,))}
    ),
    "a deletion that waits for nothing": lambda c: c.topics_waiting_for_deletion.update({"t": None}),
    "a deletion that should wait": lambda c: (
        c.set_assignment(T0, ReplicaAssignment((ONE, TWO), removing=(TWO,))),
        c.topics_to_be_deleted.update({"t": None}),
    ),
    "an ineligible topic without a request to delete it": lambda c: c.topics_ineligible_for_deletion.add("t"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_validate_finds(context: ControllerContext, damage: str) -> None:
    DAMAGES[damage](context)
    with pytest.raises(InvariantError):
        context.validate()


def test_a_removed_topic_leaves_nothing_behind(context: ControllerContext) -> None:
    context.replicas_on_offline_dirs[TWO] = {T0}
    context.topics_to_be_deleted["t"] = None
    context.topics_with_deletion_started.add("t")
    context.topics_ineligible_for_deletion.add("t")
    context.remove_topic("t")
    context.validate()
    assert context.assignments == context.leadership == context.partition_status == {}
    assert context.replicas_on_offline_dirs == {TWO: set()}
    assert context.topics_to_be_deleted == {}


def test_a_topic_comes_once_and_with_an_id(context: ControllerContext) -> None:
    with pytest.raises(InvariantError):
        context.add_topic("t", TopicRecord(UUID(int=6), {}))
    with pytest.raises(InvariantError):
        context.add_topic("nameless", TopicRecord(None, {}))


def test_partitions_that_are_known_are_not_added_again(context: ControllerContext) -> None:
    grown = TopicRecord(UUID(int=5), {0: ReplicaAssignment((TWO,)), 1: ReplicaAssignment((TWO,))})
    assert context.add_partitions("t", grown) == (TopicPartition("t", 1),)
    assert context.assignments[T0].replicas == (ONE, TWO)
    assert context.topics["t"].partitions == (T0, TopicPartition("t", 1))
    context.validate()


def test_an_assignment_may_change_and_its_replicas_are_known_until_they_are_forgotten(
    context: ControllerContext,
) -> None:
    context.set_assignment(T0, ReplicaAssignment((THREE, ONE, TWO), adding=(THREE,), removing=(TWO,)))
    context.validate()
    assert list(context.being_reassigned) == [T0]
    assert context.topics_being_reassigned() == {"t": None}
    assert context.replica_status[ONE][T0] is ReplicaStatus.ONLINE
    assert context.replica_status[THREE][T0] is ReplicaStatus.NON_EXISTENT
    put(context, 1, [1])
    context.set_assignment(T0, ReplicaAssignment((THREE, ONE)))
    assert context.replica_status[TWO][T0] is ReplicaStatus.ONLINE
    context.replicas_on_offline_dirs[TWO] = {T0}
    context.forget_replica(TWO, T0)
    context.validate()
    assert (context.being_reassigned, context.replicas_on_offline_dirs) == ({}, {TWO: set()})


def test_who_is_online(context: ControllerContext) -> None:
    assert context.online_replicas(T0) == [ONE, TWO]
    context.shutting_down.add(ONE)
    assert context.online_replicas(T0) == [TWO]
    assert context.online_or_shutting_down_replicas(T0) == [ONE, TWO]
    assert context.has_offline_leader(T0)
    context.replicas_on_offline_dirs[TWO] = {T0}
    assert context.online_replicas(T0) == []
    assert context.online_or_shutting_down_replicas(T0) == [ONE]
    assert context.split_by_online({ONE: [T0], TWO: [T0]}) == ({}, {ONE: [T0], TWO: [T0]})


def test_it_shows_what_there_is(context: ControllerContext) -> None:
    assert repr(context) == (
        "ControllerContext(epoch 4, brokers [1, 2], shutting down [], 1 topics, partitions: 1 online, "
        "being reassigned: 0, to be deleted: [])"
    )
