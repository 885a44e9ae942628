"""Internal topics of streams applications, which a heartbeat finds missing (KIP-1071).

Kafka: ``AutoTopicCreationManager.createStreamsInternalTopics`` and ``getStreamsInternalTopicCreationErrors``.
No answer waits for them: later heartbeats find the topics, or hear why they could not be created. A topic is
created by one task at a time, however many members ask for it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

import msgspec

from minikafka.clock import Clock
from minikafka.errors import ErrorCode, KafkaError
from minikafka.server.runtime.supervisor import Supervisor
from minikafka.server.topics.topic_service import Spend, TopicService

logger = logging.getLogger(__name__)

FAILURE_KEPT_MS = 10_000
"""Twice Kafka's default heartbeat interval: so every member hears of it once at least."""
FAILURES_KEPT_MAX = 1_000


class WantedTopic(Protocol):
    """0 replicas, or -1 as Java asks for: the broker's default."""

    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> int: ...

    @property
    def replication_factor(self) -> int: ...

    @property
    def topic_configs(self) -> tuple[tuple[str, str], ...]: ...


class _Failure(msgspec.Struct, frozen=True):
    reason: str
    until_ms: int


class InternalTopics:
    """See the module header."""

    def __init__(self, topics: TopicService, *, supervisor: Supervisor, clock: Clock) -> None:
        self._topics = topics
        self._supervisor = supervisor
        self._clock = clock
        self._creating: set[str] = set()
        self._failures: dict[str, _Failure] = {}

    def __repr__(self) -> str:
        return f"InternalTopics({len(self._creating)} being created)"

    def create(self, topics: Iterable[WantedTopic], *, spend: Spend) -> None:
        """Begin to create those that are not being created."""
        wanted = [topic for topic in topics if topic.name not in self._creating]
        if wanted:
            self._creating.update(topic.name for topic in wanted)
            self._supervisor.start("streams-internal-topics", lambda: self._create(wanted, spend))

    def failures(self, names: Iterable[str]) -> dict[str, str]:
        """Why those of ``names`` could not be created that were tried lately."""
        now_ms = self._clock.monotonic_ms()
        return {
            name: failure.reason
            for name in names
            if (failure := self._failures.get(name)) and now_ms < failure.until_ms
        }

    async def _create(self, wanted: list[WantedTopic], spend: Spend) -> None:
        try:
            for topic in wanted:
                try:
                    await self._topics.create_topic(
                        topic.name,
                        partitions=topic.partitions,
                        replication_factor=topic.replication_factor if topic.replication_factor > 0 else None,
                        configs=dict(topic.topic_configs),
                        spend=spend,
                    )
                except KafkaError as error:
                    if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                        logger.warning("internal topic %s could not be created: %s", topic.name, error)
                        self._note(topic.name, error)
                        continue
                self._failures.pop(topic.name, None)
        finally:
            self._creating.difference_update(topic.name for topic in wanted)

    def _note(self, name: str, error: KafkaError) -> None:
        if len(self._failures) >= FAILURES_KEPT_MAX:
            self._failures.pop(next(iter(self._failures)))
        until_ms = self._clock.monotonic_ms() + FAILURE_KEPT_MS
        self._failures[name] = _Failure(error.message or error.code.name, until_ms)
