"""Regular expressions that members subscribe with (KIP-848): resolved here. A pattern must match the whole
name."""

from __future__ import annotations

from typing import Any

from minikafka.coordinator.group.topic_image import TopicImage
from minikafka.coordinator.regex import compile_regex


def check_regex(regex: str) -> None:
    """Raises KafkaError INVALID_REGULAR_EXPRESSION."""
    _compiled(regex)


def resolve_regex(regex: str, topics: TopicImage) -> tuple[str, ...]:
    """The names of the topics that ``regex``, which compiles, matches; in alphabetical order."""
    pattern = _compiled(regex)
    return tuple(name for name in topics.names() if pattern.fullmatch(name))


def _compiled(regex: str) -> Any:
    return compile_regex(regex, name="SubscribedTopicRegex")
