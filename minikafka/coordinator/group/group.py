"""What every kind of group has. Kafka: ``org.apache.kafka.coordinator.group.Group``.

What one group takes in memory. See ``memory``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import Protocol

from minikafka.coordinator.group.effects import Effects
from minikafka.coordinator.group.messages import ListedGroup
from minikafka.protocol.internal.group_records import GroupRecord

GROUP_BYTES = 2_000
MEMBER_BYTES = 2_000
"""Without its strings: what ten thousand of them take, with timers, divided by as many."""
PENDING_JOIN_BYTES = 1_000
"""A member id that was given out, with its timer."""


class Memory(Protocol):
    """Where what all groups take is added up."""

    used_bytes: int


class Footprint:
    """Bytes of a group; while it is one of a shard's groups, they count there too."""

    __slots__ = ("_memory", "size_bytes")

    def __init__(self, group_id: str, size_bytes: int = 0) -> None:
        self._memory: Memory | None = None
        self.size_bytes = size_bytes or GROUP_BYTES + len(group_id)

    def __repr__(self) -> str:
        return f"Footprint({self.size_bytes} bytes)"

    def adjust(self, change_bytes: int) -> None:
        """The group has grown, or shrunk."""
        self.size_bytes += change_bytes
        if self._memory is not None:
            self._memory.used_bytes += change_bytes

    def enter(self, memory: Memory) -> None:
        """The group is one of a shard's."""
        memory.used_bytes += self.size_bytes
        self._memory = memory

    def leave(self) -> None:
        """It is none any more."""
        if self._memory is not None:
            self._memory.used_bytes -= self.size_bytes
            self._memory = None


def member_bytes(strings: Iterable[str | None], metadata: Iterable[tuple[str, bytes]] = ()) -> int:
    """What a member takes that is described by ``strings`` and, in the classic protocol, by ``metadata``."""
    told = sum(len(text) for text in strings if text) + sum(len(name) + len(data) for name, data in metadata)
    return MEMBER_BYTES + told


class Group(Protocol):
    """One group. Checks raise KafkaError and change nothing."""

    @property
    def group_id(self) -> str: ...

    @property
    def members(self) -> Sized: ...

    @property
    def footprint(self) -> Footprint: ...

    @property
    def is_empty(self) -> bool:
        """No members."""
        ...

    def listed(self) -> ListedGroup: ...

    def check_offset_commit(
        self,
        *,
        member_id: str,
        group_instance_id: str | None,
        generation_or_member_epoch: int,
        version: int,
        is_transactional: bool = False,
    ) -> None:
        """Kafka: ``validateOffsetCommit``. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
        ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, STALE_MEMBER_EPOCH."""
        ...

    def check_offset_fetch(self, *, member_id: str | None, member_epoch: int) -> None:
        """Kafka: ``validateOffsetFetch``. Raises UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH."""
        ...

    def check_offset_delete(self) -> None:
        """Kafka: ``validateOffsetDelete``. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        ...

    def check_delete(self) -> None:
        """Kafka: ``validateDeleteGroup``. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether offsets of ``topic`` are in use: not deleted on demand, and not expired."""
        ...

    def offsets_expire_after(self, *, commit_timestamp_ms: int) -> int | None:
        """From when the retention of an offset counts (``OffsetExpirationCondition``): the commit's time for
        a group without members of a consumer's kind, the time when the group became empty; None while its
        offsets do not expire."""
        ...

    def heard_of(self, member_id: str) -> Effects:
        """A commit has come from the member: as good as a heartbeat (classic protocol); else nothing."""
        ...

    def tombstones(self) -> list[GroupRecord]:
        """What removes the group itself, without its offsets, from the log."""
        ...
