"""A world for tests of KIP-848 groups: topics, settings, and consumers that keep to the protocol."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from minikafka.coordinator.group.classic_groups import ClassicGroups
from minikafka.coordinator.group.consumer.consumer_group import ConsumerGroup
from minikafka.coordinator.group.consumer.consumer_groups import ConsumerGroups, GroupUpdater
from minikafka.coordinator.group.environment import (
    ConsumerGroupSettings,
    GroupCounts,
    MigrationPolicy,
    ShareGroupSettings,
    StreamsGroupSettings,
    TopicInfo,
)
from minikafka.coordinator.group.group import GroupMap, GroupMemory
from minikafka.coordinator.group.messages import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
    Effects,
    GroupOperation,
    MayDescribe,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_records import TopicPartitions
from tests.unit.coordinator.group.shell import Asked, FakeShell

GROUP = "readers"


class FakeSettings:
    group_min_session_timeout_ms = 6_000
    group_max_session_timeout_ms = 1_800_000
    group_initial_rebalance_delay_ms = 3_000
    group_max_size = 1_000
    group_consumer_max_size = 1_000
    group_consumer_regex_refresh_interval_ms: int = 600_000
    group_max_member_metadata_bytes = 1 << 20
    group_max_memory_bytes = 1 << 28
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_migration_policy: MigrationPolicy = "bidirectional"
    group_share_max_size = 200
    group_streams_max_size = 100
    group_share_initialize_retry_interval_ms = 30_000
    offset_metadata_max_bytes = 4_096
    offsets_retention_minutes = 10_080

    consumer_group_settings = ConsumerGroupSettings()

    def consumer_group(self, group_id: str) -> ConsumerGroupSettings:
        return self.consumer_group_settings

    def share_group(self, group_id: str) -> ShareGroupSettings:
        return ShareGroupSettings()

    def streams_group(self, group_id: str) -> StreamsGroupSettings:
        return StreamsGroupSettings()


class FakeTopics:
    """Topics that come, grow and go."""

    def __init__(self, **partition_counts: int) -> None:
        self.version = 0
        self._topics: dict[str, TopicInfo] = {}
        for name, partition_count in partition_counts.items():
            self.put(name, partition_count)

    def put(self, name: str, partition_count: int) -> UUID:
        self.version += 1
        known = self._topics.get(name)
        topic_id = UUID(int=1_000 + self.version) if known is None else known.topic_id
        self._topics[name] = TopicInfo(name, topic_id, partition_count)
        return topic_id

    def delete(self, name: str) -> None:
        self.version += 1
        del self._topics[name]

    def id(self, name: str) -> UUID:
        return self._topics[name].topic_id

    def topic(self, name: str) -> TopicInfo | None:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> TopicInfo | None:
        return next((topic for topic in self._topics.values() if topic.topic_id == topic_id), None)

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._topics))


class World:
    """A coordinator with the fake shell around it. ``UUID`` s are counted."""

    def __init__(self, **partition_counts: int) -> None:
        self.topics = FakeTopics(**partition_counts)
        self.settings = FakeSettings()
        self.shell = FakeShell()
        self.counts = GroupCounts()
        self.restart()

    def restart(self) -> None:
        """Another broker leads: it has what is in the log, and begins."""
        self.groups = GroupMap(GroupMemory(self.settings, lambda: self.groups.memory.used_bytes))
        self.classic = ClassicGroups(
            self.groups, settings=self.settings, new_uuid=self._new_uuid, counts=self.counts
        )
        self.coordinator = ConsumerGroups(
            GroupUpdater(
                self.groups,
                classic=self.classic,
                settings=self.settings,
                topics=self.topics,
                new_uuid=self._new_uuid,
                counts=self.counts,
            )
        )
        self.shell.expired = self.expired
        self.shell.parked.clear()
        for record in self.shell.log:
            self.coordinator.replay(record, self.shell.now_ms)
        now_ms = self.shell.now_ms
        self.shell.carry_out(self.classic.loaded(now_ms) + self.coordinator.loaded(now_ms))

    def expired(self, operation: GroupOperation, now_ms: int) -> Effects:
        if isinstance(self.groups.get(operation.group_id), ConsumerGroup):
            return self.coordinator.expired(operation, now_ms)
        return self.classic.expired(operation, now_ms)

    def _new_uuid(self) -> UUID:
        return UUID(int=len(self.shell.asked))

    @property
    def group(self) -> ConsumerGroup:
        group = self.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    def send(self, request: ConsumerGroupHeartbeat) -> Asked:
        return self.shell.ask(self.coordinator.heartbeat, request)

    def heartbeat(
        self,
        member_id: str,
        epoch: int,
        *,
        names: Iterable[str] | None = None,
        regex: str | None = None,
        owned: TopicPartitions | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
        rebalance_timeout_ms: int = -1,
        rack_id: str | None = None,
        version: int = 1,
        may_describe: MayDescribe | None = None,
    ) -> Asked:
        return self.send(
            ConsumerGroupHeartbeat(
                group_id=GROUP,
                member_id=member_id,
                member_epoch=epoch,
                instance_id=instance_id,
                rack_id=rack_id,
                rebalance_timeout_ms=rebalance_timeout_ms,
                subscribed_topic_names=None if names is None else tuple(names),
                subscribed_topic_regex=regex,
                server_assignor=assignor,
                topic_partitions=owned,
                client_id="client",
                client_host="/127.0.0.1",
                version=version,
                may_describe=may_describe,
            )
        )


class FakeConsumer:
    """A consumer as clients are: it gives back what is taken from it, says what it owns when it changes, and
    says everything when it joins or has missed an answer."""

    def __init__(
        self,
        world: World,
        member_id: str,
        *names: str,
        regex: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
        asks_again: bool = True,
    ) -> None:
        """``asks_again``: it says everything when it has missed an answer; librdkafka does not."""
        self.world = world
        self.asks_again = asks_again
        self.member_id = member_id
        self.names = names
        self.regex = regex
        self.instance_id = instance_id
        self.assignor = assignor
        self.may_describe: MayDescribe | None = None
        self.epoch = 0
        self.owned: TopicPartitions = {}
        self._has_said_all = False
        """The next heartbeat is a full one until then."""
        self._has_news = False
        """It was assigned something since it last said what it owns, be it what it had before: Java's
        consumer counts its assignments for that (``LocalAssignment``)."""

    def beat(self, *, answer_is_lost: bool = False) -> Asked:
        """One heartbeat, and what comes back is done at once."""
        says_all = self.epoch == 0 or not self._has_said_all
        owned = self.owned if says_all or self._has_news else None
        asked = self.world.heartbeat(
            self.member_id,
            self.epoch,
            names=self.names if says_all and self.regex is None else None,
            regex=self.regex if says_all else None,
            owned=owned,
            instance_id=self.instance_id,
            assignor=self.assignor,
            rebalance_timeout_ms=60_000 if says_all else -1,
            may_describe=self.may_describe,
        )
        if answer_is_lost:
            self._has_said_all = not self.asks_again
        else:
            self._has_said_all, self._has_news = True, False
            if not asked.waits:
                self.hear(asked.answer)
        return asked

    def hear(self, answer: ConsumerGroupHeartbeatResult | KafkaError) -> None:
        if isinstance(answer, KafkaError):
            assert answer.code in (
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.GROUP_ID_NOT_FOUND,
            ), answer
            self._restart()
            return
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.take(answer.assignment)

    def take(self, assignment: TopicPartitions) -> None:
        """Own these, and give the others back; the next heartbeat says so."""
        self.owned, self._has_news = assignment, True

    def subscribe(self, *names: str) -> None:
        """Other topics, in a heartbeat of its own."""
        self.names = names
        asked = self.world.heartbeat(self.member_id, self.epoch, names=names)
        if not asked.waits:
            self.hear(asked.answer)

    def leave(self, *, for_a_while: bool = False) -> Asked:
        asked = self.world.heartbeat(self.member_id, -2 if for_a_while else -1, instance_id=self.instance_id)
        self._restart()
        return asked

    def _restart(self) -> None:
        self.epoch, self.owned, self._has_said_all = 0, {}, False


def settle(*consumers: FakeConsumer, rounds: int = 12) -> None:
    """The heartbeats of all members, until nothing changes any more."""
    for _ in range(rounds):
        before = len(consumers[0].world.shell.log)
        for consumer in consumers:
            consumer.beat()
        if len(consumers[0].world.shell.log) == before:
            return
    raise AssertionError(f"the group does not settle: {consumers[0].world.group!r}")
