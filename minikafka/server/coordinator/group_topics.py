"""The cluster's topics as the group coordinator sees them. Kafka: ``MetadataImage``; ours is the cache."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from minikafka.coordinator.group.topic_image import TopicInfo
from minikafka.server.cluster.metadata_cache import MetadataCache, TopicMetadata


class CachedTopics:
    """A ``TopicImage`` over what this broker knows."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    @property
    def version(self) -> int:
        return self._metadata.topics_version

    def topic(self, name: str) -> TopicInfo | None:
        return _info(self._metadata.topic(name))

    def topic_by_id(self, topic_id: UUID) -> TopicInfo | None:
        return _info(self._metadata.topic_by_id(topic_id))

    def names(self) -> Iterable[str]:
        return (topic.name for topic in self._metadata.topics())


def _info(topic: TopicMetadata | None) -> TopicInfo | None:
    return None if topic is None else TopicInfo(topic.name, topic.topic_id, len(topic.partitions))
