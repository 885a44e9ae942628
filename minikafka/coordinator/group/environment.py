"""The configuration of a group coordinator, and of single groups. Kafka: ``GroupCoordinatorConfig``,
``GroupConfig``.
"""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

MigrationPolicy = Literal["disabled", "upgrade", "downgrade", "bidirectional"]


class ConsumerGroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """KIP-848's, for one group: dynamic configs of the group, else the broker's."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000


class GroupSettings(Protocol):
    """Read again at each use: some change while the broker runs."""

    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_initial_rebalance_delay_ms: int
    group_max_size: int
    group_consumer_max_size: int
    group_max_member_metadata_bytes: int
    group_max_memory_bytes: int
    group_consumer_assignors: tuple[str, ...]
    group_consumer_migration_policy: MigrationPolicy
    offset_metadata_max_bytes: int
    offsets_retention_minutes: int

    def consumer_group(self, group_id: str) -> ConsumerGroupSettings: ...
