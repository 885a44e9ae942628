"""A member of a group of the classic protocol. Kafka: ``ClassicGroupMember``."""

from __future__ import annotations

from uuid import UUID

from minikafka.coordinator.group.effects import (
    Complete,
    GroupOperation,
    OperationKind,
    Park,
    Ticket,
)
from minikafka.coordinator.group.footprint import member_bytes
from minikafka.errors import InvariantError

Protocols = tuple[tuple[str, bytes], ...]
"""Name and metadata of what a member supports, the preferred one first."""

MEMBER_ID_PREFIX_MAX = 249
"""Characters: as many as Kafka's clients allow an instance id to have
(``JoinGroupRequest.MAX_GROUP_INSTANCE_ID_LENGTH``)."""


def new_member_id(prefix: str, unique: UUID) -> str:
    """Of a member with this client or instance id (``ClassicGroup.generateMemberId``). Those are strings of
    any length; as long as one may be, with something behind it, would fit neither the group's record nor what
    its leader can read."""
    return f"{prefix[:MEMBER_ID_PREFIX_MAX]}-{unique}"


class ClassicMember:
    """What it is, what it supports, what it was assigned, and which of its requests wait.

    Only its ``ClassicGroup`` changes ``protocols``, ``assignment`` and ``awaiting_join``, which it counts.
    The effects that begin and end its session are kept here, because a heartbeat is the request that a
    coordinator sees most.
    """

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "end_session",
        "group_instance_id",
        "is_new",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session",
    )

    def __init__(
        self,
        member_id: str,
        *,
        group_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        operation = GroupOperation(OperationKind.SESSION, group_id, member_id)
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.assignment = assignment
        self.awaiting_join: Ticket | None = None
        self.awaiting_sync: Ticket | None = None
        self.is_new = False
        """Has joined and not been answered yet: it may not know its id, so it cannot send heartbeats."""
        self.session = Park(operation, session_timeout_ms)
        self.end_session = Complete(operation)

    def __repr__(self) -> str:
        waits = "".join(
            f", awaits {name}"
            for name, ticket in (("join", self.awaiting_join), ("sync", self.awaiting_sync))
            if ticket is not None
        )
        static = "" if self.group_instance_id is None else f", group_instance_id={self.group_instance_id!r}"
        return (
            f"ClassicMember({self.member_id!r}{static}, protocols={[name for name, _ in self.protocols]}, "
            f"{len(self.assignment)} bytes assigned{', new' if self.is_new else ''}{waits})"
        )

    @property
    def session_timeout_ms(self) -> int:
        return self.session.timeout_ms

    @session_timeout_ms.setter
    def session_timeout_ms(self, timeout_ms: int) -> None:
        if timeout_ms != self.session.timeout_ms:
            self.session = Park(self.session.operation, timeout_ms)

    @property
    def size_bytes(self) -> int:
        """What it takes in memory."""
        about = (self.member_id, self.group_instance_id, self.client_id, self.client_host)
        return member_bytes(about, self.protocols) + len(self.assignment)

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def satisfies_heartbeat(self) -> bool:
        """Whether the member is alive although its session is over: it waits for us. A new one is not taken
        for alive, because nobody knows whether its client has gone and asked again as somebody else."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol: str) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise InvariantError(f"{self!r} does not support {protocol!r}")
