"""Do generator and target agree? Every run ends with these checks; one that fails makes the run fail.

The target's side is what ListOffsets says before and after, so records that somebody else wrote to the same
topic show as a difference too. In a compacted topic offsets are no count of records, and no request asks for
one: there it can only be said that the consumers have come to the end and read no more records than offsets.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from minikafka.loadgen.messages import TopicOffsets


class Check(msgspec.Struct, frozen=True):
    """One comparison: what must be, and what was seen."""

    name: str
    expected: int
    seen: int
    bound_only: str = ""
    """Why ``expected`` is only the most that can be; empty: it is exact."""

    @property
    def holds(self) -> bool:
        return self.seen <= self.expected if self.bound_only else self.seen == self.expected

    def text(self) -> str:
        if self.bound_only and self.holds:
            return f"{self.name}: {self.seen}, not reconciled with {self.expected}: {self.bound_only}"
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


def consumed(*, expected: int, seen: int, compacted: Sequence[str] = ()) -> Check:
    """Records consumed, of all subscriptions and passes = offsets that there are to be consumed.

    ``compacted``: topics of them where compaction may have left offsets without records.
    """
    if not compacted:
        return Check("records consumed = records expected", expected, seen)
    why = f"offsets of {compacted[0]}, which is compacted, are no count of its records"
    return Check("records consumed, at most one an offset", expected, seen, why)
