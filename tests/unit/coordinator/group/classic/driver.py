"""Members of classic groups, for stories: what they ask, and what has to hold after every question."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec

from minikafka.coordinator.group.classic_group import ClassicGroup
from minikafka.coordinator.group.classic_groups import ClassicGroups
from minikafka.coordinator.group.environment import (
    ConsumerGroupSettings,
    GroupCounts,
    MigrationPolicy,
    ShareGroupSettings,
    StreamsGroupSettings,
)
from minikafka.coordinator.group.group import GroupMap, GroupMemory
from minikafka.coordinator.group.messages import (
    GroupOperation,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    OperationKind,
    SyncGroup,
)
from minikafka.errors import ErrorCode
from tests.unit.coordinator.group.shell import Asked, FakeShell

SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000


class Settings(msgspec.Struct, kw_only=True):
    """``GroupSettings`` with Kafka's defaults."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = DELAY_MS
    group_max_size: int = 2**31 - 1
    group_consumer_max_size: int = 2**31 - 1
    group_consumer_regex_refresh_interval_ms: int = 600_000
    group_max_member_metadata_bytes: int = 1 << 20
    group_max_memory_bytes: int = 1 << 28
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_migration_policy: MigrationPolicy = "bidirectional"
    group_share_max_size: int = 200
    group_streams_max_size: int = 100
    group_share_initialize_retry_interval_ms: int = 30_000
    offset_metadata_max_bytes: int = 4096
    offsets_retention_minutes: int = 10_080

    def consumer_group(self, group_id: str) -> ConsumerGroupSettings:
        return ConsumerGroupSettings()

    def share_group(self, group_id: str) -> ShareGroupSettings:
        return ShareGroupSettings()

    def streams_group(self, group_id: str) -> StreamsGroupSettings:
        return StreamsGroupSettings()


def subscription(*topics: str) -> bytes:
    """A ConsumerProtocolSubscription of version 0."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


RANGE = (("range", subscription("t")),)


class Members:
    """Asks on behalf of members of the group "g", and checks all invariants after each question."""

    def __init__(self, **settings: Any) -> None:
        self.settings = Settings(**settings)
        self.shell = FakeShell()
        self.groups = GroupMap(GroupMemory(self.settings, lambda: self.groups.memory.used_bytes))
        self.uuids = 0
        self.counts = GroupCounts()
        self.classic = ClassicGroups(
            self.groups, settings=self.settings, new_uuid=self._new_uuid, counts=self.counts
        )
        self.shell.expired = self.classic.expired

    def _new_uuid(self) -> UUID:
        self.uuids += 1
        return UUID(int=self.uuids)

    @property
    def group(self) -> ClassicGroup:
        group = self.groups["g"]
        assert isinstance(group, ClassicGroup)
        return group

    @property
    def state(self) -> str:
        return self.classic.describe("g").state

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        protocol_type: str = "consumer",
        session_timeout_ms: int = SESSION_MS,
        rebalance_timeout_ms: int = REBALANCE_MS,
        id_first: bool = False,
        skips: bool = True,
    ) -> Asked:
        return self._ask(
            self.classic.join,
            JoinGroup(
                group_id="g",
                member_id=member_id,
                group_instance_id=instance,
                client_id="client",
                client_host="/127.0.0.1",
                session_timeout_ms=session_timeout_ms,
                rebalance_timeout_ms=rebalance_timeout_ms,
                protocol_type=protocol_type,
                protocols=protocols,
                requires_known_member_id=id_first,
                supports_skipping_assignment=skips,
            ),
        )

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = None,
    ) -> Asked:
        return self._ask(
            self.classic.sync,
            SyncGroup(
                group_id="g",
                generation=generation,
                member_id=member_id,
                group_instance_id=instance,
                protocol_type=protocol_type,
                protocol_name=protocol_name,
                assignments=assignments or {},
            ),
        )

    def heartbeat(self, member_id: str, generation: int, *, instance: str | None = None) -> ErrorCode:
        request = Heartbeat(
            group_id="g", generation=generation, member_id=member_id, group_instance_id=instance
        )
        error: ErrorCode = self._ask(self.classic.heartbeat, request).answer.error
        return error

    def leave(self, *members: tuple[str, str | None]) -> list[ErrorCode]:
        leaving = tuple(LeavingMember(member_id, instance) for member_id, instance in members)
        answer = self._ask(self.classic.leave, LeaveGroup("g", leaving)).answer
        assert [member for member, _ in answer.members] == list(leaving)
        return [error for _, error in answer.members]

    def advance(self, duration_ms: int) -> None:
        self.shell.advance(duration_ms)
        self.validate()

    def stable(self, *instances: str | None) -> list[str]:
        """A STABLE group of generation 1 with one member for each; the first leads. Returns their ids."""
        joins = [self.join(instance=instance) for instance in instances]
        while any(join.waits for join in joins):  # the delay is extended once, because others have come
            self.advance(DELAY_MS)
        ids = [join.answer.member_id for join in joins]
        for member_id in reversed(ids):
            self.sync(member_id, 1, {id: id.encode() for id in ids})
        assert self.state == "Stable"
        return ids

    def validate(self) -> None:
        """All invariants, and: who is a member is waited for, or waits itself."""
        self.classic.validate()
        for group in self.groups.values():
            assert isinstance(group, ClassicGroup)
            for member in group.members.values():
                parked = GroupOperation(OperationKind.SESSION, group.group_id, member.member_id)
                assert parked in self.shell.parked or member.satisfies_heartbeat, member
            for member_id in sorted(group.pending_joins):
                assert (
                    GroupOperation(OperationKind.NEW_MEMBER, group.group_id, member_id) in self.shell.parked
                )
            prepares = group.listed().state == "PreparingRebalance"
            assert (group.join_operation in self.shell.parked) == prepares
            assert (group.sync_operation in self.shell.parked) == bool(group.pending_syncs)

    def _ask(self, call: Any, request: Any) -> Asked:
        asked = self.shell.ask(call, request)
        self.validate()
        return asked
