"""The diagnostics kind ``events``: what this broker has decided of late (``server.runtime.event_recorder``).

A document is one page: the oldest events after ``after`` that the filters let through, ``limit`` of them at
most. Who wants all asks again with the ``last_sequence`` of the answer until ``is_last``; who follows, from
time to time after that. With ``newest`` instead of ``limit`` it is the last page.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from minikafka.flight_recorder.ring import decode_event
from minikafka.flight_recorder.selection import EventFilter, ShownEvent, event_filter, show
from minikafka.server.services import Services
from minikafka.steps import ELEMENTS_A_STEP, Steps


class EventsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One page of the events of one broker."""

    broker: int
    at_ms: int
    """The broker's clock now."""
    events: list[ShownEvent]
    """The oldest first."""
    last_sequence: int
    """What to ask for the events after, for the next page."""
    is_last: bool
    """Whether the page goes up to now."""
    first_at_ms: int | None
    """Of the oldest event that is still kept; None: there is none."""
    is_on: bool
    """Whether anything is recorded (``event.recorder.max.bytes``)."""


def events(services: Services, arguments: Mapping[str, str]) -> Steps[EventsDocument]:
    """See the module header. Raises KafkaError: INVALID_REQUEST."""
    return (yield from describe_events(services, event_filter(arguments)))


def describe_events(services: Services, wanted: EventFilter) -> Steps[EventsDocument]:
    """In steps."""
    ring = services.recorder.ring
    first = ring.first
    found: list[ShownEvent] = []
    last, is_last = max(wanted.after, ring.last_sequence), True
    lines = ring.after(wanted.after)
    for count, line in enumerate(reversed(lines) if wanted.is_newest else lines, start=1):
        recorded = decode_event(line)
        if recorded is not None and wanted.matches(recorded):
            if len(found) == wanted.limit:
                if not wanted.is_newest:
                    last, is_last = found[-1].sequence, False
                break
            found.append(show(services.node_id, recorded))
        if count % ELEMENTS_A_STEP == 0:
            yield
    if wanted.is_newest:
        found.reverse()
    return EventsDocument(
        broker=services.node_id,
        at_ms=services.clock.now_ms(),
        events=found,
        last_sequence=last,
        is_last=is_last,
        first_at_ms=None if first is None else first.sequence // 1000,
        is_on=ring.bytes_max > 0,
    )
