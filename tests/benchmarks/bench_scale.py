"""How a broker's costs grow with what it holds: partitions, connections, groups, producers, visitors, bytes.

| part | what |
|---|---|
| ``partitions`` | on one broker: creating, memory, idle CPU, metadata to 100 clients, starts, deletion |
| ``cluster`` | on three brokers: creating, idle CPU, failover of all leaders, in sync again, deletion |
| ``connections`` | that stay, with up to ten requests a second each |
| ``groups`` | of five members that send heartbeats |
| ``producers`` | with transactions |
| ``comings`` | 50,000 clients that come and go in a minute |
| ``log`` | of many gigabytes: starts, cold reads beside producers, retention, deletion |

Rows of one part are a curve. Rows ``growth of`` say how its last step grows: 1 is linear; asked is nothing
worse, with room for what measurements vary. CPU seconds and memory are the broker's and hold on a busy
machine; times do not. Apache Kafka is beside it where Java and Maven are.

``ONLY=partitions,log`` picks parts; ``ALONE=1`` leaves Apache Kafka out; ``GB=20,200`` says how large the
logs of ``log`` are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from tests.benchmarks.scale import clients, cluster, groups, log_size, partitions, producers

PARTS: Mapping[str, Callable[..., list[dict[str, Any]]]] = {
    "partitions": partitions.run,
    "cluster": cluster.run,
    "connections": clients.connections,
    "groups": groups.run,
    "producers": producers.run,
    "comings": clients.comings,
    "log": log_size.run,
}


def run(quick: bool) -> list[dict[str, Any]]:
    """The rows of all parts that are asked for. Raises SystemExit: there is no such part."""
    wanted = [name for name in os.environ.get("ONLY", "").split(",") if name] or list(PARTS)
    if unknown := [name for name in wanted if name not in PARTS]:
        raise SystemExit(f"ONLY={unknown[0]}: there are {', '.join(PARTS)}")
    return [row for name in wanted for row in PARTS[name](quick=quick)]
