"""Regular expressions of members: resolved by the coordinator, refreshed when topics change, and cheap."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.clock import ManualClock
from minikafka.coordinator.group.consumer.membership import check_regex, resolve_regex
from minikafka.coordinator.group.messages import ConsumerGroupHeartbeatResult
from minikafka.errors import ErrorCode, KafkaError
from minikafka.regex import compile_regex
from tests.unit.coordinator.group.consumer.world import FakeConsumer, FakeTopics, World, settle


def names(consumer: FakeConsumer) -> list[str]:
    topics = consumer.world.topics
    return sorted(topic.name for topic_id in consumer.owned if (topic := topics.topic_by_id(topic_id)))


def test_an_expression_must_match_the_whole_name() -> None:
    topics = FakeTopics(orders=1, orders_eu=1, reorders=1)
    assert resolve_regex("orders", topics) == ("orders",)
    assert resolve_regex("orders|.*_eu", topics) == ("orders", "orders_eu")


def test_what_an_expression_matches_is_found_once_for_the_same_topics() -> None:
    topics = FakeTopics(orders=1, orders_eu=1, payments=1)
    found = resolve_regex("orders.*", topics)
    assert resolve_regex("orders.*", topics) is found
    topics.put("orders_us", 1)
    assert resolve_regex("orders.*", topics) == ("orders", "orders_eu", "orders_us")
    assert resolve_regex("orders.*", topics, lambda name: name != "orders_eu") == ("orders", "orders_us")


@pytest.mark.parametrize("regex", ["(", "a{2000}", "(?=a)b", r"(a)\1", "(((a{30}){30}){30})", "a" * 2_001])
def test_what_does_not_compile_is_refused(regex: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check_regex(regex)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_hostile_expression_costs_no_more_than_any_other() -> None:
    """``re`` would need longer than the universe has lasted."""
    topics = FakeTopics(**{"a" * 200: 1})
    assert resolve_regex("(a+)+b", topics) == ()
    assert resolve_regex("(a|aa)*c|(a*)*d", topics) == ()


def test_groups_of_an_expression_are_not_captured() -> None:
    """RE2 copies the positions of all groups for each state: 5,000 of them took minutes."""
    assert compile_regex("(order)(s?)|" + "(a?)" * 400, name="expression").groups == 0
    assert resolve_regex("(order)(s?)", FakeTopics(orders=1)) == ("orders",)


def test_a_member_has_the_matching_topics_with_its_first_answer() -> None:
    world = World(orders=2, order_lines=1, payments=1)
    consumer = FakeConsumer(world, "a", regex="order.*")
    consumer.beat()
    assert (names(consumer), consumer.epoch) == (["order_lines", "orders"], 1)
    assert world.group.is_subscribed_to("orders") and not world.group.is_subscribed_to("payments")


def test_a_bad_expression_does_not_let_its_member_in() -> None:
    world = World(orders=2)
    asked = world.heartbeat("a", 0, regex="(", owned={}, rebalance_timeout_ms=1_000)
    assert isinstance(asked.answer, KafkaError)
    assert asked.answer.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert world.groups == {}


def test_new_topics_are_looked_for_every_ten_seconds_at_most() -> None:
    world = World(orders=1)
    consumer = FakeConsumer(world, "a", regex="order.*")
    settle(consumer)
    world.topics.put("other", 1)
    consumer.beat()
    world.topics.put("orders_eu", 1)
    consumer.beat()
    assert names(consumer) == ["orders"], "it has looked just before"
    world.shell.advance(10_000)
    consumer.beat()
    assert (names(consumer), consumer.epoch) == (["orders", "orders_eu"], 2)


def test_a_topic_that_goes_leaves_no_partitions_behind() -> None:
    world = World(orders=1, orders_eu=1)
    consumer = FakeConsumer(world, "a", regex="order.*")
    settle(consumer)
    world.topics.delete("orders_eu")
    settle(consumer)
    assert names(consumer) == ["orders"]


def test_the_result_is_kept_as_long_as_a_member_uses_the_expression() -> None:
    world = World(orders=2, payments=2)
    first = FakeConsumer(world, "a", regex="order.*")
    second = FakeConsumer(world, "b", regex="order.*")
    settle(first, second)
    assert [len(each.owned) for each in (first, second)] == [1, 1]
    first.leave()
    assert list(world.group.regexes) == ["order.*"]
    second.regex = "pay.*"
    second.hear(world.heartbeat("b", second.epoch, regex="pay.*").answer)
    assert list(world.group.regexes) == ["pay.*"]
    settle(second)
    assert names(second) == ["payments"]
    second.leave()
    assert world.group.regexes == {}


def test_names_and_an_expression_may_be_mixed() -> None:
    world = World(orders=2, payments=2)
    world.heartbeat("a", 0, names=["payments"], regex="order.*", owned={}, rebalance_timeout_ms=1_000)
    world.heartbeat("a", 1)
    assert world.group.subscribed_topics() == ["orders", "payments"]
    assert len(world.group.members["a"].assigned) == 2
    world.heartbeat("a", 2, regex="")
    assert world.group.subscribed_topics() == ["payments"]


def test_many_expressions_are_refreshed_a_few_with_each_heartbeat() -> None:
    world = World(t0=1)
    consumers = [FakeConsumer(world, f"member-{number}", regex=f"t0|t{number}") for number in range(1, 11)]
    settle(*consumers)
    world.shell.advance(10_000)
    for number in range(1, 11):
        world.topics.put(f"t{number}", 1)
    epoch = world.group.epoch
    settle(*consumers)
    assert world.group.subscribed_topics() == sorted(f"t{number}" for number in range(11))
    assert all(f"t{number}" in names(consumer) for number, consumer in enumerate(consumers, start=1))
    assert world.group.epoch - epoch == 3


def test_a_refresh_that_the_log_refuses_is_not_forgotten() -> None:
    world = World(orders=1)
    consumer = FakeConsumer(world, "a", regex="order.*")
    settle(consumer)
    world.shell.advance(10_000)
    world.topics.put("orders_eu", 1)
    world.shell.refuse = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert isinstance(world.heartbeat("a", 1).answer, KafkaError)
    world.shell.refuse = None
    consumer.beat()
    assert names(consumer) == ["orders", "orders_eu"]


def test_rights_are_looked_at_again_when_the_refresh_interval_is_over() -> None:
    world = World(orders=1, orders_eu=1)
    world.settings.group_consumer_regex_refresh_interval_ms = 60_000
    allowed = {"orders"}
    consumer = FakeConsumer(world, "a", regex="order.*")
    consumer.may_describe = allowed.__contains__
    settle(consumer)
    allowed.add("orders_eu")
    world.shell.advance(40_000)
    consumer.beat()
    assert not world.coordinator.regexes_due(world.group, world.shell.now_ms, has_rules=True)
    assert names(consumer) == ["orders"]
    world.shell.advance(20_000)
    assert world.coordinator.regexes_due(world.group, world.shell.now_ms, has_rules=True) == ["order.*"]
    assert not world.coordinator.regexes_due(world.group, world.shell.now_ms, has_rules=False), (
        "nothing to look at"
    )
    settle(consumer)
    assert names(consumer) == ["orders", "orders_eu"]


def test_new_topics_are_found_though_the_clock_was_set_back() -> None:
    world = World(orders=1)
    consumer = FakeConsumer(world, "a", regex="order.*")
    settle(consumer)
    world.shell.clock = ManualClock(world.shell.now_ms - 3_600_000)
    world.topics.put("orders_eu", 1)
    settle(consumer)
    assert names(consumer) == ["orders", "orders_eu"]


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_topics_that_a_member_names_come_before_those_of_its_expression(assignor: str) -> None:
    """As in Kafka, with an answer of their own: a member that joins with ``pears`` and an expression is told
    ``pears`` at first. Who joins when the group knows the expression has all from the start."""
    world = World(apples=2, oranges=2, pears=2)

    def told(member_id: str, epoch: int, **said: Any) -> list[str]:
        answer = world.heartbeat(member_id, epoch, assignor=assignor, **said).answer
        assert isinstance(answer, ConsumerGroupHeartbeatResult) and answer.assignment is not None
        assigned = [world.topics.topic_by_id(topic_id) for topic_id in answer.assignment]
        return [topic.name for topic in assigned if topic is not None]

    both: dict[str, Any] = {"names": ["pears"], "regex": "apples|oranges", "rebalance_timeout_ms": 60_000}
    assert told("a", 0, owned={}, **both) == ["pears"]
    assert world.group.unresolved_regexes() == ["apples|oranges"]
    owned = world.group.members["a"].assigned
    assert told("a", 1, owned=owned) == ["pears", "apples", "oranges"]
    assert (world.group.unresolved_regexes(), world.group.epoch) == ([], 2)
    assert told("b", 0, owned={}, **both) == []
    assert world.topics.id("oranges") in world.group.targets["b"]


def test_an_expression_beside_names_is_resolved_by_the_next_coordinator() -> None:
    world = World(apples=2, pears=2)
    world.heartbeat("a", 0, names=["pears"], regex="apples", owned={}, rebalance_timeout_ms=60_000)
    world.restart()
    world.heartbeat("a", 1)
    wanted = [world.topics.id(name) for name in ("pears", "apples")]
    assert list(world.group.members["a"].assigned) == wanted


def test_a_refused_write_keeps_an_expression_beside_names_for_later() -> None:
    world = World(apples=2, pears=2)
    world.heartbeat("a", 0, names=["pears"], regex="apples", owned={}, rebalance_timeout_ms=60_000)
    world.shell.refuse = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert isinstance(world.heartbeat("a", 1).answer, KafkaError)
    world.shell.refuse = None
    world.heartbeat("a", 1)
    assert world.group.subscribed_topics() == ["apples", "pears"]


def test_a_topic_that_may_not_be_described_does_not_match() -> None:
    topics = FakeTopics(orders=1, orders_eu=1)
    assert resolve_regex("orders.*", topics, lambda name: name != "orders") == ("orders_eu",)
    assert resolve_regex("orders.*", topics) == ("orders", "orders_eu"), "for another member it does"
