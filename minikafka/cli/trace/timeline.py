"""What brokers noted of one batch, as one time line. Pure.

Brokers' clocks differ. Each document says what its broker's clock showed, and who asked knows when it asked
and when the answer came: a clock that cannot have shown that is set right by the difference, one that can is
believed. So the steps of brokers on one machine keep their microseconds, and those of brokers that are a
second apart come in order, as exactly as a round trip takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

CLIENT: Final = "client"
ORDER: Final = (
    "client_sent", "received", "validated", "refused", "appended", "duplicate", "sent_to_follower", "parked",
    "follower_appended", "follower_has", "high_watermark_moved", "woken", "answered", "consumed", "sent",
    "client_answered", "client_read",
)  # fmt: skip
"""Of steps that were noted in the same nanosecond, or by clocks that differ by less than can be known."""

Key = tuple[str, int, int]
"""Topic, partition, first offset."""


class Answer(NamedTuple):
    """A broker's document, and when it was asked for and got."""

    document: Mapping[str, Any]
    asked_ns: int
    got_ns: int

    @property
    def broker(self) -> int:
        return int(self.document["broker"])

    @property
    def fast_ns(self) -> int:
        """By how much the broker's clock is ahead of ours, if that can be told; else 0."""
        now_ns = int(self.document["now_ns"])
        if self.asked_ns <= now_ns <= self.got_ns:
            return 0
        return now_ns - (self.asked_ns + self.got_ns) // 2


class Event(NamedTuple):
    """A step, on a broker or (None) at this command."""

    at_ns: int
    """By our clock."""
    broker: int | None
    step: str
    detail: Mapping[str, Any]


class Timeline(NamedTuple):
    """The way of one batch."""

    key: Key
    last_offset: int
    trace_id: str
    parent_span_id: str | None
    events: tuple[Event, ...]
    dropped_steps: int = 0

    def has(self, step: str, *, broker: int | None = None) -> bool:
        return any(each.step == step and broker in (None, each.broker) for each in self.events)

    @property
    def is_answered(self) -> bool:
        """Whether the leader has nothing more to do for its producer."""
        if self.has("sent") or self.has("refused"):
            return True
        return self.has("appended") and any(
            each.step == "received" and each.detail.get("acks") == 0 for each in self.events
        )

    def with_events(self, events: Iterable[Event]) -> Timeline:
        return self._replace(events=_sorted((*self.events, *events)))


def timelines(answers: Iterable[Answer]) -> list[Timeline]:
    """One of each batch that a leader noted the arrival of, in the order of arrival."""
    found: dict[Key, Timeline] = {}
    for answer in answers:
        for trace in answer.document["traces"]:
            key = (trace["topic"], trace["partition"], trace["first_offset"])
            events = tuple(
                Event(
                    step["at_ns"] - answer.fast_ns,
                    answer.broker,
                    step["step"],
                    {name: value for name, value in step.items() if name not in ("step", "at_ns")},
                )
                for step in trace["steps"]
            )
            known = found.get(key)
            if known is None:
                known = Timeline(key, trace["last_offset"], trace["trace_id"], trace["parent_span_id"], ())
            dropped = known.dropped_steps + trace["dropped_steps"]
            found[key] = known.with_events(events)._replace(dropped_steps=dropped)
    whole = [each for each in found.values() if each.has("received")]
    return sorted(whole, key=lambda each: each.events[0].at_ns)


def _sorted(events: Iterable[Event]) -> tuple[Event, ...]:
    return tuple(sorted(events, key=lambda each: (each.at_ns, _rank(each.step))))


def _rank(step: str) -> int:
    return ORDER.index(step) if step in ORDER else len(ORDER)


def describe(event: Event) -> str:
    """In words."""
    words = _WORDS.get(event.step)
    return event.step if words is None else words(event.detail)


def _received(detail: Mapping[str, Any]) -> str:
    acks = "all" if detail["acks"] == -1 else detail["acks"]
    who = detail["client"] or "a client without a name"
    return (
        f"read from the socket: {_count(detail['bytes'], 'byte')} from {who} at {detail['peer']}, acks={acks}"
    )


def _parked(detail: Mapping[str, Any]) -> str:
    return (
        f"parked in the purgatory {detail['purgatory']} under {', '.join(detail['keys'])}, until the high "
        f"watermark is {detail['until_high_watermark']}, for {detail['timeout_ms']} ms at most"
    )


def _appended(detail: Mapping[str, Any]) -> str:
    first, last = detail["first_offset"], detail["last_offset"]
    where = f"offset {first}" if first == last else f"offsets {first} to {last}"
    return f"appended at {where} in leader epoch {detail['leader_epoch']}"


def _refused(detail: Mapping[str, Any]) -> str:
    message = detail.get("message")
    return f"refused: {detail['error']}" + (f", {message}" if message else "")


def _woken(detail: Mapping[str, Any]) -> str:
    error = detail.get("error")
    return f"woken by {detail['by']}" + (f": {error}" if error else "")


def _consumed(detail: Mapping[str, Any]) -> str:
    who = f"consumer {detail['client'] or 'without a name'} at {detail['peer']}"
    group = detail.get("share_group")
    return f"read by {who}" + (f", of share group {group}" if group else "")


_WORDS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "received": _received,
    "validated": lambda d: f"validated: {_count(d['records'], 'record')} in {_count(d['bytes'], 'byte')}",
    "appended": _appended,
    "refused": _refused,
    "duplicate": lambda d: f"a duplicate of what was appended at offset {d['first_offset']}",
    "parked": _parked,
    "sent_to_follower": lambda d: f"sent to broker {d['replica']}, which fetched at {d['fetch_offset']}",
    "follower_appended": lambda d: f"fetched from broker {d['leader']} and appended",
    "follower_has": lambda d: f"broker {d['replica']} has it: it fetched at {d['fetch_offset']}",
    "high_watermark_moved": lambda d: f"high watermark moved to {d['high_watermark']}: {d['cause']}",
    "woken": _woken,
    "answered": lambda d: "answered",
    "sent": lambda d: f"the socket has the answer to {d['client'] or 'the client'}",
    "consumed": _consumed,
    "client_sent": lambda d: f"sent to broker {d['broker']}",
    "client_answered": lambda d: f"has the answer: {d['answer']}",
    "client_read": lambda d: f"has read it from broker {d['broker']}",
}


def _count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def document(timeline: Timeline) -> dict[str, Any]:
    """For ``--json``."""
    topic, partition, first_offset = timeline.key
    begin_ns = timeline.events[0].at_ns
    return {
        "topic": topic,
        "partition": partition,
        "first_offset": first_offset,
        "last_offset": timeline.last_offset,
        "trace_id": timeline.trace_id,
        "parent_span_id": timeline.parent_span_id,
        "dropped_steps": timeline.dropped_steps,
        "steps": [
            {
                "at_ns": each.at_ns,
                "after_us": round((each.at_ns - begin_ns) / 1000),
                "broker": each.broker,
                "step": each.step,
                "detail": dict(each.detail),
                "text": describe(each),
            }
            for each in timeline.events
        ],
    }
