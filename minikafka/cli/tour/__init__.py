"""``minikafka tour``: stories about replication, told by brokers that run in one process and virtual time.

Here: which stories there are, and how long one looks at a step. It imports no story before one is to be told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from minikafka.cli.tour.stories import Story

WORDS_PER_SECOND: Final = 4.0
"""Of a reader. The picture is looked at before and after."""
PICTURE_S: Final = 3.0


class Entry(NamedTuple):
    """A story."""

    name: str
    """As the command takes it."""
    summary: str
    read: str
    """The page of ``docs/`` that explains it."""

    def load(self) -> Story:
        """How it begins, and what happens. Imports brokers and all that the stories need."""
        from minikafka.cli.tour.stories import BY_NAME

        return BY_NAME[self.name]


STORIES = (
    Entry(
        "acks-all",
        "an acks=all produce waits in the purgatory until the ISR has its record",
        "explanation/purgatory.md",
    ),
    Entry(
        "lagging-follower",
        "HW and LEO while a follower lags, leaves the ISR, and comes back",
        "explanation/replication.md",
    ),
    Entry(
        "lost-record",
        "KIP-101, scenario 1: the committed record that truncating to the HW would lose",
        "explanation/replication.md",
    ),
    Entry(
        "diverged-logs",
        "KIP-101, scenario 2: two records at one offset, and how epochs find it",
        "explanation/replication.md",
    ),
    Entry(
        "preferred-election",
        "a leader falls and comes back; the preferred replica leads again",
        "explanation/controller.md",
    ),
    Entry(
        "controller-failover",
        "the controller dies in the middle of a reassignment, and the next one goes on",
        "explanation/reassignment.md",
    ),
    Entry(
        "throttled-move",
        "200 MB move to another broker under a throttle, which is raised on the way",
        "explanation/reassignment.md",
    ),
    Entry(
        "zombie",
        "exactly-once: a stalled instance wakes up and is fenced; each order is paid once",
        "how-to/transactions.md",
    ),
)
"""In the order in which they are best read."""


BY_NAME = {each.name: each for each in STORIES}


def seconds_to_read(text: str) -> float:
    """At the speed 1."""
    return PICTURE_S + len(text.split()) / WORDS_PER_SECOND
