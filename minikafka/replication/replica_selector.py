"""Which replica a consumer should read from (KIP-392), asked by the leader for each of its fetches.

Kafka: ``ReplicaSelector`` with ``RackAwareReplicaSelector`` and ``LeaderSelector``; the comparator of
``ReplicaView``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from minikafka.errors import ConfigError
from minikafka.types import BrokerId, Offset


class ReplicaView(NamedTuple):
    """A replica that has the record which the consumer wants."""

    broker_id: BrokerId
    rack: str | None
    log_end_offset: Offset
    lag_ms: int
    """How long ago it was last caught up; 0 for the leader."""


ReplicaSelector = Callable[[str, ReplicaView, Sequence[ReplicaView]], ReplicaView]
"""Rack of the consumer (empty when it did not say), the leader, the followers → one of them."""


def select_in_rack(rack: str, leader: ReplicaView, followers: Sequence[ReplicaView]) -> ReplicaView:
    """The leader if it is in the rack, else the follower there that is closest behind it, else the leader."""
    if not rack or leader.rack == rack:
        return leader
    near = [follower for follower in followers if follower.rack == rack]
    return max(near, key=_most_caught_up) if near else leader


def select_leader(rack: str, leader: ReplicaView, followers: Sequence[ReplicaView]) -> ReplicaView:
    """Always the leader."""
    return leader


def _most_caught_up(replica: ReplicaView) -> tuple[int, int, int]:
    return replica.log_end_offset, -replica.lag_ms, replica.broker_id


_SELECTORS: Final[dict[str, ReplicaSelector]] = {
    "org.apache.kafka.common.replica.RackAwareReplicaSelector": select_in_rack,
    "org.apache.kafka.common.replica.LeaderSelector": select_leader,
}


def replica_selector(class_name: str | None) -> ReplicaSelector | None:
    """The selector that ``replica.selector.class`` names; None: consumers are not sent elsewhere.

    Raises:
        ConfigError: there is no such selector.
    """
    if class_name is None:
        return None
    try:
        return _SELECTORS[class_name]
    except KeyError:
        raise ConfigError(
            f"replica.selector.class = {class_name}: this broker has {', '.join(_SELECTORS)}"
        ) from None
