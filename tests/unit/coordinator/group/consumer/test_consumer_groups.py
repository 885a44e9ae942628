"""Stories of KIP-848 groups: who joins, leaves, is silent or slow, and what the others get."""

from __future__ import annotations

import msgspec
import pytest

from minikafka.clock import ManualClock
from minikafka.coordinator.group.consumer.consumer_group import MemberState
from minikafka.coordinator.group.environment import ConsumerGroupSettings
from minikafka.coordinator.group.messages import ConsumerGroupHeartbeatResult, GroupOperation, OperationKind
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    GroupRecord,
)
from tests.unit.coordinator.group.consumer.world import GROUP, FakeConsumer, World, settle


@pytest.fixture
def world() -> World:
    return World(orders=4, payments=2)


def partitions(consumer: FakeConsumer, topic: str = "orders") -> list[int]:
    return sorted(consumer.owned.get(consumer.world.topics.id(topic), ()))


def refusal(answer: object) -> ErrorCode:
    assert isinstance(answer, KafkaError), answer
    return answer.code


def test_who_comes_first_has_all_partitions_in_the_first_answer(world: World) -> None:
    consumer = FakeConsumer(world, "a", "orders", "payments")
    answer = consumer.beat().answer
    assert answer == ConsumerGroupHeartbeatResult(
        member_id="a",
        member_epoch=1,
        heartbeat_interval_ms=5_000,
        assignment={world.topics.id("orders"): frozenset(range(4)), world.topics.id("payments"): {0, 1}},
    )
    assert world.group.state == "Stable"


def test_a_heartbeat_without_news_writes_nothing_and_tells_nothing(world: World) -> None:
    consumer = FakeConsumer(world, "a", "orders")
    settle(consumer)
    written = len(world.shell.appends)
    assert consumer.beat().answer == ConsumerGroupHeartbeatResult(
        member_id="a", member_epoch=1, heartbeat_interval_ms=5_000
    )
    assert len(world.shell.appends) == written


def test_a_second_member_gets_what_the_first_has_given_back_and_not_earlier(world: World) -> None:
    first, second = FakeConsumer(world, "a", "orders"), FakeConsumer(world, "b", "orders")
    settle(first)
    second.beat()
    assert (second.epoch, second.owned, world.group.state) == (2, {}, "Reconciling")
    first.beat()
    assert (first.epoch, partitions(first)) == (1, [0, 1]), "it stays in its epoch until it has given back"
    assert world.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    second.beat()
    assert second.owned == {}, "the first may still be reading them"
    first.beat()
    assert first.epoch == 2
    second.beat()
    assert partitions(second) == [2, 3]
    assert world.group.state == "Stable"
    assert world.counts.consumer_group_rebalances == 2, "one for each who came"


def test_a_group_is_not_assigned_again_within_its_interval(world: World) -> None:
    """KIP-1263: those who come meanwhile have nothing, and all of them are in the next assignment."""
    world.settings.consumer_group_settings = ConsumerGroupSettings(assignment_interval_ms=1_000)
    first, second, third = (FakeConsumer(world, each, "orders") for each in "abc")
    settle(first)
    assert partitions(first) == [0, 1, 2, 3], "the first assignment waits for nothing"
    world.shell.advance(999)
    second.beat()
    third.beat()
    first.beat()
    assert (second.owned, third.owned, partitions(first)) == ({}, {}, [0, 1, 2, 3])
    assert (world.group.epoch, world.group.assignment_epoch, world.group.state) == (3, 1, "Assigning")
    world.shell.advance(1)
    second.beat()
    assert (world.group.assignment_epoch, world.group.state) == (3, "Reconciling")
    settle(first, second, third)
    assert sorted(map(len, map(partitions, (first, second, third)))) == [1, 1, 2]


def test_a_group_is_assigned_again_though_the_clock_was_set_back(world: World) -> None:
    world.settings.consumer_group_settings = ConsumerGroupSettings(assignment_interval_ms=1_000)
    first, second = FakeConsumer(world, "a", "orders"), FakeConsumer(world, "b", "orders")
    settle(first)
    world.shell.clock = ManualClock(world.shell.now_ms - 3_600_000)
    settle(first, second)
    assert (partitions(first), partitions(second)) == ([0, 1], [2, 3])


def test_a_member_that_has_missed_what_to_give_back_hears_it_again(world: World) -> None:
    """Its coordinator died before the answer left, and librdkafka goes on as if nothing had been said."""
    first = FakeConsumer(world, "a", "orders", asks_again=False)
    second = FakeConsumer(world, "b", "orders")
    settle(first)
    second.beat()
    first.beat(answer_is_lost=True)
    first.beat()
    settle(first, second)
    assert (partitions(first), partitions(second)) == ([0, 1], [2, 3])


def test_who_leaves_is_replaced_at_the_next_heartbeat_of_another(world: World) -> None:
    first, second = FakeConsumer(world, "a", "orders"), FakeConsumer(world, "b", "orders")
    settle(first, second)
    assert second.leave().answer == ConsumerGroupHeartbeatResult(
        member_id="b", member_epoch=-1, heartbeat_interval_ms=0
    )
    first.beat()
    assert partitions(first) == [0, 1, 2, 3]
    first.leave()
    assert (world.group.state, world.group.is_empty) == ("Empty", True)


def test_a_silent_member_is_fenced_when_its_session_is_over(world: World) -> None:
    first, second = FakeConsumer(world, "a", "orders"), FakeConsumer(world, "b", "orders")
    settle(first, second)
    for _ in range(9):
        world.shell.advance(5_000)
        first.beat()
    assert list(world.group.members) == ["a"]
    assert partitions(first) == [0, 1, 2, 3]
    assert refusal(second.beat().answer) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_fencing_that_the_log_refuses_is_tried_again(world: World) -> None:
    settle(FakeConsumer(world, "a", "orders"))
    world.shell.refuse = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    world.shell.advance(45_000)
    assert list(world.group.members) == ["a"]
    world.shell.refuse = None
    world.shell.advance(500)
    assert world.group.is_empty


def test_a_member_that_keeps_what_it_must_give_back_is_fenced_after_its_rebalance_timeout(
    world: World,
) -> None:
    first, second = FakeConsumer(world, "a", "orders"), FakeConsumer(world, "b", "orders")
    settle(first)
    everything = first.owned
    second.beat()
    for _ in range(13):
        world.shell.advance(5_000)
        world.heartbeat("a", 1, owned=everything)
        second.beat()
    assert list(world.group.members) == ["b"]
    assert partitions(second) == [0, 1, 2, 3]


def test_a_member_that_has_given_back_in_time_is_not_fenced(world: World) -> None:
    first, second = FakeConsumer(world, "a", "orders"), FakeConsumer(world, "b", "orders")
    settle(first, second)
    operation = GroupOperation(OperationKind.REVOCATION, GROUP, "a")
    assert operation not in world.shell.parked
    world.shell.carry_out(world.coordinator.expired(operation, world.shell.now_ms))
    assert list(world.group.members) == ["a", "b"]


def test_the_answer_to_a_join_that_got_lost_is_given_again(world: World) -> None:
    consumer = FakeConsumer(world, "a", "orders")
    consumer.beat()
    assert consumer.epoch == 1
    consumer.epoch, consumer.owned = 0, {}
    consumer.beat()
    assert (consumer.epoch, partitions(consumer)) == (1, [0, 1, 2, 3])


def test_the_epoch_before_is_good_only_with_no_more_than_the_member_has(world: World) -> None:
    first, second = FakeConsumer(world, "a", "orders"), FakeConsumer(world, "b", "orders")
    settle(first, second)
    orders = world.topics.id("orders")
    assert world.heartbeat("a", 1, owned={orders: frozenset({0})}).answer.member_epoch == 2
    assert refusal(world.heartbeat("a", 1).answer) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refusal(world.heartbeat("a", 1, owned={orders: frozenset({2})}).answer) is (
        ErrorCode.FENCED_MEMBER_EPOCH
    )
    assert refusal(world.heartbeat("a", 3).answer) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_may_change_what_it_wants(world: World) -> None:
    consumer = FakeConsumer(world, "a", "orders")
    settle(consumer)
    consumer.subscribe("payments")
    settle(consumer)
    assert (partitions(consumer), partitions(consumer, "payments")) == ([], [0, 1])
    assert (consumer.epoch, world.group.epoch) == (2, 2)


def test_a_topic_that_grows_comes_or_goes_is_another_epoch_at_the_next_heartbeat(world: World) -> None:
    consumer = FakeConsumer(world, "a", "orders", "refunds")
    settle(consumer)
    world.topics.put("orders", 6)
    consumer.beat()
    assert (consumer.epoch, partitions(consumer)) == (2, [0, 1, 2, 3, 4, 5])
    world.topics.put("refunds", 1)
    consumer.beat()
    assert (consumer.epoch, partitions(consumer, "refunds")) == (3, [0])
    world.topics.put("unrelated", 5)
    consumer.beat()
    assert consumer.epoch == 3
    world.topics.delete("orders")
    settle(consumer)
    assert (consumer.epoch, len(consumer.owned)) == (4, 1)


def test_the_clients_of_version_0_get_their_id_from_the_coordinator(world: World) -> None:
    answer = world.heartbeat("", 0, names=["orders"], owned={}, rebalance_timeout_ms=1_000, version=0).answer
    assert answer.member_id in world.group.members


def test_a_refused_append_changes_nothing_and_tells_why(world: World) -> None:
    consumer = FakeConsumer(world, "a", "orders")
    world.shell.refuse = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    asked = world.heartbeat("a", 0, names=["orders"], owned={}, rebalance_timeout_ms=1_000)
    assert refusal(asked.answer) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (world.groups, world.shell.parked) == ({}, {})
    world.shell.refuse = None
    settle(consumer)
    assert consumer.epoch == 1


def test_no_member_hears_of_what_is_not_committed(world: World) -> None:
    world.shell.hold = True
    joins = world.heartbeat("a", 0, names=["orders"], owned={}, rebalance_timeout_ms=1_000)
    again = world.heartbeat("a", 1)
    assert joins.waits and again.waits
    world.shell.commit()
    assert (joins.answer.member_epoch, again.answer.member_epoch) == (1, 1)
    assert not world.heartbeat("a", 1).waits


@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [
        ("a", 1, ErrorCode.GROUP_ID_NOT_FOUND),
        ("a", -1, ErrorCode.GROUP_ID_NOT_FOUND),
        ("", 1, ErrorCode.INVALID_REQUEST),
        ("a", -3, ErrorCode.INVALID_REQUEST),
        ("a", -2, ErrorCode.INVALID_REQUEST),
        ("a", 0, ErrorCode.INVALID_REQUEST),
    ],
)
def test_heartbeats_that_make_no_sense_are_refused(
    world: World, member_id: str, epoch: int, code: ErrorCode
) -> None:
    assert refusal(world.heartbeat(member_id, epoch).answer) is code


def test_an_assignor_that_the_broker_does_not_have_is_refused(world: World) -> None:
    asked = world.heartbeat("a", 0, names=["orders"], owned={}, rebalance_timeout_ms=1_000, assignor="sticky")
    assert refusal(asked.answer) is ErrorCode.UNSUPPORTED_ASSIGNOR


def test_the_assignor_that_most_members_ask_for_is_used(world: World) -> None:
    first = FakeConsumer(world, "a", "orders", "payments", assignor="range")
    second = FakeConsumer(world, "b", "orders", "payments", assignor="range")
    third = FakeConsumer(world, "c", "orders", "payments", assignor="uniform")
    settle(first, second, third)
    assert world.coordinator.describe(GROUP).assignor_name == "range"
    assert [len(partitions(each, "payments")) for each in (first, second, third)] == [1, 1, 0]


def test_a_full_group_admits_no_new_member(world: World) -> None:
    world.settings.group_consumer_max_size = 1
    first = FakeConsumer(world, "a", "orders")
    settle(first)
    asked = world.heartbeat("b", 0, names=["orders"], owned={}, rebalance_timeout_ms=1_000)
    assert refusal(asked.answer) is ErrorCode.GROUP_MAX_SIZE_REACHED
    first.beat()
    assert first.epoch == 1


def test_a_static_member_comes_back_to_its_partitions_without_a_new_epoch(world: World) -> None:
    first = FakeConsumer(world, "a", "orders", instance_id="one")
    second = FakeConsumer(world, "b", "orders")
    settle(first, second)
    had, epoch = first.owned, world.group.epoch
    assert first.leave(for_a_while=True).answer.member_epoch == -2
    settle(second)
    assert partitions(second) == [2, 3]
    returned = FakeConsumer(world, "a2", "orders", instance_id="one")
    settle(returned, second)
    assert (returned.owned, world.group.epoch) == (had, epoch)
    assert list(world.group.members) == ["b", "a2"]
    assert refusal(world.heartbeat("a", epoch, instance_id="one").answer) is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_does_not_come_back_loses_its_partitions(world: World) -> None:
    first = FakeConsumer(world, "a", "orders", instance_id="one")
    second = FakeConsumer(world, "b", "orders")
    settle(first, second)
    first.leave(for_a_while=True)
    for _ in range(9):
        world.shell.advance(5_000)
        second.beat()
    assert partitions(second) == [0, 1, 2, 3]


def test_an_instance_id_is_released_only_by_leaving(world: World) -> None:
    settle(FakeConsumer(world, "a", "orders", instance_id="one"))
    asked = world.heartbeat("b", 0, names=["orders"], owned={}, rebalance_timeout_ms=1_000, instance_id="one")
    assert refusal(asked.answer) is ErrorCode.UNRELEASED_INSTANCE_ID
    assert refusal(world.heartbeat("b", 1, instance_id="two").answer) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_missed_the_answer_to_its_join_joins_again(world: World) -> None:
    member = FakeConsumer(world, "a", "orders", instance_id="one")
    member.beat(answer_is_lost=True)
    settle(member)
    assert partitions(member) == [0, 1, 2, 3]
    assert list(world.group.members) == ["a"]


def test_a_static_member_that_was_fenced_by_its_epoch_joins_again(world: World) -> None:
    world.topics.put("others", 1)
    member, other = FakeConsumer(world, "a", "orders", instance_id="one"), FakeConsumer(world, "b", "others")
    settle(member)
    other.beat()  # a new group epoch
    member.beat(answer_is_lost=True)
    asked = world.heartbeat("a", member.epoch, names=["orders"], instance_id="one")
    assert refusal(asked.answer) is ErrorCode.FENCED_MEMBER_EPOCH
    member.hear(asked.answer)
    settle(member, other)
    assert (partitions(member), sorted(world.group.members)) == ([0, 1, 2, 3], ["a", "b"])


def test_commits_are_for_members_in_their_epoch(world: World) -> None:
    settle(FakeConsumer(world, "a", "orders"))

    def commit(member_id: str, epoch: int, version: int = 9) -> None:
        world.group.check_offset_commit(
            member_id=member_id, group_instance_id=None, generation_or_member_epoch=epoch, version=version
        )

    commit("a", 1)
    for member_id, epoch, version, code in (
        ("a", 2, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("b", 1, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", 1, 8, ErrorCode.UNSUPPORTED_VERSION),
    ):
        with pytest.raises(KafkaError) as refused:
            commit(member_id, epoch, version)
        assert refused.value.code is code
    with pytest.raises(KafkaError) as refused:
        world.group.check_offset_fetch(member_id="a", member_epoch=0)
    assert refused.value.code is ErrorCode.STALE_MEMBER_EPOCH
    world.group.check_offset_fetch(member_id=None, member_epoch=-1)
    with pytest.raises(KafkaError):
        world.group.check_delete()


def test_tombstones_leave_nothing_of_a_group(world: World) -> None:
    consumer = FakeConsumer(world, "a", regex="ord.*")
    settle(consumer)
    for record in world.group.tombstones():
        world.coordinator.replay(record, world.shell.now_ms)
    assert world.groups == {}


def test_the_next_coordinator_continues_and_waits_for_all_members_again(world: World) -> None:
    first, second = FakeConsumer(world, "a", "orders"), FakeConsumer(world, "b", "orders")
    settle(first)
    second.beat()
    world.heartbeat("a", 1)
    world.restart()
    assert set(world.shell.parked) == {
        GroupOperation(OperationKind.SESSION, GROUP, "a"),
        GroupOperation(OperationKind.REVOCATION, GROUP, "a"),
        GroupOperation(OperationKind.SESSION, GROUP, "b"),
    }
    first.take({world.topics.id("orders"): frozenset({0, 1})})
    settle(first, second)
    assert partitions(second) == [2, 3]


def test_a_group_is_described_as_its_members_are(world: World) -> None:
    settle(FakeConsumer(world, "a", "orders", instance_id="one"))
    described = world.coordinator.describe(GROUP)
    assert (described.state, described.group_epoch, described.assignment_epoch) == ("Stable", 1, 1)
    (member,) = described.members
    assert (member.member_id, member.instance_id, member.member_type) == ("a", "one", 1)
    assert member.assignment == member.target_assignment == world.group.members["a"].assigned
    assert world.coordinator.describe("nobody").error is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.group.listed().group_type == "consumer"


def test_what_a_newer_broker_has_written_of_a_member_makes_it_restart(world: World) -> None:
    consumer = FakeConsumer(world, "a", "orders")
    settle(consumer)
    member = world.group.members["a"]
    key = ConsumerGroupCurrentMemberAssignmentKey(GROUP, "a")
    world.coordinator.replay(GroupRecord(key, msgspec.structs.replace(member.current, state=7)), 0)
    assert world.group.members["a"].state is MemberState.UNKNOWN
    assert refusal(world.heartbeat("a", 1).answer) is ErrorCode.FENCED_MEMBER_EPOCH
    assert world.heartbeat("a", 1, owned={}).answer.assignment is None
    assert world.group.state == "Stable"


def test_the_partition_metadata_that_kafka_4_0_wrote_goes_with_the_next_epoch(world: World) -> None:
    consumer = FakeConsumer(world, "a", "orders")
    settle(consumer)
    key = ConsumerGroupPartitionMetadataKey(GROUP)
    world.coordinator.replay(GroupRecord(key, ConsumerGroupPartitionMetadataValue()), 0)
    consumer.subscribe("payments")
    assert GroupRecord(key, None) in world.shell.log
    assert not world.group.has_partition_metadata


def test_an_assignor_that_only_another_broker_has_does_not_stop_the_group(world: World) -> None:
    consumer = FakeConsumer(world, "a", "orders")
    settle(consumer)
    metadata = msgspec.structs.replace(world.group.members["a"].metadata, server_assignor="by-moonlight")
    world.coordinator.replay(GroupRecord(ConsumerGroupMemberMetadataKey(GROUP, "a"), metadata), 0)
    world.topics.put("orders", 5)
    consumer.beat()
    assert partitions(consumer) == [0, 1, 2, 3, 4]


def test_an_answer_that_waits_hears_of_the_failure_too(world: World) -> None:
    world.shell.hold = True
    joins = world.heartbeat("a", 0, names=["orders"], owned={}, rebalance_timeout_ms=1_000)
    beats = world.heartbeat("a", 1)
    world.shell.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert refusal(joins.answer) is refusal(beats.answer) is ErrorCode.NOT_COORDINATOR
    world.shell.hold = False
    assert not world.heartbeat("a", 1).waits
