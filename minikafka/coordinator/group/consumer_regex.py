"""Regular expressions that members subscribe with (KIP-848): resolved here, with the syntax of RE2.

Kafka compiles them with RE2/J. ``re`` would follow a hostile pattern for hours; RE2 matches in linear time,
and so does this. A pattern must match the whole name.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import re2

from minikafka.coordinator.group.topic_image import TopicImage
from minikafka.errors import ErrorCode, KafkaError

PROGRAM_BYTES_MAX = 1 << 20
"""What one compiled pattern may take. RE2's own default is 8 MiB."""


@lru_cache(maxsize=32)
def _compiled(regex: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PROGRAM_BYTES_MAX
    return re2.compile(regex, options)


def check_regex(regex: str) -> None:
    """Raises KafkaError INVALID_REGULAR_EXPRESSION."""
    try:
        _compiled(regex)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {reason}.",
        ) from error


def resolve_regex(regex: str, topics: TopicImage) -> tuple[str, ...]:
    """The names of the topics that ``regex``, which compiles, matches; in alphabetical order."""
    pattern = _compiled(regex)
    return tuple(name for name in topics.names() if pattern.fullmatch(name))
