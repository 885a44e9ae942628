"""What the groups of a coordinator have done, for its metrics. Kafka: ``GroupCoordinatorMetrics``."""

from __future__ import annotations


class GroupCounts:
    """Of all partitions that a broker has coordinated since it started: shards come and go, this stays."""

    __slots__ = (
        "completed_rebalances",
        "consumer_group_rebalances",
        "offset_commits",
        "offset_deletions",
        "offset_expirations",
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

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)}" for name in self.__slots__)
        return f"GroupCounts({values})"
