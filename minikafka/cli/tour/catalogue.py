"""Which stories there are. Read by ``minikafka tour`` alone, so it imports none of them."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """A story."""

    name: str
    """As the command takes it; its module has the same, with underscores."""
    summary: str
    read: str
    """The page of ``docs/`` that explains it."""

    def load(self) -> Any:
        """Its module, with ``SETUP`` and ``tell``."""
        return import_module(f"minikafka.cli.tour.stories.{self.name.replace('-', '_')}")


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
