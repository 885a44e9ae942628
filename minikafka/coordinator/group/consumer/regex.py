"""Regular expressions that members subscribe with (KIP-848): resolved here. A pattern must match the whole
name. Which names a pattern matches is remembered, so that later only names that are new are matched."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from minikafka.coordinator.group.topic_image import TopicImage
from minikafka.regex import compile_regex
from minikafka.steps import Steps, finish

REMEMBERED_MAX = 32
"""Patterns, as many as are kept compiled."""


class _Resolved(NamedTuple):
    seen: frozenset[str]
    hits: frozenset[str]


_remembered: dict[str, _Resolved] = {}
"""What patterns match, which nothing but their names decides; the latest last."""


def check_regex(regex: str) -> None:
    """Raises KafkaError INVALID_REGULAR_EXPRESSION."""
    _compiled(regex)


def resolve_regex(regex: str, topics: TopicImage) -> tuple[str, ...]:
    """The names of the topics that ``regex``, which compiles, matches; in alphabetical order."""
    return finish(resolve_regex_in_steps(regex, topics.names()))


def resolve_regex_in_steps(regex: str, names: Iterable[str]) -> Steps[tuple[str, ...]]:
    """The same in steps, of ``names`` in alphabetical order."""
    names = tuple(names)
    known = _remembered.get(regex, _Resolved(frozenset(), frozenset()))
    pattern = _compiled(regex)
    matched = []
    for name in names:
        if name in known.hits:
            matched.append(name)
        elif name not in known.seen:
            if pattern.fullmatch(name):
                matched.append(name)
            yield
    _remembered.pop(regex, None)
    _remembered[regex] = _Resolved(frozenset(names), frozenset(matched))
    if len(_remembered) > REMEMBERED_MAX:
        del _remembered[next(iter(_remembered))]
    return tuple(matched)


def _compiled(regex: str) -> Any:
    return compile_regex(regex, name="SubscribedTopicRegex")
