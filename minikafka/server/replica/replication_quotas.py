"""How fast throttled replicas may be copied (KIP-73): three rates, and the partitions that they hold for.

Kafka: ``ReplicationQuotaManager``, ``QuotaFactory.QuotaManagers``, and the parts of ``ConfigHandler`` that
feed them. A broker has one quota for what it leads and others fetch, one for what it follows, and one for
moving replicas between its log directories (KIP-113).

Who asks what:

- Code that is about to move bytes of a listed partition for a replica that is *not in sync* asks
  ``is_quota_exceeded`` and leaves the partition out while it is. In-sync replicas are never held back, or
  the throttle would shrink the ISR.
- Bytes of a listed partition are recorded when they were moved, also for replicas that are in sync: the rate
  is that of all the traffic. So nothing is refused in advance, and a quota is overdrawn by at most what one
  fetch brings.

Invariants: only replicas of this broker are listed here; without a rate nothing is ever exceeded. Times are
readings of the monotonic clock, in milliseconds.

Differs from Kafka: bytes are those of the records; Kafka's leader counts the fields around them too. The
rates may also stand in the broker's file; Kafka reads them from dynamic configuration only.
"""

from __future__ import annotations

from minikafka.config.broker import BrokerConfig
from minikafka.config.definition import LONG_MAX
from minikafka.config.topic import ALL, ThrottledPartitions, TopicConfig, throttled_partitions
from minikafka.metrics.stats import SimpleRate, WindowConfig
from minikafka.types import BrokerId, TopicPartition


class ReplicationQuotaManager:
    """One rate of bytes per second, for the partitions that are listed."""

    __slots__ = ("_held_back", "_measured", "_rate", "_throttled")

    def __init__(self, windows: WindowConfig) -> None:
        self._measured = SimpleRate(windows)
        self._rate: int | None = None
        self._throttled: dict[str, ThrottledPartitions] = {}
        self._held_back: dict[TopicPartition, int] = {}

    def __repr__(self) -> str:
        rate = "no limit" if self._rate is None else f"{self._rate} bytes/s"
        return f"ReplicationQuotaManager({rate}, throttled={self._throttled})"

    @property
    def is_active(self) -> bool:
        """Whether any partition is listed: if not, no further question is needed."""
        return bool(self._throttled)

    @property
    def bound(self) -> int | None:
        """Bytes a second; None for no limit."""
        return self._rate

    def rate(self, now_ms: int) -> float:
        """Bytes a second, as measured."""
        return self._measured.measure(now_ms)

    def is_throttled(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition is listed."""
        partitions = self._throttled.get(topic_partition.topic)
        return partitions is not None and (partitions is ALL or topic_partition.partition in partitions)

    def is_quota_exceeded(self, now_ms: int) -> bool:
        """Whether more was recorded lately than the rate allows."""
        return self._rate is not None and self._measured.measure(now_ms) > self._rate

    def record(self, size_bytes: int, now_ms: int) -> None:
        """So many bytes of listed partitions were moved, within the quota or not."""
        self._measured.record(size_bytes, now_ms)

    def note_held_back(self, topic_partition: TopicPartition) -> None:
        """A fetch goes without this partition, because the quota is exceeded."""
        self._held_back[topic_partition] = self._held_back.get(topic_partition, 0) + 1

    @property
    def held_back(self) -> dict[TopicPartition, int]:
        """How often each of the listed partitions was left out; a copy."""
        return dict(self._held_back)

    def update_rate(self, bytes_per_s: int | None) -> None:
        """The limit from now on; None for none."""
        self._rate = bytes_per_s

    def mark_throttled(self, topic: str, partitions: ThrottledPartitions) -> None:
        """List these partitions of a topic, and no others of it."""
        if partitions:
            self._throttled[topic] = partitions
        else:
            self._throttled.pop(topic, None)
        for topic_partition in [each for each in self._held_back if each.topic == topic]:
            if not self.is_throttled(topic_partition):
                del self._held_back[topic_partition]


class ReplicationQuotas:
    """The three quotas of a broker, fed by its configuration (``QuotaManagers``)."""

    __slots__ = ("_node_id", "alter_log_dirs", "follower", "leader")

    def __init__(self, config: BrokerConfig, *, node_id: BrokerId) -> None:
        windows = WindowConfig(
            config.replication_quota_window_num, config.replication_quota_window_size_seconds * 1000
        )
        self._node_id = node_id
        self.leader = ReplicationQuotaManager(windows)
        """For what followers fetch here."""
        self.follower = ReplicationQuotaManager(windows)
        """For what this broker's fetchers bring."""
        self.alter_log_dirs = ReplicationQuotaManager(
            WindowConfig(
                config.alter_log_dirs_replication_quota_window_num,
                config.alter_log_dirs_replication_quota_window_size_seconds * 1000,
            )
        )
        """For what moves between this broker's log directories; holds for all of it, so nothing is listed."""
        self.update_rates(config)

    def __repr__(self) -> str:
        return (
            f"ReplicationQuotas(leader={self.leader}, follower={self.follower}, "
            f"alter_log_dirs={self.alter_log_dirs})"
        )

    def update_rates(self, config: BrokerConfig) -> None:
        """The broker's configuration has changed (``BrokerConfigHandler``)."""
        self.leader.update_rate(_limit(config.leader_replication_throttled_rate))
        self.follower.update_rate(_limit(config.follower_replication_throttled_rate))
        self.alter_log_dirs.update_rate(_limit(config.replica_alter_log_dirs_io_max_bytes_per_second))

    def update_topic(self, topic: str, config: TopicConfig) -> None:
        """A topic's configuration was read or has changed (``TopicConfigHandler``)."""
        for quota, replicas in (
            (self.leader, config.leader_replication_throttled_replicas),
            (self.follower, config.follower_replication_throttled_replicas),
        ):
            quota.mark_throttled(topic, throttled_partitions(replicas, self._node_id))


def _limit(bytes_per_s: int) -> int | None:
    return None if bytes_per_s == LONG_MAX else bytes_per_s
