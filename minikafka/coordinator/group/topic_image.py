"""What a group coordinator sees of the cluster's topics. Kafka: ``MetadataImage`` (its ``TopicsImage``)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol
from uuid import UUID


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

    def names(self) -> Iterable[str]:
        """In alphabetical order."""
        ...
