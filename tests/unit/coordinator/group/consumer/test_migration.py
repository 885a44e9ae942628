"""Stories of groups that change between the classic protocol and KIP-848 while they are used."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.coordinator.group.classic_group import ClassicGroup, ClassicGroupState
from minikafka.coordinator.group.consumer.consumer_group import ConsumerGroup
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.consumer_protocol import read_assignment, write_assignment
from minikafka.protocol.internal.group_records import TopicPartitions
from tests.unit.coordinator.group.consumer.classic_consumer import ClassicConsumer
from tests.unit.coordinator.group.consumer.world import GROUP, FakeConsumer, World


@pytest.fixture
def world() -> World:
    return World(orders=4)


def stable_classic_group(world: World) -> ClassicConsumer:
    """One member, which leads, and has assigned all partitions to itself."""
    member = ClassicConsumer(world, "old")
    member.join()
    world.shell.advance(3_000)
    member.joined()
    member.sync({member.member_id: write_assignment({"orders": (0, 1, 2, 3)}, version=1)})
    assert member.owned == {"orders": (0, 1, 2, 3)}
    return member


def mixed_group(world: World) -> tuple[ClassicConsumer, FakeConsumer]:
    """Two and two partitions."""
    old, new = stable_classic_group(world), FakeConsumer(world, "new", "orders")
    for _ in range(5):
        new.beat()
        old.do_as_told()
    return old, new


def orders(world: World, partitions: TopicPartitions) -> list[int]:
    return sorted(partitions.get(world.topics.id("orders"), ()))


def test_an_empty_classic_group_is_replaced(world: World) -> None:
    member = stable_classic_group(world)
    assert member.leave() == [ErrorCode.NONE]
    consumer = FakeConsumer(world, "new", "orders")
    consumer.beat()
    assert (consumer.epoch, orders(world, consumer.owned)) == (1, [0, 1, 2, 3])
    assert [type(group) for group in world.groups.values()] == [ConsumerGroup]


def test_a_classic_group_is_upgraded_and_its_member_keeps_what_it_owns_until_it_gives_back(
    world: World,
) -> None:
    old, new = stable_classic_group(world), FakeConsumer(world, "new", "orders")
    new.beat()
    assert (new.epoch, new.owned) == (2, {}), "all is still the old one's"
    assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    old.join()
    assert old.joined().leader == ""
    assert old.sync().error is ErrorCode.NONE
    assert old.owned == {"orders": (0, 1)}
    new.beat()
    assert new.owned == {}, "the old one has not said that it has given back"
    assert old.do_as_told() is ErrorCode.REBALANCE_IN_PROGRESS
    new.beat()
    assert orders(world, new.owned) == [2, 3]
    assert old.beat() is ErrorCode.NONE
    assert world.group.state == "Stable"
    assert [member.member_type for member in world.coordinator.describe(GROUP).members] == [0, 1]


def test_members_that_wait_in_a_rebalance_are_sent_to_the_new_group(world: World) -> None:
    old = ClassicConsumer(world, "old")
    asked = old.join()
    assert asked.waits
    old_member = next(iter(world.groups.values()))
    assert isinstance(old_member, ClassicGroup)
    FakeConsumer(world, "new", "orders").beat()
    assert asked.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    old.member_id = asked.answer.member_id
    old.join()
    assert old.joined().error is ErrorCode.NONE


def test_the_classic_member_of_an_upgraded_group_may_commit_in_its_generation(world: World) -> None:
    old, _ = mixed_group(world)

    def commit(generation: int) -> None:
        world.group.check_offset_commit(
            member_id=old.member_id,
            group_instance_id=None,
            generation_or_member_epoch=generation,
            version=8,
        )

    commit(old.generation)
    with pytest.raises(KafkaError) as refused:
        commit(old.generation - 1)
    assert refused.value.code is ErrorCode.ILLEGAL_GENERATION


def test_a_group_is_downgraded_when_the_last_member_of_the_new_protocol_leaves(world: World) -> None:
    old, new = mixed_group(world)
    new.leave()
    group = world.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert group.state is ClassicGroupState.PREPARING_REBALANCE
    world.classic.validate()
    assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    old.join()
    assert old.joined().leader == old.member_id
    old.sync({old.member_id: write_assignment({"orders": (0, 1, 2, 3)}, version=1)})
    assert old.owned == {"orders": (0, 1, 2, 3)}


def test_a_group_is_downgraded_when_the_last_member_of_the_new_protocol_is_silent(world: World) -> None:
    old, _ = mixed_group(world)
    for _ in range(5):
        world.shell.advance(9_000)
        old.beat()
    assert isinstance(world.groups[GROUP], ClassicGroup)
    assert list(world.groups[GROUP].members) == [old.member_id]


def test_what_was_converted_is_the_same_for_the_next_coordinator(world: World) -> None:
    old, new = mixed_group(world)
    world.restart()
    assert old.beat() is ErrorCode.NONE
    new.beat()
    assert world.group.state == "Stable"
    new.leave()
    world.restart()
    group = world.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert read_assignment(group.members[old.member_id].assignment).partitions == {"orders": (0, 1)}


def test_a_silent_classic_member_is_fenced_after_its_own_session(world: World) -> None:
    old, new = mixed_group(world)
    for _ in range(4):
        world.shell.advance(8_000)
        new.beat()
    assert list(world.group.members) == ["new"]
    assert orders(world, new.owned) == [0, 1, 2, 3]
    assert old.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_that_is_told_to_join_and_does_not_is_fenced(world: World) -> None:
    old, new = stable_classic_group(world), FakeConsumer(world, "new", "orders")
    new.beat()
    for _ in range(8):
        old.beat()
        world.shell.advance(8_000)
        new.beat()
    assert list(world.group.members) == ["new"]


def test_nothing_is_remembered_of_a_classic_member_that_was_told_to_join_and_is_gone(world: World) -> None:
    old, new = stable_classic_group(world), FakeConsumer(world, "new", "orders")
    new.beat()
    assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.group.awaited_joins == {old.member_id}
    old.leave()
    assert list(world.group.members) == ["new"] and world.group.awaited_joins == set()


def test_a_classic_member_that_joins_and_does_not_sync_is_fenced(world: World) -> None:
    old, new = mixed_group(world)
    old.join()
    old.joined()
    for _ in range(8):
        old.beat()
        world.shell.advance(8_000)
        new.beat()
    assert list(world.group.members) == ["new"]


def test_a_classic_member_leaves(world: World) -> None:
    old, new = mixed_group(world)
    assert old.leave() == [ErrorCode.NONE]
    new.beat()
    assert orders(world, new.owned) == [0, 1, 2, 3]


def test_who_speaks_the_new_protocol_is_unknown_to_classic_requests(world: World) -> None:
    _, new = mixed_group(world)
    unknown = ClassicConsumer(world, "unknown")
    unknown.member_id, unknown.generation = "new", new.epoch
    assert unknown.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert unknown.sync().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert unknown.leave() == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_static_member_changes_to_the_new_protocol_with_its_partitions(world: World) -> None:
    old = ClassicConsumer(world, "old", instance_id="one")
    old.join()
    world.shell.advance(3_000)
    old.joined()
    old.sync({old.member_id: write_assignment({"orders": (0, 1, 2, 3)}, version=1)})
    new = FakeConsumer(world, "new", "orders", instance_id="one")
    new.beat()
    assert (list(world.group.members), orders(world, new.owned)) == (["new"], [0, 1, 2, 3])
    assert old.beat() is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_goes_back_takes_the_group_with_it(world: World) -> None:
    new = FakeConsumer(world, "new", "orders", instance_id="one")
    new.beat()
    old = ClassicConsumer(world, "old", instance_id="one")
    old.join()
    assert old.joined().error is ErrorCode.NONE
    group = world.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    world.classic.validate()
    assert list(group.members) == [old.member_id]
    assert group.state is ClassicGroupState.STABLE, "nothing is to be assigned again"
    assert old.beat() is ErrorCode.NONE
    assert old.sync().error is ErrorCode.NONE
    assert old.owned == {"orders": (0, 1, 2, 3)}


def test_a_classic_member_with_an_endless_client_id_gets_an_id_that_fits_a_record(world: World) -> None:
    FakeConsumer(world, "new", "orders").beat()
    member_id = ClassicConsumer(world, "c" * 0x7FFF, asks_for_id=True).join().answer.member_id
    assert member_id.startswith("cc") and len(member_id) < 0x7FFF


def test_an_empty_group_of_the_new_protocol_is_free_for_the_classic_one(world: World) -> None:
    new = FakeConsumer(world, "new", "orders")
    new.beat()
    new.leave()
    member = stable_classic_group(world)
    assert isinstance(world.groups[GROUP], ClassicGroup)
    assert member.generation == 1


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_a_group_is_not_upgraded_where_that_is_not_allowed(world: World, policy: Any) -> None:
    world.settings.group_consumer_migration_policy = policy
    old = stable_classic_group(world)
    answer = world.heartbeat("new", 0, names=["orders"], owned={}, rebalance_timeout_ms=1_000).answer
    assert isinstance(answer, KafkaError)
    assert answer.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert old.beat() is ErrorCode.NONE


def test_a_group_is_not_downgraded_where_that_is_not_allowed(world: World) -> None:
    old, new = mixed_group(world)
    world.settings.group_consumer_migration_policy = "upgrade"
    new.leave()
    for _ in range(2):
        old.do_as_told()
    assert world.group.state == "Stable"
    assert old.owned == {"orders": (0, 1, 2, 3)}


def test_an_upgrade_that_the_log_refuses_leaves_the_classic_group_as_it_was(world: World) -> None:
    old = stable_classic_group(world)
    world.shell.refuse = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    asked = world.heartbeat("new", 0, names=["orders"], owned={}, rebalance_timeout_ms=1_000)
    assert isinstance(asked.answer, KafkaError)
    world.shell.refuse = None
    assert isinstance(world.groups[GROUP], ClassicGroup)
    assert old.beat() is ErrorCode.NONE


def test_an_upgrade_while_the_leaders_assignment_is_on_its_way_to_all_brokers(world: World) -> None:
    old = ClassicConsumer(world, "old")
    old.join()
    world.shell.advance(3_000)
    old.joined()
    world.shell.hold = True
    syncing = old.ask_sync({old.member_id: write_assignment({"orders": (0, 1, 2, 3)}, version=1)})
    assert syncing.waits
    joining = world.heartbeat("new", 0, names=["orders"], owned={}, rebalance_timeout_ms=60_000)
    assert syncing.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    world.shell.hold = False
    world.shell.commit()
    assert joining.answer.member_epoch == 2
    assert isinstance(world.groups[GROUP], ConsumerGroup)
    assert old.do_as_told() is ErrorCode.REBALANCE_IN_PROGRESS
    assert len(old.owned["orders"]) == 2


def test_a_refused_downgrade_is_tried_again(world: World) -> None:
    old, new = mixed_group(world)
    world.shell.refuse = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    asked = new.leave()
    assert isinstance(asked.answer, KafkaError)
    assert (set(world.group.members), old.beat()) == ({old.member_id, "new"}, ErrorCode.NONE)
    world.shell.refuse = None
    for _ in range(6):
        world.shell.advance(8_000)
        old.beat()
    assert isinstance(world.groups[GROUP], ClassicGroup)


def test_a_member_of_the_old_protocol_needs_an_assignor_that_all_of_them_have(world: World) -> None:
    mixed_group(world)
    unknown = ClassicConsumer(world, "unknown", assignor="range")
    unknown.join()
    assert unknown.joined().error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    unknown = ClassicConsumer(world, "unknown")
    unknown.join()
    assert unknown.joined().error is ErrorCode.NONE


def test_metadata_that_is_no_subscription_neither_joins_nor_is_upgraded(world: World) -> None:
    mixed_group(world)
    unknown = ClassicConsumer(world, "unknown", metadata=b"\0\1\0")
    unknown.join()
    assert unknown.joined().error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_an_unknown_member_of_the_old_protocol_gets_an_id_first(world: World) -> None:
    mixed_group(world)
    unknown = ClassicConsumer(world, "unknown", asks_for_id=True)
    unknown.join()
    refusal = unknown.joined()
    assert (refusal.error, refusal.member_id[:7]) == (ErrorCode.MEMBER_ID_REQUIRED, "unknown")
    unknown.member_id = refusal.member_id
    unknown.join()
    assert unknown.joined().error is ErrorCode.NONE
    assert refusal.member_id in world.group.members
