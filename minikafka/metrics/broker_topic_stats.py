"""What went through a broker, counted by topic: plain integers that are added to where the work is done.

Kafka: ``BrokerTopicStats``, ``BrokerTopicMetrics``. Kafka counts everything twice, for the topic and for all
topics; here the total is added up when somebody asks, so a request pays for one addition.

Invariants: there are counts for each topic that is hosted here and for no other, so their number is bounded;
the total never falls, because a topic that goes leaves its counts in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

FIELDS: Final = (
    "messages_in",
    "bytes_in",
    "bytes_out",
    "bytes_rejected",
    "produce_requests",
    "fetch_requests",
    "failed_produce_requests",
    "failed_fetch_requests",
)


class TopicStats:
    """Counts of one topic. Whoever does the work adds to them."""

    __slots__ = FIELDS

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        """To consumers."""
        self.bytes_rejected = 0
        self.produce_requests = 0
        """Appends, refused ones too."""
        self.fetch_requests = 0
        """Reads, refused ones too."""
        self.failed_produce_requests = 0
        self.failed_fetch_requests = 0

    def __repr__(self) -> str:
        return f"TopicStats({', '.join(f'{name}={getattr(self, name)}' for name in FIELDS)})"

    def add(self, other: TopicStats) -> None:
        for name in FIELDS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class BrokerTopicStats:
    """The counts of a broker."""

    def __init__(self) -> None:
        self.replication_bytes_in = 0
        """What this broker's fetchers have appended."""
        self.replication_bytes_out = 0
        """What followers were answered with."""
        self.elsewhere = TopicStats()
        """Requests for topics that are not here, and what topics that went have left."""
        self._topics: dict[str, TopicStats] = {}

    def __repr__(self) -> str:
        return f"BrokerTopicStats({len(self._topics)} topics, total={self.total()})"

    @property
    def topics(self) -> Mapping[str, TopicStats]:
        return self._topics

    def host(self, topic: str) -> TopicStats:
        """The counts of a topic that is hosted here from now on, or already."""
        stats = self._topics.get(topic)
        if stats is None:
            stats = self._topics[topic] = TopicStats()
        return stats

    def forget(self, topic: str) -> None:
        """The topic is not hosted here any more."""
        stats = self._topics.pop(topic, None)
        if stats is not None:
            self.elsewhere.add(stats)

    def of(self, topic: str) -> TopicStats:
        """Where to count a request for a topic that may not be here."""
        return self._topics.get(topic, self.elsewhere)

    def total(self) -> TopicStats:
        """A new sum of all."""
        total = TopicStats()
        total.add(self.elsewhere)
        for stats in self._topics.values():
            total.add(stats)
        return total
