"""librdkafka's mock cluster as a process of its own: ``python -m minikafka.loadgen.mock_cluster BROKERS``.

It lives inside a librdkafka client. Prints the brokers' addresses with commas between, and ends with its
input. The mock keeps the last 5 MiB of each partition, in memory, and gives every topic four partitions.
"""

from __future__ import annotations

import sys

from confluent_kafka import Producer

ANSWER_S = 10.0


def main() -> int:
    """Run the cluster until standard input ends."""
    brokers = int(sys.argv[1])
    host = Producer({"test.mock.num.brokers": brokers, "log_level": 0})
    found = host.list_topics(timeout=ANSWER_S).brokers.values()
    print(",".join(f"{each.host}:{each.port}" for each in found), flush=True)
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
