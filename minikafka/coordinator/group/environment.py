"""What a group coordinator works with: its configuration, the cluster's topics, counts, and a history.

Kafka: ``GroupCoordinatorConfig`` and ``GroupConfig`` (of single groups), ``MetadataImage`` with its
``TopicsImage``, ``GroupCoordinatorMetrics``.

``GroupHistory`` remembers what the last rebalances of each group were for, and which members it has lost, for
``minikafka why group``; Kafka has this in its log alone. It is bounded in every direction: so many groups, of
each so many events, and no text longer than it has to be, because member ids, client ids and reasons are what
clients make them. It is lost with the broker, and with its leadership of the group: the next coordinator
begins with an empty one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import Final, Literal, Protocol, Self
from uuid import UUID

import msgspec

from minikafka.config.group import GroupConfig, auto_offset_reset
from minikafka.flight_recorder import GroupRebalanced, Record, cut, not_recorded
from minikafka.named_tuple import NamedTuple

MigrationPolicy = Literal["disabled", "upgrade", "downgrade", "bidirectional"]

HISTORIES_MAX: Final = 1_000
"""With a full history of short texts each a few MB."""
HISTORY_EVENTS_MAX: Final = 16
HISTORY_TEXT_MAX: Final = 256


class ConsumerGroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """KIP-848's, for one group: dynamic configs of the group, else the broker's."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 0
    assignor_offload_enable: bool = True


class ShareGroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for one share group (KIP-932), for its coordinator and for the leaders of its partitions:
    dynamic configs of the group, else the broker's."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    assignor_offload_enable: bool = True
    record_lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    partition_max_record_locks: int = 2_000
    auto_offset_reset: str = "latest"
    """``latest``, ``earliest`` or ``by_duration``."""
    auto_offset_reset_ms: int = 0
    """The duration of ``by_duration``."""
    is_read_committed: bool = False
    renew_acknowledge_enable: bool = True
    dead_letter_topic: str = ""
    """Empty for none (KIP-1191)."""
    dead_letters_have_records: bool = False
    """Whether keys and values are copied there."""

    @classmethod
    def of(cls, config: GroupConfig) -> Self:
        """What a group's configuration comes to."""
        strategy, duration_ms = auto_offset_reset(config.share_auto_offset_reset)
        return cls(
            session_timeout_ms=config.share_session_timeout_ms,
            heartbeat_interval_ms=config.share_heartbeat_interval_ms,
            assignment_interval_ms=config.share_assignment_interval_ms,
            assignor_offload_enable=config.share_assignor_offload_enable,
            record_lock_duration_ms=config.share_record_lock_duration_ms,
            delivery_count_limit=config.share_delivery_count_limit,
            partition_max_record_locks=config.share_partition_max_record_locks,
            auto_offset_reset=strategy,
            auto_offset_reset_ms=duration_ms,
            is_read_committed=config.share_isolation_level == "read_committed",
            renew_acknowledge_enable=config.share_renew_acknowledge_enable,
            dead_letter_topic=config.errors_deadletterqueue_topic_name,
            dead_letters_have_records=config.errors_deadletterqueue_copy_record_enable,
        )


class StreamsGroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for one streams group (KIP-1071): dynamic configs of the group, else the broker's."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 0
    initial_rebalance_delay_ms: int = 3_000
    num_standby_replicas: int = 0
    num_warmup_replicas: int = 2
    task_offset_interval_ms: int = 60_000
    acceptable_recovery_lag: int = 10_000
    assignor_offload_enable: bool = True
    rack_aware_assignment_tags: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: GroupConfig) -> Self:
        """What a group's configuration comes to."""
        return cls(
            session_timeout_ms=config.streams_session_timeout_ms,
            heartbeat_interval_ms=config.streams_heartbeat_interval_ms,
            assignment_interval_ms=config.streams_assignment_interval_ms,
            initial_rebalance_delay_ms=config.streams_initial_rebalance_delay_ms,
            num_standby_replicas=config.streams_num_standby_replicas,
            num_warmup_replicas=config.streams_num_warmup_replicas,
            task_offset_interval_ms=config.streams_task_offset_interval_ms,
            acceptable_recovery_lag=config.streams_acceptable_recovery_lag,
            assignor_offload_enable=config.streams_assignor_offload_enable,
            rack_aware_assignment_tags=config.streams_rack_aware_assignment_tags,
        )


class GroupSettings(Protocol):
    """Read again at each use: some change while the broker runs."""

    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_initial_rebalance_delay_ms: int
    group_max_size: int
    group_consumer_max_size: int
    group_consumer_regex_refresh_interval_ms: int
    group_max_member_metadata_bytes: int
    group_max_memory_bytes: int
    group_consumer_assignors: tuple[str, ...]
    group_consumer_migration_policy: MigrationPolicy
    group_share_max_size: int
    group_share_initialize_retry_interval_ms: int
    group_streams_max_size: int
    offset_metadata_max_bytes: int
    offsets_retention_minutes: int

    def consumer_group(self, group_id: str) -> ConsumerGroupSettings: ...

    def share_group(self, group_id: str) -> ShareGroupSettings: ...

    def streams_group(self, group_id: str) -> StreamsGroupSettings: ...


class TopicInfo(NamedTuple):
    name: str
    topic_id: UUID
    partition_count: int


class TopicImage(Protocol):
    """The topics as they are now; ``version`` rises whenever one comes, grows or goes."""

    @property
    def version(self) -> int: ...

    def topic(self, name: str) -> TopicInfo | None: ...

    def topic_by_id(self, topic_id: UUID) -> TopicInfo | None: ...

    def names(self) -> tuple[str, ...]:
        """In alphabetical order; the same tuple while ``version`` is the same."""
        ...


class GroupCounts:
    """Of all partitions that a broker has coordinated since it started: shards come and go, this stays."""

    __slots__ = (
        "completed_rebalances",
        "consumer_group_rebalances",
        "history",
        "offset_commits",
        "offset_deletions",
        "offset_expirations",
        "record",
        "share_group_rebalances",
        "streams_group_rebalances",
    )

    def __init__(self) -> None:
        self.offset_commits = 0
        """Offsets that were to be written, those of transactions too."""
        self.offset_expirations = 0
        self.offset_deletions = 0
        """Those that OffsetDelete asked for."""
        self.completed_rebalances = 0
        """Of classic groups: all members have their assignments."""
        self.consumer_group_rebalances = 0
        """Epochs of KIP-848 groups that began because of what a member said or of a change of topics."""

        self.share_group_rebalances = 0
        """The same of share groups."""
        self.streams_group_rebalances = 0
        """The same of streams groups."""
        self.history = GroupHistory()
        """Which rebalances those were."""
        self.record: Record = not_recorded
        """The broker's flight recorder."""

    def __repr__(self) -> str:
        counts = (name for name in self.__slots__ if name != "record")
        values = ", ".join(f"{name}={getattr(self, name)}" for name in counts)
        return f"GroupCounts({values})"

    def rebalance_begins(self, group: str, *, generation: int, members: int, cause: str) -> None:
        """Keep why in the flight recorder. ``generation``: the generation or group epoch that ends."""
        self.record(
            GroupRebalanced(group=cut(group), generation=generation, members=members, cause=cut(cause))
        )


class GroupEventKind(Enum):
    """Values are what diagnostics show."""

    REBALANCE = "rebalance"
    """One began."""
    COMPLETED = "completed"
    """All members of the new generation have joined."""
    LEFT = "left"
    """A member left by itself, or an administrator removed it."""
    REMOVED = "removed"
    """The coordinator took a member for dead, or it did not do what it was told."""


class GroupEvent(msgspec.Struct, frozen=True):
    """``member_id`` and ``client_id`` are empty where no single member is meant."""

    at_ms: int
    kind: GroupEventKind
    why: str
    member_id: str = ""
    client_id: str = ""


class GroupHistory:
    """Of all groups that a broker has coordinated; those that had no event for the longest time go first."""

    def __init__(self) -> None:
        self._events: dict[str, deque[GroupEvent]] = {}

    def __repr__(self) -> str:
        return f"GroupHistory({len(self._events)} groups)"

    def note(
        self,
        group_id: str,
        kind: GroupEventKind,
        why: str,
        *,
        now_ms: int,
        member_id: str = "",
        client_id: str = "",
    ) -> None:
        events = self._events.pop(group_id, None)
        if events is None:
            events = deque(maxlen=HISTORY_EVENTS_MAX)
            if len(self._events) >= HISTORIES_MAX:
                del self._events[next(iter(self._events))]
        self._events[group_id] = events  # the last one in the order of the dict
        texts = (text[:HISTORY_TEXT_MAX] for text in (why, member_id, client_id))
        events.append(GroupEvent(now_ms, kind, *texts))

    def of(self, group_id: str) -> Sequence[GroupEvent]:
        """The oldest first."""
        return tuple(self._events.get(group_id, ()))
