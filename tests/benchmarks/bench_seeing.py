"""What it costs to see through a broker: the flight recorder, by default and without.

As ``bench_metrics`` does it: two brokers take turns, this one with all that is on by default, and one that
keeps no events (``event.recorder.max.bytes=0``), and a twin of the first, which says how far from 1 the
measurement itself may lie. Asked: at least 0.98 of the rate without.
"""

from __future__ import annotations

from typing import Any

from tests.benchmarks.bench_metrics import Peer, paired

_BROKER = "minikafka.cli.broker"
_PEERS = {
    "with": Peer(_BROKER, {}),
    "without": Peer(_BROKER, {"event.recorder.max.bytes": 0}),
    "same": Peer(_BROKER, {}),
}


def run(quick: bool) -> list[dict[str, Any]]:
    """A row for each workload's rate, and one for the broker's CPU."""
    return paired(_PEERS, quick)
