"""What one group takes in memory. See ``memory``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

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
