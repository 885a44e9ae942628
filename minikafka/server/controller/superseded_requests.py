"""What is left of a refused control request when later ones wait behind it.

Kafka has no counterpart: its brokers keep a request until the store answers, and the later ones wait.

A partition is left out where a later request says it again: a LeaderAndIsr where one names it, or a
StopReplica deletes it; an UpdateMetadata where one names it. What is left out of a LeaderAndIsr as new is new
in the later one, because the broker has not seen it yet. A request that is full means what it does not name,
too, so only another full one takes its place.
"""

from __future__ import annotations

from collections import deque

import msgspec

from minikafka.protocol.control.messages import (
    ControlRequest,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from minikafka.types import TopicPartition


def without_superseded(queue: deque[ControlRequest]) -> None:
    """Leave out of the first request of ``queue`` what later ones say again, all of it if nothing is left."""
    first = queue[0]
    match first:
        case LeaderAndIsrRequest() | UpdateMetadataRequest():
            pass
        case _:
            return
    later = [each for each in list(queue)[1:] if type(each) is type(first)]
    if any(each.is_full for each in later if isinstance(each, LeaderAndIsrRequest | UpdateMetadataRequest)):
        left: tuple[LeaderAndIsrPartition, ...] = ()
    elif first.is_full:
        return
    else:
        said_again = _said_again(queue, first)
        left = tuple(each for each in first.partitions if each.topic_partition not in said_again)
    if len(left) == len(first.partitions):
        return
    _carry_over_new(queue, [each for each in first.partitions if each.is_new and each not in left])
    if left:
        queue[0] = msgspec.structs.replace(first, partitions=left)
    else:
        queue.popleft()


def _said_again(queue: deque[ControlRequest], first: ControlRequest) -> set[TopicPartition]:
    found: set[TopicPartition] = set()
    for request in list(queue)[1:]:
        match request:
            case LeaderAndIsrRequest() | UpdateMetadataRequest() if type(request) is type(first):
                found.update(each.topic_partition for each in request.partitions)
            case StopReplicaRequest() if isinstance(first, LeaderAndIsrRequest):
                found.update(
                    TopicPartition(each.topic, each.partition) for each in request.partitions if each.delete
                )
    return found


def _carry_over_new(queue: deque[ControlRequest], dropped: list[LeaderAndIsrPartition]) -> None:
    """The first of the later requests that names such a partition is the first that the broker hears of."""
    new = {(each.topic_partition, each.topic_id) for each in dropped}
    for index in range(1, len(queue)):
        request = queue[index]
        if isinstance(request, LeaderAndIsrRequest):
            partitions = tuple(
                msgspec.structs.replace(each, is_new=True)
                if (each.topic_partition, each.topic_id) in new
                else each
                for each in request.partitions
            )
            new.difference_update((each.topic_partition, each.topic_id) for each in partitions)
            queue[index] = msgspec.structs.replace(request, partitions=partitions)
