"""Which brokers keep the replicas of new partitions. Pure: brokers and an rng in, an assignment out.

Kafka: ``AdminUtils.assignReplicasToBrokersRackUnaware``. First replicas go round the brokers from a random
start, so that leaders are spread; the further replicas of a partition follow at a shift that grows by one
with each round, so that two partitions which share their first replica do not share all the others.

Where it differs: racks are not taken into account.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from minikafka.types import BrokerId


def assign_replicas(
    brokers: Sequence[BrokerId],
    *,
    partitions: int,
    replication_factor: int,
    first_partition: int = 0,
    rng: random.Random,
) -> list[tuple[BrokerId, ...]]:
    """Replicas for ``partitions`` new partitions, numbered from ``first_partition``; the first is preferred.

    The caller has checked that 1 <= ``replication_factor`` <= the number of ``brokers``.
    """
    count = len(brokers)
    start = rng.randrange(count)
    shift = rng.randrange(count)
    assignment = []
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % count == 0:
            shift += 1
        first = (partition + start) % count
        followers = (
            (first + 1 + (shift + follower) % (count - 1)) % count
            for follower in range(replication_factor - 1)
        )
        assignment.append((brokers[first], *(brokers[index] for index in followers)))
    return assignment
