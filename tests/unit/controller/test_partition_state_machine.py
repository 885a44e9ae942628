"""Elections of a machine by itself, on a store of dictionaries."""

from __future__ import annotations

from typing import Any

from minikafka.controller import effects
from minikafka.controller.context import PartitionStatus
from minikafka.controller.effects import Step
from minikafka.controller.state_machines import ElectionStrategy, Machines, StateChanges
from minikafka.types import BrokerId, TopicPartition
from tests.unit.controller.driver import FakeStore, state

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def elect(step: Step[StateChanges], store: FakeStore) -> tuple[StateChanges, list[Any]]:
    """What came of it, and what was sent."""
    sent: list[Any] = []
    result: Any = None
    while True:
        try:
            effect = step.send(result)
        except StopIteration as ended:
            return ended.value, sent
        if isinstance(
            effect, effects.SendLeaderAndIsr | effects.SendUpdateMetadata | effects.SendStopReplica
        ):
            sent.append(effect)
            result = None
        else:
            result = store.perform(effect, controller_epoch=1)


def test_preferred_leaders_are_elected_where_they_can_be() -> None:
    store = FakeStore()
    store.controller_epoch = 1
    store.register(1, 2)
    store.create_topic("t", [[1, 2], [1, 2]])
    machines = Machines.of_epoch(1, delete_topic_enable=True)
    machines.context.brokers.update(store.brokers)
    machines.context.add_topic("t", store.topics["t"])
    store.states[T0] = effects.VersionedState(state(2, 4, [2, 1]), 3)
    store.states[T1] = effects.VersionedState(state(2, 4, [2]), 3)
    machines.context.leadership.update(store.states)
    machines.partitions.initialize()
    changes, sent = elect(machines.partitions.elect([T0, T1], ElectionStrategy.PREFERRED), store)
    assert changes.elected == {T0: state(1, 5, [2, 1])} == {T0: store.state("t")}
    (failure,) = changes.failed
    assert (failure.what, failure.target) == ("t-1", PartitionStatus.ONLINE)
    assert "no leader can be elected (preferred)" in failure.why
    assert [(type(each), each.to) for each in sent] == [
        (effects.SendLeaderAndIsr, BrokerId(1)),
        (effects.SendLeaderAndIsr, BrokerId(2)),
        (effects.SendUpdateMetadata, (1, 2)),
    ]
    assert (machines.context.leader_elections, machines.context.unclean_elections) == (1, 0)


def test_an_election_of_one_that_may_lack_records_counts_as_unclean() -> None:
    store = FakeStore()
    store.controller_epoch = 1
    store.register(2)
    store.create_topic("t", [[1, 2]])
    machines = Machines.of_epoch(1, delete_topic_enable=True)
    machines.context.brokers.update(store.brokers)
    machines.context.add_topic("t", store.topics["t"])
    store.states[T0] = effects.VersionedState(state(1, 4, [1]), 3)
    machines.context.leadership.update(store.states)
    machines.partitions.initialize()
    changes, _ = elect(machines.partitions.elect([T0], ElectionStrategy.UNCLEAN), store)
    assert changes.elected[T0].leader == 2
    assert (machines.context.leader_elections, machines.context.unclean_elections) == (1, 1)
