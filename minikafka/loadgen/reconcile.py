"""Do generator and target agree? Every run ends with these checks; one that fails makes the run fail.

The target's side is what ListOffsets says before and after, so records that somebody else wrote to the same
topic show as a difference too.
"""

from __future__ import annotations

import msgspec

from minikafka.loadgen.messages import TopicOffsets


class Check(msgspec.Struct, frozen=True):
    """One comparison: what must be, and what was seen."""

    name: str
    expected: int
    seen: int

    @property
    def holds(self) -> bool:
        return self.expected == self.seen

    def text(self) -> str:
        relation = "=" if self.holds else "DIFFERS from"
        return f"{self.name}: {self.seen} {relation} {self.expected}"


def advance(before: TopicOffsets, after: TopicOffsets) -> int:
    """By how much the offsets of all partitions grew."""
    return sum(
        end - start
        for topic, starts in before.items()
        for start, end in zip(starts, after[topic], strict=True)
    )


def produced(phase: str, *, acked: int, unknown: int, before: TopicOffsets, after: TopicOffsets) -> Check:
    """Records acknowledged = offsets advanced, in a phase of the run.

    ``unknown`` records were sent and never answered (the target died, or the run was interrupted): the target
    may have them or not, so any advance up to their number more is in order.
    """
    advanced = advance(before, after)
    expected = min(max(advanced, acked), acked + unknown)
    return Check(f"{phase}: offsets advanced = records acked", expected, advanced)


def consumed(*, expected: int, seen: int) -> Check:
    """Records consumed, of all subscriptions and passes = records that are there to be consumed."""
    return Check("records consumed = records expected", expected, seen)
