"""What every kind of group has. Kafka: ``org.apache.kafka.coordinator.group.Group``."""

from __future__ import annotations

from collections.abc import Sized
from typing import Protocol

from minikafka.coordinator.group.effects import Effects
from minikafka.coordinator.group.footprint import Footprint
from minikafka.coordinator.group.messages import ListedGroup
from minikafka.protocol.internal.group_records import GroupRecord


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
