"""What the groups of a coordinator take in memory, and how much they may.

Kafka has no such limit: there a member may bring as much as ``socket.request.max.bytes``, and it stays for as
long as the member. Here a member has ``group.max.member.metadata.bytes``, and all groups that a broker
coordinates have ``group.max.memory.bytes``, of which a newcomer may take a part of what is left: those that
want much are turned away before those that want little.

A member that is too large is refused with INVALID_REQUEST: asking again does not help, and clients raise it.
One for which there is no room is refused with GROUP_MAX_SIZE_REACHED, which clients raise as well and which
says what is the matter: the coordinator takes no more members. What was loaded from the log counts and stays.
"""

from __future__ import annotations

from collections.abc import Callable

from minikafka.coordinator.group.environment import GroupSettings
from minikafka.coordinator.group.group import Group
from minikafka.errors import ErrorCode, KafkaError

LEFT_SHARES = 16
"""A member may take this part of what is left at most: with 256 MiB and members of 1 MiB, the last 16 MiB are
for smaller ones."""


class GroupMemory:
    """Counts the bytes of one shard's groups, and checks those that are to come."""

    __slots__ = ("_of_all", "_settings", "used_bytes")

    def __init__(self, settings: GroupSettings, of_all: Callable[[], int]) -> None:
        """``of_all``: what all shards of the broker take, this one too."""
        self._settings = settings
        self._of_all = of_all
        self.used_bytes = 0

    def __repr__(self) -> str:
        return f"GroupMemory({self.used_bytes} bytes)"

    def check_member(self, size_bytes: int, *, before_bytes: int = 0) -> None:
        """Whether a member may tell so much about itself; ``before_bytes``: what it has told until now.

        Raises:
            KafkaError: INVALID_REQUEST, GROUP_MAX_SIZE_REACHED; never for one that does not grow.
        """
        if size_bytes <= before_bytes:
            return
        allowed = self._settings.group_max_member_metadata_bytes
        if size_bytes > allowed:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"The member's metadata has {size_bytes} bytes, allowed are {allowed} "
                "(group.max.member.metadata.bytes).",
            )
        self._check_room((size_bytes - before_bytes) * LEFT_SHARES)

    def check_assignment(self, size_bytes: int) -> None:
        """Whether a leader may assign so much.

        Raises:
            KafkaError: GROUP_MAX_SIZE_REACHED.
        """
        self._check_room(size_bytes)

    def _check_room(self, needed_bytes: int) -> None:
        allowed, used_bytes = self._settings.group_max_memory_bytes, self._of_all()
        if used_bytes + needed_bytes > allowed:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The groups of this coordinator take {used_bytes} of {allowed} bytes "
                "(group.max.memory.bytes).",
            )


class GroupMap(dict[str, Group]):
    """The groups of a shard by id. Those in it count; a draft of a change does not."""

    def __init__(self, memory: GroupMemory) -> None:
        super().__init__()
        self.memory = memory

    def __setitem__(self, group_id: str, group: Group) -> None:
        if group_id in self:
            del self[group_id]
        super().__setitem__(group_id, group)
        group.footprint.enter(self.memory)

    def __delitem__(self, group_id: str) -> None:
        self[group_id].footprint.leave()
        super().__delitem__(group_id)
