"""Which events are wanted, and how they are shown."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from minikafka.errors import ErrorCode, KafkaError
from minikafka.flight_recorder.events import KINDS, Event, RecordedEvent

EVENTS_MAX: Final = 1_000
"""In one document: 300 KB."""


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which events are wanted."""

    after: int = 0
    """A sequence number."""
    since_ms: int = 0
    """Since the Unix epoch, by the broker's clock."""
    topic: str | None = None
    group: str | None = None
    kinds: Collection[str] = ()
    """Empty: all."""
    subject: str = ""
    """To be found in what it happened to."""
    limit: int = EVENTS_MAX
    is_newest: bool = False
    """Whether ``limit`` lets the newest through, not the oldest."""

    def matches(self, recorded: RecordedEvent) -> bool:
        event = recorded.event
        return (
            recorded.at_ms >= self.since_ms
            and (self.topic is None or getattr(event, "topic", None) == self.topic)
            and (self.group is None or getattr(event, "group", None) == self.group)
            and (not self.kinds or event.kind in self.kinds)
            and self.subject in event.subject
        )


class ShownEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event, with the same things in words."""

    sequence: int
    at_ms: int
    broker: int
    kind: str
    subject: str
    text: str
    left_out: int
    event: Event
    """Its fields."""


def show(broker: int, recorded: RecordedEvent) -> ShownEvent:
    """An event for others."""
    event = recorded.event
    return ShownEvent(
        sequence=recorded.sequence,
        at_ms=recorded.at_ms,
        broker=broker,
        kind=event.kind,
        subject=event.subject,
        text=event.text,
        left_out=recorded.left_out,
        event=event,
    )


def event_filter(arguments: Mapping[str, str]) -> EventFilter:
    """``after``, ``since_ms``, ``topic``, ``group``, ``kind`` (several with commas between), ``subject``, and
    ``limit`` (the oldest) or ``newest`` (of them).

    Raises KafkaError: INVALID_REQUEST.
    """
    known = ("after", "since_ms", "topic", "group", "kind", "subject", "limit", "newest")
    for name in arguments:
        if name not in known:
            raise _invalid(f"Unknown argument {name!r}; events take {', '.join(known)}")
    kinds = tuple(filter(None, arguments.get("kind", "").split(",")))
    for kind in kinds:
        if kind not in KINDS:
            raise _invalid(f"There is no kind of event {kind!r}: there are {', '.join(KINDS)}")
    return EventFilter(
        after=_number(arguments, "after", 0, 0),
        since_ms=_number(arguments, "since_ms", 0, 0),
        topic=arguments.get("topic"),
        group=arguments.get("group"),
        kinds=kinds,
        subject=arguments.get("subject", ""),
        limit=min(
            _number(arguments, "newest" if "newest" in arguments else "limit", 1, EVENTS_MAX), EVENTS_MAX
        ),
        is_newest="newest" in arguments,
    )


def _number(arguments: Mapping[str, str], name: str, least: int, default: int) -> int:
    text = arguments.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 18 or int(text) < least:
        raise _invalid(f"{name}={text}: must be a whole number of at least {least}")
    return int(text)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
