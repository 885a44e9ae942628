"""What a reassignment has to copy, and how long that takes under a throttle: said before it begins.

Kafka: nothing; its operators reckon by hand. The throttle (KIP-73) limits what each broker sends and what
each broker receives, so the side with fewer brokers is the narrow one::

    duration = bytes / (min(number of leaders, number of followers) * rate)

This supposes that each broker of that side has the same share. With one big partition among small ones the
big one takes longer; what producers write meanwhile is not in it either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from minikafka.cli.reassign.plan import Plan
from minikafka.cli.reassign.progress import bytes_left, log_dirs_of
from minikafka.cli.shared.admin_client import AdminClient
from minikafka.cli.shared.quantities import format_bytes, format_duration, format_rate
from minikafka.types import BrokerId, ReplicaAssignment, TopicPartition


class CopyEstimate(NamedTuple):
    """So many bytes, from so many brokers to so many brokers."""

    size_bytes: int
    leaders: int
    followers: int

    def duration_ms(self, bytes_per_s: int) -> float | None:
        """At a throttle of ``bytes_per_s``; None: with that rate it never ends."""
        width = min(self.leaders, self.followers) * bytes_per_s
        if self.size_bytes == 0:
            return 0.0
        return self.size_bytes * 1000 / width if width else None

    def describe(self, bytes_per_s: int | None) -> str:
        """A sentence; None: no throttle, so nobody knows how long."""
        text = (
            f"To copy: {format_bytes(self.size_bytes)}, "
            f"from {_count(self.leaders, 'leader')} to {_count(self.followers, 'follower')}"
        )
        if bytes_per_s is None:
            return f"{text}."
        duration_ms = self.duration_ms(bytes_per_s)
        how_long = "it never ends" if duration_ms is None else f"about {format_duration(duration_ms)}"
        return f"{text}; {how_long} at {format_rate(bytes_per_s)}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


async def estimate(
    admin: AdminClient, plan: Plan, under_way: Mapping[TopicPartition, ReplicaAssignment]
) -> CopyEstimate:
    """What will be copied once ``plan`` goes on besides what is ``under_way``.

    Partitions that are gone, those without a leader and those whose leader does not answer are left out.

    Raises:
        KafkaError, BrokerUnavailable: the cluster as a whole does not answer.
    """
    topics = {each.partition.topic for each in plan} | {each.topic for each in under_way}
    partitions = await admin.partitions(sorted(topics))
    moves = dict(under_way)
    for each in plan:
        now = partitions.get(each.partition)
        if now is not None:  # or its topic was deleted a moment ago
            before = moves.get(each.partition)
            origin = _brokers(now.replicas) if before is None else before.origin
            moves[each.partition] = ReplicaAssignment(origin).reassign_to(_brokers(each.replicas))
    copied = {each: move for each, move in moves.items() if move.adding and each in partitions}
    brokers = {
        node_id for each, move in copied.items() for node_id in (partitions[each].leader, *move.adding)
    }
    live = (await admin.nodes()).brokers
    log_dirs = await log_dirs_of(admin, sorted(brokers & set(live)), sorted(copied))
    left = {each: size for each, size in bytes_left(copied, partitions, log_dirs).items() if size}
    return CopyEstimate(
        sum(left.values()),
        leaders=len({partitions[each].leader for each in left}),
        followers=len({node_id for each in left for node_id in copied[each].adding}),
    )


def _brokers(node_ids: tuple[int, ...]) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, node_ids))
