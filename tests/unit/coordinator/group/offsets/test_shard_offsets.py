"""Offsets among real groups: a shard writes, is cleaned, and is read again from its log."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from minikafka.coordinator.group.environment import (
    ConsumerGroupSettings,
    GroupCounts,
    ShareGroupSettings,
    StreamsGroupSettings,
    TopicInfo,
)
from minikafka.coordinator.group.messages import (
    ConsumerGroupHeartbeat,
    Effects,
    JoinGroup,
    OffsetCommitResult,
    OffsetFetchGroup,
    SyncGroup,
)
from minikafka.coordinator.group.shard import GroupShard
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_record_codec import decode_record, encode_record
from minikafka.protocol.internal.group_records import OffsetCommitKey
from minikafka.types import TopicPartition
from tests.unit.coordinator.group.offsets.test_group_offsets import MINUTE_MS, commit_of
from tests.unit.coordinator.group.shell import Asked, FakeShell

RETENTION_MINUTES = 10
TOPIC = TopicInfo("t", UUID(int=1), 4)


class Settings:
    group_min_session_timeout_ms = 1
    group_max_session_timeout_ms = 10**9
    group_initial_rebalance_delay_ms = 0
    group_max_size = 100
    group_consumer_max_size = 100
    group_consumer_regex_refresh_interval_ms: int = 600_000
    group_max_member_metadata_bytes = 1 << 20
    group_max_memory_bytes = 1 << 28
    group_consumer_assignors = ("uniform", "range")
    group_consumer_migration_policy = "bidirectional"
    group_share_max_size = 200
    group_streams_max_size = 100
    group_share_initialize_retry_interval_ms = 30_000
    offset_metadata_max_bytes = 4096
    offsets_retention_minutes = RETENTION_MINUTES

    def consumer_group(self, group_id: str) -> ConsumerGroupSettings:
        return ConsumerGroupSettings()

    def share_group(self, group_id: str) -> ShareGroupSettings:
        return ShareGroupSettings()

    def streams_group(self, group_id: str) -> StreamsGroupSettings:
        return StreamsGroupSettings()


class Topics:
    version = 1

    def topic(self, name: str) -> TopicInfo | None:
        return TOPIC if name == TOPIC.name else None

    def topic_by_id(self, topic_id: UUID) -> TopicInfo | None:
        return TOPIC if topic_id == TOPIC.topic_id else None

    def names(self) -> tuple[str, ...]:
        return (TOPIC.name,)


class Story:
    """A shard on a fake shell."""

    def __init__(self) -> None:
        self.shell = FakeShell()
        self.shard = self._make()
        self.shell.expired = lambda operation, now_ms: self.shard.expired(operation, now_ms)

    def _make(self) -> GroupShard:
        rng = random.Random(1)
        settings: Any = Settings()
        return GroupShard(
            GroupCounts(),
            settings=settings,
            topics=Topics(),
            new_uuid=lambda: UUID(int=rng.getrandbits(128), version=4),
            memory_bytes=lambda: self.shard.memory_bytes,
        )

    def fail_over(self) -> None:
        """Another broker reads the log."""
        self.shell.parked.clear()
        self.shard = self._make()
        for record in self.shell.log:
            self.shard.replay(decode_record(*encode_record(record)), self.shell.now_ms)
        self.shell.carry_out(self.shard.loaded(self.shell.now_ms))

    def commit(self, *offsets: tuple[str, int, int], **options: Any) -> Asked:
        return self.shell.ask(self.shard.commit_offsets, commit_of(*offsets, **options))

    def visible(self, group_id: str = "g") -> dict[str, int]:
        request = OffsetFetchGroup(group_id=group_id, partitions=None, require_stable=True)
        return {str(each.topic_partition): each.offset for each in self.shard.fetch_offsets(request).offsets}

    def states(self) -> dict[str, str]:
        return {group.group_id: f"{group.group_type} {group.state}" for group in self.shard.list_groups()}

    def clean_up(self) -> None:
        self.shell.carry_out(self.shard.clean_up(self.shell.now_ms))

    def delete(self, *partitions: TopicPartition) -> Asked:
        def call(request: Any, ticket: Any, now_ms: int) -> Effects:
            return self.shard.delete_offsets("g", partitions, ticket, now_ms)

        return self.shell.ask(call, None)

    def join_classic(self, client_id: str = "c") -> str:
        """A member ``m`` of the classic protocol, subscribed to ``t``; returns its id."""
        join = JoinGroup(
            group_id="g",
            member_id="",
            client_id=client_id,
            client_host="/h",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=(("range", b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"),),
            requires_known_member_id=False,
            supports_skipping_assignment=True,
        )
        asked = self.shell.ask(self.shard.join_group, join)
        self.shell.advance(0)
        member_id: str = asked.answer.member_id
        sync = SyncGroup(
            group_id="g", generation=asked.answer.generation, member_id=member_id, assignments={}
        )
        assert self.shell.ask(self.shard.sync_group, sync).answer.error is ErrorCode.NONE
        return member_id

    def heartbeat(self, epoch: int) -> Asked:
        """Of a KIP-848 member ``m``."""
        return self.shell.ask(
            self.shard.consumer_group_heartbeat,
            ConsumerGroupHeartbeat(
                group_id="g",
                member_id="m",
                member_epoch=epoch,
                rebalance_timeout_ms=30_000,
                subscribed_topic_names=("t",),
                topic_partitions={},
                client_id="c",
                client_host="/h",
                version=1,
            ),
        )


@pytest.fixture
def story() -> Story:
    return Story()


def test_offsets_without_members_survive_a_fail_over_and_expire_with_their_group(story: Story) -> None:
    assert story.commit(("t", 0, 5), ("t", 1, 6)).answer == OffsetCommitResult((ErrorCode.NONE,) * 2)
    story.fail_over()
    assert story.visible() == {"t-0": 5, "t-1": 6} and story.states() == {"g": "classic Empty"}
    story.shell.advance(RETENTION_MINUTES * MINUTE_MS)
    story.clean_up()
    assert story.visible() == {} and story.states() == {}
    story.fail_over()
    assert story.visible() == {} and story.states() == {}


def test_what_has_expired_and_cannot_be_removed_is_named_and_goes_another_time(
    story: Story, caplog: pytest.LogCaptureFixture
) -> None:
    story.commit(("t", 0, 5))
    story.shell.advance(RETENTION_MINUTES * MINUTE_MS)
    story.shell.refuse = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few replicas")
    story.clean_up()
    assert story.visible() == {"t-0": 5} and "too few replicas" in caplog.text
    story.shell.refuse = None
    story.clean_up()
    assert story.visible() == {} and story.states() == {}


def test_a_retention_time_beyond_the_end_of_time_is_for_ever(story: Story) -> None:
    assert story.commit(("t", 0, 5), retention_time_ms=2**63 - 1).answer.errors == (ErrorCode.NONE,)
    story.fail_over()  # which reads what was written
    story.shell.advance(100 * RETENTION_MINUTES * MINUTE_MS)
    story.clean_up()
    assert story.visible() == {"t-0": 5}


def test_a_client_id_as_long_as_a_string_may_be_fits_the_record_of_the_group(story: Story) -> None:
    member_id = story.join_classic(client_id="c" * 0x7FFF)
    story.fail_over()
    assert story.states() == {"g": "classic Stable"}
    assert story.commit(("t", 0, 5), generation_or_member_epoch=1, member_id=member_id).answer.errors == (0,)


def test_what_does_not_fit_into_the_log_is_nothing_that_a_client_could_mend(story: Story) -> None:
    story.commit(("t", 0, 5))
    story.shell.refuse = KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
    deletion = story.shell.ask(lambda _, *each: story.shard.delete_group("g", *each), None)
    refused = [deletion, story.delete(TopicPartition("t", 0)), story.commit(("t", 0, 6)), story.heartbeat(0)]
    assert [each.answer.code for each in refused] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 4
    assert story.visible() == {"t-0": 5}


def test_a_classic_group_keeps_the_offsets_that_it_needs(story: Story) -> None:
    member_id = story.join_classic()
    assert story.commit(("t", 0, 5)).answer.code is ErrorCode.UNKNOWN_MEMBER_ID
    commit = story.commit(("t", 0, 5), ("u", 0, 6), generation_or_member_epoch=1, member_id=member_id)
    assert commit.answer.errors == (0, 0)
    stale = story.commit(("t", 0, 5), generation_or_member_epoch=0, member_id=member_id)
    assert stale.answer.code is ErrorCode.ILLEGAL_GENERATION
    assert story.delete(TopicPartition("t", 0), TopicPartition("u", 0)).answer.errors == (
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.NONE,
    )
    assert story.visible() == {"t-0": 5}
    story.fail_over()
    assert story.visible() == {"t-0": 5} and story.states() == {"g": "classic Stable"}
    story.shell.advance(MINUTE_MS)  # the member is gone
    assert story.states() == {"g": "classic Empty"}
    story.shell.advance((RETENTION_MINUTES - 1) * MINUTE_MS)
    story.clean_up()
    assert story.visible() == {"t-0": 5}, "it counts from when the group became empty"
    story.shell.advance(MINUTE_MS)
    story.clean_up()
    assert story.visible() == {} and story.states() == {}


def test_a_commit_is_a_sign_of_life_of_a_classic_member(story: Story) -> None:
    member_id = story.join_classic()
    for _ in range(4):
        story.shell.advance(20_000)
        commit = story.commit(("t", 0, 5), generation_or_member_epoch=1, member_id=member_id)
        assert commit.answer.errors == (0,)
    story.shell.advance(40_000)
    assert story.states() == {"g": "classic Empty"}


def test_a_group_of_kip_848_takes_over_a_simple_one_with_its_offsets(story: Story) -> None:
    story.commit(("t", 0, 5))
    epoch = story.heartbeat(0).answer.member_epoch
    assert story.states()["g"].startswith("consumer")
    stale = story.commit(("t", 0, 6), generation_or_member_epoch=epoch + 5, member_id="m")
    assert stale.answer.code is ErrorCode.STALE_MEMBER_EPOCH
    old = story.commit(("t", 0, 6), generation_or_member_epoch=epoch + 5, member_id="m", version=8)
    assert old.answer.code is ErrorCode.UNSUPPORTED_VERSION
    commit = story.commit(("t", 0, 6), generation_or_member_epoch=epoch, member_id="m")
    assert commit.answer.errors == (0,)
    story.fail_over()
    assert story.visible() == {"t-0": 6} and story.states()["g"].startswith("consumer")
    story.heartbeat(-1)
    story.shell.advance(RETENTION_MINUTES * MINUTE_MS)
    story.clean_up()
    assert story.visible() == {} and story.states() == {}
    story.fail_over()
    assert story.states() == {}


@pytest.mark.parametrize("kind", ["simple", "classic", "consumer"])
def test_a_deleted_group_leaves_nothing(story: Story, kind: str) -> None:
    if kind == "classic":
        story.join_classic()
        story.shell.advance(MINUTE_MS)
    elif kind == "consumer":
        story.heartbeat(0)
        story.heartbeat(-1)
    story.commit(("t", 0, 5), ("u", 1, 6))
    story.shell.hold = True
    story.commit(("u", 2, 7))
    asked = story.shell.ask(story.shard.delete_group, "g")
    story.shell.commit()
    assert asked.answer is None and story.visible() == {} and story.states() == {}
    story.fail_over()
    assert story.visible() == {} and story.states() == {}


def test_many_tombstones_are_not_one_batch(story: Story) -> None:
    for partition in range(0, 2_500, 500):
        story.commit(*(("t", partition + each, 1) for each in range(500)))
    story.commit(("u", 0, 1))
    appends = len(story.shell.appends)
    story.shell.carry_out(story.shard.topics_deleted({"t": UUID(int=1)}, story.shell.now_ms))
    assert [len(append.records) for append in story.shell.appends[appends:]] == [1000, 1000, 500]
    assert story.visible() == {"u-0": 1}
    assert all(isinstance(record.key, OffsetCommitKey) for record in story.shell.log)


def test_a_group_whose_tombstones_are_refused_stays(story: Story) -> None:
    story.commit(("t", 0, 5))
    story.shell.refuse = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    asked = story.shell.ask(story.shard.delete_group, "g")
    assert asked.answer.code is ErrorCode.NOT_COORDINATOR
    assert story.visible() == {"t-0": 5}
