"""Random lives of a group whose members speak both protocols: it changes to and fro, and loses nothing."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from minikafka.coordinator.group.classic_group import ClassicGroup
from minikafka.coordinator.group.consumer.consumer_group import ConsumerGroup
from minikafka.coordinator.group.messages import Answer, JoinGroupResult, OperationKind, SyncGroupResult
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.consumer_protocol import write_assignment
from tests.unit.coordinator.group.consumer.classic_consumer import ClassicConsumer
from tests.unit.coordinator.group.consumer.world import GROUP, FakeConsumer, World
from tests.unit.coordinator.group.shell import Asked

NAMES = st.sampled_from(["a", "b", "c", "d"])
PARTITIONS = 6


class EagerConsumer(ClassicConsumer):
    """It gives everything back before it joins again, and does one thing at a time. As a leader it deals the
    partitions round."""

    syncing: Asked | None = None

    def act(self) -> None:
        if self.joining is not None:
            if not self.joining.waits:
                self._hear_join(self.joining.answer)
        elif self.syncing is not None:
            if not self.syncing.waits:
                self._hear_sync(self.syncing.answer)
        elif self.generation < 0:
            self.owned = {}
            self.join()
        else:
            error = self.beat()
            if error is not ErrorCode.NONE:
                self._restart(error)

    def _hear_join(self, result: JoinGroupResult | KafkaError) -> None:
        self.joining = None
        if isinstance(result, KafkaError) or result.error is not ErrorCode.NONE:
            if isinstance(result, JoinGroupResult):
                self.member_id = result.member_id or self.member_id
                self._restart(result.error)
            return
        self.member_id, self.generation = result.member_id, result.generation
        ids = [member.member_id for member in result.members]
        assignments = {
            member_id: write_assignment({"orders": tuple(range(PARTITIONS))[rank :: len(ids)]}, version=1)
            for rank, member_id in enumerate(ids)
        }
        self.syncing = self.ask_sync(assignments)

    def _hear_sync(self, result: SyncGroupResult | KafkaError) -> None:
        self.syncing = None
        if isinstance(result, KafkaError) or result.error is not ErrorCode.NONE:
            self._restart(ErrorCode.REBALANCE_IN_PROGRESS if isinstance(result, KafkaError) else result.error)
        else:
            self.hear_assignment(result)

    def _restart(self, error: ErrorCode) -> None:
        self.generation, self.owned = -1, {}
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.member_id = ""


class MixedMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(orders=PARTITIONS)
        self.members: dict[str, FakeConsumer | EagerConsumer] = {}
        self.lives = 0

    @rule(name=NAMES)
    def start_new(self, name: str) -> None:
        if name not in self.members:
            self.lives += 1
            self.members[name] = FakeConsumer(self.world, f"{name}{self.lives}", "orders")
            self._act(self.members[name])

    @rule(name=NAMES)
    def start_classic(self, name: str) -> None:
        if name not in self.members:
            self.members[name] = EagerConsumer(self.world, name)
            self._act(self.members[name])

    @rule(name=NAMES)
    def act(self, name: str) -> None:
        if member := self.members.get(name):
            self._act(member)

    @rule()
    def all_act(self) -> None:
        for member in self.members.values():
            self._act(member)

    def _act(self, member: FakeConsumer | EagerConsumer) -> None:
        if isinstance(member, EagerConsumer):
            member.act()
        else:
            member.beat()

    @rule(name=NAMES)
    def leave(self, name: str) -> None:
        member = self.members.pop(name, None)
        if member is not None and (isinstance(member, FakeConsumer) or member.member_id):
            member.leave()

    @rule(name=NAMES)
    def die(self, name: str) -> None:
        self.members.pop(name, None)

    @rule(seconds=st.sampled_from([1, 4, 35, 70]))
    def time_passes(self, seconds: int) -> None:
        self.world.shell.advance(seconds * 1_000)

    @rule()
    def another_broker_leads(self) -> None:
        error = KafkaError(ErrorCode.NOT_COORDINATOR)
        for ticket in self.world.classic.waiting():
            self.world.shell.carry_out([Answer(ticket, error)])
        self.world.restart()

    @rule(kind=st.sampled_from(["upgrade", "downgrade", "bidirectional", "disabled"]))
    def policy(self, kind: Any) -> None:
        self.world.settings.group_consumer_migration_policy = kind

    @rule()
    def a_while_passes(self) -> None:
        """Enough for a classic group to become stable."""
        for _ in range(6):
            self.all_act()
            self.world.shell.advance(3_000)

    @rule()
    def all_comes_to_rest(self) -> None:
        self.world.settings.group_consumer_migration_policy = "bidirectional"
        for _ in range(60):
            self.all_act()
            self.world.shell.advance(4_000)
        group = self.world.groups.get(GROUP)
        owned: list[int] = []
        for member in self.members.values():
            for topic, numbers in member.owned.items():
                assert topic in ("orders", self.world.topics.id("orders"))
                owned += numbers
        assert sorted(owned) == (list(range(PARTITIONS)) if self.members else [])
        if self.members:
            assert group is not None
            new = any(isinstance(member, FakeConsumer) for member in self.members.values())
            assert isinstance(group, ConsumerGroup if new else ClassicGroup | ConsumerGroup)
            assert group.listed().state == "Stable"
            assert len(getattr(group, "members")) == len(self.members)  # noqa: B009

    @invariant()
    def a_partition_has_one_owner(self) -> None:
        group = self.world.groups.get(GROUP)
        if isinstance(group, ConsumerGroup):
            taken = [
                number
                for member in group.members.values()
                for partitions in (member.assigned, member.pending_revocation)
                for numbers in partitions.values()
                for number in numbers
            ]
            assert len(taken) == len(set(taken))
            topic_id = self.world.topics.id("orders")
            assert all(group.owner(topic_id, number) for number in taken)

    @invariant()
    def the_classic_part_is_in_order(self) -> None:
        self.world.classic.validate()

    @invariant()
    def timers_are_of_those_that_are_there(self) -> None:
        group = self.world.groups.get(GROUP)
        parked = self.world.shell.parked
        sessions = {each.member_id for each in parked if each.kind is OperationKind.SESSION}
        if isinstance(group, ConsumerGroup):
            assert sessions == set(group.members)
            assert {each.member_id for each in parked} == sessions
        else:
            kinds = {each.kind for each in parked if each.member_id}
            assert kinds <= {OperationKind.SESSION, OperationKind.NEW_MEMBER}

    @invariant()
    def the_log_has_the_same_kind_of_group(self) -> None:
        there = self.world.groups.get(GROUP)
        again = World(orders=PARTITIONS)
        again.shell.log = list(self.world.shell.log)
        again.restart()
        copy = again.groups.get(GROUP)
        if isinstance(there, ConsumerGroup):
            assert isinstance(copy, ConsumerGroup)
            assert (copy.members, copy.targets, copy.epoch) == (there.members, there.targets, there.epoch)
        elif isinstance(copy, ClassicGroup):
            assert isinstance(there, ClassicGroup)
        else:
            assert copy is None


TestMixed = MixedMachine.TestCase
TestMixed.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
