"""The controller dies in the middle of a reassignment, anywhere, and the next one brings it to its end.

What a dead controller had in its channels is lost, or has arrived just before; both are tried. The store
checks every write of a state: by a controller an ISR only shrinks, and it is part of the replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from inspect import isgeneratorfunction
from typing import Any

import pytest

from minikafka.controller import effects, reassignment
from minikafka.controller.effects import Effect
from minikafka.types import BrokerId, ReplicaAssignment, TopicPartition
from tests.unit.controller.driver import Cluster, running

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
STEPS = [
    "u1_request_into_store",
    "u2_request_into_memory",
    "a1_new_leader_epoch",
    "a2_start_new_replicas",
    "b1_new_replicas_online",
    "b2_target_into_memory",
    "b3_move_leaders",
    "b4_stop_removed_replicas",
    "b5_delete_removed_replicas",
    "b6_target_into_store",
    "b7_leave_admin_node",
    "b8_tell_clients",
]


class ControllerDied(Exception):
    pass


def die_after(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    step: Callable[..., Any] = getattr(reassignment, name)

    def taken(*args: Any) -> Generator[Effect, Any, Any]:
        yield from step(*args)
        raise ControllerDied

    def done(*args: Any) -> None:
        step(*args)
        raise ControllerDied

    monkeypatch.setattr(reassignment, name, taken if isgeneratorfunction(step) else done)


def two_partitions() -> Cluster:
    return running([1, 2], [2, 3], brokers=(1, 2, 3, 4, 5))


def api_request(cluster: Cluster) -> None:
    cluster.store.reassign("t", [4, 5], [2, 4])


def admin_request(cluster: Cluster) -> None:
    cluster.store.want_reassigned({T0: [4, 5], T1: [2, 4]})


def next_controller(cluster: Cluster, *, arrived: bool) -> None:
    """What the dead one has sent has ``arrived``, or else never will."""
    cluster.before = lambda effect: None
    for broker in list(cluster.channels) if arrived else []:
        while cluster.deliver(broker):
            pass
    cluster.elect(controller_id=2)


def check(cluster: Cluster, *targets: tuple[int, ...]) -> None:
    """Every replica is where the last request wants it, and the others have heard that they are removed."""
    store = cluster.store
    expected = {
        partition: ReplicaAssignment(tuple(map(BrokerId, each))) for partition, each in enumerate(targets)
    }
    assert store.topics["t"].partitions == expected
    assert store.reassignments == {}
    told = {
        (send.to, each.partition)
        for send in cluster.all_sent(effects.SendStopReplica)
        for each in send.partitions
        if each.delete
    }
    began = {
        (send.to, each.partition)
        for send in cluster.all_sent(effects.SendLeaderAndIsr)
        for each in send.partitions
    }
    for partition, target in enumerate(targets):
        topic_partition = TopicPartition("t", partition)
        state = store.states[topic_partition].state
        assert (set(state.isr), state.leader in target) == (set(target), True)
        for broker in cluster.brokers:
            known = cluster.brokers[broker]
            assert known.metadata[topic_partition].replicas == target
            if broker in target:
                assert known.replicas[topic_partition].leader_epoch == state.leader_epoch
                assert known.replicas[topic_partition].replicas == target
            else:
                assert (broker, partition) in told or (broker, partition) not in began
                assert topic_partition not in known.disk or topic_partition in known.strays


@pytest.mark.parametrize("arrived", [True, False])
@pytest.mark.parametrize("ask", [api_request, admin_request])
@pytest.mark.parametrize("step", STEPS)
def test_a_controller_that_dies_after_a_step_is_followed_by_one_that_finishes(
    monkeypatch: pytest.MonkeyPatch, step: str, ask: Callable[[Cluster], None], arrived: bool
) -> None:
    cluster = two_partitions()
    ask(cluster)
    with monkeypatch.context() as patched, pytest.raises(ControllerDied):
        die_after(patched, step)
        cluster.calm_down()
    next_controller(cluster, arrived=arrived)
    cluster.calm_down()
    check(cluster, (4, 5), (2, 4))


def plain(cluster: Cluster) -> Iterator[tuple[tuple[int, ...], ...]]:
    api_request(cluster)
    yield (4, 5), (2, 4)


def by_admin_node(cluster: Cluster) -> Iterator[tuple[tuple[int, ...], ...]]:
    admin_request(cluster)
    yield (4, 5), (2, 4)


def cancelled(cluster: Cluster) -> Iterator[tuple[tuple[int, ...], ...]]:
    """One of two; a new replica of it is in the ISR already."""
    api_request(cluster)
    cluster.settle()
    cluster.store.leader_writes_isr(T0, [1, 2, 4], version=cluster.store.version("t"))
    cluster.settle()
    if cluster.store.topics["t"].partitions[0].is_being_reassigned:
        cluster.store.cancel("t")
    else:  # a controller has died meanwhile, and the brokers have had more time
        cluster.store.reassign("t", [1, 2])
    yield (1, 2), (2, 4)


def to_a_new_target(cluster: Cluster) -> Iterator[tuple[tuple[int, ...], ...]]:
    admin_request(cluster)
    cluster.settle()
    cluster.store.leader_writes_isr(T0, [1, 2, 4], version=cluster.store.version("t"))
    cluster.settle()
    cluster.store.reassign("t", [3, 4, 1], [2, 5])
    yield (3, 4, 1), (2, 5)


def back_and_forth(cluster: Cluster) -> Iterator[tuple[tuple[int, ...], ...]]:
    """The second request comes while the first is at its end."""
    api_request(cluster)
    cluster.settle()
    cluster.catch_up()
    cluster.step(cluster.store.events.popleft())
    cluster.store.reassign("t", [1, 2], [3, 2])
    yield (1, 2), (3, 2)


def order_only(cluster: Cluster) -> Iterator[tuple[tuple[int, ...], ...]]:
    cluster.store.want_reassigned({T0: [2, 1], T1: [3, 2]})
    yield (2, 1), (3, 2)


Scenario = Callable[[Cluster], Iterator[tuple[tuple[int, ...], ...]]]


@pytest.mark.parametrize("arrived", [True, False])
@pytest.mark.parametrize(
    "scenario", [plain, by_admin_node, cancelled, to_a_new_target, back_and_forth, order_only]
)
def test_a_controller_may_die_before_any_effect(scenario: Scenario, arrived: bool) -> None:
    survived = 0
    while _runs_until(scenario, survived, arrived=arrived):
        survived += 1
    assert survived > 10  # the last controller had nothing left to do


def _runs_until(scenario: Scenario, survived: int, *, arrived: bool) -> bool:
    """The controller dies after so many effects. Whether it did."""
    cluster = two_partitions()
    done = 0
    has_died = False

    def count(effect: Effect) -> None:
        nonlocal done
        done += 1
        if done > survived:
            raise ControllerDied

    original = cluster.step

    def step(event: Any, *, stop_after: int | None = None) -> object:
        nonlocal has_died
        try:
            return original(event, stop_after=stop_after)
        except ControllerDied:
            has_died = True
            next_controller(cluster, arrived=arrived)
            return None

    cluster.before = count
    cluster.step = step  # type: ignore[method-assign]
    (targets,) = scenario(cluster)
    cluster.calm_down()
    check(cluster, *targets)
    return has_died
