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

**How fast followers catch up** (``CatchUpPace``): in small chunks, and with pauses between them while
producers wait. A follower that has much to fetch asks again as soon as it has appended what it got. So it
keeps two brokers busy without a break, and what acks=all waits for stands in the same queues. While producers
wait a chunk is smaller, and after it the follower is paused for as long as the chunk was under way, from its
answer to the next fetch: the busier the brokers are, the longer that takes. So catching up has about half of
their time. Partitions in which the follower is in the ISR, or about to be, are answered during the pause too,
because producers wait for it there.

There is no pause when no producer waits, nor for a follower that would not catch up then: it has to advance
at least twice as fast as producers write.

Kafka's fetchers have threads, and leave the sharing to the operating system.

What it brings, while a follower fetches 1 GB and a producer sends 460 records a second with acks=all, median
of three pairs: their 99th percentile is 4.7 ms, and 6.3 without it; in sync after 2.5 s, and 1.7 without it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from weakref import WeakKeyDictionary

from minikafka.clock import Clock
from minikafka.config.broker import BrokerConfig
from minikafka.config.definition import LONG_MAX
from minikafka.config.topic import ALL, ThrottledPartitions, TopicConfig, throttled_partitions
from minikafka.metrics.sensors import SimpleRate, WindowConfig
from minikafka.named_tuple import NamedTuple
from minikafka.server.runtime.fast_paths import SWITCHED_OFF, FastPath
from minikafka.types import BrokerId, TopicPartition

CATCH_UP_BYTES_MAX = 1 << 18
"""A chunk. While 20 followers moved under load, at 220 to 240 MB/s in each case, the p99 of produce was about
16 ms with it, 28 ms with four times as much, and over 100 ms with the 10 MiB of
``replica.fetch.response.max.bytes``."""

CATCH_UP_BYTES_MAX_UNDER_LOAD = 1 << 17
"""A chunk while producers with acks=all wait. Not always, because a throttled follower pauses after each
answer, whatever came, and so would take a tenth longer.

With it and the pauses 20 followers moved at 126 to 211 MB/s instead of 200 to 310. The p99 of produce was
1.9 to 2.9 times that of quiet for librdkafka and 2.1 to 3.8 times for Kafka's producer, instead of 2.5 to 4.2
and 3.0 to 3.6.
"""

PAUSE_MS_MAX = 100
"""Also after a chunk whose follower fetched again much later, because it was in sync or away meanwhile."""

_NS_IN_MS = 1_000_000


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


class CatchUpLag(NamedTuple):
    """How a fetcher stands in all of its partitions together that it has to catch up with."""

    fetched: int
    """The sum of the offsets up to which it has them."""
    end: int
    """The sum of their ends."""


class CatchUpChunk(NamedTuple):
    """What a fetcher may have now, for all partitions together that it has to catch up with."""

    size_bytes: int
    """0: nothing."""
    pause_ms: int
    """Until it may have more; 0 when it may have some now."""


class CatchUpPace:
    """A leader's, for all fetchers of all followers.

    A follower has ``num.replica.fetchers`` of them, each with partitions, answers and pauses of its own.
    They are told apart by the connection that each has; what is known of one goes with it.
    """

    def __init__(self, clock: Clock, do_producers_wait: Callable[[], bool]) -> None:
        self._clock = clock
        self._do_producers_wait = do_producers_wait
        self._is_on = FastPath.CATCH_UP not in SWITCHED_OFF
        self._sent: WeakKeyDictionary[object, tuple[int, CatchUpLag]] = WeakKeyDictionary()
        """When a fetcher's last chunk was sent, in ns, and its lag then; until it fetches again."""
        self._due_ms: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        """When a paused fetcher may have the next chunk."""

    def __repr__(self) -> str:
        return f"CatchUpPace({len(self._due_ms)} fetchers paused)"

    def chunk(self, fetcher: object, lag: CatchUpLag) -> CatchUpChunk:
        """``fetcher`` asks, or its pause may be over."""
        if not self._is_on:
            return CatchUpChunk(sys.maxsize, 0)
        now_ms = self._clock.monotonic_ms()
        size_bytes = CATCH_UP_BYTES_MAX
        if self._do_producers_wait():
            sent = self._sent.pop(fetcher, None)
            if sent is None or _catches_up(sent[1], lag):
                size_bytes = CATCH_UP_BYTES_MAX_UNDER_LOAD
                if sent is not None:
                    under_way_ns = self._clock.monotonic_ns() - sent[0]
                    pause_ms = math.ceil(under_way_ns / _NS_IN_MS)
                    self._due_ms[fetcher] = now_ms + min(pause_ms, PAUSE_MS_MAX)
        pause_ms = self._due_ms.get(fetcher, now_ms) - now_ms
        if pause_ms > 0:
            return CatchUpChunk(0, pause_ms)
        self._due_ms.pop(fetcher, None)
        return CatchUpChunk(size_bytes, 0)

    def sent(self, fetcher: object, lag: CatchUpLag) -> None:
        """A chunk is on its way."""
        self._sent[fetcher] = self._clock.monotonic_ns(), lag


def _catches_up(before: CatchUpLag, after: CatchUpLag) -> bool:
    """Whether a follower would, if it took twice as long, and in all that time as much was written as from
    ``before`` to ``after``."""
    return after.fetched - before.fetched >= 2 * 2 * (after.end - before.end)
