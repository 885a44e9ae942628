"""Streams groups: members, their tasks, and what becomes of them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikafka.coordinator.group import group
from minikafka.coordinator.group.environment import GroupCounts, StreamsGroupSettings
from minikafka.coordinator.group.messages import (
    JoinGroup,
    OffsetCommit,
    OffsetFetchGroup,
    OffsetToCommit,
    StreamsGroupHeartbeat,
    StreamsGroupHeartbeatResult,
    StreamsTask,
    TxnOffsetCommit,
)
from minikafka.coordinator.group.shard import GroupShard
from minikafka.coordinator.group.streams.streams_group import StreamsGroup
from minikafka.coordinator.group.streams.task_assignment import COST_OF_A_TASK
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_record_codec import decode_record, encode_record
from minikafka.protocol.internal.group_records import (
    StreamsGroupTopologyValue,
    StreamsSubtopology,
    StreamsTopicInfo,
)
from tests.unit.coordinator.group.consumer.world import FakeSettings, FakeTopics
from tests.unit.coordinator.group.shell import Asked, FakeShell

GROUP = "counters"
COUNTS = StreamsGroupTopologyValue(
    1,
    (
        StreamsSubtopology(
            subtopology_id="0",
            source_topics=("words",),
            state_changelog_topics=(StreamsTopicInfo("counts-changelog", 0, 0),),
        ),
    ),
)
STATELESS = StreamsGroupTopologyValue(1, (StreamsSubtopology(subtopology_id="0", source_topics=("words",)),))


class Settings(FakeSettings):
    streams = StreamsGroupSettings(initial_rebalance_delay_ms=0, assignment_interval_ms=0)

    def streams_group(self, group_id: str) -> StreamsGroupSettings:
        return self.streams

    def set(self, **values: Any) -> None:
        self.streams = msgspec.structs.replace(self.streams, **values)


class Member:
    """A member that keeps to the protocol: it has what it was told, and gives back what is taken."""

    def __init__(self, story: Story, member_id: str, **told: Any) -> None:
        self.story = story
        self.member_id = member_id
        self.epoch = 0
        self.active: dict[str, frozenset[int]] = {}
        self.topology = told.pop("topology", STATELESS)
        self.told = {"process_id": member_id, "rebalance_timeout_ms": 60_000} | told

    def __repr__(self) -> str:
        return f"Member({self.member_id!r}, {self.epoch}, {self.active})"

    def send(self, **fields: Any) -> Asked:
        if self.epoch == 0:
            fields = {**self.told, "topology": self.topology} | fields
        fields.setdefault("instance_id", self.told.get("instance_id"))
        owned: dict[str, Any] = {"active_tasks": self.active, "standby_tasks": {}, "warmup_tasks": {}}
        request = StreamsGroupHeartbeat(
            **owned
            | {
                "group_id": GROUP,
                "member_id": self.member_id,
                "member_epoch": self.epoch,
                "client_id": "client",
                "client_host": "/127.0.0.1",
                "version": 1,
            }
            | fields
        )
        asked = self.story.shell.ask(self.story.shard.streams_group_heartbeat, request)
        if asked.answers and isinstance(asked.answer, StreamsGroupHeartbeatResult):
            self.epoch = asked.answer.member_epoch
            if asked.answer.tasks is not None:
                self.active = asked.answer.tasks.active
        return asked

    def beat(self, **fields: Any) -> StreamsGroupHeartbeatResult:
        answer = self.send(**fields).answer
        assert isinstance(answer, StreamsGroupHeartbeatResult), answer
        return answer

    @property
    def tasks(self) -> set[int]:
        return set(self.active.get("0", ()))


class Story:
    """A shard with a fake shell around it."""

    def __init__(self, **partition_counts: int) -> None:
        self.topics = FakeTopics(**partition_counts)
        self.settings = Settings()
        self.shell = FakeShell()
        self.restart()

    def restart(self) -> None:
        """Another broker leads: it has what is in the log, as bytes, and begins."""
        self.shard = self.loaded()
        self.shell.expired = self.shard.expired
        self.shell.parked.clear()
        self.shell.carry_out(self.shard.loaded(self.shell.now_ms))

    def loaded(self) -> GroupShard:
        shard = GroupShard(
            GroupCounts(),
            settings=self.settings,
            topics=self.topics,
            new_uuid=lambda: UUID(int=1),
            memory_bytes=lambda: shard.memory_bytes,
        )
        for record in self.shell.log:
            read = decode_record(*encode_record(record))
            assert read == record
            shard.replay(read, self.shell.now_ms)
        return shard

    @property
    def group(self) -> StreamsGroup:
        (group,) = self.shard.groups()
        assert isinstance(group, StreamsGroup)
        return group

    def member(self, member_id: str, **told: Any) -> Member:
        return Member(self, member_id, **told)

    def joined(self, *member_ids: str, **told: Any) -> list[Member]:
        """Members that have all their tasks."""
        members = [self.member(member_id, **told) for member_id in member_ids]
        for _ in range(4):
            for member in members:
                member.beat()
        assert self.group.state == "Stable"
        return members

    def commit(self, member_id: str, epoch: int, *partitions: int, topic: str = "words") -> Any:
        request = OffsetCommit(
            group_id=GROUP,
            member_id=member_id,
            generation_or_member_epoch=epoch,
            offsets=tuple(OffsetToCommit(topic=topic, partition=each, offset=7) for each in partitions),
            version=9,
        )
        return self.shell.ask(self.shard.commit_offsets, request).answer


def code(asked: Asked | Any) -> ErrorCode:
    answer = asked.answer if isinstance(asked, Asked) else asked
    assert isinstance(answer, KafkaError), answer
    return answer.code


def test_a_member_has_all_tasks_and_gives_some_to_the_next() -> None:
    story = Story(words=4)
    first, second = story.member("a"), story.member("b")
    answer = first.beat()
    assert (answer.member_epoch, first.tasks, answer.status) == (2, {0, 1, 2, 3}, ())
    assert story.group.state == "Stable"
    second.beat()
    assert (second.epoch, second.tasks, story.group.state) == (3, set(), "Reconciling")
    first.beat()
    kept = first.tasks
    assert (first.epoch, len(kept)) == (2, 2)
    second.beat()
    assert second.tasks == set()  # they are given back only when the first says so
    first.beat()
    second.beat()
    assert (first.epoch, second.epoch, story.group.state) == (3, 3, "Stable")
    assert (first.tasks, second.tasks) == (kept, {0, 1, 2, 3} - kept)
    assert first.beat().tasks is None
    described = story.shard.describe_streams_group(GROUP)
    assert [member.member_id for member in described.members] == ["a", "b"]
    assert (described.group_epoch, described.assignment_epoch, described.assignor_name) == (3, 3, "sticky")


def test_the_first_members_wait_for_others_before_anything_is_assigned() -> None:
    story = Story(words=2)
    story.settings.set(initial_rebalance_delay_ms=3_000)
    first, second = story.member("a"), story.member("b")
    assert [(each.code, first.epoch) for each in first.beat().status] == [(5, 1)]
    story.shell.advance(2_000)
    assert [each.code for each in second.beat().status] == [5]
    assert (first.tasks, second.tasks, story.group.state) == (set(), set(), "Assigning")
    story.shell.advance(1_000)
    assert (first.beat().status, second.beat().status) == ((), ())
    assert (len(first.tasks), len(second.tasks)) == (1, 1)
    assert story.group.epoch == story.group.assignment_epoch


def test_who_has_waited_has_its_tasks_from_another_broker_too() -> None:
    story = Story(words=2)
    story.settings.set(initial_rebalance_delay_ms=3_000)
    member = story.member("a")
    member.beat()
    story.restart()
    assert member.beat().status == ()
    assert member.tasks == {0, 1}


def test_assignments_keep_their_distance() -> None:
    story = Story(words=2)
    story.settings.set(assignment_interval_ms=1_000)
    first, second = story.member("a"), story.member("b")
    first.beat()
    assert [each.code for each in second.beat().status] == [5]
    assert story.group.state == "Assigning"
    story.shell.advance(1_000)
    second.beat()
    assert story.group.epoch == story.group.assignment_epoch == 3


def test_missing_topics_are_named_and_internal_ones_are_to_be_created() -> None:
    story = Story()
    member = story.member("a", topology=COUNTS)
    answer = member.beat()
    assert [each.code for each in answer.status] == [1]
    assert (story.group.state, answer.internal_topics) == ("NotReady", ())
    story.topics.put("words", 3)
    answer = member.beat()
    assert [each.code for each in answer.status] == [3]
    assert answer.internal_topics == (StreamsTopicInfo("counts-changelog", 3, 0),)
    assert (story.group.state, member.tasks) == ("NotReady", set())
    story.topics.put("counts-changelog", 3)
    answer = member.beat()
    assert (answer.status, answer.internal_topics, member.tasks) == ((), (), {0, 1, 2})
    assert story.group.state == "Stable"
    topology = story.shard.describe_streams_group(GROUP).topology
    assert topology is not None
    assert [each.partitions for each in topology.subtopologies[0].state_changelog_topics] == [3]


def test_a_topic_that_grows_is_assigned_again() -> None:
    story = Story(words=1)
    (member,) = story.joined("a")
    before = story.group.epoch
    story.topics.put("words", 2)
    member.beat()
    assert (story.group.epoch, member.tasks) == (before + 1, {0, 1})


def test_another_number_of_standbys_is_another_epoch() -> None:
    story = Story(words=1)
    (member,) = story.joined("a")
    before = story.group.epoch
    story.settings.set(num_standby_replicas=1)
    member.beat()
    assert story.group.epoch == before + 1
    member.beat()
    assert story.group.epoch == before + 1


def test_a_member_that_is_silent_goes_and_its_tasks_are_free() -> None:
    story = Story(words=2)
    first, second = story.joined("a", "b")
    story.shell.advance(30_000)
    second.beat()
    story.shell.advance(20_000)
    assert list(story.group.members) == ["b"]
    second.beat()
    assert second.tasks == {0, 1}
    assert code(first.send()) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_give_back_in_time_goes() -> None:
    story = Story(words=2)
    (first,) = story.joined("a", rebalance_timeout_ms=10_000)
    second = story.member("b")
    second.beat()
    kept = dict(first.active)
    first.beat()
    first.active = kept
    story.shell.advance(9_000)
    first.beat()
    first.active = kept
    story.shell.advance(1_000)
    assert list(story.group.members) == ["b"]
    second.beat()
    assert second.tasks == {0, 1}


def test_who_leaves_is_gone_and_the_last_one_leaves_an_empty_group() -> None:
    story = Story(words=1)
    (member,) = story.joined("a")
    assert story.group.epoch == 2
    answer = member.beat(
        member_epoch=-1, topology=None, active_tasks=None, standby_tasks=None, warmup_tasks=None
    )
    assert (answer.member_epoch, story.group.state) == (-1, "Empty")
    assert story.group.epoch == story.group.assignment_epoch == 3
    listed = story.shard.list_groups()
    assert [(each.protocol_type, each.group_type, each.state) for each in listed] == [
        ("streams", "streams", "Empty")
    ]
    assert story.shell.parked == {}
    assert story.shell.ask(story.shard.delete_group, GROUP).answer is None
    assert story.shard.list_groups() == []
    story.restart()
    assert story.shard.list_groups() == []


def test_a_group_with_members_is_not_deleted() -> None:
    story = Story(words=1)
    story.joined("a")
    assert code(story.shell.ask(story.shard.delete_group, GROUP)) is ErrorCode.NON_EMPTY_GROUP


def test_epochs_fence() -> None:
    story = Story(words=2)
    first, second = story.joined("a", "b")
    epoch = first.epoch
    assert code(first.send(member_epoch=epoch + 1)) is ErrorCode.FENCED_MEMBER_EPOCH
    before = story.group.members["a"].current.previous_member_epoch
    assert before < epoch
    # The answer was lost: with the epoch before, and no more tasks than it has, it hears its tasks.
    assert first.beat(member_epoch=before).member_epoch == epoch
    others = {"0": frozenset({0, 1})}
    assert code(first.send(member_epoch=before, active_tasks=others)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert second.beat().tasks is None


def test_a_static_member_comes_back_to_its_tasks() -> None:
    story = Story(words=2)
    first, second = story.member("a", instance_id="i"), story.member("b")
    for _ in range(4):
        first.beat()
        second.beat()
    tasks, epoch = first.tasks, story.group.epoch
    again = story.member("c", instance_id="i", process_id="a")
    assert code(again.send()) is ErrorCode.UNRELEASED_INSTANCE_ID
    first.beat(member_epoch=-2, active_tasks=None, standby_tasks=None, warmup_tasks=None)
    assert set(story.group.members) == {"a", "b"}
    again.beat()
    assert (again.tasks, again.epoch, story.group.epoch) == (tasks, epoch, epoch)
    assert set(story.group.members) == {"b", "c"}
    first.epoch = epoch
    assert code(first.send(topology=None)) is ErrorCode.FENCED_INSTANCE_ID
    story.shell.advance(30_000)
    again.beat()
    second.beat()
    story.shell.advance(30_000)
    assert set(story.group.members) == {"b", "c"}  # no timer of the one that was replaced is left


def test_one_member_asks_all_to_shut_down() -> None:
    story = Story(words=2)
    first, second = story.joined("a", "b")
    assert [each.code for each in first.beat(shutdown_application=True).status] == [4]
    assert [each.code for each in second.beat().status] == [4]
    for member in (first, second):
        member.beat(member_epoch=-1, active_tasks=None, standby_tasks=None, warmup_tasks=None)
    assert story.member("c").beat().status == ()  # it is another run of the application


def test_a_topology_stays_what_it_is() -> None:
    story = Story(words=1, counts=1)
    story.joined("a")
    other = StreamsGroupTopologyValue(1, (StreamsSubtopology(subtopology_id="0", source_topics=("counts",)),))
    refused = story.member("b", topology=other).send()
    assert (code(refused), refused.answer.message) == (
        ErrorCode.INVALID_REQUEST,
        "Topology updates are not supported yet.",
    )
    stale = StreamsGroupTopologyValue(0, other.subtopologies)
    (status,) = story.member("c", topology=stale).beat().status
    assert (status.code, status.detail) == (
        0,
        "The member's topology epoch 0 is behind the group's topology epoch 1.",
    )


def test_client_tags_that_are_missing_are_told() -> None:
    story = Story(words=1)
    story.settings.set(rack_aware_assignment_tags=("zone", "cluster"))
    member = story.member("a", client_tags=(("zone", "z1"),))
    assert member.beat(version=0).status == ()
    (status,) = member.beat().status
    assert (status.code, "[cluster]" in status.detail) == (6, True)


def test_members_hear_where_queries_are_answered() -> None:
    story = Story(words=2)
    first, second = story.member("a", user_endpoint=("host", 8080)), story.member("b")
    answer = first.beat()
    (endpoint,) = answer.partitions_by_user_endpoint or ()
    assert (endpoint.endpoint, endpoint.active, endpoint.standby) == (
        ("host", 8080),
        (("words", (0, 1)),),
        (),
    )
    epoch = answer.endpoint_information_epoch
    assert first.beat(endpoint_information_epoch=epoch).partitions_by_user_endpoint is None
    assert second.beat(endpoint_information_epoch=epoch).partitions_by_user_endpoint is None
    answer = first.beat(endpoint_information_epoch=epoch)  # it has one partition fewer
    (endpoint,) = answer.partitions_by_user_endpoint or ()
    (number,) = first.tasks
    assert endpoint.active == (("words", (number,)),)
    assert answer.endpoint_information_epoch == epoch + 1


def test_task_offsets_are_shown_and_told_once_each() -> None:
    story = Story(words=1)
    (member,) = story.joined("a")
    member.beat(task_offsets=(StreamsTask("0", 0, 5),), task_end_offsets=(StreamsTask("0", 0, 9),))
    (described,) = story.shard.describe_streams_group(GROUP).members
    assert (described.task_offsets, described.task_end_offsets) == (
        (StreamsTask("0", 0, 5),),
        (StreamsTask("0", 0, 9),),
    )
    twice = (StreamsTask("0", 0, 5), StreamsTask("0", 0, 6))
    assert code(member.send(task_offsets=twice)) is ErrorCode.INVALID_REQUEST


def test_commits_with_an_older_epoch_are_for_tasks_that_stayed() -> None:
    story = Story(words=2)
    (first,) = story.joined("a")
    old = first.epoch
    second = story.member("b")
    for _ in range(3):
        second.beat()
        first.beat()
    (mine,), (lost,) = first.tasks, second.tasks
    assert first.epoch > old
    assert story.commit("a", first.epoch, mine).errors == (ErrorCode.NONE,)
    assert story.commit("a", old, mine).errors == (ErrorCode.NONE,)
    assert code(story.commit("a", old, lost)) is ErrorCode.STALE_MEMBER_EPOCH
    assert code(story.commit("a", old, 0, topic="other")) is ErrorCode.STALE_MEMBER_EPOCH
    assert code(story.commit("a", first.epoch + 1, mine)) is ErrorCode.STALE_MEMBER_EPOCH
    assert code(story.commit("b", second.epoch - 1, lost)) is ErrorCode.STALE_MEMBER_EPOCH
    assert code(story.commit("", -1, mine)) is ErrorCode.UNKNOWN_MEMBER_ID
    fetch = OffsetFetchGroup(
        group_id=GROUP, member_id="a", member_epoch=old, partitions=None, require_stable=False
    )
    with pytest.raises(KafkaError) as error:
        story.shard.fetch_offsets(fetch)
    assert error.value.code is ErrorCode.STALE_MEMBER_EPOCH
    transactional = TxnOffsetCommit(
        group_id=GROUP,
        generation=old,
        member_id="a",
        producer_id=1,
        producer_epoch=0,
        offsets=(OffsetToCommit(topic="words", partition=lost, offset=7),),
        version=6,
    )
    refused = story.shell.ask(story.shard.commit_transactional_offsets, transactional)
    assert code(refused) is ErrorCode.STALE_MEMBER_EPOCH


def classic_join(group_id: str = GROUP) -> JoinGroup:
    return JoinGroup(
        group_id=group_id,
        member_id="",
        client_id="client",
        client_host="/127.0.0.1",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=300_000,
        protocol_type="consumer",
        protocols=(("range", b""),),
        requires_known_member_id=False,
        supports_skipping_assignment=False,
    )


def test_an_empty_classic_group_becomes_a_streams_group_and_keeps_its_offsets() -> None:
    story = Story(words=1)
    assert story.commit("", -1, 0).errors == (ErrorCode.NONE,)
    assert [each.group_type for each in story.shard.list_groups()] == ["classic"]
    (member,) = story.joined("a")
    assert [each.group_type for each in story.shard.list_groups()] == ["streams"]
    story.restart()
    assert [each.group_type for each in story.shard.list_groups()] == ["streams"]
    assert story.shard.offsets_of(GROUP)["words"][0].offset == 7
    member.beat()


def test_a_classic_group_with_members_stays_one() -> None:
    story = Story(words=1)
    story.shell.ask(story.shard.join_group, classic_join())
    refused = story.member("a").send()
    assert code(refused) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_classic_member_takes_the_place_of_an_empty_streams_group_only() -> None:
    story = Story(words=1)
    (member,) = story.joined("a")
    refused = story.shell.ask(story.shard.join_group, classic_join())
    assert refused.answer.error is not ErrorCode.NONE
    member.beat(member_epoch=-1, active_tasks=None, standby_tasks=None, warmup_tasks=None)
    joined = story.shell.ask(story.shard.join_group, classic_join())
    story.shell.advance(3_000)
    assert joined.answer.error is ErrorCode.NONE
    assert [each.group_type for each in story.shard.list_groups()] == ["classic"]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"active_tasks": {"0": frozenset({1})}}, "ActiveTasks must be empty when (re-)joining."),
        ({"topology": None}, "Topology must be non-null when (re-)joining."),
        ({"member_epoch": -3}, "MemberEpoch is -3, but must be greater than or equal to -2."),
        ({"member_epoch": -2}, "InstanceId can't be null."),
        ({"warmup_tasks": None}, "If one task-type is non-null, all must be non-null."),
        ({"member_epoch": 5}, "Topology can only be provided when (re-)joining."),
    ],
)
def test_requests_that_make_no_sense_are_refused_with_kafkas_words(fields: dict[str, Any], says: str) -> None:
    refused = Story(words=1).member("a").send(**fields)
    assert (code(refused), refused.answer.message) == (ErrorCode.INVALID_REQUEST, says)


def test_tasks_that_the_topology_does_not_have_are_refused() -> None:
    story = Story(words=1)
    (member,) = story.joined("a")
    assert code(member.send(active_tasks={"1": frozenset({0})})) is ErrorCode.INVALID_REQUEST
    assert code(member.send(active_tasks={"0": frozenset({1})})) is ErrorCode.INVALID_REQUEST
    assert member.beat().member_epoch == member.epoch


def test_a_group_is_full() -> None:
    story = Story(words=1)
    story.settings.group_streams_max_size = 1
    story.joined("a")
    assert code(story.member("b").send()) is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_change_that_is_refused_has_changed_nothing() -> None:
    story = Story(words=1)
    story.shell.refuse = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "")
    assert code(story.member("a").send()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (story.shard.list_groups(), story.shell.parked) == ([], {})
    story.shell.refuse = None
    assert story.member("a").beat().member_epoch == 2


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9)), max_size=60))
def test_what_the_log_says_is_what_the_coordinator_has(steps: list[tuple[str, int]]) -> None:
    """Whatever happens: a shard loaded from the log is as the one that lives, and no task is with two."""
    story = Story(words=3)
    members: dict[str, Member] = {}
    for member_id, step in steps:
        member = members.setdefault(member_id, story.member(member_id, process_id=member_id.translate(PAIRS)))
        if step == 9:
            story.shell.advance(20_000)
        elif step == 8 and member.epoch > 0:
            member.send(member_epoch=-1, active_tasks=None, standby_tasks=None, warmup_tasks=None)
            del members[member_id]
        else:
            answer = member.send()
            if isinstance(answer.answer, KafkaError):
                del members[member_id]
        check_equal(story)


PAIRS = str.maketrans("bd", "ac")
"""Two members in each of two processes."""


def check_equal(story: Story) -> None:
    again = story.loaded()
    assert len(again.groups()) == len(story.shard.groups())
    for live, read in zip(story.shard.groups(), again.groups(), strict=True):
        assert isinstance(live, StreamsGroup)
        assert isinstance(read, StreamsGroup)
        for name in (
            "metadata",
            "assignment_epoch",
            "topology",
            "members",
            "targets",
            "static_members",
            "_holders",
        ):
            assert getattr(live, name) == getattr(read, name), name
        assert (live.state, live.footprint.size_bytes) == (read.state, read.footprint.size_bytes)
        held = [task for member in live.members.values() for task in member.tasks() if task[0] == "active"]
        assert len(held) == len(set(held))


def test_a_large_assignment_is_worked_out_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "ASSIGNED_AT_ONCE_MAX", 4 * COST_OF_A_TASK + 1)
    story = Story(words=4)
    a, b = story.joined("a")[0], story.member("b")
    assert (a.tasks, story.shell.computations) == ({0, 1, 2, 3}, []), "four tasks and a member are not large"
    b.beat()
    a.beat()
    assert len(story.shell.computations) == 1, "it is worked out once"
    assert (a.tasks, b.tasks, story.group.state) == ({0, 1, 2, 3}, set(), "Assigning")
    story.shell.compute()
    assert story.group.assignment_epoch == story.group.epoch
    for _ in range(4):
        a.beat()
        b.beat()
    assert len(a.tasks) == len(b.tasks) == 2
    story.settings.set(assignor_offload_enable=False)
    story.member("c").beat()
    assert story.shell.computations == [], "where it is switched off all wait for it"
    assert story.group.assignment_epoch == story.group.epoch


def test_a_member_that_goes_while_an_assignment_is_worked_out_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group, "ASSIGNED_AT_ONCE_MAX", -1)
    story = Story(words=4)
    a, b = story.member("a"), story.member("b")
    a.beat()
    b.beat()
    a.send(member_epoch=-1)
    story.shell.compute()
    assert story.group.targets == {}, "it was for a alone"
    b.beat()
    story.shell.compute()
    b.beat()
    assert b.tasks == {0, 1, 2, 3}
