"""What every kind of group has, and what groups may take in memory.

Kafka: ``org.apache.kafka.coordinator.group.Group``.

**What groups may take in memory.** Kafka has no such limit: there a member may bring as much as
``socket.request.max.bytes``, and it stays for as long as the member. Here a member has
``group.max.member.metadata.bytes``, and all groups that a broker coordinates have ``group.max.memory.bytes``,
of which a newcomer may take a part of what is left: those that want much are turned away before those that
want little.

A member that is too large is refused with INVALID_REQUEST: asking again does not help, and clients raise it.
One for which there is no room is refused with GROUP_MAX_SIZE_REACHED, which clients raise as well and which
says what is the matter: the coordinator takes no more members. What was loaded from the log counts and stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from typing import Protocol, runtime_checkable

from minikafka.coordinator.group.environment import GroupSettings
from minikafka.coordinator.group.messages import Effects, ListedGroup
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_records import GroupRecord

GROUP_BYTES = 2_000
MEMBER_BYTES = 2_000
"""Without its strings: what ten thousand of them take, with timers, divided by as many."""
PENDING_JOIN_BYTES = 1_000
"""A member id that was given out, with its timer."""

LEFT_SHARES = 16
"""A member may take this part of what is left at most: with 256 MiB and members of 1 MiB, the last 16 MiB are
for smaller ones."""


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

    @property
    def should_expire(self) -> bool:
        """Whether it goes by itself once it is empty and has no offsets (Kafka: ``shouldExpire``)."""
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


@runtime_checkable
class FencesOldCommits(Protocol):
    """A group whose members may commit with an older epoch, for what they have had since then."""

    def check_committed(self, member_id: str, epoch: int, partitions: Iterable[tuple[str, int]]) -> None:
        """Beside ``check_offset_commit``. ``partitions``: topic and number. Raises STALE_MEMBER_EPOCH."""
        ...


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
