"""Share groups: members, what they share in, and the state of their partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

import pytest

from minikafka.clock import ManualClock
from minikafka.coordinator.group import group
from minikafka.coordinator.group.consumer.target import GroupSpec, MemberSpec
from minikafka.coordinator.group.environment import GroupCounts
from minikafka.coordinator.group.messages import (
    AlterShareGroupOffsets,
    DeleteShareStates,
    InitializeShareStates,
    ShareGroupHeartbeat,
)
from minikafka.coordinator.group.shard import GroupShard
from minikafka.coordinator.group.share_group import ShareGroup, assign_simple
from minikafka.coordinator.share.messages import SharePartitionError
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_record_codec import decode_record, encode_record
from minikafka.protocol.internal.group_records import (
    NamedPartitions,
    ShareGroupStatePartitionMetadataKey,
    TopicPartitions,
)
from tests.unit.coordinator.group.consumer.world import FakeSettings, FakeTopics
from tests.unit.coordinator.group.shell import Asked, FakeShell

GROUP = "sharers"
BROKEN = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the share coordinator is away")


class Story:
    """A shard with a fake shell around it, and a share coordinator that the test plays."""

    def __init__(self, **partition_counts: int) -> None:
        self.topics = FakeTopics(**partition_counts)
        self.settings = FakeSettings()
        self.shell = FakeShell()
        self.restart()

    def restart(self) -> None:
        """Another broker leads: it has what is in the log, as bytes, and begins."""
        self.shard = GroupShard(
            GroupCounts(),
            settings=self.settings,
            topics=self.topics,
            new_uuid=lambda: UUID(int=1),
            memory_bytes=lambda: self.shard.memory_bytes,
        )
        self.shell.expired = self.shard.expired
        self.shell.parked.clear()
        for record in self.shell.log:
            read = decode_record(*encode_record(record))
            assert read == record
            self.shard.replay(read, self.shell.now_ms)
        self.shell.carry_out(self.shard.loaded(self.shell.now_ms))

    @property
    def group(self) -> ShareGroup:
        (group,) = self.shard.groups()
        assert isinstance(group, ShareGroup)
        return group

    def beat(self, member_id: str, epoch: int, *names: str) -> Asked:
        request = ShareGroupHeartbeat(
            group_id=GROUP,
            member_id=member_id,
            member_epoch=epoch,
            subscribed_topic_names=names or None,
            client_id="client",
            client_host="/127.0.0.1",
        )
        return self.shell.ask(self.shard.share_group_heartbeat, request)

    def share_coordinator_answers(self, error: Callable[[int], KafkaError | None] = lambda _: None) -> None:
        """``error`` of each partition number."""
        questions, self.shell.share_questions = self.shell.share_questions, []
        assert questions
        for question in questions:
            results = [
                SharePartitionError(each.topic_id, each.partition, error(each.partition))
                for each in question.partitions
            ]
            self.shell.carry_out(question.done(results, self.shell.now_ms))

    def later(self) -> None:
        """The next heartbeat's time: past the interval between two assignments."""
        self.shell.advance(5_000)

    def joined(self, *names: str) -> int:
        """A member ``m`` that shares in all of ``names``; its epoch."""
        self.beat("m", 0, *names)
        self.share_coordinator_answers()
        self.later()
        epoch: int = self.beat("m", 1).answer.member_epoch
        return epoch

    def delete_group(self) -> Asked:
        return self.shell.ask(self.shard.delete_group, GROUP)

    def alter(self, topics: dict[str, dict[int, int]]) -> Asked:
        return self.shell.ask(
            self.shard.alter_share_offsets, AlterShareGroupOffsets(group_id=GROUP, topics=topics)
        )

    def delete_offsets(self, *names: str) -> Asked:
        def call(names: Any, ticket: Any, now_ms: int) -> Any:
            return self.shard.delete_share_offsets(GROUP, names, ticket, now_ms)

        return self.shell.ask(call, names)


def code(asked: Asked) -> ErrorCode:
    assert isinstance(asked.answer, KafkaError), asked
    return asked.answer.code


def test_an_assignment_that_takes_long_is_worked_out_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "ASSIGNED_AT_ONCE_MAX", -1)
    story = Story(t=2)
    story.beat("m", 0, "t")  # which has an empty assignment at once: no partition is initialized
    story.share_coordinator_answers()
    story.later()
    assert story.beat("m", 1).answer.assignment is None
    story.shell.compute()
    everything = {story.topics.id("t"): frozenset({0, 1})}
    assert (story.group.assignment_epoch, story.group.targets) == (2, {"m": everything})
    told = story.beat("m", 1).answer
    assert (told.member_epoch, told.assignment) == (2, everything)
    assert story.shell.computations == []


def test_partitions_are_assigned_once_the_share_coordinator_keeps_state_of_them() -> None:
    story = Story(t=3)
    first = story.beat("m", 0, "t").answer
    assert (first.member_epoch, first.assignment) == (1, {})
    (question,) = story.shell.share_questions
    assert isinstance(question, InitializeShareStates)
    assert [(each.partition, each.state_epoch, each.start_offset) for each in question.partitions] == [
        (0, 1, -1),
        (1, 1, -1),
        (2, 1, -1),
    ]
    assert story.shard.share_partitions(GROUP) == {}
    story.share_coordinator_answers()
    assert story.shard.share_partitions(GROUP) == {
        story.topics.id("t"): NamedPartitions("t", frozenset({0, 1, 2}))
    }
    story.later()
    second = story.beat("m", 1).answer
    assert (second.member_epoch, second.assignment) == (2, {story.topics.id("t"): frozenset({0, 1, 2})})
    third = story.beat("m", 2).answer
    assert (third.member_epoch, third.assignment) == (2, None)


def test_what_could_not_be_initialized_is_asked_for_with_the_next_heartbeat() -> None:
    story = Story(t=2)
    story.beat("m", 0, "t")
    story.share_coordinator_answers(lambda number: BROKEN if number else None)
    story.later()
    assert story.beat("m", 1).answer.assignment == {story.topics.id("t"): frozenset({0})}
    (question,) = story.shell.share_questions
    assert [each.partition for each in question.partitions] == [1]
    story.share_coordinator_answers()
    story.later()
    assert story.beat("m", 2).answer.assignment == {story.topics.id("t"): frozenset({0, 1})}


def test_a_question_without_an_answer_is_repeated_after_the_retry_interval_only() -> None:
    story = Story(t=1)
    story.beat("m", 0, "t")
    story.shell.share_questions.clear()  # this leader, or the answer, is lost
    story.restart()
    story.later()
    story.beat("m", 1)
    assert not story.shell.share_questions
    story.shell.clock.advance(story.settings.group_share_initialize_retry_interval_ms)
    story.beat("m", 1)
    assert len(story.shell.share_questions) == 1
    story.beat("m", 1)
    assert len(story.shell.share_questions) == 1


def test_a_question_without_an_answer_is_repeated_though_the_clock_was_set_back() -> None:
    story = Story(t=1)
    story.beat("m", 0, "t")
    story.shell.share_questions.clear()
    story.restart()
    story.shell.clock = ManualClock(story.shell.now_ms - 3_600_000)
    story.beat("m", 1)
    assert len(story.shell.share_questions) == 1


def test_a_topic_that_comes_or_grows_is_initialized_and_one_that_goes_is_forgotten() -> None:
    story = Story(t=1)
    epoch = story.joined("t", "late")
    assert story.beat("m", epoch).answer.member_epoch == epoch, "settled"
    story.topics.put("t", 2)
    story.topics.put("late", 1)
    epoch = story.beat("m", epoch).answer.member_epoch
    (question,) = story.shell.share_questions
    assert {(each.topic_id, each.partition) for each in question.partitions} == {
        (story.topics.id("t"), 1),
        (story.topics.id("late"), 0),
    }
    story.share_coordinator_answers()
    story.later()
    answer = story.beat("m", epoch).answer
    assert answer.assignment == {
        story.topics.id("t"): frozenset({0, 1}),
        story.topics.id("late"): frozenset({0}),
    }
    story.topics.delete("late")
    story.shell.carry_out(story.shard.topics_deleted(["late"], story.shell.now_ms))
    assert list(story.shard.share_partitions(GROUP)) == [story.topics.id("t")]
    story.later()
    answer = story.beat("m", answer.member_epoch).answer
    assert answer.assignment == {story.topics.id("t"): frozenset({0, 1})}
    last = answer.member_epoch
    assert story.beat("m", last).answer.member_epoch == last


def test_several_members_share_a_partition_and_leave_it_at_once() -> None:
    story = Story(t=1)
    epoch = story.joined("t")
    story.later()
    joined = story.beat("n", 0, "t").answer
    everything = {story.topics.id("t"): frozenset({0})}
    assert (joined.member_epoch, joined.assignment) == (epoch + 1, everything)
    assert story.beat("m", epoch).answer.member_epoch == epoch + 1
    assert story.beat("n", -1).answer.member_epoch == -1
    assert list(story.group.members) == ["m"]
    assert code(story.beat("n", epoch + 1)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_assignments_keep_their_distance() -> None:
    story = Story(t=1)
    epoch = story.joined("t")
    early = story.beat("n", 0, "t").answer  # right after the last assignment
    assert (early.member_epoch, early.assignment) == (epoch, {})
    story.later()
    assert story.beat("n", early.member_epoch).answer.assignment == {story.topics.id("t"): frozenset({0})}


@pytest.mark.parametrize(
    ("member_id", "epoch", "names", "expected"),
    [
        ("m", 0, (), ErrorCode.INVALID_REQUEST),
        ("", 0, ("t",), ErrorCode.INVALID_REQUEST),
        ("m", -2, (), ErrorCode.INVALID_REQUEST),
        ("x", 2, (), ErrorCode.UNKNOWN_MEMBER_ID),
        ("x", -1, (), ErrorCode.UNKNOWN_MEMBER_ID),
        ("m", 3, (), ErrorCode.FENCED_MEMBER_EPOCH),
        ("x", 0, ("t",), ErrorCode.GROUP_MAX_SIZE_REACHED),
    ],
)
def test_refusals(member_id: str, epoch: int, names: tuple[str, ...], expected: ErrorCode) -> None:
    story = Story(t=1)
    story.joined("t")
    if expected is ErrorCode.GROUP_MAX_SIZE_REACHED:
        story.settings.group_share_max_size = 1
    written = len(story.shell.log)
    assert code(story.beat(member_id, epoch, *names)) is expected
    assert len(story.shell.log) == written


def test_an_epoch_whose_answer_was_lost_and_a_member_that_joins_again_are_welcome() -> None:
    story = Story(t=1)
    epoch = story.joined("t")
    again = story.beat("m", epoch - 1).answer
    assert again.member_epoch == epoch
    rejoined = story.beat("m", 0, "t").answer
    assert (rejoined.member_epoch, rejoined.assignment) == (epoch, {story.topics.id("t"): frozenset({0})})


def test_without_a_group_or_with_one_of_another_kind() -> None:
    story = Story(t=1)
    assert code(story.beat("m", 1)) is ErrorCode.GROUP_ID_NOT_FOUND
    assert story.shard.describe_share_group(GROUP).error is ErrorCode.GROUP_ID_NOT_FOUND
    story.joined("t")
    described = story.shard.describe_share_group(GROUP)
    assert (described.state, described.assignor_name) == ("Stable", "simple")
    assert described.members[0].assignment == {story.topics.id("t"): frozenset({0})}
    assert story.shard.describe_group(GROUP).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert story.shard.describe_consumer_group(GROUP).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert [(each.group_type, each.protocol_type) for each in story.shard.list_groups()] == [
        ("share", "share")
    ]


def test_a_silent_member_goes_and_the_group_stays() -> None:
    story = Story(t=1)
    story.joined("t")
    story.restart()
    assert list(story.group.members) == ["m"]
    story.shell.advance(45_000)
    assert story.group.state == "Empty"
    story.shell.carry_out(story.shard.clean_up(story.shell.now_ms))
    assert story.group.state == "Empty"  # only an administrator deletes it


def test_answers_wait_for_the_log() -> None:
    story = Story(t=1)
    story.shell.hold = True
    asked = story.beat("m", 0, "t")
    assert asked.waits and not story.shell.share_questions
    story.shell.commit()
    assert asked.answer.member_epoch == 1 and story.shell.share_questions


# Administrators


def emptied(**partition_counts: int) -> Story:
    story = Story(**partition_counts)
    story.joined(*partition_counts)
    story.beat("m", -1)
    return story


def test_offsets_are_altered_of_an_empty_group() -> None:
    story = Story(t=1)
    story.joined("t")
    assert code(story.alter({"t": {0: 5}})) is ErrorCode.NON_EMPTY_GROUP
    story.beat("m", -1)
    asked = story.alter({"t": {0: 5, 7: 1}, "gone": {0: 1}})
    assert asked.waits
    (question,) = story.shell.share_questions
    assert [(each.partition, each.start_offset) for each in question.partitions] == [(0, 5)]
    assert question.partitions[0].state_epoch == story.group.epoch  # type: ignore[union-attr]
    story.share_coordinator_answers()
    errors = asked.answer.topics
    assert errors["t"][0] is None
    assert errors["t"][7].code is errors["gone"][0].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_offset_that_the_share_coordinator_does_not_take_is_an_error_of_its_partition() -> None:
    story = emptied(t=2)
    asked = story.alter({"t": {0: 5, 1: 6}})
    story.share_coordinator_answers(lambda number: BROKEN if number else None)
    assert asked.answer.topics == {"t": {0: None, 1: BROKEN}}


def test_offsets_of_a_topic_are_deleted_and_what_fails_can_be_deleted_again() -> None:
    story = emptied(t=1, u=1)
    asked = story.delete_offsets("t", "nothing")
    (question,) = story.shell.share_questions
    assert isinstance(question, DeleteShareStates)
    story.share_coordinator_answers(lambda _: BROKEN)
    assert asked.answer.topics["t"] is BROKEN
    assert asked.answer.topics["nothing"].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list(story.shard.share_partitions(GROUP)) == [story.topics.id("u")]
    story.restart()
    again = story.delete_offsets("t")
    story.share_coordinator_answers()
    assert again.answer.topics == {"t": None}
    assert story.delete_offsets("t").answer.topics["t"].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_group_is_deleted_with_what_the_share_coordinator_keeps_of_it() -> None:
    story = Story(t=2)
    story.joined("t")
    assert code(story.delete_group()) is ErrorCode.NON_EMPTY_GROUP
    story.beat("m", -1)
    failed = story.delete_group()
    story.share_coordinator_answers(lambda _: BROKEN)
    assert failed.answer is BROKEN and story.group.is_empty
    story.restart()
    asked = story.delete_group()
    assert asked.waits
    story.share_coordinator_answers()
    assert asked.answer is None
    assert story.shard.groups() == []
    story.restart()
    assert story.shard.groups() == []


def test_a_member_that_comes_while_its_group_is_deleted_keeps_it() -> None:
    story = emptied(t=1)
    asked = story.delete_group()
    deletion = story.shell.share_questions.pop()
    story.beat("n", 0, "t")
    story.shell.share_questions.insert(0, deletion)
    story.share_coordinator_answers()
    assert code(asked) is ErrorCode.NON_EMPTY_GROUP
    assert list(story.group.members) == ["n"]
    assert story.shard.share_partitions(GROUP)


def test_an_administrator_hears_when_the_log_takes_nothing_or_the_shard_is_unloaded() -> None:
    story = emptied(t=1)
    story.shell.refuse = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert code(story.delete_group()) is ErrorCode.NOT_COORDINATOR
    assert story.shard.waiting() == []
    story.shell.refuse = None
    asked = story.delete_group()
    assert story.shard.waiting() == [asked]
    story.share_coordinator_answers()
    assert story.shard.waiting() == []


def test_a_rewritten_state_of_partitions_is_one_record() -> None:
    story = emptied(t=1)
    keys = [record.key for record in story.shell.log]
    assert keys.count(ShareGroupStatePartitionMetadataKey(GROUP)) == 2  # initializing, initialized


# The assignor

TOPIC, OTHER = UUID(int=1), UUID(int=2)


def spec(
    members: dict[str, tuple[UUID, ...]], targets: dict[str, TopicPartitions], **counts: int
) -> GroupSpec:
    return GroupSpec(
        {member_id: MemberSpec(wants, targets.get(member_id, {})) for member_id, wants in members.items()},
        {TOPIC: counts.get("t", 0), OTHER: counts.get("u", 0)},
    )


def loads(targets: dict[str, TopicPartitions]) -> list[int]:
    return sorted(sum(map(len, target.values())) for target in targets.values())


@pytest.mark.parametrize("members", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("partitions", [1, 2, 3, 7])
def test_every_partition_is_shared_by_equally_many(members: int, partitions: int) -> None:
    wants = {f"m{number}": (TOPIC,) for number in range(members)}
    targets = assign_simple(spec(wants, {}, t=partitions), lambda topic_id, number: True)
    sharing = -(-members // partitions)
    sharers = [
        sum(number in each.get(TOPIC, ()) for each in targets.values()) for number in range(partitions)
    ]
    assert sharers == [sharing] * partitions
    assert loads(targets)[-1] - loads(targets)[0] <= 1
    assert assign_simple(spec(wants, targets, t=partitions), lambda topic_id, number: True) == targets


def test_a_newcomer_takes_only_its_part() -> None:
    wants: dict[str, tuple[UUID, ...]] = {"a": (TOPIC,), "b": (TOPIC,)}
    before = assign_simple(spec(wants, {}, t=6), lambda topic_id, number: True)
    after = assign_simple(spec({**wants, "c": (TOPIC,)}, before, t=6), lambda topic_id, number: True)
    assert loads(after) == [2, 2, 2]
    for member_id in ("a", "b"):
        assert after[member_id][TOPIC] < before[member_id][TOPIC]


def test_topics_that_not_all_want_are_shared_each_by_itself() -> None:
    wants: dict[str, Iterable[UUID]] = {"a": (TOPIC,), "b": (OTHER,), "c": (TOPIC, OTHER)}
    members = {member_id: tuple(each) for member_id, each in wants.items()}
    targets = assign_simple(spec(members, {}, t=2, u=4), lambda topic_id, number: True)
    assert {member_id: {key: len(each) for key, each in t.items()} for member_id, t in targets.items()} == {
        "a": {TOPIC: 1},
        "b": {OTHER: 2},
        "c": {TOPIC: 1, OTHER: 2},
    }


def test_what_has_no_state_is_no_target() -> None:
    targets = assign_simple(spec({"a": (TOPIC,)}, {}, t=3), lambda topic_id, number: number != 1)
    assert targets == {"a": {TOPIC: frozenset({0, 2})}}
