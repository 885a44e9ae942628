"""Plans are even, spread over racks, and copy little."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.cli.reassign.plan import Assignment, count_moves, plan_assignment
from minikafka.controller.assignment import BrokerMetadata, assign_replicas
from minikafka.types import BrokerId, TopicPartition


def brokers(*racks: str | None) -> list[BrokerMetadata]:
    """Brokers 1, 2, … in these racks."""
    return [BrokerMetadata(BrokerId(node_id), rack) for node_id, rack in enumerate(racks, start=1)]


def topic(name: str, *replicas: Sequence[int]) -> Assignment:
    return {TopicPartition(name, number): tuple(each) for number, each in enumerate(replicas)}


def spread_of(counts: Mapping[int, int], over: Iterable[int]) -> int:
    loads = [counts.get(broker, 0) for broker in over]
    return max(loads) - min(loads)


def loads(plan: Assignment, topics: Iterable[str]) -> tuple[Counter[int], Counter[int]]:
    """Replicas and preferred leaders by broker."""
    of_topics = [replicas for partition, replicas in plan.items() if partition.topic in set(topics)]
    return Counter(each for replicas in of_topics for each in replicas), Counter(
        replicas[0] for replicas in of_topics
    )


@st.composite
def situations(draw: st.DrawFn, *, racks: bool) -> tuple[Assignment, list[BrokerMetadata]]:
    """What there is (on brokers 1 to 12), and the brokers that it is to be on."""
    per_rack = draw(st.integers(1, 3))
    rack_count = draw(st.integers(2, 4)) if racks else draw(st.integers(1, 3))
    targets = brokers(
        *(f"rack-{number % rack_count}" if racks else None for number in range(per_rack * rack_count))
    )
    current: Assignment = {}
    for number in range(draw(st.integers(1, 4))):
        factor = draw(st.integers(1, len(targets)))
        lists = st.permutations(range(1, 13)).map(lambda ids, factor=factor: ids[:factor])
        current |= topic(f"topic-{number}", *draw(st.lists(lists, min_size=1, max_size=8)))
    return current, targets


def groups(plan: Assignment) -> list[set[str]]:
    """All topics together, and each of them."""
    topics = {partition.topic for partition in plan}
    return [topics, *({name} for name in sorted(topics))]


@given(situations(racks=False))
def test_every_topic_and_the_whole_are_even(situation: tuple[Assignment, list[BrokerMetadata]]) -> None:
    current, targets = situation
    plan = plan_assignment(current, targets)
    ids = [broker.node_id for broker in targets]
    assert plan.keys() == current.keys()
    for partition, replicas in plan.items():
        assert len(set(replicas)) == len(replicas) == len(current[partition])
        assert set(replicas) <= set(ids)
    for group in groups(plan):
        assert spread_of(loads(plan, group)[0], ids) <= 1
    assert plan_assignment(plan, targets) == plan, "what is even already stays"


@given(situations(racks=True))
def test_racks_are_used_and_loads_are_kept_even(situation: tuple[Assignment, list[BrokerMetadata]]) -> None:
    current, targets = situation
    plan = plan_assignment(current, targets)
    rack_of = {broker.node_id: broker.rack for broker in targets}
    for partition, replicas in plan.items():
        assert len(set(replicas)) == len(replicas) == len(current[partition])
        racks_used = {rack_of[BrokerId(each)] for each in replicas}
        assert len(racks_used) == min(len(replicas), len(set(rack_of.values())))
    for group in groups(plan):
        assert spread_of(loads(plan, group)[0], rack_of) <= 1
    assert plan_assignment(plan, targets) == plan, "what is even already stays"


@given(st.booleans().flatmap(lambda racks: situations(racks=racks)))
def test_the_leaders_of_every_topic_are_even(situation: tuple[Assignment, list[BrokerMetadata]]) -> None:
    current, targets = situation
    plan = plan_assignment(current, targets)
    for group in groups(plan)[1:]:
        assert spread_of(loads(plan, group)[1], [broker.node_id for broker in targets]) <= 1


@given(situations(racks=True), st.integers(0, 2**32))
def test_no_more_is_copied_than_by_dealing_out_again(
    situation: tuple[Assignment, list[BrokerMetadata]], seed: int
) -> None:
    current, targets = situation
    rng = random.Random(seed)
    fresh: Assignment = {}
    for name in sorted({partition.topic for partition in current}):
        partitions = [partition for partition in current if partition.topic == name]
        dealt = assign_replicas(
            targets,
            partitions=len(partitions),
            replication_factor=len(current[partitions[0]]),
            rng=rng,
        )
        fresh |= dict(zip(partitions, dealt, strict=True))
    ids = [broker.node_id for broker in targets]
    if all(spread_of(loads(fresh, group)[0], ids) <= 1 for group in groups(fresh)):  # it need not be even
        assert count_moves(current, plan_assignment(current, targets)) <= count_moves(current, fresh)


def test_a_broker_that_is_new_gets_its_share_and_nothing_else_moves() -> None:
    current = {
        TopicPartition(name, number): (1 + number % 3, 1 + (number + 1) % 3)
        for name in ("a", "b")
        for number in range(6)
    }
    plan = plan_assignment(current, brokers(None, None, None, None))
    assert count_moves(current, plan) == 6, "a quarter of 24"
    assert all(
        4 in plan[each]
        for each in plan
        if plan[each] != current[each] and set(plan[each]) != set(current[each])
    )
    replicas_of, leaders_of = loads(plan, ["a", "b"])
    assert replicas_of == {1: 6, 2: 6, 3: 6, 4: 6}
    assert leaders_of == {1: 3, 2: 3, 3: 3, 4: 3}


def test_a_broker_that_goes_gives_away_what_it_has_and_no_more() -> None:
    current = topic("a", (1, 2), (2, 3), (3, 1), (1, 2), (2, 3), (3, 1))
    plan = plan_assignment(current, brokers(None, None))
    assert count_moves(current, plan) == 4
    assert {frozenset(replicas) for replicas in plan.values()} == {frozenset((1, 2))}


def test_the_replication_factor_can_grow_and_shrink() -> None:
    grown = plan_assignment(topic("a", (1,), (2,), (3,)), brokers("x", "y", "z"), replication_factor=2)
    assert [len(replicas) for replicas in grown.values()] == [2, 2, 2]
    assert [replicas[0] for replicas in grown.values()] == [1, 2, 3], "who leads goes on"
    shrunk = plan_assignment(grown, brokers("x", "y", "z"), replication_factor=1)
    assert count_moves(grown, shrunk) == 0
    with pytest.raises(ValueError, match="a-0: 4 replicas on 3 brokers"):
        plan_assignment(grown, brokers("x", "y", "z"), replication_factor=4)


def test_racks_count_only_when_every_broker_has_one() -> None:
    current = topic("a", (1, 2), (2, 1))
    assert plan_assignment(current, brokers("x", "x", "y")) != current
    assert count_moves(current, plan_assignment(current, brokers("x", "x", None))) == 1
