"""Whatever happens to offsets, what is visible and what is in the log agree with a plain model, and a shard
that reads the log again sees the same."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from minikafka.coordinator.group.environment import GroupCounts
from minikafka.coordinator.group.group import Group
from minikafka.coordinator.group.messages import Append, OffsetFetchGroup
from minikafka.coordinator.group.offsets import GroupOffsets
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_records import GroupRecord, OffsetCommitKey, OffsetCommitValue
from minikafka.types import TopicPartition
from tests.unit.coordinator.group.offsets.test_group_offsets import (
    MINUTE_MS,
    RETENTION_MINUTES,
    FakeGroup,
    FakeSettings,
    commit_of,
)
from tests.unit.coordinator.group.shell import FakeShell

GROUPS = ("g", "h")
TOPICS = ("t", "u")
places = st.tuples(st.sampled_from(TOPICS), st.integers(0, 1))
Place = tuple[str, str, int]


def make_offsets(groups: dict[str, Group]) -> GroupOffsets:
    settings: Any = FakeSettings()
    return GroupOffsets(
        groups,
        settings=settings,
        make_simple=lambda group_id, now_ms: FakeGroup(group_id),
        counts=GroupCounts(),
    )


def visible_of(offsets: GroupOffsets) -> dict[Place, int]:
    return {
        (group_id, *each.topic_partition): each.offset
        for group_id in GROUPS
        for each in offsets.fetch(
            OffsetFetchGroup(group_id=group_id, partitions=None, require_stable=False)
        ).offsets
    }


class OffsetsMachine(RuleBasedStateMachine):
    """The model: ``log``, every record with its producer; ``uncertain``, places with a commit that was
    written and did not get committed; ``in_flight``, appends that are written."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: dict[str, Group] = {}
        self.offsets = make_offsets(self.groups)
        self.shell = FakeShell()
        self.shell.hold = True
        self.history: list[tuple[GroupRecord | bool, int]] = []
        """Records, and markers (whether committed), with their producer id."""
        self.uncertain: dict[Place, None] = {}
        self.next_offset = 0

    def note(self, append_from: int) -> None:
        self.history += [(record, -1) for record in self.shell.log[append_from:]]

    @rule(
        group_id=st.sampled_from(GROUPS), where=st.lists(places, min_size=1, max_size=3), refuse=st.booleans()
    )
    def commit(self, group_id: str, where: list[tuple[str, int]], refuse: bool) -> None:
        self.next_offset += len(where)
        committed = [(*place, self.next_offset + i) for i, place in enumerate(where)]
        before = visible_of(self.offsets)
        start = len(self.shell.log)
        self.shell.refuse = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS) if refuse else None
        self.shell.ask(self.offsets.commit, commit_of(*committed, group_id=group_id))
        self.shell.refuse = None
        self.note(start)
        assert visible_of(self.offsets) == before

    @rule(group_id=st.sampled_from(GROUPS), where=st.lists(places, min_size=1, max_size=2))
    def delete(self, group_id: str, where: list[tuple[str, int]]) -> None:
        start = len(self.shell.log)

        def call(request: Any, ticket: Any, now_ms: int) -> Any:
            wanted = [TopicPartition(*place) for place in where]
            return self.offsets.delete(group_id, wanted, ticket, now_ms)

        self.shell.ask(call, None)
        self.note(start)

    @rule(group_id=st.sampled_from(GROUPS), place=places, producer_id=st.integers(1, 2))
    def commit_in_transaction(self, group_id: str, place: tuple[str, int], producer_id: int) -> None:
        self.next_offset += 1
        value = OffsetCommitValue(offset=self.next_offset, commit_timestamp_ms=self.shell.now_ms)
        record = GroupRecord(OffsetCommitKey(group_id, *place), value)
        self.history.append((record, producer_id))
        self.replay(self.offsets, record, producer_id)

    @rule(producer_id=st.integers(1, 2), committed=st.booleans())
    def end_transaction(self, producer_id: int, committed: bool) -> None:
        self.history.append((committed, producer_id))
        self.offsets.replay_marker(producer_id, committed=committed)

    @precondition(lambda self: self.shell.uncommitted)
    @rule()
    def pass_high_watermark(self) -> None:
        append = self.shell.uncommitted.popleft()
        self.shell.carry_out(append.committed(self.shell.now_ms))

    @precondition(lambda self: self.shell.uncommitted)
    @rule()
    def time_out(self) -> None:
        append = self.shell.uncommitted.popleft()
        self.uncertain |= self.places_of(append)
        self.shell.carry_out(append.failed(KafkaError(ErrorCode.REQUEST_TIMED_OUT), self.shell.now_ms))

    @rule(minutes=st.sampled_from((1, RETENTION_MINUTES)))
    def expire(self, minutes: int) -> None:
        self.shell.advance(minutes * MINUTE_MS)
        self.write(self.offsets.expired_records(self.shell.now_ms))

    @rule(topic=st.sampled_from(TOPICS))
    def delete_topic(self, topic: str) -> None:
        self.write(self.offsets.topics_deleted({topic: UUID(int=1)}))
        assert not any(place[1] == topic for place in self.in_log())

    @rule(group_id=st.sampled_from(GROUPS))
    def delete_group(self, group_id: str) -> None:
        self.write(self.offsets.delete_groups_offsets(group_id))
        assert not self.offsets.has_offsets(group_id)

    def write(self, records: list[GroupRecord]) -> None:
        for record in records:
            if isinstance(record.key, OffsetCommitKey):
                self.history.append((record, -1))
                self.replay(self.offsets, record, -1)
            else:
                assert not self.offsets.has_offsets(record.key.group_id)
                del self.groups[record.key.group_id]

    @staticmethod
    def replay(offsets: GroupOffsets, record: GroupRecord, producer_id: int) -> None:
        assert isinstance(record.key, OffsetCommitKey)
        assert record.value is None or isinstance(record.value, OffsetCommitValue)
        offsets.replay(record.key, record.value, producer_id=producer_id)

    @staticmethod
    def places_of(append: Append) -> dict[Place, None]:
        keys = [record.key for record in append.records]
        return {
            (key.group_id, key.topic, key.partition): None for key in keys if isinstance(key, OffsetCommitKey)
        }

    def model(self) -> tuple[dict[Place, int], dict[Place, None]]:
        """The offsets that the log says are committed; all places that it has an offset of."""
        committed: dict[Place, tuple[int, int]] = {}
        pending: dict[tuple[int, Place], tuple[int, int]] = {}
        for position, (what, producer_id) in enumerate(self.history):
            if isinstance(what, bool):
                for key in [key for key in pending if key[0] == producer_id]:
                    entry = pending.pop(key)
                    if what and committed.get(key[1], (-1, 0)) < entry:
                        committed[key[1]] = entry
                continue
            assert isinstance(what.key, OffsetCommitKey)
            place = (what.key.group_id, what.key.topic, what.key.partition)
            if what.value is None:
                committed.pop(place, None)
                for key in [key for key in pending if key[1] == place]:
                    del pending[key]
            else:
                assert isinstance(what.value, OffsetCommitValue)
                entry = (position, what.value.offset)
                if producer_id == -1:
                    committed[place] = entry
                else:
                    pending[producer_id, place] = entry
        places = dict.fromkeys(committed) | dict.fromkeys(place for _, place in pending)
        return {place: offset for place, (_, offset) in committed.items()}, places

    def in_log(self) -> dict[Place, None]:
        return self.model()[1]

    @invariant()
    def what_is_settled_is_visible_as_the_log_says(self) -> None:
        committed, places = self.model()
        for group_id in GROUPS:
            assert self.offsets.has_offsets(group_id) == any(place[0] == group_id for place in places)
        unsettled = dict(self.uncertain)
        for append in self.shell.uncommitted:
            unsettled |= self.places_of(append)
        settled = {place: offset for place, offset in committed.items() if place not in unsettled}
        visible = visible_of(self.offsets)
        assert {place: offset for place, offset in visible.items() if place not in unsettled} == settled
        assert all(place in places for place in visible), "a deleted offset is visible"

    @invariant()
    def a_shard_that_reads_the_log_sees_what_it_says(self) -> None:
        fresh = make_offsets({})
        for what, producer_id in self.history:
            if isinstance(what, bool):
                fresh.replay_marker(producer_id, committed=what)
            else:
                self.replay(fresh, what, producer_id)
        committed, places = self.model()
        assert visible_of(fresh) == committed
        for group_id in GROUPS:
            assert fresh.has_offsets(group_id) == any(place[0] == group_id for place in places)


OffsetsMachine.TestCase.settings = hypothesis_settings(max_examples=60, stateful_step_count=30, deadline=None)
TestOffsets = OffsetsMachine.TestCase
