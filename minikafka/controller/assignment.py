"""Which brokers keep the replicas of new partitions. Pure: brokers and an rng in, an assignment out.

Kafka: ``AdminUtils.assignReplicasToBrokers`` (KIP-36); for the same random numbers the result is Kafka's.
First replicas go round the brokers from a random start, so that leaders are spread; the further replicas of a
partition follow at a shift that grows by one with each round, so that two partitions which share their first
replica do not share all the others.

With racks the brokers are arranged so that neighbours are in different racks, and a replica skips a broker as
long as its rack has a replica while another rack has none. Racks count only when all brokers have one
(``RackAwareMode.Safe``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, count, zip_longest
from typing import Protocol

from minikafka.named_tuple import NamedTuple
from minikafka.types import BrokerId


class RandomNumbers(Protocol):
    """What an assignment needs of ``random.Random``."""

    def randrange(self, stop: int, /) -> int: ...


class BrokerMetadata(NamedTuple):
    """What an assignment needs to know of a broker."""

    node_id: BrokerId
    rack: str | None = None


def assign_replicas(
    brokers: Sequence[BrokerMetadata],
    *,
    partitions: int,
    replication_factor: int,
    first_partition: int = 0,
    rng: RandomNumbers,
) -> list[tuple[BrokerId, ...]]:
    """Replicas for ``partitions`` new partitions, numbered from ``first_partition``; the first is preferred.

    The caller has checked that 1 <= ``replication_factor`` <= the number of ``brokers``, and has sorted them.
    """
    racks = {broker.node_id: broker.rack for broker in brokers}
    is_rack_aware = all(rack is not None for rack in racks.values())
    arranged = rack_alternated(brokers) if is_rack_aware else [broker.node_id for broker in brokers]
    start = rng.randrange(len(arranged))
    shift = rng.randrange(len(arranged))
    assignment = []
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % len(arranged) == 0:
            shift += 1
        first = (partition + start) % len(arranged)
        if is_rack_aware:
            candidates = _candidates(arranged, first, shift * len(set(racks.values())))
            assignment.append(_over_racks(candidates, racks, replication_factor))
        else:
            candidates = _candidates(arranged, first, shift)
            assignment.append(tuple(next(candidates) for _ in range(replication_factor)))
    return assignment


def rack_alternated(brokers: Sequence[BrokerMetadata]) -> list[BrokerId]:
    """One broker of each rack in turn, racks and brokers sorted, until none is left.

    Racks a: 0, 1, 2; b: 3, 4; c: 5 are arranged as 0, 3, 5, 1, 4, 2.
    """
    by_rack: dict[str, list[BrokerId]] = {}
    for broker in sorted(brokers):
        by_rack.setdefault(broker.rack or "", []).append(broker.node_id)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [node_id for node_id in chain.from_iterable(rounds) if node_id is not None]


def _candidates(arranged: Sequence[BrokerId], first: int, shift: int) -> Iterator[BrokerId]:
    """The first replica's broker, and then the others over and over, from ``shift`` behind it."""
    yield arranged[first]
    others = len(arranged) - 1
    for follower in count() if others else ():
        yield arranged[(first + 1 + (shift + follower) % others) % len(arranged)]


def _over_racks(
    candidates: Iterator[BrokerId], racks: dict[BrokerId, str | None], replication_factor: int
) -> tuple[BrokerId, ...]:
    """As many of ``candidates`` as are wanted, each in a rack without a replica while there is one."""
    rack_count = len(set(racks.values()))
    replicas: list[BrokerId] = []
    used: set[str | None] = set()
    for candidate in candidates:
        if candidate not in replicas and (racks[candidate] not in used or len(used) == rack_count):
            replicas.append(candidate)
            used.add(racks[candidate])
            if len(replicas) == replication_factor:
                break
    return tuple(replicas)
