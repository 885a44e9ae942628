"""From which status each status may be reached: all pairs, as in Kafka's ``validPreviousStates``."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.controller.context import (
    PARTITION_PREDECESSORS,
    REPLICA_PREDECESSORS,
    ControllerContext,
    PartitionStatus,
    ReplicaStatus,
    StateChangeFailed,
)
from minikafka.controller.effects import Step, TopicRecord, VersionedState
from minikafka.controller.state_machines import ElectionStrategy, PartitionStateMachine, ReplicaStateMachine
from minikafka.types import BrokerId, ReplicaAssignment, TopicPartition
from tests.unit.controller.driver import UUID, FakeStore, Send, state

T = TypeVar("T")
P, R = PartitionStatus, ReplicaStatus
PARTITION = TopicPartition("t", 0)
BROKER = BrokerId(1)

PARTITION_ROADS = {
    (P.NON_EXISTENT, P.NEW),
    (P.NEW, P.ONLINE),
    (P.NEW, P.OFFLINE),
    (P.ONLINE, P.ONLINE),
    (P.ONLINE, P.OFFLINE),
    (P.OFFLINE, P.ONLINE),
    (P.OFFLINE, P.OFFLINE),
    (P.OFFLINE, P.NON_EXISTENT),
}

REPLICA_ROADS = {
    (R.NON_EXISTENT, R.NEW),
    (R.NEW, R.ONLINE),
    (R.NEW, R.OFFLINE),
    (R.ONLINE, R.ONLINE),
    (R.ONLINE, R.OFFLINE),
    (R.OFFLINE, R.ONLINE),
    (R.OFFLINE, R.OFFLINE),
    (R.OFFLINE, R.DELETION_STARTED),
    (R.OFFLINE, R.DELETION_INELIGIBLE),
    (R.DELETION_STARTED, R.DELETION_SUCCESSFUL),
    (R.DELETION_STARTED, R.DELETION_INELIGIBLE),
    (R.DELETION_INELIGIBLE, R.ONLINE),
    (R.DELETION_INELIGIBLE, R.OFFLINE),
    (R.DELETION_SUCCESSFUL, R.NON_EXISTENT),
}


def test_the_tables_are_kafkas() -> None:
    assert {(a, b) for b, before in PARTITION_PREDECESSORS.items() for a in before} == PARTITION_ROADS
    assert {(a, b) for b, before in REPLICA_PREDECESSORS.items() for a in before} == REPLICA_ROADS


def one_partition() -> ControllerContext:
    context = ControllerContext(1)
    context.add_topic("t", TopicRecord(UUID(int=1), {0: ReplicaAssignment((BROKER,))}))
    return context


@pytest.mark.parametrize("before", P)
@pytest.mark.parametrize("after", [P.NON_EXISTENT, P.NEW, P.OFFLINE])
def test_a_partition_goes_only_where_the_table_lets_it(before: P, after: P) -> None:
    context = one_partition()
    context.partition_status[PARTITION] = before
    changes = PartitionStateMachine(context).change([PARTITION], after)
    if (before, after) in PARTITION_ROADS:
        assert (context.partition_status[PARTITION], changes.failed) == (after, [])
    else:
        assert context.partition_status[PARTITION] is before
        assert changes.failed == [StateChangeFailed("t-0", after, f"it is {before.value}")]


def test_a_partition_that_does_not_exist_is_not_elected_a_leader() -> None:
    """The one way to ONLINE that the table forbids: nothing is read, written or sent."""
    context = one_partition()
    step = PartitionStateMachine(context).elect([PARTITION], ElectionStrategy.OFFLINE)
    with pytest.raises(StopIteration) as ended:
        next(step)
    (failure,) = ended.value.value.failed
    assert str(failure) == "t-0 does not become OnlinePartition: it is NonExistentPartition"


@pytest.mark.parametrize("before", R)
@pytest.mark.parametrize("after", R)
def test_a_replica_goes_only_where_the_table_lets_it(before: R, after: R) -> None:
    context = one_partition()
    context.replica_status[BROKER][PARTITION] = before
    step = ReplicaStateMachine(context).change({BROKER: [PARTITION]}, after)
    with pytest.raises(StopIteration) as ended:
        next(step)  # the broker is not registered, so nothing is sent; there is no state to be written
    if (before, after) in REPLICA_ROADS:
        assert (context.replica_status[BROKER][PARTITION], ended.value.value) == (after, [])
    else:
        assert context.replica_status[BROKER][PARTITION] is before
        assert [failure.target for failure in ended.value.value] == [after]


@given(st.lists(st.sampled_from(R)))
def test_a_replica_takes_any_way_through_the_table_and_no_other(targets: list[R]) -> None:
    context = one_partition()
    machine = ReplicaStateMachine(context)
    expected = R.NON_EXISTENT
    for target in targets:
        failed = run(machine.change({BROKER: [PARTITION]}, target), FakeStore())
        assert bool(failed) == ((expected, target) not in REPLICA_ROADS)
        expected = expected if failed else target
        assert context.replica_status[BROKER][PARTITION] is expected


@given(st.lists(st.sampled_from(P)))
def test_a_partition_takes_any_way_through_the_table_and_no_other(targets: list[P]) -> None:
    store = FakeStore()
    store.controller_epoch = 1
    store.register(BROKER)
    store.create_topic("t", [[BROKER]])
    store.states[PARTITION] = VersionedState(state(BROKER, 0, [BROKER]), 0)
    context = one_partition()
    context.brokers.update(store.brokers)
    machine = PartitionStateMachine(context)
    expected = P.NON_EXISTENT
    for target in targets:
        if target is P.ONLINE:
            changes = run(machine.elect([PARTITION], ElectionStrategy.OFFLINE), store)
        else:
            changes = machine.change([PARTITION], target)
        assert bool(changes.failed) == ((expected, target) not in PARTITION_ROADS)
        expected = expected if changes.failed else target
        assert context.partition_status[PARTITION] is expected


def run(step: Step[T], store: FakeStore) -> T:
    """What comes of a step on a store; its requests go nowhere."""
    result: Any = None
    while True:
        try:
            effect = step.send(result)
        except StopIteration as ended:
            value: T = ended.value
            return value
        result = None if isinstance(effect, Send) else store.perform(effect, controller_epoch=1)
