"""Assignments that take long are worked out beside the loop; members have the last one until then."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.coordinator.group import group
from minikafka.coordinator.group.environment import ConsumerGroupSettings
from minikafka.errors import ErrorCode, KafkaError
from tests.unit.coordinator.group.consumer.world import FakeConsumer, World, settle


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """In which every assignment takes long."""
    monkeypatch.setattr(group, "ASSIGNED_AT_ONCE_MAX", -1)
    return World(orders=4)


@pytest.fixture
def first(world: World) -> FakeConsumer:
    """It has everything."""
    consumer = FakeConsumer(world, "a", "orders")
    settle(consumer)
    assert partitions(consumer) == [0, 1, 2, 3], "the first assignment of a group is there at once"
    return consumer


def partitions(consumer: FakeConsumer) -> list[int]:
    return sorted(number for numbers in consumer.owned.values() for number in numbers)


def test_a_member_has_its_partitions_when_they_are_worked_out(world: World, first: FakeConsumer) -> None:
    second = FakeConsumer(world, "b", "orders")
    second.beat()
    first.beat()
    assert (partitions(first), partitions(second), world.group.state) == ([0, 1, 2, 3], [], "Assigning")
    assert len(world.shell.computations) == 1, "it is worked out once"
    world.shell.compute()
    assert world.group.assignment_epoch == world.group.epoch == 2
    settle(first, second)
    assert sorted(map(len, map(partitions, (first, second)))) == [2, 2]


def test_who_comes_meanwhile_is_in_the_next_one(world: World, first: FakeConsumer) -> None:
    second, third = (FakeConsumer(world, each, "orders") for each in "bc")
    second.beat()
    third.beat()
    assert (world.group.epoch, len(world.shell.computations)) == (3, 1)
    world.shell.compute()
    assert world.group.assignment_epoch == 2, "good until there is the next"
    settle(first, second, third)
    assert sorted(map(len, map(partitions, (first, second, third)))) == [0, 2, 2]
    world.shell.compute()
    settle(first, second, third)
    assert (world.group.assignment_epoch, world.group.state) == (3, "Stable")
    assert sorted(map(len, map(partitions, (first, second, third)))) == [1, 1, 2]


def test_who_goes_meanwhile_has_nothing(world: World, first: FakeConsumer) -> None:
    second = FakeConsumer(world, "b", "orders")
    second.beat()
    first.leave()
    world.shell.compute()
    assert world.group.targets.keys() == {"b"}
    second.beat()
    world.shell.compute()
    settle(second)
    assert partitions(second) == [0, 1, 2, 3]


def test_one_that_fails_or_is_not_written_is_begun_again(world: World, first: FakeConsumer) -> None:
    second = FakeConsumer(world, "b", "orders")
    second.beat()
    world.shell.compute(fails=True)
    assert world.group.assignment_epoch == 1
    second.beat()
    world.shell.refuse = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    world.shell.compute()
    world.shell.refuse = None
    assert world.group.assignment_epoch == 1
    second.beat()
    world.shell.compute()
    settle(first, second)
    assert sorted(map(len, map(partitions, (first, second)))) == [2, 2]


def test_a_member_whose_join_is_refused_has_begun_none(world: World, first: FakeConsumer) -> None:
    world.shell.refuse = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    joins: dict[str, Any] = {"names": ["orders"], "owned": {}, "rebalance_timeout_ms": 60_000}
    assert isinstance(world.heartbeat("b", 0, **joins).answer, KafkaError)
    assert world.shell.computations == []


def test_the_next_coordinator_begins_again(world: World, first: FakeConsumer) -> None:
    second = FakeConsumer(world, "b", "orders")
    second.beat()
    world.restart()
    lost = world.shell.computations.pop()
    world.shell.carry_out(lost.done(lost.compute(), world.shell.now_ms))
    assert world.group.assignment_epoch == 1, "what the one before has asked for says nothing here"
    first.beat()
    world.shell.compute()
    settle(first, second)
    assert sorted(map(len, map(partitions, (first, second)))) == [2, 2]


def test_where_it_is_switched_off_all_wait_for_it(world: World, first: FakeConsumer) -> None:
    world.settings.consumer_group_settings = ConsumerGroupSettings(assignor_offload_enable=False)
    second = FakeConsumer(world, "b", "orders")
    settle(first, second)
    assert sorted(map(len, map(partitions, (first, second)))) == [2, 2]
    assert world.shell.computations == []
