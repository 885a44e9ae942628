"""Which partitions of one fetcher the follower's replication quota holds back (KIP-73). Nothing waits.

Kafka: ``RemoteLeaderEndPoint.shouldFollowerThrottle`` and ``buildFetch``. While the quota is exceeded, a
listed partition that is not in sync is not asked for: the leader is told to forget it, and hears of it again
when the quota is free.

Invariants: without listed partitions a round costs one look at an empty dictionary; only what is held back,
or no longer held back, is asked anew.
"""

from __future__ import annotations

from minikafka.clock import Clock
from minikafka.replication.fetch_state import FetchStates
from minikafka.server.replica.replication_quotas import ReplicationQuotaManager
from minikafka.types import TopicPartition


class FollowerThrottle:
    """What the quota means for one fetcher."""

    __slots__ = ("_clock", "_held", "_quota")

    def __init__(self, quota: ReplicationQuotaManager, clock: Clock) -> None:
        self._quota = quota
        self._clock = clock
        self._held: dict[TopicPartition, None] = {}

    def __repr__(self) -> str:
        return f"FollowerThrottle({len(self._held)} held back, {self._quota!r})"

    @property
    def holds_any(self) -> bool:
        return bool(self._held)

    def holds(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition is held back, as of the last ``update``."""
        return topic_partition in self._held

    def update(self, states: FetchStates) -> None:
        """Decide anew what is held back; partitions for which that changes are touched in ``states``."""
        quota, was_held = self._quota, self._held
        if not (quota.is_active or was_held):
            return
        self._held = {}
        if quota.is_active and quota.is_quota_exceeded(self._clock.monotonic_ms()):
            self._held = {
                topic_partition: None
                for topic_partition, state in states.items()
                if not state.is_in_sync and quota.is_throttled(topic_partition)
            }
        for topic_partition in self._held:
            quota.note_held_back(topic_partition)
        for topic_partition in (*was_held, *self._held):
            if not (topic_partition in was_held and topic_partition in self._held):
                states.touch(topic_partition)

    def let_go(self, topic_partition: TopicPartition) -> None:
        """The partition is no longer this fetcher's."""
        self._held.pop(topic_partition, None)

    def fetched(self, topic_partition: TopicPartition, size_bytes: int) -> None:
        """So much has come for a partition: it counts when it is listed, in sync or not."""
        if self._quota.is_throttled(topic_partition):
            self._quota.record(size_bytes, self._clock.monotonic_ms())
