"""Where a follower cuts its log: the rules one by one, and that their dialogue always ends well."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikafka.replication.fetch_state import (
    OffsetReset,
    OffsetTruncationState,
    ResetAction,
    reset_out_of_range,
    truncation_point,
)
from minikafka.types import LeaderEpoch, Offset

NOTHING = (LeaderEpoch(-1), Offset(-1))


def cut(
    leader: tuple[int, int], *, end: int, high_watermark: int = 0, follower: tuple[int, int] = NOTHING
) -> OffsetTruncationState:
    """Where a follower that ends at ``end`` cuts, if ``follower`` is what it knows of the leader's epoch."""
    asked: list[int] = []

    def end_offset_for_epoch(epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        asked.append(epoch)
        return LeaderEpoch(follower[0]), Offset(follower[1])

    found = truncation_point(
        leader_epoch=LeaderEpoch(leader[0]),
        leader_end_offset=Offset(leader[1]),
        log_end_offset=Offset(end),
        high_watermark=Offset(high_watermark),
        end_offset_for_epoch=end_offset_for_epoch,
    )
    assert set(asked) <= {leader[0]}
    return found


def test_an_epoch_that_both_know_is_cut_where_it_ends_first() -> None:
    assert cut((3, 10), end=20, follower=(3, 15)) == (10, True)
    assert cut((3, 15), end=20, follower=(3, 10)) == (10, True)
    assert cut((3, 15), end=12, follower=(3, 15)) == (12, True)


def test_an_epoch_that_the_follower_does_not_know_takes_one_more_question() -> None:
    assert cut((3, 15), end=20, follower=(2, 8)) == (8, False)
    assert cut((3, 15), end=6, follower=(2, 8)) == (6, False)


def test_a_follower_without_an_epoch_that_early_cuts_at_the_leaders_end() -> None:
    assert cut((3, 15), end=20) == (15, True)
    assert cut((3, 15), end=12) == (12, True)


def test_a_leader_that_knows_nothing_of_the_epoch_leaves_the_high_watermark() -> None:
    assert cut((-1, -1), end=20, high_watermark=7, follower=(3, 15)) == (7, True)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 9, OffsetReset(ResetAction.TRUNCATE, Offset(9))),
        (0, 10, OffsetReset(ResetAction.KEEP, Offset(10))),
        (0, 50, OffsetReset(ResetAction.KEEP, Offset(10))),
        (10, 50, OffsetReset(ResetAction.KEEP, Offset(10))),
        (11, 50, OffsetReset(ResetAction.START_OVER, Offset(11))),
    ],
)
def test_out_of_range_at_offset_10(start: int, end: int, expected: OffsetReset) -> None:
    reset = reset_out_of_range(
        leader_start_offset=Offset(start), leader_end_offset=Offset(end), log_end_offset=Offset(10)
    )
    assert reset == expected


# ---- the dialogue


class Entry(NamedTuple):
    """A record: it is the same on two replicas when the epoch, and the number within it, are the same."""

    epoch: int
    number: int


class Replica:
    """A log as a list, with its leader epochs as ``LeaderEpochCache`` keeps them."""

    def __init__(self) -> None:
        self.records: list[Entry] = []
        self.epochs: list[tuple[int, int]] = []

    def __repr__(self) -> str:
        return f"Replica({''.join(f' e{each.epoch}' for each in self.records)}, epochs={self.epochs})"

    @property
    def end(self) -> int:
        return len(self.records)

    @property
    def latest_epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else -1

    def begin(self, epoch: int) -> None:
        if epoch != self.latest_epoch:
            self.epochs = [each for each in self.epochs if each[1] < self.end]
            self.epochs.append((epoch, self.end))

    def take(self, entry: Entry) -> None:
        self.begin(entry.epoch)
        self.records.append(entry)

    def cut(self, offset: int) -> None:
        del self.records[offset:]
        self.epochs = [each for each in self.epochs if each[1] < self.end]

    def end_offset_for_epoch(self, epoch: int) -> tuple[LeaderEpoch, Offset]:
        if not self.epochs or epoch > self.latest_epoch:
            return NOTHING
        if epoch == self.latest_epoch:
            return LeaderEpoch(epoch), Offset(self.end)
        known = [each for each, _ in self.epochs if each <= epoch]
        following = next(start for each, start in self.epochs if each > epoch)
        return LeaderEpoch(known[-1] if known else epoch), Offset(following)


def common_prefix(one: Replica, other: Replica) -> int:
    pairs = zip(one.records, other.records, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), min(one.end, other.end))


def follow(follower: Replica, leader: Replica) -> list[OffsetTruncationState]:
    """The dialogue until the leader finds nothing to object to; where the follower cut."""
    cuts: list[OffsetTruncationState] = []
    while follower.epochs:
        asked = follower.latest_epoch
        epoch, end_offset = leader.end_offset_for_epoch(asked)
        assert end_offset >= 0, "a leader knows its own epoch, and no follower a later one"
        if epoch == asked and end_offset >= follower.end:
            break
        cuts.append(
            truncation_point(
                leader_epoch=epoch,
                leader_end_offset=end_offset,
                log_end_offset=Offset(follower.end),
                high_watermark=Offset(0),
                end_offset_for_epoch=follower.end_offset_for_epoch,
            )
        )
        follower.cut(cuts[-1].offset)
    return cuts


class Step(NamedTuple):
    """One leadership: who is elected, what it writes, how much of its log each follower then has fetched, and
    which replicas lose how much to a power cut afterwards."""

    leader: int
    writes: int
    fetches: dict[int, int]
    losses: dict[int, int]


REPLICAS = range(3)
AMOUNTS = st.dictionaries(st.sampled_from(REPLICAS), st.integers(0, 6), max_size=3)
HISTORIES = st.lists(
    st.builds(Step, st.sampled_from(REPLICAS), st.integers(0, 5), AMOUNTS, AMOUNTS), min_size=1, max_size=12
)


@settings(max_examples=300)
@given(HISTORIES)
def test_whatever_was_elected_and_lost_a_follower_ends_as_a_prefix_of_its_leader(history: list[Step]) -> None:
    """I8. Elections are unclean, followers miss epochs, leaders write nothing, replicas lose their tails."""
    replicas = [Replica() for _ in REPLICAS]
    for epoch, step in enumerate(history):
        leader = replicas[step.leader]
        leader.begin(epoch)
        for number in range(step.writes):
            leader.take(Entry(epoch, number))
        for number, count in step.fetches.items():
            follower = replicas[number]
            if follower is leader:
                continue
            common, epochs_count = common_prefix(follower, leader), len(follower.epochs)
            cuts = follow(follower, leader)
            assert follower.end == common, "nothing that both have is lost"
            assert follower.records == leader.records[: follower.end]
            assert len(cuts) <= epochs_count
            for entry in leader.records[follower.end : follower.end + count]:
                follower.take(entry)
            # An epoch of its own without a record may stay at the very end; the next one replaces it.
            with_records = [each for each in follower.epochs if each[1] < follower.end]
            assert with_records == [each for each in leader.epochs if each[1] < follower.end]
        for number, count in step.losses.items():
            replicas[number].cut(max(0, replicas[number].end - count))
