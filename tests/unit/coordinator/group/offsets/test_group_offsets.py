"""Committed offsets: who may commit, what a fetch sees and when, and what goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from minikafka.coordinator.group.environment import GroupCounts
from minikafka.coordinator.group.group import Group
from minikafka.coordinator.group.messages import (
    Answer,
    Complete,
    Effects,
    FetchedOffset,
    GroupOperation,
    ListedGroup,
    OffsetCommit,
    OffsetCommitResult,
    OffsetFetchGroup,
    OffsetToCommit,
    OperationKind,
)
from minikafka.coordinator.group.offsets import GroupOffsets
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_records import (
    GroupMetadataKey,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
)
from minikafka.types import TopicPartition
from tests.unit.coordinator.group.shell import Asked, FakeShell

MINUTE_MS = 60_000
RETENTION_MINUTES = 10
OLD_TOPIC, NEW_TOPIC = UUID(int=1), UUID(int=2)


class FakeSettings:
    offset_metadata_max_bytes = 4
    offsets_retention_minutes = RETENTION_MINUTES


class FakeGroup:
    """A group that admits what it is told to."""

    def __init__(self, group_id: str, *, is_empty: bool = True) -> None:
        self.group_id = group_id
        self.is_empty = is_empty
        self.should_expire = True
        self.refuses: KafkaError | None = None
        self.subscribed: tuple[str, ...] = ()
        self.empty_since_ms: int | None = None
        self.keeps_offsets = False
        self.heard: list[str] = []

    def check(self, **_: Any) -> None:
        if self.refuses is not None:
            raise self.refuses

    check_offset_commit = check_offset_fetch = check_offset_delete = check_delete = check

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed

    def offsets_expire_after(self, *, commit_timestamp_ms: int) -> int | None:
        if self.keeps_offsets:
            return None
        return commit_timestamp_ms if self.empty_since_ms is None else self.empty_since_ms

    def heard_of(self, member_id: str) -> Effects:
        self.heard.append(member_id)
        return [Complete(GroupOperation(OperationKind.SESSION, self.group_id, member_id))]

    def listed(self) -> ListedGroup:
        return ListedGroup(self.group_id, "", "Empty", "classic")

    def tombstones(self) -> list[GroupRecord]:
        return [GroupRecord(GroupMetadataKey(self.group_id), None)]


class Story:
    """Offsets on a fake shell, with verbs for tests."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.settings: Any = FakeSettings()
        self.counts = GroupCounts()
        self.offsets = GroupOffsets(
            self.groups, settings=self.settings, make_simple=self._make_simple, counts=self.counts
        )
        self.shell = FakeShell()

    def _make_simple(self, group_id: str, now_ms: int) -> Group:
        return FakeGroup(group_id)

    def group(self, group_id: str = "g", *, is_empty: bool = False) -> FakeGroup:
        group = FakeGroup(group_id, is_empty=is_empty)
        self.groups[group_id] = group
        return group

    def commit(self, *offsets: tuple[str, int, int], group_id: str = "g", **options: Any) -> Asked:
        request = commit_of(*offsets, group_id=group_id, **options)
        return self.shell.ask(self.offsets.commit, request)

    def visible(self, group_id: str = "g", *, require_stable: bool = False) -> dict[str, int | str]:
        """All of a group: "t-0" → offset, or the error's name."""
        request = OffsetFetchGroup(group_id=group_id, partitions=None, require_stable=require_stable)
        return {
            str(each.topic_partition): each.error.name if each.error else each.offset
            for each in self.offsets.fetch(request).offsets
        }

    def delete(self, *partitions: tuple[str, int], group_id: str = "g") -> Asked:
        def call(request: Any, ticket: Any, now_ms: int) -> Effects:
            return self.offsets.delete(group_id, request, ticket, now_ms)

        return self.shell.ask(call, [TopicPartition(*each) for each in partitions])

    def write(self, records: list[GroupRecord]) -> list[GroupRecord]:
        """What the shard does with tombstones."""
        self.shell.log += records
        for record in records:
            if isinstance(record.key, OffsetCommitKey):
                assert record.value is None
                self.offsets.replay(record.key, None)
            else:
                del self.groups[record.key.group_id]
        return records

    def expire(self) -> list[GroupRecord]:
        return self.write(self.offsets.expired_records(self.shell.now_ms))

    def load(self, topic: str, partition: int, offset: int | None, producer_id: int = -1) -> None:
        value = None
        if offset is not None:
            value = OffsetCommitValue(offset=offset, commit_timestamp_ms=self.shell.now_ms)
        self.offsets.replay(OffsetCommitKey("g", topic, partition), value, producer_id=producer_id)


def commit_of(
    *offsets: tuple[str, int, int], group_id: str = "g", topic_id: UUID | None = None, **options: Any
) -> OffsetCommit:
    to_commit = tuple(
        OffsetToCommit(topic=topic, partition=partition, offset=offset, topic_id=topic_id)
        for topic, partition, offset in offsets
    )
    defaults: dict[str, Any] = {"generation_or_member_epoch": -1, "member_id": "", "version": 9}
    return OffsetCommit(group_id=group_id, offsets=to_commit, **defaults | options)


def tombstone(topic: str, partition: int, group_id: str = "g") -> GroupRecord:
    return GroupRecord(OffsetCommitKey(group_id, topic, partition), None)


@pytest.fixture
def story() -> Story:
    return Story()


def test_a_commit_without_a_group_makes_a_simple_one(story: Story) -> None:
    asked = story.commit(("t", 0, 5), ("t", 1, 6), ("u", 0, 7))
    assert asked.answer == OffsetCommitResult((ErrorCode.NONE,) * 3)
    assert story.visible() == {"t-0": 5, "t-1": 6, "u-0": 7}
    assert list(story.groups) == ["g"] and story.offsets.has_offsets("g")
    assert story.shell.log[0].value == OffsetCommitValue(offset=5, commit_timestamp_ms=story.shell.now_ms)


@pytest.mark.parametrize(
    ("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_member_of_a_group_that_is_unknown_cannot_commit(
    story: Story, version: int, code: ErrorCode
) -> None:
    asked = story.commit(("t", 0, 5), generation_or_member_epoch=0, member_id="m", version=version)
    assert asked.answer.code is code
    assert not story.groups and not story.shell.log


def test_a_refused_append_has_changed_nothing(story: Story) -> None:
    story.shell.refuse = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert story.commit(("t", 0, 5)).answer.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not story.groups and not story.offsets.has_offsets("g") and story.visible() == {}


def test_the_group_decides_who_may_commit_and_hears_of_the_member(story: Story) -> None:
    group = story.group()
    assert story.commit(("t", 0, 5), generation_or_member_epoch=3, member_id="m").answer.errors == (0,)
    assert group.heard == ["m"]
    group.refuses = KafkaError(ErrorCode.ILLEGAL_GENERATION)
    assert story.commit(("t", 0, 6), generation_or_member_epoch=2).answer.code is ErrorCode.ILLEGAL_GENERATION
    group.refuses = None
    assert group.heard == ["m"] and story.visible() == {"t-0": 5}


@pytest.mark.parametrize("metadata", ["abcde", "ab𝄞x", "𝄞𝄞𝄞"])
def test_metadata_is_counted_in_javas_characters(story: Story, metadata: str) -> None:
    """One that fits shares the request with one that does not; a request with none writes nothing."""
    large = OffsetToCommit(topic="t", partition=0, offset=5, metadata=metadata)
    fits = OffsetToCommit(topic="t", partition=1, offset=6, metadata="𝄞ää")
    request = OffsetCommit(
        group_id="g", generation_or_member_epoch=-1, member_id="", offsets=(large, fits), version=9
    )
    asked = story.shell.ask(story.offsets.commit, request)
    assert asked.answer.errors == (ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE)
    assert story.visible() == {"t-1": 6}
    alone = OffsetCommit(
        group_id="h", generation_or_member_epoch=-1, member_id="", offsets=(large,), version=9
    )
    asked = story.shell.ask(story.offsets.commit, alone)
    assert asked.answer.errors == (ErrorCode.OFFSET_METADATA_TOO_LARGE,)
    assert len(story.shell.appends) == 1 and "h" not in story.groups


def test_a_commit_is_seen_when_the_high_watermark_has_passed_it(story: Story) -> None:
    story.commit(("t", 0, 5))
    story.shell.hold = True
    asked = story.commit(("t", 0, 6), ("t", 1, 1))
    assert asked.waits and story.visible() == {"t-0": 5}
    story.shell.commit()
    assert asked.answer.errors == (0, 0) and story.visible() == {"t-0": 6, "t-1": 1}


def test_a_commit_that_is_settled_late_does_not_replace_a_newer_one(story: Story) -> None:
    story.shell.hold = True
    story.commit(("t", 0, 5))
    story.commit(("t", 0, 6))
    older, newer = story.shell.uncommitted
    story.shell.carry_out(newer.committed(0))
    story.shell.carry_out(older.committed(0))
    assert story.visible() == {"t-0": 6}


def test_a_commit_that_failed_after_it_was_written_is_not_seen_but_counts_in_the_log(story: Story) -> None:
    story.shell.hold = True
    asked = story.commit(("t", 0, 5))
    story.shell.fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    assert asked.answer.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert story.visible() == {} and story.offsets.has_offsets("g")
    assert story.offsets.delete_groups_offsets("g") == [tombstone("t", 0)]
    story.shell.hold = False
    story.commit(("t", 0, 6))
    assert story.visible() == {"t-0": 6}
    assert story.offsets.delete_groups_offsets("g") == [tombstone("t", 0)]


def test_a_deleted_offset_does_not_come_back_with_the_high_watermark(story: Story) -> None:
    story.shell.hold = True
    story.commit(("t", 0, 5))
    deleted = story.delete(("t", 0))
    story.commit(("t", 0, 7))
    before, delete, after = story.shell.uncommitted
    story.shell.carry_out(before.committed(0))
    assert story.visible() == {}
    story.shell.carry_out(delete.committed(0))
    assert deleted.answer.errors == (0,) and story.visible() == {}
    story.shell.carry_out(after.committed(0))
    assert story.visible() == {"t-0": 7}


def test_a_fetch_answers_every_partition_that_it_asks_for(story: Story) -> None:
    story.commit(("t", 0, 5))
    wanted = (TopicPartition("t", 1), TopicPartition("t", 0))
    request = OffsetFetchGroup(group_id="g", partitions=wanted, require_stable=False)
    found = story.offsets.fetch(request).offsets
    assert found == (
        FetchedOffset(topic_partition=wanted[0]),
        FetchedOffset(topic_partition=wanted[1], offset=5),
    )
    unknown = OffsetFetchGroup(group_id="unknown", partitions=wanted, require_stable=True)
    assert [each.offset for each in story.offsets.fetch(unknown).offsets] == [-1, -1]
    assert story.visible("unknown") == {}


def test_the_group_decides_who_may_fetch(story: Story) -> None:
    group = story.group()
    story.commit(("t", 0, 5))
    group.refuses = KafkaError(ErrorCode.STALE_MEMBER_EPOCH)
    with pytest.raises(KafkaError) as raised:
        story.visible()
    assert raised.value.code is ErrorCode.STALE_MEMBER_EPOCH
    group.refuses = KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)  # a dead group: it has no offsets
    assert story.visible() == {}


def test_offsets_of_subscribed_topics_are_not_deleted(story: Story) -> None:
    group = story.group()
    story.commit(("t", 0, 5), ("u", 0, 6))
    group.subscribed = ("t",)
    asked = story.delete(("u", 0), ("t", 0), ("u", 1))
    assert asked.answer.errors == (ErrorCode.NONE, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE)
    assert story.shell.appends[-1].records == (tombstone("u", 0),)
    assert story.visible() == {"t-0": 5}
    appends = len(story.shell.appends)
    assert story.delete(("u", 0)).answer.errors == (ErrorCode.NONE,)
    assert len(story.shell.appends) == appends
    assert story.delete(("t", 0), group_id="unknown").answer.code is ErrorCode.GROUP_ID_NOT_FOUND
    group.refuses = KafkaError(ErrorCode.NON_EMPTY_GROUP)
    assert story.delete(("u", 0)).answer.code is ErrorCode.NON_EMPTY_GROUP
    assert story.counts.offset_deletions == 1


def test_a_delete_that_is_refused_leaves_the_offset(story: Story) -> None:
    story.commit(("t", 0, 5))
    story.shell.refuse = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert story.delete(("t", 0)).answer.code is ErrorCode.NOT_COORDINATOR
    assert story.visible() == {"t-0": 5}


def test_offsets_expire_and_then_their_group_goes(story: Story) -> None:
    story.commit(("t", 0, 5))
    story.shell.advance(MINUTE_MS)
    story.commit(("t", 1, 6))
    story.shell.advance((RETENTION_MINUTES - 1) * MINUTE_MS - 1)
    assert story.expire() == []
    story.shell.advance(1)
    assert story.expire() == [tombstone("t", 0)]
    story.shell.advance(MINUTE_MS)
    assert story.expire() == [tombstone("t", 1), GroupRecord(GroupMetadataKey("g"), None)]
    assert not story.groups and not story.offsets.has_offsets("g")
    assert (story.counts.offset_commits, story.counts.offset_expirations) == (2, 2)


def group_with_members(group: FakeGroup) -> None:
    group.is_empty = False


def group_of_a_kind_that_keeps_its_offsets(group: FakeGroup) -> None:
    group.keeps_offsets = True


def group_that_is_subscribed(group: FakeGroup) -> None:
    group.subscribed = ("t",)


@pytest.mark.parametrize(
    ("make", "offsets_go"),
    [
        (group_with_members, True),
        (group_of_a_kind_that_keeps_its_offsets, False),
        (group_that_is_subscribed, False),
    ],
)
def test_a_group_in_use_stays(story: Story, make: Callable[[FakeGroup], None], offsets_go: bool) -> None:
    group = story.group(is_empty=True)
    story.commit(("t", 0, 5))
    make(group)
    story.shell.advance(RETENTION_MINUTES * MINUTE_MS)
    assert story.expire() == ([tombstone("t", 0)] if offsets_go else [])
    assert "g" in story.groups


def test_retention_may_count_from_when_the_group_became_empty(story: Story) -> None:
    group = story.group(is_empty=True)
    story.commit(("t", 0, 5))
    story.shell.advance(RETENTION_MINUTES * MINUTE_MS)
    group.empty_since_ms = story.shell.now_ms
    assert story.expire() == []
    story.shell.advance(RETENTION_MINUTES * MINUTE_MS)
    assert story.expire()


def test_a_client_may_say_when_its_offset_expires(story: Story) -> None:
    story.commit(("t", 0, 5), retention_time_ms=MINUTE_MS)
    value = story.shell.log[0].value
    assert isinstance(value, OffsetCommitValue)
    assert value.expire_timestamp_ms == value.commit_timestamp_ms + MINUTE_MS
    story.commit(("t", 1, 5), retention_time_ms=RETENTION_MINUTES * 2 * MINUTE_MS)
    story.shell.advance(MINUTE_MS)
    assert story.expire() == [tombstone("t", 0)]
    story.shell.advance(RETENTION_MINUTES * MINUTE_MS)
    assert story.expire() == []


def test_a_newer_commit_in_flight_keeps_an_offset_from_expiring(story: Story) -> None:
    story.commit(("t", 0, 5))
    story.shell.advance(RETENTION_MINUTES * MINUTE_MS)
    story.shell.hold = True
    story.commit(("t", 0, 6))
    assert story.expire() == []


def test_offsets_of_deleted_topics_go(story: Story) -> None:
    story.commit(("t", 0, 5), ("u", 0, 6))
    story.commit(("t", 3, 5), group_id="h")
    story.load("t", 9, 1, producer_id=7)
    assert story.write(story.offsets.topics_deleted({"t": OLD_TOPIC, "x": OLD_TOPIC})) == [
        tombstone("t", 0),
        tombstone("t", 9),
        tombstone("t", 3, "h"),
    ]
    assert story.visible() == {"u-0": 6} and not story.offsets.has_offsets("h")
    story.offsets.replay_marker(7, committed=True)
    assert story.visible() == {"u-0": 6}


def test_offsets_of_another_topic_of_the_name_stay(story: Story) -> None:
    """The news that a topic was deleted may come after the first commit for the next topic of its name."""
    story.commit(("t", 0, 5), topic_id=OLD_TOPIC)
    story.commit(("t", 1, 6), topic_id=NEW_TOPIC)
    story.commit(("t", 2, 7))
    assert story.write(story.offsets.topics_deleted({"t": OLD_TOPIC})) == [
        tombstone("t", 0),
        tombstone("t", 2),
    ]
    assert story.visible() == {"t-1": 6}
    story.commit(("t", 1, 8), topic_id=OLD_TOPIC)
    assert story.write(story.offsets.topics_deleted({"t": OLD_TOPIC})) == [tombstone("t", 1)]


# Transactions (TxnOffsetCommit): read from the log


def test_an_offset_of_a_transaction_is_unstable_until_its_marker(story: Story) -> None:
    story.load("t", 0, 5)
    story.load("t", 0, 8, producer_id=7)
    story.load("t", 1, 9, producer_id=7)
    assert story.visible() == {"t-0": 5}
    assert story.visible(require_stable=True) == {"t-0": "UNSTABLE_OFFSET_COMMIT"}
    story.offsets.replay_marker(6, committed=True)
    assert story.visible() == {"t-0": 5}
    story.offsets.replay_marker(7, committed=True)
    assert story.visible(require_stable=True) == {"t-0": 8, "t-1": 9}


def test_an_aborted_transaction_leaves_nothing(story: Story) -> None:
    story.load("t", 0, 8, producer_id=7)
    assert story.offsets.has_offsets("g")
    story.offsets.replay_marker(7, committed=False)
    assert story.visible(require_stable=True) == {} and not story.offsets.has_offsets("g")
    assert story.expire() == [GroupRecord(GroupMetadataKey("g"), None)]


def test_a_transactions_offset_is_as_old_as_its_record(story: Story) -> None:
    """The marker comes after the newer commit; compaction may have dropped either."""
    story.load("t", 0, 8, producer_id=7)
    story.load("t", 0, 9)
    story.offsets.replay_marker(7, committed=True)
    assert story.visible() == {"t-0": 9}


def test_two_transactions_of_one_partition(story: Story) -> None:
    story.load("t", 0, 8, producer_id=7)
    story.load("t", 0, 9, producer_id=6)
    story.offsets.replay_marker(6, committed=True)
    assert story.visible(require_stable=True) == {"t-0": "UNSTABLE_OFFSET_COMMIT"}
    story.offsets.replay_marker(7, committed=True)
    assert story.visible(require_stable=True) == {"t-0": 9}


def test_a_tombstone_ends_what_is_pending_of_its_partition(story: Story) -> None:
    story.load("t", 0, 8, producer_id=7)
    story.load("t", 1, 8, producer_id=7)
    story.load("t", 0, None)
    story.offsets.replay_marker(7, committed=True)
    assert story.visible() == {"t-1": 8}


def test_a_group_with_an_open_transaction_stays_and_so_does_the_offset_it_would_replace(story: Story) -> None:
    story.load("t", 0, 5)
    story.load("t", 0, 8, producer_id=7)
    story.load("t", 1, 5)
    story.shell.advance(RETENTION_MINUTES * MINUTE_MS)
    assert story.expire() == [tombstone("t", 1)]
    assert story.delete(("t", 0)).answer.errors == (0,)
    assert story.expire() == [GroupRecord(GroupMetadataKey("g"), None)]


def test_an_answer_is_not_given_before_the_append_is_committed(story: Story) -> None:
    effects = story.offsets.commit(commit_of(("t", 0, 1)), Asked(None), 0)
    assert not any(isinstance(effect, Answer) for effect in effects)
