"""What keeps a fetcher's partitions from being fetched: logged when it begins, and how long each rests.

Kafka: ``handlePartitionsWithErrors`` and ``delayPartitions`` of ``AbstractFetcherThread``.

A partition rests for ``replica.fetch.backoff.ms``. But while leadership moves, leader and follower are told
of it at about the same time: who is first rests only for a moment, and for twice as long each further time.
Kafka's follower rests for the whole backoff then, and producers with acks=all wait with it. Such an error
is expected and logged at DEBUG; one that does not end is a WARNING.
"""

from __future__ import annotations

import logging

from minikafka.errors import ErrorCode
from minikafka.types import TopicPartition

EXPECTED_ERRORS = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""Of the leader, while leadership moves or a topic is new: it has not heard yet, or we have not."""

EXPECTED_TIMES_MAX = 10
"""So often an expected error may come in a row: for about 4 s with the default backoff of 1 s."""

NEWS_PAUSE_MS = 10
"""The first rest after one of these."""

_DOUBLINGS_MAX = 20


class FetchTroubles:
    """The troubles of one fetcher's partitions."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._known: dict[TopicPartition, tuple[ErrorCode, int]] = {}
        """What was logged and has not ended, and how often it has happened in a row."""

    def __repr__(self) -> str:
        return f"FetchTroubles({len(self._known)} partitions)"

    def note(self, topic_partition: TopicPartition, code: ErrorCode, level: int, reason: str) -> None:
        """Something has happened; logged if it is not what happened last, or if it was expected to end."""
        known, times = self._known.get(topic_partition, (None, 0))
        times = times + 1 if known is code else 1
        if times == 1:
            self._logger.log(level, "fetching %s: %s", topic_partition, reason)
        elif times == EXPECTED_TIMES_MAX and code in EXPECTED_ERRORS:
            self._logger.warning("fetching %s: %s, %d times in a row", topic_partition, reason, times)
        self._known[topic_partition] = (code, times)

    def rest_ms(self, topic_partition: TopicPartition, *, backoff_ms: int) -> int:
        """How long the partition rests for what was noted last."""
        code, times = self._known.get(topic_partition, (ErrorCode.NONE, 0))
        if code not in EXPECTED_ERRORS:
            return backoff_ms
        return min(backoff_ms, NEWS_PAUSE_MS << min(times - 1, _DOUBLINGS_MAX))

    def end(self, topic_partition: TopicPartition) -> None:
        """The partition is fetched again, or no more."""
        if self._known:
            self._known.pop(topic_partition, None)
