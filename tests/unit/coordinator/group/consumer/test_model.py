"""Random lives of a KIP-848 group: a partition always has one owner, and in the end all are assigned."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from minikafka.coordinator.group.classic_groups import ClassicGroups
from minikafka.coordinator.group.consumer.consumer_group import ConsumerGroup
from minikafka.coordinator.group.consumer.consumer_groups import ConsumerGroups, GroupUpdater
from minikafka.coordinator.group.group import GROUP_BYTES, Group, GroupMap, GroupMemory
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_record_codec import decode_record, encode_record
from minikafka.protocol.internal.group_records import GroupRecord
from tests.unit.coordinator.group.consumer.world import GROUP, FakeConsumer, World

NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
WANTS = st.sampled_from([("x",), ("x", "y"), ("y", "z"), ("x", "y", "z"), ()])
NOTES = {
    "checked_version",
    "regexes_checked_version",
    "assigned_ms",
    "regexes_checked_ms",
    "regexes_to_check",
    "awaited_joins",
    "uncommitted",
}


def facts(group: ConsumerGroup) -> dict[str, Any]:
    """All that is in the log."""
    told = {name: value for name, value in vars(group).items() if name not in NOTES}
    return told | {"footprint": group.footprint.size_bytes}


def all_facts(groups: dict[str, Group]) -> dict[str, Any]:
    return {group_id: facts(group) for group_id, group in groups.items() if isinstance(group, ConsumerGroup)}


def compacted(log: list[GroupRecord]) -> list[GroupRecord]:
    """The last record of each key, without tombstones."""
    last = {record.key: offset for offset, record in enumerate(log)}
    return [
        record for offset, record in enumerate(log) if last[record.key] == offset and record.value is not None
    ]


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(x=4, y=3)
        self.consumers: dict[str, FakeConsumer] = {}
        self.epochs: dict[str, int] = {}
        self.group_epoch = 0
        self.lives = 0

    @initialize(assignor=st.sampled_from(["uniform", "range", None]))
    def choose(self, assignor: str | None) -> None:
        self.assignor = assignor

    def consumer(self, name: str) -> FakeConsumer | None:
        return self.consumers.get(name)

    @rule(name=NAMES, wants=WANTS, static=st.booleans())
    def start(self, name: str, wants: tuple[str, ...], static: bool) -> None:
        if name in self.consumers:
            return
        self.lives += 1
        consumer = FakeConsumer(
            self.world,
            f"{name}{self.lives}",
            *wants,
            instance_id=name if static else None,
            assignor=self.assignor,
        )
        self.try_beat(consumer)
        self.consumers[name] = consumer

    @rule(name=NAMES, regex=st.sampled_from(["x|y", "[yz]", ".*", "w.*"]))
    def start_with_a_regex(self, name: str, regex: str) -> None:
        if name not in self.consumers:
            self.lives += 1
            self.consumers[name] = FakeConsumer(self.world, f"{name}{self.lives}", regex=regex)
            self.consumers[name].beat()

    def try_beat(self, consumer: FakeConsumer, *, answer_is_lost: bool = False) -> None:
        """A static member's name may still be taken by a life before."""
        if consumer.instance_id is not None and consumer.epoch == 0 and GROUP in self.world.groups:
            holder = self.world.group.static_member(consumer.instance_id)
            if holder is not None and holder.epoch != -2 and holder.member_id != consumer.member_id:
                return
        consumer.beat(answer_is_lost=answer_is_lost)

    @rule(name=NAMES)
    def beat(self, name: str) -> None:
        if consumer := self.consumer(name):
            self.try_beat(consumer)

    @rule()
    def all_beat(self) -> None:
        for consumer in self.consumers.values():
            self.try_beat(consumer)

    @rule(name=NAMES, wants=WANTS)
    def want_others(self, name: str, wants: tuple[str, ...]) -> None:
        consumer = self.consumer(name)
        if consumer is not None and consumer.epoch > 0 and consumer.regex is None:
            consumer.subscribe(*wants)

    @rule(name=NAMES)
    def lose_an_answer(self, name: str) -> None:
        consumer = self.consumer(name)
        if consumer is not None:
            self.try_beat(consumer, answer_is_lost=True)

    @rule(name=NAMES, for_a_while=st.booleans())
    def leave(self, name: str, for_a_while: bool) -> None:
        if consumer := self.consumers.pop(name, None):
            consumer.leave(for_a_while=for_a_while and consumer.instance_id is not None)

    @rule(name=NAMES)
    def die(self, name: str) -> None:
        self.consumers.pop(name, None)

    @rule(seconds=st.sampled_from([1, 20, 50, 70]))
    def time_passes(self, seconds: int) -> None:
        self.world.shell.advance(seconds * 1_000)

    @rule(name=st.sampled_from(["x", "y", "z", "w1"]), more=st.integers(1, 3))
    def topic_grows(self, name: str, more: int) -> None:
        topic = self.world.topics.topic(name)
        self.world.topics.put(name, more + (0 if topic is None else topic.partition_count))

    @rule(name=st.sampled_from(["y", "z"]))
    def topic_goes(self, name: str) -> None:
        if self.world.topics.topic(name):
            self.world.topics.delete(name)

    @rule(name=NAMES)
    def log_refuses(self, name: str) -> None:
        if consumer := self.consumer(name):
            self.world.shell.refuse = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            asked = self.world.heartbeat(consumer.member_id, consumer.epoch, names=["y", "x"], owned={})
            self.world.shell.refuse = None
            assert not asked.waits

    @rule()
    def group_is_deleted(self) -> None:
        group = self.world.groups.get(GROUP)
        if group is not None and group.is_empty:
            for record in group.tombstones():
                self.world.shell.log.append(record)
                self.world.coordinator.replay(record, self.world.shell.now_ms)
            self.group_epoch, self.epochs = 0, {}

    @rule()
    def another_broker_leads(self) -> None:
        self.world.restart()

    @rule()
    def all_comes_to_rest(self) -> None:
        for _ in range(4):
            self.world.shell.advance(11_000)  # who is gone is noticed, and new topics are looked for
            for _ in range(6):
                self.all_beat()
        self.world.shell.advance(11_000)
        for _ in range(12):
            self.all_beat()
        group = self.world.groups.get(GROUP)
        if not isinstance(group, ConsumerGroup):
            return
        alive = {consumer.member_id for consumer in self.consumers.values() if consumer.epoch > 0}
        assert alive == set(group.members), "those that are there, and no others"
        if alive:
            assert group.state == "Stable"
            wanted = {
                (topic.topic_id, number)
                for name in group.subscribed_topics()
                if (topic := self.world.topics.topic(name))
                for number in range(topic.partition_count)
            }
            owned = [
                (topic_id, number)
                for consumer in self.consumers.values()
                for topic_id, numbers in consumer.owned.items()
                for number in numbers
            ]
            assert len(owned) == len(set(owned))
            assert set(owned) == wanted

    @invariant()
    def a_partition_has_one_owner(self) -> None:
        group = self.world.groups.get(GROUP)
        if isinstance(group, ConsumerGroup):
            taken = [
                (topic_id, number)
                for member in group.members.values()
                for partitions in (member.assigned, member.pending_revocation)
                for topic_id, numbers in partitions.items()
                for number in numbers
            ]
            assert len(taken) == len(set(taken))
            assert all(group.owner(topic_id, number) for topic_id, number in taken)
            assert sum(map(len, group._owners.values())) == len(taken)

    @invariant()
    def a_client_owns_only_what_the_group_knows_of(self) -> None:
        group = self.world.groups.get(GROUP)
        for consumer in self.consumers.values():
            member = None if not isinstance(group, ConsumerGroup) else group.members.get(consumer.member_id)
            if member is not None and consumer.epoch > 0:
                for topic_id, numbers in consumer.owned.items():
                    known = member.assigned.get(topic_id, frozenset()) | member.pending_revocation.get(
                        topic_id, frozenset()
                    )
                    assert numbers <= known

    @invariant()
    def epochs_only_rise(self) -> None:
        group = self.world.groups.get(GROUP)
        if isinstance(group, ConsumerGroup):
            assert group.epoch >= self.group_epoch
            assert group.assignment_epoch <= group.epoch
            self.group_epoch = group.epoch
            for member in group.members.values():
                assert member.epoch <= group.assignment_epoch
                if member.epoch > 0:
                    assert member.epoch >= self.epochs.get(member.member_id, 0)
                    self.epochs[member.member_id] = member.epoch
            told_bytes = sum(member.size_bytes for member in group.members.values())
            assert group.footprint.size_bytes == GROUP_BYTES + len(group.group_id) + told_bytes
        assert self.world.groups.memory.used_bytes == sum(
            each.footprint.size_bytes for each in self.world.groups.values()
        )

    def loaded(self, log: list[GroupRecord]) -> dict[str, Any]:
        """What a coordinator knows that has read ``log``."""
        world = self.world
        groups = GroupMap(GroupMemory(world.settings, lambda: 0))
        copy = ConsumerGroups(
            GroupUpdater(
                groups,
                classic=ClassicGroups(
                    groups, settings=world.settings, new_uuid=world._new_uuid, counts=world.counts
                ),
                settings=world.settings,
                topics=world.topics,
                new_uuid=world._new_uuid,
                counts=world.counts,
            )
        )
        for record in log:
            copy.replay(decode_record(*encode_record(record)), 0)
        return all_facts(groups)

    @invariant()
    def the_log_says_it_all(self) -> None:
        log = self.world.shell.log
        assert self.loaded(log) == all_facts(self.world.groups)

    @invariant()
    def a_compacted_log_says_the_same(self) -> None:
        log = self.world.shell.log
        for dirty in (0, len(log) // 2):
            clean = compacted(log[: len(log) - dirty])
            assert self.loaded(clean + log[len(log) - dirty :]) == all_facts(self.world.groups)

    @invariant()
    def every_request_is_answered_once(self) -> None:
        assert not self.world.shell.unanswered()


TestGroup = GroupMachine.TestCase
TestGroup.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
