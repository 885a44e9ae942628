"""From which status each status may be reached: all pairs, as in Kafka's ``validPreviousStates``."""

from __future__ import annotations

import pytest

from minikafka.controller.context import ControllerContext
from minikafka.controller.effects import TopicRecord
from minikafka.controller.partition_state_machine import ElectionStrategy, PartitionStateMachine
from minikafka.controller.replica_state_machine import ReplicaStateMachine
from minikafka.controller.states import (
    PARTITION_PREDECESSORS,
    REPLICA_PREDECESSORS,
    PartitionStatus,
    ReplicaStatus,
    StateChangeFailed,
)
from minikafka.types import BrokerId, ReplicaAssignment, TopicPartition
from tests.unit.controller.driver import UUID

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
    """The one road to ONLINE that the table forbids: nothing is read, written or sent."""
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
