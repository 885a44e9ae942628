"""A consumer of the classic protocol for tests of groups that change their protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minikafka.coordinator.group.consumer.consumer_group import ConsumerGroup
from minikafka.coordinator.group.messages import (
    Heartbeat,
    HeartbeatResult,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
    SyncGroupResult,
)
from minikafka.errors import ErrorCode
from minikafka.protocol.internal.consumer_protocol import read_assignment, write_assignment
from tests.unit.coordinator.group.consumer.world import GROUP, World
from tests.unit.coordinator.group.shell import Asked


def subscription(*topics: str, owned: Mapping[str, tuple[int, ...]]) -> bytes:
    """Version 1. Its owned partitions look like an assignment without its version and user data."""
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return (
        b"\0\1"
        + len(topics).to_bytes(4, "big")
        + names
        + b"\xff" * 4
        + write_assignment(owned, version=1)[2:-4]
    )


class ClassicConsumer:
    """A cooperative consumer of the classic protocol; as a leader it gives out what the test says."""

    def __init__(
        self,
        world: World,
        name: str,
        *,
        instance_id: str | None = None,
        assignor: str = "cooperative-sticky",
        metadata: bytes | None = None,
        asks_for_id: bool = False,
    ) -> None:
        """``metadata`` in the place of a subscription; ``asks_for_id`` as clients since JoinGroup 4 do."""
        self.world = world
        self.name = name
        self.instance_id = instance_id
        self.assignor = assignor
        self.metadata = metadata
        self.asks_for_id = asks_for_id
        self.member_id = ""
        self.generation = -1
        self.owned: dict[str, tuple[int, ...]] = {}
        self.joining: Asked | None = None

    def _request(self, request: Any, name: str) -> Asked:
        world = self.world
        if isinstance(world.groups.get(GROUP), ConsumerGroup):
            return world.shell.ask(getattr(world.coordinator, f"classic_{name}"), request)
        return world.shell.ask(getattr(world.classic, name), request)

    def join(self) -> Asked:
        self.joining = self._request(
            JoinGroup(
                group_id=GROUP,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                client_id=self.name,
                client_host="/127.0.0.1",
                session_timeout_ms=30_000,
                rebalance_timeout_ms=60_000,
                protocol_type="consumer",
                protocols=((self.assignor, self.metadata or subscription("orders", owned=self.owned)),),
                requires_known_member_id=self.asks_for_id,
                supports_skipping_assignment=True,
            ),
            "join",
        )
        return self.joining

    def joined(self) -> JoinGroupResult:
        assert self.joining is not None
        result = self.joining.answer
        assert isinstance(result, JoinGroupResult)
        if result.error is ErrorCode.NONE:
            self.member_id, self.generation = result.member_id, result.generation
        return result

    def ask_sync(self, assignments: Mapping[str, bytes] | None = None) -> Asked:
        return self._request(
            SyncGroup(
                group_id=GROUP,
                generation=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                assignments=assignments or {},
            ),
            "sync",
        )

    def sync(self, assignments: Mapping[str, bytes] | None = None) -> SyncGroupResult:
        result = self.ask_sync(assignments).answer
        assert isinstance(result, SyncGroupResult)
        if result.error is ErrorCode.NONE:
            self.hear_assignment(result)
        return result

    def hear_assignment(self, result: SyncGroupResult) -> None:
        self.owned = dict(read_assignment(result.assignment).partitions)

    def beat(self) -> ErrorCode:
        result = self._request(
            Heartbeat(
                group_id=GROUP,
                generation=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
            ),
            "heartbeat",
        ).answer
        assert isinstance(result, HeartbeatResult)
        return result.error

    def leave(self) -> list[ErrorCode]:
        request = LeaveGroup(GROUP, (LeavingMember(self.member_id, self.instance_id),))
        return [error for _, error in self._request(request, "leave").answer.members]

    def do_as_told(self) -> ErrorCode:
        """A heartbeat; if it says so, join again and fetch what there is."""
        error = self.beat()
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
            if self.joining is not None and not self.joining.waits:
                self.joined()
                self.sync()
        return error
