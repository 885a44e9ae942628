"""What the log and the flight recorder say of batches that were refused out of order.

Kafka: ``ReplicaManager.appendToLocalLog`` (``processFailedRecord``) writes an error with a stack trace for
each of them. A producer that gets this answer may raise its epoch and write records twice, or try again until
its delivery time-out (``docs/explanation/control-plane.md``); who looks for the cause needs the producer id
and both sequences, which the client's own log seldom has.

Where it differs from Kafka:
- it is a warning: what is wrong is between the producer and the leader before, not with this broker;
- a producer tries again up to ten times a second, for hours, and one that means harm as often as it can. So
  the same batch in the same state of its producer is told once a minute, with how often it came meanwhile,
  and lines in the log, of all producers together, have a bound: 100 at once, one a second for long, which are
  at most 50 MB a day. What is left out is counted in the next line.
"""

from __future__ import annotations

import logging
from typing import Final

from minikafka.clock import Clock
from minikafka.flight_recorder import BatchRefused, Record, cut
from minikafka.log.producers.append import OutOfOrderSequence

REPEAT_INTERVAL_MS: Final = 60_000
"""After so long the same refusal is told again."""
REMEMBERED_MAX: Final = 500
"""Refusals that are told apart; those that did not come for the longest time go first. About 150 KB."""
LINES_AT_ONCE_MAX: Final = 100
LINE_INTERVAL_MS: Final = 1_000
"""In the long run so much time lies between two lines."""

_log = logging.getLogger(__name__)


class _Told:
    """A refusal that was told, and how often it came since."""

    __slots__ = ("at_ms", "repeats")

    def __init__(self, at_ms: int) -> None:
        self.at_ms = at_ms
        self.repeats = 0


class RefusedSequences:
    """Those of one broker. Costs nothing where nothing is refused."""

    def __init__(self, clock: Clock, record: Record) -> None:
        self._clock = clock
        self._record = record
        self._told: dict[tuple[str, int, int, int, int, int], _Told] = {}
        self._room_ms = LINES_AT_ONCE_MAX * LINE_INTERVAL_MS
        self._room_at_ms = clock.monotonic_ms()
        self._left_out = 0

    def __repr__(self) -> str:
        return f"RefusedSequences({len(self._told)} told, {self._left_out} lines left out)"

    def note(self, refused: OutOfOrderSequence) -> None:
        """A leader here is about to answer this to a producer. ``refused.message`` has all that is known."""
        now_ms, at = self._clock.monotonic_ms(), refused.topic_partition
        batch = (refused.producer_id, refused.producer_epoch, refused.sequence, refused.last_sequence)
        key = (at.topic, at.partition, *batch)
        told = self._told.pop(key, None)
        if told is not None and now_ms - told.at_ms < REPEAT_INTERVAL_MS:
            told.repeats += 1
            self._told[key] = told  # the last one in the order of the dict
            return
        if told is None and len(self._told) >= REMEMBERED_MAX:
            del self._told[next(iter(self._told))]
        self._told[key] = _Told(now_ms)
        repeats = 0 if told is None else told.repeats
        self._write(refused, repeats, now_ms)
        self._record(
            BatchRefused(
                topic=at.topic,
                partition=at.partition,
                producer_id=refused.producer_id,
                producer_epoch=refused.producer_epoch,
                sequence=refused.sequence,
                last_sequence=refused.last_sequence,
                repeats=repeats,
                cause=cut(refused.message or ""),
            )
        )

    def _write(self, refused: OutOfOrderSequence, repeats: int, now_ms: int) -> None:
        room_ms = self._room_ms + now_ms - self._room_at_ms
        self._room_ms, self._room_at_ms = min(room_ms, LINES_AT_ONCE_MAX * LINE_INTERVAL_MS), now_ms
        if self._room_ms < LINE_INTERVAL_MS:
            self._left_out += 1
            return
        self._room_ms -= LINE_INTERVAL_MS
        more = f"; {repeats} times more since this was last said" if repeats else ""
        if self._left_out:
            more += f"; {self._left_out} lines like this one were left out before it"
            self._left_out = 0
        _log.warning("Out of order sequence number: %s%s", refused.message, more)
